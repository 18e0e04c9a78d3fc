"""Experiments over the wire: nothing is lost, and a message is judged by the schema of the file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from evalbus import Item, Value
from evalbus.v1 import experiment_pb2 as pb
from evalbus.wire import item_to_proto
from evalbus_server.errors import Invalid, Reason
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.written import ErrorLimit
from evalbus_server.wire.experiment import criterion_from_proto, experiment_from_proto, experiment_to_proto
from tests.unit.server.wire.samples import EXPERIMENT
from tests.unit.server.wire.strategies import EXPERIMENTS


def smallest() -> pb.Experiment:
    return pb.Experiment(name="small", dataset=pb.DatasetSelection(stored=pb.DatasetRef(name="support")))


def refusal(message: pb.Experiment) -> str:
    with pytest.raises(Invalid) as caught:
        experiment_from_proto(message)
    assert caught.value.reason is Reason.EXPERIMENT_INVALID
    assert str(caught.value).startswith(caught.value.field)
    return str(caught.value)


@settings(deadline=None)
@given(EXPERIMENTS)
def test_an_experiment_comes_back_as_it_went(experiment):
    message = pb.Experiment.FromString(experiment_to_proto(experiment).SerializeToString())

    assert experiment_from_proto(message) == (experiment, ())


def test_what_a_message_does_not_say_has_the_defaults_of_a_file():
    said = Experiment.parse({"name": "small", "dataset": {"name": "support"}})

    assert experiment_from_proto(smallest()) == (said, ())


def test_a_severity_that_is_not_known_is_read_as_error():
    message = smallest()
    message.criteria.add(metric="mean", min=0, severity=7)

    assert experiment_from_proto(message)[0].criteria[0].severity == "error"


def test_a_criterion_comes_back_as_it_went():
    for criterion, message in zip(EXPERIMENT.criteria, experiment_to_proto(EXPERIMENT).criteria, strict=True):
        assert criterion_from_proto(message) == criterion


def test_items_in_place_come_as_they_are_and_define_the_experiment():
    items = (Item("a", Value("1.10", "json"), metadata='{"n": 1.50}'), Item("b", Value.blob(b"\0", "image/png")))
    message = smallest()
    message.dataset.inline.items.extend(item_to_proto(item) for item in items)

    experiment, read = experiment_from_proto(message)

    assert read == items
    assert experiment.dataset.source == "records"
    assert [record["id"] for record in experiment.dataset.in_place] == ["a", "b"]
    assert experiment_from_proto(experiment_to_proto(experiment, items)) == (experiment, items)


@pytest.mark.parametrize("source", [{"path": "items.jsonl"}, {"command": ["make-items"]}])
def test_a_file_or_command_of_the_caller_has_no_form(source):
    experiment = Experiment.parse({"name": "a", "dataset": source})

    with pytest.raises(Invalid) as caught:
        experiment_to_proto(experiment)
    (key,) = source
    assert str(caught.value) == (
        f"dataset.{key}: a server reads no dataset of its caller; upload the items, then name them"
    )


def _change(**fields) -> pb.Experiment:
    message = smallest()
    message.MergeFrom(pb.Experiment(**fields))
    return message


def _scorer(**fields) -> pb.Experiment:
    return _change(scorers=[pb.ScorerUse(plugin=pb.PluginUse(builtin="includes"), **fields)])


NAN = float("nan")


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (pb.Experiment(name="a"), "dataset: missing"),
        (pb.Experiment(name="a", dataset=pb.DatasetSelection(limit=3)),
         "dataset: says no items; name a stored dataset, or send items in place"),
        (pb.Experiment(dataset=smallest().dataset), "name: must not be empty"),
        (_change(dataset=pb.DatasetSelection(limit=0)), "dataset.limit: must be at least 1, not 0"),
        (_change(dataset=pb.DatasetSelection(stored=pb.DatasetRef(version=0))),
         "dataset.version: must be at least 1, not 0"),
        (_change(target=pb.PluginUse()), "target: says no way to the plugin; give use, command or address"),
        (_change(target=pb.PluginUse(builtin="")), "target.use: must not be empty"),
        (_change(target=pb.PluginUse(adapter=pb.Adapter(use="python:a.b"))), "target.use: 'python:a.b' is a scorer, not a target"),
        (_change(target=pb.PluginUse(adapter=pb.Adapter(use="sh"))), "target.use: 'sh' is no scorer of another library"),
        (_change(target=pb.PluginUse(command=pb.Command())), "target.command: must not be empty"),
        (_change(target=pb.PluginUse(builtin="x", settings="[1]")), "target.settings: must be a JSON object"),
        (_change(target=pb.PluginUse(builtin="x", settings="{")),
         "target.settings: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (_change(target=pb.PluginUse(command=pb.Command(argv=["x"], environment=[
            pb.EnvironmentVariable(name="A"), pb.EnvironmentVariable(name="A")]))), "target.env: 'A' comes twice"),
        (_change(metadata='{"a": NaN}'), "metadata: not JSON: NaN is not JSON"),
        (_scorer(name="a.b"),
         "scorers[0].name: must not hold a dot: 'a.b'; the dot stands between scorer and score"),
        (_scorer(thresholds=[pb.ScoreNumber(value=NAN)]),
         "scorers[0].threshold: must be a number, or a map from score to number, not nan"),
        (_scorer(thresholds=[pb.ScoreNumber(), pb.ScoreNumber()]),
         "scorers[0].threshold: there are two entries for all scores"),
        (_scorer(map=[pb.Mapping(input="a", path="output.content"), pb.Mapping(input="a", path="item.id")]),
         "scorers[0].map: 'a' comes twice"),
        (_scorer(concurrency=0), "scorers[0].concurrency: must be at least 1, not 0"),
        (_scorer(sampling=NAN), "scorers[0].sampling: must be always, never, or a share from 0 to 1, not nan"),
        (_change(epochs=pb.Epochs()), "epochs.count: must be at least 1, not 0"),
        (_change(limits=pb.Limits(concurrency=0)), "limits.concurrency: must be at least 1, not 0"),
        (_change(limits=pb.Limits(cost_micros=-1)), "limits.cost: must be at least 0, not -1e-06"),
        (_change(limits=pb.Limits(max_errors=pb.ErrorLimit())),
         "limits.max_errors: says neither a count nor a share; leave it out for no limit"),
        (_change(limits=pb.Limits(max_errors=pb.ErrorLimit(share=NAN))),
         "limits.max_errors: a share is from 0 to 1, not nan"),
        (_change(criteria=[pb.Criterion(metric="passrate", min=1)]),
         "criteria[0].metric: there is no metric 'passrate'; did you mean pass_rate?"),
        (_change(tags=["a", ""]), "tags[1]: must not be empty"),
    ],
)  # fmt: skip
def test_a_message_that_breaks_a_rule_is_refused_with_the_path(message, line):
    assert refusal(message) == line


def test_a_length_of_time_of_nothing_is_refused():
    message = smallest()
    message.limits.timeout.SetInParent()
    assert refusal(message) == "limits.timeout: must be longer than 0s; leave it out for the default"

    message.limits.timeout.seconds = -5
    assert refusal(message).startswith("limits.timeout: not a length of time: '-5s'")


def test_items_in_place_are_bounded_and_have_different_ids():
    message = smallest()
    message.dataset.inline.items.extend(item_to_proto(Item(id, "q")) for id in ("a", "b", "a"))
    assert refusal(message) == 'dataset.records[2].id: the id "a" is already that of dataset.records[0]'

    message.dataset.inline.items[2].id = ""
    assert refusal(message).startswith("dataset.records[2]: the item's id '' is not 1 to 512 characters")

    message.dataset.inline.items.extend(item_to_proto(Item(str(n), "q")) for n in range(1000))
    assert refusal(message) == (
        "dataset.records: at most 1,000 items and 1 MiB may stand in an experiment; upload them as a dataset instead"
    )


def test_one_number_may_stand_for_the_scores_without_their_own():
    message = _scorer(thresholds=[pb.ScoreNumber(value=0.5), pb.ScoreNumber(score="warm", value=0.8)])

    scorer = experiment_from_proto(message)[0].scorers[0]

    assert scorer.threshold_of("warm") == 0.8
    assert scorer.threshold_of("calm") == 0.5


def test_a_count_of_errors_is_told_from_a_share():
    assert experiment_from_proto(_change(limits=pb.Limits(max_errors=pb.ErrorLimit(count=0))))[
        0
    ].limits.max_errors == ErrorLimit(count=0)
    assert experiment_from_proto(_change(limits=pb.Limits(max_errors=pb.ErrorLimit(share=1 / 3))))[
        0
    ].limits.max_errors == ErrorLimit(share=1 / 3)
