"""`embedding_similarity`: how near two texts are in meaning, as the embeddings of a model have it."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from operator import mul
from typing import Any

from evalbus import Context, Score, ScoreTask, scorer
from evalbus_server.scorer.builtin._compared import INPUTS, NO_EXPECTED, accepted_of, actual_of, not_text, setting
from evalbus_server.scorer.endpoint import Embedder, Prices, connect


def _required(description: str) -> Any:
    return field(metadata={"description": description})


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Whose embeddings, and what they are compared as."""

    model: str = _required("The model that embeds, as its endpoint names it.")
    base_url: str = setting("", "The endpoint; without it $OPENAI_BASE_URL, else OpenAI's own.")
    api_key: str = setting("", 'The key, as "${env:NAME}"; without it, and without a base_url, $OPENAI_API_KEY.')
    floor: float = setting(0.0, "The cosine that scores 0, from -1 to below 1; 1 scores 1, and what is below it 0.")
    prefix: str = setting("", "Put before both texts, for models that want to be told what they embed.")
    prices: Prices = field(
        default_factory=Prices, metadata={"description": "What a million tokens cost: input, output, cached, currency."}
    )

    def __post_init__(self) -> None:
        """Refuse what no cosine can be compared with."""
        if not self.model:
            raise ValueError("say model: whose embeddings?")
        if not -1 <= self.floor < 1:
            raise ValueError(f"floor is from -1 to below 1, not {self.floor:g}")


def _set_up(settings: EmbeddingSettings) -> Embedder:
    return Embedder(connect(settings.base_url, settings.api_key), settings.model, settings.prices)


@scorer("embedding_similarity", version="1.0.0", inputs=INPUTS, setup=_set_up)
async def embedding_similarity(task: ScoreTask, settings: EmbeddingSettings, state: Embedder, ctx: Context) -> Score:
    """The cosine of the embeddings of both texts, from `floor`, which scores 0, to 1.

    A model behind an OpenAI-compatible endpoint makes the embeddings; see [judges](scorers/judges.md#the-endpoint) for
    how it is reached. Texts of several trials share a call, and texts that came before are not sent again. Without a
    `floor`, opposite and unrelated texts both score 0. Most models give unrelated texts a cosine far above 0: look at a
    few, and set `floor` there. Of several expected texts the nearest counts. JSON is compared as it is written. An
    empty text is like no other. A model that embeds is mostly blind to negation: "yes" and "no" are near each other.
    """
    accepted = accepted_of(task)
    if not accepted:
        return NO_EXPECTED
    values = [actual_of(task), *accepted]
    texts = []
    for place, value in enumerate(values):
        if not isinstance(value.body, str):
            return not_text(value, "expected answer" if place else "output")
        texts.append(value.body)
    compared = {text: settings.prefix + text for text in texts if text.strip()}
    vectors, usage = await state.embed(list(compared.values()), ctx.time_remaining())
    found = dict(zip(compared, vectors, strict=True))
    said, wanted = texts[0], texts[1:]
    cosines = [1.0 if said == each else _cosine(found.get(said), found.get(each), settings.floor) for each in wanted]
    best = max(cosines)
    score = min(max((best - settings.floor) / (1 - settings.floor), 0.0), 1.0)
    which = f", to expected answer {cosines.index(best) + 1} of {len(cosines)}" if len(cosines) > 1 else ""
    return Score.scored(score, f"cosine {best:.4f}{which}", metadata={"cosine": best}, usage=usage)


def _cosine(left: array[float] | None, right: array[float] | None, floor: float) -> float:
    """The cosine of two vectors. An empty text has none, and is as far from any other as counts."""
    if left is None or right is None:
        return floor
    length = math.sqrt(sum(map(mul, left, left))) * math.sqrt(sum(map(mul, right, right)))
    if not length or not math.isfinite(length):
        return floor
    cosine: float = sum(map(mul, left, right)) / length
    return min(max(cosine, -1.0), 1.0)
