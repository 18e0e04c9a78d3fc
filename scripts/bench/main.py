"""The benchmark: the real server beside the bare limit, on the same work in the same minutes.

Every figure is the median of interleaved runs, so that a slow minute of the machine meets all contestants alike.
Nothing here is asserted: figures are for people, and ratios for comparing one day with another.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from server_run import peak_mb
from work import EXACT, LEVENSHTEIN, TARGET, items

from evalbus_server.store import open_store

HERE = Path(__file__).parent
KINDS = ("target", "exact", "levenshtein")
DATASET = "bench"
SLOW_SECONDS = 0.5
LONE_SECONDS = 0.05


class Contest:
    """A folder with datasets of several sizes and the contestants' processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._serial = 0

    def fresh(self, count: int) -> Path:
        """A database that holds a dataset of *count* items and nothing else."""
        template = self.folder / f"items-{count}.db"
        if not template.exists():
            with open_store(template) as store:
                store.publish(DATASET, items(count))
        self._serial += 1
        path = self.folder / f"run-{self._serial}.db"
        shutil.copy(template, path)
        return path

    def drop(self, path: Path) -> None:
        """Delete a database."""
        for file in self.folder.glob(f"{path.name}*"):
            file.unlink()


@contextmanager
def plugins(script: str, folder: Path, kinds: tuple[str, ...] = KINDS) -> Iterator[dict[str, tuple[str, int]]]:
    """Start plugin processes; their addresses and process ids by kind."""
    started: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
    try:
        for kind in kinds:
            socket = folder / f"{Path(script).stem}-{kind}"
            socket.unlink(missing_ok=True)
            environment = {**os.environ, "EVALBUS_SOCKET": str(socket)}
            command = [sys.executable, str(HERE / script), kind, str(socket)]
            process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            started[kind] = (f"unix:{socket}", process)
        for address, process in started.values():
            wait_for(Path(address.removeprefix("unix:")), process)
        yield {kind: (address, process.pid) for kind, (address, process) in started.items()}
    finally:
        for _, process in started.values():
            process.kill()
            process.wait()


def wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a plugin listens."""
    deadline = time.monotonic() + 20
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"a plugin did not start: {process.args!r}")
        time.sleep(0.01)
    time.sleep(0.05)


def bare(contest: Contest, count: int) -> dict[str, Any]:
    """One run of the bare line."""
    path = contest.fresh(count)
    with plugins("bare_plugins.py", contest.folder) as started:
        addresses = [started[kind][0] for kind in KINDS]
        said = call("bare_line.py", str(path), str(count), *addresses)
    contest.drop(path)
    return {"items_per_s": count / said["seconds"], **said}


def real(contest: Contest, count: int, experiment: dict[str, Any], kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """One run of the server."""
    path = contest.fresh(count)
    with plugins("sdk_plugins.py", contest.folder, kinds) as started:
        document = filled(experiment, {kind: address for kind, (address, _) in started.items()})
        file = contest.folder / "experiment.json"
        file.write_text(json.dumps(document))
        said = call("server_run.py", str(path), str(file))
        said["plugins"] = {kind: figures(pid) for kind, (_, pid) in started.items()}
    if said["state"] != "COMPLETED" or said["done"] != count or said["errored"]:
        raise SystemExit(f"the run did not end well: {said}")
    contest.drop(path)
    return {"items_per_s": count / said["seconds"], **said}


def call(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script of this folder; the JSON that it prints."""
    done = subprocess.run([sys.executable, str(HERE / script), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script}: {done.stderr.strip()[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def figures(pid: int) -> dict[str, float]:
    """CPU seconds and peak memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), "rss_mb": peak_mb(str(pid))}


def filled(experiment: dict[str, Any], addresses: dict[str, str]) -> dict[str, Any]:
    """An experiment with the addresses of the processes that were started."""
    text = json.dumps(experiment)
    for kind, address in addresses.items():
        text = text.replace(f"<{kind}>", address)
    document: dict[str, Any] = json.loads(text)
    return document


def experiment(target: dict[str, Any], scorers: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """The experiment of a contest."""
    limits = {"concurrency": concurrency, "timeout": "60s"}
    return {"name": "bench", "dataset": {"name": DATASET}, "target": target, "scorers": scorers, "limits": limits}


def remote_experiment(concurrency: int) -> dict[str, Any]:
    """Two remote scorers."""
    return experiment(
        {"address": "<target>", "plugin": TARGET},
        [
            {"address": "<exact>", "plugin": EXACT, "concurrency": concurrency},
            {"address": "<levenshtein>", "plugin": LEVENSHTEIN, "concurrency": concurrency},
        ],
        concurrency,
    )


def builtin_experiment(concurrency: int) -> dict[str, Any]:
    """Two builtin scorers."""
    uses = [{"use": name, "concurrency": concurrency} for name in ("exact_match", "levenshtein")]
    return experiment({"address": "<target>", "plugin": TARGET}, uses, concurrency)


def slow_experiment(seconds: float, concurrency: int) -> dict[str, Any]:
    """A target that takes its time, and one builtin scorer."""
    target = {"address": "<target>", "plugin": "bench-slow", "settings": {"seconds": seconds}}
    return experiment(target, [{"use": "exact_match", "concurrency": 1000}], concurrency)


def median(results: list[dict[str, Any]], name: str) -> float:
    """The median of one figure."""
    return float(statistics.median(result[name] for result in results))


def measure(options: argparse.Namespace, contest: Contest, console: Console) -> dict[str, Any]:
    """All contests."""
    sizes = options.items
    results: dict[str, dict[int, list[dict[str, Any]]]] = {}
    contestants: dict[str, Callable[[int], dict[str, Any]]] = {
        "limit": lambda count: bare(contest, count),
        "remote": lambda count: real(contest, count, remote_experiment(options.concurrency)),
        "builtin": lambda count: real(contest, count, builtin_experiment(options.concurrency), ("target",)),
    }
    for size in sizes:
        for turn in range(options.rounds):
            for name, run in contestants.items():
                console.print(f"{name}, {size:,} items, round {turn + 1} of {options.rounds} …", style="dim")
                results.setdefault(name, {}).setdefault(size, []).append(run(size))
    largest = max(sizes)
    rate = {name: median(results[name][largest], "items_per_s") for name in contestants}
    report: dict[str, Any] = {
        "items": sizes,
        "rounds": options.rounds,
        "concurrency": options.concurrency,
        "limit_items_per_s": rate["limit"],
        "remote_items_per_s": rate["remote"],
        "builtin_items_per_s": rate["builtin"],
        "ratio_remote": rate["remote"] / rate["limit"],
        "ratio_builtin": rate["builtin"] / rate["limit"],
        "rss_mb": {str(size): median(results["remote"][size], "rss_mb") for size in sizes},
        "rss_mb_builtin": {str(size): median(results["builtin"][size], "rss_mb") for size in sizes},
        "cpu_us_per_item": {
            "server": 1e6 * median(results["remote"][largest], "cpu_s") / largest,
            **{
                kind: 1e6 * median([run["plugins"][kind] for run in results["remote"][largest]], "cpu_s") / largest
                for kind in KINDS
            },
            "server_builtin": 1e6 * median(results["builtin"][largest], "cpu_s") / largest,
        },
        "summary_ms": 1000 * median(results["remote"][largest], "summary_s"),
        "by_size": {
            name: {str(size): median(runs, "items_per_s") for size, runs in by_size.items()}
            for name, by_size in results.items()
        },
    }
    if not options.no_latency:
        report.update(measure_latency(options, contest, console))
    return report


def measure_latency(options: argparse.Namespace, contest: Contest, console: Console) -> dict[str, Any]:
    """Work that waits: many slow trials at once, and slow trials one at a time."""
    count, concurrency = options.slow_items, 1000
    ideal = -(-count // concurrency) * SLOW_SECONDS
    console.print(f"latency-bound, {count:,} items of {SLOW_SECONDS} s, {concurrency:,} at once …", style="dim")
    bound = real(contest, count, slow_experiment(SLOW_SECONDS, concurrency), ("target",))
    lone = 60
    console.print(f"lone trials, {lone} of {LONE_SECONDS} s, one at a time …", style="dim")
    single = real(contest, lone, slow_experiment(LONE_SECONDS, 1), ("target",))
    return {
        "latency_bound_ratio": bound["seconds"] / ideal,
        "lone_trial_ms": 1000 * (single["seconds"] / lone - LONE_SECONDS),
    }


def show(report: dict[str, Any], console: Console) -> None:
    """The report as a table."""
    table = Table("work", "items/s", "of the limit", title=f"{max(report['items']):,} items, medians")
    table.add_row("bare limit: target and two scorers, nothing else", f"{report['limit_items_per_s']:,.0f}", "1")
    for name, title in (("remote", "target and two remote scorers"), ("builtin", "target, and two builtin scorers")):
        table.add_row(title, f"{report[f'{name}_items_per_s']:,.0f}", f"{report[f'ratio_{name}']:.2f}")
    console.print(table)
    more = Table("figure", "value")
    for size, peak in report["rss_mb"].items():
        more.add_row(f"peak memory of the server, {int(size):,} items, remote", f"{peak:.0f} MB")
    for name, cost in report["cpu_us_per_item"].items():
        more.add_row(f"CPU an item, {name}", f"{cost:.1f} µs")
    more.add_row(f"the numbers of {max(report['items']):,} trials, when asked for", f"{report['summary_ms']:.0f} ms")
    if "latency_bound_ratio" in report:
        more.add_row("latency-bound work, times its ideal", f"{report['latency_bound_ratio']:.3f}")
        more.add_row("a lone trial, added", f"{report['lone_trial_ms']:.2f} ms")
    console.print(more)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="scripts/bench/run", description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 100_000], help="sizes of the datasets")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each contestant and size; the median counts")
    parser.add_argument("--concurrency", type=int, default=1000)
    parser.add_argument("--slow-items", type=int, default=20_000, help="items of the latency-bound work")
    parser.add_argument("--no-latency", action="store_true", help="leave the latency-bound work out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    options = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="evalbus-bench-", dir=os.environ.get("EVALBUS_BENCH_DIR")) as folder:
        report = measure(options, Contest(Path(folder)), console)
    show(report, Console())
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
