"""What must hold in a database, whatever happened: read from the database alone, with plain SQL (rules O1 to O7).

Each fault is one line. The checks hold at every moment, also right after a `kill -9`; those of runs that are COMPLETED
ask for more.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from evalbus.kit import in_sample

QUEUED, RUNNING, PAUSED, COMPLETED, CANCELLED, INTERRUPTED, ABORTED = range(1, 8)
PASSED, FAILED, ERRORED, SKIPPED = range(1, 5)
SCORE_SCORED, SCORE_SKIPPED, SCORE_ERRORED = range(1, 4)
_HALTED = {PAUSED, CANCELLED, INTERRUPTED, ABORTED}
_MAY_FOLLOW = {
    None: {QUEUED},
    QUEUED: {RUNNING, *_HALTED},
    RUNNING: {COMPLETED, *_HALTED},
    PAUSED: {QUEUED, CANCELLED},
    COMPLETED: {QUEUED},
    CANCELLED: {QUEUED},
    INTERRUPTED: {QUEUED, CANCELLED},
    ABORTED: {QUEUED},
}
_LEFT_OUT = 1000
"""Sequence numbers that are left out after a crash."""
PURGED, NOT_KEPT = "[purged]", "[not kept]"
"""What stands where words were."""
ITEM_PURGED = "ITEM_PURGED"
CACHED = -1
"""The attempt of an output that was remembered."""
_USAGE = ("input_tokens", "output_tokens", "cached_tokens", "calls", "cost_micros")


class Ledger:
    """A database, opened for reading only, at one moment."""

    def __init__(self, path: Path) -> None:
        """Open it; `close` it afterwards."""
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30.0)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("BEGIN")

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """The rows of a query."""
        return self._connection.execute(statement, values).fetchall()

    def runs(self) -> list[Any]:
        """The runs with what changes about them."""
        return self.rows("SELECT r.*, p.* FROM run r JOIN progress p ON p.run = r.n ORDER BY r.n")


class Kept:
    """All that is stored of one run, by trial."""

    def __init__(self, ledger: Ledger, run: Any) -> None:
        """Read it."""
        number = run["n"]

        def table(name: str, more: str = "") -> list[Any]:
            return ledger.rows(f"SELECT * FROM {name} WHERE run = ? {more}", number)

        self.run = run
        self.experiment = json.loads(run["experiment"])
        self.keys = json.loads(run["score_keys"])
        keep = self.experiment.get("keep") or {}
        self.keeps_outputs = keep.get("outputs", True)
        self.keeps_scores = keep.get("scores", True)
        self.items = {
            row["position"]: row
            for row in ledger.rows(
                "SELECT i.position, i.id, i.detail ->> '$.scorers' AS scorers, p.item IS NOT NULL AS purged, coalesce(p.done, 0) AS gone FROM item i"
                " LEFT JOIN purged p ON p.dataset = i.dataset AND p.item = i.n WHERE i.dataset = ?"
                " AND i.first_version <= ? AND (i.last_version IS NULL OR i.last_version >= ?)",
                run["dataset"], run["dataset_version"], run["dataset_version"],
            )
        }  # fmt: skip
        self.output_rows = table("output", "ORDER BY id")
        self.outputs = {row["trial"]: row for row in self.output_rows}
        """Those of its own."""
        self.answered = set(self.outputs)
        """The trials that have an output, here or in the run whose outputs are scored."""
        if run["outputs"] is not None:
            self.answered = {row[0] for row in ledger.rows("SELECT trial FROM output WHERE run = ?", run["outputs"])}
        self.scores: dict[int, dict[int, Any]] = defaultdict(dict)
        for row in table("score"):
            self.scores[row["trial"]][row["key"]] = row
        self.results = {(row["epoch"] - 1 << 32) + row["position"]: row for row in table("result")}
        self.attempts = table("attempt")
        self.events = table("event", "ORDER BY sequence")
        self.retried = {row["trial"] for row in table("retry")}
        self.final = {trial: row for trial, row in self.results.items() if trial not in self.retried}
        """The results that nothing is to replace: beside one that is to be replaced stands already what replaces it."""
        self.has_summary = bool(table("kept_summary"))
        self.eras = ledger.rows("SELECT era FROM recovery")[0][0]
        self._assignment = None if run["assignment"] is None else json.loads(run["assignment"])

    @property
    def without_scores(self) -> bool:
        """Whether its single scores are gone, as they are to be."""
        return not self.keeps_scores and self.run["state"] == COMPLETED

    def judges(self, trial: int) -> set[int] | None:
        """The keys of the scores that a trial is to have; None: it names a scorer that nobody knows."""
        if self._assignment is None:
            return set(range(len(self.keys)))
        own = self.items[trial & 0xFFFFFFFF]["scorers"]
        names = self._assignment["default"] if own is None else json.loads(own)
        if not set(names) <= set(self._assignment["names"]):
            return None
        places = {self._assignment["names"].index(name) for name in names}
        return {place for place, key in enumerate(self.keys) if key["scorer"] in places}

    def is_sampled(self, trial: int, key: int) -> bool:
        """Whether a trial is in the sample of the scorer of a key."""
        scorers = self.experiment["scorers"]
        place = self.keys[key]["scorer"]
        share = scorers[place].get("sampling", 1.0) if place < len(scorers) else 1.0
        return in_sample(self.items[trial & 0xFFFFFFFF]["id"], (trial >> 32) + 1, share)


def faults(path: Path) -> list[str]:
    """Everything that is wrong in a database."""
    if not path.exists():
        return []
    with closing(Ledger(path)) as ledger:
        if not ledger.rows("SELECT 1 FROM sqlite_master WHERE name = 'retry'"):
            return []  # its server was killed before there was a schema
        found = [f"the file is damaged: {row[0]}" for row in ledger.rows("PRAGMA integrity_check") if row[0] != "ok"]
        found += [f"a foreign key leads nowhere: {tuple(row)}" for row in ledger.rows("PRAGMA foreign_key_check")]
        found += _rows_of_nobody(ledger)
        for run in ledger.runs():
            kept = Kept(ledger, run)
            found += [f"run {run['id']}: {fault}" for check in CHECKS for fault in check(kept)]
    return found


def _rows_of_nobody(ledger: Ledger) -> list[str]:
    """Rows of runs that are deleted; a deletion that was broken off is finished when the file is opened for writing."""
    if ledger.rows("SELECT 1 FROM run WHERE n NOT IN (SELECT run FROM progress)"):
        return []
    tables = ("chosen", "cached", "retry", "attempt", "score", "result", "output", "metric", "event", "kept_summary")
    left = {table: ledger.rows(f"SELECT count(*) FROM {table} WHERE run NOT IN (SELECT n FROM run)")[0][0] for table in tables}  # fmt: skip
    return [f"{count} rows of {table} belong to no run" for table, count in left.items() if count]


def unpaid(path: Path, run_id: str, most_in_flight: int, dearest: int) -> list[str]:
    """What is wrong about a run that its budget has ended: it took too little for that, or more than what was in flight."""
    with closing(Ledger(path)) as ledger:
        run = ledger.rows("SELECT r.*, p.* FROM run r JOIN progress p ON p.run = r.n WHERE r.id = ?", run_id)[0]
        limits = {**json.loads(run["experiment"])["limits"], **_changed(run["limits"])}
        spent = sum(
            ledger.rows(f"SELECT coalesce(sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)), 0) FROM {table} WHERE run = ?", run["n"])[0][0]
            for table in ("output", "attempt")
        )  # fmt: skip
        spent += ledger.rows(
            "SELECT coalesce(sum(detail ->> '$.usage.input_tokens'), 0) FROM score WHERE run = ?", run["n"]
        )[0][0]
    if run["state"] != ABORTED or "tokens are used" not in run["reason"]:
        return []
    if not limits["tokens"] <= spent <= limits["tokens"] + most_in_flight * dearest:
        return [f"{run['reason']}: it has used {spent} tokens, and had up to {most_in_flight} calls in flight"]
    return []


def sessions(path: Path) -> dict[str, int]:
    """How many sessions each run has had."""
    with closing(Ledger(path)) as ledger:
        return {run["id"]: run["session"] for run in ledger.runs()}


def remembered(path: Path, target: dict[str, Any]) -> set[int]:
    """Trials whose output is remembered for a target."""
    with closing(Ledger(path)) as ledger:
        found = ledger.rows("SELECT c.trial, r.experiment FROM cached c JOIN run r ON r.n = c.run")
    mine = [row["trial"] for row in found if _asks(json.loads(row["experiment"])["target"], target)]
    return set(mine)


def _asks(stored: dict[str, Any] | None, target: dict[str, Any]) -> bool:
    return stored is not None and all(stored.get(key) == value for key, value in target.items())


def unremembered(path: Path, run_id: str, remembered: set[int]) -> list[str]:
    """Trials of a run that were asked although their output was remembered, and that of no purged item."""
    with closing(Ledger(path)) as ledger:
        run = next((run for run in ledger.runs() if run["id"] == run_id), None)
        if run is None:
            return []
        kept = Kept(ledger, run)
    asked = [
        trial
        for trial, row in kept.outputs.items()
        if trial in remembered and row["attempt"] != CACHED and not kept.items[trial & 0xFFFFFFFF]["purged"]
    ]
    return [f"run {run_id}: trials {asked[:5]} are asked although their outputs are remembered"] if asked else []


def _changed(limits: str | None) -> dict[str, Any]:
    changed = json.loads(limits or "{}")
    return {path.removeprefix("limits."): value for path, value in changed.items()}


def counts_add_up(kept: Kept) -> Iterator[str]:
    """O5: planned is the sum of all outcomes and what is pending."""
    run = kept.run
    stored = Counter(row["outcome"] for row in kept.results.values())
    told = {PASSED: run["passed"], FAILED: run["failed"], ERRORED: run["errored"], SKIPPED: run["skipped"]}
    if {outcome: count for outcome, count in told.items() if count} != dict(stored):
        yield f"counts {told} are not those of its results {dict(stored)}"
    if run["planned"] != run["items"] * run["epochs"]:
        yield f"{run['planned']} trials are planned for {run['items']} items and {run['epochs']} epochs"
    if sum(told.values()) > run["planned"]:
        yield f"{sum(told.values())} results of {run['planned']} planned trials"


def results_have_their_ground(kept: Kept) -> Iterator[str]:
    """O1 and O6: each result is one of the plan, and says what output and scores say."""
    for trial, row in kept.final.items():
        if not (0 <= row["position"] <= kept.run["last"] and 1 <= row["epoch"] <= kept.run["epochs"]):
            yield f"a result of epoch {row['epoch']} and position {row['position']}, which are not in the plan"
        if (row["outcome"] == ERRORED) != (row["failure"] is not None):
            yield f"trial {trial}: outcome {row['outcome']} with failure {row['failure']}"
        if trial not in kept.answered:
            if row["outcome"] != ERRORED:
                yield f"trial {trial} has outcome {row['outcome']} and no output"
            if (kept.judges(trial) is None) > (_reason(row) in ("SCORER_UNKNOWN", ITEM_PURGED)):
                yield f"trial {trial} names an unknown scorer, and failed with {_reason(row)}"
        elif kept.without_scores or _was_purged(row) or _was_unanswered(kept, trial, row):
            continue
        elif set(kept.scores[trial]) != kept.judges(trial):
            yield f"trial {trial} has a result, and scores {sorted(kept.scores[trial])} of {kept.judges(trial)}"
        elif (expected := _outcome(kept.scores[trial].values())) != row["outcome"]:
            yield f"trial {trial} has outcome {row['outcome']}; its scores say {expected}"


def _reason(row: Any) -> str:
    return str(json.loads(row["failure"] or "{}").get("reason", ""))


def _was_purged(row: Any) -> bool:
    return _reason(row) == ITEM_PURGED


def _was_unanswered(kept: Kept, trial: int, row: Any) -> bool:
    """Whether there was no output to be scored, in the run that has it now: it was retried after this one."""
    return kept.run["source"] is not None and row["outcome"] == ERRORED and not kept.scores[trial]


def _outcome(scores: Any) -> int:
    statuses = [row["status"] for row in scores]
    if SCORE_ERRORED in statuses:
        return ERRORED
    if any(row["passed"] == 0 for row in scores):
        return FAILED
    return SKIPPED if statuses and set(statuses) == {SCORE_SKIPPED} else PASSED


def outputs_come_first(kept: Kept) -> Iterator[str]:
    """O7: there is no score without its output, and outputs are numbered in the order of their commits."""
    for trial, scores in kept.scores.items():
        if trial not in kept.answered and scores:
            yield f"trial {trial} has a score and no output (O7)"
        if any(key not in (kept.judges(trial) or ()) for key in scores):
            yield f"trial {trial} has scores {sorted(scores)}, and {kept.judges(trial)} are for it"
    numbers = [row["id"] for row in kept.output_rows]
    if kept.keeps_outputs and numbers != [(kept.run["n"] << 40) + place for place in range(1, len(numbers) + 1)]:
        yield "the numbers of its outputs have gaps"
    for trial, count in Counter(row["trial"] for row in kept.output_rows).items():
        if count > 1:
            yield f"trial {trial} has {count} outputs"


def attempts_are_kept(kept: Kept) -> Iterator[str]:
    """O6: every attempt of the target is told, none twice."""
    tries: dict[int, set[int]] = defaultdict(set)
    for row in kept.attempts:
        if row["role"] == -1:
            tries[row["trial"]].add(row["attempt"])
        if not 0 < row["attempt"] < (kept.run["session"] + 1) * 1000:
            yield f"trial {row['trial']}: attempt {row['attempt']} in {kept.run['session']} sessions"
    for trial, output in kept.outputs.items():
        if output["attempt"] in tries[trial]:
            yield f"trial {trial}: attempt {output['attempt']} failed and gave the output"
        if output["attempt"] != CACHED:
            tries[trial].add(output["attempt"])
    if kept.run["source"] is not None:
        return
    for trial, row in kept.final.items():
        if row["attempts"] != len(tries[trial]):
            yield f"trial {trial}: {row['attempts']} attempts are told, {len(tries[trial])} are stored"


def usage_is_summed(kept: Kept) -> Iterator[str]:
    """O6: a result has used up what all attempts for it have, those of the target and those of the scorers."""
    if kept.run["source"] is not None or kept.without_scores:
        return
    used: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in [*kept.attempts, *kept.outputs.values()]:
        used[row["trial"]].append({name: row[name] for name in _USAGE})
    for scores in kept.scores.values():
        for row in scores.values():
            told = json.loads(row["detail"] or "{}").get("usage")
            if told is not None:
                told["cost_micros"] = told.get("cost", {}).get("micros")
                used[row["trial"]].append({name: told.get(name, 0) for name in _USAGE})
    for trial, row in kept.final.items():
        for name in _USAGE:
            known = [each[name] for each in used[trial] if each[name] is not None]
            if (sum(known) if known else None) != row[name]:
                yield f"trial {trial}: {name} is {row[name]}, its attempts used {known}"


def numbers_of_events_have_no_gaps(kept: Kept) -> Iterator[str]:
    """Each follows the one before, or leaves out as many as after a crash: so none is given twice."""
    crashes = sequence = 0
    for row in kept.events:
        if row["sequence"] == sequence + 1 + _LEFT_OUT:
            crashes += 1
        elif row["sequence"] != sequence + 1:
            yield f"event {row['sequence']} follows event {sequence}"
        sequence = row["sequence"]
    if crashes > kept.eras:
        yield f"{crashes} times event numbers are left out, in {kept.eras} eras"
    if sequence != kept.run["last_sequence"]:
        yield f"its last event has number {sequence}, itself says {kept.run['last_sequence']}"


def states_are_legal(kept: Kept) -> Iterator[str]:
    """A state follows one that it may follow, and trials end only while the run is RUNNING."""
    state: int | None = None
    for row in kept.events:
        body = json.loads(row["body"])
        if row["kind"] == "state":
            retry_is_over = body["state"] == COMPLETED and body["reason"].startswith("CANCELLED: the retry")
            if body["state"] not in _MAY_FOLLOW[state] and not (state in (PAUSED, INTERRUPTED) and retry_is_over):
                yield f"event {row['sequence']}: state {body['state']} follows state {state}"
            state = body["state"]
        elif row["kind"] == "trials" and state != RUNNING:
            yield f"event {row['sequence']}: trials end while the state is {state}"
    if state != kept.run["state"]:
        yield f"its last event says state {state}, itself {kept.run['state']}"


def events_tell_the_results(kept: Kept) -> Iterator[str]:
    """Counts never fall, no trial ends twice unless it was ERRORED, and what was told last is what is stored."""
    stored = {trial: row["outcome"] for trial, row in kept.results.items()}
    told: dict[int, int] = {}
    if kept.run["source"] is not None:  # failures of the source's target are there from the beginning
        told = {trial: outcome for trial, outcome in stored.items() if outcome == ERRORED}
    done = 0
    for row in kept.events:
        body = json.loads(row["body"])
        planned, *outcomes = body["counts"]
        if planned != kept.run["planned"] or not done <= sum(outcomes) <= planned:
            yield f"event {row['sequence']} counts {body['counts']} after {done} were done"
        done = sum(outcomes)
        for trial, outcome in body["trials"] if row["kind"] == "trials" else ():
            if told.get(trial, ERRORED) != ERRORED:
                yield f"event {row['sequence']}: trial {trial} ends again, which had outcome {told[trial]}"
            told[trial] = outcome
    if told != stored:
        wrong = sorted(trial for trial in {*told, *stored} if told.get(trial) != stored.get(trial))
        yield f"events tell of other outcomes than the results of trials {wrong[:5]}"


def completed_runs_are_whole(kept: Kept) -> Iterator[str]:
    """O6: exactly one result for each planned trial, and nothing left to do."""
    if kept.run["state"] != COMPLETED:
        return
    if len(kept.results) != kept.run["planned"]:
        yield f"it is COMPLETED with {len(kept.results)} results of {kept.run['planned']}"
    by_epoch: dict[int, set[int]] = defaultdict(set)
    for row in kept.results.values():
        by_epoch[row["epoch"]].add(row["position"])
    if any(one != other for one, other in itertools.pairwise(by_epoch.values())):
        yield "its epochs have results of different items"
    if kept.retried:
        yield f"it is COMPLETED, and {len(kept.retried)} retries are left over"
    if kept.run["verdict"] is None:
        yield "it is COMPLETED without a verdict"


def samples_are_the_same(kept: Kept) -> Iterator[str]:
    """Whether a score is SKIPPED follows from the item and the epoch alone."""
    for trial, scores in kept.scores.items():
        for key, row in scores.items():
            if (row["status"] == SCORE_SKIPPED) == kept.is_sampled(trial, key):
                yield f"trial {trial}: score {key} has status {row['status']}; in the sample: {kept.is_sampled(trial, key)}"


def nothing_is_kept_that_must_not_be(kept: Kept) -> Iterator[str]:
    """A run that is over holds no words of outputs, and no single scores, that it is not to keep."""
    if kept.run["state"] in (COMPLETED, CANCELLED, ABORTED) and not kept.keeps_outputs:
        yield from _words_that_are_kept(kept)
    if kept.without_scores:
        if any(kept.scores.values()) or any(row["weighted"] is not None for row in kept.results.values()):
            yield "single scores are kept"
        if not kept.has_summary:
            yield "there is neither a single score nor a summary"
    elif kept.has_summary:
        yield "a summary is stored although there are the scores"


def _words_that_are_kept(kept: Kept) -> Iterator[str]:
    gone = {None, "", NOT_KEPT, PURGED}
    for trial, row in kept.outputs.items():
        if row["content"] not in gone or any(row[name] for name in ("answer", "metadata", "detail")):
            yield f"trial {trial} keeps its output {row['content']!r}"
        if trial not in kept.results:
            yield f"trial {trial} keeps an output that is not judged"
    for trial, scores in kept.scores.items():
        if any(row["explanation"] not in gone or row["label"] for row in scores.values()):
            yield f"trial {trial} keeps what was said about its output"
    for row in [*kept.attempts, *(row for row in kept.results.values() if row["failure"] is not None)]:
        failure = json.loads(row["failure"])
        if failure.get("message") not in gone and failure.get("reason") != ITEM_PURGED:
            yield f"a failure keeps its words: {failure}"


def nothing_is_left_of_purged_items(kept: Kept) -> Iterator[str]:
    """No output and no score of a purged item has words, wherever they came from, and whenever."""
    for trial, row in kept.outputs.items():
        if kept.items[trial & 0xFFFFFFFF]["gone"] and row["content"] not in (None, PURGED, NOT_KEPT):
            yield f"trial {trial} of a purged item has the output {row['content']!r}"
    for trial, scores in kept.scores.items():
        if kept.items[trial & 0xFFFFFFFF]["gone"]:
            for row in scores.values():
                if row["explanation"] not in ("", PURGED, NOT_KEPT):
                    yield f"trial {trial} of a purged item has the explanation {row['explanation']!r}"


CHECKS = (
    counts_add_up,
    results_have_their_ground,
    outputs_come_first,
    attempts_are_kept,
    usage_is_summed,
    numbers_of_events_have_no_gaps,
    states_are_legal,
    events_tell_the_results,
    completed_runs_are_whole,
    samples_are_the_same,
    nothing_is_kept_that_must_not_be,
    nothing_is_left_of_purged_items,
)
