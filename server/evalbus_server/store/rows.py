"""Values as rows of columns and back. Every value comes back equal; what has no form in a column is a ValueError."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeAlias

from evalbus import Failure, FailureCategory, Item, Money, Output, Score, ScoreStatus, Usage, Value
from evalbus._item import ItemDraft
from evalbus._value import text_value
from evalbus_server.model.run import Outcome
from evalbus_server.model.trial import (
    EPOCH_BITS,
    POSITIONS,
    AttemptRecord,
    OutputRecord,
    ResultRecord,
    ScoreRecord,
    StoredScore,
)
from evalbus_server.store.connection import Row
from evalbus_server.store.documents import (
    FAILURE,
    ITEM_DETAIL,
    OUTPUT_DETAIL,
    SCORE_DETAIL,
    Part,
    dumps,
    loads,
    read_parts,
    write_parts,
)

_USAGE = "input_tokens, output_tokens, cached_tokens, calls, cost_micros, currency"
USAGE = _USAGE
ITEM = "id, input, input_type, expected, expected_type, metadata, detail"
OUTPUT = f"{_USAGE}, content, content_type, answer, answer_type, metadata, detail"
SCORE = "key, status, value, passed, name, label, explanation, detail"
ITEM_WIDTH = 7
USAGE_WIDTH = 6
OUTPUT_WIDTH = USAGE_WIDTH + 6

_OUTPUT_RECORD = f"id, run, trial, attempt, attempts, latency, {OUTPUT}"
_PLAIN_OUTPUT = "id, run, trial, attempt, attempts, latency, content"
_SCORE_RECORD = f"run, trial, {SCORE}"
_PLAIN_SCORE = "run, trial, key, status, value, name, label, explanation"
_JUDGED_SCORE = f"{_PLAIN_SCORE}, passed"
_ATTEMPT_RECORD = f"run, trial, role, attempt, sent_at, duration, category, failure, {_USAGE}"
_RESULT_RECORD = f"run, position, epoch, outcome, weighted, attempts, category, failure, {_USAGE}"
_PLAIN_RESULT = "run, position, epoch, outcome, weighted, attempts"

Batch: TypeAlias = dict[str, list[Row]]
"""Rows to be stored, by their columns. Binding NULL costs the driver more than storing a column does, so that what is
usual has fewer of them."""

RUN_BITS = 40
"""The id of an output is run << RUN_BITS | n."""
_LAST_BITS = POSITIONS - 1
_NO_USAGE = (None,) * USAGE_WIDTH
_NO_VALUE = (None, None)

OF_TRIALS = "run = :run AND trial IN (SELECT value FROM json_each(:trials))"
OUTPUTS_TO_ATTEMPTS = f"""
    INSERT OR IGNORE INTO attempt (run, trial, role, attempt, sent_at, duration, category, failure, {_USAGE})
    SELECT run, trial, -1, attempt, :now, coalesce(latency, 0), {FailureCategory.CANCELLED.value}, :failure, {_USAGE}
    FROM output WHERE {OF_TRIALS} AND attempt > 0
"""
"""Outputs that are taken back are kept as failed attempts, for what they have consumed; not those that nobody was asked for."""


def qualified(table: str, columns: str) -> str:
    """Columns with the alias of their table before each."""
    return ", ".join(f"{table}.{column.strip()}" for column in columns.split(","))


@cache
def insert(table: str, columns: str, rows: int = 1) -> str:
    """The statement that stores rows."""
    row = f"({', '.join('?' * len(columns.split(',')))})"
    return f"INSERT INTO {table} ({columns}) VALUES {', '.join([row] * rows)}"


def item_row(item: Item) -> Row:
    """An item's columns, in the order of ITEM."""
    return (
        item.id,
        *_value_row(item.input),
        *_value_row(item.expected),
        item.metadata_json or None,
        _detail(ITEM_DETAIL, item) if _item_has_detail(item) else None,
    )


def read_item(row: Row) -> Item:
    """The item behind the columns of ITEM."""
    id, input, input_type, expected, expected_type, metadata, detail = row
    if detail is None:
        made = ItemDraft()
        made.id = id
        made.input = _some_value(input, input_type)
        made.expected = _read_value(expected, expected_type)
        made.metadata_json = metadata or ""
        made.tags = made.choices = made.messages = made.tool_mocks = ()
        made.scorers = made.output = None
        made.__class__ = Item
        plain: Item = made
        return plain
    more = read_parts(ITEM_DETAIL, loads(detail))
    return Item(
        id,
        _some_value(input, input_type),
        _read_value(expected, expected_type),
        metadata=metadata,
        **more,
    )


def output_rows(run: int, first: int, records: Iterable[OutputRecord]) -> Batch:
    """The rows of outputs whose numbers in the run begin with *first*."""
    plain: list[Row] = []
    full: list[Row] = []
    for id, (trial_id, output, attempt, attempts, latency) in enumerate(records, run << RUN_BITS | first):
        latency = latency if latency is None else _finite(latency)
        content = output.content
        usage, answer, metadata = output.usage, output.answer, output.metadata_json
        detail = _detail(OUTPUT_DETAIL, output) if _output_has_detail(output) else None
        bare = usage is None and answer is None and not metadata and detail is None
        if bare and latency is not None and content is not None and content.kind == "text":
            plain.append((id, run, trial_id, attempt, attempts, latency, content.body))
        else:
            values = (*usage_row(usage), *_value_row(content), *_value_row(answer), metadata or None, detail)
            full.append((id, run, trial_id, attempt, attempts, latency, *values))
    return {_PLAIN_OUTPUT: plain, _OUTPUT_RECORD: full}


