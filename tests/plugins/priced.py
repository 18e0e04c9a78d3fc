"""A target whose every attempt takes the same, also one that fails, and that writes down what it is asked.

priced.py LOG TOKENS      a line for each attempt, as logged.py writes them
"""

import asyncio
import os
import random
import sys
import time

from evalbus import Context, FailureCategory, Item, Output, TrialFailed, Usage, serve, target

LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
TOKENS = int(sys.argv[2])
FAILING = 0.2
"""The share of attempts that fail."""


@target("priced", version="1.0.0")
async def priced(item: Item, ctx: Context) -> Output:
    """Echoes, if it does not fail."""
    os.write(LOG, f"asked {item.id} {os.getpid()} {time.time()}\n".encode())
    ctx.progress(usage=Usage(TOKENS))
    await asyncio.sleep(random.uniform(0.0, 0.4))
    if random.random() < FAILING:
        raise TrialFailed("not now", FailureCategory.UNAVAILABLE)
    return Output(item.input, usage=Usage(TOKENS))


serve(priced)
