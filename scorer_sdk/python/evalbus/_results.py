"""What a plugin function returned or raised -> an output, scores or a failure."""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType
from typing import Any, NoReturn

from evalbus import _json
from evalbus._errors import TrialFailed
from evalbus._failure import Failure, FailureCategory
from evalbus._output import Output, output_with
from evalbus._score import Score, plain_scores
from evalbus._value import Value, text_value

MESSAGE_LIMIT = 2048
"""Bytes of a failure's message."""
TRACEBACK_LIMIT = 8192
"""Bytes of a traceback in a failure's details."""

_TARGET_RETURNS = "return an Output, a Value, a str, or JSON (dict, list, number, bool)"
_SCORER_RETURNS = "return a Score, a number, a bool, or a sequence of Scores"
_HERE = os.path.dirname(__file__) + os.sep


class ResultInvalid(Exception):
    """A function returned what no answer can be made of; the text says what came and what may."""


def output_of(returned: Any) -> Output:
    """The output that a target's function meant.

    Raises:
        ResultInvalid: it is nothing that an output can be made of.
    """
    kind = type(returned)
    if kind is Output:
        return returned  # type: ignore[no-any-return]
    if kind is str:
        return output_with(text_value(returned))
    if kind is Value:
        return output_with(returned)
    if isinstance(returned, Output):
        return returned
    if isinstance(returned, (str, dict, list, int, float)):
        try:
            return Output(Value.of(returned))
        except (ValueError, TypeError, RecursionError) as error:
            raise ResultInvalid(f"returned a {kind.__name__} that is not JSON: {error}; {_TARGET_RETURNS}") from None
    _refuse(returned, _TARGET_RETURNS)


def scores_of(returned: Any) -> tuple[Score, ...]:
    """The scores that a scorer's function meant.

    Raises:
        ResultInvalid: it is nothing that scores can be made of.
    """
    kind = type(returned)
    if kind is Score:
        return (returned,)
    if kind is float:
        return plain_scores(returned)
    if kind is bool or kind is int:
        return plain_scores(_float(returned))
    if isinstance(returned, Score):
        return (returned,)
    if isinstance(returned, (list, tuple)):
        for entry in returned:
            if not isinstance(entry, Score):
                raise ResultInvalid(f"returned a {kind.__name__} with {_named(entry)} in it; {_SCORER_RETURNS}")
        if not returned:
            raise ResultInvalid(f"returned no score at all; {_SCORER_RETURNS}, or Score.skipped(why)")
        return tuple(returned)
    if hasattr(kind, "__float__"):  # the numbers of other libraries
        return plain_scores(_float(returned))
    _refuse(returned, _SCORER_RETURNS)


def _float(number: Any) -> float:
    try:
        return float(number)
    except (OverflowError, ValueError, TypeError) as error:
        raise ResultInvalid(f"returned a {type(number).__name__} that is no number: {error}") from None


def _refuse(returned: Any, allowed: str) -> NoReturn:
    close = getattr(returned, "close", None)
    if callable(close) and hasattr(returned, "__await__"):
        close()  # or Python would complain later that nobody awaited it
        raise ResultInvalid("returned a coroutine: declare the function with `async def`, or await inside it")
    raise ResultInvalid(f"returned {_named(returned)}; {allowed}")


def _named(returned: Any) -> str:
    return "None" if returned is None else f"a value of type {type(returned).__name__}"


def failure_of(error: BaseException, name: str) -> Failure:
    """The failure behind an exception of plugin code; *name* is the function's."""
    if isinstance(error, TrialFailed):
        failure = getattr(error, "failure", None)  # a subclass may have forgotten to call ours
        return _clean(failure if isinstance(failure, Failure) else Failure(FailureCategory.INTERNAL, _str(error)))
    if isinstance(error, ResultInvalid):
        return Failure(FailureCategory.INTERNAL, one_line(f"{name} {error}"), "RESULT_INVALID")
    kind = type(error).__name__
    text = f"{kind}: {_str(error)}".removesuffix(": ")
    if kind == "CancelledError":
        text = f"{text}: raised by {name} itself, nobody had cancelled the trial"
    return Failure(FailureCategory.INTERNAL, one_line(text), upper_snake(kind), details_json=_details(error))


def one_line(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """A text as one line of clean Unicode, cut at *limit* bytes."""
    return cut(" ".join(clean(text[: limit * 4]).split()), limit)


def clean(text: str) -> str:
    """A text without lone surrogates and NUL, which have no place in a message."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def cut(text: str, limit: int) -> str:
    """The beginning of a text, at most *limit* bytes of UTF-8, with an ellipsis where something is missing."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - 3].decode("utf-8", "ignore") + "…"


def upper_snake(name: str) -> str:
    """A class name as a reason: `HTTPError` -> `HTTP_ERROR`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_")[:64] or "INTERNAL"


def _str(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception whose own text fails is still worth a failure
        return "(its text could not be made)"


def _details(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, _authors_part(error.__traceback__))
        text = clean("".join(lines))
    except Exception:
        return ""
    encoded = text.encode()
    if len(encoded) > TRACEBACK_LIMIT:  # the end is what tells
        text = "…" + encoded[len(encoded) - TRACEBACK_LIMIT + 3 :].decode("utf-8", "ignore")
    return _json.dumps({"traceback": text})


def _authors_part(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames at its top, which tell an author nothing."""
    start = frames
    while start is not None and start.tb_frame.f_code.co_filename.startswith(_HERE):
        start = start.tb_next
    return start if start is not None else frames


def _clean(failure: Failure) -> Failure:
    """A failure as an author made it, in a form that can travel."""
    return Failure(
        failure.category,
        one_line(str(failure.message)),
        upper_snake(failure.reason) if failure.reason else "",
        failure.origin,
        failure.retryable,
        failure.field,
        failure.retry_after,
        failure.details_json,
    )
