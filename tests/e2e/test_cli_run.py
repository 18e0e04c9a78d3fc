"""`evalbus run`, from the file to the exit code, with a target and a scorer in processes of their own (RC-19)."""

import json
import os
import re

import pytest

from tests.e2e.command_line import Desk


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def test_a_run_that_passes_ends_with_0_and_shows_its_numbers(desk):
    ended = desk.run("run", "sums.yaml")
    assert (ended.code, ended.err) == (0, "")
    for part in ("exact_match", "close", "nearly all right", "20 passed   0 failed   0 errored", "verdict  PASS"):
        assert part in ended.out
    assert re.search(r"next +evalbus runs results r\w+", ended.out)
    assert (desk.folder / "evalbus.db").exists()


def test_a_run_below_a_criterion_ends_with_1_and_says_which(desk):
    ended = desk.run("run", "sums.yaml", "--set", "target.settings.off_by=1")
    assert ended.code == 1
    assert ended.reason == "evalbus: FAIL: nearly all right: mean of exact_match is 0, below 0.9"


def test_a_run_in_which_all_errored_ends_with_3(desk):
    ended = desk.run("run", "sums.yaml", "--set", "target.settings.broken=true")
    assert ended.code == 3
    assert ended.reason.startswith("evalbus: INCONCLUSIVE: nearly all right: mean of exact_match has no value")
    assert "20 errored" in ended.out
    assert re.search(
        r"20 of 20 trials errored, each with REFUSED; see evalbus runs results r\w+ --outcome errored$",
        ended.reason,
    )


def test_without_criteria_the_count_of_errors_is_said_once(desk):
    ended = desk.run("run", "sums.yaml", "--set", "target.settings.broken=true", "--set", "criteria=[]")
    assert ended.code == 3
    assert ended.reason.startswith("evalbus: INCONCLUSIVE: 20 of 20 trials errored, each with REFUSED; see ")


