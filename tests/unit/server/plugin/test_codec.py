"""Requests put together by hand are what the generated classes would have written."""

from hypothesis import given
from hypothesis import strategies as st

from evalbus import Item, Output, TrialLimits, Value, wire
from evalbus._plugin import Open
from evalbus.v1 import scorer_pb2, target_pb2
from evalbus.wire.framing import _slow_varint, varint
from evalbus_server.model.trial import EPOCHS, POSITIONS, OpenTrial, trial_id_of
from evalbus_server.plugin.codec import LARGEST_OUTPUT, ScorerCodec, TargetCodec
from evalbus_server.plugin.port import Flight

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
positions = st.one_of(st.integers(0, 300), st.integers(0, POSITIONS - 1))
epochs = st.integers(1, EPOCHS)


def flight(position: int, epoch: int, item: Item, output: Output | None = None, **more) -> Flight:
    made = Flight(OpenTrial(trial_id_of(position, epoch), item, output))
    made.attempt = 1001
    made.deadline = 60.5
    for name, value in more.items():
        setattr(made, name, value)
    return made


@given(st.integers(0, 2**63 - 1))
def test_numbers_are_written_as_protobuf_writes_them(number: int):
    """Short and long ones."""
    assert varint(number) == _slow_varint(number)


@given(st.lists(st.tuples(positions, epochs, texts, texts), min_size=1, max_size=20), st.booleans())
def test_a_batch_of_trials_reads_back_whole(rows: list[tuple[int, int, str, str]], limited: bool):
    """Every field is where the contract has it."""
    limits = TrialLimits(3, None, 7) if limited else None
    codec = TargetCodec(1234, limits)
    flights = [flight(position, epoch, Item("i", asked, said)) for position, epoch, asked, said in rows]

    batch = target_pb2.AnswerRequest.FromString(codec.request(flights, 0.25)).trials.trials

    trials = [wire.trial_from_proto(message) for message in batch]
    assert [(t.index, t.epoch, t.item.input.text, t.item.expected.text) for t in trials if t.item.expected] == rows
    assert {(t.attempt, t.total, t.remaining, t.limits) for t in trials} == {(1001, 1234, 60.25, limits)}


@given(positions, epochs, texts, texts, st.dictionaries(st.text("abc", min_size=1), texts, max_size=3))
def test_a_score_task_reads_back_whole(position: int, epoch: int, asked: str, said: str, inputs: dict[str, str]):
    """With mapped inputs, and the same item bytes that the target was sent."""
    given_ = {name: Value(text) for name, text in inputs.items()}
    asked_flight = flight(position, epoch, Item("i", asked), Output(said), inputs=given_)
    TargetCodec(1).request([asked_flight], 0.0)

    (message,) = scorer_pb2.ScoreRequest.FromString(ScorerCodec().request([asked_flight], 0.5)).tasks.tasks

    task = wire.task_from_proto(message)
    assert task.item == Item("i", asked)
    assert task.output == Output(said)
    assert (task.trial_id, task.attempt, task.epoch) == (trial_id_of(position, epoch), 1001, epoch)
    assert task.inputs == given_
    assert task.remaining == 60.0
    assert task.against is None


def test_a_scorer_that_compares_is_sent_both_outputs_and_others_are_not():
    """Also if another one was sent the same task before."""
    trial = flight(0, 1, Item("i"), Output("one")).trial
    codec = ScorerCodec()
    told = []
    for other in (None, Output("other"), None):
        asked_flight = Flight(trial)
        asked_flight.attempt, asked_flight.deadline = 1001, 60.5
        if other is not None:
            asked_flight.against = other
        (message,) = scorer_pb2.ScoreRequest.FromString(codec.request([asked_flight], 0.5)).tasks.tasks
        task = wire.task_from_proto(message)
        told.append((task.output, task.against))

    assert told == [(Output("one"), None), (Output("one"), Output("other")), (Output("one"), None)]


def test_a_deadline_that_has_passed_leaves_a_moment():
    """A length of time is never negative."""
    late = flight(0, 1, Item("i"), deadline=1.0)

    (message,) = target_pb2.AnswerRequest.FromString(TargetCodec().request([late], 5.0)).trials.trials

    assert wire.duration_from_proto(message.remaining) == 0.001


def test_opening_and_cancel_are_messages_of_their_own():
    """The first request holds `open` alone."""
    for codec, request in ((TargetCodec(), target_pb2.AnswerRequest), (ScorerCodec(), scorer_pb2.ScoreRequest)):
        opened = request.FromString(codec.opening(Open(plugin="p", settings_json='{"a":1}')))
        cancelled = request.FromString(codec.cancel([(5, 1001)]))

        assert opened.WhichOneof("message") == "open"
        assert opened.open.settings == '{"a":1}'
        assert [(ref.trial_id, ref.attempt) for ref in cancelled.cancel.attempts] == [(5, 1001)]


def test_scorers_are_sent_the_same_record_as_long_as_it_is_the_same():
    """Another attempt, another time left, mapped inputs: each is its own record."""
    first = flight(1, 1, Item("i", "q"), Output("a"))
    requests = []
    for attempt, now, inputs in [
        (1001, 0.5, None),
        (1001, 0.5, None),
        (1002, 0.5, None),
        (1002, 9.5, None),
        (1002, 9.5, {"x": Value("y")}),
        (1002, 9.5, None),
    ]:
        first.attempt, first.inputs = attempt, inputs
        (task,) = scorer_pb2.ScoreRequest.FromString(ScorerCodec().request([first], now)).tasks.tasks
        requests.append(
            (task.attempt, task.remaining.ToTimedelta().total_seconds(), [each.name for each in task.inputs])
        )
        assert task.output.content.text == "a"

    assert requests == [
        (1001, 60, []),
        (1001, 60, []),
        (1002, 60, []),
        (1002, 51, []),
        (1002, 51, ["x"]),
        (1002, 51, []),
    ]


def test_an_answer_that_breaks_the_contract_is_its_own_failure():
    """The others of its batch stand (PL-12)."""
    response = target_pb2.AnswerResponse()
    good = response.answers.answers.add(trial_id=1, attempt=1001)
    good.output.content.text = "fine"
    response.answers.answers.add(trial_id=2, attempt=1001)
    bad = response.answers.answers.add(trial_id=3, attempt=1001)
    bad.output.content.json = "{not json"

    answers = TargetCodec().read(response).answers

    assert answers[0][2] == Output("fine")
    assert [answer[2].reason for answer in answers[1:]] == ["CONTRACT_BROKEN"] * 2  # type: ignore[union-attr]


def test_an_output_over_the_limit_is_an_error_with_size_and_limit():
    """It costs its own trial alone (PL-04)."""
    response = target_pb2.AnswerResponse()
    response.answers.answers.add(trial_id=1, attempt=1).output.content.text = "x" * 5_000_000
    response.answers.answers.add(trial_id=2, attempt=1).output.content.text = "y"

    large, small = TargetCodec().read(response).answers

    assert large[2].reason == "MESSAGE_TOO_LARGE"  # type: ignore[union-attr]
    assert "50000" in large[2].message and str(LARGEST_OUTPUT) in large[2].message  # type: ignore[union-attr]
    assert small[2] == Output("y")
