"""How many short outputs each builtin scorer judges in a second, in one thread and a loop over its plain function.

    python scripts/bench/scorers.py [NAME …]

Each is asked about an output that it has to look at: one that is not simply equal to the expected answer. Left out are
those that wait for a model, and combinations, which cost what their parts do.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from evalbus import Item, Money, Output, ScoreTask, Timing, ToolCall, Usage, Value
from evalbus._plugin import Open, Purpose
from evalbus_server.scorer.builtin import ASKING, BUILTINS
from evalbus_server.scorer.builtin.combinations import Combination

WANTED = 50_000
MEASURED = [name for name, scorer in BUILTINS.items() if name not in ASKING and not isinstance(scorer, Combination)]
SECONDS = 0.4

TEXTS = ("It is Paris.", "Paris")
CALLS = Output(
    "done",
    tool_calls=[ToolCall("search", {"q": "Paris"}, duration=0.1), ToolCall("book", {"city": "Paris"}, duration=0.2)],
    usage=Usage(120, 30, cost=Money(1_200)),
    timing=Timing(1.5, 0.2),
)
STEPS = [{"name": "search"}, {"name": "book"}]
ASKED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "regex": (*TEXTS, {"pattern": r"[A-Z]\w+\.$"}),
    "answer_match": ("ANSWER: Rome", "Paris", {}),
    "multiple_choice": ("ANSWER: B", "A", {}),
    "last_number": ("It is 42.", "41", {}),
    "numeric_diff": ("42", "41", {}),
    "json_valid": ('{"city": "Paris", "n": 1}', None, {}),
    "json_schema_valid": (
        {"city": "Paris"},
        None,
        {"schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    ),
    "json_diff": ({"city": "Paris", "n": 1}, {"city": "Rome", "n": 1}, {}),
    "list_contains": (["Paris", "Rome"], ["Rome", "Oslo"], {}),
    "length": ("It is Paris.", None, {"at_most": 10}),
    "latency_limit": (CALLS, None, {"seconds": 1.0}),
    "cost_limit": (CALLS, None, {"amount": 0.001}),
    "token_limit": (CALLS, None, {"tokens": 100}),
    "tool_called": (CALLS, None, {"tool": "book"}),
    "tool_not_called": (CALLS, None, {"tools": ["delete"]}),
    "tool_order": (CALLS, None, {"tools": ["search", "book"]}),
    "tool_call_limit": (CALLS, None, {"at_most": 1}),
    "no_tool_errors": (CALLS, None, {}),
    "tool_call_accuracy": (CALLS, None, {"tools": ["search", "book"]}),
    "tool_arguments": (CALLS, None, {"calls": [{"name": "search", "arguments": {"q": "Rome"}}]}),
    "trajectory": (CALLS, None, {"steps": STEPS}),
    "trajectory_efficiency": (CALLS, None, {"max_steps": 1}),
    "trajectory_blacklist": (CALLS, None, {"tools": ["delete"]}),
    "tool_failures": (CALLS, None, {}),
}
"""Output, expected answer and settings where others than the usual ones make sense."""


async def call_of(name: str) -> Callable[[ScoreTask], Any]:
    """The plain function with settings and state filled in."""
    scorer = BUILTINS[name]
    settings = ASKED[name][2] if name in ASKED else {}
    opening = Open(
        name, session_id="bench", run_id="bench", purpose=Purpose.OFFLINE, settings_json=json.dumps(settings)
    )
    opened = await scorer.open(opening)
    filled = {
        parameter: value
        for parameter, value in (("settings", opened.settings), ("state", opened.state))
        if parameter in inspect.signature(scorer.function).parameters
    }
    return lambda task: scorer.function(task, **filled)


def task_of(name: str) -> ScoreTask:
    """The task that a scorer is asked."""
    output, expected, _ = ASKED.get(name, (*TEXTS, {}))
    item = Item("i1", "", None if expected is None else Value.of(expected), choices=("Paris", "Rome"))
    return ScoreTask(0, 1, item, output if isinstance(output, Output) else Output(Value.of(output)))


def rate_of(call: Callable[[ScoreTask], Any], task: ScoreTask) -> float:
    """Scores in a second of this thread's processor time, since other programs run too; the best of three."""
    best = 0.0
    for _ in range(3):
        count = 0
        began = time.thread_time()
        while (passed := time.thread_time() - began) < SECONDS / 3:
            for _ in range(200):
                call(task)
            count += 200
        best = max(best, count / passed)
    return best


def main(names: list[str]) -> int:
    """Measure, print, and say whether all are quick enough."""
    slow = []
    for name in names or MEASURED:
        call, task = asyncio.run(call_of(name)), task_of(name)
        rate = rate_of(call, task)
        score = call(task)
        print(f"{name:24}{rate:12,.0f}/s   {score.status.name} {score.value}")
        if rate < WANTED:
            slow.append(name)
    print(f"slower than {WANTED:,}/s: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
