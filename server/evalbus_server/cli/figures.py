"""Numbers as people read them. One that has no value is a dash."""

from __future__ import annotations

import unicodedata

NONE = "–"


def number(value: float | None) -> str:
    """A score or a mean, with as many digits as tell something."""
    if value is None:
        return NONE
    if value == int(value) and abs(value) < 1e6:
        return f"{value:.0f}" if abs(value) >= 10 else f"{value:.4g}"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.2f}"


def share(value: float | None) -> str:
    """A share in per cent; 100 % only if it is all, 0 % only if it is none."""
    if value is None:
        return NONE
    text = f"{value:.1%}"
    if text == "100.0%" and value < 1:
        text = "99.9%"
    elif text == "0.0%" and value > 0:
        text = "0.1%"
    return text.replace("%", " %")


def count(value: int) -> str:
    """A count with its thousands apart."""
    return f"{value:,}"


def length_of_time(seconds: float) -> str:
    """A length of time in its two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def plain(text: str) -> str:
    """A text of somebody else on one line, without what could steer a terminal."""
    flat = " ".join(text.split())
    return "".join("�" if unicodedata.category(character) in ("Cc", "Cs") else character for character in flat)
