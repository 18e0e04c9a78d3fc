"""An experiment written in the words of an experiment file, as a message. What the values mean is the server's to judge."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from google.protobuf.duration_pb2 import Duration

from evalbus import _json, wire
from evalbus._adapted import is_adapted
from evalbus._errors import CallFailed
from evalbus._item import Item
from evalbus._output import Message, Output
from evalbus.v1 import experiment_pb2 as pb

_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_INIT = re.compile(r"^\w+\.__init__\(\) ")
_PART = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_SCORERS_FROM = {"run": pb.SCORERS_FROM_RUN, "items": pb.SCORERS_FROM_ITEMS}
_SAMPLES = {"always": 1.0, "never": 0.0}
_SEVERITIES = {"error": pb.SEVERITY_ERROR, "warn": pb.SEVERITY_WARN}


def experiment_to_proto(document: Mapping[str, Any]) -> pb.Experiment:
    """The message for an experiment as plain data.

    Raises:
        CallFailed: EXPERIMENT_INVALID: a key is not known, or a value has another type than its field.
    """
    part = _Part(document, "")
    message = pb.Experiment(name=part.text("name"), description=part.text("description"))
    _dataset(part.inner("dataset"), message.dataset)
    target = part.take("target")
    if target not in (None, "none"):
        use = _Part(target, "target")
        message.target.CopyFrom(_plugin(use))
        use.end()
    written = document.get("scorers") is not None
    for index, scorer in enumerate(part.many("scorers")):
        message.scorers.append(_scorer(_Part(scorer, f"scorers[{index}]")))
    message.scorers_from = _scorers_from(part, written=written)
    message.cache = part.flag("cache")
    epochs = part.take("epochs")
    if epochs is not None:
        inner = _Part(epochs if isinstance(epochs, Mapping) else {"count": epochs}, "epochs")
        message.epochs.CopyFrom(pb.Epochs(count=inner.whole("count", 1), reducer=inner.text("reducer")))
        inner.end()
    if "limits" in document:
        message.limits.CopyFrom(_limits(part.inner("limits")))
    for index, criterion in enumerate(part.many("criteria")):
        message.criteria.append(_criterion(_Part(criterion, f"criteria[{index}]")))
    message.tags.extend(part.texts("tags"))
    message.metadata = part.json("metadata")
    if "keep" in document:
        message.keep.CopyFrom(_keep(part.inner("keep")))
    part.end()
    return message


class _Part:
    """A mapping of the document: keys are taken out of it one by one, and what is left over is not known."""

    def __init__(self, data: Any, where: str) -> None:
        self.where = where
        if not isinstance(data, Mapping):
            raise self.fault("", f"must be a mapping, not {type(data).__name__}")
        self._data = dict(data)
        self._known: list[str] = []

    def take(self, key: str) -> Any:
        self._known.append(key)
        return self._data.pop(key, None)

    def fault(self, key: str, text: str) -> CallFailed:
        path = ".".join(filter(None, (self.where, key))) or "experiment"
        return CallFailed("EXPERIMENT_INVALID", f"{path}: {text}", "INVALID_ARGUMENT")

    def end(self) -> None:
        for key in self._data:
            near = difflib.get_close_matches(str(key), self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(self._known)}"
            raise self.fault(str(key), f"unknown key; {hint}")

    def inner(self, key: str) -> _Part:
        data = self.take(key)
        return _Part({} if data is None else data, f"{self.where}.{key}" if self.where else key)

    def many(self, key: str) -> list[Any]:
        value = self.take(key)
        if value is None:
            return []
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise self.fault(key, f"must be a list, not {type(value).__name__}")
        return list(value)

    def text(self, key: str) -> str:
        value = self.take(key)
        if value is not None and not isinstance(value, str):
            raise self.fault(key, f"must be text, not {type(value).__name__}")
        return value or ""

    def texts(self, key: str) -> list[str]:
        values = self.many(key)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self.fault(f"{key}[{index}]", f"must be text, not {type(value).__name__}")
        return values

    def whole(self, key: str, default: int | None = None) -> Any:
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(key, f"must be a whole number, not {value!r}")
        return value

    def number(self, key: str) -> float | None:
        value = self.take(key)
        return None if value is None else self.finite(key, value)

    def finite(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fault(key, f"must be a finite number, not {value!r}")
        return float(value)

    def sampling(self, key: str) -> float | None:
        """A share, or the word for all or none."""
        value = self.take(key)
        if isinstance(value, str):
            if value not in _SAMPLES:
                raise self.fault(key, f"must be always, never, or a share from 0 to 1, not {value!r}")
            return _SAMPLES[value]
        return None if value is None else self.finite(key, value)

    def flag(self, key: str) -> bool:
        value = self.take(key)
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, f"must be true or false, not {value!r}")
        return bool(value)

    def duration(self, key: str) -> Duration | None:
        value = self.take(key)
        if value is None:
            return None
        parts = re.findall(_PART, value, re.ASCII) if isinstance(value, str) else []
        if not parts or "".join(number + unit for number, unit in parts) != value.strip():
            raise self.fault(key, f"must be a length of time such as 60s or 5m, not {value!r}")
        return wire.duration_to_proto(float(sum(Decimal(number) * _UNITS[unit] for number, unit in parts)))

    def json(self, key: str) -> str:
        value = self.take(key)
        if not value:
            return ""
        if not isinstance(value, Mapping):
            raise self.fault(key, f"must be a mapping, not {type(value).__name__}")
        try:
            return _json.dumps(dict(value))
        except (TypeError, ValueError) as error:
            raise self.fault(key, f"has no form in JSON: {error}") from None

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.take(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.fault(key, f"must be a mapping, not {type(value).__name__}")
        return value or {}

    def numbers(self, key: str) -> list[pb.ScoreNumber]:
        """A number for all scores, or a map by score."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, Mapping):
            return [pb.ScoreNumber(value=self.finite(key, value))]
        return [
            pb.ScoreNumber(score=str(score), value=self.finite(f"{key}.{score}", each)) for score, each in value.items()
        ]


