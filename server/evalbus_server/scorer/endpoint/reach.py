"""Where an endpoint is, how it lets us in, and what it costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from evalbus import Money, SettingsInvalid, Usage

BASE_URL_VARIABLE = "OPENAI_BASE_URL"
KEY_VARIABLE = "OPENAI_API_KEY"
PUBLIC = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Reach:
    """An endpoint, and the key to it. Never stored or shown: a key may be in it."""

    base_url: str
    api_key: str = field(repr=False)
    ambient: bool
    """Whether it is the endpoint of the environment, to which other OPENAI_… variables belong too."""

    @classmethod
    def find(cls, base_url: str, api_key: str, environ: Mapping[str, str] | None = None) -> Reach:
        """The endpoint of the settings, else that of the environment, else OpenAI's own.

        The environment's key goes to the environment's endpoint alone: settings that name another one could have it
        sent anywhere.

        Raises:
            SettingsInvalid: the URL is none, or OpenAI's own endpoint is asked without a key.
        """
        environ = os.environ if environ is None else environ
        usual = (environ.get(BASE_URL_VARIABLE) or PUBLIC).rstrip("/")
        url = base_url.strip().rstrip("/") or usual
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            where = f"${BASE_URL_VARIABLE}" if not base_url else "settings.base_url"
            raise SettingsInvalid(
                f"{where}: not the URL of an endpoint, such as {PUBLIC}: {url!r}", "settings.base_url"
            )
        ambient = url == usual
        key = api_key or (environ.get(KEY_VARIABLE, "") if ambient else "")
        if not key and url == PUBLIC:
            raise SettingsInvalid(
                f'settings.api_key: {PUBLIC} needs a key: set ${KEY_VARIABLE}, or say api_key: "${{env:NAME}}"; '
                f"for another endpoint set ${BASE_URL_VARIABLE}, or say base_url",
                "settings.api_key",
            )
        if not key.isascii() or not key.isprintable():
            raise SettingsInvalid("settings.api_key: holds what no key can hold", "settings.api_key")
        return cls(url, key, ambient)

    @property
    def no_key(self) -> str:
        """What to do if the endpoint wants a key and none is there; "" if one is."""
        if self.api_key:
            return ""
        setting = 'settings.api_key as "${env:NAME}"'
        return f"set ${KEY_VARIABLE}, or {setting}" if self.ambient else f"say {setting}"


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in units of a currency. None where nobody knows, which is not zero."""

    input: float | None = field(default=None, metadata={"description": "A million tokens read."})
    output: float | None = field(default=None, metadata={"description": "A million tokens written."})
    cached: float | None = field(
        default=None,
        metadata={"description": "A million tokens read from the endpoint's cache; as `input` if not said."},
    )
    currency: str = field(default="USD", metadata={"description": "Three letters, such as USD or EUR."})

    def __post_init__(self) -> None:
        """Refuse prices that are none, and half of them."""
        for name in ("input", "output", "cached"):
            price = getattr(self, name)
            if price is not None and not 0 <= price < 1e9:
                raise ValueError(f"{name} is at least 0 and finite, not {price}")
        if (self.input is None) != (self.output is None) or (self.cached is not None and self.input is None):
            raise ValueError("say input and output, or neither: half a price is no price")
        if len(self.currency) != 3 or not self.currency.isascii() or not self.currency.isupper():
            raise ValueError(f"currency is three capital letters, such as USD, not {self.currency!r}")

    def of(self, usage: Usage) -> Money | None:
        """What tokens cost; None without prices."""
        if self.input is None or self.output is None:
            return None
        cached = self.input if self.cached is None else self.cached
        read = max(usage.input_tokens - usage.cached_tokens, 0)
        # A price for a million tokens, in units, is a price for one token, in millionths.
        return Money(
            round(read * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output), self.currency
        )
