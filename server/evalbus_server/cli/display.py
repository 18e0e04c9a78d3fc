"""Live progress of a run: on a terminal, on stderr, and nowhere else. It is gone when the run is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evalbus_server.cli.figures import count, length_of_time, number, plain
from evalbus_server.cli.pace import Pace
from evalbus_server.model.run import Counts
from evalbus_server.runner.line import Progress

OUTCOMES = (("passed", "green"), ("failed", "red"), ("errored", "yellow"), ("skipped", "dim"))


class Display:
    """Shows how a run goes, if somebody looks at a terminal."""

    def __init__(
        self, name: str, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """*name* is the run's; nothing is shown before there is news."""
        self._name = name
        self._clock = clock
        self._pace = Pace()
        self._progress: Progress | None = None
        self._notice = ""
        console = console or Console(stderr=True)
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=8, transient=True)
        self.shown = console.is_terminal and not console.is_dumb_terminal

    def __enter__(self) -> Display:
        """Begin to show."""
        if self.shown:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Take it away."""
        if self.shown:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """The latest news."""
        self._progress = progress
        self._pace.note(self._clock(), progress.counts.done)

    def show_counts(self, counts: Counts) -> None:
        """The same from an event, which knows less: means and the like stay as they were told last."""
        if self._progress is None:
            self.show(Progress(counts, counts.done, 0, []))
        elif counts.done >= self._progress.counts.done:
            self.show(replace(self._progress, counts=counts))

    def notice(self, text: str) -> None:
        """A line that stays below the numbers; on stderr alone where nothing is shown."""
        self._notice = text
        if not self.shown:
            self._live.console.print(Text(f"evalbus: {text}"), soft_wrap=True)

    def _render(self) -> RenderableType:
        if self._progress is None:
            return Text(f"{plain(self._name)}: starting", style="dim")
        parts: list[RenderableType] = [self._bar(self._progress.counts), self._outcomes(self._progress)]
        if means := self._means(self._progress):
            parts.append(means)
        if self._notice:
            parts.append(Text(self._notice, style="yellow"))
        return Group(*parts)

    def _bar(self, counts: Counts) -> Table:
        row = Table.grid(padding=(0, 2))
        share = counts.done / counts.planned if counts.planned else 0.0
        cells: list[RenderableType] = [
            Text(plain(self._name), style="bold"),
            ProgressBar(total=max(counts.planned, 1), completed=counts.done, width=30),
            Text(f"{count(counts.done)} of {count(counts.planned)}"),
            Text(f"{share:.0%}"),
        ]
        rate, remaining = self._pace.rate, self._pace.remaining(counts.pending)
        if rate is not None:
            cells.append(Text(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s", style="cyan"))
        if remaining is not None:
            cells.append(Text(f"{length_of_time(remaining)} left"))
        row.add_row(*cells)
        return row

    def _outcomes(self, progress: Progress) -> Text:
        line = Text("  ")
        for name, style in OUTCOMES:
            value = getattr(progress.counts, name)
            line.append(f"{name} {count(value)}", style=style if value else "dim").append("   ")
        if progress.in_flight:
            line.append(f"in flight {count(progress.in_flight)}", style="dim")
        return line

    def _means(self, progress: Progress) -> Text | None:
        known = [(key, mean) for key, n, mean in progress.means if n and mean is not None]
        if not known:
            return None
        line = Text("  ")
        for key, mean in known:
            line.append(f"{plain(key)} ", style="dim").append(f"{number(mean)}   ")
        return line
