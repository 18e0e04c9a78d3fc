"""The client of OpenAI-compatible endpoints, against one that misbehaves in every way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from email.utils import formatdate

import pytest

from evalbus import FailureCategory, Money, SettingsInvalid, TrialFailed, Usage
from evalbus_server.scorer.endpoint import Endpoint, Meter, Prices, Question, Reach, connect
from evalbus_server.scorer.endpoint.faults import retry_after
from tests.mock_endpoint import KEY, Drop, Hang, MockEndpoint, Says, Status

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def question(**more):
    return Question("judge-1", [{"role": "user", "content": "Is it?"}], **more)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


async def asked(mock: MockEndpoint, wanted: Question | None = None, *, within: float | None = 30, prices=None):
    meter = Meter(prices or Prices())
    reply = await connect(mock.base_url, KEY).ask(wanted or question(), meter, within=within)
    return reply, meter.usage


async def failure_of(answer, **more):
    with MockEndpoint([answer]) as mock, pytest.raises(TrialFailed) as caught:
        await asked(mock, **more)
    assert len(mock.calls) == 1, "it is asked once: the server's rules retry"
    return caught.value.failure


class TestReach:
    def test_the_environment_says_where_and_with_which_key(self):
        environ = {"OPENAI_BASE_URL": "http://judge:8000/v1/", "OPENAI_API_KEY": "k1"}
        assert Reach.find("", "", environ) == Reach("http://judge:8000/v1", "k1", True)
        assert Reach.find("", "k2", environ).api_key == "k2"

    def test_settings_come_first(self):
        assert Reach.find("http://here/v1", "k", {"OPENAI_BASE_URL": "http://there/v1"}).base_url == "http://here/v1"

    def test_the_key_of_the_environment_goes_nowhere_else(self):
        environ = {"OPENAI_API_KEY": "secret"}
        assert Reach.find("http://elsewhere/v1", "", environ).api_key == ""
        assert Reach.find("", "", environ).api_key == "secret"
        assert Reach.find("https://api.openai.com/v1/", "", environ).api_key == "secret"

    def test_a_key_is_never_shown(self):
        assert "secret" not in repr(Reach.find("http://here/v1", "secret", {}))

    def test_without_a_key_the_public_endpoint_is_not_even_tried(self):
        with pytest.raises(SettingsInvalid, match="OPENAI_API_KEY"):
            Reach.find("", "", {})

    @pytest.mark.parametrize("url", ["judge:8000", "ftp://judge", "http://", "/v1"])
    def test_what_is_no_url_is_refused(self, url):
        with pytest.raises(SettingsInvalid, match="not the URL"):
            Reach.find(url, "k", {})

    @pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
    def test_what_is_no_key_is_refused_without_showing_it(self, key):
        with pytest.raises(SettingsInvalid) as caught:
            Reach.find("http://here/v1", key, {})
        assert key not in str(caught.value)

    async def test_other_variables_of_the_environment_stay_with_its_endpoint(self, monkeypatch):
        monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "project-secret")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-pass: header-secret")
        monkeypatch.setenv("OPENAI_API_KEY", "key-secret")
        with MockEndpoint(lambda call: "yes") as mock:
            await connect(mock.base_url).ask(question(), Meter(Prices()))
            monkeypatch.setenv("OPENAI_BASE_URL", mock.base_url)
            await connect().ask(question(), Meter(Prices()))
        there, at_home = (str(call.headers) for call in mock.calls)
        assert "secret" not in there
        for word in ("org-secret", "project-secret", "header-secret", "key-secret"):
            assert word in at_home


class TestAsking:
    async def test_a_reply_comes_with_what_it_consumed(self):
        with MockEndpoint(["yes"]) as mock:
            reply, usage = await asked(mock, question(temperature=0.5, seed=7, max_tokens=50, extra={"top_p": 0.9}))
        assert (reply.text, reply.model, reply.fingerprint, reply.form) == ("yes", "judge-1-2026", "fp_1", "text")
        assert usage == Usage(100, 20, 0, 1, None)
        body = mock.calls[0].body
        assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("judge-1", 0.5, 7, 50)
        assert body["top_p"] == 0.9
        assert mock.calls[0].headers["authorization"] == f"Bearer {KEY}"

    async def test_what_is_not_said_is_not_sent(self):
        with MockEndpoint(["yes"]) as mock:
            await asked(mock)
        assert set(mock.calls[0].body) == {"model", "messages"}

    async def test_the_cost_follows_from_prices(self):
        used = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}
        with MockEndpoint([Says("yes", usage=used)]) as mock:
            _, usage = await asked(mock, prices=Prices(input=2.5, output=10, cached=1.25, currency="EUR"))
        assert usage == Usage(1000, 100, 400, 1, Money(3000, "EUR"))

    async def test_a_reply_without_usage_has_no_price_which_is_not_zero(self):
        with MockEndpoint([Says("yes", usage=None)]) as mock:
            _, usage = await asked(mock, prices=Prices(input=1, output=1))
        assert usage == Usage(0, 0, 0, 1, None)

    @pytest.mark.parametrize(
        "prices", [{"input": 1.0}, {"cached": 1.0}, {"input": -1.0, "output": 0.0}, {"currency": "usd"}]
    )
    def test_prices_that_are_none_are_refused(self, prices):
        with pytest.raises(ValueError, match=r"price|at least|capital"):
            Prices(**prices)

    async def test_a_free_model_costs_zero(self):
        assert Prices(input=0, output=0).of(Usage(10, 10)) == Money(0)

    @pytest.mark.parametrize("form", ["json_schema", "json_object", "text"])
    async def test_the_strictest_form_that_is_offered_is_taken_and_remembered(self, form):
        forms = ["json_schema", "json_object", "text"]
        offered = forms[forms.index(form) :]
        with MockEndpoint(lambda call: {"a": "x"}, forms=offered) as mock:
            endpoint = connect(mock.base_url)
            for _ in range(2):
                assert (await endpoint.ask(question(schema=SCHEMA), Meter(Prices()))).form == form
        assert [call.form for call in mock.calls] == [*forms[: forms.index(form) + 1], form]

    async def test_a_form_that_was_chosen_is_not_changed(self):
        with MockEndpoint(lambda call: "x", forms=["text"]) as mock, pytest.raises(TrialFailed) as caught:
            await asked(mock, question(schema=SCHEMA, form="json_object"))
        assert caught.value.failure.category is FailureCategory.INVALID
        assert len(mock.calls) == 1

    async def test_calls_at_the_same_time_share_the_connections(self):
        with MockEndpoint(lambda call: call.text) as mock:
            endpoint = connect(mock.base_url)
            async with endpoint.lease():
                wanted = [Question("m", [{"role": "user", "content": str(number)}]) for number in range(20)]
                replies = await asyncio.gather(*(endpoint.ask(each, Meter(Prices())) for each in wanted))
        assert [reply.text for reply in replies] == [str(number) for number in range(20)]

    async def test_cancelling_reaches_the_call(self):
        with MockEndpoint([Hang()]) as mock:
            task = asyncio.create_task(asked(mock))
            while not mock.calls:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(mock.left.wait, 30), "the connection was closed"


class TestFailing:
    @pytest.mark.parametrize(
        ("answer", "category", "reason", "wait"),
        [
            (Status(429, {}, {"Retry-After": "7"}), FailureCategory.RATE_LIMITED, "ENDPOINT_RATE_LIMITED", 7),
            (Status(429, {}, {"retry-after-ms": "250"}), FailureCategory.RATE_LIMITED, "ENDPOINT_RATE_LIMITED", 0.25),
            (Status(429, {}), FailureCategory.RATE_LIMITED, "ENDPOINT_RATE_LIMITED", None),
            (
                Status(429, {"error": {"code": "insufficient_quota", "message": "pay"}}),
                FailureCategory.BUDGET,
                "ENDPOINT_QUOTA_SPENT",
                None,
            ),
            (Status(500, b"<html>oops"), FailureCategory.UNAVAILABLE, "ENDPOINT_UNAVAILABLE", None),
            (Status(503, {}, {"Retry-After": "3"}), FailureCategory.UNAVAILABLE, "ENDPOINT_UNAVAILABLE", 3),
            (Status(408, {}), FailureCategory.TIMEOUT, "ENDPOINT_TIMEOUT", None),
            (Status(401, {"error": {"message": "bad"}}), FailureCategory.REFUSED, "ENDPOINT_UNAUTHENTICATED", None),
            (Status(402, {}), FailureCategory.REFUSED, "ENDPOINT_UNPAID", None),
            (Status(403, {}), FailureCategory.REFUSED, "ENDPOINT_FORBIDDEN", None),
            (Status(404, {}), FailureCategory.INVALID, "ENDPOINT_REFUSED_CALL", None),
            (Status(400, {"error": {"message": "no"}}), FailureCategory.INVALID, "ENDPOINT_REFUSED_CALL", None),
            (
                Status(400, {"error": {"message": "x", "code": "context_length_exceeded"}}),
                FailureCategory.INVALID,
                "ENDPOINT_TEXT_TOO_LONG",
                None,
            ),
            (
                Status(400, {"error": {"message": "x", "code": "content_filter"}}),
                FailureCategory.REFUSED,
                "ENDPOINT_CONTENT_FILTERED",
                None,
            ),
            (Status(200, b"<html>hello"), FailureCategory.UNAVAILABLE, "ENDPOINT_REPLY_BROKEN", None),
            (Status(200, b'{"choices": [{"mess'), FailureCategory.UNAVAILABLE, "ENDPOINT_REPLY_BROKEN", None),
            (Status(200, []), FailureCategory.UNAVAILABLE, "ENDPOINT_REPLY_BROKEN", None),
            (Status(200, {}), FailureCategory.UNAVAILABLE, "ENDPOINT_REPLY_BROKEN", None),
            (Status(200, {"choices": []}), FailureCategory.UNAVAILABLE, "ENDPOINT_REPLY_BROKEN", None),
            (Status(200, {"choices": [{}]}), FailureCategory.UNAVAILABLE, "ENDPOINT_REPLY_BROKEN", None),
            (Status(200, {"choices": [3]}), FailureCategory.UNAVAILABLE, "ENDPOINT_REPLY_BROKEN", None),
            (Drop(), FailureCategory.UNAVAILABLE, "ENDPOINT_UNREACHABLE", None),
            (Says(None, refusal="I will not."), FailureCategory.REFUSED, "MODEL_REFUSED", None),
            (Says("ye", finish_reason="length"), FailureCategory.INVALID, "REPLY_CUT_OFF", None),
            (Says("", finish_reason="content_filter"), FailureCategory.REFUSED, "ENDPOINT_CONTENT_FILTERED", None),
            (Says(" \n"), FailureCategory.INVALID, "REPLY_INVALID", None),
            (Says(None), FailureCategory.INVALID, "REPLY_INVALID", None),
        ],
    )
    async def test_each_trouble_has_its_category(self, answer, category, reason, wait):
        failure = await failure_of(answer)
        assert (failure.category, failure.reason, failure.retry_after) == (category, reason, wait)
        assert "\n" not in failure.message

    @pytest.mark.parametrize(
        ("key", "ambient", "why"),
        [
            (KEY, True, "it does not know the key"),
            ("", True, 'no key was sent: set $OPENAI_API_KEY, or settings.api_key as "${env:NAME}"'),
            ("", False, 'no key was sent: say settings.api_key as "${env:NAME}"'),
        ],
    )
    async def test_a_refusal_tells_whether_a_key_was_sent_at_all(self, monkeypatch, key, ambient, why):
        with MockEndpoint([Status(401, {"error": {"message": "bad"}})]) as mock, pytest.raises(TrialFailed) as caught:
            monkeypatch.delenv("OPENAI_API_KEY", raising=False)
            monkeypatch.setenv("OPENAI_BASE_URL", mock.base_url if ambient else "http://elsewhere/v1")
            await connect(mock.base_url, key).ask(question(), Meter(Prices()))
        assert caught.value.failure.message.endswith(f"status 401: bad ({why})")

    async def test_what_failed_after_a_reply_has_consumed_too(self):
        meter = Meter(Prices())
        with MockEndpoint([Says("ye", finish_reason="length")]) as mock, pytest.raises(TrialFailed):
            await connect(mock.base_url).ask(question(), meter)
        assert meter.usage.output_tokens == 20

    async def test_a_hang_ends_with_the_time_that_is_left(self):
        failure = await failure_of(Hang(), within=0.2)
        assert (failure.category, failure.reason) == (FailureCategory.TIMEOUT, "ENDPOINT_TIMEOUT")

    async def test_without_time_nothing_is_asked(self):
        with MockEndpoint(["yes"]) as mock, pytest.raises(TrialFailed):
            await asked(mock, within=0)
        assert mock.calls == []

    async def test_nobody_there_is_unavailable(self):
        with MockEndpoint() as mock:
            url = mock.base_url
        with pytest.raises(TrialFailed) as caught:
            await connect(url).ask(question(), Meter(Prices()))
        assert caught.value.failure.category is FailureCategory.UNAVAILABLE

    async def test_a_key_in_what_the_endpoint_says_is_not_passed_on(self):
        failure = await failure_of(Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}."}}))
        assert KEY not in failure.message
        assert "Incorrect API key" in failure.message

    async def test_what_the_endpoint_says_is_cut(self):
        failure = await failure_of(Status(400, {"error": {"message": "long " * 10_000}}))
        assert len(failure.message) < 500

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after": "2"}, 2.0),
            ({"retry-after": "1.5"}, 1.5),
            ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
            ({"retry-after": formatdate(1_000_030, usegmt=True)}, 30.0),
            ({"retry-after": formatdate(999_000, usegmt=True)}, 0.0),
            ({"retry-after": "9" * 11}, 86_400.0),
            ({"retry-after": "-1"}, None),
            ({"retry-after": "nan"}, None),
            ({"retry-after": "soon"}, None),
            ({}, None),
        ],
    )
    def test_how_long_to_wait_is_read_in_every_form(self, headers, seconds):
        assert retry_after(headers, now=1_000_000) == seconds


class TestEmbedding:
    async def test_each_text_has_its_vector(self):
        with MockEndpoint() as mock:
            meter = Meter(Prices(input=1, output=0))
            vectors = await connect(mock.base_url).embed("e1", ["a b", "b a", "c"], meter)
        assert vectors[0] == vectors[1] != vectors[2]
        assert meter.usage == Usage(5, 0, 0, 1, Money(5))
        assert mock.calls[0].body["encoding_format"] == "float"

    @pytest.mark.parametrize(
        "rows",
        [
            *([], [{"index": 0, "embedding": []}], [{"embedding": ["x"]}], "no", [3]),
            *([{"index": [0], "embedding": [1]}], [{"embedding": [10**400]}], [{"embedding": [1e200]}]),
        ],
    )
    async def test_what_holds_no_vector_is_broken_and_never_a_value(self, rows):
        class Broken(MockEndpoint):
            def answer(self, call):
                return Status(200, {"data": rows})

        with Broken() as mock, pytest.raises(TrialFailed) as caught:
            await connect(mock.base_url).embed("e1", ["a"], Meter(Prices()))
        assert caught.value.failure.reason == "ENDPOINT_REPLY_BROKEN"


def test_nobody_pays_for_it_who_asks_no_model():
    code = (
        "import sys, evalbus_server.scorer.builtin, evalbus_server.scorer.endpoint; sys.exit('openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_connecting_opens_nothing():
    with MockEndpoint() as mock:
        assert isinstance(connect(mock.base_url), Endpoint)
    assert mock.calls == []