def test_a_bad_experiment_ends_with_2(desk):
    desk.write("bad.yaml", "name: x\ndataset: {path: items.jsonl}\nscorer: []\n")
    ended = desk.run("run", "bad.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert ended.reason == "evalbus: bad.yaml: line 3, column 1: scorer: unknown key; did you mean scorers?"


def test_a_target_that_is_not_there_ends_with_4(desk):
    ended = desk.run("run", "sums.yaml", "--set", "target={address: '127.0.0.1:1', start_limit: 1s}")
    assert (ended.code, ended.out) == (4, "")
    assert "127.0.0.1:1" in ended.reason
    assert ended.err.count("\n") == 1


def test_a_run_that_is_aborted_ends_with_4_and_shows_what_there_is(desk):
    ended = desk.run(
        "run", "sums.yaml", "--set", "target.settings.broken=true", "--set", "limits={max_errors: 3, concurrency: 1}"
    )
    assert ended.code == 4
    assert re.search(r"run r\w+ is ABORTED: \d+ errors of target; the limit is 3 \(\d+ of 20 trials", ended.reason)
    assert "verdict  INCONCLUSIVE" in ended.out


def test_with_json_there_is_one_document_on_stdout(desk):
    ended = desk.run("run", "sums.yaml", "--json")
    document = ended.document
    assert (ended.code, ended.err) == (0, "")
    assert document["counts"] == {
        "planned": 20,
        "passed": 20,
        "failed": 0,
        "errored": 0,
        "skipped": 0,
        "pending": 0,
    }
    assert document["scores"].keys() == {"exact_match", "close"}
    assert document["criteria"][0]["outcome"] == "PASS"
    assert document["dataset"]["name"] == "items"
    for key in ("run", "name", "state", "reason", "verdict", "partial", "pass_rate", "coverage", "weighted"):
        assert key in document
    for key in ("latency_ms", "usage", "digest", "duration_s"):
        assert key in document


@pytest.mark.parametrize(
    ("override", "code", "reason"),
    [
        ("target.settings.off_by=1", 1, "FAIL"),
        ("target.settings.broken=true", 3, "INCONCLUSIVE"),
        ("target.command=[python, nowhere.py]", 4, "PLUGIN_START_FAILED"),
        ("limits.retries=many", 2, "EXPERIMENT_INVALID"),
    ],
)
def test_with_json_the_reason_is_a_document_on_stderr(desk, override, code, reason):
    ended = desk.run("run", "sums.yaml", "--json", "--set", override)
    assert ended.code == code
    assert json.loads(ended.reason)["error"]["reason"] == reason
    if ended.out:
        assert ended.document["verdict"] == reason


def test_a_target_may_listen_at_an_address(desk):
    with desk.listening("plugins.py") as address:
        ended = desk.run("run", "sums.yaml", "--json", "--set", f"target={{address: '{address}'}}")
    assert ended.code == 0, ended.err


def test_two_processes_make_one_run_too(desk):
    desk.write("other.py", (desk.folder / "plugins.py").read_text())
    ended = desk.run("run", "sums.yaml", "--json", "--set", "scorers.close.command=[python, other.py]")
    assert ended.document["scores"]["close"]["mean"] == 1.0


def test_a_dry_run_checks_everything_and_stores_nothing(desk):
    ended = desk.run("run", "sums.yaml", "--dry-run", "--json", "--limit", "7", "--epochs", "2")
    assert ended.code == 0, ended.err
    assert ended.document["trials"] == 14
    assert ended.document["target_calls"] == 14
    assert ended.document["scores"] == ["exact_match", "close"]
    assert not (desk.folder / "evalbus.db").exists()
    assert "nothing is stored" in desk.run("run", "sums.yaml", "--dry-run").out


def test_a_dry_run_refuses_what_a_run_would_refuse(desk):
    ended = desk.run("run", "sums.yaml", "--dry-run", "--set", "target.settings.speed=3")
    assert ended.code == 2
    assert "settings.speed" in ended.reason


def test_a_dry_run_over_a_stored_dataset_reads_the_database(desk):
    desk.run("run", "sums.yaml")
    before = desk.run("runs", "list", "--json").document
    ended = desk.run("run", "sums.yaml", "--dry-run", "--json", "--set", "dataset={name: items}")
    assert ended.document["items"] == 20
    assert desk.run("runs", "list", "--json").document == before


def test_options_and_set_and_tags_change_the_experiment(desk):
    ended = desk.run(
        "run", "sums.yaml", "--json", "--limit", "5", "--epochs", "2", "--concurrency", "3", "--tag", "night",
        "--set", "scorers.close.threshold=0.5", "--set", "name=renamed", "--set", "dataset.limit=4",
    )  # fmt: skip
    document = ended.document
    assert document["name"] == "renamed"
    assert document["counts"]["planned"] == 8  # --set comes after --limit
    assert document["scores"]["close"]["threshold"] == 0.5
    assert document["tags"] == ["small", "night"]


def test_the_database_is_the_option_then_the_variable(desk):
    assert desk.run("run", "sums.yaml", env={"EVALBUS_DB": "env.db"}).code == 0
    assert desk.run("run", "sums.yaml", "--db", "option.db", env={"EVALBUS_DB": "env.db"}).code == 0
    found = sorted(path.name for path in desk.folder.glob("*.db"))
    assert found == ["env.db", "option.db"]


def test_paths_are_those_of_the_file_wherever_one_stands(desk, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = Desk(elsewhere)
    assert other.run("run", str(desk.folder / "sums.yaml"), "--db", "here.db").code == 0
    assert (elsewhere / "here.db").exists()


def test_logs_go_to_stderr_and_hold_no_content(desk):
    ended = desk.run("run", "sums.yaml", "--json", env={"EVALBUS_LOG": "info"})
    assert json.loads(ended.out)["verdict"] == "PASS"
    assert "run started" in ended.err and "run ended" in ended.err
    assert "19+19" not in ended.err


def test_a_level_that_there_is_not_is_refused(desk):
    ended = desk.run("run", "sums.yaml", env={"EVALBUS_LOG": "loud"})
    assert ended.code == 2
    assert "EVALBUS_LOG: there is no level 'loud'; set it to debug, info, warning, error" in ended.reason


def test_another_file_of_the_same_name_is_no_version_of_the_first(desk: Desk) -> None:
    """An edited file is, and one that was moved; any other has to say what it is."""
    items = (desk.folder / "items.jsonl").read_text()
    for folder in ("a", "b"):
        (desk.folder / folder).mkdir()
        desk.write(f"{folder}/items.jsonl", items)
    of = ("--json", "--set")
    assert desk.run("run", "sums.yaml", *of, "dataset.path=a/items.jsonl").document["dataset"]["version"] == 1
    edited = items.replace("i000", "new")
    desk.write("a/items.jsonl", edited)
    desk.write("b/items.jsonl", items)
    again = desk.run("run", "sums.yaml", *of, "dataset.path=a/items.jsonl")
    other = desk.run("run", "sums.yaml", "--set", "dataset.path=b/items.jsonl")
    named = desk.run("run", "sums.yaml", "--set", "dataset.name=mine", *of, "dataset.path=b/items.jsonl")
    (desk.folder / "a" / "items.jsonl").unlink()
    moved = desk.run("run", "sums.yaml", *of, "dataset.path=b/items.jsonl")

    assert (again.code, again.document["dataset"]["version"]) == (0, 2)
    assert other.code == 2
    a, b = (os.path.realpath(desk.folder / folder / "items.jsonl") for folder in ("a", "b"))
    assert f"the dataset 'items' comes from {a}, and {b} is another file: beside path, give it a name" in other.reason
    assert [named.document["dataset"][key] for key in ("name", "version")] == ["mine", 1]
    assert [moved.document["dataset"][key] for key in ("name", "version")] == ["items", 3]
