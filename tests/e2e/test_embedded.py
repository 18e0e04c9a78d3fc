"""Runs inside a program of one's own: real plugins, a real database, plain functions."""

import asyncio
import gc
import json
import subprocess
import sys
import textwrap

import pytest

import evalbus_server
from evalbus import Item, Output, PluginInvalid, Score, TrialFailed, scorer, target
from evalbus_server import Outcome, RunReport, RunState, TrialResult, Verdict
from evalbus_server.errors import Invalid, NotFound, StoreTrouble, Unfit
from evalbus_server.model.experiment import Experiment
from evalbus_server.runner.line import Progress
from evalbus_server.store import open_reader

SUMS = [
    {"id": "a", "input": "1+1", "expected": "2"},
    {"id": "b", "input": "2+3", "expected": "5"},
    {"id": "c", "input": "4+4", "expected": "9"},
]


def add(item: Item) -> str:
    return str(sum(int(part) for part in item.input.text.split("+")))


async def add_slowly(item: Item) -> str:
    await asyncio.sleep(0.001)
    return add(item)


def is_short(item: Item, output: Output) -> float:
    return 1.0 if len(output.text) < 2 else 0.0


def texts(report: RunReport) -> list[str]:
    return ["" if result.output is None else result.output.text for result in report.results()]


def test_plain_functions_stand_as_target_and_scorers():
    report = evalbus_server.run({"dataset": SUMS}, target=add, scorers=["exact_match", is_short])

    means = {score.key: score.mean for score in report.summary.scores}
    assert means == {"exact_match": pytest.approx(2 / 3), "is_short": 1.0}
    assert report.run.state is RunState.COMPLETED
    assert report.run.name == "add"


def test_an_async_function_is_a_target_too():
    report = evalbus_server.run({"dataset": SUMS}, target=add_slowly)
    assert report.passed
    assert texts(report) == ["2", "5", "8"]


def test_functions_may_stand_inside_the_experiment():
    @target("adder", version="2.0.0")
    def decorated(item: Item) -> str:
        return add(item)

    @scorer("length")
    def length(item: Item, output: Output) -> Score:
        return Score.scored(len(output.text) / 10, "counted")

    report = evalbus_server.run(
        {
            "name": "inside",
            "dataset": {"records": SUMS},
            "target": decorated,
            "scorers": ["exact_match", {"use": length, "threshold": 0.1}, {"use": "levenshtein", "threshold": 0.8}],
        }
    )
    assert report.run.name == "inside"
    assert [score.key for score in report.summary.scores] == ["exact_match", "length", "levenshtein"]
    last = list(report.results())[-1]
    assert last.outcome is Outcome.FAILED
    assert last.scores["length"].explanation == "counted"
    assert report.verdict is Verdict.FAIL


def test_items_may_say_who_judges_them():
    sums = [{**SUMS[0], "scorers": ["is_short"]}, {**SUMS[1], "scorers": []}, SUMS[2]]
    written = {"dataset": {"records": sums, "scorers": ["exact_match"]}}
    by_names = evalbus_server.run({**written, "scorers_from": "items"}, target=add, scorers=[is_short])
    by_value = evalbus_server.run(Experiment.parse({**written, "name": "e", "target": {"use": "t"}}), target=add)

    assert [list(result.scores) for result in by_names.results()] == [["is_short"], [], ["exact_match"]]
    outcomes = [result.outcome for result in by_value.results()]  # nobody has declared the function here
    assert outcomes == [Outcome.ERRORED, Outcome.PASSED, Outcome.PASSED]


def test_settings_reach_a_function():
    def shout(item: Item, settings: dict) -> str:
        return item.input.text + settings["mark"]

    report = evalbus_server.run({"dataset": [{"input": "hi"}], "target": {"use": shout, "settings": {"mark": "!"}}})
    assert texts(report) == ["hi!"]


