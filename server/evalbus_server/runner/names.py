"""What the scorers of a run and their scores are called."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evalbus import Direction, PluginInfo, ScoreDeclaration
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.faults import in_per_cent, suggestion
from evalbus_server.model.plugin_use import ScorerUse
from evalbus_server.model.run import ScoreKey


def scorer_names(uses: Sequence[ScorerUse], infos: Sequence[PluginInfo]) -> list[str]:
    """A name for each scorer: its own, else the plugin's; uses of one plugin are all named by what differs.

    Raises:
        Invalid: two scorers have one name, or cannot be told apart.
    """
    unnamed: dict[str, list[int]] = defaultdict(list)
    for index, (use, info) in enumerate(zip(uses, infos, strict=True)):
        if use.name is None:
            unnamed[info.name].append(index)
    names = [use.name or info.name for use, info in zip(uses, infos, strict=True)]
    for plugin, indexes in unnamed.items():
        if len(indexes) > 1:
            for index, suffix in zip(indexes, _differences([_traits(uses[i], infos[i]) for i in indexes]), strict=True):
                names[index] = f"{plugin}[{suffix}]"
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in seen:
            first, plugin = seen[name], infos[index].name
            both = f"scorers[{first}] and scorers[{index}] are both"
            message = f"{both} called {name!r}; give one another `name`"
            if uses[first].name is None and uses[index].name is None and infos[first].name == plugin:
                message = f"{both} {plugin!r} with the same settings; leave one out, or give one another `name`"
            raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"scorers[{index}].name")
        seen[name] = index
    return names


def score_keys(
    names: Sequence[str], uses: Sequence[ScorerUse], declared: Sequence[Sequence[ScoreDeclaration]]
) -> tuple[ScoreKey, ...]:
    """The score keys of a run, in the order of the experiment; thresholds and weights are taken from there.

    Raises:
        Invalid: a threshold or weight is for a score that is not declared, or no value could pass a threshold.
    """
    keys: list[ScoreKey] = []
    for index, (name, use, declarations) in enumerate(zip(names, uses, declared, strict=True)):
        scores = [declaration.name for declaration in declarations]
        for what, numbers in (("threshold", use.threshold), ("weight", use.weight)):
            for score in numbers if isinstance(numbers, dict) else ():
                if score not in scores:
                    hint = suggestion(score, scores, scores)
                    message = f"scorers[{index}].{what}: scorer {name!r} declares no score {score!r}{hint}"
                    raise Invalid(Reason.EXPERIMENT_INVALID, message, field=f"scorers[{index}].{what}.{score}")
        for declaration in declarations:
            _refuse_hopeless(f"scorers[{index}].threshold", use.threshold_of(declaration.name), declaration)
        keys.extend(
            ScoreKey(
                name if len(declarations) == 1 else f"{name}.{declaration.name}",
                index,
                declaration,
                use.threshold_of(declaration.name),
                use.weight_of(declaration.name),
            )
            for declaration in declarations
        )
    return tuple(keys)


def _refuse_hopeless(field: str, threshold: float | None, declaration: ScoreDeclaration) -> None:
    """Refuse a threshold that no value in the declared range passes: mostly one in per cent."""
    lower = declaration.direction is Direction.LOWER_IS_BETTER
    best = declaration.minimum if lower else declaration.maximum
    if threshold is None or best is None or (threshold >= best if lower else threshold <= best):
        return
    score = f"score {declaration.name!r}" if declaration.name else "its score"
    end = "below" if lower else "above"
    message = (
        f"{field}: {threshold:g} can never be reached: {score} is never {end} {best:g}{in_per_cent(threshold, best)}"
    )
    raise Invalid(Reason.EXPERIMENT_INVALID, message, field=field)


def _traits(use: ScorerUse, info: PluginInfo) -> dict[str, Any]:
    """What can tell two uses of one plugin apart: its settings with their defaults, then the rest."""
    schema = json.loads(info.settings_schema) if info.settings_schema else {}
    properties = schema.get("properties")
    parts = properties.items() if isinstance(properties, dict) else ()
    defaults = {name: part["default"] for name, part in parts if isinstance(part, dict) and "default" in part}
    rest = {
        "threshold": use.threshold,
        "weight": use.weight,
        "map": dict(use.map),
        "sampling": use.sampling,
        "against": use.against,
    }
    return {**defaults, **use.settings, **{name: value for name, value in rest.items() if value not in (None, {})}}


def _differences(traits: Sequence[dict[str, Any]]) -> list[str]:
    names = sorted({name for one in traits for name in one})
    differing = [name for name in names if len({_shown(one.get(name)) for one in traits}) > 1]
    return [",".join(f"{name}={_shown(one[name])}" for name in differing if name in one) for one in traits]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
