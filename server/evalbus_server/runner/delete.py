"""Deleting: a run that is over goes, with all that is stored of it, a piece at a time."""

from __future__ import annotations

import asyncio

from evalbus_server.runner.floor import Floor


async def delete(floor: Floor, run_id: str) -> None:
    """Delete a run that is over."""
    run = floor.store.run(run_id)
    async with floor.lock(run.id):  # nobody resumes it meanwhile
        floor.check_over(floor.store.run(run.id), "deleted")
        for _ in floor.store.delete_run(run.id):
            await asyncio.sleep(0)
