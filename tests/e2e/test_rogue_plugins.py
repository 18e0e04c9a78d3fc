"""Plugins that break their word, each in one way: what becomes of the trial, of its neighbours, and of the run.

`tests/plugins/rogue.py` holds the misdeeds; the tables here say what is right. Whatever a plugin does, the run ends in
time, every other trial has its result, the counts add up at every moment, and nothing is stored that is no number.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from evalbus import Failure, Item
from evalbus import target as target_plugin
from evalbus_server.app import App, embedded
from evalbus_server.errors import Invalid, Reason, ServerError, Unfit, Unreachable
from evalbus_server.model.event import TrialsEnded
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Outcome, Run, RunState
from evalbus_server.model.trial import StoredResult
from evalbus_server.plugin import exchange, losses, remote
from evalbus_server.wire.jsonform import result_document, summary_document

PLUGINS = Path(__file__).parents[1] / "plugins"
ITEMS = 8
STRAYS = 20_000
"""As many as the flood has."""
LONGEST_MESSAGE = 4096
TOLD_OR_NOT = (1, 2, 3, 4)
"""How often a trial may be asked whose status says that it broke the stream: once among others, once alone; up to twice
more where the stream breaks under a message that is being written, since grpc.aio then loses the status."""
PASSED, ERRORED = Outcome.PASSED, Outcome.ERRORED


@target_plugin("echo", mode="inline")
def echo(item: Item) -> str:
    """The target of runs whose scorer is the rogue."""
    return item.input.text


# --- the tables -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """A misdeed done to one trial, and what is right."""

    way: str
    outcome: Outcome = ERRORED
    reason: str = "CONTRACT_BROKEN"
    says: str = ""
    """Stands in the failure."""
    faults: int = 0
    """Answers that nobody waited for. -1: many."""
    asked: Sequence[int] = (1,)
    """How often the plugin may have been asked the trial."""
    scores: str = "EE"
    """Of a scorer: SCORED, SKIPPED or ERRORED, for each of its two scores."""
    retries: int = 0
    timeout: str = "20s"
    hangs: bool = False
    """The conversation is dead from then on: the trial is the last one, so that no other waits for nothing."""


def passed(way: str, faults: int = 0, scores: str = "SS") -> Case:
    return Case(way, PASSED, "", faults=faults, scores=scores)


def too_late(way: str, faults: int = 0, *, retries: int = 0, hangs: bool = False) -> Case:
    """Given up after the time of all attempts."""
    asked = (retries + 1,)
    return Case(
        way, ERRORED, "TIMEOUT", "no answer within 3", faults, asked, retries=retries, timeout="3s", hangs=hangs
    )


def breaks(way: str, says: str) -> Case:
    """Asked again, then alone, then given up."""
    return Case(way, reason="PLUGIN_DIED", says=says, asked=(3, 4))


def aborts(code: str) -> Case:
    return breaks(f"abort_{code}", f"{code}: told to end with {code}")


BOTH = (
    # Answers that nobody waits for are counted and dropped; the first answer stands.
    passed("twice", faults=1),
    passed("twice_apart", faults=1),
    passed("foreign", faults=1),
    passed("neighbours_place", faults=1),
    passed("negative_ids", faults=1),
    passed("flood", faults=STRAYS),
    too_late("foreign_instead", faults=1),
    too_late("wrong_attempt", faults=1),
    too_late("flood_for_ever", faults=-1, hangs=True),  # what is asked behind it comes late
    # What does not come, or never ends.
    too_late("silent", retries=1),
    too_late("beats_for_ever"),
    passed("no_way_out"),
    too_late("silent_and_no_way_out"),
    too_late("cancelled_error", hangs=True),
    # Answers that break the contract are the fault of their trial, and asked for once.
    Case("neither", says="an answer holds neither"),
    Case("bad_utf8", reason="NOT_UNICODE", says="not valid Unicode"),
    Case("bad_utf8_in_a_failure", reason="NOT_UNICODE", says="not valid Unicode"),
    Case("bad_utf8_among_others", reason="NOT_UNICODE", says="not valid Unicode", faults=1),
    Case("five_megabytes", reason="MESSAGE_TOO_LARGE", says=r"the answer has 50000\d\d bytes; the limit is 2097152"),
    Case("seventy_megabytes", reason="MESSAGE_TOO_LARGE", says=r"700000\d\d vs\. 67108864", asked=TOLD_OR_NOT),
    Case("huge_usage", says="usage: 9223372036854775807 is more than anything consumes"),
    Case("negative_usage", says="usage: a count is below zero"),
    Case("unknown_category", reason="ROGUE", says="of a kind that is not known", asked=(2,), retries=1),
    Case("long_failure", reason="ROGUE", says="^first line xxx.*…$"),
    # Messages out of place, and fields that are not known, harm nobody.
    passed("unknown_fields"),
    passed("bad_utf8_in_progress"),
    passed("ready_again"),
    passed("refused_late"),
    passed("nothing_set"),
    passed("odd_push_back"),
    passed("lying_progress"),
    # A stream that breaks costs nobody but the trial that breaks it.
    breaks("ends_early", "the plugin ended the conversation before it had answered everything"),
    breaks("no_protobuf", "it sent what is no message of the contract"),
    # Statuses that gRPC puts another in the place of are the fault of one trial (PL-02).
    Case("long_details", reason="MESSAGE_TOO_LARGE", says="error text has 17000 bytes", asked=TOLD_OR_NOT),
    Case("long_error", reason="MESSAGE_TOO_LARGE", says=r"error text has 700\d\d bytes", asked=TOLD_OR_NOT),
    breaks("many_lines", "INTERNAL: one two three$"),
    *map(
        aborts,
        (
            *("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
            *("RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "INTERNAL", "UNAVAILABLE"),
            "DATA_LOSS",
        ),
    ),
)

TARGET = (
    Case("not_json", says="content of the output: not a JSON document"),
    Case("no_json_at_all", says="not a JSON document"),
    Case("nan_json", says="NaN is not JSON"),
    Case("infinite_json", says="-Infinity is not JSON"),
    Case("doubled_key_json", says="the key 'a' comes twice"),
    Case("deep_json", says="nested deeper than 100"),
    Case("surrogate_json", says="not valid Unicode: a lone surrogate"),
    Case("endless_number_json", says="4300 digits"),
    Case("no_content", says="neither content nor messages"),
    Case("no_kind", says="neither text, json nor blob is set"),
    Case("bare_bytes", says="bytes without a media type"),
    Case("listed_metadata", says="metadata of the output: not a JSON object"),
    Case("nameless_tool", says="a tool call has no name"),
    Case("nameless_span", says="a span has no id"),
    Case("huge_usage_in_an_output", says="more than anything consumes"),
    passed("unheard_of_times"),
    passed("nul_and_controls"),
)

SCORER = (
    Case("nan", says="has the value nan, which is not a finite number", scores="ES"),
    Case("infinite", says="has the value inf, which is not a finite number", scores="ES"),
    Case("minus_infinite", says="has the value -inf, which is not a finite number", scores="ES"),
    Case("too_high", says="has the value 1.0000001, above its declared maximum 1.0", scores="ES"),
    Case("too_low", says="has the value -0.1, below its declared minimum 0.0", scores="ES"),
    Case("magic_number", says="has the value 40404.0, above", scores="ES"),
    passed("minus_zero"),
    passed("boundless"),
    Case("unknown_status", says="score 'same': unknown status 99"),
    Case("no_status", says="score 'same': unknown status 0"),
    Case("scored_without_value", says="SCORED without a value"),
    Case("skipped_with_value", says="SKIPPED with a value"),
    passed("skipped", scores="KS"),
    Case("errored_without_failure", says="ERRORED without a failure"),
    Case("errored_with_value", says="ERRORED with a value"),
    Case("undeclared_name", says=r"scores that it did not declare: 'sa\\nme' \(declared: 'other', 'same'\)"),
    Case("no_name", says="scores that it did not declare: ''"),
    Case("undeclared_besides", says="scores that it did not declare: 'third'"),
    Case("doubled_name", says="gives scores twice: 'same'"),
    Case("missing_name", says="the score 'rogue.other' is missing", scores="SE"),
    Case("scores_and_failure", says="both scores and a failure"),
    Case("listed_metadata", says="metadata of the score: not a JSON object"),
    Case("answer_not_json", says="answer of the score: not a JSON document"),
    Case("answer_of_no_kind", says="answer of the score: neither"),
    Case("bad_utf8_in_a_name", reason="NOT_UNICODE", says="not valid Unicode"),
    Case("huge_usage_in_a_score", says="more than anything consumes"),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A misdeed before the first trial: the run does not start, and one line says why."""

    way: str
    error: type[ServerError]
    reason: Reason
    says: str


