"""DatasetService over a real socket: all or nothing, versions only for what changed, every refusal with its place."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evalbus import NULL, Item, Message, Output, ToolCall, ToolMock, Value, wire
from evalbus.client import CallFailed, Client, Dataset
from evalbus.v1 import dataset_pb2, item_pb2

from .service import Process, Served, failure, items, serving, stubs, until


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as made:
        yield made


async def datasets(served: Served) -> list[Dataset]:
    return [dataset async for dataset in served.client.datasets()]


def header(name: str = "d") -> dataset_pb2.UploadDatasetRequest:
    return dataset_pb2.UploadDatasetRequest(header=dataset_pb2.UploadHeader(name=name))


def batch(*given: Item | item_pb2.Item) -> dataset_pb2.UploadDatasetRequest:
    messages = [each if isinstance(each, item_pb2.Item) else wire.item_to_proto(each) for each in given]
    return dataset_pb2.UploadDatasetRequest(items=dataset_pb2.ItemBatch(items=messages))


async def uploaded(served: Served, *requests: dataset_pb2.UploadDatasetRequest) -> dataset_pb2.UploadDatasetResponse:
    async with served.channel() as channel:
        return await stubs(channel)[1].UploadDataset(iter(requests))


def reason_of(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    assert status is not None and status.details[0].Unpack(info)
    return str(info.reason)


# --- origins ------------------------------------------------------------------------------------------------------------


async def test_another_origin_is_refused_until_the_first_is_said_to_be_gone(served: Served) -> None:
    await served.client.upload_dataset("d", items(2), origin="/a/d.jsonl")
    again = await served.client.upload_dataset("d", items(3), origin="/a/d.jsonl")

    with pytest.raises(CallFailed) as caught:
        await served.client.upload_dataset("d", items(4), origin="/b/d.jsonl")
    with pytest.raises(CallFailed):
        await served.client.upload_dataset("d", items(4), origin="/b/d.jsonl", moved_from="/c/d.jsonl")
    assert (await served.client.get_dataset("d")).version == again.dataset.version == 2
    moved = await served.client.upload_dataset("d", items(4), origin="/b/d.jsonl", moved_from="/a/d.jsonl")

    assert (caught.value.reason, caught.value.code) == ("DATASET_EXISTS", "ALREADY_EXISTS")
    assert "the dataset 'd' comes from /a/d.jsonl, and /b/d.jsonl is another file" in str(caught.value)
    assert moved.dataset.version == 3
    assert (await served.client.dataset_info("d")).origin == "/b/d.jsonl"


async def test_whoever_chose_the_name_names_no_origin(served: Served) -> None:
    await served.client.upload_dataset("d", items(2))
    before = await served.client.dataset_info("d")
    await served.client.upload_dataset("d", items(3), origin="/a/d.jsonl")
    named = await served.client.upload_dataset("d", items(4))

    assert before.origin == ""
    assert (named.dataset.version, (await served.client.dataset_info("d")).origin) == (3, "/a/d.jsonl")


async def test_an_origin_is_noted_though_nothing_has_changed(served: Served) -> None:
    await served.client.upload_dataset("d", items(2))
    same = await served.client.upload_dataset("d", items(2), origin="/a/d.jsonl")

    assert not same.changed
    assert (await served.client.dataset_info("d")).origin == "/a/d.jsonl"


@pytest.mark.parametrize("field", ["origin", "moved_from"])
@pytest.mark.parametrize("text", ["x" * 4097, "/a/\n.jsonl", "\x00"])
async def test_an_origin_is_text_in_one_line(served: Served, field: str, text: str) -> None:
    first = header()
    setattr(first.header, field, text)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await uploaded(served, first, batch(Item("a", "x")))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"{field} has up to 4,096 characters" in (caught.value.details() or "")
    assert await datasets(served) == []


# --- versions ---------------------------------------------------------------------------------------------------


async def test_an_upload_makes_a_version_and_the_same_items_again_make_none(served: Served) -> None:
    first = await served.client.upload_dataset("d", items(600))
    again = await served.client.upload_dataset("d", items(600))
    shorter = await served.client.upload_dataset("d", items(599))

    assert (first.dataset.version, first.dataset.items, first.changed) == (1, 600, True)
    assert (again.dataset.version, again.changed) == (1, False)
    assert (shorter.dataset.version, shorter.dataset.items, shorter.changed) == (2, 599, True)
    assert first.dataset.digest == again.dataset.digest != shorter.dataset.digest


async def test_every_version_stays(served: Served) -> None:
    await served.client.upload_dataset("d", items(3))
    await served.client.upload_dataset("d", items(4))

    assert (await served.client.get_dataset("d")).version == 2
    assert (await served.client.get_dataset("d", 1)).items == 3


async def test_an_item_comes_back_as_it_went_in(served: Served) -> None:
    given = [
        Item("text", "a\n\0é\u2028", ""),
        Item("json", Value.json('{"b":1.50,"a":[9007199254740993,null]}'), NULL, metadata={"k": {"deep": [1]}}),
        Item("blob", Value.blob(b"\x00\xff", "image/png"), ["any", "of"], tags=["t"], choices=["x", "y"]),
        Item("talk", "", messages=[Message("user", "hi", tool_calls=[ToolCall("f", {"x": 1}, result=[1])])]),
        Item("rest", "", tool_mocks=[ToolMock("t", None, Value("v"))], scorers=[], output=Output("o")),
    ]
    await served.client.upload_dataset("d", given)

    assert [stored.item for stored in served.parts.store.items("d", 1, limit=10)] == given


# --- all or nothing ---------------------------------------------------------------------------------------------

BIG = item_pb2.Item(id="big")
BIG.input.text = "x" * (1 << 20)

BAD: dict[str, tuple[list[dataset_pb2.UploadDatasetRequest], str, str]] = {
    "twice in a batch": ([header(), batch(Item("a"), Item("a"))], "DATASET_INVALID", "INVALID_ARGUMENT"),
    "twice": ([header(), batch(Item("a")), batch(Item("b"), Item("a"))], "DATASET_INVALID", "INVALID_ARGUMENT"),
    "no id": ([header(), batch(Item("a")), batch(Item(""))], "DATASET_INVALID", "INVALID_ARGUMENT"),
    "no input": ([header(), batch(item_pb2.Item(id="a"))], "DATASET_INVALID", "INVALID_ARGUMENT"),
    "too large": ([header(), batch(Item("a")), batch(BIG)], "ITEM_TOO_LARGE", "RESOURCE_EXHAUSTED"),
    "no items": ([header()], "DATASET_INVALID", "INVALID_ARGUMENT"),
    "empty batch": ([header(), batch()], "REQUEST_INVALID", "INVALID_ARGUMENT"),
    "long batch": ([header(), batch(*items(257))], "REQUEST_INVALID", "INVALID_ARGUMENT"),
    "nothing": ([], "REQUEST_INVALID", "INVALID_ARGUMENT"),
    "no header": ([batch(Item("a"))], "REQUEST_INVALID", "INVALID_ARGUMENT"),
    "two headers": ([header(), batch(Item("a")), header("e")], "REQUEST_INVALID", "INVALID_ARGUMENT"),
    "no name": ([header(""), batch(Item("a"))], "DATASET_INVALID", "INVALID_ARGUMENT"),
    "odd name": ([header("a\nb"), batch(Item("a"))], "DATASET_INVALID", "INVALID_ARGUMENT"),
    "long name": ([header("n" * 201), batch(Item("a"))], "DATASET_INVALID", "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("fault", BAD)
async def test_an_upload_with_a_fault_is_refused_and_changes_nothing(served: Served, fault: str) -> None:
    requests, reason, code = BAD[fault]
    await served.client.upload_dataset("d", items(2))
    before = await datasets(served)

    error = await failure(uploaded(served, *requests))

    assert (reason_of(error), error.code().name) == (reason, code)
    assert await datasets(served) == before
    assert (await served.client.upload_dataset("d", items(3))).dataset.version == 2


async def test_a_fault_names_the_item_by_number_and_id(served: Served) -> None:
    wrong = wire.item_to_proto(Item("q301"))
    wrong.input.json = "{"

    error = await failure(uploaded(served, header(), batch(*items(256)), batch(Item("x"), wrong)))

    assert (error.details() or "").startswith("item 258 ('q301'): input of the item: not a JSON document")


async def test_a_refused_upload_of_a_new_name_leaves_no_dataset(served: Served) -> None:
    await failure(uploaded(served, header("new"), batch(Item("a"), Item("a"))))

    assert await datasets(served) == []


async def test_the_reason_of_a_refusal_arrives_however_much_the_caller_is_still_sending(served: Served) -> None:
    """gRPC loses the status of a call whose caller is writing; so the server lets it finish."""

    def many() -> Iterator[Item]:
        yield Item("a", "x")
        for index in range(3000):
            yield Item("a" if index == 1 else f"i{index}", "x" * 3000)

    for _ in range(20):
        with pytest.raises(CallFailed) as caught:
            await served.client.upload_dataset("d", many())
        assert caught.value.reason == "DATASET_INVALID"


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_caller_who_goes_away_has_uploaded_nothing(served: Served, how: str) -> None:
    """To the server an end of the caller's side and an end of the caller look alike."""
    for number in range(60):
        channel = served.channel()
        call = stubs(channel)[1].UploadDataset()
        await call.write(header(f"d{number % 3}"))
        for index in range(number % 4):
            await call.write(batch(*items(50 * (index + 1))[50 * index :]))
        if number % 5 == 0:
            await asyncio.sleep(0.01)
        if how == "cancel":
            call.cancel()
        await channel.close()
        async with asyncio.timeout(60):
            while served.server._guard.at_work:
                await asyncio.sleep(0.001)

    assert await datasets(served) == []
    assert (await served.client.upload_dataset("d0", items(3))).dataset.version == 1


