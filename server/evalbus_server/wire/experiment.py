"""Experiments <-> messages. A message is turned into the words of an experiment file, so that one schema judges both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from google.protobuf.duration_pb2 import Duration

from evalbus import ContractBroken, Item, _json
from evalbus._adapted import is_adapted
from evalbus.v1 import experiment_pb2 as pb
from evalbus.v1 import item_pb2
from evalbus.wire import duration_from_proto, duration_to_proto, fill_item, item_from_proto
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.bounds import Criterion, Keep, Limits, TrialBounds
from evalbus_server.model.dataset_use import DatasetUse
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.plugin_use import MetricUse, PluginUse, ScorerUse
from evalbus_server.model.written import ErrorLimit, format_duration
from evalbus_server.wire.contentform import item_document

MOST_INLINE = 1000
"""Items that may stand in an experiment itself …"""
LARGEST_INLINE = 1 << 20
"""… and their bytes."""

Document = dict[str, Any]

_SCORERS_FROM = {"run": pb.SCORERS_FROM_RUN, "items": pb.SCORERS_FROM_ITEMS}

# --- to messages ------------------------------------------------------------------------------------------------


def experiment_to_proto(experiment: Experiment, items: Sequence[Item] = ()) -> pb.Experiment:
    """An experiment as a message. *items* are those of its records, if it has them in place.

    Raises:
        Invalid: it reads a file or the output of a command: its items are uploaded first, and named instead.
    """
    message = pb.Experiment(
        name=experiment.name,
        description=experiment.description,
        dataset=selection_to_proto(experiment.dataset, items),
        scorers=[_scorer_to_proto(scorer) for scorer in experiment.scorers],
        scorers_from=_SCORERS_FROM[experiment.scorers_from],
        cache=experiment.cache,
        epochs=pb.Epochs(count=experiment.epochs.count, reducer=experiment.epochs.reducer),
        limits=_limits_to_proto(experiment.limits),
        criteria=[criterion_to_proto(criterion) for criterion in experiment.criteria],
        tags=experiment.tags,
        metadata=_object_text(experiment.metadata),
    )
    if experiment.keep != Keep():
        message.keep.CopyFrom(pb.Keep(outputs=experiment.keep.outputs, scores=experiment.keep.scores))
    if experiment.target is not None:
        message.target.CopyFrom(_plugin_to_proto(experiment.target))
    return message


def selection_to_proto(dataset: DatasetUse, items: Sequence[Item] = ()) -> pb.DatasetSelection:
    """Which items of which dataset.

    Raises:
        Invalid: as `experiment_to_proto`.
    """
    message = pb.DatasetSelection(items=dataset.items, limit=dataset.limit, tags=dataset.tags, shuffle=dataset.shuffle)
    if dataset.scorers is not None:
        message.scorers.CopyFrom(item_pb2.ScorerNames(names=dataset.scorers))
    if dataset.source == "stored":
        message.stored.CopyFrom(pb.DatasetRef(name=dataset.name or "", version=dataset.version))
    elif dataset.source == "records":
        message.inline.SetInParent()
        for item in items:
            fill_item(message.inline.items.add(), item)
    else:
        raise Invalid(
            Reason.EXPERIMENT_INVALID,
            f"dataset.{dataset.source}: a server reads no dataset of its caller; upload the items, then name them",
            field=f"dataset.{dataset.source}",
        )
    return message


def _plugin_to_proto(use: PluginUse) -> pb.PluginUse:
    message = pb.PluginUse(plugin=use.plugin, settings=_object_text(use.settings))
    if use.address is not None:
        message.address.target = use.address
        message.address.token = use.token
        if use.tls is not None:
            message.address.tls.CopyFrom(
                pb.Tls(root_certificates=use.tls.root_certificates, server_name=use.tls.server_name)
            )
    elif use.command is not None:
        message.command.CopyFrom(
            pb.Command(
                argv=use.command,
                folder=use.folder,
                environment=_environment(use),
                start_limit=duration_to_proto(use.start_limit),
            )
        )
    elif is_adapted(use.use):
        message.adapter.CopyFrom(
            pb.Adapter(
                use=use.use or "",
                python=use.python,
                folder=use.folder,
                environment=_environment(use),
                start_limit=duration_to_proto(use.start_limit),
            )
        )
    else:
        message.builtin = use.use or ""
    return message


def _environment(use: PluginUse) -> list[pb.EnvironmentVariable]:
    return [pb.EnvironmentVariable(name=name, value=value) for name, value in use.env.items()]


def _scorer_to_proto(scorer: ScorerUse) -> pb.ScorerUse:
    return pb.ScorerUse(
        name=scorer.name or "",
        plugin=_plugin_to_proto(scorer),
        thresholds=_numbers_to_proto(scorer.threshold),
        weights=_numbers_to_proto(scorer.weight),
        map=[pb.Mapping(input=name, path=path) for name, path in scorer.map.items()],
        concurrency=scorer.concurrency,
        timeout=_duration(scorer.timeout),
        sampling=scorer.sampling,
        metrics=[_metric_to_proto(metric) for metric in scorer.metrics],
        against=scorer.against or "",
    )


def _metric_to_proto(metric: MetricUse) -> pb.MetricUse:
    return pb.MetricUse(
        use=metric.use,
        name=metric.name or "",
        settings=_object_text(metric.settings),
        map=[pb.Mapping(input=name, path=path) for name, path in metric.map.items()],
    )


def _numbers_to_proto(numbers: float | dict[str, float] | None) -> list[pb.ScoreNumber]:
    if numbers is None:
        return []
    by_score = numbers if isinstance(numbers, dict) else {"": numbers}
    return [pb.ScoreNumber(score=score, value=value) for score, value in by_score.items()]


def _limits_to_proto(limits: Limits) -> pb.Limits:
    message = pb.Limits(
        concurrency=limits.concurrency,
        timeout=_duration(limits.timeout),
        trial_timeout=_duration(limits.trial_timeout),
        silence=_duration(limits.silence),
        deadline=_duration(limits.deadline),
        retries=limits.retries,
        tokens=limits.tokens,
        cost_micros=limits.cost_micros,
        currency=limits.currency,
    )
    if limits.max_errors is not None:
        if limits.max_errors.count is not None:
            message.max_errors.count = limits.max_errors.count
        elif limits.max_errors.share is not None:
            message.max_errors.share = limits.max_errors.share
    if limits.trial != TrialBounds():
        trial = limits.trial
        message.trial.CopyFrom(item_pb2.TrialLimits(messages=trial.messages, tokens=trial.tokens, steps=trial.steps))
    if limits.pool is not None:
        message.pool.CopyFrom(pb.PoolUse(name=limits.pool.name, concurrency=limits.pool.concurrency))
    return message


def criterion_to_proto(criterion: Criterion) -> pb.Criterion:
    """A criterion as a message."""
    return pb.Criterion(
        metric=criterion.metric,
        scorer=criterion.scorer or "",
        min=criterion.min,
        max=criterion.max,
        label=criterion.label,
        severity=pb.SEVERITY_WARN if criterion.severity == "warn" else pb.SEVERITY_ERROR,
        min_coverage=criterion.min_coverage,
        baseline=criterion.baseline or "",
        max_drop=criterion.max_drop,
    )


def _duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else duration_to_proto(seconds)


def _object_text(document: Document) -> str:
    return _json.dumps(document) if document else ""


# --- from messages ----------------------------------------------------------------------------------------------


def experiment_from_proto(message: pb.Experiment) -> tuple[Experiment, tuple[Item, ...]]:
    """A message as an experiment, and the items that it brings in place.

    Paths in errors are those of an experiment file (`scorers[0].threshold`).

    Raises:
        Invalid: a field breaks a rule; the message is one line with the path of each fault.
    """
    dataset, items = _dataset_from_proto(message)
    document: Document = {
        "name": message.name,
        "description": message.description,
        "dataset": dataset,
        "target": _plugin_from_proto(message.target, "target") if message.HasField("target") else None,
        "scorers": [_scorer_from_proto(scorer, f"scorers[{index}]") for index, scorer in enumerate(message.scorers)],
        "scorers_from": _scorers_from(message),
        "cache": message.cache,
        "epochs": _set_fields(message.epochs, "reducer") | {"count": message.epochs.count}
        if message.HasField("epochs")
        else {},
        "limits": _limits_from_proto(message.limits),
        "criteria": [_criterion_document(criterion) for criterion in message.criteria],
        "tags": list(message.tags),
        "metadata": _object(message.metadata, "metadata"),
        "keep": _set_fields(message.keep, "outputs", "scores"),
    }
    return Experiment.parse(document), items


def _scorers_from(message: pb.Experiment) -> str:
    by_number = {number: word for word, number in _SCORERS_FROM.items()}
    return by_number.get(message.scorers_from, "run" if message.scorers else "items")


def _dataset_from_proto(message: pb.Experiment) -> tuple[Document | None, tuple[Item, ...]]:
    if not message.HasField("dataset"):
        raise _invalid("dataset", "missing")
    selection = message.dataset
    document: Document = {"items": list(selection.items), "tags": list(selection.tags)}
    document |= _set_fields(selection, "limit", "shuffle")
    if selection.HasField("scorers"):
        document["scorers"] = list(selection.scorers.names)
    items: tuple[Item, ...] = ()
    match selection.WhichOneof("source"):
        case "stored":
            document |= {"name": selection.stored.name} | _set_fields(selection.stored, "version")
        case "inline":
            items = _inline(selection.inline)
            document["records"] = [item_document(item) for item in items]
        case _:
            raise _invalid("dataset", "says no items; name a stored dataset, or send items in place")
    return document, items


def _inline(message: pb.InlineItems) -> tuple[Item, ...]:
    if len(message.items) > MOST_INLINE or message.ByteSize() > LARGEST_INLINE:
        text = f"at most {MOST_INLINE:,} items and 1 MiB may stand in an experiment; upload them as a dataset instead"
        raise _invalid("dataset.records", text)
    items: list[Item] = []
    places: dict[str, int] = {}
    for index, each in enumerate(message.items):
        where = f"dataset.records[{index}]"
        try:
            item = item_from_proto(each)
        except ContractBroken as error:
            raise _invalid(where, str(error)) from None
        first = places.setdefault(item.id, index)
        if first != index:
            raise _invalid(f"{where}.id", f'the id "{item.id}" is already that of dataset.records[{first}]')
        items.append(item)
    return tuple(items)


def _plugin_from_proto(message: pb.PluginUse, where: str) -> Document:
    document: Document = {"plugin": message.plugin, "settings": _object(message.settings, f"{where}.settings")}
    match message.WhichOneof("reach"):
        case "address":
            document |= {"address": message.address.target, "token": message.address.token}
            if message.address.HasField("tls"):
                tls = message.address.tls
                document["tls"] = {"root_certificates": tls.root_certificates, "server_name": tls.server_name}
        case "command":
            document |= {"command": list(message.command.argv)} | _process(message.command, where)
        case "adapter":
            adapter = message.adapter
            if not is_adapted(adapter.use):
                raise _invalid(f"{where}.use", f"{adapter.use!r} is no scorer of another library")
            document |= {"use": adapter.use, "python": adapter.python} | _process(adapter, where)
        case "builtin":
            document["use"] = message.builtin
    return document


def _process(message: pb.Command | pb.Adapter, where: str) -> Document:
    """What commands and adapters say of their process."""
    _refuse_doubles([variable.name for variable in message.environment], f"{where}.env")
    return {
        "folder": message.folder,
        "env": {variable.name: variable.value for variable in message.environment},
    } | _durations(message, "start_limit")


def _scorer_from_proto(message: pb.ScorerUse, where: str) -> Document:
    _refuse_doubles([mapping.input for mapping in message.map], f"{where}.map")
    return (
        _plugin_from_proto(message.plugin, where)
        | {
            "name": message.name or None,
            "threshold": _numbers_from_proto(message.thresholds, f"{where}.threshold"),
            "weight": _numbers_from_proto(message.weights, f"{where}.weight"),
            "map": {mapping.input: mapping.path for mapping in message.map},
            "metrics": [
                _metric_from_proto(metric, f"{where}.metrics[{index}]") for index, metric in enumerate(message.metrics)
            ],
            "against": message.against or None,
        }
        | _set_fields(message, "concurrency", "sampling")
        | _durations(message, "timeout")
    )


def _metric_from_proto(message: pb.MetricUse, where: str) -> Document:
    _refuse_doubles([mapping.input for mapping in message.map], f"{where}.map")
    return {
        "use": message.use,
        "name": message.name or None,
        "settings": _object(message.settings, f"{where}.settings"),
        "map": {mapping.input: mapping.path for mapping in message.map},
    }


def _numbers_from_proto(messages: Sequence[pb.ScoreNumber], where: str) -> float | dict[str, float] | None:
    _refuse_doubles([number.score for number in messages], where)
    if not messages:
        return None
    if len(messages) == 1 and not messages[0].score:
        return messages[0].value
    return {number.score: number.value for number in messages}


def _limits_from_proto(message: pb.Limits) -> Document:
    document = _set_fields(message, "concurrency", "retries", "tokens") | _durations(
        message, "timeout", "trial_timeout", "silence", "deadline"
    )
    if message.currency:
        document["currency"] = message.currency
    if message.HasField("cost_micros"):
        document["cost"] = float(Decimal(message.cost_micros) / 1_000_000)
    if message.HasField("max_errors"):
        limit = message.max_errors
        match limit.WhichOneof("limit"):
            case "count":
                document["max_errors"] = limit.count
            case "share":
                if not 0 <= limit.share <= 1:
                    raise _invalid("limits.max_errors", f"a share is from 0 to 1, not {limit.share}")
                document["max_errors"] = ErrorLimit(share=limit.share)
            case _:
                raise _invalid("limits.max_errors", "says neither a count nor a share; leave it out for no limit")
    if message.HasField("trial"):
        document["trial"] = _set_fields(message.trial, "messages", "tokens", "steps")
    if message.HasField("pool"):
        document["pool"] = {"name": message.pool.name, "concurrency": message.pool.concurrency}
    return document


def criterion_from_proto(message: pb.Criterion) -> Criterion:
    """A message as a criterion that a server has checked already."""
    return Criterion.model_validate(_criterion_document(message))


def _criterion_document(message: pb.Criterion) -> Document:
    return {
        "metric": message.metric,
        "scorer": message.scorer or None,
        "label": message.label,
        "severity": "warn" if message.severity == pb.SEVERITY_WARN else "error",
        "baseline": message.baseline or None,
    } | _set_fields(message, "min", "max", "min_coverage", "max_drop")


def _set_fields(message: Any, *names: str) -> Document:
    """Those of the fields that are set; the others have their defaults."""
    descriptor = message.DESCRIPTOR.fields_by_name
    return {
        name: getattr(message, name)
        for name in names
        if (message.HasField(name) if descriptor[name].has_presence else getattr(message, name))
    }


def _durations(message: Any, *names: str) -> Document:
    """Those of the lengths of time that are set, as they stand in a file."""
    return {
        name: format_duration(duration_from_proto(getattr(message, name))) for name in names if message.HasField(name)
    }


def _object(text: str, where: str) -> Document:
    if not text:
        return {}
    try:
        document = _json.loads(text)
    except ValueError as error:
        raise _invalid(where, f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _invalid(where, "must be a JSON object")
    return document


def _refuse_doubles(names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _invalid(where, f"{name!r} comes twice" if name else "there are two entries for all scores")
        seen.add(name)


def _invalid(field: str, text: str) -> Invalid:
    return Invalid(Reason.EXPERIMENT_INVALID, f"{field}: {text}", field=field)
