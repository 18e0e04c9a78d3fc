"""What the rogue target and the rogue scorer share: a plugin from the generated code alone that breaks its word.

The settings say how: `way` names the misdeed and `at` the items it is done to; every other item is answered honestly,
in the same message as its neighbours and before the misdeed. `log` is a file that gets a line for every trial asked.
Ways that break Describe have a socket of their own each, since Describe knows no settings.

    rogue_target.py FOLDER      listens on FOLDER/plain, and on FOLDER/WAY for every way that breaks Describe
    rogue_target.py             listens where the server says (EVALBUS_SOCKET), as a launched plugin
"""

import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import grpc

from evalbus.v1 import failure_pb2, plugin_pb2

FOREIGN = 4_000_000
"""Added to a trial id, it makes one that no run of ours has."""
MARK = "MARKED-TEXT"
"""Stands where bytes are put in by hand that protobuf would not take."""
NOT_UTF8 = b"MARK\xff\xfe\x80\xc0TXT"
STRAYS = 20_000
BUILDS = itertools.count(1)


class Talk:
    """One conversation."""

    def __init__(self, plugin, context):
        self.plugin = plugin
        self.context = context
        self.way = ""
        self.at = ()
        self.log = ""
        self.dies_after = 0
        self.answered = 0
        self.stays = False
        """Whether the stream stays open after the server has ended its side."""
        self.tasks = set()
        self.turn = asyncio.Lock()

    async def send(self, *answers, **other):
        """Send a response with answers, or with another field."""
        response = self.plugin.response(**other)
        if answers:
            response.answers.answers.extend(answers)
        await self.raw(response)

    async def raw(self, encoded):
        """Send bytes as they are."""
        async with self.turn:
            await self.context.write(encoded)

    def spawn(self, coroutine):
        """Let something go on beside the conversation, until that is over."""
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def honest(self, trial):
        return self.plugin.honest(trial)

    def failed(self, trial, category=failure_pb2.FAILURE_CATEGORY_INVALID, **more):
        """A failure as the answer to a trial."""
        answer = self.plugin.empty(trial)
        answer.failure.CopyFrom(failure_pb2.Failure(category=category, reason="ROGUE", **more))
        return answer


WAYS: dict[str, Any] = {}
OPENINGS: dict[str, Any] = {}
DESCRIBES: dict[str, Any] = {}


def way(function):
    """A misdeed at a trial."""
    WAYS[function.__name__] = function
    return function


def opening(function):
    """A misdeed at `open`."""
    OPENINGS[function.__name__] = function
    return function


def describing(function):
    """A misdeed in Describe: changes the response, or does what it likes."""
    DESCRIBES[function.__name__] = function
    return function


# --- answers that nobody waits for ------------------------------------------------------------------------------


@way
async def twice(talk, trial):
    await talk.send(talk.honest(trial), talk.plugin.wrong(trial))


@way
async def twice_apart(talk, trial):
    await talk.send(talk.honest(trial))
    await talk.send(talk.plugin.wrong(trial))


@way
async def foreign(talk, trial):
    stranger = talk.plugin.wrong(trial)
    stranger.trial_id += FOREIGN
    await talk.send(stranger, talk.honest(trial))


@way
async def foreign_instead(talk, trial):
    stranger = talk.honest(trial)
    stranger.trial_id += FOREIGN
    await talk.send(stranger)


@way
async def neighbours_place(talk, trial):
    """The answer of one trial under the id of another, which was answered before."""
    stranger = talk.plugin.wrong(trial)
    stranger.trial_id -= 1
    await talk.send(stranger, talk.honest(trial))


@way
async def wrong_attempt(talk, trial):
    stranger = talk.honest(trial)
    stranger.attempt += 7
    await talk.send(stranger)


@way
async def negative_ids(talk, trial):
    stranger = talk.plugin.wrong(trial)
    stranger.trial_id, stranger.attempt = -1, -(2**31)
    await talk.send(stranger, talk.honest(trial))


@way
async def silent(talk, trial):
    pass