async def test_a_second_upload_of_the_same_dataset_at_the_same_time_is_refused(served: Served) -> None:
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[Item]:
        for item in items(300):
            yield item
        await go_on.wait()
        yield Item("last")

    first = asyncio.create_task(served.client.upload_dataset("d", slowly()))
    await until(lambda: served.parts.store._uploads)
    with pytest.raises(CallFailed) as caught:
        await served.client.upload_dataset("d", items(3))
    go_on.set()

    assert "another upload" in str(caught.value)
    assert (await first).dataset.items == 301


async def test_a_server_that_is_killed_during_an_upload_has_nothing_of_it(tmp_path: Path) -> None:
    settings = json.dumps({"listen": "127.0.0.1:0", "db": "runs.db"})

    async def endless(killed: Process) -> AsyncIterator[Item]:
        for index in range(1000):
            yield Item(f"i{index}", "x")
        await asyncio.sleep(0.3)
        killed.process.kill()
        killed.process.communicate()
        for index in range(1000, 2000):
            yield Item(f"i{index}", "x")

    with Process(tmp_path, settings) as first:
        async with Client(first.address) as client:
            await client.upload_dataset("d", items(5))
            with pytest.raises(CallFailed) as caught:
                await client.upload_dataset("d", endless(first))
            assert caught.value.code == "UNAVAILABLE"
    with Process(tmp_path, settings) as second:
        async with Client(second.address) as client:
            assert (await client.get_dataset("d")).items == 5
            assert (await client.upload_dataset("d", items(6))).dataset.version == 2
        assert second.end(signal.SIGTERM)[0] == 0


