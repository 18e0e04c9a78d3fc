"""Numbers inside texts: found whole, with their sign, and compared with all their digits."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cache
from typing import Literal, NamedTuple

from evalbus_server.scorer.builtin._compared import setting

LONGEST = 10_000
"""More characters than this are no number that anybody means."""

Percent = Literal["keep", "ignore", "divide"]

_EXACT = Context(prec=2 * LONGEST, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_LETTER = r"[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""A letter, digit or underscore of a script that parts words by space: in the others a number touches its neighbours."""
_CURRENCY = "[$€£¥₹]"
_SIGN = "[-+\N{MINUS SIGN}]"
_OTHER_DIGIT = re.compile(r"[^\D0-9]")


_ARABIC_DECIMAL, _ARABIC_THOUSANDS = 0x66B, 0x66C


def with_plain_digits(text: str, decimal: Literal["point", "comma"] = "point") -> str:
    """The text with the digits 0 to 9 where it has those of other scripts, and the separators that *decimal* takes where
    it has the Arabic ones.
    """
    if text.isascii() or not _OTHER_DIGIT.search(text):
        return text
    return text.translate(_plain_digits(decimal))


@cache
def _plain_digits(decimal: Literal["point", "comma"]) -> dict[int, str]:
    """Digits of other scripts, and what is written around them in Arabic and in full width."""
    digits = {code: str(unicodedata.decimal(chr(code))) for code in range(0x80, 0x20000) if chr(code).isdecimal()}
    around = zip("\u066a\uff0e\uff0c\uff05\uff0b\uff0d", "%.,%+-", strict=True)
    point, part = (".", ",") if decimal == "point" else (",", ".")
    separators = {_ARABIC_DECIMAL: point, _ARABIC_THOUSANDS: part}  # these say themselves which of both they are
    return digits | separators | {ord(other): plain for other, plain in around}


class Found(NamedTuple):
    """A number, and whether it is one of hundred: 60 and 60% are not the same."""

    value: Decimal
    percent: bool = False

    def __str__(self) -> str:
        """Without currency and thousands separators."""
        return f"{self.value}{'%' if self.percent else ''}"


@dataclass(frozen=True, slots=True)
class NumberSettings:
    """What may stand on a number."""

    currency: bool = setting(True, "Whether $5 and 5 € are the number 5; else they are no numbers.")
    thousands: bool = setting(True, "Whether a comma parts thousands: 1,234 is 1234, not 1 and 234.")
    decimal: Literal["point", "comma"] = setting(
        "point", "comma: 1.234,5 is 1234.5; then a point, an apostrophe or a no-break space parts thousands."
    )
    percent: Percent = setting("keep", "keep: 60% is equal to 60% alone; ignore: it is 60; divide: it is 0.6.")


_COMMA_TO_POINT = str.maketrans(",", ".", ".'’\u00a0\u202f")


class NumberReader:
    """Finds numbers. Digits that touch a letter are none, and neither are those with a second decimal point."""

    def __init__(self, settings: NumberSettings) -> None:
        """Make the patterns. Nothing in them can be tried in two ways, so that long texts are harmless."""
        point, part = (r"\.", ",") if settings.decimal == "point" else (",", "[.'’\u00a0\u202f]")
        whole = rf"[0-9]{{1,3}}(?:{part}[0-9]{{3}})++(?!{part}?[0-9])|[0-9]++" if settings.thousands else "[0-9]++"
        number = (
            rf"(?P<number>(?:{whole})(?:{point}[0-9]++)?+|(?<!{point}){point}[0-9]++)"
            r"(?P<exponent>[eE][-+]?[0-9]{1,9})?+"
        )
        percent = r"(?P<percent>\s?%)?+"
        if settings.currency:
            before = rf"(?:(?P<sign>{_SIGN})?(?:{_CURRENCY}\s?)?|{_CURRENCY}\s?(?P<inner>{_SIGN}))"
            apart, after = "", rf"(?:\s*{_CURRENCY})?"
        else:
            before = rf"(?P<sign>{_SIGN})?(?P<inner>(?!))?"
            apart, after = rf"(?<!{_CURRENCY})(?<!{_CURRENCY}\s)", ""
        refused = rf"(?!{_LETTER}|{point}[0-9])" + ("" if settings.currency else rf"(?!\s?{_CURRENCY})")
        self._anywhere = re.compile(rf"(?<!{_LETTER})(?<![0-9]{point}){apart}{before}{number}{percent}{refused}")
        self._whole = re.compile(rf"\s*{before}{number}{percent}{after}\s*")
        self._percent = settings.percent
        self._decimal = settings.decimal
        self._drop = str.maketrans("", "", ",") if settings.decimal == "point" else _COMMA_TO_POINT

    def all(self, text: str) -> Iterator[Found]:
        """The numbers of a text, from first to last."""
        for match in self._anywhere.finditer(with_plain_digits(text, self._decimal)):
            if match.end() - match.start() <= LONGEST:
                yield self._made(match)

    def whole(self, text: str) -> Found | None:
        """The number that a text is as a whole; None if it is none."""
        match = self._whole.fullmatch(with_plain_digits(text, self._decimal)) if len(text) <= LONGEST else None
        return None if match is None else self._made(match)

    def _made(self, match: re.Match[str]) -> Found:
        sign, inner, number, exponent, percent = match.group("sign", "inner", "number", "exponent", "percent")
        value = Decimal(number.translate(self._drop) + (exponent or ""))
        if (sign or inner or "+") != "+":
            value = value.copy_negate()
        if percent and self._percent == "divide":
            return Found(value.scaleb(-2, _EXACT))
        return Found(value, bool(percent) and self._percent == "keep")
