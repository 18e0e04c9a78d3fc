"""What a watcher is told <-> messages: events, and what has no number between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from evalbus.v1 import run_pb2
from evalbus.wire import time_from_proto, time_to_proto
from evalbus_server.model.event import ContentPurged, Event, Fact, LimitsChanged, StateChanged, TrialsEnded
from evalbus_server.model.run import Counts, Outcome, Run, RunState, Verdict
from evalbus_server.wire.run import counts_from_proto, counts_to_proto, enum_of, run_to_proto, verdict_number

Means: TypeAlias = Iterable[tuple[str, int, float | None]]
"""By score key: values so far, and their mean."""


class Going(Protocol):
    """How a run is going, as the line says it."""

    @property
    def counts(self) -> Counts: ...
    @property
    def answered(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def means(self) -> Sequence[tuple[str, int, float | None]]: ...


def event_to_proto(event: Event) -> run_pb2.Event:
    """A stored event as a message."""
    message = run_pb2.Event(sequence=event.sequence, time=time_to_proto(event.time))
    fact = event.fact
    if isinstance(fact, StateChanged):
        message.state.CopyFrom(
            run_pb2.StateChanged(
                state=int(fact.state),  # type: ignore[arg-type]  # the numbers are those of the contract
                reason=fact.reason,
                verdict=verdict_number(fact.verdict),  # type: ignore[arg-type]
                counts=counts_to_proto(fact.counts),
            )
        )
    elif isinstance(fact, LimitsChanged):
        changed = message.limits
        changed.counts.CopyFrom(counts_to_proto(fact.counts))
        for path, value in fact.settings:
            changed.settings.add(path=path, value=value)
    elif isinstance(fact, ContentPurged):
        message.purge.trial_ids.extend(fact.trials)
        message.purge.counts.CopyFrom(counts_to_proto(fact.counts))
    else:
        ended = message.trials
        ended.counts.CopyFrom(counts_to_proto(fact.counts))
        for trial_id, outcome in fact.trials:
            ended.trials.add(trial_id=trial_id, outcome=int(outcome))
    return message


def event_from_proto(message: run_pb2.Event) -> Event | None:
    """A message as an event; None for a kind that a later server has and this program does not know."""
    fact: Fact
    match message.WhichOneof("kind"):
        case "state":
            changed = message.state
            fact = StateChanged(
                enum_of(RunState, changed.state, RunState.QUEUED),
                counts_from_proto(changed.counts),
                changed.reason,
                enum_of(Verdict, changed.verdict, None),
            )
        case "trials":
            fact = TrialsEnded(
                tuple(
                    (each.trial_id, enum_of(Outcome, each.outcome, Outcome.ERRORED)) for each in message.trials.trials
                ),
                counts_from_proto(message.trials.counts),
            )
        case "limits":
            settings = tuple((each.path, each.value) for each in message.limits.settings)
            fact = LimitsChanged(settings, counts_from_proto(message.limits.counts))
        case "purge":
            fact = ContentPurged(tuple(message.purge.trial_ids), counts_from_proto(message.purge.counts))
        case _:
            return None
    return Event(message.sequence, time_from_proto(message.time), fact)


def snapshot_to_proto(run: Run, means: Means = ()) -> run_pb2.Snapshot:
    """A run at its last event as a message."""
    return run_pb2.Snapshot(run=run_to_proto(run), scores=_means_to_proto(means))


def progress_to_proto(going: Going) -> run_pb2.RunProgress:
    """How a run is going as a message."""
    return run_pb2.RunProgress(
        counts=counts_to_proto(going.counts),
        answered=going.answered,
        in_flight=going.in_flight,
        scores=_means_to_proto(going.means),
    )


def _means_to_proto(means: Means) -> list[run_pb2.ScoreProgress]:
    return [run_pb2.ScoreProgress(key=key, n=n, mean=mean) for key, n, mean in means]
