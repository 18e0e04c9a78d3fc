"""No scorer blocks the server: not with megabytes, not with endless patterns, not with deep documents."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest

from evalbus import Failure, Item, Output, Score, ScorerBench, ScoreStatus, ScoreTask, ToolCall, Value
from evalbus.worker import Worker
from evalbus_server.scorer.builtin import BUILTINS
from tests.e2e.service import echoing, experiment, serving
from tests.unit.server.scorer.asking import CALCULATED

MEGABYTE = 1_000_000
SETTINGS: dict[str, dict[str, Any]] = {
    "regex": {"pattern": "^(a+)+$"},
    "length": {"at_most": 10, "unit": "words"},
    "json_schema_valid": {"schema": {"type": "array", "items": {"type": "array"}}},
    "latency_limit": {"seconds": 1},
    "cost_limit": {"amount": 1},
    "token_limit": {"tokens": 1},
    "tool_called": {"tool": "a"},
    "tool_not_called": {"tools": ["b"]},
    "tool_order": {"tools": ["a", "a"]},
    "tool_call_limit": {"at_most": 1},
    "tool_call_accuracy": {"tools": ["a", "b"]},
    "tool_arguments": {"calls": [{"name": "a", "arguments": {}}]},
    "trajectory": {"steps": ["a"] * 5_000},
    "trajectory_blacklist": {"sequences": [["a", "b"]]},
    "weighted_blend": {"scorers": ["levenshtein", "rouge_l", "includes"]},
    "all_of": {"scorers": ["f1", "json_diff"]},
    "any_of": {"scorers": ["exact_match", "bleu"]},
    "most_of": {"scorers": ["similarity", "content_similarity", "match"]},
    "cascade": {"scorers": ["exact_match", {"use": "json_schema_valid", "settings": {"schema": {"type": "array"}}}]},
    "negate": {"scorer": "chrf"},
    "threshold": {"scorer": "list_contains", "at": 0.5},
}


def words(number: int, seed: int) -> str:
    """A text of so many characters, in words that are all different from those of another seed."""
    drawn = random.Random(seed)
    letters = "abcdefghijklm" if seed % 2 else "nopqrstuvwxyz"
    return "".join(drawn.choice(letters) if drawn.random() < 0.85 else " " for _ in range(number))


LONG = words(MEGABYTE, 1)
OTHER = words(900_000, 2)
DEEP = "[" * 10_000 + "]" * 10_000
NUMBERS = " ".join(str(number) for number in range(150_000))
OUTPUTS: dict[str, Callable[[], tuple[Output, Value]]] = {
    "a megabyte of words": lambda: (Output(LONG), Value(OTHER)),
    "a megabyte without a space": lambda: (Output("ab" * 500_000), Value("cd" * 400_000)),
    "a megabyte of digits": lambda: (Output("1" * MEGABYTE), Value("1" * 900_000)),
    "a megabyte of numbers": lambda: (Output(NUMBERS), Value("7")),
    "a megabyte of points": lambda: (Output("1.," * 333_333), Value("7")),
    "a megabyte of answers": lambda: (Output("ANSWER: A\n" * 100_000), Value("B")),
    "JSON nested 10,000 deep": lambda: (Output(DEEP), Value(DEEP)),
    "a long list": lambda: (
        Output(Value.of([f"a{number}" for number in range(60_000)])),
        Value.of([[f"b{number}" for number in range(50_000)]]),
    ),
    "many calls": lambda: (Output("", tool_calls=[ToolCall("a", {"n": n}) for n in range(8_000)]), Value("a")),
}


@cache
def made(what: str) -> tuple[Output, Value]:
    """An output and what is expected, made once."""
    return OUTPUTS[what]()


@cache
def limit() -> float:
    """CPU seconds for which the loop may be held: half of one where this was measured, more on a slower machine."""
    began = time.process_time()
    sorted(str(number * number) for number in range(100_000))
    return 60 * (time.process_time() - began)


@asynccontextmanager
async def watching() -> AsyncIterator[list[float]]:
    """How long the loop was held at a time, in CPU seconds of this process: others may take the machine away from it."""
    gaps = [0.0]

    async def watch() -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(0.005)
            gaps.append(time.process_time() - began)

    task = asyncio.create_task(watch())
    await asyncio.sleep(0.02)
    yield gaps
    task.cancel()


@pytest.mark.parametrize("what", OUTPUTS)
@pytest.mark.parametrize("name", CALCULATED)
async def test_a_large_output_is_judged_without_holding_the_loop(name, what):
    output, expected = made(what)
    item = Item("i1", "", expected, choices=("one", "two"))
    bench = ScorerBench(BUILTINS[name], SETTINGS.get(name))
    opened = await bench.open()
    async with watching() as gaps:
        score = await judged(name, opened, item, output)

    assert isinstance(score, Score | Failure)
    assert max(gaps) < limit(), f"the loop was held for {max(gaps):.2f} s"


async def judged(name: str, opened: Any, item: Item, output: Output) -> Any:
    """The score, or the failure instead, without the bench's own copying of messages, which is large here."""
    answers: list[Any] = []
    worker = Worker(BUILTINS[name], opened, answers.extend, lambda news: None)
    worker.submit([ScoreTask(1, 1, item, output)])
    await worker.drain()
    await worker.close()
    result = answers[0].result
    return result if isinstance(result, Failure) else result[0]


