"""Calls of an endpoint: one question, one reply, and what it consumed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evalbus import FailureCategory, TrialFailed, Usage
from evalbus import _json as json
from evalbus_server.scorer.endpoint import faults
from evalbus_server.scorer.endpoint.reach import Prices, Reach

if TYPE_CHECKING:
    import openai

Form: TypeAlias = Literal["json_schema", "json_object", "text"]
"""How a structured reply is asked for: by a schema that the endpoint holds the model to, as any JSON, or by words."""
FORMS: tuple[Form, ...] = ("json_schema", "json_object", "text")

_FOREVER = 3600.0
"""Seconds for a call that nobody bounds."""
_NAMED = "verdict"
_LARGEST = 1e100
"""No number of an embedding is as large; squares of larger ones may be infinite."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked."""

    model: str
    messages: Sequence[Mapping[str, str]]
    """Objects with `role` and `content`."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the reply; None: any text."""
    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the request's body; they come before those above."""
    form: Form | None = None
    """None: the strictest form that the endpoint offers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model replied."""

    text: str
    model: str
    """As the endpoint names it."""
    fingerprint: str
    """The endpoint's name for the state of its system; "" if it has none."""
    form: Form
    """The form in which the reply was asked for."""


class Meter:
    """What calls for one task have consumed so far; *tell* hears of every change."""

    def __init__(self, prices: Prices, tell: Callable[[Usage], None] | None = None) -> None:
        """Nothing yet."""
        self.usage = Usage()
        self._prices = prices
        self._tell = tell
        self._priced = True

    def add(self, used: object) -> None:
        """Count one call, from the `usage` of its reply. Without one, what it cost is not known."""
        counted = used if isinstance(used, Mapping) else {}
        read = _count(counted, "prompt_tokens")
        details = counted.get("prompt_tokens_details")
        cached = min(_count(details, "cached_tokens"), read) if isinstance(details, Mapping) else 0
        one = Usage(read, _count(counted, "completion_tokens"), cached, 1)
        self._priced = self._priced and isinstance(used, Mapping)
        total = self.usage + one
        cost = self._prices.of(total) if self._priced else None
        self.usage = Usage(total.input_tokens, total.output_tokens, total.cached_tokens, total.calls, cost)
        if self._tell is not None:
            self._tell(self.usage)


def _count(counted: Mapping[str, Any], name: str) -> int:
    number = counted.get(name)
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**53 else 0


