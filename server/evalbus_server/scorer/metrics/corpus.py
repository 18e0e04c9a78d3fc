"""BLEU and chrF of all outputs together, as sacreBLEU computes them of a corpus, divided by 100. Made of counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evalbus_server.scorer.builtin.translation import LONGEST, BleuSettings, ChrfSettings, bleu_counts, chrf_counts
from evalbus_server.scorer.metrics.base import Made, Metric, MetricFault, MetricRow, none_had

Counts = tuple[int, ...]


def _texts(row: MetricRow) -> tuple[str, list[str]] | None:
    accepted = row.accepted()
    if not accepted:
        return None
    judged = row.judged()
    if not isinstance(judged.body, str) or not all(isinstance(each.body, str) for each in accepted):
        raise MetricFault(f"item {row.task.item.id!r} has bytes where text is compared")
    texts = [judged.body, *(each.text for each in accepted)]
    longest = max(map(len, texts))
    if longest > LONGEST:
        raise MetricFault(f"item {row.task.item.id!r} has a text of {longest:,} characters, and {LONGEST:,} are taken")
    return texts[0], texts[1:]


def _bleu_of(row: MetricRow, settings: BleuSettings) -> Counts | None:
    found = _texts(row)
    return None if found is None else bleu_counts(*found, settings)


def _bleu(rows: Sequence[Counts], settings: BleuSettings) -> Made:
    if not rows:
        return none_had("an expected text")
    said, wanted, *runs = (sum(column) for column in zip(*rows, strict=True))
    shared, totals = runs[: settings.order], runs[settings.order :]
    told = f"{len(rows)} texts, {said} tokens for {wanted}"
    if not said or not shared[0]:
        return 0.0, f"{told}: no token in common"
    logs, smoothing = 0.0, 1.0
    for found, total in zip(shared, totals, strict=True):
        if not total:
            return 0.0, f"{told}: no text has {settings.order} tokens"
        if not found:
            smoothing *= 2
        logs += math.log((found or 1 / smoothing) / total)
    short = math.exp(1 - wanted / said) if said < wanted else 1.0
    return min(short * math.exp(logs / settings.order), 1.0), told


def _chrf_of(row: MetricRow, settings: ChrfSettings) -> Counts | None:
    found = _texts(row)
    return None if found is None else chrf_counts(*found, settings)


def _chrf(rows: Sequence[Counts], settings: ChrfSettings) -> Made:
    if not rows:
        return none_had("an expected text")
    sums = [sum(column) for column in zip(*rows, strict=True)]
    precision = recall = 0.0
    orders = 0
    for place in range(0, len(sums), 3):
        said, wanted, shared = sums[place : place + 3]
        if said and wanted:
            precision += shared / said
            recall += shared / wanted
            orders += 1
    told = f"{len(rows)} texts"
    if not precision + recall:
        return 0.0, f"{told}: no character in common"
    precision, recall = precision / orders, recall / orders
    factor = settings.beta**2
    return min((1 + factor) * precision * recall / (factor * precision + recall), 1.0), told


CORPUS = (
    Metric(
        "corpus_bleu",
        "BLEU of all texts together: runs of up to four tokens that both have.",
        BleuSettings,
        _bleu_of,
        _bleu,
    ),
    Metric(
        "corpus_chrf",
        "chrF of all texts together: runs of up to six characters that both have.",
        ChrfSettings,
        _chrf_of,
        _chrf,
    ),
)
