"""The numbers of a run for people, from the same document that `--json` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console, RenderableType
from rich.text import Text

from evalbus_server.cli.figures import NONE, count, length_of_time, number, plain, share
from evalbus_server.cli.settings import told_settings
from evalbus_server.cli.tables import Column, Table, right

Document: TypeAlias = Mapping[str, Any]

ANY_WIDTH = 1_000_000
"""Where nobody says how wide it may be, in a file, a pipe, a log of CI: no line is broken."""
STYLES = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}


def console() -> Console:
    """Where reports go: stdout, in colours on a terminal only."""
    found = Console(highlight=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, emoji=False, width=ANY_WIDTH)


def print_json(document: Document) -> None:
    """One document on stdout, on one line."""
    print(json.dumps(document, ensure_ascii=False, allow_nan=False))


def print_report(out: Console, document: Document, *, settings: bool = False) -> None:
    """Scores, criteria, counts, times, and the verdict with its reason; *settings*: after what the run was told to do."""
    head = Text.assemble(
        (plain(document["name"]), "bold"), f"   run {document['run']}", _dataset(document), _source(document)
    )
    out.print(head, soft_wrap=True)
    for label, text in told_settings(document["experiment"], document["changed_limits"]) if settings else ():
        out.print(Text.assemble((f"{label:9}", "dim"), text), soft_wrap=True)
    out.print()
    for table in (_scores(document["scores"]), _criteria(document["criteria"])):
        if table is not None:
            table.print(out)
            out.print()
    for line in _metrics(document["scores"]):
        out.print(line, soft_wrap=True)
    for line in _lines(document):
        out.print(line, soft_wrap=True)


def _source(document: Document) -> str:
    return f"   outputs of run {document['source']}" if document.get("source") else ""


def reason_of(document: Document) -> str:
    """Why a run ended as it did, in one line; "" if it passed."""
    verdict, counts = document["verdict"], document["counts"]
    if document["state"] != "COMPLETED":
        done = f"{count(counts['planned'] - counts['pending'])} of {count(counts['planned'])} trials have a result"
        why = str(document.get("reason") or "").partition(": ")[2] or document.get("reason")
        return f"run {document['run']} is {document['state']}{f': {why}' if why else ''} ({done})"
    if verdict in ("PASS", None):
        return ""
    decisive = [each for each in document["criteria"] if each["severity"] == "error" and each["outcome"] == verdict]
    if decisive:
        told = "; ".join(named_criterion(each) for each in decisive)
    elif verdict == "FAIL":
        told = f"{_of_trials(counts['failed'], counts)} missed a threshold"
    elif counts["errored"]:
        told = f"{_of_trials(counts['errored'], counts)} errored"
    else:
        told = "no trial passed"
    return f"{verdict}: {told}"


def _of_trials(some: int, counts: Mapping[str, int]) -> str:
    return f"{count(some)} of {count(counts['planned'])} trials"


def named_criterion(criterion: Document) -> str:
    """What a criterion asked for and what it found, after its label if it has one."""
    label, explanation = criterion.get("label"), criterion.get("explanation") or _condition(criterion)
    return f"{label}: {explanation}" if label else str(explanation)


def _dataset(document: Document) -> tuple[str, str]:
    dataset = document.get("dataset")
    return (f"   dataset {dataset['name']} version {dataset['version']}" if dataset else "", "dim")


def _scores(scores: Mapping[str, Document]) -> Table | None:
    if not scores:
        return None
    skipped = Column("skipped", right=True, spare=not any(score["skipped"] for score in scores.values()))
    table = Table("score", *right("n", "mean", "95 % interval", "passed", "threshold", "errored"), skipped)
    for key, score in scores.items():
        table.add_row(
            Text(plain(key)),
            count(score["n"]),
            number(score["mean"]),
            _interval(score["interval"]),
            share(score["pass_rate"]),
            NONE if score["threshold"] is None else f"{score['threshold']:g}",
            _alarming(score["errored"]),
            count(score["skipped"]),
        )
    return table


def _metrics(scores: Mapping[str, Document]) -> Iterator[RenderableType]:
    """A line for each number over all trials of a score."""
    for key, score in scores.items():
        for name, metric in (score.get("metrics") or {}).items():
            yield Text.assemble(
                f"{plain(name)} of {plain(key)}   {number(metric['value'])}   ", (plain(metric["explanation"]), "dim")
            )


def _criteria(criteria: Sequence[Document]) -> Table | None:
    if not criteria:
        return None
    table = Table("criterion", *right("value", "wanted"), "outcome", Column("", spare=True))
    for each in criteria:
        outcome = str(each["outcome"] or NONE)
        note = "warns only" if each["severity"] == "warn" else ""
        style = STYLES.get(outcome, "") if each["severity"] == "error" else "yellow" if outcome != "PASS" else "green"
        name = each.get("label") or subject_of(each)
        table.add_row(
            Text(plain(name)), number(each["value"]), Text(wanted_by(each)), Text(outcome, style), Text(note, "dim")
        )
    return table


def _lines(document: Document) -> Iterator[RenderableType]:
    counts = document["counts"]
    line = Text("trials   ")
    for name in ("passed", "failed", "errored", "skipped", "pending"):
        if counts[name] or name in ("passed", "failed", "errored"):
            line.append(f"{count(counts[name])} {name}   ")
    line.append(f"of {count(counts['planned'])}", style="dim")
    yield line
    shares = f"rates    {share(document['pass_rate'])} passed   {share(document['coverage'])} covered"
    if document.get("weighted") is not None:
        shares += f"   {number(document['weighted'])} weighted"
    yield Text(shares)
    if document.get("cached"):
        yield Text(f"cached   {_of_trials(document['cached'], counts)}")
    if latency := document.get("latency_ms"):
        parts = "   ".join(f"{name} {number(latency[name])}" for name in ("mean", "p50", "p95", "p99"))
        yield Text(f"latency  {parts} ms")
    if usage := _usage(document.get("usage")):
        yield Text(f"usage    {usage}")
    if document.get("duration_s") is not None:
        yield Text(f"time     {time_told(document)}")
    verdict = document["verdict"]
    if verdict is not None:
        told = reason_of(document).removeprefix(f"{verdict}: ")
        yield Text.assemble("verdict  ", (verdict, STYLES.get(verdict, "")), f"   {plain(told)}" if told else "")
    for note in notes_of(document):
        yield Text(f"note     {plain(note)}", "yellow")


def time_told(document: Document) -> str:
    """How long a run was at work, and from its start to its end where it rested in between."""
    work, whole = length_of_time(document["work_s"]), length_of_time(document["duration_s"])
    return work if work == whole else f"{work} at work   {whole} from start to end"


def notes_of(document: Document) -> Iterator[str]:
    """What neither verdict nor state says."""
    counts = document["counts"]
    if document["verdict"] == "PASS" and counts["errored"]:
        yield f"{_of_trials(counts['errored'], counts)} errored: no criterion looks at that"
    if document["state"] == "COMPLETED" and (reason := document.get("reason")):
        yield reason
    reason = str(document.get("reason"))
    if document["state"] == "ABORTED" and reason.startswith("BUDGET:") and "not scored" in reason:
        yield (
            "usage is that of trials with a result, without the outputs that are not scored: `runs resume` scores them "
            "without asking the target again, once the limit is raised"
        )
    yield from document.get("warnings", ())


def _usage(usage: Document | None) -> str:
    if not usage:
        return ""
    parts = [
        f"{count(value)} {name.replace('_', ' ')}" for name, value in usage.items() if isinstance(value, int) and value
    ]
    cost = usage.get("cost")
    if isinstance(cost, Mapping) and cost.get("amount") is not None:
        parts.append(f"{cost['amount']:g} {cost.get('currency', '')}".strip())
    return ", ".join(parts)


def _interval(interval: Any) -> str:
    if not interval:
        return NONE
    low, high = (interval["low"], interval["high"]) if isinstance(interval, Mapping) else interval
    return f"{number(low)} – {number(high)}"


def _alarming(errored: int) -> Text:
    return Text(count(errored), "yellow" if errored else "")


def subject_of(criterion: Document) -> str:
    """What a criterion looks at."""
    scorer = criterion.get("scorer")
    return f"{criterion['metric']} of {scorer}" if scorer else str(criterion["metric"])


def wanted_by(criterion: Document) -> str:
    """The bounds of a criterion."""
    bounds = [
        f"{sign} {criterion[key]:g}" for key, sign in (("min", "≥"), ("max", "≤")) if criterion.get(key) is not None
    ]
    if criterion.get("baseline") is not None:
        bounds.append(f"at most {criterion['max_drop']:g} below {criterion['baseline']}")
    return ", ".join(bounds)


def _condition(criterion: Document) -> str:
    return f"{subject_of(criterion)} is {number(criterion['value'])}, wanted {wanted_by(criterion)}"
