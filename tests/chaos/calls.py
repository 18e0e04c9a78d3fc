"""The call logs of the plugins against the ledger: nobody was asked what was answered already, and no attempt came twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.behaviour import Attempt, answer_of, explanation_of, mark_of, score_of, word_of
from tests.chaos.ledger import CACHED, NOT_KEPT, PURGED, SCORE_SCORED, Kept, Ledger

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


class PurgedNow(NamedTuple):
    """What was there when a purge was answered."""

    items: frozenset[str]
    lines: dict[str, int]
    """How much the logs had."""
    sessions: dict[str, int]
    """How many sessions each run had had."""


class Stored(NamedTuple):
    """What a database held at one moment, and how much the logs had by then."""

    lines: dict[str, int]
    outputs: set[tuple[str, int]]
    """(run, trial)."""
    scores: set[tuple[str, int]]
    """Those of the chaos scorer that are not ERRORED."""

    def but(self, runs: set[str]) -> Stored:
        """The same without some runs."""
        return Stored(
            self.lines,
            {each for each in self.outputs if each[0] not in runs},
            {each for each in self.scores if each[0] not in runs},
        )


def stored(path: Path, lines: dict[str, int]) -> Stored:
    """What a database holds now."""
    with closing(Ledger(path)) as ledger:
        outputs = ledger.rows("SELECT r.id, o.trial FROM output o JOIN run r ON r.n = o.run")
        scores = [(run["id"], row["trial"]) for run in ledger.runs() for row in ledger.rows(_SCORED, run["n"])]
    return Stored(lines, {tuple(row) for row in outputs}, set(scores))


def faults(path: Path, seed: int, logs: dict[str, list[Call]], moments: Iterable[Stored]) -> list[str]:
    """Everything in which calls and ledger disagree, once nothing is at work any more."""
    found = []
    for role, calls in logs.items():
        found += [f"{role}: {fault}" for fault in _asked_twice(calls)]
    with closing(Ledger(path)) as ledger:
        runs = [Kept(ledger, run) for run in ledger.runs()]
        for kept in runs:
            name = f"run {kept.run['id']}"
            found += [f"{name}: {fault}" for fault in _outputs(seed, kept, logs["target"])]
            found += [f"{name}: {fault}" for fault in _scores(ledger, kept, logs["scorer"])]
            found += [f"{name}: {fault}" for fault in _samples(kept, logs["scorer"])]
        kept_whole = {kept.run["id"] for kept in runs if kept.keeps_outputs}
    for moment in moments:
        for role, known in (("target", moment.outputs), ("scorer", moment.scores)):
            again = [call for call in logs[role][moment.lines[role] :] if call.word == "asked"]
            found += [
                f"{role}: trial {call.trial} of run {call.run} is asked although the answer was stored (attempt {call.attempt})"
                for call in again
                if (call.run, call.trial) in known and call.run in kept_whole
            ]
    return found


def after_purges(logs: dict[str, list[Call]], purges: Iterable[PurgedNow]) -> list[str]:
    """Calls about purged items: those that were on their way may arrive, once each, and no others do."""
    found = []
    for role, calls in logs.items():
        found += [f"{role}: asked about what stands where content was: {call}" for call in calls if PURGED in call.more]
        for purge in purges:
            later = [
                call
                for call in calls[purge.lines[role] :]
                if call.word == "asked" and call.more.split("/")[0].split(" ")[0] in purge.items
            ]
            times = Counter((call.run, call.trial) for call in later)
            for call in later:
                if call.attempt // 1000 > purge.sessions.get(call.run, 0):
                    found.append(f"{role}: a later session asks about a purged item: {call}")
                elif times[call.run, call.trial] > 1:
                    found.append(f"{role}: asked about a purged item again: {call}")
    return found


def _asked_twice(calls: Iterable[Call]) -> Iterator[str]:
    asked = Counter((call.run, call.trial, call.attempt) for call in calls if call.word == "asked")
    for (run, trial, attempt), times in asked.items():
        if times > 1:
            yield f"attempt {attempt} of trial {trial} of run {run} is asked {times} times"
    for call in calls:
        if call.word == "crowded":
            yield f"{call.trial} trials are held at once by runs that share a pool of {call.attempt}"
        if call.word == "over":
            yield f"{call.trial} trials of run {call.run} are held at once; {call.attempt} were granted"


def _last_asked(calls: Iterable[Call], run: str) -> dict[int, set[int]]:
    asked: dict[int, set[int]] = defaultdict(set)
    for call in calls:
        if call.word == "asked" and call.run == run:
            asked[call.trial].add(call.attempt)
    return asked


def _outputs(seed: int, kept: Kept, calls: list[Call]) -> Iterator[str]:
    """Each stored output is what its own attempt said, and nobody was asked after it; for a remembered one, nobody at all."""
    run = kept.run
    asked = _last_asked(calls, run["id"])
    for trial, row in kept.outputs.items():
        attempt = row["attempt"]
        epoch, item = (trial >> 32) + 1, kept.items[trial & 0xFFFFFFFF]
        if attempt == CACHED:
            yield from _remembered(seed, trial, row, kept)
            if run["session"] == 1 and asked[trial]:
                yield f"trial {trial} has a remembered output, and was asked: {sorted(asked[trial])}"
            continue
        said = answer_of(Attempt("target", item["id"], epoch, attempt), word_of(seed, item["id"]), mark_of(run["id"]))
        gone = (PURGED if item["purged"] else "", "" if kept.keeps_outputs else NOT_KEPT)
        if row["content"] != said and row["content"] not in gone:
            yield f"trial {trial} has the output {row['content']!r} of another attempt than {attempt}"
        if attempt not in asked[trial]:
            yield f"trial {trial} has an output of attempt {attempt}, which was not asked"
        elif attempt != max(asked[trial]):
            yield f"trial {trial} has the output of attempt {attempt}, and was asked again: {sorted(asked[trial])}"


def _remembered(seed: int, trial: int, row: Any, kept: Kept) -> Iterator[str]:
    item = kept.items[trial & 0xFFFFFFFF]
    beginning = f"{item['id']}/{(trial >> 32) + 1}/"
    content = row["content"]
    if not kept.experiment.get("cache"):
        yield f"trial {trial} has a remembered output, in a run that remembers nothing"
    if item["purged"] and content == PURGED:
        return
    if not content.startswith(beginning) or word_of(seed, item["id"]) not in content:
        yield f"trial {trial} has the remembered output {content!r} of another trial"
    if mark_of(kept.run["id"]) in content:
        yield f"trial {trial} has a remembered output of its own run"
    if row["input_tokens"] is not None or row["latency"] is not None:
        yield f"trial {trial} was not asked, and yet has used something"


def _samples(kept: Kept, calls: list[Call]) -> Iterator[str]:
    """The scorer was asked about trials of its sample only, and of those that are for it."""
    places = [place for place, key in enumerate(kept.keys) if key["key"] == "chaos"]
    for call in calls:
        if call.run == kept.run["id"] and call.word == "asked":
            if not kept.is_sampled(call.trial, places[0]):
                yield f"trial {call.trial} is not in the sample, and was asked"
            if places[0] not in (kept.judges(call.trial) or ()):
                yield f"trial {call.trial} is for other scorers, and was asked"


def _scores(ledger: Ledger, kept: Kept, calls: list[Call]) -> Iterator[str]:
    """Each score is of the stored output, and nobody was asked after it."""
    run = kept.run
    asked = _last_asked(calls, run["id"])
    outputs = ledger.rows("SELECT * FROM output WHERE run = ?", run["outputs"] or run["n"])
    contents = {row["trial"]: row["content"] for row in outputs}
    taken_back = {(row["trial"], row["attempt"]) for row in kept.attempts if row["role"] == -1}
    for call in calls:
        if call.run != run["id"] or call.word != "asked":
            continue
        stored = contents.get(call.trial)
        if stored in (call.more, PURGED, NOT_KEPT) or (call.trial, _attempt_of(call.more)) in taken_back:
            continue
        yield f"trial {call.trial} is scored for {call.more!r}; stored is {stored!r} (O7)"
    for row in ledger.rows(_SCORED, run["n"]):
        if row["explanation"] in (PURGED, NOT_KEPT):
            continue
        content, _, number = row["explanation"].rpartition(" ")
        attempt = int(number)
        if content != contents[row["trial"]] or row["value"] != score_of(content):
            yield f"trial {row['trial']} has a score of {content!r}; stored is {contents[row['trial']]!r}"
        if row["explanation"] != explanation_of(content, max(asked[row["trial"]], default=0)):
            yield f"trial {row['trial']} has a score of attempt {attempt}, and was asked again: {sorted(asked[row['trial']])}"


def _attempt_of(content: str) -> int:
    """Which attempt an output says it is of."""
    return int(content.split(" ")[0].rpartition("/")[2])
