"""A client of an OpenAI-compatible endpoint for the libraries that take one: no retries of its own, and its use counted."""

from __future__ import annotations

import os
from typing import Any

from evalbus._output import Usage
from evalbus.adapters._adapter import spend
from evalbus.adapters._find import library
from evalbus.adapters._parameters import Parameter

BASE_URL = Parameter("base_url", str, None, "The endpoint, as in http://localhost:8080/v1; else $OPENAI_BASE_URL.")
API_KEY = Parameter("api_key", str, None, "Its key, as ${env:NAME}; else $OPENAI_API_KEY, unless base_url is set.")
MODEL = Parameter("model", str, None, "The model that judges.")
EMBEDDING_MODEL = Parameter("embedding_model", str, None, "The model that makes embeddings.")

_NO_KEY = "none"
"""Sent where an endpoint is named and no key: the environment's own key is only for the environment's own endpoint."""


def key_for(base_url: str | None, api_key: str | None) -> str | None:
    """The key to send to an endpoint; None leaves it to the environment."""
    if api_key is not None:
        return api_key
    return _NO_KEY if base_url is not None or not os.environ.get("OPENAI_API_KEY") else None


def client(base_url: str | None, api_key: str | None, *, plain: bool = False) -> Any:
    """A client of the openai package, async unless *plain*, that never tries again by itself: the server does."""
    openai = library("openai")

    class Client(openai.AsyncOpenAI):  # type: ignore[misc, name-defined]  # known at run time only
        async def request(self, *arguments: Any, **options: Any) -> Any:
            answer = await super().request(*arguments, **options)
            spend(usage_of(answer))
            return answer

    class PlainClient(openai.OpenAI):  # type: ignore[misc, name-defined]
        def request(self, *arguments: Any, **options: Any) -> Any:
            answer = super().request(*arguments, **options)
            spend(usage_of(answer))
            return answer

    kind = PlainClient if plain else Client
    return kind(base_url=base_url, api_key=key_for(base_url, api_key), max_retries=0)


def usage_of(answer: Any) -> Usage:
    """What one call used up, as far as its answer says so."""
    usage = getattr(answer, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    return Usage(
        input_tokens=_count(usage, "prompt_tokens", "input_tokens"),
        output_tokens=_count(usage, "completion_tokens", "output_tokens"),
        cached_tokens=_count(details, "cached_tokens"),
        calls=1,
    )


def _count(usage: Any, *names: str) -> int:
    for name in names:
        count = getattr(usage, name, None)
        if isinstance(count, int) and count >= 0:
            return count
    return 0
