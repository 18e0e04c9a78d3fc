"""Two ways to find the articles of the knowledge base that fit a message."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from support_desk.text import content_words, stems


@dataclass(frozen=True, slots=True)
class Article:
    """One page of the knowledge base."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """An article that fits, and how well."""

    article: Article
    score: float


class Retriever(Protocol):
    """Ranks the articles by how well they fit a query."""

    def search(self, query: str, limit: int = 3) -> list[Hit]: ...

    def weight(self, term: str) -> float: ...


class Bm25Retriever:
    """Okapi BM25 over stems, with the words of a title counted twice."""

    def __init__(self, articles: Sequence[Article], saturation: float = 1.2, length_share: float = 0.75) -> None:
        self._articles = tuple(articles)
        self._terms = [Counter(stems(f"{article.title} {article.title} {article.text}")) for article in articles]
        self._seen = Counter(term for terms in self._terms for term in terms)
        average = sum(terms.total() for terms in self._terms) / len(self._terms)
        self._norms = [
            saturation * (1 - length_share + length_share * terms.total() / average) for terms in self._terms
        ]
        self._saturation = saturation

    def search(self, query: str, limit: int = 3) -> list[Hit]:
        """The best articles first; those without a single word of the query are left out."""
        asked = set(stems(query))
        scores = [self._score(asked, terms, norm) for terms, norm in zip(self._terms, self._norms, strict=True)]
        return _best(self._articles, scores, limit)

    def weight(self, term: str) -> float:
        """How much a stem tells: the rarer in the knowledge base, the more; nothing if no article has it."""
        seen = self._seen.get(term, 0)
        return math.log(1 + (len(self._articles) - seen + 0.5) / (seen + 0.5)) if seen else 0.0

    def _score(self, asked: set[str], terms: Counter[str], norm: float) -> float:
        return sum(
            self.weight(term) * terms[term] * (self._saturation + 1) / (terms[term] + norm)
            for term in sorted(asked)
            if term in terms
        )


class OverlapRetriever:
    """Counts the different words that a query and an article share, all of them worth the same."""

    def __init__(self, articles: Sequence[Article]) -> None:
        self._articles = tuple(articles)
        self._words = [frozenset(content_words(f"{article.title} {article.text}")) for article in articles]

    def search(self, query: str, limit: int = 3) -> list[Hit]:
        """The best articles first; those without a single word of the query are left out."""
        asked = set(content_words(query))
        return _best(self._articles, [float(len(asked & known)) for known in self._words], limit)

    def weight(self, term: str) -> float:
        """How much a stem tells: here all tell the same."""
        return 1.0


def _best(articles: Sequence[Article], scores: Sequence[float], limit: int) -> list[Hit]:
    hits = [Hit(article, score) for article, score in zip(articles, scores, strict=True) if score > 0]
    return sorted(hits, key=lambda hit: (-hit.score, hit.article.id))[:limit]