def test_a_trial_that_fails_is_errored_and_the_rest_goes_on():
    def choosy(item: Item) -> str:
        if item.id == "b":
            raise TrialFailed.refused("not this one")
        return add(item)

    report = evalbus_server.run({"dataset": SUMS, "limits": {"retries": 0}}, target=choosy)
    assert report.verdict is Verdict.INCONCLUSIVE
    outcomes = {result.item.id: result.outcome for result in report.results()}
    assert outcomes == {"a": Outcome.PASSED, "b": Outcome.ERRORED, "c": Outcome.PASSED}
    assert "REFUSED" in str(report)


def test_everybody_who_asks_is_told_of_progress_and_of_each_result():
    progress: list[Progress] = []
    items: list[TrialResult] = []
    report = evalbus_server.run(
        {"dataset": SUMS, "epochs": 2}, target=add_slowly, on_progress=progress.append, on_item=items.append
    )
    assert sorted((each.item.id, each.epoch) for each in items) == [(id, n) for id in "abc" for n in (1, 2)]
    assert progress[-1].counts == report.run.counts
    assert report.run.counts.passed == 6


def test_what_a_callback_raises_ends_the_run_and_comes_out(tmp_path):
    def stop(result: TrialResult) -> None:
        raise ZeroDivisionError("enough")

    with pytest.raises(ZeroDivisionError, match="enough"):
        evalbus_server.run({"dataset": SUMS, "epochs": 50}, target=add_slowly, on_item=stop, db=tmp_path / "stopped.db")
    with open_reader(tmp_path / "stopped.db") as reader:
        assert [run.state for run in reader.runs()] == [RunState.INTERRUPTED]


def test_the_text_of_a_report_says_why():
    report = evalbus_server.run(
        {"dataset": SUMS, "criteria": [{"metric": "mean", "scorer": "exact_match", "min": 0.9}]},
        target=add,
        scorers=["exact_match"],
    )
    text = str(report)
    assert text.startswith("add: FAIL (3 passed, 0 failed")
    assert "exact_match: 0.6667 (n=3)" in text
    assert "below 0.9" in text


async def test_inside_a_loop_there_is_run_async():
    report = await evalbus_server.run_async({"dataset": SUMS}, target=add)
    assert report.passed


async def test_inside_a_loop_run_says_what_to_write():
    with pytest.raises(RuntimeError, match=r"await evalbus_server\.run_async"):
        evalbus_server.run({"dataset": SUMS}, target=add)


def test_a_temporary_database_goes_with_its_report():
    report = evalbus_server.run({"dataset": SUMS}, target=add)
    folder = report.db.parent
    assert folder.exists()
    del report
    gc.collect()
    assert not folder.exists()


def test_a_named_database_stays_and_holds_every_run(tmp_path):
    db = tmp_path / "kept.db"
    first = evalbus_server.run({"dataset": SUMS}, target=add, db=db)
    second = evalbus_server.run({"dataset": SUMS}, target=add, db=db)
    assert first.run.dataset == second.run.dataset  # nothing changed, so no second version
    assert len(list(first.results())) == 3


def test_an_experiment_file_runs_with_paths_beside_it(tmp_path):
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(each) + "\n" for each in SUMS))
    (tmp_path / "sums.yaml").write_text("name: sums\ndataset: {path: items.jsonl}\nscorers: [{use: exact_match}]\n")
    report = evalbus_server.run(tmp_path / "sums.yaml", target=add)
    assert report.run.name == "sums"
    assert report.run.dataset.name == "items"


def test_an_experiment_value_runs(tmp_path):
    experiment = Experiment.parse({"name": "value", "dataset": {"records": SUMS}})
    assert evalbus_server.run(experiment, target=add).passed


def test_without_a_target_the_dataset_brings_the_outputs():
    report = evalbus_server.run(
        {"dataset": [{"input": "1+1", "expected": "2", "output": "2"}]},
        target="none",
        scorers=[{"use": "exact_match", "threshold": 1}],
    )
    assert report.passed


