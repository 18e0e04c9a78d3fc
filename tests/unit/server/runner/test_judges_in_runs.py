"""Judges in runs: the server's rules ask again, count and bound; a judge by itself does none of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from evalbus import FailureCategory, Item, Money, Score, ScoreStatus
from evalbus_server.model.run import Run, RunState
from evalbus_server.scorer.builtin import BUILTINS
from tests.mock_endpoint import Call, Hang, MockEndpoint, Says, Status
from tests.unit.server.runner.test_runs import Desk, desk, numbered, target_of

YES = {"reason": "r", "verdict": "yes"}


async def answer(item: Item) -> str:
    return f"the answer to {item.id}"


async def judged(d: Desk, mock: MockEndpoint, *, scorer: Any = None, **more: Any) -> Run:
    plugins = {**target_of(answer), "judge_closed_qa": BUILTINS["judge_closed_qa"]}
    settings = {"model": "m", "base_url": mock.base_url, "api_key": "k", "criterion": "it is one"}
    prices = {"prices": {"input": 100, "output": 100}}
    return await d.run(
        plugins, scorers=[{"use": "judge_closed_qa", "settings": settings | prices, **(scorer or {})}], **more
    )


def scores_of(d: Desk, run: Run) -> list[Score]:
    return [each.scores[0].score for each in d.store.results(run)]


async def test_what_an_endpoint_refuses_for_now_is_asked_again_by_the_servers_rules(tmp_path: Path):
    async with desk(tmp_path, numbered(1)) as d:
        replies: list[Any] = [Status(429, {}, {"Retry-After": "0.05"}), Status(503, {}), YES]
        with MockEndpoint(replies) as mock:
            run = await judged(d, mock, limits={"retries": 1})
        (score,) = scores_of(d, run)
        rows = d.rows("SELECT category, calls FROM attempt ORDER BY attempt")

    assert score.value == 1.0
    assert [row[0] for row in rows] == [FailureCategory.RATE_LIMITED, FailureCategory.UNAVAILABLE]
    assert len(mock.calls) == 3


async def test_a_reply_that_is_no_verdict_is_not_asked_for_again(tmp_path: Path):
    async with desk(tmp_path, numbered(1)) as d:
        with MockEndpoint(lambda call: "maybe") as mock:
            run = await judged(d, mock)
        (score,) = scores_of(d, run)
        summary = await d.runs.summary(run.id)

    assert score.failure is not None
    assert (score.failure.reason, len(mock.calls)) == ("REPLY_INVALID", 1)
    assert summary.scores[0].mean is None
    assert summary.usage.calls == 1, "what it consumed counts all the same"
    assert summary.usage.cost == Money(12_000)


async def test_no_more_calls_run_at_a_time_than_the_scorer_may(tmp_path: Path):
    running, most = 0, 0
    lock = threading.Lock()
    both = threading.Barrier(3, timeout=30)

    def script(call: Call) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait()  # three must be there at the same time for one to go on
        with lock:
            running -= 1
        return YES

    class Parallel(MockEndpoint):
        def answer(self, call: Call) -> Any:
            return script(call)

    async with desk(tmp_path, numbered(12)) as d:
        with Parallel() as mock:
            run = await judged(d, mock, scorer={"concurrency": 3})
        assert (run.state, most) == (RunState.COMPLETED, 3)
        assert [score.value for score in scores_of(d, run)] == [1.0] * 12


async def test_a_key_of_the_environment_goes_to_its_endpoint_and_nowhere_else(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret-key")
    denied = Status(401, {"error": {"message": "Incorrect API key provided: sk-very-secret-key"}})
    async with desk(tmp_path, numbered(2)) as d:
        with MockEndpoint([YES, denied]) as mock:
            settings = {"model": "m", "base_url": mock.base_url, "api_key": "${env:JUDGE_KEY}", "criterion": "c"}
            run = await judged(d, mock, scorer={"settings": settings})
        assert {score.status for score in scores_of(d, run)} == {ScoreStatus.SCORED, ScoreStatus.ERRORED}
    assert {call.headers["authorization"] for call in mock.calls} == {"Bearer sk-very-secret-key"}
    for file in tmp_path.iterdir():
        assert b"very-secret" not in file.read_bytes(), file
    assert "very-secret" not in "".join(capsys.readouterr())


async def test_a_budget_ends_the_run(tmp_path: Path):
    async with desk(tmp_path, numbered(50)) as d:
        with MockEndpoint(lambda call: Says('{"reason": "r", "verdict": "yes"}')) as mock:
            run = await judged(d, mock, scorer={"concurrency": 1}, limits={"cost": 0.06, "concurrency": 1})
        assert run.state is RunState.ABORTED
        assert run.reason.startswith("BUDGET")
        assert 5 <= len(mock.calls) < 50


async def test_a_hang_ends_with_the_timeout_of_the_scorer(tmp_path: Path):
    async with desk(tmp_path, numbered(1)) as d:
        with MockEndpoint(lambda call: Hang()) as mock:
            run = await judged(d, mock, scorer={"timeout": "0.3s"}, limits={"retries": 0})
        (score,) = scores_of(d, run)

    assert score.failure is not None
    assert score.failure.category is FailureCategory.TIMEOUT


async def test_a_cheap_check_first_saves_the_judge(tmp_path: Path):
    items = [Item("i0", "?", "the answer to i0"), Item("i1", "?", "another answer")]
    async with desk(tmp_path, items) as d:
        with MockEndpoint(lambda call: {"reason": "r", "verdict": "same"}) as mock:
            model = {"model": "m", "base_url": mock.base_url, "api_key": "k"}
            parts = [{"use": "exact_match"}, {"use": "judge_factuality", "settings": model}]
            plugins = {**target_of(answer), "cascade": BUILTINS["cascade"]}
            run = await d.run(plugins, scorers=[{"use": "cascade", "settings": {"scorers": parts}}])
        assert run.state is RunState.COMPLETED
        assert len(mock.calls) == 1
        assert "another answer" in mock.calls[0].text
