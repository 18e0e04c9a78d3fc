"""A quick target and a quick scorer for the soak: soak_plugin.py [target|scorer]; one trial in a hundred is asked twice."""

from __future__ import annotations

import zlib

from evalbus import Context, Item, Output, Score, TrialFailed, Usage, scorer, serve, target


@target("soak-target", version="1.0.0", mode="inline")
def soak_target(item: Item, ctx: Context) -> Output:
    """Echoes; fails the first attempt of some trials."""
    if ctx.attempt % 1000 == 1 and zlib.crc32(f"{item.id} {ctx.epoch}".encode()) % 100 == 0:
        raise TrialFailed.unavailable("not now")
    return Output(item.input, usage=Usage(input_tokens=3, calls=1))


@scorer("soak-scorer", version="1.0.0", mode="inline")
def soak_scorer(item: Item, output: Output) -> Score:
    """Whether it was echoed."""
    return Score.scored(float(output.text == item.input.text))


if __name__ == "__main__":
    serve(soak_target, soak_scorer)
