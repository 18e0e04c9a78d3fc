"""Numbers over all trials of a score, such as a correlation: what an author writes, and what comes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalbus._decorating import decorator
from evalbus._errors import PluginInvalid
from evalbus._failure import Failure
from evalbus._plugin import MetricDeclaration
from evalbus._score import Direction, Score
from evalbus._value import Value


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One score with a value, and what it is about."""

    trial_id: int
    item_id: str
    epoch: int
    score: Score
    expected: Value | None = None
    """What the item expects."""
    answer: Value | None = None
    """What the target answered: the part that counts where it told, else its content."""
    inputs: Mapping[str, Value] = field(default_factory=dict)
    """The named inputs that the experiment maps for the scorer; one that has no value is left out."""

    @property
    def value(self) -> float:
        """The score's value."""
        return self.score.value or 0.0


@dataclass(frozen=True, slots=True)
class MetricValue:
    """What a metric's function may return: a number, or none, and of what it was made, or why there is none."""

    value: float | None
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class MetricAnswer:
    """One number as it travels: which metric of which score."""

    metric: str
    score: str = ""
    value: float | None = None
    explanation: str = ""
    failure: Failure | None = None


class Metric:
    """A function from rows to a number. Made by `metric`; it is still called like the function itself."""

    def __init__(self, function: Callable[..., Any], declaration: MetricDeclaration) -> None:
        """Take the function apart.

        Raises:
            PluginInvalid: its parameters or its name do not fit.
        """
        name = declaration.name
        if not 1 <= len(name) <= 100 or "." in name or not name.isprintable():
            raise PluginInvalid(
                f"metric {name!r}: a name has 1 to 100 characters, and neither dots nor control characters"
            )
        self.declaration = declaration
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._wanted = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in ("rows", "settings"):
                self._wanted.append(parameter.name)
            elif parameter.default is parameter.empty:
                raise PluginInvalid(
                    f"metric {name!r}: nothing is known for the parameter `{parameter.name}`; known are `rows` (a list "
                    "of ScoreRow) and `settings` (those of the scorer); give any other a default"
                )
        if "rows" not in self._wanted:
            raise PluginInvalid(f"metric {name!r}: it takes no rows: give it a parameter `rows`")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def ask(self, rows: Sequence[ScoreRow], settings: Any) -> Any:
        """What the function returns; a coroutine if it is async."""
        given = {"rows": rows, "settings": settings}
        return self.function(**{name: given[name] for name in self._wanted})


@decorator
def metric(
    name: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    direction: Direction = Direction.HIGHER_IS_BETTER,
    description: str = "",
) -> Callable[[Callable[..., Any]], Metric]:
    """Make a function a metric, a number over all trials of a score. It belongs to the scorers that list it.

    By name it takes `rows`, a list of ScoreRow in the order of the dataset and then of the epochs, and `settings`, those
    of the scorer. It may be sync or async, and returns a number, None, or a MetricValue. The order of the rows SHOULD
    make no difference: sum with `math.fsum`.

    Args:
        name: 1 to 100 characters, no dots.
        minimum: the lowest value; None means no lower bound.
        maximum: the highest value; None means no upper bound.
        direction: which way is better.
        description: one sentence for people; by default the first line of the docstring.

    Raises:
        PluginInvalid: the function or an option does not fit; the text says what to change.
    """

    def decorate(function: Callable[..., Any]) -> Metric:
        told = description or (inspect.getdoc(function) or "").partition("\n")[0]
        return Metric(function, MetricDeclaration(name, minimum, maximum, direction, told))

    return decorate