class Endpoint:
    """An endpoint. Calls may run at the same time, within `lease`; they end with the coroutine that waits for them."""

    def __init__(self, reach: Reach, trust: ssl.SSLContext | bool) -> None:
        """Use `connect`: *trust* takes a while to make."""
        self.reach = reach
        self._trust = trust
        self._client: openai.AsyncOpenAI | None = None
        self._leases = 0
        self._offered: dict[str, Form] = {}
        """By model, the strictest form that is known to be offered."""

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[None]:
        """Keep connections open as long as anybody is inside; nothing is left open after the last one."""
        self._leases += 1
        try:
            yield
        finally:
            self._leases -= 1
            if not self._leases and self._client is not None:
                client, self._client = self._client, None
                await asyncio.shield(client.close())

    async def ask(self, question: Question, meter: Meter, *, within: float | None = None) -> Reply:
        """A model's reply to a question, within so many seconds.

        Where the endpoint refuses the form in which the reply is wanted, a plainer one is tried, and remembered.

        Raises:
            TrialFailed: there is none; the failure says whether to ask again.
        """
        import openai

        async with self.lease():
            form = question.form or self._offered.get(question.model, FORMS[0])
            if question.schema is None:
                form = "text"
            first: openai.APIStatusError | None = None
            while True:
                try:
                    document = await self._post(_body(question, form), within)
                except openai.APIStatusError as error:
                    plainer = _plainer(form)
                    if question.form is not None or plainer is None or not faults.is_about_the_form(error):
                        raise faults.failed(first or error, self.reach.base_url, self.reach.no_key) from error
                    first = first or error
                    form = plainer
                    continue
                except openai.OpenAIError as error:
                    raise faults.failed(error, self.reach.base_url, self.reach.no_key) from error
                meter.add(document.get("usage"))
                if question.schema is not None and question.form is None:
                    self._offered[question.model] = form
                return self._reply(document, form)

    async def embed(
        self, model: str, texts: Sequence[str], meter: Meter, *, within: float | None = None
    ) -> list[list[float]]:
        """The embeddings of texts, in their order, within so many seconds.

        Raises:
            TrialFailed: there are none; the failure says whether to ask again.
        """
        import openai

        async with self.lease():
            body = {"model": model, "input": list(texts), "encoding_format": "float"}
            try:
                document = await self._send("/embeddings", body, within)
            except openai.OpenAIError as error:
                raise faults.failed(error, self.reach.base_url, self.reach.no_key) from error
            meter.add(document.get("usage"))
            rows = document.get("data")
            found: dict[int, list[float]] = {}
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, Mapping) and _is_vector(row.get("embedding")):
                    place = row.get("index", len(found))
                    if isinstance(place, int):
                        found[place] = [float(number) for number in row["embedding"]]
            vectors = [found[place] for place in range(len(texts)) if place in found]
            if len(vectors) != len(texts) or len({len(vector) for vector in vectors}) > 1:
                raise faults.broken("the reply does not hold one embedding for each text", self.reach.base_url)
            return vectors

    def _open(self) -> openai.AsyncOpenAI:
        if self._client is None:
            import openai

            reach = self.reach
            self._client = openai.AsyncOpenAI(
                api_key=reach.api_key or "none",  # an endpoint that wants no key ignores it
                base_url=reach.base_url,
                max_retries=0,  # the server's rules retry
                http_client=openai.DefaultAsyncHttpxClient(verify=self._trust),
            )
            if not reach.ambient:  # what the environment holds for its own endpoint is not for others
                self._client.organization = self._client.project = None
                self._client._custom_headers = {}
        return self._client

    async def _post(self, body: Mapping[str, Any], within: float | None) -> Mapping[str, Any]:
        return await self._send("/chat/completions", body, within)

    async def _send(self, path: str, body: Mapping[str, Any], within: float | None) -> Mapping[str, Any]:
        """The reply's document. Read by ourselves: the package takes anything for a reply."""
        if within is not None and within <= 0:
            raise TrialFailed("no time is left to ask", FailureCategory.TIMEOUT, reason="ENDPOINT_TIMEOUT")
        import httpx2

        client = self._open()
        post: Callable[..., Awaitable[httpx2.Response]] = client.post
        try:
            # The package's timeout is one for each read, and a slow trickle would never meet it.
            async with asyncio.timeout(within):
                response = await post(path, cast_to=httpx2.Response, body=body, options={"timeout": within or _FOREVER})
        except TimeoutError:
            raise TrialFailed(
                f"{self.reach.base_url}: no reply in time", FailureCategory.TIMEOUT, reason="ENDPOINT_TIMEOUT"
            ) from None
        try:
            document = json.loads(response.text)
        except ValueError as error:
            raise faults.broken(f"the reply is no JSON: {error}", self.reach.base_url) from None
        if not isinstance(document, dict):
            raise faults.broken("the reply is no JSON object", self.reach.base_url)
        return document

    def _reply(self, document: Mapping[str, Any], form: Form) -> Reply:
        where = self.reach.base_url
        choices = document.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
            raise faults.broken("the reply holds no message", where)
        refusal, reason = message.get("refusal"), choice.get("finish_reason")
        if isinstance(refusal, str) and refusal:
            raise TrialFailed(
                f"the model would not judge: {faults.shortened(refusal)}",
                FailureCategory.REFUSED,
                reason="MODEL_REFUSED",
            )
        if reason == "content_filter":
            raise TrialFailed(
                f"{where}: the reply was held back by a content filter",
                FailureCategory.REFUSED,
                reason="ENDPOINT_CONTENT_FILTERED",
            )
        if reason == "length":
            raise TrialFailed(
                "the model's reply was cut off: raise settings.max_tokens, or take a model with a longer context",
                FailureCategory.INVALID,
                reason="REPLY_CUT_OFF",
            )
        text = message.get("content")
        if not isinstance(text, str) or not text.strip():
            raise TrialFailed("the model replied nothing", FailureCategory.INVALID, reason="REPLY_INVALID")
        model, fingerprint = document.get("model"), document.get("system_fingerprint")
        return Reply(
            text,
            model if isinstance(model, str) else "",
            fingerprint if isinstance(fingerprint, str) else "",
            form,
        )


def connect(base_url: str = "", api_key: str = "") -> Endpoint:
    """An endpoint; see `Reach.find`. Takes a moment, and no connection is made: call it in a thread.

    Raises:
        SettingsInvalid: there is no such endpoint, or no key to it.
    """
    reach = Reach.find(base_url, api_key)
    import httpx2
    import openai  # noqa: F401  # here, and not while the loop waits

    return Endpoint(reach, httpx2.create_ssl_context() if reach.base_url.startswith("https:") else False)


def _body(question: Question, form: Form) -> dict[str, Any]:
    body: dict[str, Any] = {**question.extra, "model": question.model, "messages": list(question.messages)}
    for name in ("temperature", "seed", "max_tokens"):
        value = getattr(question, name)
        if value is not None:
            body[name] = value
    if form == "json_schema":
        described = {"name": _NAMED, "schema": question.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": described}
    elif form == "json_object":
        body["response_format"] = {"type": "json_object"}
    return body


def _plainer(form: Form) -> Form | None:
    place = FORMS.index(form) + 1
    return FORMS[place] if place < len(FORMS) else None


def _is_vector(found: object) -> bool:
    """Whether it is a list of numbers that can be multiplied: no model gives others, and infinity is like nothing."""
    return (
        isinstance(found, list)
        and bool(found)
        and all(
            isinstance(number, int | float) and not isinstance(number, bool) and -_LARGEST < number < _LARGEST
            for number in found
        )
    )
