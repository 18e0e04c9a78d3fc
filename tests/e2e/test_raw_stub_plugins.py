"""Plugins from the generated code alone: if they got long, the contract would be wrong."""

from pathlib import Path

import grpc
import pytest

from evalbus import Item, Output, Score, ScoreStatus, ScoreTask
from evalbus.v1 import plugin_pb2, scorer_pb2_grpc, target_pb2_grpc

from .sdk_client import ROOT, Talk, connected, start

PLUGINS = ROOT / "tests/plugins"


@pytest.fixture
def raw(tmp_path: Path):
    started = []

    def run(name: str) -> str:
        started.append(start(tmp_path / "s", script=PLUGINS / name))
        return started[-1].address

    yield run
    for process in started:
        process.process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["raw_target.py", "raw_scorer.py"])
def test_it_is_short(name: str) -> None:
    code = [line for line in (PLUGINS / name).read_text().splitlines() if line.strip()]

    assert len(code) <= 40


async def test_a_target_without_the_sdk_answers_every_trial(raw) -> None:
    async with connected(raw("raw_target.py")) as channel:
        described = await target_pb2_grpc.TargetStub(channel).Describe(plugin_pb2.DescribeRequest())
        talk = Talk(channel)
        await talk.open("shouter")
        await talk.ask(*(f"trial {n}" for n in range(300)))

        results = await talk.until(300)
        assert {n: output.text for n, output in results.items()} == {n: f"TRIAL {n}" for n in range(300)}
        assert await talk.end() is grpc.StatusCode.OK
        assert [plugin.name for plugin in described.plugins] == ["shouter"]


async def test_a_scorer_without_the_sdk_scores_every_output(raw) -> None:
    async with connected(raw("raw_scorer.py")) as channel:
        described = await scorer_pb2_grpc.ScorerStub(channel).Describe(plugin_pb2.DescribeRequest())
        talk = Talk(channel, "scorer")
        await talk.open()
        await talk.send([ScoreTask(n, 1, Item(f"q{n}", "?", "0"), Output(str(n))) for n in range(3)])

        results = await talk.until(3)
        assert results == {n: (Score(ScoreStatus.SCORED, float(n == 0)),) for n in range(3)}
        assert await talk.end() is grpc.StatusCode.OK
        assert [plugin.name for plugin in described.plugins] == ["same"]
