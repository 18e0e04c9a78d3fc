"""Runs: what they are and how they stand."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple

from evalbus_server.errors import Conflict, NotFound, Reason
from evalbus_server.model.assignment import Assignment
from evalbus_server.model.event import Fact, LimitsChanged, StateChanged
from evalbus_server.model.run import (
    Counts,
    DatasetVersion,
    Outcome,
    PluginIdentity,
    Run,
    RunState,
    ScoreKey,
    Selection,
    Verdict,
)
from evalbus_server.store import datasets, events, rows, selected
from evalbus_server.store.connection import Connection, Row
from evalbus_server.store.documents import SCORE_DECLARATION, dumps, loads
from evalbus_server.store.selected import Positions

SKIPPED_SEQUENCES = 1_000
"""Event numbers left out after a file was not closed in order: a power cut may have taken events that were told."""

PROCESS_ENDED = "STOPPED: the process that worked on it ended"

_PREFIX = 6
"""So many characters of a run's id are enough, if no other run begins with them."""

_COLUMNS = """
    r.n, r.id, r.request_id, r.name, r.created_at, r.listed, r.items, r.last, r.epochs, r.tags, r.score_keys,
    r.digest, r.experiment, p.state, p.reason, p.verdict, p.started_at, p.ended_at, p.session, p.planned, p.passed,
    p.failed, p.errored, p.skipped, p.last_sequence, p.protocol_faults, d.name, v.version, v.items, v.digest,
    v.created_at, r.plugins, (SELECT s.id FROM run s WHERE s.n = r.source), p.limits,
    r.assignment, p.session_began_at, p.worked
"""
_FROM = """
    FROM run r CROSS JOIN progress p ON p.run = r.n CROSS JOIN dataset d ON d.n = r.dataset
    CROSS JOIN dataset_version v ON v.dataset = r.dataset AND v.version = r.dataset_version
"""
FIND_RUN = f"SELECT {_COLUMNS} {_FROM} WHERE r.id = :id"
FIND_RUNS_BY_PREFIX = f"SELECT {_COLUMNS} {_FROM} WHERE r.id > :id AND r.id < :end ORDER BY r.id LIMIT 2"
LIST_RUNS = f"SELECT {_COLUMNS} {_FROM} WHERE r.n < :before"
_CONDITIONS = {
    "experiment": "r.name = :experiment",
    "dataset": "r.dataset = (SELECT n FROM dataset WHERE name = :dataset)",
    "tag": "EXISTS (SELECT 1 FROM json_each(r.tags) WHERE value = :tag)",
}
_INSERT_RUN = rows.insert(
    "run",
    "id, request_id, name, created_at, dataset, dataset_version, listed, items, last, epochs, tags,"
    " score_keys, plugins, digest, experiment, assignment, source, outputs",
)
_INSERT_PROGRESS = rows.insert(
    "progress",
    "run, state, reason, verdict, started_at, ended_at, session, session_began_at, worked, planned, passed, failed,"
    " errored, skipped, last_sequence, protocol_faults, era",
)
_COPY_FAILURES = f"""
    INSERT INTO result (run, position, epoch, outcome, attempts, category, failure)
    SELECT :run, position, epoch, outcome, 0, category, failure FROM result r
    WHERE r.run = :source AND outcome = {Outcome.ERRORED.value} AND NOT EXISTS (
        SELECT 1 FROM output o WHERE o.run = :outputs AND o.trial = ((r.epoch - 1) << 32) + r.position
    )
"""
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are listed; what is empty does not restrict."""

    experiment: str = ""
    dataset: str = ""
    tag: str = ""
    state: RunState | None = None


class OfRun(NamedTuple):
    """Where the rows of a run are."""

    connection: Connection
    run: Run
    number: int
    """By which rows refer to the run."""
    dataset: int
    """By which rows refer to its dataset."""
    outputs: int
    """By which outputs refer to the run that they are of: this one, unless it scores those of another."""


@dataclass(slots=True)
class Standing:
    """What a commit must know of a run: how far its numbers are. Replaced by the next one when the commit succeeds."""

    run: int
    outputs: int
    """The number of the last output."""
    sequence: int
    counts: Counts
    era: int
    retrying: bool = False
    """Whether results may have to be replaced."""

    def next_sequence(self, era: int) -> int:
        """The number for the next event."""
        return self.sequence + 1 + (SKIPPED_SEQUENCES if self.era < era else 0)


def find(connection: Connection, run_id: str) -> Run:
    """A run by its id, or by the beginning of its id.

    Raises:
        NotFound: RUN_NOT_FOUND.
    """
    found = connection.rows(FIND_RUN, {"id": run_id})
    if not found and len(run_id) >= _PREFIX:
        found = connection.rows(FIND_RUNS_BY_PREFIX, {"id": run_id, "end": run_id + "\U0010ffff"})
        if len(found) > 1:
            raise NotFound(Reason.RUN_NOT_FOUND, f"several runs begin with {run_id!r}: give more of the id")
    if not found:
        raise NotFound(Reason.RUN_NOT_FOUND, f"there is no run {run_id!r}")
    return _read(found[0])


def page(
    connection: Connection, filter: RunFilter, states: tuple[RunState, ...] | None, *, limit: int, before: str | None
) -> list[Run]:
    """Runs, the newest first, those older than *before*; *states* None are all."""
    sql = LIST_RUNS
    for name, condition in _CONDITIONS.items():
        if getattr(filter, name):
            sql += f" AND {condition}"
    if states is not None:
        sql += f" AND p.state IN ({', '.join(str(int(state)) for state in states)})"
    found = connection.rows(
        f"{sql} ORDER BY r.n DESC LIMIT :limit",
        {
            "before": _LARGEST if before is None else numbers(connection, before)[0],
            "limit": limit,
            "experiment": filter.experiment,
            "dataset": filter.dataset,
            "tag": filter.tag,
        },
    )
    return [_read(row) for row in found]


def stopped(connection: Connection) -> list[str]:
    """The ids of runs that are INTERRUPTED because a process ended, the oldest first."""
    found = connection.rows(
        "SELECT r.id FROM progress p JOIN run r ON r.n = p.run WHERE p.state = ? AND p.reason GLOB 'STOPPED:*' ORDER BY r.n",
        (RunState.INTERRUPTED,),
    )
    return [row[0] for row in found]


def numbers(connection: Connection, run_id: str) -> tuple[int, int, int]:
    """The numbers by which rows refer to a run, to its dataset, and to the run that has its outputs.

    Raises:
        NotFound: RUN_NOT_FOUND.
    """
    found = connection.row("SELECT n, dataset, coalesce(outputs, n) FROM run WHERE id = ?", (run_id,))
    if found is None:
        raise NotFound(Reason.RUN_NOT_FOUND, f"there is no run {run_id!r}")
    return found[0], found[1], found[2]


def count_results(connection: Connection, run: int, planned: int) -> Counts:
    """The counts of a run, from its results."""
    each = ", ".join(f"count(*) FILTER (WHERE outcome = {outcome.value})" for outcome in Outcome)
    found = connection.row(f"SELECT {each} FROM result WHERE run = ?", (run,))
    return Counts(planned, *(found or ()))


def standing(connection: Connection, run: int) -> Standing:
    """How far the numbers of a run are."""
    found = connection.row(
        "SELECT planned, passed, failed, errored, skipped, last_sequence, era FROM progress WHERE run = ?", (run,)
    )
    assert found is not None
    retrying = bool(connection.rows("SELECT 1 FROM retry WHERE run = ? LIMIT 1", (run,)))
    return Standing(run, last_output(connection, run), found[5], Counts(*found[:5]), found[6], retrying)


def last_output(connection: Connection, run: int) -> int:
    """The number of a run's last output; 0 if it has none."""
    found = connection.row(
        "SELECT id FROM output WHERE id > ? AND id < ? ORDER BY id DESC LIMIT 1",
        (run << rows.RUN_BITS, (run + 1) << rows.RUN_BITS),
    )
    return 0 if found is None else found[0] & ((1 << rows.RUN_BITS) - 1)


