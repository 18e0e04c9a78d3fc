"""`embedding_similarity`: cosines of embeddings that come over a real socket, many texts a call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evalbus import Item, Money, Output, Score, ScorerBench, ScoreStatus, SettingsInvalid, TrialFailed, Value
from evalbus_server.scorer.builtin import BUILTINS
from evalbus_server.scorer.endpoint import Embedder, Prices, batching, connect
from tests.mock_endpoint import KEY, Call, Hang, MockEndpoint, Status, embeddings
from tests.unit.server.scorer.asking import failure_of, score_of


class Endpoint(MockEndpoint):
    """Embeddings of the mock, unless *instead* has something else to say."""

    def __init__(self, instead: Any = None) -> None:
        super().__init__()
        self.instead = instead

    def answer(self, call: Call) -> Any:
        with self._lock:
            self.calls.append(call)
            said = self.instead(call) if self.instead else None
        return Status(200, embeddings(call.body)) if said is None else said

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each call."""
        return [call.body["input"] for call in self.calls]


@pytest.fixture
def endpoint():
    with Endpoint() as endpoint:
        yield endpoint


async def ask(endpoint: MockEndpoint, output: Any, expected: Any, **more: Any) -> Score:
    settings = {"model": "e", "base_url": endpoint.base_url} | more.pop("settings", {})
    return await score_of("embedding_similarity", output, expected, **settings, **more)


class TestValue:
    async def test_it_is_the_cosine(self, endpoint):
        score = await ask(endpoint, "a cup of tea", "a cup of milk")
        assert score.value == pytest.approx(0.75)
        assert score.explanation == "cosine 0.7500"
        assert score.metadata["cosine"] == pytest.approx(0.75)

    async def test_the_same_text_is_1_and_nothing_in_common_0(self, endpoint):
        assert (await ask(endpoint, "tea", "tea")).value == 1.0
        assert (await ask(endpoint, "tea", "milk")).value == 0.0

    async def test_a_floor_scores_0_and_stretches_the_rest(self, endpoint):
        score = await ask(endpoint, "a cup of tea", "a cup of milk", settings={"floor": 0.5})
        assert score.value == pytest.approx(0.5)
        assert (await ask(endpoint, "a cup of tea", "tea", settings={"floor": 0.9})).value == 0.0
        assert (await ask(endpoint, "tea", "milk", settings={"floor": -1})).value == pytest.approx(0.5)

    async def test_of_several_expected_texts_the_nearest_counts(self, endpoint):
        score = await ask(endpoint, "a cup of tea", ["milk", "a cup of milk", "tea leaf"])
        assert score.value == pytest.approx(0.75)
        assert score.explanation == "cosine 0.7500, to expected answer 2 of 3"

    async def test_an_empty_text_is_like_no_other_and_is_not_sent(self, endpoint):
        assert (await ask(endpoint, "", "tea")).value == 0.0
        assert (await ask(endpoint, "tea", " ")).value == 0.0
        assert (await ask(endpoint, "", "")).value == 1.0
        assert [text for texts in endpoint.texts for text in texts] == ["tea", "tea"]

    async def test_without_an_expected_answer_it_skips_and_bytes_are_no_text(self, endpoint):
        assert (await ask(endpoint, "tea", None)).status is ScoreStatus.SCORED  # JSON null is an expected answer
        skipped = await score_of("embedding_similarity", "tea", model="e", base_url=endpoint.base_url)
        assert skipped.status is ScoreStatus.SKIPPED
        assert failure_of(await ask(endpoint, Value.blob(b"a", "image/png"), "a")).reason == "NOT_TEXT"

    async def test_a_prefix_stands_before_both(self, endpoint):
        await ask(endpoint, "tea", "milk", settings={"prefix": "query: "})
        assert endpoint.texts == [["query: tea", "query: milk"]]

    async def test_a_mapped_part_is_compared(self, endpoint):
        inputs = {"output": "tea", "expected": "tea"}
        assert (await ask(endpoint, "milk", "water", inputs=inputs)).value == 1.0


