"""A run as JUnit XML, the report that CI systems read: a case for each trial, and one for each criterion.

There is no standard; this keeps to what Jenkins, GitLab and GitHub's reporters agree on: `testsuites` of `testsuite`,
each with counts and `testcase`s that hold at most one `failure`, `error` or `skipped`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import Any
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from evalbus import Value
from evalbus_server.cli.figures import number
from evalbus_server.cli.files import ResultSource
from evalbus_server.cli.report import Document, named_criterion, notes_of, reason_of
from evalbus_server.model.run import Outcome, Run
from evalbus_server.model.summary import Summary
from evalbus_server.model.trial import StoredResult, epoch_of
from evalbus_server.wire.jsonform import summary_document

LONGEST_TEXT = 2_000
"""Characters of an input, an answer or an explanation; the rest stands in the database."""

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What a document of XML 1.0 cannot hold, however it is written."""
_KINDS = {"PASS": "", "FAIL": "failure", "INCONCLUSIVE": "error"}


async def write_junit(file: TextIOWrapper, source: ResultSource, summary: Summary) -> None:
    """Write the report, a trial at a time."""
    document, run = summary_document(summary), summary.run
    counts = run.counts
    verdicts = list(_verdicts(document))
    kinds = [kind for kind, *_ in verdicts]
    xml = _Xml(file)
    trials = {"tests": counts.done, "failures": counts.failed, "errors": counts.errored, "skipped": counts.skipped}
    judged = {"tests": len(kinds), "failures": kinds.count("failure"), "errors": kinds.count("error"), "skipped": 0}
    whole = {name: trials[name] + judged[name] for name in trials}
    seconds = f"{document['work_s']:.3f}"
    with xml.document(), xml.element("testsuites", {"name": run.name, **whole, "time": seconds}):
        head = {"name": run.name, **trials, "time": seconds, "timestamp": _time(run), "id": run.id}
        with xml.element("testsuite", head):
            with xml.element("properties"):
                for name, value in _properties(document):
                    xml.leaf("property", {"name": name, "value": value})
            async with aclosing(source.results(run)) as results:
                async for result, its_run in results:
                    _write_trial(xml, result, its_run)
        with xml.element("testsuite", {"name": f"{run.name}: verdict", **judged, "time": "0"}):
            for kind, name, message in verdicts:
                with xml.element("testcase", {"classname": f"{run.name}.verdict", "name": name, "time": "0"}):
                    if kind:
                        xml.leaf(kind, {"message": message, "type": "INCONCLUSIVE" if kind == "error" else "FAIL"})
                    elif message:
                        xml.leaf("system-out", {}, message)


def _verdicts(document: Document) -> Iterator[tuple[str, str, str]]:
    """(kind, name, message) of each criterion, and at last of the verdict."""
    for criterion in document["criteria"]:
        told = named_criterion(criterion)
        warns = criterion["severity"] != "error"
        kind = "" if warns else _KINDS[criterion["outcome"]]
        missed = criterion["outcome"] != "PASS"
        yield kind, criterion["label"] or told, told if kind else f"warns only: {told}" if missed else ""
    yield _KINDS[document["verdict"] or "INCONCLUSIVE"], "verdict", reason_of(document) or "; ".join(notes_of(document))


def _properties(document: Document) -> Iterator[tuple[str, str]]:
    yield "run", document["run"]
    yield "state", document["state"]
    yield "verdict", document["verdict"] or ""
    dataset = document["dataset"]
    yield "dataset", f"{dataset['name']} version {dataset['version']}"
    yield "pending", str(document["counts"]["pending"])
    for name in ("pass_rate", "coverage", "weighted"):
        if document[name] is not None:
            yield name, repr(document[name])
    for key, score in document["scores"].items():
        if score["mean"] is not None:
            yield f"mean of {key}", repr(score["mean"])


def _write_trial(xml: _Xml, result: StoredResult, run: Run) -> None:
    epoch = epoch_of(result.trial_id)
    name = result.item.id if run.epochs == 1 else f"{result.item.id} [epoch {epoch}]"
    head = {"classname": f"{run.name}.{run.dataset.name}", "name": name, "time": f"{result.latency or 0:.6f}"}
    with xml.element("testcase", head):
        match result.outcome:
            case Outcome.FAILED:
                xml.leaf("failure", {"message": "; ".join(_missed(result, run)), "type": "FAILED"}, _story(result, run))
            case Outcome.ERRORED:
                failure = result.failure
                told = {"message": "", "type": "ERRORED"}
                if failure is not None:
                    told = {"message": failure.message, "type": failure.reason or failure.category.name}
                xml.leaf("error", told, _story(result, run))
            case Outcome.SKIPPED:
                why = next((stored.score.explanation for stored in result.scores.values()), "")
                xml.leaf("skipped", {"message": why})


def _missed(result: StoredResult, run: Run) -> Iterator[str]:
    """What stands against a trial."""
    for place, stored in sorted(result.scores.items()):
        if stored.passed is False:
            key = run.score_keys[place]
            yield f"{key.key} is {number(stored.score.value)}, threshold {key.threshold:g}"


def _story(result: StoredResult, run: Run) -> str:
    """Input, expected, output and scores, for who reads the report without the database."""
    output = result.output
    lines = [
        _line("input", result.item.input),
        _line("expected", result.item.expected),
        _line("output", None if output is None else output.answer or output.content),
    ]
    for place, stored in sorted(result.scores.items()):
        score = stored.score
        why = score.explanation or (score.failure.message if score.failure is not None else "")
        said = score.status.name if score.value is None else number(score.value)
        lines.append(f"{run.score_keys[place].key}: {said}{f' ({_cut(why)})' if why else ''}")
    return "\n".join(line for line in lines if line)


def _line(name: str, value: Value | None) -> str:
    return "" if value is None else f"{name}: {_cut(str(value))}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} … ({len(text):,} characters)"


def _time(run: Run) -> str:
    return datetime.fromtimestamp(run.started_at or run.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class _Xml:
    """Elements one inside the other, written as they come."""

    def __init__(self, file: TextIOWrapper) -> None:
        self._xml = XMLGenerator(file, "utf-8", short_empty_elements=True)

    @contextmanager
    def document(self) -> Iterator[None]:
        self._xml.startDocument()
        yield
        self._xml.endDocument()

    @contextmanager
    def element(self, name: str, attributes: Mapping[str, Any] | None = None) -> Iterator[None]:
        found = {key: _clean(str(value)) for key, value in (attributes or {}).items()}
        self._xml.startElement(name, AttributesImpl(found))
        yield
        self._xml.endElement(name)
        self._xml.ignorableWhitespace("\n")

    def leaf(self, name: str, attributes: Mapping[str, Any], text: str = "") -> None:
        with self.element(name, attributes):
            if text:
                self._xml.characters(_clean(text))


def _clean(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
