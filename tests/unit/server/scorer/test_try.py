"""`evalbus scorers try`: one output judged from the shell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalbus_server.cli.main import main
from evalbus_server.scorer.builtin import BUILTINS
from tests.mock_endpoint import MockEndpoint


@pytest.fixture
def tried(capsys):
    """Runs the command: its exit code, its document, its stderr."""

    def run(*words: str) -> tuple[int, Any, str]:
        with pytest.raises(SystemExit) as ended:
            main(["scorers", "try", *words, "--json"])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(out) if out else None, err

    return run


def test_it_prints_the_score_alone_and_by_its_key(tried):
    code, document, err = tried("levenshtein", "--output", "kitten", "--expected", "sitting")
    score = {
        "status": "SCORED",
        "value": pytest.approx(1 - 3 / 7),
        "label": None,
        "explanation": "3 edits, 7 characters",
    }
    assert (code, document, err) == (0, {**score, "scores": {"levenshtein": score}}, "")


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["includes", "--output", "It is Paris", "--expected", "paris"], 1),
        (["includes", "--output", "red", "--expected-json", '["red", "blue"]', "--settings", '{"mode": "all"}'], 0),
        (["exact_match", "--output-json", '{"a": 1}', "--expected-json", '{"a": 1.0}'], 1),
        (["exact_match", "--output", "", "--expected", ""], 1),
        (["multiple_choice", "--output", "ANSWER: B", "--expected", "Rome", "--choices", '["Paris", "Rome"]'], 1),
        (["tool_order", "--settings", '{"tools": ["a", "b"]}', "--calls", '["a", {"name": "b", "arguments": {}}]'], 1),
        (["no_tool_errors", "--calls", '[{"name": "b", "error": "no", "duration": 1}]'], 0),
        (["latency_limit", "--settings", '{"seconds": 2}', "--timing", '{"total": 1.5}'], 1),
        (["latency_limit", "--settings", '{"seconds": 1, "of": "first_token"}', "--timing", '{"first_token": 2}'], 0),
        (["cost_limit", "--settings", '{"amount": 0.01}', "--usage", '{"cost": {"amount": 0.01}}'], 1),
        (["cost_limit", "--settings", '{"amount": 1}', "--usage", '{"cost": {"amount": 2, "currency": "USD"}}'], 0),
        (["token_limit", "--settings", '{"tokens": 9}', "--usage", '{"input_tokens": 4, "output_tokens": 5}'], 1),
        (["trajectory", "--settings", '{"steps": ["a"], "read": "spans"}', "--spans", '[{"id": "1", "name": "a"}]'], 1),
        (["list_contains", "--output-json", '["a"]', "--expected-json", '["a", "b"]'], 0.5),
        (["length", "--output", "abc", "--settings", '{"at_most": 3}', "--input", "x", "--metadata", '{"a": 1}'], 1),
    ],
)
def test_options_say_what_is_judged(tried, words, value):
    code, document, _ = tried(*words)
    assert (code, document["value"]) == (0, value)


def test_inputs_are_mapped_as_in_an_experiment(tried, capsys):
    words = ("f1", "--output", "Bern it is", "--metadata", '{"other": "it is Bern"}')
    code, document, _ = tried(*words, "--map", "expected=item.metadata.other")
    assert (code, document["value"]) == (0, 1.0)
    code, document, _ = tried(*words, "--map", "expected=item.metadata.another")
    assert (code, document["failure"]["reason"]) == (0, "INPUT_MISSING")
    with pytest.raises(SystemExit) as ended:
        main(["plugins", "check", "--use", *words, "--map", "expected=item.metadata.other", "--json"])
    assert (ended.value.code or 0) == 0
    assert json.loads(capsys.readouterr().out)["trial"]["scores"]["f1"]["value"] == 1.0


def test_an_answer_that_was_found_is_told(tried):
    assert tried("last_number", "--output", "It is 7.", "--expected", "7")[1]["answer"] == "7"


def test_a_score_that_is_skipped_or_errored_is_an_answer_too(tried):
    code, document, _ = tried("exact_match", "--output", "x")
    assert (code, document["status"], document["value"]) == (0, "SKIPPED", None)
    code, document, _ = tried("last_number", "--output", "7", "--expected", "seven")
    assert (code, document["status"], document["failure"]["reason"]) == (0, "ERRORED", "EXPECTED_INVALID")


@pytest.mark.parametrize(
    ("words", "reason", "said"),
    [
        (["exact_macth", "--output", "x"], "PLUGIN_UNKNOWN", "did you mean exact_match?"),
        (["pyton:checks.near", "--output", "x"], "PLUGIN_UNKNOWN", "of another library there is autoevals.NAME,"),
        (["auc", "--output", "x"], "PLUGIN_UNKNOWN", "it is a number over all trials, which stands in `metrics`"),
        (["exact_match"], "REQUEST_INVALID", "say what is judged"),
        (["exact_match", "--output", "x", "--output-json", "1"], "REQUEST_INVALID", "exclude each other"),
        (["exact_match", "--output-json", "{"], "REQUEST_INVALID", "--output-json: not JSON"),
        (["exact_match", "--output", "x", "--settings", "["], "SETTINGS_INVALID", "--settings: not JSON"),
        (["exact_match", "--output", "x", "--settings", "[]"], "SETTINGS_INVALID", "must be a JSON object"),
        (["exact_match", "--output", "x", "--settings", '{"trimm": 1}'], "SETTINGS_INVALID", "did you mean 'trim'?"),
        (["regex", "--output", "x", "--settings", '{"pattern": "(a"}'], "SETTINGS_INVALID", "settings.pattern"),
        (["exact_match", "--output", "x", "--choices", "[1]"], "REQUEST_INVALID", "--choices"),
        (["exact_match", "--output", "x", "--metadata", "1"], "REQUEST_INVALID", "--metadata"),
        (["exact_match", "--calls", '[{"nam": 1}]'], "REQUEST_INVALID", "--calls: [0]"),
        (["exact_match", "--calls", '[{"name": "a", "error": 1}]'], "REQUEST_INVALID", "--calls: [0]"),
        (
            ["token_limit", "--settings", '{"tokens": 9}', "--usage", '{"tokens": 4}'],
            "REQUEST_INVALID",
            "--usage.tokens",
        ),
        (["latency_limit", "--settings", '{"seconds": 9}', "--timing", "1"], "REQUEST_INVALID", "--timing: must be"),
        (["exact_match", "--spans", '[{"id": "1"}]'], "REQUEST_INVALID", "--spans: [0].name: missing"),
        (["exact_match", "--calls", "{}"], "REQUEST_INVALID", "--calls: must be a JSON list"),
        (["f1", "--output", "x", "--map", "expected"], "REQUEST_INVALID", "--map: 'expected' is not INPUT=PATH"),
        (["f1", "--output", "x", "--map", "expectd=item.input"], "EXPERIMENT_INVALID", "did you mean expected?"),
        (["f1", "--output", "x", "--map", "expected=itm.input"], "EXPERIMENT_INVALID", "must begin with item."),
    ],
)
def test_what_does_not_fit_is_one_line_and_ends_with_2(tried, words, reason, said):
    code, document, err = tried(*words)
    assert (code, document) == (2, None)
    error = json.loads(err)["error"]
    assert error["reason"] == reason
    assert said in error["message"]


def test_people_read_it_in_lines(capsys):
    with pytest.raises(SystemExit):
        main(["scorers", "try", "last_number", "--output", "7 or 8", "--expected", "7"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["score last_number: 0", "answer 8", "why the last number is '8'"]


def test_all_are_listed_with_a_space_between_name_and_text(capsys):
    with pytest.raises(SystemExit):
        main(["scorers", "list"])
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert set(names) >= BUILTINS.keys()
    assert any(line.startswith("  trajectory_efficiency  ") for line in lines)


def test_a_number_over_all_trials_is_shown_by_its_name(capsys):
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["scorers", "show", *words])
        assert (ended.value.code or 0) == 0
        return str(capsys.readouterr().out)

    assert {"metric auc", "inputs output, expected"} <= {" ".join(line.split()) for line in shown("auc").splitlines()}
    metric = json.loads(shown("auc", "--json"))["metric"]
    assert (metric["name"], list(metric["settings_schema"]["properties"])) == ("auc", ["positive"])
    both = shown("f1").splitlines()
    assert [line.split()[:2] for line in both if line.startswith(("scorer", "metric"))] == [
        ["scorer", "f1"],
        ["metric", "f1"],
    ]
    assert [plugin["name"] for plugin in json.loads(shown("f1", "--json"))["plugins"]] == ["f1"]


def test_a_judge_can_be_tried_too(tried, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with MockEndpoint([{"reason": "It names it.", "verdict": "yes"}]) as mock:
        monkeypatch.setenv("OPENAI_BASE_URL", mock.base_url)
        settings = '{"model": "m", "criterion": "it names a city"}'
        code, document, _ = tried(
            "judge_closed_qa", "--settings", settings, "--input", "Where?", "--output", "In Bern."
        )
    assert (code, document["value"], document["label"], document["explanation"]) == (0, 1.0, "yes", "It names it.")
    assert document["metadata"]["judge"]["model"] == "m-2026"  # as the endpoint says
    assert document["steps"][0]["name"] == "score"
    assert document["usage"]["calls"] == 1


def test_a_judge_that_compares_is_tried_with_what_is_mapped_to_it(tried, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    verdicts = [{"reason": "r", "verdict": "first"}, {"reason": "r", "verdict": "second"}]
    with MockEndpoint(verdicts) as mock:
        monkeypatch.setenv("OPENAI_BASE_URL", mock.base_url)
        words = ["--map", "against=item.metadata.other", "--metadata", '{"other": "No."}', "--output", "In Bern."]
        code, document, _ = tried("judge_pairwise", "--settings", '{"model": "m"}', *words)
    assert (code, document["value"], document["label"]) == (0, 1.0, "better")


CHECKS = '''
def near(output: float, expected: float, tolerance: float = 0.0):
    """1 if two numbers are near each other."""
    return abs(output - expected) <= tolerance, f"off by {abs(output - expected)}"


def seen(task):
    output, item = task.output, task.item
    calls = [(call.name, call.arguments) for call in output.tool_calls]
    return 1.0, repr([output.content.data, calls, item.choices, item.metadata, output.usage.input_tokens])
'''


@pytest.fixture
def checks(tmp_path, monkeypatch):
    (tmp_path / "checks.py").write_text(CHECKS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("checks")
def test_a_scorer_of_another_library_is_tried_by_its_name(tried):
    words = ("python:checks.near", "--output", "4", "--expected", "5.5")
    code, document, err = tried(*words, "--settings", '{"tolerance": 2}')
    score = {"status": "SCORED", "value": 1, "label": None, "explanation": "off by 1.5"}
    assert (code, document, err) == (0, {**score, "scores": {"near": score}}, "")
    code, document, _ = tried("python:checks.near", "--output", "four", "--expected", "5")
    assert (code, document["status"], document["failure"]["reason"]) == (0, "ERRORED", "NOT_A_NUMBER")


SEEN = [
    "--output-json",
    '{"content": 1}',
    "--calls",
    '["a", {"name": "b", "arguments": {"x": 1}}]',
    "--choices",
    '["c"]',
]
SEEN += ["--metadata", '{"k": [1]}', "--usage", '{"input_tokens": 3}']


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize(
    "command", [["scorers", "try", "python:checks.seen"], ["plugins", "check", "--use", "python:checks.seen"]]
)
def test_both_commands_give_it_the_whole_of_what_the_options_make(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([*command, *SEEN, "--json"])
    document = json.loads(capsys.readouterr().out)
    score = document["trial"]["scores"]["seen"] if "trial" in document else document
    said = [{"content": 1}, [("a", {}), ("b", {"x": 1})], ("c",), {"k": [1]}, 3]
    assert (ended.value.code or 0, score["explanation"]) == (0, repr(said))


@pytest.mark.usefixtures("checks")
def test_one_that_is_not_there_is_told_in_a_line(tried):
    code, document, err = tried("python:checks.neer", "--output", "4")
    assert (code, document) == (4, None)
    assert "did you mean near?" in json.loads(err)["error"]["message"]
    code, _, err = tried("python:checks.near", "--output", "4", "--settings", '{"tolerence": 1}')
    assert code == 2 and "did you mean 'tolerance'" in json.loads(err)["error"]["message"]


@pytest.mark.usefixtures("checks")
def test_a_scorer_of_another_library_says_what_it_takes(capsys):
    for words in (["scorers", "show", "python:checks.near"], ["plugins", "describe", "--use", "python:checks.near"]):
        with pytest.raises(SystemExit):
            main([*words, "--json"])
        (plugin,) = json.loads(capsys.readouterr().out)["plugins"]
        assert plugin["inputs"] == ["output", "expected", "tolerance"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--use", "exact_match", "--output-json", "[1]", "--expected-json", "[[1.0]]"], 0, ""),
        (["--use", "includes", "--expected", "ell"], 0, ""),
        (["--use", "exact_macth"], 2, "did you mean exact_match?"),
        (["--use", "exact_match", "--target"], 2, "is a scorer, not a target"),
        (["--use", "exact_match", "--plugin", "p"], 2, "--plugin goes with --command and --address"),
        (["--use", "exact_match", "--address", "a:1"], 2, "say where the plugin is"),
        (["--use", "exact_match", "--output", "x", "--output-json", "1"], 2, "exclude each other"),
        ([], 2, "--use NAME"),
    ],
)
def test_a_builtin_is_checked_as_any_plugin(capsys, words, code, said):
    with pytest.raises(SystemExit) as ended:
        main(["plugins", "check", *words, "--json"])
    out, err = capsys.readouterr()
    assert (ended.value.code or 0) == code
    if code == 0:
        trial = json.loads(out)["trial"]
        assert [score["value"] for score in trial["scores"].values()] == [1.0]
    else:
        assert said in json.loads(err)["error"]["message"]
