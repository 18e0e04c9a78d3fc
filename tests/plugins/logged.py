"""A target and a scorer that write down whatever they are asked, and when they have answered.

logged.py target|scorer LOG      a line for each: word, item, process, time
"""

import asyncio
import os
import random
import sys
import time

from evalbus import Item, Output, Score, scorer, serve, target

LOG = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if len(sys.argv) > 2 else -1
LONGEST = 0.4


def note(word: str, item: Item) -> None:
    """One line, in one write."""
    os.write(LOG, f"{word} {item.id} {os.getpid()} {time.time()}\n".encode())


async def work(item: Item) -> None:
    """Take some time, and write down its beginning and its end."""
    note("asked", item)
    await asyncio.sleep(random.uniform(0.0, LONGEST))
    note("done", item)


@target("logged-target", version="1.0.0")
async def logged_target(item: Item) -> Output:
    """Echoes."""
    await work(item)
    return Output(item.input)


@scorer("logged-scorer", version="1.0.0")
async def logged_scorer(item: Item, output: Output) -> Score:
    """Whether it was echoed."""
    await work(item)
    return Score.scored(float(output.text == item.input.text))


if __name__ == "__main__":
    if sys.argv[1] == "target":
        serve(logged_target)
    else:
        serve(logged_scorer)
