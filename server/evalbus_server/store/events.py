"""Events: facts about a run, numbered from 1, written in the transaction that made them true."""

from __future__ import annotations

from functools import lru_cache

from evalbus_server.model.event import ContentPurged, Event, Fact, LimitsChanged, StateChanged, TrialsEnded
from evalbus_server.model.run import Counts, RunState, Verdict
from evalbus_server.store import rows
from evalbus_server.store.connection import Connection
from evalbus_server.store.documents import dumps, loads

INSERT_EVENT = rows.insert("event", "run, sequence, time, kind, body")
PAGE_OF_EVENTS = """
    SELECT sequence, time, kind, body FROM event WHERE run = :run AND sequence > :after ORDER BY sequence LIMIT :limit
"""


def page(connection: Connection, run: int, *, after: int, limit: int) -> list[Event]:
    """Events of a run in order, those behind the number *after*."""
    found = connection.rows(PAGE_OF_EVENTS, {"run": run, "after": after, "limit": limit})
    return [Event(sequence, time, _read(kind, body)) for sequence, time, kind, body in found]


def kind_of(fact: Fact) -> str:
    """What the column `kind` says."""
    match fact:
        case StateChanged():
            return "state"
        case TrialsEnded():
            return "trials"
        case LimitsChanged():
            return "limits"
        case ContentPurged():
            return "purge"


def body_of(fact: Fact) -> str:
    """What the column `body` says."""
    counts = fact.counts
    document = {"counts": [counts.planned, counts.passed, counts.failed, counts.errored, counts.skipped]}
    if isinstance(fact, TrialsEnded):
        return dumps({"trials": fact.trials, **document})
    if isinstance(fact, LimitsChanged):
        return dumps({"limits": fact.settings, **document})
    if isinstance(fact, ContentPurged):
        return dumps({"trials": fact.trials, **document})
    return dumps({"state": fact.state, "reason": fact.reason, "verdict": fact.verdict, **document})


@lru_cache(maxsize=64)
def _read(kind: str, body: str) -> Fact:
    """The fact; watchers of one run read the same ones at about the same time."""
    document = loads(body)
    counts = Counts(*document["counts"])
    if kind == "trials":
        outcomes = rows.OUTCOMES
        return TrialsEnded(tuple((trial, outcomes[number]) for trial, number in document["trials"]), counts)
    if kind == "limits":
        return LimitsChanged(tuple((path, value) for path, value in document["limits"]), counts)
    if kind == "purge":
        return ContentPurged(tuple(document["trials"]), counts)
    verdict = document["verdict"]
    return StateChanged(
        RunState(document["state"]), counts, document["reason"], None if verdict is None else Verdict(verdict)
    )
