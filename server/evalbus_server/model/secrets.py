"""Secrets in texts of others: what a plugin or an endpoint says of a failure is stored and shown, but no key in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, urlsplit

from evalbus_server.model.environment import references
from evalbus_server.model.plugin_use import PluginUse

HIDDEN = "(hidden)"
"""What stands in the place of a secret."""
SHORTEST = 6
"""Characters. What is shorter stands in too many words by chance."""
SHORTEST_PART = 4
"""Characters of a secret that was cut, as far as they are next to the mark of the cut."""

_CUT = "…"
_NAMED_SO = re.compile(r"(^|_)((api_?)?key|token|secret|password|passwd|passphrase|credentials?)$", re.IGNORECASE)


class Secrets:
    """Texts that nobody is to see. Never stored or shown itself."""

    def __init__(self, values: Iterable[str]) -> None:
        """*values* are hidden from `SHORTEST` characters on, in each form in which a program may write them."""
        forms = {form for value in values for form in _forms(value) if len(form) >= SHORTEST}
        self._forms = sorted(forms, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, self._forms)))

    def __bool__(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._forms)

    def hide(self, text: str) -> str:
        """The text without secrets, also where an ellipsis says that only a part of one is left."""
        if not self._forms:
            return text
        text = self._any.sub(HIDDEN, text)
        if _CUT not in text:
            return text
        parts = text.split(_CUT)
        return _CUT.join(
            self._without_rests(part, begins=place < len(parts) - 1, ends=place > 0) for place, part in enumerate(parts)
        )

    def _without_rests(self, part: str, *, begins: bool, ends: bool) -> str:
        """Text between two cuts: a secret may have begun before the one behind it, and may end after the one before."""
        for form in self._forms:
            if begins and (length := _overlap(part, form)):
                part = part[:-length] + HIDDEN
            if ends and (length := _overlap(part[::-1], form[::-1])):
                part = HIDDEN + part[length:]
        return part


def _overlap(text: str, form: str) -> int:
    """With how many characters, all but the last at most, a secret begins at the end of a text; 0 if it does not."""
    start = max(len(text) - len(form) + 1, 0)
    while (start := text.find(form[:SHORTEST_PART], start)) >= 0:
        if form.startswith(text[start:]):
            return len(text) - start
        start += 1
    return 0


def named_so(environ: Mapping[str, str]) -> Iterator[str]:
    """The values of variables whose names say that they are secrets, such as OPENAI_API_KEY and DB_PASSWORD."""
    return (value for name, value in environ.items() if _NAMED_SO.search(name))


def secrets_of(uses: Iterable[PluginUse], environ: Mapping[str, str]) -> Secrets:
    """What plugins are handed that nobody else is to see: tokens, what `${env:NAME}` stands for, and what the
    environment, which a launched process gets whole, calls a secret.
    """
    values = list(named_so(environ))
    for use in uses:
        values.append(use.token)
        values.extend(environ.get(name, "") for name in references([use.token, use.settings, use.env]))
    return Secrets(values)


def _forms(value: str) -> Iterator[str]:
    """A secret as programs write it, by itself or in a text that stands in JSON, as the details of a failure do."""
    for text in (value, *_parts(value)):
        for form in _written(text.strip()):
            yield from (form, json.dumps(form)[1:-1], json.dumps(form, ensure_ascii=False)[1:-1])


def _written(text: str) -> Iterator[str]:
    """As it is, on one line, as JSON, as Python, in a URL."""
    yield text
    yield " ".join(text.split())
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield quote(text, safe="")
    yield quote_plus(text)


def _parts(value: str) -> Iterator[str]:
    """What gives a secret away by itself: the token of "Bearer TOKEN", the lines of a key, the password of a URL."""
    words = value.split()
    if len(words) == 2:
        yield words[1]
    if "\n" in value.strip():
        yield from value.splitlines()
    if "://" in value:
        try:
            yield urlsplit(value).password or ""
        except ValueError:
            return