def unfit(way: str, says: str, reason: Reason = Reason.PLUGIN_BROKEN) -> Refusal:
    return Refusal(way, Unfit, reason, says)


def unreachable(way: str, says: str) -> Refusal:
    return Refusal(way, Unreachable, Reason.PLUGIN_UNREACHABLE, says)


REFUSED = (
    unfit("describe_nobody", "serves no (target|scorer)", Reason.PLUGIN_UNKNOWN),
    unfit("describe_other_kind", "serves no (target|scorer)", Reason.PLUGIN_UNKNOWN),
    unfit("describe_two", "name one with `plugin`: rogue, other", Reason.PLUGIN_UNKNOWN),
    unfit("describe_no_name", "a plugin has no name"),
    unfit("describe_dotted", "'ro.gue': a name has 1 to 100 characters, no dots"),
    unfit("describe_control", r"'ro\\x1bgue': a name has .* no control characters"),
    unfit("describe_long_name", "a name has 1 to 100 characters"),
    unfit("describe_no_kind", "says neither target nor scorer"),
    unfit("describe_schema", "settings schema of plugin 'rogue': not a JSON object"),
    unfit("describe_bad_utf8", "describes itself unreadably: .*UTF-8"),
    unfit("describe_no_protobuf", "describes itself unreadably"),
    unfit(
        "describe_revisions_7_9", "revisions 7 to 9, the server speaks 1: upgrade the server", Reason.PROTOCOL_MISMATCH
    ),
    unfit("describe_revision_0", "revisions 0 to 0, .* upgrade the plugin", Reason.PROTOCOL_MISMATCH),
    unreachable("describe_silent", "did not answer Describe within 0.5 s"),
    unreachable("describe_cancelled_error", "did not answer Describe within 0.5 s"),
    unreachable("describe_aborts", "INTERNAL: no self-knowledge"),
    unreachable("describe_long_details", "error text has 17000 bytes"),
    unreachable(
        "describe_unauthenticated", r"wants a token; give it beside the address, as in token: \$\{env:NAME\}: no token"
    ),
    unreachable("open_silent", "did not answer `open` within 0.5 s"),
    unreachable("open_cancelled_error", "did not answer `open` within 0.5 s"),
    unreachable("open_aborts", "broke at `open`: INTERNAL: cannot open"),
    unreachable("open_raises", r"broke at `open`: .*error text has 700\d\d bytes"),
    unreachable(
        "open_unauthenticated",
        "broke at `open`: UNAUTHENTICATED: who are you; it wants a token; give it beside the address",
    ),
    unfit("open_refused", r"refused: there is no licence \(NO_LICENCE\)$", Reason.PLUGIN_REFUSED),
    unfit("open_refused_at_length", "refused: many words many words", Reason.PLUGIN_REFUSED),
    unfit("open_refused_without_a_word", "refused: it does not say why", Reason.PLUGIN_REFUSED),
    Refusal("open_refused_for_settings", Invalid, Reason.SETTINGS_INVALID, "refused: no such way"),
    unfit("open_answers", "answered answers where `ready` or `refused` was due"),
    unfit("open_empty", "answered nothing known where `ready` or `refused` was due"),
    unfit("open_no_protobuf", "answered `open` unreadably"),
    unfit("open_ends", "ended the stream where `ready` or `refused` was due"),
)

