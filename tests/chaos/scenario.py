"""From a seed to what will happen: items, runs, how the plugins behave, and the blows that fall, in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.behaviour import FAULTS, Manners

ROLES = ("target", "scorer")
BLOWS = {
    "kill_server": 5,
    "end_server": 2,
    "stop_server": 2,
    "kill_plugin": 5,
    "kill_guard": 1,
    "stop_plugin": 3,
    "lock_database": 3,
    "fill_disk": 1,
    "cancel": 3,
    "cancel_and_resume": 2,
    "pause": 3,
    "resume": 5,
    "retry": 2,
    "set_limits": 2,
    "drop_watcher": 2,
    "ask_again": 1,
}
"""What may happen from outside, and how often."""
_RARE = ("silent", "late", "dies", "stalls", "ends", "aborts")
"""Faults that cost seconds: some attempts only."""


@dataclass(frozen=True, slots=True)
class Blow:
    """Something that happens from outside."""

    after: float
    """Share of the first session's calls of the target after which it falls."""
    kind: str
    run: int
    """Which run it is about, where it is about one."""
    role: str
    """Which plugin it is about, where it is about one."""
    strength: float
    """From 0 to 1: how long it lasts."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run of a scenario."""

    items: int
    epochs: int
    scorers: tuple[str, ...]
    """`builtin`, `chaos`."""
    at_address: bool
    """Whether its target listens already, shared with other runs; else the server starts one."""
    limits: dict[str, Any]
    scorer_concurrency: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a seed decides."""

    seed: int
    manners: Manners
    timeout: float
    grant: int
    capabilities: str
    slowness: float
    """Seconds that a commit takes longer, at most."""
    resume: bool
    """Whether the server goes on with its runs by itself when it starts."""
    rescore: bool
    """Whether the outputs of each run are scored anew in the end."""
    runs: tuple[RunPlan, ...]
    blows: tuple[Blow, ...] = field(default=())

    @property
    def items(self) -> list[str]:
        """The ids of the dataset's items."""
        return [f"i{number:03}" for number in range(max(run.items for run in self.runs))]

    def told(self) -> str:
        """In a few lines, for people."""
        faults = ", ".join(f"{name} {weight:.1%}" for name, weight in self.manners.weights.items())
        lines = [
            f"seed {self.seed}: {len(self.runs)} runs, faults: {faults or 'none'}; poison {dict(self.manners.poison)}",
            f"  timeout {self.timeout:.2f} s, grant {self.grant}, can {self.capabilities or 'nothing'}, "
            f"commits up to {self.slowness * 1000:.0f} ms slower, {'resumes' if self.resume else 'does not resume'} by itself",
        ]
        lines += [f"  run {number}: {run}" for number, run in enumerate(self.runs)]
        lines += [
            f"  after {blow.after:4.0%} {blow.kind} {blow.run} {blow.role} {blow.strength:.2f}" for blow in self.blows
        ]
        return "\n".join(lines)


def scenario_of(seed: int) -> Scenario:
    """The scenario of a seed."""
    dice = random.Random(seed)
    timeout = dice.uniform(0.4, 0.9)
    runs = tuple(_run(dice, timeout) for _ in range(dice.choice((1, 1, 2, 3))))
    return Scenario(
        seed=seed,
        manners=_manners(dice, seed, min(run.items for run in runs)),
        timeout=timeout,
        grant=dice.choice((2, 5, 16, 64)),
        capabilities=dice.choice(("cancel progress", "cancel progress", "cancel", "progress", "")),
        slowness=dice.choice((0.0, 0.0, 0.02, 0.15)),
        resume=dice.random() < 0.3,
        rescore=dice.random() < 0.3,
        runs=runs,
        blows=_blows(dice, len(runs)),
    )


def _run(dice: random.Random, timeout: float) -> RunPlan:
    concurrency = dice.choice((1, 4, 10, 32))
    return RunPlan(
        items=dice.choice((12, 40, 90, 150) if concurrency > 1 else (12, 30)),
        epochs=dice.choice((1, 1, 2)),
        scorers=dice.choice((("builtin", "chaos"), ("chaos",), ("builtin",), ("builtin", "chaos"), ())),
        at_address=dice.random() < 0.35,
        limits={
            "concurrency": concurrency,
            "timeout": f"{timeout * 1000:.0f}ms",
            "silence": f"{timeout * 800:.0f}ms",
            "trial_timeout": "20s",
            "retries": dice.choice((0, 1, 2, 4)),
        },
        scorer_concurrency=dice.choice((1, 4, 16)),
    )


def _manners(dice: random.Random, seed: int, items: int) -> Manners:
    weights = {}
    for name in dice.sample(FAULTS, dice.randint(0, 8)):
        weights[name] = dice.uniform(0.002, 0.015) if name in _RARE else dice.uniform(0.01, 0.1)
    poison = {}
    if dice.random() < 0.2:
        poison[f"i{dice.randrange(items):03}"] = dice.choice(ROLES)
    return Manners(seed, weights, poison, dice.choice((0.01, 0.05, 0.2)))


def _blows(dice: random.Random, runs: int) -> tuple[Blow, ...]:
    kinds = dice.choices(list(BLOWS), list(BLOWS.values()), k=dice.randint(2, 8))
    places = sorted(dice.uniform(0.0, 1.1) for _ in kinds)
    return tuple(
        Blow(place, kind, dice.randrange(runs), dice.choice(ROLES), dice.random())
        for place, kind in zip(places, kinds, strict=True)
    )
