"""Descriptions of plugins, openings and progress to and from messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from evalbus._errors import ContractBroken
from evalbus._plugin import (
    Isolation,
    MetricDeclaration,
    Need,
    Open,
    PluginInfo,
    ProgressKind,
    Purpose,
    Ready,
    ScorerInfo,
    TargetInfo,
    TrialProgress,
)
from evalbus._score import Direction, ScoreDeclaration
from evalbus.v1 import plugin_pb2, score_pb2
from evalbus.wire._value import (
    duration_from_proto,
    duration_to_proto,
    enum_of,
    object_from_proto,
    usage_from_proto,
    usage_to_proto,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def declaration_to_proto(declaration: ScoreDeclaration) -> score_pb2.ScoreDeclaration:
    """A score declaration as a message."""
    return score_pb2.ScoreDeclaration(
        name=declaration.name,
        minimum=declaration.minimum,
        maximum=declaration.maximum,
        direction=int(declaration.direction),  # type: ignore[arg-type]
        unit=declaration.unit,
        description=declaration.description,
    )


def declaration_from_proto(message: score_pb2.ScoreDeclaration) -> ScoreDeclaration:
    """A message as a score declaration.

    Raises:
        ContractBroken: the range is not a range, or the name holds a dot.
    """
    minimum, maximum = _range(message, f"declared score {message.name!r}")
    if "." in message.name:
        raise ContractBroken(f"declared score {message.name!r}: a name holds no dot")
    return ScoreDeclaration(
        message.name,
        minimum,
        maximum,
        enum_of(Direction, message.direction, Direction.HIGHER_IS_BETTER),
        message.unit,
        message.description,
    )


def metric_declaration_to_proto(declaration: MetricDeclaration) -> score_pb2.MetricDeclaration:
    """A metric's declaration as a message."""
    return score_pb2.MetricDeclaration(
        name=declaration.name,
        minimum=declaration.minimum,
        maximum=declaration.maximum,
        direction=int(declaration.direction),  # type: ignore[arg-type]
        description=declaration.description,
    )


def metric_declaration_from_proto(message: score_pb2.MetricDeclaration) -> MetricDeclaration:
    """A message as a metric's declaration.

    Raises:
        ContractBroken: it has no proper name, or the range is not a range.
    """
    name = message.name
    if not name or len(name) > 100 or "." in name or _CONTROL.search(name):
        raise ContractBroken(
            f"declared metric {name[:100]!r}: a name has 1 to 100 characters, no dots, no control characters"
        )
    minimum, maximum = _range(message, f"declared metric {name!r}")
    direction = enum_of(Direction, message.direction, Direction.HIGHER_IS_BETTER)
    return MetricDeclaration(name, minimum, maximum, direction, message.description)


def _range(
    message: score_pb2.ScoreDeclaration | score_pb2.MetricDeclaration, what: str
) -> tuple[float | None, float | None]:
    minimum = message.minimum if message.HasField("minimum") else None
    maximum = message.maximum if message.HasField("maximum") else None
    if any(bound is not None and not math.isfinite(bound) for bound in (minimum, maximum)):
        raise ContractBroken(f"{what}: a bound is not finite; leave it out instead")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ContractBroken(f"{what}: minimum {minimum} is above maximum {maximum}")
    return minimum, maximum


def plugin_info_to_proto(info: PluginInfo) -> plugin_pb2.PluginInfo:
    """What a plugin says of itself as a message."""
    message = plugin_pb2.PluginInfo(
        name=info.name,
        version=info.version,
        digest=info.digest,
        sdk=info.sdk,
        language=info.language,
        lowest_revision=info.lowest_revision,
        highest_revision=info.highest_revision,
        capabilities=sorted(info.capabilities),
        max_in_flight=info.max_in_flight,
        settings_schema=info.settings_schema,
        description=info.description,
    )
    if isinstance(info.kind, TargetInfo):
        message.target.CopyFrom(plugin_pb2.TargetInfo(isolation=int(info.kind.isolation)))  # type: ignore[arg-type]
    else:
        message.scorer.CopyFrom(
            plugin_pb2.ScorerInfo(
                needs=[int(need) for need in info.kind.needs],  # type: ignore[misc]
                inputs=info.kind.inputs,
                deterministic=info.kind.deterministic,
                scores=[declaration_to_proto(declaration) for declaration in info.kind.scores],
                metrics=[metric_declaration_to_proto(declaration) for declaration in info.kind.metrics],
            )
        )
    return message


