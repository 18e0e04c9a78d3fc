"""The work of `evalbus scorers try`: one output, judged by a scorer as a run would have it judged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from evalbus import Item, Output, Score, ScorerBench, SettingsInvalid
from evalbus._adapted import is_adapted
from evalbus._definition import OpeningRefused
from evalbus_server.cli.checking import ask
from evalbus_server.cli.describing import named
from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.figures import number, plain
from evalbus_server.cli.one_trial import NOTHING_JUDGED, Texts, item_of, json_object, output_of
from evalbus_server.cli.report import console, print_json
from evalbus_server.errors import Invalid, Reason, Unfit
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.wire.jsonform import score_extras


def try_scorer(name: str, settings: str, mapped: Mapping[str, str], texts: Texts, *, as_json: bool) -> None:
    """Print the score of one output, by a builtin or by a scorer of another library.

    Raises:
        NotFound: there is none of this name.
        Invalid: an option does not fit, or the settings do not.
        Unfit: the scorer cannot be set up with these settings.
    """
    named(name)
    chosen = json_object(settings, "--settings", Reason.SETTINGS_INVALID)
    item, output = item_of(texts, "try"), output_of(texts)
    if output is None:
        raise Invalid(Reason.REQUEST_INVALID, NOTHING_JUDGED)
    if mapped or is_adapted(name):
        scores = _in_a_run({"use": name, "map": dict(mapped)}, chosen, item, output)
    else:
        scores = _alone(name, chosen, item, output)
    if as_json:
        print_json(_document(scores))
        return
    out = console()
    for key, score in scores.items():
        for label, text in _told(key, score):
            out.print(Text.assemble((f"{label:12}", "dim"), plain(text)), soft_wrap=True)


def _alone(name: str, settings: dict[str, Any], item: Item, output: Output) -> dict[str, Score]:
    try:
        scores = asyncio.run(ScorerBench(BUILTINS[name], settings).scores(item, output))
    except SettingsInvalid as error:
        raise Invalid(Reason.SETTINGS_INVALID, f"{name} refused: {error}", field=error.field) from None
    except OpeningRefused as error:
        raise Unfit(Reason.PLUGIN_REFUSED, f"{name} refused: {error}") from None
    return {f"{name}.{key}" if key else name: score for key, score in scores.items()}


def _in_a_run(entry: dict[str, Any], settings: dict[str, Any], item: Item, output: Output) -> dict[str, Score]:
    """The scores in a run of one trial: inputs are mapped, and a process that serves another library is started."""
    report = asyncio.run(ask(entry, "scorer", settings, item, output))
    result = next(report.results(), None)
    if result is None:
        raise Ending(ExitCode.TROUBLE, report.run.state.name, f"{entry['use']}: {report.run.reason}")
    return result.scores


def _document(scores: Mapping[str, Score]) -> dict[str, Any]:
    """All scores by their keys, and the only one's fields beside; null where there are several."""
    only = next(iter(scores.values())) if len(scores) == 1 else None
    top = _score(only) if only is not None else dict.fromkeys(("status", "value", "label", "explanation"))
    return {**top, "scores": {key: _score(score) for key, score in scores.items()}}


def _score(score: Score) -> dict[str, Any]:
    document: dict[str, Any] = {
        "status": score.status.name,
        "value": score.value,
        "label": score.label or None,
        "explanation": score.explanation,
    }
    if score.answer is not None:
        document["answer"] = score.answer.data if score.answer.kind != "blob" else str(score.answer)
    if score.failure is not None:
        failure = score.failure
        document["failure"] = {
            "category": failure.category.name,
            "reason": failure.reason,
            "message": failure.message,
        }
    return document | score_extras(score)


def _told(key: str, score: Score) -> Iterator[tuple[str, str]]:
    yield "score", f"{key}: {score.status.name if score.value is None else number(score.value)}"
    if score.answer is not None:
        yield "answer", str(score.answer)
    if score.label:
        yield "label", score.label
    if score.failure is not None:
        yield "failure", f"{score.failure.reason or score.failure.category.name}: {score.failure.message}"
    if score.explanation:
        yield "why", score.explanation
