"""The schema of an experiment: its defaults, its refusals in one line, its canonical form and its digest."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.bounds import Criterion, Limits
from evalbus_server.model.dataset import checked_name
from evalbus_server.model.dataset_use import FieldSource
from evalbus_server.model.environment import resolve_env
from evalbus_server.model.experiment import Epochs, Experiment, json_schema
from evalbus_server.model.faults import suggestion
from evalbus_server.model.written import ErrorLimit

SMALL: dict[str, Any] = {"name": "small", "dataset": {"name": "support"}}
FULL: dict[str, Any] = {
    "name": "support-quality",
    "description": "nightly check of the support agent",
    "dataset": {
        "path": "items.jsonl",
        "name": "support",
        "fields": {
            "input": "question",
            "expected": {"from": "answer", "as": "json"},
            "metadata.both": ["topic", "team"],
        },
        "items": ["a*", "b7"],
        "limit": 100,
    },
    "target": {
        "command": ["python", "target.py"],
        "plugin": "support-agent",
        "settings": {"model": "small", "seed": 2**70},
        "env": {"KEY": "${env:KEY}"},
    },
    "scorers": [
        {"use": "exact_match", "threshold": 1},
        {
            "name": "tone",
            "address": "dns:///judge:50051",
            "token": "${env:TOKEN}",
            "tls": {"root_certificates": "ca.pem"},
            "threshold": {"warm": 0.8, "calm": 0},
            "weight": 2,
            "map": {"response": 'output.content["odd.key"][0]'},
            "concurrency": 8,
            "timeout": "30s",
            "sampling": 0.5,
        },
    ],
    "epochs": {"count": 3, "reducer": "pass_at( 3 )"},
    "limits": {
        "concurrency": 32,
        "timeout": "1500ms",
        "trial_timeout": "5m",
        "silence": "2m",
        "deadline": "1h30m",
        "retries": 0,
        "max_errors": "50%",
        "cost": 5.00,
    },
    "criteria": [
        {"metric": "mean", "scorer": "exact_match", "min": 0.7},
        {"metric": "pass_rate", "min": 0.95, "severity": "warn"},
    ],
    "tags": ["nightly", "nightly"],
    "metadata": {"team": "support"},
}


def parsed(**more: Any) -> Experiment:
    return Experiment.parse({**SMALL, **more})


def refusal(**more: Any) -> str:
    with pytest.raises(Invalid) as caught:
        parsed(**more)
    assert caught.value.reason is Reason.EXPERIMENT_INVALID
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_not_said_has_the_default_of_the_rules():
    experiment = parsed(scorers=[{"use": "includes"}], target={"command": ["agent"]})

    assert experiment.limits.concurrency == 10
    assert experiment.limits.timeout == 60
    assert experiment.limits.trial_timeout == 600
    assert experiment.limits.silence == 120
    assert experiment.limits.deadline is None
    assert experiment.limits.retries == 2
    assert experiment.limits.max_errors is None
    assert experiment.limits.cost is None
    assert experiment.limits.currency == "USD"
    assert experiment.epochs == Epochs(count=1, reducer="mean")
    assert experiment.scorers[0].concurrency == 10
    assert experiment.scorers[0].sampling == 1
    assert experiment.scorers[0].threshold is None
    assert experiment.target is not None
    assert experiment.target.start_limit == 30


def test_everything_that_is_said_is_kept():
    experiment = Experiment.parse(FULL)

    assert experiment.dataset.fields["input"] == FieldSource(from_="question")
    assert experiment.dataset.fields["expected"].as_ == "json"
    assert experiment.dataset.fields["metadata.both"].from_ == ("topic", "team")
    assert experiment.target is not None
    assert experiment.target.settings["seed"] == 2**70
    assert experiment.scorers[1].threshold_of("calm") == 0
    assert experiment.scorers[1].threshold_of("other") is None
    assert experiment.scorers[1].weight_of("calm") == 2
    assert experiment.epochs.reducer == "pass_at(3)"
    assert experiment.limits.timeout == 1.5
    assert experiment.limits.deadline == 5400
    assert experiment.limits.retries == 0
    assert experiment.limits.max_errors == ErrorLimit(share=0.5)
    assert experiment.limits.cost_micros == 5_000_000
    assert experiment.tags == ("nightly",)


def test_the_canonical_form_reads_back_as_the_same_experiment():
    experiment = Experiment.parse(FULL)

    text = experiment.canonical_json()

    assert Experiment.from_json(text) == experiment
    assert Experiment.from_json(text).canonical_json() == text
    assert '"seed":1180591620717411303424' in text
    assert '"deadline":"90m"' in text
    assert '"max_errors":"50%"' in text


def test_the_digest_does_not_depend_on_where_the_file_lies_or_in_which_order_it_was_written():
    here = Experiment.parse({**FULL, "target": {**FULL["target"], "folder": "/here"}})
    there = Experiment.parse(dict(reversed({**FULL, "target": {**FULL["target"], "folder": "/there"}}.items())))

    assert here.digest() == there.digest()
    assert len(here.digest()) == 64


def test_the_digest_depends_on_what_is_done():
    assert parsed().digest() == parsed(limits={"retries": 2}).digest()
    assert parsed().digest() != parsed(limits={"retries": 1}).digest()


def test_what_it_stands_for_is_not_in_the_canonical_form(monkeypatch):
    monkeypatch.setenv("TOKEN", "hush")

    assert '"${env:TOKEN}"' in Experiment.parse(FULL).canonical_json()
    assert "hush" not in Experiment.parse(FULL).canonical_json()


@pytest.mark.parametrize("target", [None, "none"])
def test_a_target_of_none_means_that_the_dataset_brings_the_outputs(target):
    assert parsed(target=target).target is None
    assert parsed().target is None


def test_a_number_is_short_for_so_many_epochs():
    assert parsed(epochs=3).epochs == Epochs(count=3)


def test_a_resolved_experiment_keeps_the_selection_and_names_the_version():
    experiment = Experiment.parse(FULL).over("support", 7)

    assert experiment.dataset.source == "stored"
    assert (experiment.dataset.name, experiment.dataset.version) == ("support", 7)
    assert experiment.dataset.items == ("a*", "b7")
    assert experiment.dataset.limit == 100
    assert Experiment.from_json(experiment.canonical_json()) == experiment


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"scorers": [{"use": "a"}, {"use": "b", "treshold": 1}]},
         "scorers[1].treshold: unknown key; did you mean threshold?"),
        ({"limits": {"max_error": 1}}, "limits.max_error: unknown key; did you mean max_errors?"),
        ({"limits": {"trial": {"mesages": 1}}}, "limits.trial.mesages: unknown key; did you mean messages?"),
        ({"limits": {"trial": {"q": 1}}}, "limits.trial.q: unknown key; known are messages, tokens, steps"),
        ({"dataset": {"path": "a", "fields": {"id": {"form": "x"}}}}, "dataset.fields.id.from: missing; "
         "dataset.fields.id.form: unknown key; did you mean from?"),
        ({"name": 3}, "name: must be text, not the number 3; put it in quotes"),
        ({"name": ""}, "name: must not be empty"),
        ({"name": "a\nb"}, "name: must not hold control characters"),
        ({"dataset": None}, "dataset: must be a mapping, not nothing"),
        ({"dataset": {}}, "dataset: says no items; give path, name, records or command"),
        ({"dataset": {"path": "a", "records": []}}, "dataset: path and records exclude each other; keep one"),
        ({"dataset": {"path": "a", "version": 1}},
         "dataset: version goes with a stored dataset, not with path; leave one of them out"),
        ({"dataset": {"name": "a", "encoding": "cp1252"}},
         "dataset: encoding says how to read a file, but the dataset is stored; leave it out"),
        ({"dataset": {"name": "a", "join": "b"}},
         "dataset: join says how to read a file, but the dataset is stored; leave it out"),
        ({"dataset": {"name": "a", "from": "mastra"}},
         "dataset: from says how to read a file, but the dataset is stored; leave it out"),
        ({"dataset": {"name": "a", "records": "examples"}},
         "dataset: records is a path inside a document, but no path or command brings one; write a list"),
        ({"dataset": {"path": "a", "from": "mastra2"}}, "dataset.from: must be one of inspect_ai, promptfoo, "
         "openai_evals, voltagent, mastra, results, chat_completions, not 'mastra2'"),
        ({"dataset": {"name": "a", "shuffle": -1}}, "dataset.shuffle: must be at least 0, not -1"),
        ({"dataset": {"name": "a", "limit": 0}}, "dataset.limit: must be at least 1, not 0"),
        ({"dataset": {"path": "a", "fields": {"input": 3}}},
         "dataset.fields.input: must be a column, a list of columns, or {from: column, as: json}, not the number 3"),
        ({"dataset": {"path": "a", "fields": {"input": []}}},
         "dataset.fields.input: must name a column, or a list of columns"),
        ({"scorers": {"a": 1}}, "scorers: must be a list, not a mapping"),
        ({"target": 3}, "target: must be a mapping, not the number 3"),
        ({"target": "echo"}, "target: must be a mapping, not text; as in {use: echo}"),
        ({"dataset": "items.jsonl"}, "dataset: must be a mapping, not text; as in {path: items.jsonl}"),
        ({"scorers": ["exact_match"]}, "scorers[0]: must be a mapping, not text; as in {use: exact_match}"),
        ({"criteria": ["pass_rate"]}, "criteria[0]: must be a mapping, not text; as in {metric: pass_rate}"),
        ({"limits": "none"}, "limits: must be a mapping, not text"),
        ({"target": {}}, "target: says no way to the plugin; give use, command or address"),
        ({"target": {"use": "a", "address": "b"}}, "target: address and use exclude each other; keep one"),
        ({"target": {"use": "a", "token": "b"}}, "target: token goes with address, not with use; leave it out"),
        ({"target": {"command": "python a.py"}}, "target.command: must be a list, not text"),
        ({"target": {"command": []}}, "target.command: must not be empty"),
        ({"target": {"command": ["a"], "env": {"P": 80}}},
         "target.env.P: must be text, not the number 80; put it in quotes"),
        ({"target": {"use": "a", "settings": {"x": [1, float("nan")]}}},
         "target.settings: x[1]: nan is not JSON; leave it out"),
        ({"scorers": [{"use": "a", "threshold": "x"}]},
         "scorers[0].threshold: must be a number, or a map from score to number, not 'x'"),
        ({"scorers": [{"use": "a", "threshold": True}]},
         "scorers[0].threshold: must be a number, or a map from score to number, not true"),
        ({"scorers": [{"use": "a", "threshold": {"b": float("inf")}}]},
         "scorers[0].threshold: b must be a finite number, not inf"),
        ({"scorers": [{"use": "a", "weight": -1}]}, "scorers[0].weight: must not be below 0"),
        ({"scorers": [{"use": "a", "name": "a.b"}]},
         "scorers[0].name: must not hold a dot: 'a.b'; the dot stands between scorer and score"),
        ({"scorers": [{"use": "a", "name": "x"}, {"use": "b", "name": "x"}]},
         "scorers[0] and scorers[1] are both called 'x'; rename one"),
        ({"scorers": [{"use": "a", "map": {"x": "content"}}]},
         "scorers[0].map.x: must begin with item., output. or trial.: 'content'; the answer is output.content"),
        ({"scorers": [{"use": "a", "concurrency": 0}]}, "scorers[0].concurrency: must be at least 1, not 0"),
        ({"scorers": [{"use": "a", "sampling": -0.1}]},
         "scorers[0].sampling: must be always, never, or a share from 0 to 1, not -0.1"),
        ({"scorers": [{"use": "a", "sampling": 1.1}]},
         "scorers[0].sampling: must be always, never, or a share from 0 to 1, not 1.1"),
        ({"scorers": [{"use": "a", "sampling": float("nan")}]},
         "scorers[0].sampling: must be always, never, or a share from 0 to 1, not nan"),
        ({"scorers": [{"use": "a", "sampling": "often"}]},
         "scorers[0].sampling: must be always, never, or a share from 0 to 1, not 'often'"),
        ({"scorers": [{"use": "a", "sampling": True}]},
         "scorers[0].sampling: must be always, never, or a share from 0 to 1, not true"),
        # AG-15: before anything is asked.
        ({"epochs": 0}, "epochs.count: must be at least 1, not 0"),
        ({"epochs": -1}, "epochs.count: must be at least 1, not -1"),
        ({"epochs": 10**9}, "epochs.count: must be at most 10,000, not 1000000000"),
        ({"tags": [str(number) for number in range(101)]}, "tags: 101 tags; 100 are the most"),
        ({"epochs": {"count": 2, "reducer": "pass_at(3)"}},
         "epochs: pass_at(3) needs 3 epochs, but count is 2; raise count or lower k"),
        ({"epochs": {"reducer": "pas_at(1)"}},
         "epochs.reducer: there is no reducer 'pas_at(1)'; did you mean pass_at?"),
        ({"epochs": {"reducer": "pass_at"}},
         "epochs.reducer: pass_at needs a number of at least 1: write pass_at(1)"),
        ({"epochs": {"reducer": "mean(2)"}}, "epochs.reducer: mean takes no number; write mean"),
        ({"limits": {"concurrency": 10_001}}, "limits.concurrency: must be at most 10,000, not 10001"),
        ({"limits": {"timeout": 60}},
         "limits.timeout: a length of time needs a unit: write 60s, or 60m for minutes"),
        ({"limits": {"timeout": "0s"}}, "limits.timeout: must be longer than 0s; leave it out for the default"),
        ({"limits": {"timeout": "soon"}},
         "limits.timeout: not a length of time: 'soon'; write a number with ms, s, m, h or d, such as 60s"),
        ({"limits": {"retries": 1.5}}, "limits.retries: must be a whole number, not 1.5"),
        ({"limits": {"retries": -1}}, "limits.retries: must be at least 0, not -1"),
        ({"limits": {"max_errors": "120%"}},
         "limits.max_errors: must be a count such as 20 or a share such as 50%, not '120%'"),
        ({"limits": {"cost": "5"}}, "limits.cost: must be a number, not '5'"),
        ({"limits": {"cost": 1e-7}}, "limits.cost: must have at most six decimals, not 1e-07"),
        ({"criteria": [{"metric": "passrate", "min": 1}]},
         "criteria[0].metric: there is no metric 'passrate'; did you mean pass_rate?"),
        ({"criteria": [{"metric": "mean"}]},
         "criteria[0]: says no condition; give min, max, or baseline with max_drop"),
        ({"criteria": [{"metric": "mean", "min": 1, "max": 0}]},
         "criteria[0]: min 1 is above max 0, so it never holds"),
        ({"criteria": [{"metric": "cost", "scorer": "a", "max": 1}]},
         "criteria[0]: cost is a number of the run, not of one score; leave scorer out"),
        ({"criteria": [{"metric": "mean", "min": 1, "severity": "warning"}]},
         "criteria[0].severity: must be one of error, warn, not 'warning'"),
        ({"criteria": [{"metric": "pass_at(2)", "min": 1}]},
         "criteria[0].metric: pass_at(2) needs 2 epochs, but epochs is 1"),
        ({"tags": ["a", 1]}, "tags[1]: must be text, not the number 1; put it in quotes"),
        ({"metadata": {"a": {1: 2}}}, "metadata: a: the key 1 must be text; put it in quotes"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_path(more, line):
    assert refusal(**more) == line


def test_several_mistakes_are_told_together_and_many_are_counted():
    line = refusal(name=1, description=2, tags=3, metadata=4, epochs="5")

    assert line.startswith("name: must be text")
    assert line.count("; ") >= 3
    assert line.endswith("; and 2 more")


def test_the_error_names_the_field_of_the_first_mistake():
    with pytest.raises(Invalid) as caught:
        parsed(scorers=[{"use": "a", "env": {"odd.name": 1}}])

    assert caught.value.field == 'scorers[0].env["odd.name"]'


@pytest.mark.parametrize(
    "more",
    [
        {"limits": {"retries": 0, "max_errors": 0, "cost": 0, "tokens": 0}},
        {"scorers": [{"use": "a", "threshold": 0, "weight": 0}]},
        {"criteria": [{"metric": "mean", "min": 0, "min_coverage": 0}]},
    ],
)
def test_a_zero_that_makes_sense_is_kept(more):
    document = json.loads(parsed(**more).canonical_json())

    ((part, given),) = more.items()
    kept = document[part]
    if isinstance(given, list):
        given, kept = given[0], kept[0]
    assert {key: kept[key] for key in given} == given


def test_a_variable_of_the_environment_is_put_in_only_as_a_whole_value():
    settings = {"key": "${env:KEY}", "prompt": "say ${env:KEY}", "deep": [{"again": "${env:KEY}"}], "n": 1}

    resolved = resolve_env(settings, {"KEY": "hush"}, "target.settings")

    assert resolved == {"key": "hush", "prompt": "say ${env:KEY}", "deep": [{"again": "hush"}], "n": 1}
    assert settings["key"] == "${env:KEY}"


def test_a_value_of_the_environment_is_not_resolved_again():
    assert resolve_env("${env:A}", {"A": "${env:B}", "B": "no"}) == "${env:B}"


def test_a_variable_that_is_not_set_is_named_with_its_place():
    with pytest.raises(Invalid) as caught:
        resolve_env({"deep": [{"odd.key": "${env:KEY}"}]}, {}, "scorers[1].settings")

    where = 'scorers[1].settings.deep[0]["odd.key"]'
    assert str(caught.value) == f"{where}: the environment has no variable KEY; set it and start again"
    assert caught.value.field == where


def test_the_schema_for_editors_takes_what_the_program_takes():
    schema = json_schema()
    validator = jsonschema.Draft202012Validator(schema)

    validator.validate(FULL)
    validator.validate({**SMALL, "target": "none", "epochs": 3, "limits": {"max_errors": 3}})
    assert not validator.is_valid({**SMALL, "limits": {"timeout": 60}})
    assert not validator.is_valid({**SMALL, "scorer": []})
    assert not validator.is_valid({**SMALL, "scorers": [{"use": "a", "folder": "/x"}]})


def test_an_experiment_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        parsed().name = "other"


def test_parts_can_be_made_by_name_in_python():
    assert Limits.model_validate({"timeout": "90s"}).timeout == 90
    assert Criterion(metric="mean", min=0.5).severity == "error"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "must not be empty"),
        (" d", "must not begin or end with white space"),
        ("d\t", "must not begin or end with white space"),
        ("a\x85b", "must not hold control characters"),
        ("x" * 201, "must have at most 200 characters, not 201"),
    ],
)
def test_a_name_that_no_dataset_can_have_is_refused_by_its_rule(name: str, fault: str):
    with pytest.raises(Invalid, match=f"^dataset.name: {fault}$"):
        Experiment.parse({"name": "e", "dataset": {"name": name}})
    with pytest.raises(Invalid, match=f"{fault}: it has 1 to 200 characters, no control characters, and no white"):
        checked_name(name)


def test_a_name_with_a_slash_is_a_name():
    assert checked_name("a/../b c") == "a/../b c"


def test_a_part_of_a_name_is_enough_for_a_suggestion():
    known = ["exact_match", "includes", "levenshtein"]

    assert suggestion("exakt", known, known) == "; did you mean exact_match?"
    assert suggestion("zzz", known, known) == "; known are exact_match, includes, levenshtein"


def test_names_that_are_too_many_for_a_message_are_listed_elsewhere():
    many = [f"name{n}" for n in range(60)]
    assert suggestion("zzz", many, many, "evalbus scorers list shows them") == (
        "; there are 60: evalbus scorers list shows them"
    )
    cut = suggestion("zzz", many, many)
    assert cut.startswith("; there are 60: name0, name1") and cut.endswith("name23, …")
