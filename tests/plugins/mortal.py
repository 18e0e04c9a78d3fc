"""A target and a scorer of which one dies in the middle of its first item, after it has told what that took so far.

mortal.py FOLDER target|scorer      who dies, once the file `die` is there; asked again, it waits for the file `go`
"""

import asyncio
import os
import sys
from pathlib import Path

from evalbus import Context, Item, Output, Score, Usage, scorer, serve, target

FOLDER = Path(sys.argv[1])
LOST = 1000
"""Tokens of the attempt that nobody answers."""
ANSWERED = 1


async def come(name: str) -> None:
    """Wait for a file."""
    while not (FOLDER / name).exists():
        await asyncio.sleep(0.01)


async def live_or_die(who: str, item: Item, ctx: Context) -> None:
    """Other items are answered after the first one has told, so that whoever sees their answers has heard of it."""
    if who != sys.argv[2]:
        return
    if item.id != "i000":
        await come("told")
    elif (FOLDER / "told").exists():
        await come("go")
    else:
        ctx.progress(usage=Usage(LOST))
        while (figures := ctx._ticket.figures) is not None and figures.fresh:  # until it is on its way
            await asyncio.sleep(0.01)
        (FOLDER / "told").touch()
        await come("die")
        os._exit(9)


@target("mortal-target", version="1.0.0")
async def mortal_target(item: Item, ctx: Context) -> Output:
    """Echoes."""
    await live_or_die("target", item, ctx)
    return Output(item.input, usage=Usage(ANSWERED))


@scorer("mortal-scorer", version="1.0.0")
async def mortal_scorer(item: Item, output: Output, ctx: Context) -> Score:
    """Full marks."""
    await live_or_die("scorer", item, ctx)
    return Score.scored(1.0, usage=Usage(ANSWERED))


serve(mortal_target, mortal_scorer)
