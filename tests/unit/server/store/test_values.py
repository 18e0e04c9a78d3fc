"""What is stored comes back equal, whatever it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalbus import Item, Output, Score
from evalbus_server.model.run import Outcome, Selection
from evalbus_server.model.trial import AttemptRecord, OutputRecord, ResultRecord, ScoreRecord
from evalbus_server.store import Store, documents, open_store
from tests.unit.server.store import values
from tests.unit.server.store.making import changes, dataset, items, run_of

names = (f"made-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples."""
    opened = open_store(tmp_path_factory.mktemp("values") / "evalbus.db")
    yield opened
    opened.close()


@settings(max_examples=200, deadline=None)
@given(made=st.lists(values.items, max_size=4, unique_by=lambda item: item.id))
def test_items_come_back_equal(lasting: Store, made: list[Item]) -> None:
    name = next(names)

    version, _ = lasting.publish(name, [made])

    assert [stored.item for stored in lasting.items(name, version.version, limit=10)] == made


@settings(max_examples=200, deadline=None)
@given(output=values.outputs, latency=values.maybe(values.numbers), usage=values.maybe(values.usages))
def test_outputs_and_results_come_back_equal(lasting: Store, output: Output, latency: float | None, usage) -> None:
    run = lasting.create_run(run_of(dataset(lasting, 1, next(names)), id=next(names)))
    record = OutputRecord(0, output, 1003, 3, latency)

    lasting.commit(run.id, changes(outputs=[record], results=[ResultRecord(0, Outcome.PASSED, None, None, 3, usage)]))

    [result] = lasting.results(run)
    assert result.output == output
    assert (result.latency, result.attempts, result.usage) == (latency, 3, usage)


@settings(max_examples=200, deadline=None)
@given(score=values.scores, passed=st.sampled_from([None, True, False]), failure=values.maybe(values.failures))
def test_scores_and_failures_come_back_equal(lasting: Store, score: Score, passed: bool | None, failure) -> None:
    run = lasting.create_run(run_of(dataset(lasting, 1, next(names)), id=next(names)))
    result = ResultRecord(0, Outcome.ERRORED, score.value, failure, 0, None)

    lasting.commit(run.id, changes(scores=[ScoreRecord(0, 1, score, passed)], results=[result]))

    [stored] = lasting.results(run)
    assert stored.scores == {1: (score, passed)}
    assert stored.scores[1].passed is passed
    assert (stored.outcome, stored.failure, stored.weighted) == (Outcome.ERRORED, failure, score.value)


@settings(max_examples=100, deadline=None)
@given(
    keys=values.several(values.score_keys), texts=values.several(values.texts), failure=values.failures, data=st.data()
)
def test_runs_and_failed_attempts_come_back_equal(lasting: Store, keys, texts, failure, data) -> None:
    run = run_of(
        dataset(lasting, 1, next(names)),
        id=next(names),
        score_keys=keys,
        tags=texts,
        selection=Selection(False, 1, 0),
        request_id=next(names),
    )
    usage = data.draw(values.maybe(values.usages))

    stored = lasting.create_run(run)
    lasting.commit(stored.id, changes(attempts=[AttemptRecord(0, -1, 1001, failure, usage, 1.5, 0.25)]))

    assert stored == replace(run, last_sequence=1)
    assert lasting.run(run.id) == stored


def test_an_empty_text_null_and_nothing_stay_apart(store: Store) -> None:
    made = [
        Item("empty", "", ""),
        Item("null", [None], None),
        Item("json null", {}, documents.VALUE.read({"json": "null"})),
    ]

    store.publish("apart", [made])

    expected = [stored.item.expected for stored in store.items("apart", 1, limit=3)]
    assert [None if value is None else (value.kind, value.body) for value in expected] == [
        ("text", ""),
        None,
        ("json", "null"),
    ]


def test_a_negative_zero_is_stored_as_zero(store: Store) -> None:
    run = store.create_run(run_of(dataset(store, 1)))

    store.commit(run.id, changes(scores=[ScoreRecord(0, 0, Score.scored(-0.0), True)], results=[]))

    assert str(store.numbers(run).values[0].values.tolist()) == "[0.0]"


@pytest.mark.parametrize(
    "shape",
    [shape for shape in vars(documents).values() if isinstance(shape, documents.Shape)],
    ids=lambda s: s.made.__name__,
)
def test_every_field_of_a_value_has_its_part(shape: documents.Shape) -> None:
    assert list(shape.parts) == [field.name for field in fields(shape.made)]


def test_no_field_of_what_has_columns_is_forgotten() -> None:
    columns = {"id", "input", "expected", "metadata_json"}
    assert columns | set(documents.ITEM_DETAIL) == {field.name for field in fields(Item)}
    columns = {"content", "answer", "usage", "metadata_json"}
    assert columns | set(documents.OUTPUT_DETAIL) == {field.name for field in fields(Output)}
    columns = {"status", "value", "name", "label", "explanation"}
    assert columns | set(documents.SCORE_DETAIL) == {field.name for field in fields(Score)}


def test_the_digest_of_a_dataset_does_not_change_with_the_program(store: Store) -> None:
    made = [*items(2), Item("x", {"a": 1}, [1.0], metadata={"k": "é"}, tags=["t"], scorers=[], output=Output("o"))]

    version, _ = store.publish("fixed", [made])

    assert version.digest == "987b65378655346228f0df1c0e8db49c75ca0ed89028ef132c30a4ee9dc90542"