def create(connection: Connection, run: Run, chosen: Positions = (), *, now: float, era: int) -> Run:
    """Store a new run, QUEUED, with its first event; or find the one that the same request made before.

    *chosen* are the positions of its items if they are listed. A run with a source has its outputs, and its failures where there is none, from the start.

    Raises:
        NotFound: DATASET_NOT_FOUND; RUN_NOT_FOUND, about the source.
        Conflict: REQUEST_ID_REUSED: the request made a run of another experiment.
    """
    with connection.transaction(durable=True):
        if run.request_id:
            made = connection.row("SELECT id, digest FROM run WHERE request_id = ?", (run.request_id,))
            if made is not None:
                return _same_request(connection, run, *made)
        dataset = datasets.number(connection, run.dataset.name)
        datasets.find(connection, run.dataset.name, run.dataset.version)
        source = numbers(connection, run.source) if run.source else None
        connection.execute(
            _INSERT_RUN, (*_run_row(run, dataset), *((source[0], source[2]) if source else (None, None)))
        )
        number = numbers(connection, run.id)[0]
        selected.store(connection, number, chosen)
        if source:
            place = {"run": number, "source": source[0], "outputs": source[2]}
            run = replace(run, counts=replace(run.counts, errored=connection.execute(_COPY_FAILURES, place)))
        connection.execute(
            _INSERT_PROGRESS,
            (number, RunState.QUEUED, run.reason, None, None, None, 0, None, 0.0, *_counts_row(run.counts), 1, 0, era),
        )
        add_event(connection, number, 1, now, StateChanged(RunState.QUEUED, run.counts, run.reason))
    return find(connection, run.id)


