"""Lists of results that have nothing to list."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, cast

from evalbus_server.cli import reading
from evalbus_server.model.result_filter import EVERYTHING, ResultFilter
from evalbus_server.model.run import Counts, Run, RunState
from evalbus_server.model.trial import StoredResult
from tests.unit.server.wire.samples import RUN


class Empty:
    """A source whose run has no result that fits."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def run(self, run_id: str) -> Run:
        return self._run

    async def results(
        self, run: Run, filter: ResultFilter = EVERYTHING
    ) -> AsyncGenerator[tuple[StoredResult, Run], None]:
        return
        yield


async def test_a_run_without_results_says_so(capsys: Any):
    run = replace(RUN, state=RunState.RUNNING, counts=Counts(planned=4))
    await reading.results(cast(Any, Empty(run)), run.id, EVERYTHING, jsonl=False)
    assert capsys.readouterr().out == "No trial of run r1 has a result yet; it is RUNNING.\n"


async def test_json_lines_stay_json_lines(capsys: Any):
    await reading.results(cast(Any, Empty(RUN)), RUN.id, EVERYTHING, jsonl=True)
    assert capsys.readouterr().out == ""