@way
async def no_way_out(talk, trial):
    """Answered, but the stream stays open."""
    await talk.send(talk.honest(trial))
    talk.stays = True


@way
async def silent_and_no_way_out(talk, trial):
    talk.stays = True


# --- answers that break the contract ----------------------------------------------------------------------------


@way
async def neither(talk, trial):
    await talk.send(talk.plugin.empty(trial))


@way
async def unknown_category(talk, trial):
    await talk.send(talk.failed(trial, 99, message="of a kind that is not known"))


@way
async def unknown_fields(talk, trial):
    """Fields of a later revision, which are no fault."""
    encoded = talk.honest(trial).SerializeToString() + b"\xfa\x3e\x05later"
    response = talk.plugin.response()
    response.answers.answers.add().ParseFromString(encoded)
    await talk.raw(response.SerializeToString())


@way
async def bad_utf8(talk, trial):
    await talk.raw(_marked(talk, talk.plugin.with_text(trial, MARK)))


@way
async def bad_utf8_in_a_failure(talk, trial):
    await talk.raw(_marked(talk, talk.failed(trial, message=MARK)))


@way
async def bad_utf8_among_others(talk, trial):
    """In one message with answers that are fine: here, one that nobody asked for."""
    stranger = talk.honest(trial)
    stranger.trial_id += FOREIGN
    await talk.raw(_marked(talk, stranger, talk.plugin.with_text(trial, MARK)))


@way
async def bad_utf8_in_progress(talk, trial):
    news = plugin_pb2.TrialProgress(trial_id=trial.trial_id, attempt=trial.attempt, note=MARK)
    response = talk.plugin.response(progress=plugin_pb2.Progress(trials=[news]))
    await talk.raw(response.SerializeToString().replace(MARK.encode(), NOT_UTF8))
    await talk.send(talk.honest(trial))


@way
async def no_protobuf(talk, trial):
    await talk.raw(b"\xff" * 50)


@way
async def five_megabytes(talk, trial):
    await talk.send(talk.plugin.with_text(trial, "x" * 5_000_000))


@way
async def seventy_megabytes(talk, trial):
    await talk.send(talk.plugin.with_text(trial, "x" * 70_000_000))


@way
async def long_failure(talk, trial):
    await talk.send(talk.failed(trial, message="first line\n" + "x" * 1_000_000))


@way
async def huge_usage(talk, trial):
    """Twice as much as 63 bits hold, over two attempts."""
    answer = talk.failed(trial, failure_pb2.FAILURE_CATEGORY_UNAVAILABLE, message="busy")
    answer.usage.input_tokens = answer.usage.calls = answer.usage.cost.micros = 2**63 - 1
    answer.usage.cost.currency = "USD"
    await talk.send(answer)


@way
async def negative_usage(talk, trial):
    answer = talk.failed(trial, failure_pb2.FAILURE_CATEGORY_REFUSED, message="no")
    answer.usage.input_tokens = -5
    await talk.send(answer)


# --- messages that are out of place -----------------------------------------------------------------------------


@way
async def ready_again(talk, trial):
    await talk.send(ready=plugin_pb2.Ready(max_in_flight=1))
    await talk.send(talk.honest(trial))


@way
async def refused_late(talk, trial):
    await talk.send(refused=plugin_pb2.Refused(failure=failure_pb2.Failure(reason="ROGUE", message="changed my mind")))
    await talk.send(talk.honest(trial))


@way
async def nothing_set(talk, trial):
    await talk.send()
    await talk.raw(talk.plugin.response(answers={}).SerializeToString())
    await talk.raw(b"")
    await talk.send(talk.honest(trial))


@way
async def odd_push_back(talk, trial):
    asked = plugin_pb2.PushBack(max_in_flight=-5)
    asked.pause.seconds = -(2**40)
    await talk.send(push_back=asked)
    await talk.send(talk.honest(trial))