async def test_case_sc_15_a_pattern_that_would_never_end_is_done_at_once():
    score = await ScorerBench(BUILTINS["regex"], {"pattern": "^(a+)+$"}).score("", "a" * 300 + "!")
    assert score.value == 0.0  # with steps back it would take longer than the world is old


async def test_even_the_worst_pattern_leaves_the_loop_alone():
    settings = {"pattern": "(?:[ab]*a[ab]{300}[cd]|[ab]*b[ab]{300}[ef])x"}
    drawn = random.Random(3)
    text = "".join(drawn.choice("abcdef") if drawn.random() < 0.01 else drawn.choice("ab") for _ in range(MEGABYTE))
    opened = await ScorerBench(BUILTINS["regex"], settings).open()
    async with watching() as gaps:
        score = await judged("regex", opened, Item("i1"), Output(text))

    assert score.status in (ScoreStatus.SCORED, ScoreStatus.ERRORED)
    assert max(gaps) < limit()


@pytest.mark.parametrize("name", ["levenshtein", "textual_difference", "similarity", "rouge_l", "bleu", "chrf", "f1"])
async def test_case_sc_07_a_status_is_answered_while_very_long_texts_are_compared(name, tmp_path):
    texts = [(words(200_000, seed), words(200_000, seed + 1)) for seed in (1, 3)]
    async with echoing() as address, serving(tmp_path) as served:
        given = [Item(f"i{place}", asked, expected) for place, (asked, expected) in enumerate(texts)]
        await served.client.upload_dataset("d", given)
        run = await served.client.start(experiment(address, scorers=[{"use": name, "timeout": "20s"}]))
        for _ in range(20):
            await asyncio.wait_for(run.get(), 60)
            await asyncio.sleep(0.02)
        ended = await run.wait()
        results = [result async for result in run.results()]

    assert ended.state.name == "COMPLETED"
    for result in results:
        (score,) = [scored.score for scored in result.scores]
        assert score.status in (ScoreStatus.SCORED, ScoreStatus.ERRORED)
        if score.status is ScoreStatus.ERRORED:
            assert score.failure is not None
            assert score.failure.reason == "TEXT_TOO_LONG"


@pytest.mark.parametrize("name", CALCULATED)
async def test_very_many_expected_answers_hold_nobody_up(name):
    """Of any one of which would do: each is compared with a large output, or it is said that this would take too long."""
    output, expected = made("a megabyte of words")[0], Value.of([f"w{number}" for number in range(30_000)])
    opened = await ScorerBench(BUILTINS[name], SETTINGS.get(name)).open()
    async with watching() as gaps:
        score = await judged(name, opened, Item("i1", "", expected, choices=("one", "two")), output)

    assert isinstance(score, Score | Failure)
    assert max(gaps) < limit(), f"the loop was held for {max(gaps):.2f} s"


@pytest.mark.parametrize(
    "name", ["includes", "excludes", "match", "regex", "f1", "bleu", "chrf", "json_diff", "content_similarity"]
)
async def test_an_output_is_not_read_for_minutes_however_many_answers_are_expected(name):
    settings = {"location": "any"} if name == "match" else None
    expected = [f"w{number}" for number in range(3_000)]
    item, output = Item("i1", "", expected), Output("ab " * 30_000)
    score = await ScorerBench(BUILTINS[name], settings).score(item, output)
    assert score.failure is not None
    assert score.failure.reason == "TEXT_TOO_LONG"
    assert "90,000 characters is too long to be compared with 3,000 expected answers" in score.failure.message