class TestCalls:
    async def test_texts_of_many_trials_share_calls(self, endpoint):
        bench = ScorerBench(BUILTINS["embedding_similarity"], {"model": "e", "base_url": endpoint.base_url})
        rows = [(Item(f"i{n}", "", "tea"), Output(f"tea number {n}")) for n in range(200)]
        scores = await bench.score_many(rows)
        assert all(score.value is not None and 0.4 < score.value < 1 for (score,) in scores)
        sent = [text for texts in endpoint.texts for text in texts]
        assert 201 <= len(sent) <= 200 + batching.CALLS  # the expected text once, or in calls at the same time
        assert max(map(len, endpoint.texts)) <= batching.MOST_TEXTS
        assert len(endpoint.calls) < 20

    async def test_what_calls_used_up_is_divided_without_a_rest(self, endpoint):
        prices = {"input": 1.0, "output": 0.0}
        settings = {"model": "e", "base_url": endpoint.base_url, "prices": prices}
        bench = ScorerBench(BUILTINS["embedding_similarity"], settings)
        rows = [(Item(f"i{n}", "", f"word{n} b"), Output("a " * (n + 1))) for n in range(20)]
        usages = [score.usage for (score,) in await bench.score_many(rows) if score.usage]
        said = sum(len(text.split()) for texts in endpoint.texts for text in texts)
        assert sum(usage.input_tokens for usage in usages) == said
        assert sum(usage.calls for usage in usages) == len(endpoint.calls)
        assert all(usage.cost == Money(usage.input_tokens) for usage in usages)

    async def test_what_is_known_costs_nothing(self, endpoint):
        embedder = Embedder(connect(endpoint.base_url), "e", Prices())
        first, used = await embedder.embed(["a", "b", "a"])
        again, free = await embedder.embed(["b", "a"])
        assert (used is not None, free) == (True, None)
        assert [first[1], first[0]] == again
        assert first[0] == first[2]
        assert endpoint.texts == [["a", "b"]]

    async def test_so_much_is_remembered_and_no_more(self, endpoint, monkeypatch):
        monkeypatch.setattr(batching, "REMEMBERED", 2)
        embedder = Embedder(connect(endpoint.base_url), "e", Prices())
        for text in ("a", "b", "a", "c", "a", "b"):  # b was the longest unused when c came
            await embedder.embed([text])
        assert endpoint.texts == [["a"], ["b"], ["c"], ["b"]]

    async def test_a_text_that_is_refused_harms_no_other(self):
        def refuse(call: Call) -> Any:
            if any("bad" in text for text in call.body["input"]):
                return Status(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})
            return None

        with Endpoint(refuse) as endpoint:
            embedder = Embedder(connect(endpoint.base_url), "e", Prices())
            found = await asyncio.gather(*(embedder.embed([text]) for text in "abc"), embedder.embed(["bad"]), return_exceptions=True)  # fmt: skip
        assert [isinstance(each, TrialFailed) for each in found] == [False, False, False, True]
        assert isinstance(found[3], TrialFailed)
        assert found[3].failure.reason == "ENDPOINT_TEXT_TOO_LONG"

    async def test_a_rate_limit_is_told_to_all_that_share_the_call(self):
        with Endpoint(lambda call: Status(429, {"error": {"message": "slow"}}, {"retry-after": "3"})) as endpoint:
            embedder = Embedder(connect(endpoint.base_url), "e", Prices())
            found = await asyncio.gather(*(embedder.embed([text]) for text in "abc"), return_exceptions=True)
        assert {each.failure.retry_after for each in found if isinstance(each, TrialFailed)} == {3.0}
        assert len(endpoint.calls) == 1

    async def test_cancelling_all_that_wait_ends_the_call_and_of_some_it_goes_on(self):
        with Endpoint(lambda call: Hang()) as quiet:
            embedder = Embedder(connect(quiet.base_url), "e", Prices())
            tasks = [asyncio.create_task(embedder.embed([text])) for text in "ab"]
            async with asyncio.timeout(60):
                while not quiet.calls:
                    await asyncio.sleep(0.01)
            tasks[0].cancel()
            await asyncio.sleep(0.1)
            assert not quiet.left.is_set()
            tasks[1].cancel()
            assert await asyncio.to_thread(quiet.left.wait, 30)

    async def test_one_that_is_cancelled_before_its_turn_is_never_sent(self, endpoint, monkeypatch):
        monkeypatch.setattr(batching, "CALLS", 0)  # nobody's turn comes
        embedder = Embedder(connect(endpoint.base_url), "e", Prices())
        task = asyncio.create_task(embedder.embed(["a"]))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        monkeypatch.setattr(batching, "CALLS", 1)
        await embedder.embed(["b"])
        assert endpoint.texts == [["b"]]

    async def test_nobody_is_left_waiting_whatever_happens(self, endpoint, monkeypatch):
        reached = connect(endpoint.base_url)

        async def break_down(*_: object, **__: object) -> None:
            raise LookupError("no such thing")

        monkeypatch.setattr(reached, "embed", break_down)
        with pytest.raises(TrialFailed, match="no such thing"):
            await Embedder(reached, "e", Prices()).embed(["a"])

    async def test_vectors_of_different_lengths_are_no_answer(self):
        lengths = iter([3, 4])

        def grow(call: Call) -> Any:
            length = next(lengths)
            rows = [{"index": n, "embedding": [1.0] * length} for n in range(len(call.body["input"]))]
            return Status(200, {"data": rows})

        with Endpoint(grow) as endpoint:
            embedder = Embedder(connect(endpoint.base_url), "e", Prices())
            await embedder.embed(["a"])
            with pytest.raises(TrialFailed, match="different lengths"):
                await embedder.embed(["a", "b"])

    async def test_the_key_goes_along(self, endpoint):
        await ask(endpoint, "a", "b", settings={"api_key": KEY})
        assert endpoint.calls[0].headers["authorization"] == f"Bearer {KEY}"


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            ({}, "settings.model: missing"),
            ({"model": ""}, "say model"),
            ({"model": "e", "floor": 1}, "floor is from -1 to below 1"),
            ({"model": "e", "base_url": "x"}, "not the URL of an endpoint"),
            ({"model": "e", "prices": {"input": 1}}, "say input and output, or neither"),
        ],
    )
    async def test_what_makes_no_sense_is_refused(self, settings, told):
        with pytest.raises(SettingsInvalid, match=told):
            await ScorerBench(BUILTINS["embedding_similarity"], settings).open()
