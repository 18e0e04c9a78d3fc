"""Plays a scenario: starts its runs, lets the blows fall, brings everything to its end, and says what is wrong afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from evalbus import Item
from evalbus.client import CallFailed, Client, Event, RunState
from tests.chaos import calls, ledger
from tests.chaos.scenario import ROLES, Blow, RunPlan, Scenario
from tests.chaos.world import PATIENCE, World, gone

WAITS = 1.0
"""Seconds without any new call after which the next blow falls all the same."""
ROUNDS = 25
"""So many times runs are taken up again before it counts as never ending."""
EXPECTED = frozenset(
    [
        "CANCELLED",
        "RUN_NOT_RESUMABLE",
        "RUN_AT_WORK",
        "RUN_NOT_HERE",
        "RUN_NOT_FOUND",
        "NOTHING_TO_RUN",
        "SERVER_UNREACHABLE",
        "UNAVAILABLE",
        "DATABASE_LOCKED",
        "DATABASE_FULL",
        "DEADLINE_EXCEEDED",
        "PLUGIN_UNREACHABLE",
        "PLUGIN_START_FAILED",
        "SERVER_STOPPING",
    ]
)
"""Reasons with which calls may fail while blows fall; any other is a fault."""


async def play(scenario: Scenario, folder: Path) -> list[str]:
    """Play it in an empty folder; returns what is wrong, a line each."""
    player = Player(scenario, World(folder, scenario))
    try:
        await player.play()
    finally:
        player.world.close()
    return player.faults


class Player:
    """One playing of a scenario."""

    def __init__(self, scenario: Scenario, world: World) -> None:
        """Nothing has happened yet."""
        self.scenario = scenario
        self.world = world
        self.faults: list[str] = []
        self.ids: dict[int, str] = {}
        """The ids of the runs that have been started, by their place in the scenario."""
        self._moments: list[calls.Stored] = []
        self._watchers: dict[str, Watcher] = {}
        self._side: set[asyncio.Task[Any]] = set()

    async def play(self) -> None:
        """From the first start to the last check."""
        self.world.start_server()
        self._aside(self.world.keep_target_running())
        await self._prepare()
        total = sum(run.items * run.epochs for run in self.scenario.runs)
        for blow in self.scenario.blows:
            await self._until_asked(blow.after * total)
            try:
                await self._fall(blow)
            except CallFailed as failed:
                self._refused(failed, blow.kind)
            self.world.start_server()
        await self._to_the_end()
        if self.scenario.rescore and not self.faults:
            await self._rescore()
            await self._to_the_end()
        await self._last_checks()

    # --- beginning ----------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        items = [Item(name, f"text of {name}", f"{name}/1/1001") for name in self.scenario.items]
        async with self._client() as client:
            await client.upload_dataset("chaos", items)
            for place, plan in enumerate(self.scenario.runs):
                run = await client.start(self._experiment(plan), request_id=f"run {place}")
                self._note_run(place, run.id)

    def _note_run(self, place: int, run_id: str) -> None:
        if self.ids.setdefault(place, run_id) != run_id:
            self.faults.append(f"request id 'run {place}' has given run {self.ids[place]}, and now {run_id}")
        if run_id not in self._watchers:
            self._watchers[run_id] = Watcher(self.world.address, run_id, self.faults)

    def _experiment(self, plan: RunPlan) -> dict[str, Any]:
        manners = self.scenario.manners
        settings = {
            "seed": manners.seed,
            "weights": dict(manners.weights),
            "poison": dict(manners.poison),
            "pace": manners.pace,
            "timeout": self.scenario.timeout,
            "grant": self.scenario.grant,
        }
        target = (
            {"address": f"unix:{self.world.shared}"} if plan.at_address else {"command": self.world.command("target")}
        )
        chaos = {
            "name": "chaos",
            "command": self.world.command("scorer"),
            "settings": {**settings, "log": str(self.world.log("scorer"))},
            "threshold": 0.4,
            "concurrency": plan.scorer_concurrency,
            "timeout": plan.limits["timeout"],
        }
        scorers = {"builtin": {"use": "exact_match", "threshold": 1.0}, "chaos": chaos}
        return {
            "name": "chaos",
            "dataset": {"name": "chaos", "limit": plan.items},
            "target": {**target, "settings": {**settings, "log": str(self.world.log("target"))}},
            "scorers": [scorers[name] for name in plan.scorers],
            "epochs": plan.epochs,
            "limits": plan.limits,
        }

    # --- blows --------------------------------------------------------------------------------------------------

    async def _until_asked(self, count: float) -> None:
        """Wait until targets were asked so often, or nothing moves any more."""
        last, since = -1, time.monotonic()
        while (asked := self.world.asked()) < count:
            if asked != last:
                last, since = asked, time.monotonic()
            elif time.monotonic() - since > WAITS:
                return
            await asyncio.sleep(0.01)

    async def _fall(self, blow: Blow) -> None:
        await getattr(self, f"_{blow.kind}")(blow, self.ids[blow.run])

    async def _kill_server(self, blow: Blow, run_id: str) -> None:
        family = self.world.kill_server()
        await self._look_at_the_dead(family)

    async def _end_server(self, blow: Blow, run_id: str) -> None:
        async with self._client():  # before it serves, it may end as it likes
            family = self.world.family()
        code = await self.world.end_server()
        if code != 0:
            self.faults.append(f"the server ended with exit code {code}")
        await self._look_at_the_dead(family)

    async def _look_at_the_dead(self, family: list[psutil.Process]) -> None:
        """What a server leaves behind: a whole database, and nobody."""
        for process in await gone(family):
            self.faults.append(f"process {process.pid} outlives its server")
        self.faults += [f"after the end of a server: {fault}" for fault in ledger.faults(self.world.db)]
        lines = {role: len(calls.read_calls(self.world.log(role))) for role in ROLES}
        self._moments.append(calls.stored(self.world.db, lines))

    async def _stop_server(self, blow: Blow, run_id: str) -> None:
        assert self.world.server is not None
        await self.world.halt(psutil.Process(self.world.server.pid), blow.strength)

    async def _kill_plugin(self, blow: Blow, run_id: str) -> None:
        for process in self.world.plugins(blow.role)[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    async def _kill_guard(self, blow: Blow, run_id: str) -> None:
        for process in self.world.plugins(blow.role)[:1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                guard = process.parent()
                if guard is not None and "guard.py" in " ".join(guard.cmdline()):
                    guard.kill()

    async def _stop_plugin(self, blow: Blow, run_id: str) -> None:
        for process in self.world.plugins(blow.role)[:1]:
            self._aside(self.world.halt(process, 1.5 * blow.strength))

    async def _lock_database(self, blow: Blow, run_id: str) -> None:
        self.world.lock_database(2.0 * blow.strength)

    async def _fill_disk(self, blow: Blow, run_id: str) -> None:
        with self.world.full_disk():
            await asyncio.sleep(0.3 * blow.strength)

    async def _cancel(self, blow: Blow, run_id: str) -> None:
        async with self._client() as client:
            await client.cancel(run_id)

    async def _cancel_and_resume(self, blow: Blow, run_id: str) -> None:
        async with self._client() as client:
            done = await asyncio.gather(client.cancel(run_id), client.resume(run_id), return_exceptions=True)
            for error in done:
                if isinstance(error, CallFailed):
                    self._refused(error, blow.kind)
                elif isinstance(error, BaseException):
                    raise error

    async def _pause(self, blow: Blow, run_id: str) -> None:
        async with self._client() as client:
            await client.pause(run_id)

    async def _resume(self, blow: Blow, run_id: str) -> None:
        async with self._client() as client:
            for each in self.ids.values():
                try:
                    await client.resume(each)
                except CallFailed as failed:
                    self._refused(failed, blow.kind)

    async def _retry(self, blow: Blow, run_id: str) -> None:
        async with self._client() as client:
            await client.retry(run_id)

    async def _set_limits(self, blow: Blow, run_id: str) -> None:
        changes = {"limits.concurrency": 1 + int(40 * blow.strength), "limits.retries": int(4 * blow.strength)}
        async with self._client() as client:
            await client.update_limits(run_id, changes)

    async def _drop_watcher(self, blow: Blow, run_id: str) -> None:
        await self._watchers[run_id].begin_again()

    async def _ask_again(self, blow: Blow, run_id: str) -> None:
        """The same request: it must give the same run."""
        async with self._client() as client:
            run = await client.start(self._experiment(self.scenario.runs[blow.run]), request_id=f"run {blow.run}")
            self._note_run(blow.run, run.id)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._side.add(task)
        task.add_done_callback(self._side.discard)

    # --- the end ------------------------------------------------------------------------------------------------

    async def _to_the_end(self) -> None:
        """Take up what has halted until every run is COMPLETED."""
        for _ in range(ROUNDS):
            self.world.start_server()
            try:
                async with asyncio.timeout(PATIENCE), self._client() as client:
                    states = [await self._take_up(client, run_id) for run_id in self.ids.values()]
            except CallFailed as failed:
                self._refused(failed, "the end")
                await asyncio.sleep(0.2)
                continue
            except TimeoutError:
                self.faults.append(f"a run does not end within {PATIENCE:.0f} s; states: {await self._states()}")
                return
            if all(state is RunState.COMPLETED for state in states):
                return
        self.faults.append(f"runs are not COMPLETED after {ROUNDS} rounds: {await self._states()}")

    async def _rescore(self) -> None:
        """Score all outputs anew, in runs of their own, which nothing disturbs."""
        async with self._client() as client:
            for place, plan in enumerate(self.scenario.runs):
                if plan.scorers:
                    scorers = self._experiment(plan)["scorers"]
                    run = await client.rescore(self.ids[place], {"name": "again", "scorers": scorers})
                    self._note_run(len(self.ids), run.id)

    async def _take_up(self, client: Client, run_id: str) -> RunState:
        run = await client.get(run_id)
        if run.state in (RunState.PAUSED, RunState.CANCELLED, RunState.INTERRUPTED, RunState.ABORTED):
            try:
                await client.resume(run_id)
            except CallFailed as failed:
                self._refused(failed, "resume")
                await asyncio.sleep(0.1)
        while (run := await client.get(run_id)).state in (RunState.QUEUED, RunState.RUNNING):
            await asyncio.sleep(0.05)
        return run.state

    async def _states(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE / 4), self._client() as client:
                runs = [await client.get(run_id) for run_id in self.ids.values()]
                return "; ".join(f"{run.state.name} ({run.reason}) {run.counts}" for run in runs)
        except (CallFailed, TimeoutError) as error:
            return f"unknown, since {error!r}"

    async def _last_checks(self) -> None:
        for watcher in self._watchers.values():
            await watcher.close()
        for task in self._side:
            task.cancel()
        await asyncio.gather(*self._side, return_exceptions=True)
        family = self.world.family()
        if self.world.server is not None and self.world.server.poll() is None:
            try:
                code = await self.world.end_server()
                if code != 0:
                    self.faults.append(f"the server ended with exit code {code}")
            except TimeoutError:
                self.faults.append("the server does not end when it is asked to")
        for process in await gone(family):
            self.faults.append(f"process {process.pid} outlives its server")
        self.faults += ledger.faults(self.world.db)
        logs = {role: calls.read_calls(self.world.log(role)) for role in ROLES}
        self.faults += calls.faults(self.world.db, logs, () if self._retried else self._moments)
        for watcher in self._watchers.values():
            self.faults += watcher.against(self.world.db)
        self.faults += [f"the server has said: {line}" for line in self.world.noise()]
        if left := self.world.left_over():
            self.faults.append(f"files are left behind: {left}")

    @property
    def _retried(self) -> bool:
        return any(blow.kind == "retry" for blow in self.scenario.blows)

    def _refused(self, failed: CallFailed, where: str) -> None:
        if failed.reason not in EXPECTED:
            self.faults.append(f"{where}: {failed.reason} ({failed.code}): {failed}")

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        """A client of the server, once that answers."""
        async with Client(self.world.address) as client:
            until = time.monotonic() + PATIENCE
            while True:
                self.world.start_server()
                try:
                    await client.get("none")
                except CallFailed as failed:
                    if failed.reason == "RUN_NOT_FOUND":
                        break
                    if time.monotonic() > until:
                        raise
                await asyncio.sleep(0.02)
            yield client


class Watcher:
    """Follows a run through everything, and remembers the numbers of the events it was told."""

    def __init__(self, address: str, run_id: str, faults: list[str]) -> None:
        """Watch from the first event on."""
        self._address = address
        self._run_id = run_id
        self._faults = faults
        self._seen: list[tuple[int, str]] = []
        self._task = asyncio.create_task(self._watch())

    async def begin_again(self) -> None:
        """Break off, and go on from the last number."""
        await self.close()
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Break off."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, CallFailed):
            await self._task

    async def _watch(self) -> None:
        async with Client(self._address) as client:
            while True:  # a run that has halted may go on
                after = self._seen[-1][0] if self._seen else 0
                try:
                    async for news in client.watch(self._run_id, after, patience=PATIENCE):
                        if isinstance(news, Event):
                            self._seen.append((news.sequence, type(news.fact).__name__))
                except CallFailed as failed:
                    if failed.reason not in EXPECTED:
                        self._faults.append(f"watching: {failed.reason}: {failed}")
                await asyncio.sleep(0.1)

    def against(self, path: Path) -> list[str]:
        """What it was told against what is stored: each event once, in order, and none that is not stored."""
        with contextlib.closing(ledger.Ledger(path)) as stored:
            kinds = {"state": "StateChanged", "trials": "TrialsEnded", "limits": "LimitsChanged"}
            rows = stored.rows(
                "SELECT e.sequence, e.kind FROM event e JOIN run r ON r.n = e.run WHERE r.id = ? ORDER BY 1",
                self._run_id,
            )
        known = [(row["sequence"], kinds[row["kind"]]) for row in rows]
        return (
            []
            if self._seen == known[: len(self._seen)]
            else [f"run {self._run_id}: a watcher was told {self._seen[:20]}…, stored is {known[:20]}…"]
        )
