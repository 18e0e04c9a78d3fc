"""What a plugin function may ask and tell about the trial it works on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from evalbus._item import ScoreTask, Trial, TrialLimits
from evalbus._output import Usage
from evalbus._plugin import Open, Purpose
from evalbus._tools import ToolBox
from evalbus._value import Value

_MAKING_TOOLS = threading.Lock()


class Ticket:
    """The state of one trial inside a worker. Not for plugins, who see it through a Context.

    What most trials never change stands in the class: one is made for every trial.
    """

    begun: float | None = None
    """When work on it began; None while it waits."""
    deadline: float | None = None
    stopped = ""
    """Why it is to stop: "", "cancelled" or "timeout"."""
    stopped_at = 0.0
    heard: float | None = None
    """When news of it went out last; None before its `started`."""
    figures: Figures | None = None
    job: Any = None
    tools: ToolBox | None = None
    """The mock tools, once the function has asked for them."""

    def __init__(self, task: Any, key: tuple[int, int]) -> None:
        self.task = task
        self.key = key


class Figures:
    """How far a trial has come, as the plugin tells it."""

    __slots__ = ("fresh", "messages", "note", "steps", "usage")

    def __init__(self) -> None:
        self.steps = 0
        self.messages = 0
        self.usage: Usage | None = None
        self.note = ""
        self.fresh = False
        """Not sent yet."""


class Context:
    """The trial a plugin function works on: settings, time, cancellation, progress. May be used from any thread."""

    __slots__ = ("_log", "_opening", "_ticket", "settings")

    def __init__(self, ticket: Ticket, opening: Open, settings: Any, log: Callable[[str], None]) -> None:
        """Made by the worker for each trial whose function asks for it."""
        self._ticket = ticket
        self._opening = opening
        self._log = log
        self.settings = settings
        """The settings of this conversation, as the function's own `settings` parameter would get them."""

    @property
    def trial_id(self) -> int:
        """Names the trial within its run."""
        return self._task.trial_id

    @property
    def attempt(self) -> int:
        """Which try this is; only good for telling two tries apart."""
        return self._task.attempt

    @property
    def epoch(self) -> int:
        """The pass over the dataset, from 1."""
        return self._task.epoch

    @property
    def limits(self) -> TrialLimits:
        """The limits that a target is asked to keep to; none for a scorer."""
        limits = getattr(self._task, "limits", None)
        return limits if isinstance(limits, TrialLimits) else TrialLimits()

    @property
    def tools(self) -> ToolBox:
        """The mock tools that the item brings for a target: `ctx.tools.call("look_up", {"city": "Oslo"})`.

        Empty if the item has none. What became of them gets into the output by itself.
        """
        with _MAKING_TOOLS:
            if self._ticket.tools is None:
                self._ticket.tools = ToolBox(self._task.item.tool_mocks)
            return self._ticket.tools

    @property
    def inputs(self) -> Mapping[str, Value]:
        """The named values that the experiment maps for a scorer; empty for a target."""
        inputs: Mapping[str, Value] = getattr(self._task, "inputs", {})
        return inputs

    @property
    def run_id(self) -> str:
        """The run that the trial belongs to."""
        return self._opening.run_id

    @property
    def purpose(self) -> Purpose:
        """What the run is for."""
        return self._opening.purpose

    @property
    def tags(self) -> tuple[str, ...]:
        """The run's tags."""
        return self._opening.tags

    @property
    def cancelled(self) -> bool:
        """Whether the answer is no longer wanted: cancelled, or out of time. A sync function looks here and returns;
        an async one gets asyncio.CancelledError."""
        return bool(self._ticket.stopped)

    def time_remaining(self) -> float | None:
        """Seconds left, 0.0 when there are none; None when there is no limit."""
        deadline = self._ticket.deadline
        return None if deadline is None else max(0.0, deadline - monotonic())

    def progress(
        self,
        *,
        steps: int | None = None,
        messages: int | None = None,
        usage: Usage | None = None,
        note: str | None = None,
    ) -> None:
        """Tell how far the work has come; what is left out stays as told before. Cheap: only the latest is sent.

        The usage told last is also what a failed trial is said to have consumed.
        """
        figures = self._ticket.figures
        if figures is None:
            figures = self._ticket.figures = Figures()
        if steps is not None:
            figures.steps = steps
        if messages is not None:
            figures.messages = messages
        if usage is not None:
            figures.usage = usage
        if note is not None:
            figures.note = note
        figures.fresh = True

    def log(self, text: str) -> None:
        """Write a line to the plugin's log, with the trial's number."""
        self._log(f"trial {self.trial_id}/{self.attempt}: {text}")

    @property
    def _task(self) -> Trial | ScoreTask:
        task: Trial | ScoreTask = self._ticket.task
        return task
