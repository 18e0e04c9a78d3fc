"""`scripts/bench/scorers.py` measures every builtin that calculates, each about something that it has to look at."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from evalbus import ScoreStatus
from evalbus_server.scorer.builtin.combinations import combinations
from tests.unit.server.scorer.asking import CALCULATED

SCRIPT = Path(__file__).parents[4] / "scripts" / "bench" / "scorers.py"
COMBINATIONS = {each.name for each in combinations(())}


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    found = importlib.util.spec_from_file_location("bench_scorers", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_none_is_left_out(bench):
    assert set(bench.MEASURED) == set(CALCULATED) - COMBINATIONS
    assert set(bench.ASKED) <= set(bench.MEASURED)


@pytest.mark.parametrize("name", sorted(set(CALCULATED) - COMBINATIONS))
async def test_each_gives_a_score_there(bench, name):
    call = await bench.call_of(name)
    assert call(bench.task_of(name)).status is ScoreStatus.SCORED
