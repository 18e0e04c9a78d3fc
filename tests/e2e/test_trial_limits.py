"""Bounds of single trials, with real plugins: in a process of its own or in this one, obedient or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import evalbus_server
from evalbus import Context, Item, Output, Usage, target
from evalbus_server import Outcome, RunReport, RunState

ASKED = ["slow 5", "slow 1000000", "quick 5", "quick 6", "stubborn 60", "slow 1"]
OVER = [False, True, False, True, True, False]
_TARGET = """
import asyncio
from evalbus import Context, Item, Output, Usage, serve, target

@target("walker", version="1")
async def walker(item: Item, ctx: Context) -> Output:
    kind, _, count = item.input.text.partition(" ")
    for step in range(1, int(count) + 1):
        ctx.progress(steps=step, usage=Usage(input_tokens=10 * step))
        try:
            await asyncio.sleep(0.0 if kind == "quick" else 0.05)
        except asyncio.CancelledError:
            if kind != "stubborn":
                raise
    return Output(f"{count} of {ctx.limits.steps}", usage=Usage(input_tokens=10 * int(count)))

serve(walker)
"""


def document(use: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "bounded",
        "dataset": {"records": [{"id": f"i{place}", "input": text} for place, text in enumerate(ASKED)]},
        "target": use,
        "limits": {"trial": {"steps": 5}, "concurrency": 8, "retries": 3},
    }


def held_to_the_limit(report: RunReport) -> None:
    """The target is told the limit; who keeps to it passes, and who does not is ERRORED with what it took."""
    results = list(report.results())
    assert report.run.state is RunState.COMPLETED
    assert [result.outcome for result in results] == [Outcome.ERRORED if over else Outcome.PASSED for over in OVER]
    for result, over, asked in zip(results, OVER, ASKED, strict=True):
        assert result.attempts == 1
        assert result.usage is not None
        if over:
            assert result.failure is not None
            assert (result.failure.category.name, result.failure.reason) == ("BUDGET", "TRIAL_LIMIT")
            assert "limits.trial.steps is 5" in result.failure.message
            assert result.usage.input_tokens >= 60
        else:
            count = int(asked.split()[1])
            assert result.output is not None and result.output.text == f"{count} of 5"
            assert result.usage.input_tokens == 10 * count


def test_a_launched_target_is_held_to_its_limits(tmp_path: Path) -> None:
    script = tmp_path / "walker.py"
    script.write_text(_TARGET)

    held_to_the_limit(evalbus_server.run(document({"command": [sys.executable, str(script)]})))


def test_a_function_in_this_process_is_held_to_its_limits() -> None:
    """The same without a socket, and of a function that does not wait for anything."""

    @target("walker", version="1")
    def walker(item: Item, ctx: Context) -> Output:
        count = int(item.input.text.split()[1])
        for step in range(1, count + 1):
            if ctx.cancelled and not item.input.text.startswith("stubborn"):
                break
            ctx.progress(steps=step, usage=Usage(input_tokens=10 * step))
        return Output(f"{count} of {ctx.limits.steps}", usage=Usage(input_tokens=10 * count))

    held_to_the_limit(evalbus_server.run(document({"use": "walker"}), target=walker))
