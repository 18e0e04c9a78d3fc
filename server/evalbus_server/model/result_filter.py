"""Which results of a run are wanted."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from evalbus import ScoreStatus
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.faults import suggestion
from evalbus_server.model.run import Outcome, ScoreKey

LONGEST_TEXT = 1000
MOST_CONDITIONS = 20
STANDINGS = ("scored", "skipped", "errored", "missing")
_WRITTEN = re.compile(r"(?P<key>.+?)\s*(?P<sign><=|>=|<|>|=)\s*(?P<value>[^\s<>=]+)", re.DOTALL)
_BOUNDS = {"<": "below", "<=": "at_most", ">": "above", ">=": "at_least"}


@dataclass(frozen=True, slots=True)
class ScoreFilter:
    """A condition on one score of a trial; all of its parts hold. Bounds hold for SCORED values only."""

    key: str
    status: ScoreStatus | None = None
    missing: bool = False
    """There is no such score of the trial: its target failed, the scorer did not apply, or it is not kept."""
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True)
class ResultFilter:
    """Which results are wanted: those for which all of it holds. What is empty does not restrict."""

    outcomes: tuple[Outcome, ...] = ()
    item: str = ""
    """A glob on the raw item id."""
    tags: tuple[str, ...] = ()
    """The item has all of them."""
    scores: tuple[ScoreFilter, ...] = field(default=())
    text: str = ""
    """Stands in the item's id, input or expected answer, in the output, an explanation, or a failure; case does not matter."""


EVERYTHING = ResultFilter()


def check_filter(wanted: ResultFilter, keys: tuple[ScoreKey, ...]) -> None:
    """Check a filter against the scores of a run.

    Raises:
        Invalid: it names a score that the run has not, or has a part that no filter can have.
    """
    if len(wanted.text) > LONGEST_TEXT:
        raise _invalid("text", f"has {len(wanted.text)} characters; {LONGEST_TEXT:,} are the most")
    if len(wanted.scores) + len(wanted.tags) > MOST_CONDITIONS:
        raise _invalid("scores", f"more than {MOST_CONDITIONS} tags and scores in one filter")
    known = [key.key for key in keys]
    for each in wanted.scores:
        if each.key not in known:
            there = suggestion(each.key, known, known) if known else ": it has none"
            raise _invalid("scores", f"the run has no score {each.key!r}{there}")
        bounds = (each.above, each.at_least, each.at_most, each.below)
        if any(bound is not None and not math.isfinite(bound) for bound in bounds):
            raise _invalid("scores", f"a bound of {each.key!r} is not a finite number")
        if each.missing and (each.status is not None or any(bound is not None for bound in bounds)):
            raise _invalid("scores", f"{each.key!r} cannot be missing and be or have something")


def written_score(text: str) -> ScoreFilter:
    """A condition as people write it: `tone<0.5`, `tone>=0.8`, `tone=errored`, `tone=missing`.

    Raises:
        Invalid: it has another form.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise _invalid("score", f"{text!r}: write KEY=STATUS or KEY<NUMBER, such as tone=errored or tone<0.5")
    key, sign, value = match["key"], match["sign"], match["value"]
    if sign == "=" and value.lower() in STANDINGS:
        missing = value.lower() == "missing"
        return ScoreFilter(key, None if missing else ScoreStatus[value.upper()], missing)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _invalid("score", f"{text!r}: {value!r} is neither a number nor one of {', '.join(STANDINGS)}")
    if sign == "=":
        return ScoreFilter(key, at_least=number, at_most=number)
    return ScoreFilter(key, **{_BOUNDS[sign]: number})  # type: ignore[arg-type]


def _invalid(field: str, text: str) -> Invalid:
    return Invalid(Reason.REQUEST_INVALID, f"{field}: {text}", field=field)
