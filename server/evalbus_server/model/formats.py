"""Formats of JSON Schema that its package checks only with more packages beside it: times, addresses and pointers.

Every pattern here reads its text once, from the left: none of them can hang.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from ipaddress import AddressValueError, IPv6Address
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII)
_DURATION = re.compile(
    r"P(?:\d+W|(?=[\dT])(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)?(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))?)",
    re.ASCII,
)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_AUTHORITY = re.compile(r"//([^/?#]*)")
_HOST_AND_PORT = re.compile(r"(?:[^@]*@)?(?:\[([^\]]*)\]|[^:@\[\]]*)(?::\d*)?")
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_RELATIVE_POINTER = re.compile(r"(?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)", re.ASCII)
_LONGEST_HOSTNAME = 253


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


def _is_date_time(text: str) -> bool:
    if len(text) < 11 or text[10] not in "Tt" or not _is_time(text[11:]):
        return False
    day = text[:10]
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", day, re.ASCII) is None:
        return False
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _is_duration(text: str) -> bool:
    return _DURATION.fullmatch(text) is not None and text[-1:] not in "PT"


def _is_hostname(text: str) -> bool:
    return len(text) <= _LONGEST_HOSTNAME and all(_LABEL.fullmatch(label) for label in text.split("."))


def _is_uri_reference(text: str) -> bool:
    return _PLAIN.issuperset(text) and _is_iri_reference(text)


def _is_uri(text: str) -> bool:
    return _PLAIN.issuperset(text) and _is_iri(text)


def _is_iri(text: str) -> bool:
    return _SCHEME.match(text) is not None and _is_iri_reference(text)


def _is_iri_reference(text: str) -> bool:
    if any(sign <= " " or sign in '<>"{}|\\^`\x7f' for sign in text) or _PERCENT.search(text) or text.count("#") > 1:
        return False
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if scheme is None and ":" in re.split("[/?#]", rest, maxsplit=1)[0]:
        return False  # the first part of a path without a scheme holds no colon
    authority = _AUTHORITY.match(rest)
    if authority is None:
        return "[" not in rest and "]" not in rest
    found = _HOST_AND_PORT.fullmatch(authority[1])
    after = rest[authority.end() :]
    return found is not None and _is_literal(found[1]) and "[" not in after and "]" not in after


def _is_literal(host: str | None) -> bool:
    """Whether what stands in brackets is an address of IPv6, or of a later one."""
    if host is None or re.fullmatch(r"[vV][0-9A-Fa-f]+\..+", host):
        return True
    try:
        IPv6Address(host)
    except AddressValueError:
        return False
    return "%" not in host


def _is_pointer(text: str) -> bool:
    return _POINTER.fullmatch(text) is not None


def _is_relative_pointer(text: str) -> bool:
    return _RELATIVE_POINTER.fullmatch(text) is not None


_OURS = {
    "time": _is_time,
    "date-time": _is_date_time,
    "duration": _is_duration,
    "hostname": _is_hostname,
    "uri": _is_uri,
    "uri-reference": _is_uri_reference,
    "iri": _is_iri,
    "iri-reference": _is_iri_reference,
    "json-pointer": _is_pointer,
    "relative-json-pointer": _is_relative_pointer,
}


def _of_text(holds: Callable[[str], bool]) -> Callable[[object], bool]:
    """A format says nothing of what is no text."""
    return lambda value: not isinstance(value, str) or holds(value)


def format_checker(base: Any = Draft202012Validator) -> FormatChecker:
    """The formats that a draft's validator class checks, and these."""
    checker = FormatChecker(())
    checker.checkers = dict(base.FORMAT_CHECKER.checkers)
    for name, holds in _OURS.items():
        checker.checkers.setdefault(name, (_of_text(holds), ()))
    return checker
