"""What a run is not to keep, taken out of the database: the words of its trials, or its single scores, once the trials
are judged.

Words are contents, explanations and the messages of failures. What stays are ids, outcomes, and numbers. On disk, freed
bytes are overwritten (`secure_delete`), and the caller cuts the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from evalbus import Failure, FailureCategory, FailureOrigin
from evalbus_server.model.bounds import Keep
from evalbus_server.model.trial import EPOCH_BITS, trial_id_of
from evalbus_server.store import purge, rows
from evalbus_server.store.connection import Row
from evalbus_server.store.documents import dumps
from evalbus_server.store.retry import take_back
from evalbus_server.store.runs import OfRun

GONE = "[not kept]"
"""Stands where words were."""

_AT_ONCE = 256
_LAST_N = (1 << rows.RUN_BITS) - 1

_MARKED = "EXISTS (SELECT 1 FROM retry m WHERE m.run = :run AND m.trial = {} AND m.key = -1)"
PAGE_OF_JUDGED = f"""
    SELECT position, epoch, failure, {_MARKED.format(f"((r.epoch - 1) << {EPOCH_BITS}) + r.position")} FROM result r
    WHERE run = :run AND (position, epoch) > (:position, :epoch) ORDER BY position, epoch LIMIT {_AT_ONCE}
"""
PAGE_OF_ATTEMPTS = f"""
    SELECT trial, role, attempt, failure FROM attempt
    WHERE run = :run AND (trial, role, attempt) > (:trial, :role, :attempt)
    ORDER BY trial, role, attempt LIMIT {_AT_ONCE}
"""
PAGE_OF_UNJUDGED = f"""
    SELECT o.id, o.trial, {_MARKED.format("o.trial")} OR NOT EXISTS (
        SELECT 1 FROM result r WHERE r.run = :run AND r.position = o.trial & 4294967295 AND r.epoch = (o.trial >> 32) + 1
    ) FROM output o WHERE o.id > :after AND o.id < :end ORDER BY o.id LIMIT {_AT_ONCE}
"""
_EMPTY_OUTPUTS = f"""
    UPDATE output SET content = iif(content IS NULL, NULL, :gone), content_type = NULL, answer = NULL, answer_type = NULL,
        metadata = NULL, detail = NULL
    WHERE {rows.OF_TRIALS} AND (content IS NOT :gone OR answer IS NOT NULL OR metadata IS NOT NULL OR detail IS NOT NULL)
"""
_EMPTY_PLAIN_SCORES = f"""
    UPDATE score SET label = '', explanation = iif(explanation = '', '', :gone)
    WHERE {rows.OF_TRIALS} AND detail IS NULL AND (label <> '' OR explanation NOT IN ('', :gone))
"""
_DETAILED_SCORES = f"SELECT trial, {rows.SCORE} FROM score WHERE {rows.OF_TRIALS} AND detail IS NOT NULL"
_TAKEN_BACK = Failure(
    FailureCategory.CANCELLED, GONE, "NOT_KEPT", FailureOrigin.SERVER, False
)  # an answer whose trial was not judged, of a run that keeps no outputs


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is taken out."""

    keep: Keep
    single_scores: bool = False
    """Of a run that keeps no scores also their numbers, since its summary is stored."""
    judged: bool = True
    """What is left of trials that are judged."""
    unjudged: bool = False
    """Of a run that keeps no outputs also the outputs of trials that are not judged: going on, they are asked again."""


def scrub(of: OfRun, extent: Extent, now: float) -> Iterator[None]:
    """Take out what a run is not to keep, a page and a transaction at a time. Doing it again does no harm."""
    if extent.judged:
        yield from _pages(of, PAGE_OF_JUDGED, {"position": -1, "epoch": 0}, partial(_scrub_judged, of, extent))
    yield from _pages(
        of, PAGE_OF_ATTEMPTS, {"trial": -1, "role": -2, "attempt": -1}, partial(_scrub_attempts, of, extent)
    )
    if extent.unjudged and not extent.keep.outputs and of.outputs == of.number:
        yield from _take_back(of, now)


def _pages(of: OfRun, query: str, place: dict[str, int], change: Callable[[list[Row]], None]) -> Iterator[None]:
    """Change the rows of a query page by page; its first columns are the *place* to go on from."""
    while page := of.connection.rows(query, {"run": of.number, **place}):
        with of.connection.transaction():
            change(page)
        yield
        place = dict(zip(place, page[-1], strict=False))


def _scrub_judged(of: OfRun, extent: Extent, page: list[Row]) -> None:
    judged = [(position, epoch, failure) for position, epoch, failure, marked in page if not marked]
    trials = dumps([trial_id_of(position, epoch) for position, epoch, _ in judged])
    of_trials = {"run": of.number, "trials": trials, "gone": GONE}
    keep = extent.keep
    if not keep.outputs and of.outputs == of.number:
        of.connection.execute(_EMPTY_OUTPUTS, of_trials)
    if extent.single_scores and not keep.scores:
        of.connection.execute(f"DELETE FROM score WHERE {rows.OF_TRIALS}", of_trials)
        of.connection.execute(
            f"UPDATE result SET weighted = NULL WHERE run = :run AND ((epoch - 1) << {EPOCH_BITS}) + position IN"
            " (SELECT value FROM json_each(:trials)) AND position >= :first AND position <= :last",
            {**of_trials, "first": page[0][0], "last": page[-1][0]},
        )
    else:
        _scrub_scores(of, of_trials)
    for position, epoch, text in judged:
        if text is not None and (bare := _without_words(text, keep)) != text:
            of.connection.execute(
                "UPDATE result SET failure = ? WHERE run = ? AND position = ? AND epoch = ?",
                (bare, of.number, position, epoch),
            )


def _scrub_scores(of: OfRun, of_trials: dict[str, object]) -> None:
    of.connection.execute(_EMPTY_PLAIN_SCORES, of_trials)
    for trial, *columns in of.connection.rows(_DETAILED_SCORES, of_trials):
        key, stored = rows.read_score(tuple(columns))
        bare = purge.score(stored.score, GONE)
        if bare != stored.score:
            of.connection.execute(
                "UPDATE score SET label = '', explanation = ?, detail = ? WHERE run = ? AND trial = ? AND key = ?",
                (bare.explanation, rows.score_detail(bare), of.number, trial, key),
            )


def _scrub_attempts(of: OfRun, extent: Extent, page: list[Row]) -> None:
    for trial, role, attempt, text in page:
        if (bare := _without_words(text, extent.keep)) != text:
            of.connection.execute(
                "UPDATE attempt SET failure = ? WHERE run = ? AND trial = ? AND role = ? AND attempt = ?",
                (bare, of.number, trial, role, attempt),
            )


def _without_words(text: str, keep: Keep) -> str:
    """A failure, as it is stored, without the words that are not kept: a target's are outputs, all others are scores."""
    found = rows.read_failure(text)
    assert found is not None
    if keep.outputs and found.origin is FailureOrigin.TARGET:
        return text
    return rows.write_failure(purge.failure(found, GONE))


def _take_back(of: OfRun, now: float) -> Iterator[None]:
    """Take outputs back that no result rests on: what they consumed still counts."""
    base = of.outputs << rows.RUN_BITS
    place = {"run": of.number, "after": base, "end": base + _LAST_N + 1}
    while page := of.connection.rows(PAGE_OF_UNJUDGED, place):
        trials = dumps([trial for _, trial, unjudged in page if unjudged])
        with of.connection.transaction():
            take_back(of, {"run": of.number, "trials": trials}, _TAKEN_BACK, now)
        yield
        place["after"] = page[-1][0]
