"""`evalbus runs` and `evalbus plugins`: what is stored, read by another process than the one that wrote it."""

import json

import pytest

from tests.e2e.command_line import Desk


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("desk"), items=6)
    desk.run("run", "sums.yaml", "--tag", "first")
    desk.run("run", "sums.yaml", "--set", "target.settings.off_by=1", "--set", "name=off", "--epochs", "2")
    return desk


@pytest.fixture(scope="module")
def runs(desk):
    return desk.run("runs", "list", "--json").document["runs"]


def test_the_newest_run_is_listed_first(desk, runs):
    assert [(run["name"], run["state"], run["verdict"]) for run in runs] == [
        ("off", "COMPLETED", "FAIL"),
        ("sums", "COMPLETED", "PASS"),
    ]
    out = desk.run("runs", "list").out
    assert out.index(runs[0]["run"]) < out.index(runs[1]["run"])
    assert "12 of 12" in out


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--experiment", "off"], ["off"]),
        (["--tag", "first"], ["sums"]),
        (["--dataset", "items"], ["off", "sums"]),
        (["--dataset", "others"], []),
        (["--state", "completed"], ["off", "sums"]),
        (["--state", "RUNNING"], []),
        (["--limit", "1"], ["off"]),
    ],
)
def test_filters_leave_the_others_out(desk, words, names):
    assert [run["name"] for run in desk.run("runs", "list", "--json", *words).document["runs"]] == names


def test_a_run_is_shown_as_it_was_when_it_ended(desk, runs):
    shown = desk.run("runs", "show", runs[1]["run"], "--json").document
    assert shown["verdict"] == "PASS"
    assert shown["scores"]["exact_match"]["mean"] == 1.0
    assert shown["criteria"][0]["label"] == "nearly all right"
    assert shown["experiment"]["scorers"][0]["use"] == "exact_match"
    out = desk.run("runs", "show", runs[1]["run"]).out
    assert "verdict  PASS" in out
    assert "\nscorer   exact_match" in out


def test_the_beginning_of_an_id_or_latest_will_do(desk, runs):
    assert desk.run("runs", "show", runs[1]["run"][:-1], "--json").document["run"] == runs[1]["run"]
    assert desk.run("runs", "show", "latest", "--json").document["run"] == runs[0]["run"]


def test_showing_is_no_verdict(desk, runs):
    assert desk.run("runs", "show", runs[0]["run"]).code == 0


def test_results_come_in_dataset_order_and_then_by_epoch(desk, runs):
    results = desk.run("runs", "results", runs[0]["run"], "--jsonl").documents
    assert [(each["item"], each["epoch"]) for each in results] == [
        (f"i{n:03}", epoch) for n in range(6) for epoch in (1, 2)
    ]
    first = results[0]
    assert (first["input"], first["expected"], first["output"], first["outcome"]) == ("0+0", 0, 1, "FAILED")
    assert first["scores"]["exact_match"]["passed"] is False
    assert first["scores"]["close"]["passed"] is None
    assert first["scores"]["close"]["explanation"] == "off by 1"
    assert first["attempts"] == 1 and first["latency_ms"] > 0


def test_results_can_be_chosen_by_outcome_and_item(desk, runs):
    chosen = desk.run("runs", "results", runs[1]["run"], "--jsonl", "--item", "i00[12]").documents
    assert [each["item"] for each in chosen] == ["i001", "i002"]
    assert desk.run("runs", "results", runs[1]["run"], "--jsonl", "--outcome", "failed").out == ""


