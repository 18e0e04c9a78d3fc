"""The support desk itself: classify, retrieve, call a tool, compose a reply, and note how long each step took."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from support_desk.classify import Classifier, KeywordClassifier, NgramClassifier
from support_desk.compose import Finding, compose
from support_desk.extract import ProductFinder
from support_desk.plan import plan
from support_desk.retrieve import Bm25Retriever, Hit, OverlapRetriever, Retriever
from support_desk.shop import Shop
from support_desk.tools import ToolCall, ToolRefused, Tools

Model = Literal["small", "large"]


@dataclass(frozen=True, slots=True)
class Step:
    """One stretch of the work; *start* is counted from the beginning of the message, both in seconds."""

    name: str
    start: float
    duration: float
    attributes: Mapping[str, str | float]


@dataclass(frozen=True, slots=True)
class Answer:
    """All that the desk has to say about one message."""

    intent: str
    confidence: float
    reply: str
    finding: Finding
    hits: tuple[Hit, ...]
    steps: tuple[Step, ...]


class SupportDesk:
    """Answers messages, one at a time or from several threads; it keeps nothing between them.

    The small model knows a few keywords for each intent and counts shared words to find an article; the large one has
    a fitted classifier and BM25.
    """

    def __init__(self, shop: Shop, model: Model = "large") -> None:
        articles = tuple(shop.articles.values())
        self._classifier: Classifier
        self._retriever: Retriever
        if model == "large":
            self._classifier, self._retriever = NgramClassifier(shop.examples), Bm25Retriever(articles)
        else:
            self._classifier, self._retriever = KeywordClassifier(shop.examples), OverlapRetriever(articles)
        self._products = ProductFinder(shop.products.values())
        self._tools = Tools(shop)

    def answer(self, text: str) -> Answer:
        """Work on one message from beginning to end."""
        watch = _Stopwatch()
        with watch.step("classify") as noted:
            guess = self._classifier.classify(text)
            noted |= {"intent": guess.intent, "confidence": round(guess.confidence, 4)}
        with watch.step("retrieve") as noted:
            hits = self._retriever.search(text)
            noted |= {hit.article.id: round(hit.score, 4) for hit in hits}
        with watch.step("tool") as noted:
            finding = self._run(plan(guess.intent, text, hits, self._products))
            noted["tool"] = finding.call.name
        with watch.step("compose") as noted:
            reply = compose(text, guess.intent, finding, hits, self._retriever)
            noted["characters"] = len(reply)
        return Answer(guess.intent, guess.confidence, reply, finding, tuple(hits), tuple(watch.steps))

    def _run(self, call: ToolCall) -> Finding:
        try:
            return Finding(call, self._tools.run(call))
        except ToolRefused as refusal:
            return Finding(call, {}, str(refusal))


class _Stopwatch:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._begin = perf_counter()

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, str | float]]:
        start = perf_counter()
        attributes: dict[str, str | float] = {}
        yield attributes
        self.steps.append(Step(name, start - self._begin, perf_counter() - start, attributes))