REFUSED_SCORERS = (
    unfit("describe_no_score", "declares no score"),
    unfit("describe_doubled_score", "declares a score twice"),
    unfit("ready_doubled", "answered `open` wrongly: .* declares a score twice"),
    unfit("ready_dotted", "'a.b': a name holds no dot"),
    unfit("ready_upside_down", "minimum 1.0 is above maximum 0.0"),
    unfit("ready_nan", "a bound is not finite"),
    unfit("ready_infinite", "a bound is not finite"),
)

NEVER_DESCRIBED = ("describe_silent", "describe_cancelled_error")
NEVER_OPENED = ("open_silent", "open_cancelled_error")
UNHARMED = ("open_negative", "describe_negative", "describe_odd_schema")
"""Odd, but nothing that matters."""
HOPELESS = ("abort_UNIMPLEMENTED", "abort_UNAUTHENTICATED", "abort_PERMISSION_DENIED")
ELSEWHERE = ("plain", "dies", "stops", "open_dies", "describe_another_each_time")
"""Ways of tests of their own, further down."""


# --- running ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Rogue:
    """The rogue target or scorer."""

    kind: str
    folder: Path
    ways: frozenset[str]

    def at(self, socket: str, **settings: Any) -> dict[str, Any]:
        """The plugin at one of its sockets."""
        limit = "500ms" if socket in NEVER_DESCRIBED else "20s"
        return {"address": f"unix:{self.folder}/{socket}", "start_limit": limit, "settings": settings}

    def launched(self, **settings: Any) -> dict[str, Any]:
        """The plugin as a process of the run."""
        return {"command": ["python", f"rogue_{self.kind}.py"], "folder": str(PLUGINS), "settings": settings}

    def doing(self, way: str, **settings: Any) -> dict[str, Any]:
        """The plugin with a way, wherever that is done."""
        return self.at(way) if way.startswith("describe_") else self.at("plain", way=way, **settings)


