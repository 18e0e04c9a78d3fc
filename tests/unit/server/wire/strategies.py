"""Any values of the server, for properties of the wire."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from evalbus import Failure, FailureCategory, FailureOrigin, Item, Money, Output, Score, ScoreDeclaration, Usage, Value
from evalbus._results import one_line
from evalbus_server.model.event import Event, StateChanged, TrialsEnded
from evalbus_server.model.experiment import Experiment
from evalbus_server.model.run import Counts, DatasetVersion, Outcome, Run, RunState, ScoreKey, Selection, Verdict
from evalbus_server.model.summary import Bin, Distribution, Interval, Latency, ScoreSummary, ValueCount
from evalbus_server.model.trial import StoredResult, StoredScore

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
DOTLESS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="."), min_size=1, max_size=12)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
SHARE = st.floats(0, 1)
COUNT = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
TIME = st.integers(0, 4_000_000_000_000_000).map(lambda micros: micros / 1_000_000)
LENGTH = st.integers(0, 10**15).map(lambda micros: micros / 1_000_000)
WRITTEN_LENGTH = st.tuples(st.integers(1, 100_000), st.sampled_from(["ms", "s", "m", "h"])).map(
    lambda p: f"{p[0]}{p[1]}"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
NUMBERS = NUMBER | st.dictionaries(DOTLESS, NUMBER, min_size=1, max_size=3)
WEIGHTS = st.floats(0, 1e9) | st.dictionaries(DOTLESS, st.floats(0, 1e9), min_size=1, max_size=3)


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def _joined(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(
        lambda dictionaries: {key: value for each in dictionaries for key, value in each.items()}
    )


PROCESS = _optional(
    env=st.dictionaries(st.text("ABC_", min_size=1, max_size=4), st.text("x${env:}\u00e9", max_size=9), max_size=3),
    start_limit=WRITTEN_LENGTH,
)
REACH = st.one_of(
    _joined(
        st.fixed_dictionaries({"address": NAME}),
        _optional(token=TEXT, tls=_optional(root_certificates=TEXT, server_name=TEXT)),
    ),
    _joined(st.fixed_dictionaries({"command": st.lists(TEXT, min_size=1, max_size=3), "folder": TEXT}), PROCESS),
    st.fixed_dictionaries({"use": NAME}),
)
PLUGIN = _joined(REACH, _optional(plugin=TEXT, settings=OBJECT))
ADAPTED = _joined(
    st.fixed_dictionaries({"use": st.sampled_from(["autoevals.Factuality", "python:a.b"]), "folder": TEXT}),
    _optional(python=TEXT, settings=OBJECT),
    PROCESS,
)
METRIC = _joined(
    st.fixed_dictionaries({"use": NAME, "name": st.sampled_from(["one", "f1", "my number"])}),
    _optional(
        settings=OBJECT,
        map=st.dictionaries(NAME, st.sampled_from(["output.content", "score.metadata.level"]), max_size=2),
    ),
)
SCORER = _joined(
    PLUGIN | ADAPTED,
    _optional(
        threshold=NUMBERS,
        weight=WEIGHTS,
        map=st.dictionaries(
            NAME, st.sampled_from(["output.content", 'item.metadata["a.b"][0]', "trial.epoch"]), max_size=2
        ),
        concurrency=st.integers(1, 10_000),
        timeout=WRITTEN_LENGTH,
        sampling=st.floats(0, 1),
        metrics=st.lists(METRIC, max_size=2, unique_by=lambda each: each["name"]),
        against=NAME,
    ),
)
LIMITS = _optional(
    concurrency=st.integers(1, 10_000),
    timeout=WRITTEN_LENGTH,
    trial_timeout=WRITTEN_LENGTH,
    silence=WRITTEN_LENGTH,
    deadline=WRITTEN_LENGTH,
    retries=st.integers(0, 1000),
    max_errors=COUNT | st.integers(0, 1000).map(lambda tenths: f"{tenths / 10}%"),
    tokens=COUNT,
    cost=st.integers(0, 10**15).map(lambda micros: micros / 1_000_000),
    currency=st.sampled_from(["USD", "EUR"]),
    trial=_optional(messages=st.integers(1, 9), tokens=st.integers(1, 9), steps=st.integers(1, 9)),
    pool=st.fixed_dictionaries({"name": NAME, "concurrency": st.integers(1, 10_000)}),
)
CRITERION = st.one_of(
    _joined(
        st.fixed_dictionaries({"metric": st.just("mean"), "min": NUMBER})
        | st.fixed_dictionaries({"metric": st.sampled_from(["pass_rate", "pass_at(1)"]), "min": SHARE}),
        _optional(scorer=NAME, label=TEXT, severity=st.sampled_from(["error", "warn"]), min_coverage=SHARE),
    ),
    st.fixed_dictionaries({"metric": st.just("cost"), "baseline": NAME, "max_drop": st.floats(0, 1e9)}),
)
EXPERIMENTS = _joined(
    st.fixed_dictionaries(
        {
            "name": NAME,
            "dataset": _joined(
                st.fixed_dictionaries({"name": NAME.filter(lambda name: name == name.strip())}),
                _optional(
                    version=st.integers(1, 2**63 - 1),
                    items=st.lists(TEXT, max_size=3),
                    limit=st.integers(1, 9),
                    scorers=st.lists(NAME, max_size=3),
                ),
            ),
        }
    ),
    _optional(
        description=TEXT,
        target=st.none() | PLUGIN,
        scorers=st.lists(SCORER, max_size=3),
        scorers_from=st.sampled_from(["run", "items"]),
        epochs=st.integers(1, 10_000) | st.just({"count": 3, "reducer": "pass_at(3)"}),
        limits=LIMITS,
        criteria=st.lists(CRITERION, max_size=3),
        tags=st.lists(NAME, max_size=3),
        metadata=OBJECT,
    ),
).map(Experiment.parse)

COUNTS = st.lists(st.integers(0, 10**15), min_size=5, max_size=5).map(
    lambda numbers: Counts(sum(numbers), *numbers[:4])  # the fifth is what is pending
)
VERDICTS = st.none() | st.sampled_from(Verdict)
RUNS = st.builds(
    Run,
    id=NAME,
    name=NAME,
    state=st.sampled_from(RunState),
    created_at=TIME,
    dataset=st.builds(DatasetVersion, NAME, COUNT, st.just(0), TEXT, st.just(0.0)),
    selection=st.just(Selection()),
    epochs=st.just(0),
    experiment_json=st.just(""),
    digest=TEXT,
    score_keys=st.just(()),
    counts=COUNTS,
    tags=st.lists(TEXT, max_size=3).map(tuple),
    reason=TEXT,
    verdict=VERDICTS,
    started_at=st.none() | TIME,
    ended_at=st.none() | TIME,
    session_began_at=st.none() | TIME,
    worked=st.integers(0, 10**7).map(float),
    last_sequence=COUNT,
)
EVENTS = st.builds(
    Event,
    COUNT,
    TIME,
    st.builds(StateChanged, st.sampled_from(RunState), COUNTS, TEXT, VERDICTS)
    | st.builds(
        TrialsEnded,
        st.lists(st.tuples(COUNT, st.sampled_from(Outcome)), max_size=5).map(tuple),
        COUNTS,
    ),
)
USAGE = st.builds(Usage, COUNT, COUNT, COUNT, COUNT, st.none() | st.builds(Money, COUNT, TEXT))
FAILURES = st.builds(
    Failure,
    st.sampled_from(FailureCategory),
    TEXT.map(one_line),
    st.from_regex("[A-Z][A-Z0-9_]{0,63}", fullmatch=True),
    st.sampled_from(FailureOrigin),
    st.none() | st.booleans(),
)
VALUES = st.builds(Value, TEXT) | JSON.map(Value.of) | st.builds(Value.blob, st.binary(max_size=5), NAME)
SCORES = st.one_of(
    st.builds(Score.scored, NUMBER, TEXT, label=TEXT, answer=st.none() | VALUES),
    st.builds(Score.skipped, TEXT),
    st.builds(Score.errored, FAILURES),
)


@st.composite
def results(draw: st.DrawFn) -> tuple[StoredResult, tuple[ScoreKey, ...]]:
    """A result, and the score keys of its run."""
    names = draw(st.lists(DOTLESS, max_size=3, unique=True))
    keys = tuple(ScoreKey(name, -1, ScoreDeclaration(""), draw(st.none() | NUMBER)) for name in names)
    failed = draw(st.booleans())
    result = StoredResult(
        draw(st.integers(0, 10_000 << 32)),
        draw(
            st.builds(
                Item, NAME, VALUES, st.none() | VALUES, metadata=OBJECT, tags=st.lists(TEXT, max_size=2, unique=True)
            )
        ),
        draw(st.sampled_from(Outcome)),
        None if failed else draw(st.builds(Output, VALUES, answer=st.none() | VALUES)),
        {place: StoredScore(draw(SCORES), draw(st.none() | st.booleans())) for place in range(len(keys))},
        draw(st.none() | NUMBER),
        draw(st.none() | FAILURES),
        draw(SMALL),
        draw(st.none() | LENGTH),
        draw(st.none() | USAGE),
    )
    return result, keys


MAYBE = st.none() | NUMBER
SCORE_SUMMARIES = st.builds(
    ScoreSummary,
    key=NAME,
    n=COUNT,
    n_trials=COUNT,
    errored=COUNT,
    skipped=COUNT,
    mean=MAYBE,
    median=MAYBE,
    min=MAYBE,
    max=MAYBE,
    sum=MAYBE,
    std=MAYBE,
    stderr=MAYBE,
    interval=st.none() | st.builds(Interval, NUMBER, NUMBER),
    pass_rate=MAYBE,
    coverage=MAYBE,
    threshold=MAYBE,
    distribution=st.builds(
        Distribution,
        st.lists(st.builds(ValueCount, NUMBER, COUNT, SHARE), max_size=2).map(tuple),
        COUNT,
        st.lists(st.builds(Bin, NUMBER, NUMBER, COUNT), max_size=2).map(tuple),
    ),
)
LATENCIES = st.none() | st.builds(Latency, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER)