def set_state(  # noqa: PLR0913  # the state, and when it is
    connection: Connection, fact: StateChanged, standing: Standing, *, now: float, era: int, alone: bool = False
) -> Standing:
    """Change the state in the open transaction, with its event.

    *alone*: whoever worked on the run is gone, nobody knows since when; the last event is the last that he did.
    """
    sequence = standing.next_sequence(era)
    connection.execute(
        """
        UPDATE progress SET state = :state, reason = :reason, verdict = :verdict, last_sequence = :sequence, era = :era,
            started_at = CASE WHEN :begun THEN coalesce(started_at, :now) ELSE started_at END,
            ended_at = CASE WHEN :over THEN :now END, session_began_at = CASE WHEN :begun THEN :now END,
            worked = worked + max(0.0, coalesce(:until - session_began_at, 0.0))
        WHERE run = :run
        """,
        {
            "run": standing.run,
            "state": fact.state,
            "reason": fact.reason,
            "verdict": fact.verdict,
            "sequence": sequence,
            "era": era,
            "begun": fact.state is RunState.RUNNING,
            "over": fact.state.over,
            "now": now,
            "until": last_told(connection, standing.run) if alone else now,
        },
    )
    add_event(connection, standing.run, sequence, now, fact)
    return replace(standing, sequence=sequence, era=era)


def last_told(connection: Connection, run: int) -> float | None:
    """When the last event of a run was stored; None if it has none."""
    found = connection.row("SELECT time FROM event WHERE run = ? ORDER BY sequence DESC LIMIT 1", (run,))
    return None if found is None else float(found[0])


def left_alone(connection: Connection, run: Run) -> Run:
    """A run that needs somebody and has nobody, as the next writer will find it: INTERRUPTED."""
    until = last_told(connection, numbers(connection, run.id)[0])
    return replace(
        run,
        state=RunState.INTERRUPTED,
        reason=PROCESS_ENDED,
        verdict=Verdict.INCONCLUSIVE,
        worked=run.work_time(until),
        session_began_at=None,
    )


