"""From a seed to what will happen: items, runs, how the plugins behave, and the blows that fall, in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.behaviour import FAULTS, Manners

ROLES = ("target", "scorer")
BLOWS = {
    "kill_server": 6,
    "end_server": 3,
    "second_server": 3,
    "rival_servers": 2,
    "stop_server": 2,
    "kill_plugin": 5,
    "kill_guard": 2,
    "stop_plugin": 3,
    "lock_database": 3,
    "fill_disk": 2,
    "cancel": 3,
    "cancel_and_resume": 2,
    "pause": 2,
    "pause_and_resume": 3,
    "pause_and_cancel": 2,
    "resume": 5,
    "retry": 2,
    "set_limits": 4,
    "delete": 2,
    "purge": 5,
    "clear_cache": 2,
    "drop_watcher": 2,
    "ask_again": 2,
}
"""What may happen from outside, and how often."""
GENTLE = ("second_server", "lock_database", "set_limits", "purge", "delete", "drop_watcher", "ask_again")
"""Blows after which whoever holds a place in a pool still knows of it."""
AFTERWARDS = ("retry", "rescore", "twin", "delete", "purge")
"""What is done with runs that are over."""
NAMES_NOBODY_KNOWN = 5
"""The place of an item that names a scorer which nobody knows."""
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
    sampling: float = 1.0
    """Of the chaos scorer."""
    by_items: bool = False
    """Whether items, or else the dataset, say who judges them."""
    default: tuple[str, ...] = ()
    """The dataset's own scorers then."""
    cache: bool = False
    keep_outputs: bool = True
    keep_scores: bool = True

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is taken out when it is over."""
        return self.keep_outputs and self.keep_scores


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is done with runs that are over."""

    kind: str
    run: int
    hurt: bool
    """Whether the server is killed in the middle of it."""
    strength: float
    """From 0 to 1: when that is."""


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
    runs: tuple[RunPlan, ...]
    blows: tuple[Blow, ...] = field(default=())
    afterwards: tuple[Step, ...] = field(default=())
    places: int = 0
    """Of the pool that all runs share; 0: there is none."""
    item_scorers: bool = False
    """Whether items name scorers of their own."""

    @property
    def items(self) -> list[str]:
        """The ids of the dataset's items."""
        return [f"i{number:03}" for number in range(max(run.items for run in self.runs))]

    def own_scorers(self, place: int) -> tuple[str, ...] | None:
        """Who judges the item at a place, as it says itself; None: it says nothing."""
        if not self.item_scorers:
            return None
        if place == NAMES_NOBODY_KNOWN:
            return ("chaos", "nobody")
        return (None, (), ("chaos", "includes"), ("includes",), ("chaos",))[(place * 7 + self.seed) % 5]

    @property
    def gentle(self) -> bool:
        """Whether places in a pool are given back only by answers, so that they can be counted from outside."""
        harmless = all(blow.kind in GENTLE for blow in self.blows)
        return harmless and not any(name in self.manners.weights for name in _RARE) and not self.manners.poison

    def told(self) -> str:
        """In a few lines, for people."""
        faults = ", ".join(f"{name} {weight:.1%}" for name, weight in self.manners.weights.items())
        more = f"pool of {self.places}" if self.places else "no pool"
        lines = [
            f"seed {self.seed}: {len(self.runs)} runs, faults: {faults or 'none'}; poison {dict(self.manners.poison)}",
            f"  timeout {self.timeout:.2f} s, grant {self.grant}, can {self.capabilities or 'nothing'}, "
            f"commits up to {self.slowness * 1000:.0f} ms slower, {'resumes' if self.resume else 'does not resume'} by itself, {more}",
        ]
        lines += [f"  run {number}: {run}" for number, run in enumerate(self.runs)]
        lines += [
            f"  after {blow.after:4.0%} {blow.kind} {blow.run} {blow.role} {blow.strength:.2f}" for blow in self.blows
        ]
        lines += [f"  afterwards: {step}" for step in self.afterwards]
        return "\n".join(lines)