@way
async def lying_progress(talk, trial):
    """News of trials that are not here, of an unknown kind and with impossible numbers; then the answer."""
    kinds: list[Any] = [0, 1, 2, 99]
    for kind in kinds:
        news = plugin_pb2.TrialProgress(trial_id=trial.trial_id + FOREIGN, attempt=trial.attempt, kind=kind, steps=-1)
        news.usage.input_tokens = -1
        own = plugin_pb2.TrialProgress(trial_id=trial.trial_id, attempt=trial.attempt, kind=kind)
        await talk.send(progress=plugin_pb2.Progress(trials=[news, own]))
    await talk.send(talk.honest(trial))


@way
async def beats_for_ever(talk, trial):
    """Begun and alive for ever, and never answered."""
    await talk.send(progress=_news(trial, plugin_pb2.PROGRESS_KIND_STARTED))
    talk.spawn(_beat(talk, trial))


@way
async def flood(talk, trial):
    """Thousands of strays and as much news before the answer."""
    stranger = talk.plugin.wrong(trial)
    stranger.trial_id += FOREIGN
    for _ in range(STRAYS // 200):
        await talk.send(*[stranger] * 200)
        await talk.send(progress=_news(trial, plugin_pb2.PROGRESS_KIND_HEARTBEAT, 200))
    await talk.send(talk.honest(trial))


@way
async def flood_for_ever(talk, trial):
    """No end of strays and news, and no answer."""
    talk.spawn(_flood(talk, trial))


async def _beat(talk, trial):
    while True:
        await talk.send(progress=_news(trial, plugin_pb2.PROGRESS_KIND_HEARTBEAT))
        await asyncio.sleep(0.02)


async def _flood(talk, trial):
    stranger = talk.plugin.wrong(trial)
    stranger.trial_id += FOREIGN
    while True:
        await talk.send(*[stranger] * 50)
        await talk.send(progress=_news(trial, plugin_pb2.PROGRESS_KIND_HEARTBEAT, 50))


# --- breaking off -----------------------------------------------------------------------------------------------


class Over(Exception):
    """The conversation is ended, in order."""


@way
async def ends_early(talk, trial):
    raise Over


@way
async def long_details(talk, trial):
    await talk.context.abort(grpc.StatusCode.FAILED_PRECONDITION, "d" * 17_000)


@way
async def long_error(talk, trial):
    raise ValueError("e" * 70_000)


@way
async def many_lines(talk, trial):
    await talk.context.abort(grpc.StatusCode.INTERNAL, "one\ntwo\t three\n")


@way
async def cancelled_error(talk, trial):
    raise asyncio.CancelledError


@way
async def stops(talk, trial):
    await asyncio.sleep(0.3)  # what was answered leaves first
    os.kill(os.getpid(), signal.SIGSTOP)


@way
async def dies(talk, trial):
    await asyncio.sleep(0.3)
    print("Traceback: no memory left", file=sys.stderr, flush=True)
    os._exit(137)


def _aborting(code):
    async def abort(talk, trial):
        await talk.context.abort(code, f"told to end with {code.name}")

    return abort


for _code in grpc.StatusCode:
    if _code is not grpc.StatusCode.OK:
        WAYS[f"abort_{_code.name}"] = _aborting(_code)


# --- at open ----------------------------------------------------------------------------------------------------


@opening
async def open_silent(talk):
    await asyncio.Event().wait()


@opening
async def open_refused(talk):
    failure = failure_pb2.Failure(reason="NO_LICENCE", field="settings.key", message="there is\nno licence")
    await talk.send(refused=plugin_pb2.Refused(failure=failure))


@opening
async def open_refused_for_settings(talk):
    failure = failure_pb2.Failure(reason="SETTINGS_INVALID", field="settings.way", message="no such way")
    await talk.send(refused=plugin_pb2.Refused(failure=failure))


@opening
async def open_refused_at_length(talk):
    failure = failure_pb2.Failure(reason="ROGUE" * 1000, message="many words\n" * 20_000)
    await talk.send(refused=plugin_pb2.Refused(failure=failure))


@opening
async def open_refused_without_a_word(talk):
    await talk.send(refused=plugin_pb2.Refused())


@opening
async def open_answers(talk):
    await talk.send(talk.plugin.response().answers.answers.add(trial_id=0, attempt=1001))


@opening
async def open_empty(talk):
    await talk.send()


@opening
async def open_no_protobuf(talk):
    await talk.raw(b"\xff" * 50)


@opening
async def open_ends(talk):
    raise Over


@opening
async def open_aborts(talk):
    await talk.context.abort(grpc.StatusCode.INTERNAL, "cannot open")


@opening
async def open_raises(talk):
    raise ValueError("v" * 70_000)


@opening
async def open_unauthenticated(talk):
    await talk.context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")


@opening
async def open_cancelled_error(talk):
    raise asyncio.CancelledError


@opening
async def open_negative(talk):
    """Grants fewer trials than none, which says nothing; then answers."""
    await talk.send(ready=plugin_pb2.Ready(max_in_flight=-3))


@opening
async def open_dies(talk):
    print("Traceback: no model", file=sys.stderr, flush=True)
    os._exit(4)


# --- in Describe ------------------------------------------------------------------------------------------------


@describing
async def plain(response, context):
    pass


@describing
async def describe_nobody(response, context):
    del response.plugins[:]


@describing
async def describe_no_name(response, context):
    response.plugins[0].name = ""


@describing
async def describe_dotted(response, context):
    response.plugins[0].name = "ro.gue"


@describing
async def describe_control(response, context):
    response.plugins[0].name = "ro\x1bgue"


@describing
async def describe_long_name(response, context):
    response.plugins[0].name = "r" * 101


@describing
async def describe_no_kind(response, context):
    response.plugins[0].ClearField("kind")


@describing
async def describe_two(response, context):
    response.plugins.add().CopyFrom(response.plugins[0])
    response.plugins[1].name = "other"


@describing
async def describe_schema(response, context):
    response.plugins[0].settings_schema = "[not json"


@describing
async def describe_revisions_7_9(response, context):
    response.plugins[0].lowest_revision, response.plugins[0].highest_revision = 7, 9


@describing
async def describe_revision_0(response, context):
    response.plugins[0].lowest_revision = response.plugins[0].highest_revision = 0


@describing
async def describe_negative(response, context):
    """Odd, but nothing that matters: a negative limit, an unknown isolation, words that are not known."""
    response.plugins[0].max_in_flight = -1
    response.plugins[0].capabilities.extend(["telepathy", ""])
    if response.plugins[0].HasField("target"):
        response.plugins[0].target.isolation = 77
    else:
        response.plugins[0].scorer.needs.append(77)


@describing
async def describe_bad_utf8(response, context):
    response.plugins[0].description = MARK
    return response.SerializeToString().replace(MARK.encode(), NOT_UTF8)


@describing
async def describe_no_protobuf(response, context):
    return b"\xff" * 50


@describing
async def describe_silent(response, context):
    await asyncio.Event().wait()


@describing
async def describe_aborts(response, context):
    await context.abort(grpc.StatusCode.INTERNAL, "no\nself-knowledge")


@describing
async def describe_long_details(response, context):
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "d" * 17_000)


