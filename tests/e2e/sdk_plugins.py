"""Plugins of many tempers, served by the tests of the SDK in a process of their own."""

import asyncio
import contextlib
import dataclasses
import os
import random
import sys
import time

from evalbus import Context, Item, Output, Score, ScoreDeclaration, Usage, scorer, serve, target


@dataclasses.dataclass(frozen=True)
class Manners:
    greeting: str = "hello"
    times: int = 1


@target("echo", version="1.2.3")
async def echo(item: Item) -> Output:
    """Says what it is told."""
    return Output(item.input)


@target("polite", version="1.0.0")
def polite(item: Item, settings: Manners) -> str:
    return " ".join([settings.greeting] * settings.times + [item.input.text])


@target("moody", version="1.0.0")
async def moody(item: Item, ctx: Context) -> object:  # noqa: C901  # one case a temper
    """Does what the input says."""
    match item.input.text.partition(" "):
        case "cancel", _, _:
            raise asyncio.CancelledError
        case "sleep", _, seconds:
            try:
                await asyncio.sleep(float(seconds))
            except asyncio.CancelledError:
                print(f"cancelled {ctx.trial_id}", file=sys.stderr, flush=True)
                raise
            return "slept"
        case "big", _, size:
            return "x" * int(size)
        case "surrogate", _, _:
            return "\ud800"
        case "exit", _, _:
            sys.exit(3)
        case "remaining", _, _:
            return ctx.time_remaining()
        case "report", _, _:
            ctx.progress(steps=3, messages=7, usage=Usage(calls=2), note="half way")
            await asyncio.sleep(2.0)
            return "reported"
        case "print", _, _:
            print("noise on stdout", flush=True)
            return "printed"
        case "stubborn", _, _:
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
    return item.input


@target("sleeper", version="1.0.0")
def sleeper(item: Item, ctx: Context) -> str:
    """Sleeps in a thread until it is done, or no longer wanted."""
    until = time.monotonic() + float(item.input.text)
    while time.monotonic() < until and not ctx.cancelled:
        time.sleep(0.01)
    return f"cancelled: {ctx.cancelled}"


@target("unready", version="1.0.0", setup=lambda: 1 / 0)
def unready(item: Item) -> str:
    return "never"


@scorer("number", version="1.0.0", scores=[ScoreDeclaration(maximum=None)])
async def number(item: Item, output: Output) -> Score:
    """The item's own number, after a random while."""
    await asyncio.sleep(random.random() / 20)
    return Score.scored(float(output.text), f"of {item.id}")


@dataclasses.dataclass(frozen=True)
class Rubric:
    criteria: list[str] = dataclasses.field(default_factory=lambda: ["clear"])


@scorer("rubric", scores=lambda settings: [ScoreDeclaration(name) for name in settings.criteria], mode="inline")
def rubric(item: Item, output: Output, settings: Rubric) -> list[Score]:
    return [Score.scored(1.0, name=name) for name in settings.criteria]


PLUGINS = (echo, polite, moody, sleeper, unready, number, rubric)

if __name__ == "__main__":
    if os.environ.get("ONLY_ECHO"):
        serve(echo)
    else:
        serve(*PLUGINS)