def read_output(row: Row) -> Output:
    """The output behind the columns of OUTPUT."""
    content, content_type, answer, answer_type, metadata, detail = row[USAGE_WIDTH:]
    more = read_parts(OUTPUT_DETAIL, loads(detail)) if detail is not None else {}
    return Output(
        _read_value(content, content_type),
        answer=_read_value(answer, answer_type),
        usage=read_usage(row[:USAGE_WIDTH]),
        metadata=metadata,
        **more,
    )


def score_rows(run: int, records: Iterable[ScoreRecord]) -> Batch:
    """The rows of scores."""
    plain: list[Row] = []
    judged: list[Row] = []
    full: list[Row] = []
    for trial_id, key, score, passed in records:
        status, value = int(score.status), score.value
        texts = (score.name, score.label, score.explanation)
        detail = _detail(SCORE_DETAIL, score) if _score_has_detail(score) else None
        if value is None or detail is not None:
            value = value if value is None else _finite(value)
            full.append((run, trial_id, key, status, value, passed, *texts, detail))
        elif passed is None:
            plain.append((run, trial_id, key, status, _finite(value), *texts))
        else:
            judged.append((run, trial_id, key, status, _finite(value), *texts, int(passed)))
    return {_PLAIN_SCORE: plain, _JUDGED_SCORE: judged, _SCORE_RECORD: full}


def read_score(row: Row) -> tuple[int, StoredScore]:
    """The key and the score behind the columns of SCORE."""
    key, status, value, passed, name, label, explanation, detail = row
    more = read_parts(SCORE_DETAIL, loads(detail)) if detail is not None else {}
    score = Score(
        ScoreStatus(status),
        value,
        name=name,
        label=label,
        explanation=explanation,
        metadata=more.pop("metadata_json", ""),
        **more,
    )
    return key, StoredScore(score, None if passed is None else bool(passed))


def score_detail(score: Score) -> str | None:
    """The rarer parts of a score, as JSON text."""
    return _detail(SCORE_DETAIL, score)


def attempt_rows(run: int, records: Iterable[AttemptRecord]) -> Batch:
    """The rows of failed attempts."""
    full: list[Row] = [
        (
            run,
            record.trial_id,
            record.role,
            record.attempt,
            _finite(record.sent_at),
            _finite(record.duration),
            record.failure.category,
            write_failure(record.failure),
            *usage_row(record.usage),
        )
        for record in records
    ]
    return {_ATTEMPT_RECORD: full}


def result_rows(run: int, records: Iterable[ResultRecord]) -> Batch:
    """The rows of results."""
    plain: list[Row] = []
    full: list[Row] = []
    for trial_id, outcome, weighted, failure, attempts, usage in records:
        weighted = weighted if weighted is None else _finite(weighted)
        key = (run, trial_id & _LAST_BITS, (trial_id >> EPOCH_BITS) + 1, int(outcome), weighted, attempts)
        if failure is None and usage is None:
            plain.append(key)
        else:
            fault = _NO_VALUE if failure is None else (failure.category, write_failure(failure))
            full.append((*key, *fault, *usage_row(usage)))
    return {_PLAIN_RESULT: plain, _RESULT_RECORD: full}


def read_usage(row: Row) -> Usage | None:
    """The consumption behind the columns of USAGE."""
    input_tokens, output_tokens, cached_tokens, calls, micros, currency = row
    if input_tokens is None:
        return None
    cost = None if micros is None else Money(micros, currency)
    return Usage(input_tokens, output_tokens, cached_tokens, calls, cost)


def write_failure(failure: Failure) -> str:
    """A failure as JSON text."""
    return dumps(FAILURE.write(failure))


def read_failure(text: str | None) -> Failure | None:
    """The failure behind its JSON text."""
    if text is None:
        return None
    failure = FAILURE.read(loads(text))
    assert isinstance(failure, Failure)
    return failure


def read_category(number: int) -> FailureCategory:
    """The category of a failure behind its number."""
    return FailureCategory(number)


OUTCOMES = {outcome.value: outcome for outcome in Outcome}
"""Faster than calling the enum."""


def _item_has_detail(item: Item) -> bool:
    return bool(
        item.tags
        or item.choices
        or item.messages
        or item.tool_mocks
        or item.scorers is not None
        or item.output is not None
    )


def _output_has_detail(output: Output) -> bool:
    return bool(
        output.messages
        or output.tool_calls
        or output.spans
        or output.trace_ids
        or output.timing is not None
        or output.tool_mocks is not None
    )


def _score_has_detail(score: Score) -> bool:
    return bool(
        score.answer is not None
        or score.failure is not None
        or score.metadata_json
        or score.steps
        or score.usage is not None
        or score.trace_ids
    )


def _detail(parts: dict[str, Part], value: Any) -> str | None:
    document = write_parts(parts, value)
    return dumps(document) if document else None


def _value_row(value: Value | None) -> tuple[str | bytes | None, str | None]:
    if value is None:
        return _NO_VALUE
    kind = value.kind
    if kind == "text":
        return (value.body, None)
    return (value.body, "json" if kind == "json" else value.media_type)


def _read_value(body: str | bytes | None, type: str | None) -> Value | None:
    return None if body is None else _some_value(body, type)


def _some_value(body: str | bytes, type: str | None) -> Value:
    if type is None:
        return text_value(body)  # type: ignore[arg-type]  # bytes have a type
    if isinstance(body, bytes):
        return Value(body, "blob", type)
    return Value(body, "json")


def usage_row(usage: Usage | None) -> Row:
    """The columns of USAGE."""
    if usage is None:
        return _NO_USAGE
    cost = usage.cost
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.calls,
        None if cost is None else cost.micros,
        None if cost is None else cost.currency,
    )


def _finite(number: float) -> float:
    """The number, as a float and without a negative zero: SQLite would silently store NaN as NULL."""
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number + 0.0
