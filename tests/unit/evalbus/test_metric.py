"""Numbers over all trials that an author writes: the decorator, and what is made of a function's result."""

from __future__ import annotations

import math

import pytest

from evalbus import (
    Direction,
    Failure,
    MetricDeclaration,
    MetricValue,
    Output,
    PluginInvalid,
    Score,
    ScoreDeclaration,
    ScorerInfo,
    ScoreRow,
    Value,
    metric,
    scorer,
    wire,
)
from evalbus._plugin import Open
from evalbus._reduce import Reduction, Row, reduce
from evalbus._reducing import reduced
from evalbus.v1 import scorer_pb2


@metric("total", minimum=0)
def total(rows: list[ScoreRow]) -> float:
    """The sum of all values.

    Exact.
    """
    return math.fsum(row.value for row in rows)


@metric("right", minimum=0, maximum=1, direction=Direction.LOWER_IS_BETTER, description="Told.")
async def right(rows, settings: dict):
    found = [row for row in rows if row.expected == row.answer]
    return MetricValue(len(found) / len(rows), f"{len(found)} {settings['word']}") if rows else None


@metric("broken")
def broken(rows):
    raise RuntimeError("no such luck")


@metric("odd")
def odd(rows):
    return "seven"


@metric("endless")
def endless(rows):
    return math.inf


@scorer("judge", version="1.0.0", metrics=[total, right, broken, odd, endless])
def judge(output: Output, settings: dict) -> float:
    return 0.5


ROWS = [
    Row(n, f"i{n}", 1, (Score.scored(0.1 * n),), Value("a"), Value("a" if n % 2 else "b"), {"more": Value("m")})
    for n in range(4)
]
ASKED = Reduction(Open("judge", settings_json='{"word": "right"}'), ("total", "right"), (ScoreDeclaration(),))


def test_a_scorer_says_which_metrics_it_makes():
    info = judge.info
    assert isinstance(info.kind, ScorerInfo)
    assert info.kind.metrics[:2] == (
        MetricDeclaration("total", 0, None, Direction.HIGHER_IS_BETTER, "The sum of all values."),
        MetricDeclaration("right", 0, 1, Direction.LOWER_IS_BETTER, "Told."),
    )
    assert "reduce" in info.capabilities
    assert wire.plugin_info_from_proto(wire.plugin_info_to_proto(info)) == info
    plain = scorer("plain")(lambda output: 1.0)
    assert "reduce" not in plain.info.capabilities
    assert total([ScoreRow(1, "i", 1, Score.scored(2.0))]) == 2.0


async def test_a_metric_is_asked_with_rows_and_the_scorers_settings():
    made = await reduce(judge, ASKED, ROWS)
    assert isinstance(made, list)
    assert [(each.metric, each.value, each.explanation) for each in made] == [
        ("total", pytest.approx(0.6), ""),
        ("right", 0.5, "2 right"),
    ]


async def test_what_a_metric_cannot_make_is_said_of_it_alone():
    made = await reduce(judge, ASKED._replace(metrics=("broken", "odd", "endless", "total")), ROWS)
    assert isinstance(made, list)
    assert [each.failure and each.failure.reason for each in made] == [
        "RUNTIME_ERROR",
        "RESULT_INVALID",
        "RESULT_INVALID",
        None,
    ]
    assert "return None where there is none" in made[2].explanation
    (none,) = await reduce(judge, ASKED._replace(metrics=("right",)), [])  # type: ignore[misc]
    assert (none.value, none.explanation) == (None, "it has no value for these scores")


async def test_each_score_of_several_has_its_own_number():
    @scorer("two", scores=[ScoreDeclaration("a"), ScoreDeclaration("b")], metrics=[total])
    def two(output: Output) -> list[Score]:
        return []

    rows = [
        Row(1, "i", 1, (Score.scored(1, name="a"), Score.scored(2, name="b"))),
        Row(2, "j", 1, (Score.scored(4, name="b"),)),
    ]
    asked = Reduction(Open("two"), ("total",), (ScoreDeclaration("a"), ScoreDeclaration("b")))
    made = await reduce(two, asked, rows)
    assert isinstance(made, list)
    assert [(each.score, each.value) for each in made] == [("a", 1), ("b", 6)]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (ASKED._replace(metrics=("mean",)), "METRIC_UNKNOWN"),
        (ASKED._replace(opening=Open("judge", revision=9)), "PROTOCOL_MISMATCH"),
        (ASKED._replace(opening=Open("judge", settings_json="[")), "SETTINGS_INVALID"),
    ],
)
async def test_what_cannot_be_begun_is_one_failure(asked, reason):
    made = await reduce(judge, asked, ROWS)
    assert isinstance(made, Failure)
    assert made.reason == reason


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: metric("a.b")(lambda rows: 1), "neither dots"),
        (lambda: metric("m")(lambda scores: 1), "`scores`"),
        (lambda: metric("m")(lambda settings: 1), "it takes no rows"),
        (lambda: scorer("s", metrics=[total, total])(lambda output: 1), "the same name"),
        (lambda: scorer("s", metrics=[len])(lambda output: 1), "decorated with @metric"),  # type: ignore[list-item]
    ],
)
def test_what_cannot_be_a_metric_is_refused_with_the_reason(make, said):
    with pytest.raises(PluginInvalid, match=said):
        make()


# --- as it travels ------------------------------------------------------------------------------------------------


async def sent(*messages: bytes):
    for message in messages:
        yield message


def opening(asked: Reduction = ASKED) -> bytes:
    return scorer_pb2.ReduceRequest(open=wire.reduction_to_proto(asked)).SerializeToString()


def batch(rows: list[Row]) -> bytes:
    request = scorer_pb2.ReduceRequest()
    for row in rows:
        wire.fill_row(request.rows.rows.add(), row)
    return request.SerializeToString()


async def test_rows_come_in_batches_and_numbers_go_out():
    response = await reduced({"judge": judge}, sent(opening(), batch(ROWS[:1]), batch(ROWS[1:])))
    made = wire.reduced_from_proto(scorer_pb2.ReduceResponse.FromString(response.SerializeToString()))
    assert made == await reduce(judge, ASKED, ROWS)


def test_a_row_is_the_same_at_the_other_side():
    message = scorer_pb2.ScoreRow()
    wire.fill_row(message, ROWS[1])
    assert wire.row_from_proto(scorer_pb2.ScoreRow.FromString(message.SerializeToString())) == ROWS[1]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "nothing was sent"),
        ([batch(ROWS)], "the first message is not `open`"),
        ([b"\xff\xff"], "rror"),
        ([opening(Reduction(Open("judge"), (), (ScoreDeclaration(),)))], "asks for no metric"),
        ([opening(ASKED._replace(opening=Open("other")))], "no scorer 'other' is served here; there is judge"),
    ],
)
async def test_a_call_that_breaks_the_contract_is_answered_with_a_failure(messages, said):
    response = await reduced({"judge": judge}, sent(*messages))
    made = wire.reduced_from_proto(response)
    assert isinstance(made, Failure)
    assert said in made.message