async def test_a_large_upload_leaves_room_for_other_calls(served: Served) -> None:
    uploading = asyncio.create_task(served.client.upload_dataset("d", items(20_000)))
    answered = 0
    while not uploading.done():
        await datasets(served)
        answered += 1

    assert (await uploading).dataset.items == 20_000
    assert answered > 3


# --- reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, 7, 0, -1])
async def test_a_dataset_that_is_not_there_is_not_found(served: Served, version: int | None) -> None:
    if version is not None:
        await served.client.upload_dataset("d", items(1))
    with pytest.raises(CallFailed) as caught:
        await served.client.get_dataset("d", version)

    assert (caught.value.reason, caught.value.code) == ("DATASET_NOT_FOUND", "NOT_FOUND")


async def test_datasets_are_listed_by_name_in_pages(served: Served) -> None:
    names = ["b", "a", "é", "a b", "../etc", "'; drop table item; --"]
    for name in names:
        await served.client.upload_dataset(name, items(1))
    found: list[list[str]] = []
    token = ""
    async with served.channel() as channel:
        while True:
            request = dataset_pb2.ListDatasetsRequest(page_size=4, page_token=token)
            page = await stubs(channel)[1].ListDatasets(request)
            found.append([dataset.name for dataset in page.datasets])
            token = page.next_page_token
            if not token:
                break
        wrong: Any = dataset_pb2.ListDatasetsRequest(page_token="bm9uc2Vuc2U")
        error = await failure(stubs(channel)[1].ListDatasets(wrong))

    assert found == [sorted(names)[:4], sorted(names)[4:]]
    assert reason_of(error) == "PAGE_TOKEN_INVALID"
