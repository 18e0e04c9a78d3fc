"""The work of `evalbus plugins check`: a plugin is asked one trial, as a run would ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from evalbus import Item, Output, PluginInfo, ScorerInfo
from evalbus_server import logs
from evalbus_server.cli.describing import Sought, entry_alone, info_document, reach, told
from evalbus_server.cli.exits import Ending, ExitCode
from evalbus_server.cli.figures import number, plain
from evalbus_server.cli.one_trial import Texts, item_of, json_object, output_of
from evalbus_server.cli.report import console, print_json
from evalbus_server.embed import RunReport, TrialResult, run_async
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.run import Outcome
from evalbus_server.wire.contentform import item_document, output_document

UNLESS_SAID = Output("Hello")
"""What a scorer is given to judge."""


def check(sought: Sought, settings: str, mapped: Mapping[str, str], texts: Texts, *, as_json: bool) -> int:
    """Ask a plugin one trial, as a run would: with its settings, its limits, over its own connection.

    Raises:
        Invalid: an option does not fit.
        Ending: the trial failed.
    """
    logs.set_up("warning")
    chosen = json_object(settings, "--settings", Reason.SETTINGS_INVALID)
    entry = sought.entry | ({"map": dict(mapped)} if mapped else {})
    info, report = asyncio.run(_try(sought, entry, chosen, item_of(texts, "check"), output_of(texts)))
    result = next(report.results(), None)
    if as_json:
        print_json({"plugin": info_document(info), "trial": None if result is None else _trial_document(result)})
    else:
        out = console()
        for label, text in (*told(info), *_told_of(result)):
            out.print(Text.assemble((f"{label:12}", "dim"), plain(text)), soft_wrap=True)
    if result is None:
        raise Ending(ExitCode.TROUBLE, report.run.state.name, f"{info.name}: {report.run.reason}")
    if result.outcome is Outcome.ERRORED:
        why = result.failure.message if result.failure is not None else "it gave no score"
        raise Ending(ExitCode.FAIL, "TRIAL_FAILED", f"{info.name} could not do the trial: {why}")
    return ExitCode.PASS


async def _try(
    sought: Sought, entry: dict[str, Any], settings: dict[str, Any], item: Item, output: Output | None
) -> tuple[PluginInfo, RunReport]:
    infos = await reach(sought)
    if len(infos) > 1:
        raise Invalid(Reason.REQUEST_INVALID, "a target and a scorer are served there; say --target or --scorer")
    kind = "scorer" if isinstance(infos[0].kind, ScorerInfo) else "target"
    if kind == "target" and output is not None:
        message = f"{infos[0].name} is a target: it is given no output; leave --output and the like out"
        raise Invalid(Reason.REQUEST_INVALID, message)
    given = None if kind == "target" else output or UNLESS_SAID
    return infos[0], await ask(entry, kind, settings, item, given)


async def ask(
    entry: dict[str, Any], kind: str, settings: dict[str, Any], item: Item, output: Output | None
) -> RunReport:
    """A run of one trial, in a database of its own; *entry* is that of the plugin in an experiment."""
    logs.set_up("warning")
    record = item_document(item)
    if output is not None:
        record["output"] = output_document(output)
    return await run_async(entry_alone(entry, kind, record, settings))


def _told_of(result: TrialResult | None) -> Iterator[tuple[str, str]]:
    if result is None:
        return
    yield "trial", result.outcome.name
    if result.latency is not None:
        yield "took", f"{result.latency * 1000:.1f} ms"
    if result.failure is not None:
        yield "failure", f"{result.failure.category.name}: {result.failure.message}"
    elif not result.scores and result.output is not None:
        yield "content", str(result.output.content)
        yield from (("tool call", f"{call.name}({call.arguments_json})") for call in result.output.tool_calls)
    for key, score in result.scores.items():
        value = score.status.name if score.value is None else number(score.value)
        yield "score", f"{key}: {value}{f'  {score.explanation}' if score.explanation else ''}"


def _trial_document(result: TrialResult) -> dict[str, Any]:
    failure = result.failure
    return {
        "outcome": result.outcome.name,
        "content": None if result.output is None or result.output.content is None else str(result.output.content),
        "scores": {
            key: {"status": score.status.name, "value": score.value, "explanation": score.explanation}
            for key, score in result.scores.items()
        },
        "failure": None if failure is None else {"category": failure.category.name, "message": failure.message},
        "latency_ms": None if result.latency is None else result.latency * 1000,
    }