def test_two_plugins_of_one_command_share_one_process(tmp_path):
    (tmp_path / "both.py").write_text(
        textwrap.dedent(
            """
            import os
            from evalbus import Item, Output, scorer, serve, target

            @target("pid")
            def pid(item: Item) -> str:
                return str(os.getpid())

            @scorer("same-process")
            def same(item: Item, output: Output) -> bool:
                return output.text == str(os.getpid())

            serve(pid, same)
            """
        )
    )
    command = [sys.executable, str(tmp_path / "both.py")]
    report = evalbus_server.run(
        {"dataset": SUMS, "target": {"command": command}, "scorers": [{"command": command, "threshold": 1}]}
    )
    assert report.passed, report


@pytest.mark.parametrize(
    ("experiment", "error", "said"),
    [
        ({"dataset": []}, Invalid, "holds no items"),
        ({"dataset": "nowhere.jsonl"}, Invalid, "no such file"),
        ({"dataset": {"name": "unknown"}}, NotFound, "unknown"),
        ({"dataset": SUMS, "scorers": ["exact_macth"]}, Invalid, "did you mean exact_match"),
        ({"dataset": SUMS, "scorer": []}, Invalid, "did you mean scorers"),
        ({"dataset": {"records": SUMS, "items": ["z*"]}}, Unfit, "nothing to run"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(experiment, error, said):
    with pytest.raises(error) as raised:
        evalbus_server.run(experiment, target=add)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_function_that_cannot_be_a_scorer_is_refused_with_what_to_change():
    def wrong(question, answer):
        return 1.0

    with pytest.raises(PluginInvalid, match="question"):
        evalbus_server.run({"dataset": SUMS}, target=add, scorers=[wrong])


def test_two_functions_of_one_name_are_refused():
    with pytest.raises(Invalid, match="two functions are called '<lambda>'"):
        evalbus_server.run(
            {"dataset": SUMS},
            target=add,
            scorers=[lambda output: 1.0, lambda output: 0.0],
        )


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "text.db").write_text("this is no database, but long enough to look like one " * 40)
    with pytest.raises(StoreTrouble, match=r"text\.db"):
        evalbus_server.run({"dataset": SUMS}, target=add, db=tmp_path / "text.db")


def test_importing_the_package_costs_nothing_heavy():
    code = "import sys, evalbus_server; print([m for m in ('grpc', 'pydantic', 'sqlite_utils') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_a_run_prints_nothing():
    code = (
        "import evalbus_server\ndef t(item): return 'x'\nevalbus_server.run({'dataset': [{'input': 'a'}]}, target=t)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_report_says_what_could_not_be_done():
    def sometimes(item: Item) -> str:
        if item.input.text != "1+1":
            raise ZeroDivisionError(f"division\nof {item.input.text} by zero")
        return "2"

    def strict(output: Output) -> float:
        raise ValueError("nothing is good enough")

    items = [*SUMS, *({"id": f"more-{n}", "input": "5/0"} for n in range(5))]
    report = evalbus_server.run({"dataset": items}, target=sometimes, scorers=[strict])

    assert [line for line in str(report).splitlines() if "epoch" in line] == [
        "  a epoch 1 strict: ValueError: nothing is good enough",
        "  b epoch 1: ZeroDivisionError: division of 2+3 by zero",
        "  c epoch 1: ZeroDivisionError: division of 4+4 by zero",
    ]


def test_a_report_whose_database_is_gone_says_the_rest(tmp_path):
    def broken(item: Item) -> str:
        raise ZeroDivisionError

    report = evalbus_server.run({"dataset": SUMS}, target=broken, scorers=["exact_match"], db=tmp_path / "x.db")
    for file in tmp_path.iterdir():
        file.unlink()

    assert "3 errored" in str(report)
