"""scripts/chaos: runs that are hurt at random, seed by seed, and what is left of them checked."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.chaos import soak
from tests.chaos.play import play
from tests.chaos.scenario import scenario_of


def main() -> int:
    """Read the arguments, and do as they say."""
    options = _parser().parse_args()
    if options.soak:
        return soak.main(options.trials, options.runs)
    if options.seed is not None:
        print(scenario_of(options.seed).told(), flush=True)
        began = time.monotonic()
        return _report([_told((options.seed, *_play(options.seed, keep=True)))], began)
    return _many(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="play so many seeds (20)")
    parser.add_argument("--first", type=int, default=1, metavar="K", help="the first of them (1)")
    parser.add_argument("--seed", type=int, metavar="K", help="play one seed, say what happens, and keep its folder")
    parser.add_argument("--minutes", type=float, metavar="M", help="play new seeds for so long instead")
    parser.add_argument("--jobs", type=int, default=4, metavar="J", help="so many at a time (4)")
    parser.add_argument("--soak", action="store_true", help="run many trials through one server, and watch its memory")
    parser.add_argument("--trials", type=int, default=100_000, metavar="N", help="of the soak, in all (100000)")
    parser.add_argument("--runs", type=int, default=4, metavar="R", help="of the soak, side by side (4)")
    return parser


def _seeds(options: Any) -> Any:
    if options.minutes is None:
        yield from range(options.first, options.first + options.seeds)
        return
    until = time.monotonic() + options.minutes * 60
    while time.monotonic() < until:
        yield random.randrange(1_000_000, 1_000_000_000)


def _many(options: Any) -> int:
    began = time.monotonic()
    played: list[tuple[int, list[str], str, float]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = set()
        seeds = _seeds(options)
        for seed in seeds:
            waiting.add(pool.submit(_named, seed))
            if len(waiting) >= options.jobs:
                done = next(as_completed(waiting))
                waiting.discard(done)
                played.append(_told(done.result()))
        played += [_told(done.result()) for done in as_completed(waiting)]
    return _report(played, began)


def _named(seed: int) -> tuple[int, list[str], str, float]:
    return (seed, *_play(seed))


def _play(seed: int, keep: bool = False) -> tuple[list[str], str, float]:
    """Play a seed: what is wrong, where its folder is kept ("": it is not), and how long it took."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
    try:
        faults = asyncio.run(play(scenario_of(seed), folder))
    except Exception:  # of the harness itself: one seed must not hide the others
        faults = [f"the harness failed: {traceback.format_exc()}"]
    if not (faults or keep):
        shutil.rmtree(folder, ignore_errors=True)
    return faults, str(folder) if faults or keep else "", time.monotonic() - began


def _told(done: tuple[int, list[str], str, float]) -> tuple[int, list[str], str, float]:
    seed, faults, folder, seconds = done
    print(f"{'FAIL' if faults else 'ok  '} seed {seed}  {seconds:.1f} s  {folder}", flush=True)
    for fault in faults[:20]:
        print(f"       {fault}", flush=True)
    return done


def _report(played: list[tuple[int, list[str], str, float]], began: float) -> int:
    failed = [done for done in played if done[1]]
    seeds = "1 seed" if len(played) == 1 else f"{len(played)} seeds"
    print(f"{seeds} in {time.monotonic() - began:.1f} s, {len(failed)} with faults")
    for seed, *_ in failed:
        print(f"again: scripts/chaos --seed {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
