"""What is done with runs that are over, while the server may be killed in the middle of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evalbus.client import CallFailed
from tests.chaos import ledger
from tests.chaos.scenario import RunPlan, Step

if TYPE_CHECKING:
    from tests.chaos.play import Player


class Afterwards:
    """Each method has the name of a kind of step, and may be called again where nobody knows how far it came."""

    def __init__(self, player: Player) -> None:
        """Nothing was done yet."""
        self.player = player
        self._remembered: set[int] = set()
        """Trials that the twin need not ask."""

    async def take(self, step: Step) -> None:
        """Take a step, and bring what it has begun to its end."""
        if step.hurt:
            work = asyncio.create_task(self._told(step))
            await asyncio.sleep(0.5 * step.strength)
            family = self.player.world.kill_server()
            await self.player.look_at_the_dead(family)
            await work
        await self._told(step)
        await self.player.to_the_end()
        if (check := getattr(self, f"_after_{step.kind}", None)) is not None:
            check(step)

    async def _told(self, step: Step) -> None:
        try:
            await getattr(self, f"_{step.kind}")(step)
        except CallFailed as failed:
            self.player.refused(failed, step.kind)

    async def _retry(self, step: Step) -> None:
        for name, run_id in list(self.player.ids.items()):
            self.player.retried.add(run_id)
            try:
                async with self.player.client() as client:
                    await client.retry(run_id)
            except CallFailed as failed:
                if failed.reason != "NOT_KEPT" or self.player.plan_of(name).keeps_all:
                    self.player.refused(failed, "retry")

    async def _rescore(self, step: Step) -> None:
        """Score all outputs anew, in runs of their own."""
        for place, plan in enumerate(self.player.scenario.runs):
            run_id = self.player.ids.get(f"run {place}")
            if not plan.scorers or run_id is None:
                continue
            try:
                await self.player.rescore(f"again {place}", run_id, plan)
            except CallFailed as failed:
                if failed.reason != "NOT_KEPT" or plan.keep_outputs:
                    self.player.refused(failed, "rescore")

    async def _delete(self, step: Step) -> None:
        run_id = self.player.ids.get(f"run {step.run}")
        if run_id is not None:
            await self.player.delete(run_id)

    async def _purge(self, step: Step) -> None:
        items = self.player.scenario.items
        await self.player.purge(items[int(step.strength * (len(items) - 1)) :][:3])

    async def _twin(self, step: Step) -> None:
        """Start a run like an earlier one: what is remembered of it is not asked."""
        plan = self._twin_of(step)
        if plan is not None:
            if "twin" not in self.player.ids:
                self._remembered = ledger.remembered(self.player.world.db, self.player.experiment(plan)["target"])
            await self.player.start("twin", plan)

    def _twin_of(self, step: Step) -> RunPlan | None:
        runs = self.player.scenario.runs
        return next((plan for plan in (runs[step.run], *runs) if plan.cache), None)

    def _after_twin(self, step: Step) -> None:
        run_id = self.player.ids.get("twin")
        if run_id is not None:
            self.player.faults += ledger.unremembered(self.player.world.db, run_id, self._remembered)