_OF_FILES = ("path", "command", "fields", "format", "delimiter", "encoding", "ids", "join", "from", "shuffle_choices")
"""Keys of a dataset that say how a file is read, which a client does not do."""


def _dataset(part: _Part, message: pb.DatasetSelection) -> None:
    for key in _OF_FILES:
        if part.take(key) is not None:
            raise part.fault(key, "a client does not read files; upload the items, then name the dataset")
    _source(part, message)
    message.items.extend(part.texts("items"))
    message.tags.extend(part.texts("tags"))
    scorers = part.take("scorers")
    if scorers is not None:
        message.scorers.names.extend(_Part({"scorers": scorers}, part.where).texts("scorers"))
        message.scorers.SetInParent()
    for key in ("limit", "shuffle"):
        number = part.whole(key)
        if number is not None:
            setattr(message, key, number)
    part.end()


def _source(part: _Part, message: pb.DatasetSelection) -> None:
    name, version, records = part.text("name"), part.whole("version"), part.many("records")
    if records:
        for key, value in (("name", name), ("version", version)):
            if value:
                raise part.fault(key, "goes with a stored dataset, not with records; leave one of them out")
        for index, record in enumerate(records):
            key = f"records[{index}]"
            item = _item(part, key, record)
            try:
                message.inline.items.append(wire.item_to_proto(item))
            except AttributeError as error:  # plain data where a class of the SDK is meant
                raise part.fault(
                    key, f"{error}; build its parts with the classes of evalbus, such as ToolCall"
                ) from None
        return
    message.stored.name = name
    if version is not None:
        message.stored.version = version


def _scorers_from(part: _Part, *, written: bool) -> pb.ScorersFrom.ValueType:
    word = part.text("scorers_from") or ("run" if written else "items")
    if word not in _SCORERS_FROM:
        raise part.fault("scorers_from", f"must be run or items, not {word!r}")
    return _SCORERS_FROM[word]


def _item(part: _Part, key: str, record: Any) -> Item:
    if isinstance(record, Item):
        return record
    if not isinstance(record, Mapping):
        raise part.fault(key, f"must be an Item or a mapping, not {type(record).__name__}")
    fields = dict(record)
    try:
        said, messages = fields.get("output"), fields.get("messages")
        if said is not None and not isinstance(said, Output):
            fields["output"] = Output(**said) if isinstance(said, Mapping) else Output(said)
        if messages is not None:
            fields["messages"] = [Message(**each) if isinstance(each, Mapping) else each for each in messages]
        return Item(**fields)
    except (TypeError, ValueError) as error:
        raise part.fault(key, _INIT.sub("", str(error))) from None


