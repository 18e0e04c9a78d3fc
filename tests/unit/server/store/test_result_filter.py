"""Results that are wanted by tag, score and text: what has no value is above and below nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalbus import Failure, FailureCategory, Item, Output, Score, ScoreStatus
from evalbus_server.errors import Invalid
from evalbus_server.model.result_filter import ResultFilter, ScoreFilter, check_filter, written_score
from evalbus_server.model.run import Outcome, Run
from evalbus_server.model.trial import ScoreRecord
from evalbus_server.store import Store
from tests.unit.server.store.making import KEYS, changes, output, result, started, whole

KEY = KEYS[0].key


def found(store: Store, run: Run, wanted: ResultFilter, at_once: int = 100) -> list[str]:
    """The ids of all results that are wanted, over pages of *at_once*."""
    ids: list[str] = []
    after = None
    while True:
        page = store.result_page(run, wanted, after=after, limit=at_once)
        ids += [each.item.id for each in page.results]
        after = page.place
        if after is None:
            return ids


@pytest.fixture
def run(store: Store) -> Run:
    """Scores 0, 0.5 and 1; then one skipped, one errored, and a trial without any."""
    items = [Item(f"i{n}", f"question {n}", f"Straße {n}", tags=("hard", f"t{n % 2}") if n else ()) for n in range(6)]
    run = started(store, items)
    broken = Failure(FailureCategory.INTERNAL, "The lamp went out")
    name = KEYS[0].declaration.name
    made = [
        Score.scored(0.0, name=name),
        Score.scored(0.5, "because of Ünder", name=name),
        Score.scored(1.0, name=name, label="Good"),
        Score.skipped("not today", name=name),
        Score.errored(broken, name=name),
    ]
    store.commit(
        run.id,
        changes(
            outputs=[output(n, said=Output(f"said {n}", answer=f"short{n}")) for n in range(5)],
            scores=[ScoreRecord(n, 0, score, None) for n, score in enumerate(made)],
            results=[
                *(result(n) for n in range(4)),
                result(4, Outcome.ERRORED, failure=broken),
                result(5, Outcome.ERRORED, failure=Failure(FailureCategory.TIMEOUT, "Nobody came")),
            ],
        ),
    )
    return run


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (ScoreFilter(KEY, below=0.5), "0"),
        (ScoreFilter(KEY, at_most=0.5), "01"),
        (ScoreFilter(KEY, above=0.5), "2"),
        (ScoreFilter(KEY, at_least=0.5), "12"),
        (ScoreFilter(KEY, at_least=-9, at_most=9), "012"),
        (ScoreFilter(KEY, ScoreStatus.SCORED), "012"),
        (ScoreFilter(KEY, ScoreStatus.SKIPPED), "3"),
        (ScoreFilter(KEY, ScoreStatus.ERRORED), "4"),
        (ScoreFilter(KEY, ScoreStatus.ERRORED, at_most=9), ""),
        (ScoreFilter(KEY, missing=True), "5"),
        (ScoreFilter(KEYS[1].key, missing=True), "012345"),
    ],
)
def test_results_are_found_by_their_scores(store: Store, run: Run, wanted: ScoreFilter, ids: str) -> None:
    assert found(store, run, ResultFilter(scores=(wanted,))) == [f"i{n}" for n in ids]
    assert found(store, run, ResultFilter(scores=(wanted,)), at_once=1) == [f"i{n}" for n in ids]


@pytest.mark.parametrize(
    ("tags", "ids"),
    [(("hard",), "12345"), (("t1",), "135"), (("hard", "t0"), "24"), (("ard",), ""), (("t0", "t1"), "")],
)
def test_results_are_found_by_all_tags_of_their_items(store: Store, run: Run, tags: tuple[str, ...], ids: str) -> None:
    assert found(store, run, ResultFilter(tags=tags)) == [f"i{n}" for n in ids]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("I2", "2"),
        ("QUESTION 3", "3"),
        ("STRASSE", "012345"),
        ("said 4", "4"),
        ("short1", "1"),
        ("ünDER", "1"),
        ("good", "2"),
        ("NOT TODAY", "3"),
        ("lamp", "4"),
        ("nobody", "5"),
        ("100%", ""),
        ("_", ""),
    ],
)
def test_results_are_found_by_a_text_wherever_it_stands(store: Store, run: Run, text: str, ids: str) -> None:
    assert found(store, run, ResultFilter(text=text)) == [f"i{n}" for n in ids]


def test_all_parts_of_a_filter_hold(store: Store, run: Run) -> None:
    wanted = ResultFilter((Outcome.PASSED,), "i[0-3]", ("hard",), (ScoreFilter(KEY, at_least=0.5),), "said")
    assert found(store, run, wanted) == ["i1", "i2"]


def test_a_rare_text_is_found_over_many_pages_none_of_which_looks_at_everything(store: Store) -> None:
    run = started(store, 1000)
    for first in range(0, 1000, 250):
        store.commit(run.id, whole(range(first, first + 250)))

    first_page = store.result_page(run, ResultFilter(text="said 99"))
    assert first_page.results == [] or len(first_page.results) < 11
    assert first_page.place is not None and first_page.place[0] < 300
    assert found(store, run, ResultFilter(text="said 99"), at_once=4) == ["q99", *(f"q99{n}" for n in range(10))]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (ResultFilter(scores=(ScoreFilter("tome"),)), "scores: the run has no score 'tome'"),
        (ResultFilter(scores=(ScoreFilter(KEY, below=float("nan")),)), "is not a finite number"),
        (
            ResultFilter(scores=(ScoreFilter(KEY, missing=True, below=1.0),)),
            "cannot be missing and be or have something",
        ),
        (ResultFilter(text="x" * 1001), "text: has 1001 characters"),
        (ResultFilter(tags=tuple("abcdefghijklmnopqrstu")), "more than 20 tags and scores"),
    ],
)
def test_what_no_filter_can_say_is_refused(wanted: ResultFilter, said: str) -> None:
    with pytest.raises(Invalid, match=said.replace("(", r"\(")):
        check_filter(wanted, tuple(KEYS))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tone<0.5", ScoreFilter("tone", below=0.5)),
        ("tone <= -1e3", ScoreFilter("tone", at_most=-1000.0)),
        ("judge.tone>0", ScoreFilter("judge.tone", above=0.0)),
        ("includes[ignore_case=true]>=1", ScoreFilter("includes[ignore_case=true]", at_least=1.0)),
        ("tone=1", ScoreFilter("tone", at_least=1.0, at_most=1.0)),
        ("tone=Errored", ScoreFilter("tone", ScoreStatus.ERRORED)),
        ("tone=missing", ScoreFilter("tone", missing=True)),
    ],
)
def test_a_condition_is_read_as_people_write_it(text: str, wanted: ScoreFilter) -> None:
    assert written_score(text) == wanted


@given(st.text(max_size=30))
def test_any_text_is_a_condition_or_one_line_that_says_how_to_write_one(text: str) -> None:
    try:
        written_score(text)
    except Invalid as error:
        assert str(error).startswith("score: ")
        assert "\n" not in str(error)
