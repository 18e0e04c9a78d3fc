"""Plays a scenario: starts its runs, lets the blows fall, brings everything to its end, and says what is wrong afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from evalbus import Item
from evalbus.client import CallFailed, Client, Run, RunState
from tests.chaos import calls, ledger
from tests.chaos.afterwards import Afterwards
from tests.chaos.behaviour import MOST_TOKENS, input_of, mark_of, word_of
from tests.chaos.blows import Blows
from tests.chaos.scenario import ROLES, RunPlan, Scenario
from tests.chaos.watching import EXPECTED, Watcher
from tests.chaos.world import PATIENCE, World, gone

WAITS = 1.0
"""Seconds without any new call after which the next blow falls all the same."""
ROUNDS = 25
"""So many times runs are taken up again before it counts as never ending."""


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
        self.ids: dict[str, str] = {}
        """The ids of the runs that there are, by the ids of the requests that started them."""
        self.retried: set[str] = set()
        self.watchers: dict[str, Watcher] = {}
        self._doomed: set[str] = set()
        """Runs that were to be deleted."""
        self._to_purge: set[str] = set()
        self._purges: list[calls.PurgedNow] = []
        self._moments: list[calls.Stored] = []
        self._side: set[asyncio.Task[Any]] = set()

    async def play(self) -> None:
        """From the first start to the last check."""
        self.world.start_server()
        self.aside(self.world.keep_target_running())
        await self._prepare()
        blows = Blows(self)
        total = sum(run.items * run.epochs for run in self.scenario.runs)
        for blow in self.scenario.blows:
            await self._until_asked(blow.after * total)
            try:
                await blows.fall(blow)
            except CallFailed as failed:
                self.refused(failed, blow.kind)
            self.world.start_server()
        await self.to_the_end()
        afterwards = Afterwards(self)
        for step in self.scenario.afterwards:
            if not self.faults:
                await afterwards.take(step)
        await self._purge_what_is_left()
        await self._last_checks()

    # --- what is done -------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        seed = self.scenario.seed
        items = [
            Item(name, input_of(seed, name), f"{name}/1/1001", scorers=self.scenario.own_scorers(place))
            for place, name in enumerate(self.scenario.items)
        ]
        async with self.client() as client:
            await client.upload_dataset("chaos", items)
        for place, plan in enumerate(self.scenario.runs):
            await self._start_at_last(f"run {place}", plan)

    async def _start_at_last(self, request: str, plan: RunPlan) -> None:
        """Start a run, also though others that share its target break that just then."""
        for _ in range(ROUNDS):
            try:
                await self.start(request, plan)
                return
            except CallFailed as failed:
                self.refused(failed, "start")
                await asyncio.sleep(0.2)
        self.faults.append(f"{request} cannot be started")

    async def start(self, request: str, plan: RunPlan) -> None:
        """Start a run, or find it."""
        async with self.client() as client:
            run = await client.start(self.experiment(plan), request_id=request)
        self._note_run(request, run.id, plan)

    async def rescore(self, request: str, run_id: str, plan: RunPlan) -> None:
        """Score the outputs of a run anew, or find the run that does."""
        made = self.experiment(plan)
        patience = {name: made["limits"][name] for name in ("silence", "trial_timeout")}
        experiment = {"name": "again", "scorers": made["scorers"], "limits": patience}
        async with self.client() as client:
            run = await client.rescore(run_id, experiment, request_id=request)
        self._note_run(request, run.id, plan)

    async def delete(self, run_id: str) -> None:
        """Delete a run, if it is over."""
        self._doomed.add(run_id)
        try:
            async with self.client() as client:
                await client.delete(run_id)
        except CallFailed as failed:
            if failed.reason in ("RUN_AT_WORK", "RUN_IN_USE"):
                self._doomed.discard(run_id)
            raise
        self.ids = {request: each for request, each in self.ids.items() if each != run_id}

    async def purge(self, items: Sequence[str]) -> None:
        """Purge items."""
        self._to_purge.update(items)
        async with self.client() as client:
            await client.purge_items("chaos", items)
        lines = {role: len(calls.read_calls(self.world.log(role))) for role in ROLES}
        self._purges.append(calls.PurgedNow(frozenset(items), lines, ledger.sessions(self.world.db)))

    async def _purge_what_is_left(self) -> None:
        """Purge again what nobody knows of whether it was purged."""
        left = self._to_purge.difference(*(purge.items for purge in self._purges))
        for _ in range(ROUNDS):
            if not left:
                return
            try:
                await self.purge(sorted(left))
                return
            except CallFailed as failed:
                self.refused(failed, "purge")
                await asyncio.sleep(0.2)
        self.faults.append(f"{sorted(left)} cannot be purged")

    def _note_run(self, request: str, run_id: str, plan: RunPlan) -> None:
        known = self.ids.setdefault(request, run_id)
        if known in self._doomed:
            self.ids[request] = run_id
        elif known != run_id:
            self.faults.append(f"request id {request!r} has given run {known}, and now {run_id}")
        if run_id not in self.watchers:
            self.watchers[run_id] = Watcher(self.world.address, run_id, self.faults, results=not plan.keeps_all)

    def plan_of(self, request: str) -> RunPlan:
        """The plan of a run, or of the one that it is like."""
        if request == "twin":
            return next(plan for plan in self.scenario.runs if plan.cache)
        return self.scenario.runs[int(request.rpartition(" ")[2])]

    def experiment(self, plan: RunPlan) -> dict[str, Any]:
        """The experiment of a run."""
        manners = self.scenario.manners
        settings = {
            "seed": manners.seed,
            "weights": dict(manners.weights),
            "poison": dict(manners.poison),
            "pace": manners.pace,
            "timeout": self.scenario.timeout,
            "grant": self.scenario.grant,
            "places": self.scenario.places if plan.at_address else 0,
        }
        target = (
            {"address": f"unix:{self.world.shared}"} if plan.at_address else {"command": self.world.command("target")}
        )
        chaos = {
            "name": "chaos",
            "command": self.world.command("scorer"),
            "settings": {**settings, "places": 0, "log": str(self.world.log("scorer"))},
            "threshold": 0.4,
            "concurrency": plan.scorer_concurrency,
            "timeout": plan.limits["timeout"],
            "sampling": plan.sampling,
        }
        scorers = {"includes": {"use": "includes", "threshold": 1.0}, "chaos": chaos}
        dataset: dict[str, Any] = {"name": "chaos", "limit": plan.items}
        if plan.by_items:
            dataset["scorers"] = list(plan.default)
        return {
            "name": "chaos",
            "dataset": dataset,
            "target": {**target, "settings": {**settings, "log": str(self.world.log("target"))}},
            "scorers": [scorers[name] for name in plan.scorers],
            "scorers_from": "items" if plan.by_items else "run",
            "epochs": plan.epochs,
            "limits": plan.limits,
            "cache": plan.cache,
            "keep": {"outputs": plan.keep_outputs, "scores": plan.keep_scores},
        }

    async def _until_asked(self, count: float) -> None:
        """Wait until targets were asked so often, or nothing moves any more."""
        last, since = -1, time.monotonic()
        while (asked := self.world.asked()) < count:
            if asked != last:
                last, since = asked, time.monotonic()
            elif time.monotonic() - since > WAITS:
                return
            await asyncio.sleep(0.01)

    async def look_at_the_dead(self, family: list[psutil.Process]) -> None:
        """What a server leaves behind: a whole database, and nobody."""
        for process in await gone(family):
            self.faults.append(f"process {process.pid} outlives its server")
        self.faults += [f"after the end of a server: {fault}" for fault in ledger.faults(self.world.db)]
        lines = {role: len(calls.read_calls(self.world.log(role))) for role in ROLES}
        self._moments.append(calls.stored(self.world.db, lines))

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else."""
        task = asyncio.create_task(work)
        self._side.add(task)
        task.add_done_callback(self._side.discard)

    # --- the end ------------------------------------------------------------------------------------------------

    async def to_the_end(self) -> None:
        """Take up what has halted until every run is COMPLETED."""
        for _ in range(ROUNDS):
            self.world.start_server()
            try:
                async with self.client() as client:
                    states = []
                    for each in list(self.ids.items()):
                        async with asyncio.timeout(PATIENCE):
                            states.append(await self._take_up(client, *each))
            except CallFailed as failed:
                self.refused(failed, "the end")
                await asyncio.sleep(0.2)
                continue
            except TimeoutError:
                self.faults.append(f"a run does not end within {PATIENCE:.0f} s; states: {await self._states()}")
                return
            if all(state is RunState.COMPLETED for state in states):
                return
        self.faults.append(f"runs are not COMPLETED after {ROUNDS} rounds: {await self._states()}")

    async def _take_up(self, client: Client, request: str, run_id: str) -> RunState:
        try:
            run = await client.get(run_id)
        except CallFailed as failed:
            if failed.reason != "RUN_NOT_FOUND" or run_id not in self._doomed:
                raise
            self.ids.pop(request, None)
            return RunState.COMPLETED
        if run.state in (RunState.PAUSED, RunState.CANCELLED, RunState.INTERRUPTED, RunState.ABORTED):
            try:
                if run.state is RunState.ABORTED:
                    await self._lift_limits(client, request, run)
                await client.resume(run_id)
            except CallFailed as failed:
                self.refused(failed, "resume")
                await asyncio.sleep(0.1)
        while (run := await client.get(run_id)).state in (RunState.QUEUED, RunState.RUNNING):
            await asyncio.sleep(0.05)
        return run.state

    async def _lift_limits(self, client: Client, request: str, run: Run) -> None:
        """Let a run that a limit has ended go on without it."""
        reason = run.reason.partition(":")[0]
        if reason == "BUDGET" and not any(blow.kind == "set_limits" for blow in self.scenario.blows):
            plan = self.plan_of(request)
            in_flight = plan.limits["concurrency"] + plan.scorer_concurrency
            self.faults += ledger.unpaid(self.world.db, run.id, in_flight, MOST_TOKENS)
        limits = {"BUDGET": ("tokens", "cost"), "MAX_ERRORS": ("max_errors",), "DEADLINE": ("deadline",)}
        if reason in limits:
            await client.update_limits(run.id, {f"limits.{limit}": None for limit in limits[reason]})

    async def _states(self) -> str:
        try:
            async with asyncio.timeout(PATIENCE / 4), self.client() as client:
                runs = [await client.get(run_id) for run_id in self.ids.values()]
                return "; ".join(f"{run.state.name} ({run.reason}) {run.counts}" for run in runs)
        except (CallFailed, TimeoutError) as error:
            return f"unknown, since {error!r}"

    async def _last_checks(self) -> None:
        await self._look_for_purged_words()
        for watcher in self.watchers.values():
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
        self.faults += self._calls()
        for watcher in self.watchers.values():
            self.faults += watcher.against(self.world.db)
        self.faults += self._words_on_disk()
        self.faults += [f"the server has said: {line}" for line in self.world.noise()]
        if left := self.world.left_over():
            self.faults.append(f"files are left behind: {left}")

    def _calls(self) -> list[str]:
        logs = {role: calls.read_calls(self.world.log(role)) for role in ROLES}
        if not self.scenario.gentle:  # then places are given back also by those who break off
            logs = {role: [call for call in log if call.word != "crowded"] for role, log in logs.items()}
        found = calls.faults(
            self.world.db, self.scenario.seed, logs, [each.but(self.retried) for each in self._moments]
        )
        return [*found, *calls.after_purges(logs, self._purges)]

    async def _look_for_purged_words(self) -> None:
        """No result that the server tells of has a word of a purged item."""
        if not self._to_purge or not self.ids:
            return
        try:
            async with self.client() as client:
                for run_id in self.ids.values():
                    for item in sorted(self._to_purge)[:4]:
                        told = [str(result) async for result in client.results(run_id, item=item)]
                        if any(word_of(self.scenario.seed, item) in text for text in told):
                            self.faults.append(f"run {run_id}: results tell of the purged item {item}: {told}")
        except CallFailed as failed:
            self.refused(failed, "results")

    def _words_on_disk(self) -> list[str]:
        """What the files of the database hold that must not be there any more."""
        held = b"".join(path.read_bytes() for path in self.world.folder.glob("chaos.db*") if path.is_file())
        found = [
            f"the files still have words of the purged item {item}"
            for item in sorted(self._to_purge)
            if word_of(self.scenario.seed, item).encode() in held
        ]
        for request, run_id in self.ids.items():
            if not self.plan_of(request).keep_outputs and mark_of(run_id).encode() in held:
                found.append(f"the files still have words of the outputs of run {run_id}")
        return found

    def refused(self, failed: CallFailed, where: str) -> None:
        """A call has failed; this may be."""
        if failed.reason not in EXPECTED:
            self.faults.append(f"{where}: {failed.reason} ({failed.code}): {failed}")

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
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
