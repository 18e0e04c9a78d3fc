"""The call logs of the plugins against the ledger: nobody was asked what was answered already, and no attempt came twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.behaviour import Attempt, answer_of, explanation_of, score_of
from tests.chaos.ledger import SCORE_SCORED, Ledger

_SCORED = f"""
    SELECT s.* FROM score s JOIN run r ON r.n = s.run
    WHERE s.run = ? AND s.status = {SCORE_SCORED} AND r.score_keys ->> ('$[' || s.key || '].key') = 'chaos'
"""
"""The scores of the chaos scorer that have a value."""


class Call(NamedTuple):
    """A line of a call log."""

    word: str
    run: str
    trial: int
    attempt: int
    pid: int
    time: float
    more: str


def read_calls(path: Path) -> list[Call]:
    """The whole lines of a log, in the order in which they were written."""
    if not path.exists():
        return []
    calls = []
    for line in path.read_text().rpartition("\n")[0].splitlines():
        word, run, trial, attempt, pid, time, *more = line.split(maxsplit=6)
        calls.append(Call(word, run, int(trial), int(attempt), int(pid), float(time), more[0] if more else ""))
    return calls


class Stored(NamedTuple):
    """What a database held at one moment, and how much the logs had by then."""

    lines: dict[str, int]
    outputs: set[tuple[str, int]]
    """(run, trial)."""
    scores: set[tuple[str, int]]
    """Those of the chaos scorer that are not ERRORED."""


def stored(path: Path, lines: dict[str, int]) -> Stored:
    """What a database holds now."""
    with closing(Ledger(path)) as ledger:
        outputs = ledger.rows("SELECT r.id, o.trial FROM output o JOIN run r ON r.n = o.run")
        scores = [(run["id"], row["trial"]) for run in ledger.runs() for row in ledger.rows(_SCORED, run["n"])]
    return Stored(lines, {tuple(row) for row in outputs}, set(scores))


def faults(path: Path, logs: dict[str, list[Call]], moments: Iterable[Stored]) -> list[str]:
    """Everything in which calls and ledger disagree, once nothing is at work any more."""
    found = []
    for role, calls in logs.items():
        found += [f"{role}: {fault}" for fault in _asked_twice(calls)]
    with closing(Ledger(path)) as ledger:
        for run in ledger.runs():
            found += [f"run {run['id']}: {fault}" for fault in _outputs(ledger, run, logs["target"])]
            found += [f"run {run['id']}: {fault}" for fault in _scores(ledger, run, logs["scorer"])]
    for moment in moments:
        for role, known in (("target", moment.outputs), ("scorer", moment.scores)):
            again = [call for call in logs[role][moment.lines[role] :] if call.word == "asked"]
            found += [
                f"{role}: trial {call.trial} of run {call.run} is asked although the answer was stored (attempt {call.attempt})"
                for call in again
                if (call.run, call.trial) in known
            ]
    return found


def _asked_twice(calls: Iterable[Call]) -> Iterator[str]:
    asked = Counter((call.run, call.trial, call.attempt) for call in calls if call.word == "asked")
    for (run, trial, attempt), times in asked.items():
        if times > 1:
            yield f"attempt {attempt} of trial {trial} of run {run} is asked {times} times"
    for call in calls:
        if call.word == "over":
            yield f"{call.trial} trials of run {call.run} are held at once; {call.attempt} were granted"


def _last_asked(calls: Iterable[Call], run: str) -> dict[int, set[int]]:
    asked: dict[int, set[int]] = defaultdict(set)
    for call in calls:
        if call.word == "asked" and call.run == run:
            asked[call.trial].add(call.attempt)
    return asked


def _outputs(ledger: Ledger, run: Any, calls: list[Call]) -> Iterator[str]:
    """Each stored output is what its own attempt said, and nobody was asked after it."""
    asked = _last_asked(calls, run["id"])
    ids = {row["position"]: row["id"] for row in ledger.rows("SELECT position, id FROM item")}
    for row in ledger.rows("SELECT * FROM output WHERE run = ?", run["n"]):
        trial, attempt = row["trial"], row["attempt"]
        epoch, item = (trial >> 32) + 1, ids[trial & 0xFFFFFFFF]
        if row["content"] != answer_of(Attempt("target", item, epoch, attempt)):
            yield f"trial {trial} has the output {row['content']!r} of another attempt than {attempt}"
        if attempt not in asked[trial]:
            yield f"trial {trial} has an output of attempt {attempt}, which was not asked"
        elif attempt != max(asked[trial]):
            yield f"trial {trial} has the output of attempt {attempt}, and was asked again: {sorted(asked[trial])}"


def _scores(ledger: Ledger, run: Any, calls: list[Call]) -> Iterator[str]:
    """Each score is of the stored output, and nobody was asked after it."""
    asked = _last_asked(calls, run["id"])
    outputs = ledger.rows("SELECT * FROM output WHERE run = ?", run["outputs"] or run["n"])
    contents = {row["trial"]: row["content"] for row in outputs}
    for call in calls:
        if call.run == run["id"] and call.word == "asked" and call.more != contents.get(call.trial):
            yield f"trial {call.trial} is scored for {call.more!r}; stored is {contents.get(call.trial)!r} (O7)"
    for row in ledger.rows(_SCORED, run["n"]):
        content, _, number = row["explanation"].rpartition(" ")
        attempt = int(number)
        if content != contents[row["trial"]] or row["value"] != score_of(content):
            yield f"trial {row['trial']} has a score of {content!r}; stored is {contents[row['trial']]!r}"
        if row["explanation"] != explanation_of(content, max(asked[row["trial"]], default=0)):
            yield f"trial {row['trial']} has a score of attempt {attempt}, and was asked again: {sorted(asked[row['trial']])}"