def plugin_info_from_proto(message: plugin_pb2.PluginInfo) -> PluginInfo:
    """A message as what a plugin says of itself.

    Raises:
        ContractBroken: it has no proper name or no kind, a scorer declares no score or one twice, or the schema is no JSON object.
    """
    if not message.name:
        raise ContractBroken("a plugin has no name")
    if len(message.name) > 100 or "." in message.name or _CONTROL.search(message.name):
        raise ContractBroken(
            f"plugin {message.name[:100]!r}: a name has 1 to 100 characters, no dots, no control characters"
        )
    which = message.WhichOneof("kind")
    kind: TargetInfo | ScorerInfo
    if which == "target":
        kind = TargetInfo(enum_of(Isolation, message.target.isolation, Isolation.SHARED))
    elif which == "scorer":
        kind = ScorerInfo(
            _declarations(message.scorer.scores, message.name),
            tuple(need for number in message.scorer.needs if (need := enum_of(Need, number, None)) is not None),
            tuple(message.scorer.inputs),
            message.scorer.deterministic,
            tuple(metric_declaration_from_proto(metric) for metric in message.scorer.metrics),
        )
        if len({metric.name for metric in kind.metrics}) != len(kind.metrics):
            raise ContractBroken(f"scorer {message.name!r} declares a metric twice")
        if not kind.scores:
            raise ContractBroken(f"scorer {message.name!r} declares no score")
    else:
        raise ContractBroken(f"plugin {message.name!r} says neither target nor scorer")
    return PluginInfo(
        message.name,
        kind,
        message.version,
        message.digest,
        message.sdk,
        message.language,
        message.lowest_revision,
        message.highest_revision,
        frozenset(message.capabilities),
        max(message.max_in_flight, 0),
        object_from_proto(message.settings_schema, f"settings schema of plugin {message.name!r}"),
        message.description,
    )


def _declarations(messages: Iterable[score_pb2.ScoreDeclaration], plugin: str) -> tuple[ScoreDeclaration, ...]:
    declared = tuple(declaration_from_proto(message) for message in messages)
    if len({declaration.name for declaration in declared}) != len(declared):
        raise ContractBroken(f"scorer {plugin!r} declares a score twice")
    return declared


def open_to_proto(opening: Open) -> plugin_pb2.Open:
    """The opening of a conversation as a message."""
    return plugin_pb2.Open(
        plugin=opening.plugin,
        revision=opening.revision,
        session_id=opening.session_id,
        run_id=opening.run_id,
        purpose=int(opening.purpose),  # type: ignore[arg-type]
        settings=opening.settings_json,
        tags=opening.tags,
        silence=None if opening.silence is None else duration_to_proto(opening.silence),
    )


def open_from_proto(message: plugin_pb2.Open) -> Open:
    """A message as the opening of a conversation."""
    return Open(
        message.plugin,
        message.revision,
        message.session_id,
        message.run_id,
        enum_of(Purpose, message.purpose, Purpose.OFFLINE),
        object_from_proto(message.settings, "settings"),
        tuple(message.tags),
        duration_from_proto(message.silence) if message.HasField("silence") else None,
    )


def ready_to_proto(ready: Ready) -> plugin_pb2.Ready:
    """Readiness as a message."""
    return plugin_pb2.Ready(
        max_in_flight=ready.max_in_flight, scores=[declaration_to_proto(declaration) for declaration in ready.scores]
    )


def ready_from_proto(message: plugin_pb2.Ready) -> Ready:
    """A message as readiness."""
    return Ready(max(message.max_in_flight, 0), _declarations(message.scores, "of this conversation"))


def progress_to_proto(progress: TrialProgress) -> plugin_pb2.TrialProgress:
    """News of a trial as a message."""
    return plugin_pb2.TrialProgress(
        trial_id=progress.trial_id,
        attempt=progress.attempt,
        kind=int(progress.kind),  # type: ignore[arg-type]
        steps=progress.steps,
        messages=progress.messages,
        usage=None if progress.usage is None else usage_to_proto(progress.usage),
        note=progress.note,
    )


def progress_from_proto(message: plugin_pb2.TrialProgress) -> TrialProgress:
    """A message as news of a trial."""
    return TrialProgress(
        message.trial_id,
        message.attempt,
        enum_of(ProgressKind, message.kind, ProgressKind.HEARTBEAT),
        message.steps,
        message.messages,
        usage_from_proto(message.usage) if message.HasField("usage") else None,
        message.note,
    )
