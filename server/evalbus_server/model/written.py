"""Values as people write them in configuration: lengths of time, shares, names, JSON; checked, and written back."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from evalbus_server.model.faults import kind_of, quoted
from evalbus_server.model.paths import Steps, format_path, parse_path

LARGEST = 2**63 - 1
"""Counts are 64-bit integers in the contract and in the store."""
DEEPEST = 100
"""How deep a JSON document may nest."""

T_ = TypeVar("T_")

_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_PART = r"\d+(?:\.\d+)?(?:ms|s|m|h|d)"
_DURATION = re.compile(f"(?:{_PART})+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGEST = 100 * 365 * 86400.0


def parse_duration(text: str) -> float:
    """The seconds of a length of time with its unit: `60s`, `5m`, `2h`, `250ms`, `1h30m`.

    Raises:
        ValueError: it has no unit, or is no length of time at all.
    """
    stripped = text.strip()
    if not _DURATION.fullmatch(stripped):
        raise ValueError(f"not a length of time: {quoted(text)}; write a number with ms, s, m, h or d, such as 60s")
    parts = re.findall(r"([\d.]+)([a-z]+)", stripped)
    seconds = float(sum(Decimal(number) * _UNITS[unit] for number, unit in parts))
    if seconds > _LONGEST:
        raise ValueError(f"{quoted(text)} is more than 100 years; leave it out if there is to be no limit")
    return seconds


def format_duration(seconds: float) -> str:
    """A length of time as `parse_duration` reads it, in the largest unit that gives a whole number."""
    for unit in ("h", "m", "s", "ms"):
        number = Decimal(repr(seconds)) / _UNITS[unit]
        if seconds and number == number.to_integral_value():
            return f"{int(number)}{unit}"
    return f"{Decimal(repr(seconds)):f}s" if seconds else "0s"


def _read_duration(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a length of time such as 60s, not {kind_of(value)}")
    if not isinstance(value, str):
        raise ValueError(f"a length of time needs a unit: write {value}s, or {value}m for minutes")
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError(f"must be longer than {value}; leave it out for the default")
    return seconds


Duration: TypeAlias = Annotated[
    float,
    BeforeValidator(_read_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^({_PART})+$", "examples": ["60s", "5m", "2h"]}),
]
"""Seconds; written with a unit."""


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """When there is too much trouble: past a count, or past a share (0 to 1)."""

    count: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        """As it is written in a file."""
        return str(self.count) if self.share is None else f"{(Decimal(repr(self.share)) * 100).normalize():f}%"


def _read_error_limit(value: object) -> ErrorLimit:
    if isinstance(value, ErrorLimit):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return ErrorLimit(count=value)
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?%", value.strip(), re.ASCII):
        share = float(Decimal(value.strip()[:-1]) / 100)
        if share <= 1:
            return ErrorLimit(share=share)
    raise ValueError(f"must be a count such as 20 or a share such as 50%, not {quoted(value)}")


def _write_error_limit(limit: ErrorLimit) -> int | str:
    return str(limit) if limit.count is None else limit.count


WrittenErrorLimit: TypeAlias = Annotated[
    ErrorLimit,
    BeforeValidator(_read_error_limit),
    PlainSerializer(_write_error_limit),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?%$"}]},
    ),
]


SAMPLES = {"always": 1.0, "never": 0.0}
"""Words for the two shares that are no sample."""


def _read_sampling(value: object) -> float:
    if isinstance(value, str) and value in SAMPLES:
        return SAMPLES[value]
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:  # False for NaN
        return float(value)
    raise ValueError(f"must be always, never, or a share from 0 to 1, not {quoted(value)}")


Sampling: TypeAlias = Annotated[
    float,
    BeforeValidator(_read_sampling),
    WithJsonSchema({"anyOf": [{"enum": list(SAMPLES)}, {"type": "number", "minimum": 0, "maximum": 1}]}),
]
"""A share of trials."""


def _plain_name(name: str) -> str:
    if not name:
        raise ValueError("must not be empty")
    if len(name) > 200:
        raise ValueError(f"must have at most 200 characters, not {len(name)}")
    if _CONTROL.search(name):
        raise ValueError("must not hold control characters")
    return _unicode(name)


def plain_dataset_name(name: str) -> str:
    """The name of a dataset as it is.

    Raises:
        ValueError: it cannot be one; the message goes on behind the name.
    """
    if name != name.strip():
        raise ValueError("must not begin or end with white space")
    return _plain_name(name)


def _dotless_name(name: str) -> str:
    if "." in name:
        raise ValueError(f"must not hold a dot: {name!r}; the dot stands between scorer and score")
    return _plain_name(name)


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must not hold a lone surrogate") from None
    return text


Text: TypeAlias = Annotated[str, AfterValidator(_unicode)]
Name: TypeAlias = Annotated[str, AfterValidator(_plain_name), Field(json_schema_extra={"minLength": 1})]
"""1 to 200 characters, none a control character."""
DatasetName: TypeAlias = Annotated[str, AfterValidator(plain_dataset_name), Field(json_schema_extra={"minLength": 1})]
"""The same, with no white space at its ends."""
DotlessName: TypeAlias = Annotated[str, AfterValidator(_dotless_name), Field(json_schema_extra={"minLength": 1})]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Many: TypeAlias = Annotated[tuple[T_, ...], Field(strict=False)]
"""A list in a file, a tuple here."""


def _value_path(text: str) -> str:
    steps = parse_path(text)
    if steps[0] not in ("item", "output", "trial") or len(steps) < 2:
        raise ValueError(f"must begin with item., output. or trial.: {text!r}; the answer is output.content")
    return text


def _json_object(document: dict[str, Any]) -> dict[str, Any]:
    for path, fault in _faults(document, ()):
        raise ValueError(f"{format_path(path)}: {fault}" if path else fault)
    return document


def _faults(document: object, path: Steps) -> Iterator[tuple[Steps, str]]:
    """What in a document has no form in JSON, and where."""
    if len(path) > DEEPEST:
        yield path[:3], f"nested deeper than {DEEPEST}"
    elif isinstance(document, dict):
        for key, value in document.items():
            if not isinstance(key, str):
                yield path, f"the key {key!r} must be text; put it in quotes"
            yield from _faults(value, (*path, key))
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            yield from _faults(value, (*path, index))
    elif (fault := _fault_of(document)) is not None:
        yield path, fault


def _fault_of(scalar: object) -> str | None:
    if isinstance(scalar, str):
        return "must not hold a lone surrogate" if any("\ud800" <= each <= "\udfff" for each in scalar) else None
    if isinstance(scalar, float):
        return None if math.isfinite(scalar) else f"{scalar} is not JSON; leave it out"
    return None if isinstance(scalar, int | None) else f"{kind_of(scalar)} is not JSON; put it in quotes"


JsonObject: TypeAlias = Annotated[dict[str, Any], AfterValidator(_json_object)]
"""A JSON object as Python objects; integers keep every digit."""


def _numbers(value: object) -> object:
    """A number for all scores, or a map from score to number; the same fault in either is said once."""
    if isinstance(value, dict):
        if not value:
            raise ValueError("must not be empty; leave it out")
        for key, number in value.items():
            if not isinstance(key, str):
                raise ValueError(f"the score's name {key!r} must be text; put it in quotes")
            if not _is_number(number):
                raise ValueError(f"{format_path((key,))} must be a finite number, not {quoted(number)}")
        return {key: float(number) for key, number in value.items()}
    if not _is_number(value):
        raise ValueError(f"must be a number, or a map from score to number, not {quoted(value)}")
    return float(value)  # type: ignore[arg-type]


def _no_negatives(value: float | dict[str, float]) -> float | dict[str, float]:
    numbers = value.values() if isinstance(value, dict) else (value,)
    if any(number < 0 for number in numbers):
        raise ValueError("must not be below 0")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


NumberOrMap: TypeAlias = Annotated[float | dict[str, float], BeforeValidator(_numbers)]
WeightOrMap: TypeAlias = Annotated[NumberOrMap, AfterValidator(_no_negatives)]
ValuePath: TypeAlias = Annotated[str, AfterValidator(_value_path)]
"""A path into item, output or trial."""


def _metric_path(text: str) -> str:
    steps = parse_path(text)
    if steps[0] not in ("item", "output", "trial", "score") or len(steps) < 2:
        raise ValueError(f"must begin with item., output., trial. or score.: {text!r}; the answer is output.content")
    return text


MetricPath: TypeAlias = Annotated[str, AfterValidator(_metric_path)]
"""The same, or one into a score."""