def _plugin(part: _Part) -> pb.PluginUse:
    message = pb.PluginUse(plugin=part.text("plugin"), settings=part.json("settings"))
    address, command, builtin = part.text("address"), part.texts("command"), part.text("use")
    token, tls, environment = part.text("token"), part.take("tls"), part.mapping("env")
    start_limit, python = part.duration("start_limit"), part.text("python")
    ways = [key for key, way in (("use", builtin), ("command", command), ("address", address)) if way]
    if len(ways) != 1:
        raise part.fault("", "needs exactly one of use, command and address")
    adapted = is_adapted(builtin)
    for key, given, fits, needs in (
        ("env", environment, bool(command) or adapted, f"command, not with {ways[0]}"),
        ("tls", tls is not None, bool(address), f"address, not with {ways[0]}"),
        ("token", token, bool(address), f"address, not with {ways[0]}"),
        ("python", python, adapted, "a scorer of another library in use"),
    ):
        if given and not fits:
            raise part.fault(key, f"goes with {needs}; leave it out")
    if address:
        message.address.target = address
        message.address.token = token
        if tls is not None:
            inner = _Part({} if tls is True else tls, f"{part.where}.tls")
            message.address.tls.root_certificates = inner.text("root_certificates")
            message.address.tls.server_name = inner.text("server_name")
            message.address.tls.SetInParent()
            inner.end()
    elif command:
        message.command.argv.extend(command)
        _process(message.command, environment, start_limit)
    elif adapted:
        message.adapter.use, message.adapter.python = builtin, python
        _process(message.adapter, environment, start_limit)
    else:
        message.builtin = builtin
    return message


def _process(message: pb.Command | pb.Adapter, environment: Mapping[str, Any], start_limit: Duration | None) -> None:
    for name, value in environment.items():
        message.environment.add(name=str(name), value=str(value))
    if start_limit is not None:
        message.start_limit.CopyFrom(start_limit)


def _scorer(part: _Part) -> pb.ScorerUse:
    message = pb.ScorerUse(
        name=part.text("name"),
        thresholds=part.numbers("threshold"),
        weights=part.numbers("weight"),
        concurrency=part.whole("concurrency"),
        timeout=part.duration("timeout"),
        sampling=part.sampling("sampling"),
        against=part.text("against"),
    )
    for name, path in part.mapping("map").items():
        message.map.add(input=str(name), path=str(path))
    for index, metric in enumerate(part.many("metrics")):
        each = {"use": metric} if isinstance(metric, str) else metric
        message.metrics.append(_metric(_Part(each, f"{part.where}.metrics[{index}]")))
    message.plugin.CopyFrom(_plugin(part))
    part.end()
    return message


def _metric(part: _Part) -> pb.MetricUse:
    message = pb.MetricUse(use=part.text("use"), name=part.text("name"), settings=part.json("settings"))
    for name, path in part.mapping("map").items():
        message.map.add(input=str(name), path=str(path))
    part.end()
    return message


def _limits(part: _Part) -> pb.Limits:
    message = pb.Limits(
        concurrency=part.whole("concurrency"),
        timeout=part.duration("timeout"),
        trial_timeout=part.duration("trial_timeout"),
        silence=part.duration("silence"),
        deadline=part.duration("deadline"),
        retries=part.whole("retries"),
        tokens=part.whole("tokens"),
        currency=part.text("currency"),
    )
    cost = part.number("cost")
    if cost is not None:
        message.cost_micros = round(Decimal(repr(cost)) * 1_000_000)
    errors = part.take("max_errors")
    if errors is not None:
        message.max_errors.CopyFrom(_error_limit(part.fault, errors))
    trial = part.take("trial")
    if trial is not None:
        inner = _Part(trial, f"{part.where}.trial")
        for key in ("messages", "tokens", "steps"):
            value = inner.whole(key)
            if value is not None:
                setattr(message.trial, key, value)
        inner.end()
    pool = part.take("pool")
    if pool is not None:
        inner = _Part(pool, f"{part.where}.pool")
        message.pool.CopyFrom(pb.PoolUse(name=inner.text("name"), concurrency=inner.whole("concurrency", 0)))
        inner.end()
    part.end()
    return message


def _keep(part: _Part) -> pb.Keep:
    message = pb.Keep()
    for key in ("outputs", "scores"):
        value = part.take(key)
        if value is not None:
            if not isinstance(value, bool):
                raise part.fault(key, f"must be true or false, not {value!r}")
            setattr(message, key, value)
    part.end()
    return message


def _error_limit(fault: Callable[[str, str], CallFailed], value: Any) -> pb.ErrorLimit:
    if isinstance(value, int) and not isinstance(value, bool):
        return pb.ErrorLimit(count=value)
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?%", value):
        return pb.ErrorLimit(share=float(Decimal(value[:-1]) / 100))
    raise fault("max_errors", f"must be a count such as 20 or a share such as 50%, not {value!r}")


def _criterion(part: _Part) -> pb.Criterion:
    severity = part.text("severity") or "error"
    if severity not in _SEVERITIES:
        raise part.fault("severity", f"must be error or warn, not {severity!r}")
    message = pb.Criterion(
        metric=part.text("metric"),
        scorer=part.text("scorer"),
        min=part.number("min"),
        max=part.number("max"),
        label=part.text("label"),
        severity=_SEVERITIES[severity],
        min_coverage=part.number("min_coverage"),
        baseline=part.text("baseline"),
        max_drop=part.number("max_drop"),
    )
    part.end()
    return message