@describing
async def describe_unauthenticated(response, context):
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")


@describing
async def describe_cancelled_error(response, context):
    raise asyncio.CancelledError


@describing
async def describe_another_each_time(response, context):
    """Another build at every call."""
    response.plugins[0].digest = f"build {next(BUILDS)}"


# --- the plugin itself ------------------------------------------------------------------------------------------


def note(path, records):
    """Write down who was asked what."""
    with open(path, "a") as log:
        log.write("".join(f"{record.item.id} {record.attempt} {os.getpid()}\n" for record in records))


def _marked(talk, *answers):
    response = talk.plugin.response()
    response.answers.answers.extend(answers)
    encoded = response.SerializeToString()
    assert MARK.encode() in encoded and len(NOT_UTF8) == len(MARK)
    return encoded.replace(MARK.encode(), NOT_UTF8)


def _news(trial, kind, times=1):
    return plugin_pb2.Progress(
        trials=[plugin_pb2.TrialProgress(trial_id=trial.trial_id, attempt=trial.attempt, kind=kind)] * times
    )


class Plugin:
    """A target or a scorer: what differs is in the subclass."""

    service: str
    method: str
    request: Any
    response: Any

    def __init__(self, describe=plain):
        self.misdescribe = describe

    def declare(self, info):
        """Fill in what only this kind of plugin says of itself."""
        raise NotImplementedError

    def records(self, request):
        """The trials of a request."""
        raise NotImplementedError

    def empty(self, trial):
        """An answer with nothing in it."""
        raise NotImplementedError

    def honest(self, trial):
        """The right answer."""
        raise NotImplementedError

    def wrong(self, trial):
        """An answer that would fail the trial."""
        raise NotImplementedError

    def with_text(self, trial, text):
        """An answer with this text in it."""
        raise NotImplementedError

    def ready(self, way):
        return plugin_pb2.Ready()

    async def describe(self, request, context):
        info = plugin_pb2.PluginInfo(name="rogue", version="1.0.0", lowest_revision=1, highest_revision=1)
        self.declare(info)
        response = plugin_pb2.DescribeResponse(plugins=[info])
        return await self.misdescribe(response, context) or response

    async def converse(self, requests, context):
        talk = Talk(self, context)
        try:
            async for request in requests:
                if request.HasField("open"):
                    await self._open(talk, request.open)
                else:
                    await self._answer(talk, self.records(request))
            if talk.stays:
                await asyncio.Event().wait()
        except Over:
            return
        finally:
            for task in talk.tasks:
                task.cancel()

    async def _open(self, talk, opened):
        settings = json.loads(opened.settings or "{}")
        talk.way = settings.get("way", "")
        talk.at = tuple(settings.get("at", ()))
        talk.log = settings.get("log", "")
        talk.dies_after = settings.get("dies_after", 0)
        if talk.way in OPENINGS:
            await OPENINGS[talk.way](talk)
        else:
            await talk.send(ready=self.ready(talk.way))

    async def _answer(self, talk, records):
        if talk.log:
            note(talk.log, records)
        honest = [record for record in records if record.item.id not in talk.at or talk.way not in WAYS]
        if talk.dies_after:
            honest = honest[: talk.dies_after - talk.answered]
        if honest:
            await talk.send(*[self.honest(record) for record in honest])
        talk.answered += len(honest)
        if talk.dies_after and talk.answered >= talk.dies_after:
            await dies(talk, None)
        for record in records:
            if record not in honest:
                await WAYS[talk.way](talk, record)


