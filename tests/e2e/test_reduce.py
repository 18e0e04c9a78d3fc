"""Numbers over a run from scorers behind real sockets: of the SDK, of raw stubs, and of some that do not keep to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from evalbus import Item, MetricValue, Output, Score, metric, scorer, start_server
from evalbus.v1 import plugin_pb2, scorer_pb2, scorer_pb2_grpc
from tests.e2e.service import Served, echoing, experiment, serving
from tests.plugins.raw_scorer import Same


@metric("longest", minimum=0)
def longest(rows) -> MetricValue:
    """The most characters that an answer with a value has."""
    return MetricValue(max(len(row.answer.text) for row in rows), f"{len(rows)} rows, {rows[0].inputs['more'].text}")


@scorer("judge", version="1.0.0", metrics=[longest], inputs=["more"], mode="inline")
def judge(item: Item, output: Output) -> Score:
    return Score.scored(0.5, label="x")


class Misbehaving(Same):
    """A raw scorer that says it can reduce, and then does as it is told."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.rows = 0

    async def Describe(self, request: Any, context: Any) -> plugin_pb2.DescribeResponse:
        response = await super().Describe(request, context)
        response.plugins[0].capabilities.append("reduce")
        response.plugins[0].scorer.metrics.add(name="mine", minimum=0, maximum=1)
        return response

    async def Reduce(self, requests: Any, context: Any) -> scorer_pb2.ReduceResponse:
        async for request in requests:
            self.rows += len(request.rows.rows)
        if self.how == "silent":
            await asyncio.sleep(3600)
        if self.how == "aborting":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone fishing")
        response = scorer_pb2.ReduceResponse()
        if self.how != "nothing":
            response.values.add(metric="mine", value=float("nan") if self.how == "nan" else self.rows / 1000)
        if self.how == "twice":
            response.values.add(metric="mine", value=0.5)
        if self.how == "reasonless":
            response.values[0].ClearField("value")
        return response


@asynccontextmanager
async def raw(servicer: Any) -> AsyncIterator[str]:
    server = grpc.aio.server()
    scorer_pb2_grpc.add_ScorerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


def long_items(count: int, size: int) -> list[Item]:
    return [Item(f"i{n}", f"{n} " + "x" * size, f"{n} " + "x" * size) for n in range(count)]


async def ran(served: Served, scorers: list[dict[str, Any]], **more: Any) -> Any:
    async with echoing() as target_address:
        run = await served.client.start(experiment(target_address, scorers=scorers, **more))
        ended = await run.wait()
        assert ended.state.name == "COMPLETED", ended
        return await run.summary()


async def test_a_scorer_of_the_sdk_reduces_over_a_socket(tmp_path: Path):
    """300 rows of 20 kB do not fit into one message."""
    plugin = await start_server(judge)
    async with serving(tmp_path) as served:
        await served.client.upload_dataset("d", long_items(300, 20_000))
        use = {
            "address": plugin.address,
            "map": {"more": "item.id"},
            "metrics": ["longest", {"use": "f1", "name": "g"}],
        }
        summary = await ran(served, [use], criteria=[{"metric": "longest", "scorer": "judge", "max": 20_004}])
    await plugin.stop(0)

    (score,) = summary.scores
    assert [(each.name, each.value) for each in score.metrics] == [("longest", 20_004), ("g", 0)]
    assert score.metrics[0].explanation == "300 rows, i0"
    assert [each.outcome.name for each in summary.criteria] == ["PASS"]


async def test_a_raw_scorer_without_reduce_is_legal_and_has_builtin_metrics(tmp_path: Path):
    async with raw(Same()) as address, serving(tmp_path) as served:  # type: ignore[abstract]
        await served.client.upload_dataset("d", long_items(10, 10))
        summary = await ran(served, [{"address": address, "metrics": ["accuracy"]}])
        assert summary.scores[0].metrics[0].value == 1


@pytest.mark.parametrize(
    ("how", "value", "said"),
    [
        ("good", 0.01, ""),
        ("nan", None, "nan is not finite"),
        ("twice", None, "the scorer gave 2 values for it, where one was due"),
        ("nothing", None, "the scorer gave 0 values for it"),
        ("reasonless", None, "the scorer gave no value, and no reason"),
        ("aborting", None, "Reduce ended with UNAVAILABLE: gone fishing"),
        ("silent", None, "no answer to Reduce within 3 s"),
    ],
)
async def test_whatever_a_scorer_makes_of_it_the_run_is_complete(tmp_path: Path, how, value, said):
    async with raw(Misbehaving(how)) as address, serving(tmp_path) as served:
        await served.client.upload_dataset("d", long_items(10, 10))
        limits = {"timeout": "3s", "trial_timeout": "3s"} if how == "silent" else {}
        summary = await ran(served, [{"address": address, "metrics": ["mine"]}], limits=limits)

    assert summary.run.counts.passed == 10
    (made,) = summary.scores[0].metrics
    assert made.value == value
    assert said in made.explanation


async def test_a_capability_that_is_not_said_is_not_used(tmp_path: Path):
    class Modest(Misbehaving):
        async def Describe(self, request: Any, context: Any) -> plugin_pb2.DescribeResponse:
            response = await super().Describe(request, context)
            del response.plugins[0].capabilities[:]
            return response

    async with raw(Modest("good")) as address, serving(tmp_path) as served, echoing() as target_address:
        await served.client.upload_dataset("d", long_items(1, 10))
        with pytest.raises(Exception, match=r"scorers\[0\].metrics\[0\]: there is no metric 'mine'"):
            await served.client.start(experiment(target_address, scorers=[{"address": address, "metrics": ["mine"]}]))