def test_results_can_be_chosen_by_score_tag_and_text(desk, runs):
    def chosen(*words):
        said = desk.run("runs", "results", runs[1]["run"], "--jsonl", *words)
        return [each["item"] for each in said.documents] if said.out else []

    everything = chosen()
    key = next(iter(desk.run("runs", "show", runs[1]["run"], "--json").document["scores"]))
    assert chosen("--score", f"{key}>=0", "--score", f"{key}=scored") == everything
    assert chosen("--score", f"{key}=missing") == chosen("--tag", "nowhere") == chosen("--text", "no such words") == []
    assert chosen("--text", everything[0].upper()) == everything[:1]
    unknown = desk.run("runs", "results", runs[1]["run"], "--score", "tone<1")
    assert (unknown.code, "the run has no score 'tone'" in unknown.reason) == (2, True)
    unclear = desk.run("runs", "results", runs[1]["run"], "--score", "tone")
    assert (unclear.code, "write KEY=STATUS" in unclear.reason) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--outcome", "errored"], "--outcome ERRORED"),
        (["--item", "z*", "--tag", "t"], "--item z* and --tag t"),
        (["--score", "exact_match=missing", "--score", "exact_match<0.5"], "--score exact_match=missing and --score exact_match<0.5"),
        (["--score", "exact_match=0.25"], "--score exact_match=0.25"),
        (["--text", "no such words"], "--text no such words"),
    ],
)  # fmt: skip
def test_results_of_which_none_fits_say_so(desk, runs, words, said):
    run = runs[1]["run"]
    shown = desk.run("runs", "results", run, *words)
    count = len(desk.run("runs", "results", run, "--jsonl").documents)
    assert (shown.code, shown.out.strip()) == (0, f"None of the {count} results of run {run} fits {said}.")


def test_results_are_a_table_for_people(desk, runs):
    out = desk.run("runs", "results", runs[0]["run"]).out
    assert "exact_match" in out and "i005" in out and "0.5000" in out


def test_watching_a_run_that_is_over_reads_its_events_and_ends_as_it_did(desk, runs):
    ended = desk.run("runs", "watch", runs[0]["run"], "--json")
    assert ended.code == 1
    assert [event["sequence"] for event in ended.documents] == list(range(1, len(ended.documents) + 1))
    assert ended.documents[-1]["verdict"] == "FAIL"
    assert json.loads(ended.reason)["error"]["reason"] == "FAIL"
    shown = desk.run("runs", "watch", runs[1]["run"])
    assert (shown.code, shown.err) == (0, "")
    assert "verdict  PASS" in shown.out


def test_a_plugin_is_described_by_command_and_by_address(desk):
    out = desk.run("plugins", "describe", "--command", "python plugins.py").out
    assert "target      adder 1.0.0" in out and "scorer      close 1.0.0" in out
    with desk.listening("plugins.py") as address:
        found = desk.run("plugins", "describe", "--address", address, "--target", "--json").document["plugins"]
    assert [plugin["name"] for plugin in found] == ["adder"]
    assert found[0]["settings_schema"]["properties"].keys() >= {"off_by", "delay", "broken", "dies_at"}


def test_a_plugin_is_tried_with_one_trial(desk):
    ended = desk.run(
        "plugins",
        "check",
        "--command",
        "python plugins.py",
        "--target",
        "--input",
        "20+3",
        "--settings",
        '{"off_by": 1}',
    )
    assert ended.code == 0, ended.err
    assert "trial       PASSED" in ended.out and "content     24" in ended.out
    document = desk.run(
        "plugins", "check", "--command", "python plugins.py", "--target", "--input", "20+3", "--json"
    ).document
    assert document["trial"]["content"] == "23"


def test_a_plugin_that_cannot_do_the_trial_ends_with_1(desk):
    ended = desk.run("plugins", "check", "--command", "python plugins.py", "--target", "--input", "x")
    assert ended.code == 1
    assert ended.reason.startswith("evalbus: adder could not do the trial: ")
    refused = desk.run("plugins", "check", "--command", "python plugins.py", "--target", "--settings", '{"x": 1}')
    assert refused.code == 2
    given = desk.run("plugins", "check", "--command", "python plugins.py", "--target", "--calls", '["a"]')
    assert (given.code, "is a target: it is given no output" in given.err) == (2, True)
