"""`excludes`, `starts_with`, `ends_with`: where in the output a text may or may not stand."""

from __future__ import annotations

from dataclasses import dataclass

from evalbus import Score, ScoreTask, SettingsInvalid, Value, scorer
from evalbus_server.scorer.builtin._compared import (
    CASE,
    FULL,
    INPUTS,
    NO_EXPECTED,
    NORMALIZE,
    Normalize,
    Prepare,
    accepted_of,
    actual_of,
    best_of,
    not_text,
    preparation,
    quoted,
    read_too_often,
    setting,
    setting_list,
)


@dataclass(frozen=True, slots=True)
class ExcludesSettings:
    """What must not be there, and how it is looked for."""

    ignore_case: bool = setting(True, CASE)
    normalize: Normalize = setting("none", NORMALIZE)
    texts: list[str] = setting_list("The unwanted texts; without them those of the expected answer are.")


def _for_excludes(settings: ExcludesSettings) -> Prepare:
    if "" in settings.texts:
        raise SettingsInvalid("settings.texts: every output holds the empty text", "settings.texts")
    return preparation(ignore_case=settings.ignore_case, normalize=settings.normalize)


@scorer("excludes", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_for_excludes, mode="inline")
def excludes(task: ScoreTask, settings: ExcludesSettings, state: Prepare) -> Score:
    """1 if the output holds none of the unwanted texts, else 0.

    The unwanted texts are those of the settings, else the expected ones: of several, none may be there. An empty one
    is held by every output.
    """
    unwanted = [Value(text) for text in settings.texts] or accepted_of(task)
    if not unwanted:
        return NO_EXPECTED
    actual = actual_of(task)
    if not isinstance(actual.body, str):
        return not_text(actual, "output")
    often = read_too_often(actual.body, len(unwanted))
    if often is not None:
        return often
    text = state(actual.body)
    for each in unwanted:
        if not isinstance(each.body, str):
            return not_text(each, "expected answer")
        if state(each.body) in text:
            return Score.scored(0.0, f"found: {quoted(each)}")
    return FULL


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """What counts as the same character, and whether outer space counts."""

    ignore_case: bool = setting(False, CASE)
    trim: bool = setting(True, "Whether space before and after the output and the expected text is left out.")
    normalize: Normalize = setting("none", NORMALIZE)


def _for_edges(settings: EdgeSettings) -> Prepare:
    return preparation(ignore_case=settings.ignore_case, trim=settings.trim, normalize=settings.normalize)


@scorer("starts_with", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_for_edges, mode="inline")
def starts_with(task: ScoreTask, state: Prepare) -> Score:
    """1 if the output begins with the expected text, or one of several; else 0.

    JSON is read as it is written. An empty expected text, with which every output begins, asks for an empty output.
    """
    return best_of(task, state, _begins)


@scorer("ends_with", version="1.0.0", inputs=INPUTS, deterministic=True, setup=_for_edges, mode="inline")
def ends_with(task: ScoreTask, state: Prepare) -> Score:
    """1 if the output ends with the expected text, or one of several; else 0.

    JSON is read as it is written. An empty expected text, with which every output ends, asks for an empty output.
    """
    return best_of(task, state, _ends)


def _begins(text: str, wanted: str, among: int) -> Score:
    if text.startswith(wanted) if wanted else not text:
        return FULL
    return Score.scored(0.0, f"begins with {quoted(text[: len(wanted) + 20])}")


def _ends(text: str, wanted: str, among: int) -> Score:
    if text.endswith(wanted) if wanted else not text:
        return FULL
    return Score.scored(0.0, f"ends with {quoted(text[-len(wanted) - 20 :])}")
