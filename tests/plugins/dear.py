"""A target and a scorer that fail once, after they have consumed much, and then ask to wait for long.

dear.py FOLDER      what has failed before stands there
"""

import sys
from pathlib import Path

from evalbus import Context, Item, Output, Score, TrialFailed, Usage, scorer, serve, target

FAILED = 1000
"""Tokens of an attempt that fails."""
ANSWERED = 1


def fail_once(who: str, item: Item, ctx: Context) -> None:
    """The first time that somebody is asked the first item."""
    mark = Path(sys.argv[1], f"{who}-has-failed")
    if item.id == "i000" and not mark.exists():
        mark.touch()
        ctx.progress(usage=Usage(FAILED))
        raise TrialFailed.rate_limited("not now", retry_after=250)


@target("dear-target", version="1.0.0")
def dear_target(item: Item, ctx: Context) -> Output:
    """Echoes."""
    fail_once("target", item, ctx)
    return Output(item.input, usage=Usage(ANSWERED))


@scorer("dear-scorer", version="1.0.0")
def dear_scorer(item: Item, output: Output, ctx: Context) -> Score:
    """Full marks."""
    fail_once("scorer", item, ctx)
    return Score.scored(1.0, usage=Usage(ANSWERED))


serve(dear_target, dear_scorer)
