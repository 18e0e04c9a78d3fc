"""Builtins that are made of others, as an experiment says: `weighted_blend`, `all_of`, `cascade` and their like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evalbus import (
    FailureCategory,
    PluginInvalid,
    ScoreDeclaration,
    Scorer,
    ScoreTask,
    SettingsInvalid,
    TrialFailed,
    Value,
)
from evalbus._context import Ticket
from evalbus._definition import Call, Opened, Options
from evalbus._plugin import Open
from evalbus._settings import settings_type
from evalbus.kit import Combined, Part, part
from evalbus.kit._combined import Kind
from evalbus.kit._rules import ALL_OF, ANY_OF, BLEND, CASCADE, MOST_OF, NEGATE, THRESHOLD
from evalbus_server.errors import Invalid
from evalbus_server.model.faults import BUILTINS_LISTED, suggestion
from evalbus_server.scorer.mapping import Path, parse_path

Known = Mapping[str, Scorer[Any, Any]]


@dataclass(frozen=True, slots=True)
class PartSettings:
    """A scorer inside of another."""

    use: str
    name: str = ""
    score: str = ""
    settings: dict[str, Any] | None = None
    map: dict[str, str] | None = None
    weight: float = 1.0
    threshold: float | None = None
    accept: float | None = None
    reject: float | None = None


_PARTS = (
    "Names of builtins, or mappings: `use`, and if you like `name`, `score`, `settings`, `map`, and `weight` (in a "
    "blend), `threshold` (from which it passes; 1 without), `accept` and `reject` (in a cascade)."
)
_PART = "The name of a builtin, or a mapping: `use`, and if you like `score`, `settings` and `map`."


@dataclass(frozen=True, slots=True)
class TeamSettings:
    """Which scorers."""

    scorers: list[PartSettings | str] = field(metadata={"description": _PARTS})


@dataclass(frozen=True, slots=True)
class OneSettings:
    """Which scorer."""

    scorer: PartSettings | str = field(metadata={"description": _PART})


@dataclass(frozen=True, slots=True)
class ThresholdSettings:
    """Which scorer, and from which value it passes."""

    scorer: PartSettings | str = field(metadata={"description": _PART})
    at: float = field(metadata={"description": "The value from which it passes."})


class Combination(Scorer[Any, Any]):
    """A scorer that is made of others when its settings say which."""

    holds_threads = True

    def __init__(  # noqa: PLR0913  # made in one place, of a table
        self, name: str, kind: Kind, settings: type, known: Known, inputs: Sequence[str], about: str
    ) -> None:
        """A combination of those *known* by name, which get *inputs*."""

        async def judged(task: ScoreTask) -> None:
            """Stands for the function that a combination is not."""

        judged.__doc__ = about
        self._kind = kind
        self._known = known
        self._of = settings
        options = Options("1.0.0", about.partition("\n")[0], inputs=tuple(inputs), deterministic=True)
        super().__init__(judged, name, options, {})

    async def open(self, opening: Open) -> Opened:
        """Open a conversation with what the settings put together."""
        made = self._made(self._settings.read(opening.settings_json))
        try:
            opened = await made.open(replace(opening, settings_json=""))
        except SettingsInvalid as error:
            raise self._named(made, error) from None
        return replace(opened, state=(made, opened))

    def bind(self, opened: Opened, log: Callable[[str], None]) -> Call:
        """What asks them."""
        made, inner = opened.state
        call: Call = made.bind(inner, log)
        return call

    def result(self, returned: Any, ticket: Ticket) -> Any:
        """As a combination says."""
        return Combined.result(self, returned, ticket)  # type: ignore[arg-type]

    def release(self, opened: Opened) -> None:
        """Let go of what they hold."""
        made, inner = opened.state
        made.release(inner)

    def _find_settings(self, names: Mapping[str, Any]) -> Any:
        return settings_type(self._of, {}, self._owner)

    def _declared(self, settings: Any) -> tuple[ScoreDeclaration, ...]:
        made = self._made(settings)
        try:
            return made._declared({})
        except SettingsInvalid as error:
            raise self._named(made, error) from None

    def _made(self, settings: Any) -> Combined:
        single = self._kind.single
        asked = [settings.scorer] if single else settings.scorers
        parts = []
        for place, each in enumerate(asked):
            path = "settings.scorer" if single else f"settings.scorers[{place}]"
            one = PartSettings(each) if isinstance(each, str) else each
            parts.append(
                self._part(one, path, settings.at if isinstance(settings, ThresholdSettings) else one.threshold)
            )
        try:
            return Combined(self.name, parts, self._kind, self.options.version, waits=True)
        except PluginInvalid as error:
            path = "settings.scorer" if single else "settings.scorers"
            raise SettingsInvalid(f"{path}: {error}", path) from None

    def _part(self, asked: PartSettings, path: str, threshold: float | None) -> Part:
        scorer = self._known.get(asked.use)
        if scorer is None:
            known = sorted(self._known)
            raise SettingsInvalid(
                f"{path}.use: there is no builtin scorer {asked.use!r}{suggestion(asked.use, known, known, BUILTINS_LISTED)}",
                f"{path}.use",
            )
        try:
            return part(
                scorer,
                name=asked.name or None,
                score=asked.score,
                settings=asked.settings,
                inputs=_inputs(asked.map, scorer, f"{path}.map") if asked.map else None,
                weight=asked.weight,
                threshold=threshold,
                accept=asked.accept,
                reject=asked.reject,
            )
        except PluginInvalid as error:
            raise SettingsInvalid(f"{path}: {error}", path) from None

    def _named(self, made: Combined, error: SettingsInvalid) -> SettingsInvalid:
        """An error in the settings of a part, named as it is written here."""
        names = [each.name for each in made.parts]
        named = f"{error.field}.".removeprefix("settings.")
        place = 0 if self._kind.single else next((n for n, name in enumerate(names) if named.startswith(f"{name}.")), 0)
        before = "settings" if self._kind.single else f"settings.{names[place]}"
        path = "settings.scorer.settings" if self._kind.single else f"settings.scorers[{place}].settings"
        return SettingsInvalid(str(error).replace(before, path, 1), error.field.replace(before, path, 1))


def _inputs(paths: Mapping[str, str], scorer: Scorer[Any, Any], where: str) -> Callable[[ScoreTask], dict[str, Value]]:
    """The inputs of a part: those of the whole, and on top of them its own."""
    known = scorer.options.inputs
    found: dict[str, Path] = {}
    for name, path in paths.items():
        if name not in known:
            hint = suggestion(name, known, known) if known else "; it takes none"
            raise SettingsInvalid(f"{where}.{name}: {scorer.name} takes no such input{hint}", f"{where}.{name}")
        try:
            found[name] = parse_path(path)
        except Invalid as error:
            raise SettingsInvalid(f"{where}.{name}: {error}", f"{where}.{name}") from None

    def inputs(task: ScoreTask) -> dict[str, Value]:
        made = dict(task.inputs)
        for name, path in found.items():
            value = path.find(task.item, task.output, task.trial_id)
            if value is None:
                message = f"the mapped input {name!r} has no value: there is no {path}"
                raise TrialFailed(message, FailureCategory.INVALID, reason="INPUT_MISSING", retryable=False)
            made[name] = value
        return made

    return inputs


_ABOUT = {
    "weighted_blend": (
        BLEND,
        TeamSettings,
        """The weighted mean of several builtins: Σ weight · value / Σ weight over those that have a value.

    One that is SKIPPED leaves the denominator; if all are, so is the blend. One that cannot judge makes it ERRORED. What
    each said is in the metadata, under `components`.
    """,
    ),
    "all_of": (
        ALL_OF,
        TeamSettings,
        """1 if every one of several builtins passes its threshold, else 0.

    One that is SKIPPED takes no part; if all are, so is the score. One that misses decides, even if another could not judge.
    """,
    ),
    "any_of": (
        ANY_OF,
        TeamSettings,
        """1 if one of several builtins passes its threshold, else 0.

    One that is SKIPPED takes no part; if all are, so is the score. One that passes decides, even if another could not judge.
    """,
    ),
    "most_of": (
        MOST_OF,
        TeamSettings,
        """1 if more than half of several builtins pass their thresholds, else 0.

    Those that are SKIPPED take no part; if all are, so is the score. One that could not judge makes it ERRORED, unless
    the others decide without it.
    """,
    ),
    "cascade": (
        CASCADE,
        TeamSettings,
        """What the first of several builtins says that decides: the cheap check first, the dear one only if it must be.

    One decides with a value as good as its `accept`, or as bad as its `reject`; without both, with a 1. The last always
    decides. Those that are SKIPPED are passed over. `decided_by` in the metadata names who it was.
    """,
    ),
    "negate": (
        NEGATE,
        OneSettings,
        """The other end of a builtin's range: minimum + maximum - value. A higher value is better.""",
    ),
    "threshold": (
        THRESHOLD,
        ThresholdSettings,
        """1 if the value of a builtin is as good as `at`, else 0.""",
    ),
}


def combinations(of: Sequence[Scorer[Any, Any]]) -> tuple[Combination, ...]:
    """The combinations, each of these scorers and of each other."""
    known = {each.name: each for each in of}
    inputs = tuple(dict.fromkeys(name for each in of for name in each.options.inputs))
    made = tuple(
        Combination(name, kind, settings, known, inputs, about) for name, (kind, settings, about) in _ABOUT.items()
    )
    known.update({each.name: each for each in made})
    return made
