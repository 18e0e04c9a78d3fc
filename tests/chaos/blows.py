"""The blows that fall on a scenario from outside, one method each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from evalbus.client import CallFailed
from tests.chaos.scenario import Blow
from tests.chaos.world import PATIENCE, gone

if TYPE_CHECKING:
    from tests.chaos.play import Player


class Blows:
    """What may happen to a world while its runs are at work; each method has the name of a kind of blow."""

    def __init__(self, player: Player) -> None:
        """Nothing has happened yet."""
        self.player = player
        self.world = player.world

    async def fall(self, blow: Blow) -> None:
        """Let one fall.

        Raises:
            CallFailed: the server has refused something.
        """
        await getattr(self, blow.kind)(blow, self.player.ids.get(f"run {blow.run}", "deleted"))

    # --- processes ----------------------------------------------------------------------------------------------

    async def kill_server(self, blow: Blow, run_id: str) -> None:
        """`kill -9` of the server."""
        family = self.world.kill_server()
        await self.player.look_at_the_dead(family)

    async def end_server(self, blow: Blow, run_id: str) -> None:
        """It is asked to end."""
        async with self.player.client():  # before it serves, it may end as it likes
            family = self.world.family()
        code = await self.world.end_server()
        if code != 0:
            self.player.faults.append(f"the server ended with exit code {code}")
        await self.player.look_at_the_dead(family)

    async def second_server(self, blow: Blow, run_id: str) -> None:
        """Another one tries to serve the same file: it says who does, and ends."""
        async with self.player.client():
            assert self.world.server is not None
            pid = self.world.server.pid
        rival = self.world.start_rival()
        said = await self.world.said_by(rival)
        if rival.returncode in (0, None) or "DATABASE_LOCKED" not in said or f"process {pid}" not in said:
            self.player.faults.append(f"a second server over the same file, exit code {rival.returncode}: {said}")

    async def rival_servers(self, blow: Blow, run_id: str) -> None:
        """The server is killed, and two others try to take its place: one of them does."""
        family = self.world.kill_server()
        await self.player.look_at_the_dead(family)
        rival = self.world.start_rival()
        self.world.start_server()
        assert self.world.server is not None
        async with asyncio.timeout(60):
            while rival.poll() is None and self.world.server.poll() is None:
                await asyncio.sleep(0.01)
        if rival.poll() is None:  # it was quicker
            family = self.world.family(rival)
            rival.terminate()
            await self.world.said_by(rival)
            for process in await gone(family):
                self.player.faults.append(f"process {process.pid} outlives its server")
            self.world.start_server()
            return
        said = await self.world.said_by(rival)
        if rival.returncode == 0 or "DATABASE_LOCKED" not in said:
            self.player.faults.append(f"of two servers one ended with exit code {rival.returncode}: {said}")

    async def stop_server(self, blow: Blow, run_id: str) -> None:
        """It stands still for a while."""
        assert self.world.server is not None
        await self.world.halt(psutil.Process(self.world.server.pid), blow.strength)

    async def kill_plugin(self, blow: Blow, run_id: str) -> None:
        """`kill -9` of a plugin."""
        for process in self.world.plugins(blow.role)[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    async def kill_guard(self, blow: Blow, run_id: str) -> None:
        """`kill -9` of what guards a plugin: the server sees to the folder then, if nobody kills it before it can."""
        for process in self.world.plugins(blow.role)[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                guard = process.parent()
                if guard is not None and "guard.py" in " ".join(guard.cmdline()):
                    folder = Path(guard.environ()["EVALBUS_SOCKET"]).parent
                    guard.kill()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PATIENCE / 2):
                            while folder.exists():
                                await asyncio.sleep(0.01)

    async def stop_plugin(self, blow: Blow, run_id: str) -> None:
        """A plugin stands still for a while."""
        for process in self.world.plugins(blow.role)[:1]:
            self._aside(self.world.halt(process, 1.5 * blow.strength))

    async def lock_database(self, blow: Blow, run_id: str) -> None:
        """Another program writes the file."""
        self.world.lock_database(2.0 * blow.strength)

    async def fill_disk(self, blow: Blow, run_id: str) -> None:
        """Nothing can be written for a while."""
        with self.world.full_disk():
            await asyncio.sleep(0.3 * blow.strength)

    # --- calls --------------------------------------------------------------------------------------------------

    async def cancel(self, blow: Blow, run_id: str) -> None:
        """A run is cancelled."""
        async with self.player.client() as client:
            await client.cancel(run_id)

    async def cancel_and_resume(self, blow: Blow, run_id: str) -> None:
        """Two calls cross each other."""
        async with self.player.client() as client:
            await self._cross(blow, client.cancel(run_id), client.resume(run_id))

    async def pause(self, blow: Blow, run_id: str) -> None:
        """A run is paused."""
        async with self.player.client() as client:
            await client.pause(run_id)

    async def pause_and_resume(self, blow: Blow, run_id: str) -> None:
        """Pauses and resumes cross each other."""
        async with self.player.client() as client:
            await self._cross(blow, client.pause(run_id), client.resume(run_id), client.pause(run_id))
            await self._cross(blow, client.resume(run_id), client.pause(run_id), client.resume(run_id))

    async def pause_and_cancel(self, blow: Blow, run_id: str) -> None:
        """The harder end counts."""
        async with self.player.client() as client:
            await self._cross(blow, client.pause(run_id), client.cancel(run_id))

    async def _cross(self, blow: Blow, *crossing: Coroutine[Any, Any, Any]) -> None:
        for error in await asyncio.gather(*crossing, return_exceptions=True):
            if isinstance(error, CallFailed):
                self.player.refused(error, blow.kind)
            elif isinstance(error, BaseException):
                raise error

    async def resume(self, blow: Blow, run_id: str) -> None:
        """All runs are to go on."""
        async with self.player.client() as client:
            for each in list(self.player.ids.values()):
                try:
                    await client.resume(each)
                except CallFailed as failed:
                    self.player.refused(failed, blow.kind)

    async def retry(self, blow: Blow, run_id: str) -> None:
        """What is ERRORED is asked again."""
        self.player.retried.add(run_id)
        async with self.player.client() as client:
            await client.retry(run_id)

    async def set_limits(self, blow: Blow, run_id: str) -> None:
        """Limits change while the run is at work, or before it goes on."""
        scenario = self.player.scenario
        plan = scenario.runs[blow.run]
        changes: dict[str, Any] = (
            {"limits.concurrency": 1 + int(40 * blow.strength), "limits.retries": int(4 * blow.strength)},
            {"limits.timeout": f"{(1 + blow.strength) * scenario.timeout * 1000:.0f}ms", "limits.trial_timeout": "15s"},
            {"limits.tokens": int(10 * blow.strength * plan.items * plan.epochs)},
            {"limits.cost": int(100 * blow.strength * plan.items * plan.epochs) / 1e6},
            {"limits.max_errors": 3 + int(10 * blow.strength)},
            {"limits.deadline": f"{200 + 2000 * blow.strength:.0f}ms"},
            {"scorers.chaos.concurrency": 1 + int(20 * blow.strength)}
            if "chaos" in plan.scorers
            else {"limits.retries": 1},
        )[int(1000 * blow.strength) % 7]
        async with self.player.client() as client:
            await client.update_limits(run_id, changes)

    async def delete(self, blow: Blow, run_id: str) -> None:
        """A run is deleted, if it is over."""
        await self.player.delete(run_id)

    async def purge(self, blow: Blow, run_id: str) -> None:
        """The content of some items is taken out, whatever runs are doing with them."""
        items = self.player.scenario.items
        first = int(blow.strength * (len(items) - 1))
        await self.player.purge(items[first : first + 1 + int(1000 * blow.strength) % 4])

    async def clear_cache(self, blow: Blow, run_id: str) -> None:
        """All that is remembered is forgotten."""
        async with self.player.client() as client:
            await client.clear_cache()

    async def drop_watcher(self, blow: Blow, run_id: str) -> None:
        """A watcher breaks off, and goes on."""
        if run_id in self.player.watchers:
            await self.player.watchers[run_id].begin_again()

    async def ask_again(self, blow: Blow, run_id: str) -> None:
        """The same request: it must give the same run."""
        await self.player.start(f"run {blow.run}", self.player.scenario.runs[blow.run])

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        self.player.aside(work)