@dataclass(slots=True)
class Ran:
    """A run that is over."""

    run: Run
    results: list[StoredResult]
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    """Item, attempt and process of every trial that the rogue was asked."""
    logged: int = 0
    """Lines of the log."""

    def of(self, item: str) -> StoredResult:
        return next(result for result in self.results if result.item.id == item)

    def outcomes(self, *without: str) -> set[Outcome]:
        """Those of all trials but some."""
        return {result.outcome for result in self.results if result.item.id not in without}

    def times_asked(self, item: str) -> int:
        return sum(name == item for name, _, _ in self.asked)


@pytest.fixture(scope="module")
def rogues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Rogue]]:
    """Both, each in a process that listens with all its faces."""
    made, processes = {}, []
    for kind in ("target", "scorer"):
        folder = tmp_path_factory.mktemp(kind)
        script = PLUGINS / f"rogue_{kind}.py"
        process = subprocess.Popen([sys.executable, script, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        processes.append(process)
        assert process.stdout is not None
        made[kind] = Rogue(kind, folder, frozenset(json.loads(process.stdout.readline())))
    yield made
    for process in processes:
        process.kill()
        process.communicate()


IN_TIME = 150.0
"""Seconds: far less than the ten minutes that a trial has which nobody gives up."""


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds with honest plugins takes a moment here."""
    monkeypatch.setattr(exchange, "GRACE_AT_END", 0.3)
    monkeypatch.setattr(losses, "LONGEST_PAUSE", 0.1)


def document(rogue: Rogue, use: dict[str, Any], items: int = ITEMS, **more: Any) -> dict[str, Any]:
    """An experiment with the rogue in its place and an honest plugin in the other."""
    names = [f"i{number}" for number in range(items)]
    records = [{"id": name, "input": f"text of {name}", "expected": f"text of {name}"} for name in names]
    limits = {"concurrency": 4, "timeout": "20s", "retries": 0}
    made: dict[str, Any] = {
        "name": "rogue",
        "dataset": {"name": "d", "records": records},
        "target": use if rogue.kind == "target" else {"use": "echo"},
        "scorers": [{"use": "exact_match"}],
        **more,
    }
    if rogue.kind == "scorer":
        made["scorers"] = [{**use, "concurrency": 4}, *made["scorers"]]
    made["limits"] = {**limits, **more.get("limits", {})}
    return made


async def carried_out(folder: Path, made: dict[str, Any], log: Path | None = None) -> Ran:
    """Run it, and look whether everything holds that must hold whatever plugins do."""
    async with embedded(folder / "rogue.db") as app:
        experiment = await app.publish(Experiment.parse(made))
        with capture_logs() as logs:
            started = await app.runs.start(experiment, given={"echo": echo})
            run = await asyncio.wait_for(app.runs.wait(started.id), IN_TIME)
        results = stored(app, run)
        check(app, run, results)
        summary = summary_document(await app.runs.summary(run.id))
        json.dumps([summary, *(result_document(result, run) for result in results)], allow_nan=False)
    check_numbers(folder / "rogue.db")
    lines = log.read_text().splitlines() if log is not None and log.exists() else []
    asked = [(item, int(attempt), int(pid)) for item, attempt, pid in map(str.split, lines)]
    return Ran(run, results, asked, len(logs))


def stored(app: App, run: Run) -> list[StoredResult]:
    results: list[StoredResult] = []
    while page := app.store.results(run, after=(results[-1].trial_id, 1) if results else None):
        results += page
    return results


def check(app: App, run: Run, results: list[StoredResult]) -> None:
    """Counts add up at every moment and are those of the results, and every trial is told of once (O5, O6)."""
    events = app.store.events(run.id, after=0, limit=10_000)
    for counts in (run.counts, *(event.fact.counts for event in events)):
        assert counts.planned == counts.passed + counts.failed + counts.errored + counts.skipped + counts.pending
        assert min(counts.passed, counts.failed, counts.errored, counts.skipped, counts.pending) >= 0
    told = [trial for event in events if isinstance(event.fact, TrialsEnded) for trial, _ in event.fact.trials]
    assert sorted(told) == [result.trial_id for result in results]
    for outcome, count in zip(
        (Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.SKIPPED),
        (run.counts.passed, run.counts.failed, run.counts.errored, run.counts.skipped),
        strict=True,
    ):
        assert sum(result.outcome is outcome for result in results) == count
    for result in results:
        failures = [result.failure, *(each.score.failure for each in result.scores.values())]
        for failure in (failure for failure in failures if failure is not None):
            assert len(failure.message.encode()) <= LONGEST_MESSAGE
            assert "\n" not in failure.message


def check_numbers(path: Path) -> None:
    """No score that is none, and nothing stored twice (ST-08, O6)."""
    connection = sqlite3.connect(path)
    try:
        for table, key in (("output", "run, trial"), ("score", "run, trial, key"), ("result", "run, position, epoch")):
            assert connection.execute(f"SELECT 1 FROM {table} GROUP BY {key} HAVING count(*) > 1").fetchall() == []
        odd = "(status = 1) <> (value IS NOT NULL) OR abs(value) > 1.7976931348623157e308 OR value <> value"
        assert connection.execute(f"SELECT * FROM score WHERE {odd}").fetchall() == []
    finally:
        connection.close()


def each(*tables: tuple[str, Sequence[Any]]) -> Any:
    """A test for every row of tables, each with the kind of plugin that it is about."""
    rows = [(kind, row) for kind, table in tables for row in table]
    ids = [f"{kind}-{row if isinstance(row, str) else row.way}" for kind, row in rows]
    return pytest.mark.parametrize(("kind", "row"), rows, ids=ids)


# --- one trial --------------------------------------------------------------------------------------------------


@each(("target", BOTH + TARGET), ("scorer", BOTH + SCORER))
async def test_a_misdeed_harms_its_own_trial_alone(rogues: dict[str, Rogue], tmp_path: Path, kind: str, row: Case):
    """It has the right outcome and reason, all others have passed, and the run is COMPLETED in time."""
    item = f"i{ITEMS - 1}" if row.hangs else "i3"
    log = tmp_path / "asked"
    use = rogues[kind].at("plain", way=row.way, at=[item], log=str(log))

    made = document(rogues[kind], use, limits={"retries": row.retries, "timeout": row.timeout})

    ran = await carried_out(tmp_path, made, log)

    result = ran.of(item)
    assert (ran.run.state, ran.run.reason) == (RunState.COMPLETED, "")
    assert ran.outcomes(item) == {PASSED}
    assert result.outcome is row.outcome
    if result.failure is not None:
        assert result.failure.reason == row.reason
        assert re.search(row.says, result.failure.message)
    assert ran.times_asked(item) in row.asked
    assert ran.run.protocol_faults == row.faults if row.faults >= 0 else ran.run.protocol_faults > 100
    assert ran.logged < 40  # a flood of faults is no flood of log lines
    if kind == "target":
        assert (result.output is None) is (row.outcome is ERRORED)
    else:
        statuses = [result.scores[place].score.status.name for place in range(3)]
        assert "".join({"SKIPPED": "K"}.get(status, status[0]) for status in statuses) == row.scores + "S"


@each(("target", UNHARMED[:2]), ("scorer", UNHARMED))
async def test_what_is_only_odd_is_let_pass(rogues: dict[str, Rogue], tmp_path: Path, kind: str, row: str):
    """A limit below zero, an isolation, a need and a word that nobody knows, a schema that nobody thought of."""
    ran = await carried_out(tmp_path, document(rogues[kind], rogues[kind].doing(row)))

    assert ran.run.state is RunState.COMPLETED
    assert (ran.run.counts.passed, ran.run.protocol_faults) == (ITEMS, 0)


async def test_two_uses_of_a_scorer_with_an_odd_schema_are_told_apart(rogues: dict[str, Rogue], tmp_path: Path):
    """Their names come from settings and the schema's defaults."""
    one, other = (rogues["scorer"].at("describe_odd_schema", log=str(tmp_path / name)) for name in "ab")
    made = document(rogues["scorer"], one, scorers=[other])

    ran = await carried_out(tmp_path, made)

    assert ran.run.counts.passed == ITEMS
    assert len({key.key for key in ran.run.score_keys}) == 4


# --- the whole run ----------------------------------------------------------------------------------------------


@each(("target", REFUSED), ("scorer", REFUSED + REFUSED_SCORERS))
async def test_a_plugin_that_cannot_begin_is_refused_before_the_first_trial(
    rogues: dict[str, Rogue], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, row: Refusal
):
    """In time, with one line that says why, and no run is stored."""
    if row.way in NEVER_OPENED:
        monkeypatch.setattr(remote, "OPEN_LIMIT", 0.5)
    made = document(rogues[kind], rogues[kind].doing(row.way))
    began = time.monotonic()
    async with embedded(tmp_path / "rogue.db") as app:
        experiment = await app.publish(Experiment.parse(made))

        with pytest.raises(row.error, match=row.says) as caught:
            await app.runs.start(experiment, given={"echo": echo})

        assert caught.value.reason is row.reason
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < LONGEST_MESSAGE
        assert app.store.runs() == []
    assert time.monotonic() - began < IN_TIME


@each(("target", HOPELESS), ("scorer", HOPELESS))
async def test_a_plugin_that_lets_nobody_in_ends_the_run(rogues: dict[str, Rogue], tmp_path: Path, kind: str, row: str):
    """ABORTED at once, and the answers that it gave before stand."""
    log = tmp_path / "asked"
    use = rogues[kind].at("plain", way=row, at=["i3"], log=str(log))

    ran = await carried_out(tmp_path, document(rogues[kind], use), log)

    code = row.removeprefix("abort_")
    assert ran.run.state is RunState.ABORTED
    assert re.match(f"PLUGIN_UNREACHABLE: .*{code}: told to end with {code}", ran.run.reason)
    assert ran.outcomes() == {PASSED}
    assert 3 <= ran.run.counts.passed < ITEMS
    assert ran.times_asked("i3") <= 3  # once, and again where grpc.aio lost the status


@pytest.mark.parametrize("kind", ["target", "scorer"])
async def test_another_build_in_the_middle_of_a_run_ends_it(rogues: dict[str, Rogue], tmp_path: Path, kind: str):
    """Two builds are never mixed in one run: the answers of the first one stand."""
    use = rogues[kind].at("describe_another_each_time", way="ends_early", at=["i3"])

    ran = await carried_out(tmp_path, document(rogues[kind], use))

    assert ran.run.state is RunState.ABORTED
    assert re.match("PLUGIN_CHANGED: .* build \\d+ is now 1.0.0 build \\d+", ran.run.reason)
    assert ran.outcomes() == {PASSED}
    assert 0 < ran.run.counts.passed < ITEMS


# --- processes --------------------------------------------------------------------------------------------------


async def left_behind(ran: Ran) -> set[int]:
    """Processes of the plugin that are still there, and do not go."""
    left = {pid for _, _, pid in ran.asked}
    until = time.monotonic() + 60
    while (left := {pid for pid in left if psutil.pid_exists(pid)}) and time.monotonic() < until:
        await asyncio.sleep(0.02)
    return left


@pytest.mark.parametrize("kind", ["target", "scorer"])
async def test_a_plugin_that_dies_after_three_answers_loses_none(rogues: dict[str, Rogue], tmp_path: Path, kind: str):
    """What it answered counts and is not asked again; the rest is asked at its next lives (PL-06)."""
    log = tmp_path / "asked"
    use = rogues[kind].launched(dies_after=3, log=str(log))

    ran = await carried_out(tmp_path, document(rogues[kind], use, items=9), log)

    lives = list(dict.fromkeys(pid for _, _, pid in ran.asked))
    assert ran.run.state is RunState.COMPLETED
    for result in ran.results:
        if result.outcome is not PASSED:  # asked alone at the very moment of its death, for the third time
            assert isinstance(result.failure, Failure)
            assert result.failure.reason == "PLUGIN_DIED"
            assert "exit code 137" in result.failure.message
            assert "no memory left" in result.failure.message
    assert ran.run.counts.passed >= 6
    assert 3 <= len(lives) <= 6
    again = [item for item, _, pid in ran.asked if pid != lives[0]]
    assert len({item for item, _, pid in ran.asked if pid == lives[0]} - set(again)) == 3
    assert not await left_behind(ran)


@pytest.mark.parametrize("kind", ["target", "scorer"])
async def test_the_trial_that_kills_the_plugin_is_errored_with_its_last_words(
    rogues: dict[str, Rogue], tmp_path: Path, kind: str
):
    """Found by asking it alone."""
    log = tmp_path / "asked"
    use = rogues[kind].launched(way="dies", at=["i3"], log=str(log))

    ran = await carried_out(tmp_path, document(rogues[kind], use), log)

    failure = ran.of("i3").failure
    assert ran.outcomes("i3") == {PASSED}
    assert failure is not None
    assert failure.reason == "PLUGIN_DIED"
    assert "exit code 137" in failure.message and "no memory left" in failure.message
    assert ran.times_asked("i3") in (3, 4)
    assert not await left_behind(ran)


@pytest.mark.parametrize("kind", ["target", "scorer"])
async def test_a_plugin_that_dies_at_every_trial_is_given_up(
    rogues: dict[str, Rogue], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """A bounded number of lives, not one for each item: the run is ABORTED and can be resumed (PL-06)."""
    monkeypatch.setattr(losses, "KILLERS_IN_A_ROW", 1)
    log = tmp_path / "asked"
    use = rogues[kind].launched(way="dies", at=[f"i{number}" for number in range(20)], log=str(log))

    ran = await carried_out(tmp_path, document(rogues[kind], use, items=20), log)

    assert ran.run.state is RunState.ABORTED
    assert re.match(r"PLUGIN_UNREACHABLE: .* broke 4 times \(exit code 137", ran.run.reason)
    assert ran.run.counts.errored == 2
    assert len({pid for _, _, pid in ran.asked}) == 4
    assert not await left_behind(ran)


@pytest.mark.parametrize("kind", ["target", "scorer"])
async def test_a_plugin_that_stands_still_is_replaced(rogues: dict[str, Rogue], tmp_path: Path, kind: str):
    """Stopped by SIGSTOP, it holds its trials: they are given up in time, it is killed, and a new one does the rest."""
    log = tmp_path / "asked"
    use = rogues[kind].launched(way="stops", at=["i3"], log=str(log))
    made = document(rogues[kind], use, limits={"timeout": "3s"})

    ran = await carried_out(tmp_path, made, log)

    late = [result for result in ran.results if result.outcome is not PASSED]
    assert ran.run.state is RunState.COMPLETED
    assert {result.failure.reason for result in late if result.failure} == {"TIMEOUT"}
    assert "i3" in {result.item.id for result in late}
    assert len(late) <= 4  # no more than it held
    assert ran.times_asked("i3") == 1
    assert len({pid for _, _, pid in ran.asked}) == (2 if len(ran.asked) > 4 else 1)
    assert not await left_behind(ran)


@pytest.mark.parametrize("kind", ["target", "scorer"])
async def test_a_plugin_that_dies_at_open_says_why(rogues: dict[str, Rogue], tmp_path: Path, kind: str):
    """With its exit code and its last words."""
    made = document(rogues[kind], rogues[kind].launched(way="open_dies"))
    async with embedded(tmp_path / "rogue.db") as app:
        experiment = await app.publish(Experiment.parse(made))

        with pytest.raises(Unreachable, match=r"broke at `open`: .*exit code 4.*no model"):
            await app.runs.start(experiment, given={"echo": echo})


# --- the tables themselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["target", "scorer"])
def test_every_way_of_the_rogues_is_in_a_table(rogues: dict[str, Rogue], kind: str):
    """Or a misdeed would be practised and never looked at."""
    own = {"target": TARGET + REFUSED, "scorer": SCORER + REFUSED + REFUSED_SCORERS}[kind]
    known = {row.way for row in (*BOTH, *own)} | {*UNHARMED, *HOPELESS, *ELSEWHERE}

    assert rogues[kind].ways - known == set()