def change_limits(connection: Connection, fact: LimitsChanged, standing: Standing, *, now: float, era: int) -> Standing:
    """Store the limits that were set anew in the open transaction, with their event."""
    sequence = standing.next_sequence(era)
    [(before,)] = connection.rows("SELECT limits FROM progress WHERE run = ?", (standing.run,))
    limits = loads(before) if before else {}
    limits |= {path: loads(value) for path, value in fact.settings}
    connection.execute(
        "UPDATE progress SET limits = ?, last_sequence = ?, era = ? WHERE run = ?",
        (dumps(limits), sequence, era, standing.run),
    )
    add_event(connection, standing.run, sequence, now, fact)
    return replace(standing, sequence=sequence, era=era)


def add_fact(connection: Connection, fact: Fact, standing: Standing, *, now: float, era: int) -> None:
    """Store an event that changes nothing else about the run, in the open transaction."""
    sequence = standing.next_sequence(era)
    connection.execute("UPDATE progress SET last_sequence = ?, era = ? WHERE run = ?", (sequence, era, standing.run))
    add_event(connection, standing.run, sequence, now, fact)


def add_event(connection: Connection, run: int, sequence: int, now: float, fact: Fact) -> None:
    """Store an event in the open transaction."""
    connection.execute(events.INSERT_EVENT, (run, sequence, now, events.kind_of(fact), events.body_of(fact)))


def _same_request(connection: Connection, run: Run, id: str, digest: str) -> Run:
    if digest != run.digest:
        raise Conflict(
            Reason.REQUEST_ID_REUSED,
            f"the request id {run.request_id!r} has made run {id} of another experiment: use a new one",
            field="request_id",
        )
    return find(connection, id)


def _run_row(run: Run, dataset: int) -> Row:
    return (
        run.id,
        run.request_id or None,
        run.name,
        run.created_at,
        dataset,
        run.dataset.version,
        run.selection.listed,
        run.selection.items,
        run.selection.last,
        run.epochs,
        dumps(run.tags),
        dumps([_key_document(key) for key in run.score_keys]),
        dumps([astuple(plugin) for plugin in run.plugins]),
        run.digest,
        run.experiment_json,
        None if run.assignment is None else dumps(_assignment_document(run.assignment)),
    )


def _counts_row(counts: Counts) -> Row:
    return (counts.planned, counts.passed, counts.failed, counts.errored, counts.skipped)


def _read(row: Row) -> Run:
    return Run(
        id=row[1],
        request_id=row[2] or "",
        name=row[3],
        created_at=row[4],
        selection=Selection(bool(row[5]), row[6], row[7]),
        epochs=row[8],
        tags=tuple(loads(row[9])),
        score_keys=tuple(_read_key(key) for key in loads(row[10])),
        digest=row[11],
        experiment_json=row[12],
        state=RunState(row[13]),
        reason=row[14],
        verdict=None if row[15] is None else Verdict(row[15]),
        started_at=row[16],
        ended_at=row[17],
        session=row[18],
        counts=Counts(*row[19:24]),
        last_sequence=row[24],
        protocol_faults=row[25],
        dataset=DatasetVersion(*row[26:31]),
        plugins=tuple(PluginIdentity(*plugin) for plugin in loads(row[31])),
        source=row[32] or "",
        limits_json=row[33] or "",
        assignment=None if row[34] is None else _read_assignment(loads(row[34])),
        session_began_at=row[35],
        worked=row[36],
    )


def _assignment_document(assignment: Assignment) -> dict[str, Any]:
    return {"names": assignment.names, "default": assignment.default, "builtins": assignment.builtins}


def _read_assignment(document: dict[str, Any]) -> Assignment:
    return Assignment(tuple(document["names"]), tuple(document["default"]), tuple(document["builtins"]))


def _key_document(key: ScoreKey) -> dict[str, Any]:
    return {
        "key": key.key,
        "scorer": key.scorer,
        "declaration": SCORE_DECLARATION.write(key.declaration),
        "threshold": key.threshold,
        "weight": key.weight,
    }


def _read_key(document: dict[str, Any]) -> ScoreKey:
    return ScoreKey(
        document["key"],
        document["scorer"],
        SCORE_DECLARATION.read(document["declaration"]),
        document["threshold"],
        document["weight"],
    )
