"""A run as a page of Markdown, short enough for a comment or the summary of a job of CI."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from io import TextIOWrapper

from evalbus_server.cli.figures import NONE, count, length_of_time, number, plain, share
from evalbus_server.cli.files import ResultSource
from evalbus_server.cli.report import Document, named_criterion, notes_of, reason_of, wanted_by
from evalbus_server.model.result_filter import ResultFilter
from evalbus_server.model.run import Outcome, Run
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import StoredResult, epoch_of
from evalbus_server.wire.jsonform import summary_document

MOST_TRIALS = 20
"""Trials that did not pass and are shown; how many more there are is said."""
LONGEST_CELL = 160
"""Characters of a cell."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&])")


async def write_markdown(file: TextIOWrapper, source: ResultSource, summary: Summary) -> None:
    """Write the page."""
    document = summary_document(summary)
    for line in _page(document):
        file.write(f"{line}\n")
    counts = summary.run.counts
    left = counts.failed + counts.errored
    if left:
        rows = []
        keys = [score.key for score in summary.scores]
        wanted = (Outcome.FAILED, Outcome.ERRORED)
        async with aclosing(source.results(summary.run, ResultFilter(wanted))) as results:
            async for result, run in results:
                rows.append(_row(result, run, keys))
                if len(rows) == MOST_TRIALS:
                    break
        title = "Trials that did not pass" + (f" (the first {len(rows)} of {count(left)})" if len(rows) < left else "")
        for line in _table(title, ("item", "epoch", "outcome", *keys, "why"), rows):
            file.write(f"{line}\n")


def _page(document: Document) -> Iterator[str]:
    verdict = document["verdict"] or document["state"]
    yield f"## {_text(document['name'])}: {verdict}"
    yield ""
    dataset, counts = document["dataset"], document["counts"]
    yield (
        f"Run `{document['run']}`, {document['state']}, over dataset {_text(dataset['name'])} version {dataset['version']}, "
        f"in {length_of_time(document['work_s'])}."
    )
    for why in filter(None, (reason_of(document).removeprefix(f"{verdict}: "), *notes_of(document))):
        yield ""
        yield _text(why)
    names = ("passed", "failed", "errored", "skipped", "pending", "planned")
    row = (*(count(counts[name]) for name in names), share(document["pass_rate"]), share(document["coverage"]))
    yield from _table("", (*names, "pass rate", "coverage"), [row])
    yield from _table(
        "Criteria", ("criterion", "value", "wanted", "outcome"), [_criterion(c) for c in document["criteria"]]
    )
    columns = ("score", "n", "mean", "95 % interval", "passed", "threshold", "errored", "skipped")
    yield from _table("Scores", columns, [_score(key, score) for key, score in document["scores"].items()])


def _criterion(criterion: Document) -> Sequence[str]:
    outcome = str(criterion["outcome"])
    if criterion["severity"] != "error":
        outcome += " (warns only)"
    name = criterion["label"] or named_criterion({**criterion, "explanation": ""}).partition(" is ")[0]
    return name, number(criterion["value"]), wanted_by(criterion), outcome


def _score(key: str, score: Document) -> Sequence[str]:
    interval = score["interval"]
    return (
        key,
        count(score["n"]),
        number(score["mean"]),
        NONE if not interval else f"{number(interval[0])} – {number(interval[1])}",
        share(score["pass_rate"]),
        NONE if score["threshold"] is None else f"{score['threshold']:g}",
        count(score["errored"]),
        count(score["skipped"]),
    )


def _row(result: StoredResult, run: Run, keys: Sequence[str]) -> Sequence[str]:
    found = {run.score_keys[place].key: stored for place, stored in result.scores.items()}
    scores = []
    for key in keys:
        stored = found.get(key)
        value = None if stored is None else stored.score.value
        scores.append(NONE if stored is None else number(value) if value is not None else stored.score.status.name)
    failure = result.failure
    why = failure.message if failure is not None else _said(result)
    return result.item.id, str(epoch_of(result.trial_id)), result.outcome.name, *scores, why


def _said(result: StoredResult) -> str:
    """The explanation of the first score that missed its threshold, else the output."""
    for stored in result.scores.values():
        if stored.passed is False and stored.score.explanation:
            return stored.score.explanation
    output = result.output
    return "" if output is None else str(output.answer or output.content or "")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    if title:
        yield f"### {title}"
        yield ""
    yield "| " + " | ".join(_text(column) for column in columns) + " |"
    yield "|" + " --- |" * len(columns)
    for row in rows:
        yield "| " + " | ".join(_text(cell) for cell in row) + " |"


def _text(text: str) -> str:
    """A text of somebody else, which is no markup and no new line here."""
    flat = plain(text)
    cut = flat if len(flat) <= LONGEST_CELL else f"{flat[: LONGEST_CELL - 1]}…"
    return _SPECIAL.sub(r"\\\1", cut)
