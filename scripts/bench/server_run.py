"""One run of the real server over a database that holds the dataset: `server_run.py DB EXPERIMENT.json`.

Prints, as JSON: the seconds from the run's start to its stored end, those that its numbers take when somebody asks for
them afterwards, what it counted, peak memory and CPU of this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import structlog

from evalbus_server.app import embedded
from evalbus_server.model.experiment import Experiment


async def main(path: str, experiment: Experiment) -> None:
    """Run it."""
    async with embedded(path) as app:
        before = os.times()
        run = await app.runs.wait((await app.runs.start(experiment)).id)
        after = os.times()
        begun = time.monotonic()
        await app.runs.summary(run.id)
        summary_s = time.monotonic() - begun
    assert run.started_at is not None and run.ended_at is not None
    counts = run.counts
    print(
        json.dumps(
            {
                "state": run.state.name,
                "reason": run.reason,
                "done": counts.done,
                "errored": counts.errored,
                "seconds": run.ended_at - run.started_at,
                "summary_s": summary_s,
                "rss_mb": peak_mb("self"),
                "cpu_s": after.user + after.system - before.user - before.system,
            }
        )
    )


def peak_mb(pid: str) -> float:
    """The most memory that a process has had, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    asyncio.run(main(sys.argv[1], Experiment.parse(json.loads(Path(sys.argv[2]).read_text()))))