def handlers(plugin):
    """The service of a plugin, with bytes passed through as they are."""
    methods = {
        "Describe": grpc.unary_unary_rpc_method_handler(
            plugin.describe,
            request_deserializer=plugin_pb2.DescribeRequest.FromString,
            response_serializer=_encoded,
        ),
        plugin.method: grpc.stream_stream_rpc_method_handler(
            plugin.converse, request_deserializer=plugin.request.FromString, response_serializer=_encoded
        ),
    }
    return grpc.method_handlers_generic_handler(plugin.service, methods)


def _encoded(message):
    return message if isinstance(message, bytes) else message.SerializeToString()


async def serve(kind):
    """Listen with plugins of a kind, and never end."""
    if "EVALBUS_SOCKET" in os.environ:
        sockets = {os.environ["EVALBUS_SOCKET"]: plain}
    else:
        sockets = {str(Path(sys.argv[1], name)): describe for name, describe in DESCRIBES.items()}
    servers = []
    for path, describe in sockets.items():
        server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
        server.add_generic_rpc_handlers((handlers(kind(describe)),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        servers.append(server)
    if "EVALBUS_SOCKET" not in os.environ:
        print(json.dumps([*WAYS, *OPENINGS, *DESCRIBES]), flush=True)
    await asyncio.Event().wait()
