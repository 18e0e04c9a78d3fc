"""DatasetService over a real socket: items, versions, schemas and purges of a dataset."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from evalbus import Item, wire
from evalbus.client import CallFailed
from evalbus.v1 import dataset_pb2

from .service import Served, failure, items, serving, stubs


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as made:
        await made.client.upload_dataset("d", items(120))
        yield made


async def read(served: Served, version: int | None = None) -> list[str]:
    return [item.id async for item in served.client.items("d", version)]


async def test_items_are_changed_and_every_version_is_read_as_it_was(served: Served) -> None:
    client = served.client
    added = await client.add_items("d", [Item("new", "x"), *items(1)])
    updated = await client.update_items("d", [Item("new", {"a": 1})])
    deleted = await client.delete_items("d", ["i0", "nobody"])
    restored = await client.restore_dataset("d", 2)

    assert [each.dataset.version for each in (added, updated, deleted, restored)] == [2, 3, 4, 5]
    assert (added.replayed, deleted.missing) == ((1,), ("nobody",))
    assert await read(served, 1) == [f"i{n}" for n in range(120)]
    assert await read(served) == await read(served, 2)
    assert [(each.dataset.version, each.cause) async for each in client.dataset_versions("d")] == [
        (5, "restore 2"),
        (4, "delete"),
        (3, "update"),
        (2, "add"),
        (1, "upload"),
    ]
    changes = [change async for change in client.diff_versions("d", 2, 4)]
    assert [(change.before and change.before.id, change.fields) for change in changes] == [
        ("i0", ()),
        ("new", ("input",)),
    ]
    assert [(life.version, life.until, life.item is None) for life in await client.item_history("d", "i0")] == [
        (5, None, False),
        (4, 4, True),
        (1, 3, False),
    ]
    assert await client.get_item("d", "new", 3) == Item("new", {"a": 1})


async def test_pages_stay_with_the_version_of_the_first_one(served: Served) -> None:
    async with served.channel() as channel:
        ask = stubs(channel)[1].ListItems
        first = await ask(dataset_pb2.ListItemsRequest(name="d", page_size=100))
        await served.client.delete_items("d", ["i110"])
        second = await ask(dataset_pb2.ListItemsRequest(name="d", page_size=100, page_token=first.next_page_token))

        assert (len(first.items), len(second.items), second.version, second.next_page_token) == (100, 20, 1, "")
        error = await failure(ask(dataset_pb2.ListItemsRequest(name="d", version=1, page_token=first.next_page_token)))
        assert "page token" in (error.details() or "")


async def test_a_page_of_large_items_is_short(served: Served) -> None:
    await served.client.upload_dataset("large", [Item(str(n), "x" * 600_000) for n in range(3)])
    async with served.channel() as channel:
        page = await stubs(channel)[1].ListItems(dataset_pb2.ListItemsRequest(name="large"))

    assert len(page.items) == 1
    assert page.next_page_token
    assert [item.id async for item in served.client.items("large")] == ["0", "1", "2"]


async def test_a_conflict_lists_index_and_reason(served: Served) -> None:
    await served.client.delete_items("d", ["i5"])
    given = [Item("ok"), Item("i0", "other"), Item("i5", "x")]
    async with served.channel() as channel:
        request = dataset_pb2.AddItemsRequest(name="d", items=map(wire.item_to_proto, given))
        error = await failure(stubs(channel)[1].AddItems(request))

    assert error.code().name == "ALREADY_EXISTS"
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None
    wrong = error_details_pb2.BadRequest()
    assert any(detail.Unpack(wrong) for detail in status.details)
    told = [(each.field, each.description.partition(":")[0]) for each in wrong.field_violations]
    assert told == [("items[1]", "ID_TAKEN"), ("items[2]", "ID_DELETED")]


async def test_schemas_hold_for_uploads_and_changes(served: Served) -> None:
    await served.client.update_dataset("d", input_schema='{"type": "string"}')

    for attempt in (
        served.client.upload_dataset("d", [Item("a", "fits"), Item("b", 5)]),
        served.client.add_items("d", [Item("a", "fits"), Item("b", 5)]),
        served.client.update_items("d", [Item("i0", "fits"), Item("i1", 5)]),
    ):
        with pytest.raises(CallFailed, match=r"item 2: '(b|i1)' at input: 5 is not of type 'string'"):
            await attempt
    with pytest.raises(CallFailed, match="item 1: 'i0' at input: 'text 0' is not of type 'number'; item 2"):
        await served.client.update_dataset("d", input_schema='{"type": "number"}')
    assert (await served.client.dataset_info("d")).input_schema == '{"type": "string"}'
    assert (await served.client.get_dataset("d")).version == 1


async def test_a_dataset_is_made_described_and_deleted(served: Served) -> None:
    made = await served.client.create_dataset("e", description="about", metadata={"a": 1})
    changed = await served.client.update_dataset("e", description="", metadata=None)

    assert (made.dataset.version, made.description, made.metadata_json) == (0, "about", '{"a":1}')
    assert (changed.description, changed.metadata_json) == ("", '{"a":1}')
    with pytest.raises(CallFailed) as caught:
        await served.client.create_dataset("e")
    assert caught.value.reason == "DATASET_EXISTS"
    await served.client.delete_dataset("e")
    assert [dataset.name async for dataset in served.client.datasets()] == ["d"]


async def test_what_is_purged_is_gone_and_may_be_asked_again(served: Served) -> None:
    for _ in range(2):
        purged = await served.client.purge_items("d", ["i3"])
        assert purged.item_versions == 1
    assert (await served.client.get_item("d", "i3")).input.text == "[purged]"
    with pytest.raises(CallFailed) as caught:
        await served.client.purge_items("d", ["nobody"])
    assert caught.value.reason == "ITEM_NOT_FOUND"


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda stub: stub.AddItems(dataset_pb2.AddItemsRequest(name="d")), "INVALID_ARGUMENT"),
        (
            lambda stub: stub.AddItems(dataset_pb2.AddItemsRequest(name="none", items=[wire.item_to_proto(Item("a"))])),
            "NOT_FOUND",
        ),
        (lambda stub: stub.DeleteItems(dataset_pb2.DeleteItemsRequest(name="d", ids=["x"] * 1001)), "INVALID_ARGUMENT"),
        (lambda stub: stub.GetItem(dataset_pb2.GetItemRequest(name="d", id="none")), "NOT_FOUND"),
        (lambda stub: stub.GetItem(dataset_pb2.GetItemRequest(name="d", version=9, id="i0")), "NOT_FOUND"),
        (lambda stub: stub.ListVersions(dataset_pb2.ListVersionsRequest(name="none")), "NOT_FOUND"),
        (lambda stub: stub.GetItemHistory(dataset_pb2.GetItemHistoryRequest(name="d", id="none")), "NOT_FOUND"),
        (lambda stub: stub.RestoreDataset(dataset_pb2.RestoreDatasetRequest(name="d", version=7)), "NOT_FOUND"),
        (lambda stub: stub.DeleteDataset(dataset_pb2.DeleteDatasetRequest(name="none")), "NOT_FOUND"),
        (lambda stub: stub.CreateDataset(dataset_pb2.CreateDatasetRequest(name="")), "INVALID_ARGUMENT"),
        (
            lambda stub: stub.UpdateDataset(
                dataset_pb2.UpdateDatasetRequest(name="d", info=dataset_pb2.DatasetInfoChange(metadata="[]"))
            ),
            "INVALID_ARGUMENT",
        ),
    ],
)
async def test_what_cannot_be_is_refused_with_its_status(served: Served, request_of, code: str) -> None:
    async with served.channel() as channel:
        error = await failure(request_of(stubs(channel)[1]))
    assert error.code().name == code


async def test_streams_of_what_is_not_there_are_refused(served: Served) -> None:
    for stream in (served.client.items("none"), served.client.diff_versions("d", 1, 9)):
        with pytest.raises(CallFailed) as caught:
            _ = [each async for each in stream]
        assert caught.value.reason == "DATASET_NOT_FOUND"


async def test_items_are_listed_and_exported_by_their_tags(served: Served) -> None:
    given = [Item(f"i{n}", "x", tags=["even"] * (n % 2 == 0) + ["third"] * (n % 3 == 0)) for n in range(9_000)]
    await served.client.upload_dataset("tagged", given)
    wanted = [f"i{n}" for n in range(0, 9_000, 6)]

    assert [item.id async for item in served.client.items("tagged", tags=["third", "even"])] == wanted
    assert [item async for item in served.client.items("tagged", tags=["even", "odd"])] == []
    async with served.channel() as channel:
        _, datasets = stubs(channel)
        request = dataset_pb2.ListItemsRequest(name="tagged", tags=["even", "third"], page_size=500)
        found: list[str] = []
        pages = 0
        while pages == 0 or request.page_token:
            page = await datasets.ListItems(request)
            found += [item.id for item in page.items]
            request.page_token = page.next_page_token
            pages += 1
        assert found == wanted
        assert pages < 10
        first = await datasets.ListItems(dataset_pb2.ListItemsRequest(name="tagged", tags=["even"], page_size=1))
        other = dataset_pb2.ListItemsRequest(name="tagged", page_token=first.next_page_token)
        assert "page token" in ((await failure(datasets.ListItems(other))).details() or "")