def scenario_of(seed: int) -> Scenario:
    """The scenario of a seed."""
    dice = random.Random(seed)
    timeout = dice.uniform(0.4, 0.9)
    item_scorers = dice.random() < 0.3
    places = dice.choice((2, 5, 12)) if dice.random() < 0.25 else 0
    count = dice.choice((2, 3) if places else (1, 1, 2, 3))
    runs = tuple(_run(dice, timeout, places, item_scorers) for _ in range(count))
    return Scenario(
        seed=seed,
        manners=_manners(dice, seed, min(run.items for run in runs), gentle=bool(places) and dice.random() < 0.5),
        timeout=timeout,
        grant=dice.choice((2, 5, 16, 64)),
        capabilities=dice.choice(("cancel progress", "cancel progress", "cancel", "progress", "")),
        slowness=dice.choice((0.0, 0.0, 0.02, 0.15)),
        resume=dice.random() < 0.3,
        runs=runs,
        blows=_blows(dice, len(runs), GENTLE if places and dice.random() < 0.5 else tuple(BLOWS)),
        afterwards=_afterwards(dice, runs),
        places=places,
        item_scorers=item_scorers,
    )


def _run(dice: random.Random, timeout: float, places: int, item_scorers: bool) -> RunPlan:
    concurrency = dice.choice((1, 4, 10, 32))
    items = dice.choice((12, 40, 90, 150) if concurrency > 1 else (12, 30))
    epochs = dice.choice((1, 1, 2))
    by_items = item_scorers and dice.random() < 0.7
    limits = {
        "concurrency": concurrency,
        "timeout": f"{timeout * 1000:.0f}ms",
        "silence": f"{timeout * 800:.0f}ms",
        "trial_timeout": "20s",
        "retries": dice.choice((0, 1, 2, 4)),
    }
    if dice.random() < 0.2:
        limits["tokens"] = int(items * epochs * dice.uniform(2, 12))
    if dice.random() < 0.1:
        limits["cost"] = round(items * epochs * dice.uniform(20, 100)) / 1e6
    if places:
        limits["pool"] = {"name": "shared", "concurrency": places}
    kept = dice.choice(((True, True),) * 5 + ((False, True), (True, False), (False, False)))
    return RunPlan(
        items=items,
        epochs=epochs,
        scorers=("chaos",)
        if by_items
        else dice.choice((("includes", "chaos"), ("chaos",), ("includes",), ("includes", "chaos"), ())),
        at_address=dice.random() < (0.7 if places else 0.35),
        limits=limits,
        scorer_concurrency=dice.choice((1, 4, 16)),
        sampling=dice.choice((1.0, 1.0, 0.5, 0.2)),
        by_items=by_items,
        default=dice.choice(((), ("chaos",), ("includes", "chaos"))),
        cache=kept[0] and dice.random() < 0.3,
        keep_outputs=kept[0],
        keep_scores=kept[1],
    )


def _manners(dice: random.Random, seed: int, items: int, *, gentle: bool) -> Manners:
    weights = {}
    for name in dice.sample(FAULTS, dice.randint(0, 8)):
        if name in _RARE:
            if not gentle:
                weights[name] = dice.uniform(0.002, 0.015)
        else:
            weights[name] = dice.uniform(0.01, 0.1)
    poison = {}
    if dice.random() < 0.2 and not gentle:
        poison[f"i{dice.randrange(items):03}"] = dice.choice(ROLES)
    return Manners(seed, weights, poison, dice.choice((0.01, 0.05, 0.2)))


def _blows(dice: random.Random, runs: int, choice: tuple[str, ...]) -> tuple[Blow, ...]:
    kinds = dice.choices(choice, [BLOWS[kind] for kind in choice], k=dice.randint(2, 8))
    places = sorted(dice.uniform(0.0, 1.1) for _ in kinds)
    return tuple(
        Blow(place, kind, dice.randrange(runs), dice.choice(ROLES), dice.random())
        for place, kind in zip(places, kinds, strict=True)
    )


def _afterwards(dice: random.Random, runs: tuple[RunPlan, ...]) -> tuple[Step, ...]:
    kinds = dice.sample(AFTERWARDS, dice.choice((0, 1, 1, 2, 3)))
    if any(run.cache for run in runs) and "twin" not in kinds and dice.random() < 0.5:
        kinds = ["twin", *kinds]
    return tuple(Step(kind, dice.randrange(len(runs)), dice.random() < 0.4, dice.random()) for kind in kinds)
