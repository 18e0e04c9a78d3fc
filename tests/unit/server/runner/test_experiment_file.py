"""Experiment files: read from any of the three formats, with values set from outside, refused in one line."""

from __future__ import annotations

import json

import pytest

from evalbus_server.errors import Invalid, Reason
from evalbus_server.runner.experiment_file import from_mapping, load

YAML = """\
name: support-quality
dataset: {path: items.jsonl, fields: {input: question}}
target: {command: [python, target.py], settings: {model: small}}
scorers:
  - {use: exact_match, threshold: 1.0}
  - {name: tone, command: [node, tone.js], threshold: 0.8}
epochs: 3
limits: {timeout: 5m, max_errors: 50%}
tags: [nightly]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text(YAML)
    return path


def refusal(path, *overrides: str) -> str:
    with pytest.raises(Invalid) as caught:
        load(path, overrides)
    assert caught.value.reason is Reason.EXPERIMENT_INVALID
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_three_formats_give_the_same_experiment(tmp_path, file):
    document = {
        "name": "support-quality",
        "dataset": {"path": "items.jsonl", "fields": {"input": "question"}},
        "target": {"command": ["python", "target.py"], "settings": {"model": "small"}},
        "scorers": [
            {"use": "exact_match", "threshold": 1.0},
            {"name": "tone", "command": ["node", "tone.js"], "threshold": 0.8},
        ],
        "epochs": 3,
        "limits": {"timeout": "5m", "max_errors": "50%"},
        "tags": ["nightly"],
    }
    (tmp_path / "e.json").write_text(json.dumps(document))
    (tmp_path / "e.toml").write_text(
        """
        name = "support-quality"
        epochs = 3
        tags = ["nightly"]
        dataset = {path = "items.jsonl", fields = {input = "question"}}
        target = {command = ["python", "target.py"], settings = {model = "small"}}
        limits = {timeout = "5m", max_errors = "50%"}
        [[scorers]]
        use = "exact_match"
        threshold = 1.0
        [[scorers]]
        name = "tone"
        command = ["node", "tone.js"]
        threshold = 0.8
        """
    )

    experiments = [load(file), load(tmp_path / "e.json"), load(tmp_path / "e.toml")]

    assert experiments[0] == experiments[1] == experiments[2] == from_mapping(document, tmp_path)


def test_paths_are_relative_to_the_file(file, tmp_path, monkeypatch):
    monkeypatch.chdir("/")

    experiment = load(file)

    assert experiment.dataset.path == "items.jsonl"
    assert experiment.dataset.file == tmp_path / "items.jsonl"
    assert experiment.target is not None
    assert experiment.target.folder == str(tmp_path)
    assert experiment.scorers[1].folder == str(tmp_path)


def test_the_folder_of_the_file_does_not_change_the_digest(file, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "renamed.yaml").write_text(YAML)

    assert load(file).digest() == load(other / "renamed.yaml").digest()


def test_tags_from_outside_are_added_to_those_of_the_file(file):
    assert load(file, tags=["mine", "nightly"]).tags == ("nightly", "mine")
    assert load(file, ["tags=[]"], tags=["mine"]).tags == ("mine",)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("limits.concurrency=32", "limits.concurrency", 32),
        ("target.settings.model=large", "target.settings", {"model": "large"}),
        ("target.settings={a: [1, 2]}", "target.settings", {"a": [1, 2]}),
        ('target.settings["odd.key"]=x=y', "target.settings", {"model": "small", "odd.key": "x=y"}),
        ("scorers.tone.threshold=0.9", "scorers.1.threshold", 0.9),
        ("scorers.exact_match.threshold=0", "scorers.0.threshold", 0),
        ("scorers[0].threshold=null", "scorers.0.threshold", None),
        ("scorers[-1].weight=2", "scorers.1.weight", 2),
        ("scorers[2].use=includes", "scorers.2.use", "includes"),
        ("scorers[2]={use: includes}", "scorers.2.use", "includes"),
        ("epochs.reducer=majority", "epochs.reducer", "majority"),
        ("epochs.reducer=majority", "epochs.count", 3),
        ("dataset.items=[a*, b]", "dataset.items", ("a*", "b")),
        ("target=none", "target", None),
        ("criteria[0]={metric: mean, min: 1}", "criteria.0.min", 1),
        ("description=''", "description", ""),
    ],
)
def test_a_value_can_be_set_from_outside(file, override, path, value):
    part = load(file, [override])
    for step in path.split("."):
        part = part[int(step)] if step.isdigit() else getattr(part, step)  # type: ignore[index]
    assert part == value


def test_values_are_set_in_order(file):
    experiment = load(file, ["scorers.tone.name=mood", "scorers.mood.threshold=0.5", "scorers[1].threshold=0.6"])

    assert experiment.scorers[1].threshold == 0.6


def test_a_value_set_in_one_place_of_two_that_share_an_anchor_changes_only_that(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: a\ndataset: {name: d}\ntarget: none\nscorers:\n"
        "  - {name: one, use: x, settings: &s {n: 1}}\n"
        "  - {name: two, use: x, settings: *s}\n"
    )

    experiment = load(path, ["scorers.one.settings.n=2"])

    assert [scorer.settings for scorer in experiment.scorers] == [{"n": 2}, {"n": 1}]


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("limits.concurrency", "write PATH=VALUE, such as limits.concurrency=32"),
        ("=3", "a path must not be empty"),
        ("[0]=3", "a path begins with a key, such as limits.concurrency"),
        ("a..b=3", "not a path: 'a..b' at character 2; write a.b, a[0] or a[\"odd.key\"]"),
        ("name.first=3", "name is text, so nothing can be set inside it"),
        ("scorers.tune.threshold=1", "scorers has no entry called 'tune'; did you mean tone?"),
        ("scorers[5].threshold=1", "scorers has 2 entries, so there is no [5]"),
        ("limits[0]=1", "limits is a mapping, so [0] leads nowhere; name a key"),
        (
            "limits.concurrency=[",
            "in the value, line 1, column 2: not YAML: expected the node content, but found '<stream end>'",
        ),
    ],
)
def test_an_override_that_does_not_fit_is_one_line(file, override, why):
    assert refusal(file, override) == f"--set {override}: {why}"


def test_a_fault_is_named_with_file_line_and_path(file):
    file.write_text(YAML.replace("threshold: 0.8", "treshold: 0.8"))

    assert refusal(file) == f"{file}: line 6, column 44: scorers[1].treshold: unknown key; did you mean threshold?"


def test_a_fault_that_an_override_made_is_named_with_its_path(file):
    assert refusal(file, "limits.zzzz=1").startswith("--set limits.zzzz=1: limits.zzzz: unknown key; known are")
    assert refusal(file, "metadata=1") == "--set metadata=1: metadata: must be a mapping, not the number 1"
    assert refusal(file, "limits.retries=1", "limits={retries: x}").startswith(
        "--set limits={retries: x}: limits.retries:"
    )


def test_a_fault_of_the_file_is_named_with_its_line_whatever_is_set_beside_it(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text("name: a\ndataset: {name: d}\ntarget: none\nlimits: {retries: many}\n")

    assert refusal(path, "limits.concurrency=3").startswith(
        f"{path}: line 4, column 10: limits.retries: must be a whole number"
    )


def test_who_says_nothing_of_the_target_is_asked_to(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text("name: a\ndataset: {name: d}\n")

    assert refusal(path).endswith(
        "target: missing; say what is asked, or `target: none` if the dataset brings the outputs"
    )
    assert load(path, ["target=none"]).target is None


def test_the_folder_cannot_be_set(file):
    assert "target.folder: unknown key" in refusal(file, "target.folder=/tmp")


def test_a_date_in_toml_must_be_text(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text('name = "a"\ntarget = "none"\ndataset = {name = "d"}\nmetadata = {day = 2024-01-31}')

    assert refusal(path) == f"{path}: line 4, column 1: metadata: day: a date is not JSON; put it in quotes"


def test_data_that_was_given_is_not_changed(tmp_path):
    document = {"name": "a", "dataset": {"name": "d"}, "target": "none", "tags": ["x"]}

    from_mapping(document, tmp_path, ["dataset.limit=3"], ["y"])

    assert document == {"name": "a", "dataset": {"name": "d"}, "target": "none", "tags": ["x"]}
