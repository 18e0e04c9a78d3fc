"""What all judges are told: which models judge, how often, and how they are reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from evalbus_server.scorer.endpoint import Prices

T = TypeVar("T")

MOST_VOTES = 25
RESERVED = frozenset({"model", "messages", "temperature", "seed", "response_format", "stream", "stream_options", "n"})
"""Members of a call that settings of their own are for, or that would break the reply."""


def said(description: str, default: Any = "") -> Any:
    """A field of settings with its sentence; a list, dict or class as default is made anew each time."""
    metadata = {"description": description}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Juror:
    """One model of a jury."""

    model: str = said("The model, as its endpoint names it.")
    base_url: str = said("Its endpoint, if it is not the one of the scorer.")
    api_key: str = said('The key to it, as "${env:NAME}".')
    prices: Prices | None = said("What its tokens cost, if not what the scorer says.", None)

    def __post_init__(self) -> None:
        """Refuse a juror that is nobody."""
        if not self.model:
            raise ValueError("each of the jury has a model")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """Which models judge, and how."""

    model: str = said("The model that judges, as its endpoint names it.")
    jury: list[Juror] = said("Several models, each with `model` and maybe `base_url`, `api_key`, `prices`.", list)
    votes: int = said("How often each model is asked.", 1)
    base_url: str = said("The endpoint; without it $OPENAI_BASE_URL, else OpenAI's own.")
    api_key: str = said('The key, as "${env:NAME}"; without it, and without a base_url, $OPENAI_API_KEY.')
    temperature: float | None = said("0 to 2; null sends none, for models that take none.", 0.0)
    seed: int | None = said("Sent to the model; each further vote gets the next number.", None)
    max_tokens: int | None = said("The longest reply, in tokens.", None)
    reply_format: Literal["auto", "json_schema", "json_object", "text"] = said(
        "How JSON is asked for: auto takes the strictest way that the endpoint offers.", "auto"
    )
    prices: Prices = said("What a million tokens cost: input, output, cached, currency.", Prices)
    extra: dict[str, Any] = said("Further members of each call, such as {reasoning_effort: low}.", dict)
    instructions: str = said("What else the judge should know or heed; it stands in every prompt.")
    explain: bool = said("Whether one more call words the explanation.", False)

    def __post_init__(self) -> None:
        """Refuse what makes no jury."""
        if bool(self.model) == bool(self.jury):
            raise ValueError("say model, or jury for several: who judges?" if not self.model else "say model or jury")
        if not 1 <= self.votes <= MOST_VOTES or len(self.jury) * self.votes > MOST_VOTES:
            raise ValueError(f"1 to {MOST_VOTES} votes, of all models together")
        if self.votes > 1 and self.temperature == 0 and self.seed is None:
            raise ValueError("several votes of a model at temperature 0 are one vote: set a temperature, or a seed")
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise ValueError(f"temperature is from 0 to 2, not {self.temperature:g}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError("max_tokens is at least 1")
        for name in self.extra.keys() & RESERVED:
            raise ValueError(f"extra holds {name!r}, which it cannot change")

    @property
    def jurors(self) -> list[Juror]:
        """The models that judge, with everything that the scorer says for them."""
        if not self.jury:
            return [Juror(model=self.model, base_url=self.base_url, api_key=self.api_key, prices=self.prices)]
        return [
            Juror(
                model=each.model,
                base_url=each.base_url or self.base_url,
                # A key belongs to its endpoint: the scorer's does not go to another one.
                api_key=each.api_key or ("" if each.base_url and each.base_url != self.base_url else self.api_key),
                prices=self.prices if each.prices is None else each.prices,
            )
            for each in self.jury
        ]
