"""What an experiment says about its dataset: where the rows stand, how they are read, and which of them are asked."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.e2e.command_line import Desk

ECHO = """
from evalbus import Item, serve, target


@target("echo")
async def echo(item: Item) -> str:
    return item.input.text


serve(echo)
"""
ROWS: list[dict[str, Any]] = [{"id": f"i{n}", "input": f"{n}", "tags": ["even"] * (n % 2 == 0)} for n in range(40)]


@pytest.fixture
def desk(tmp_path) -> Desk:
    made = Desk(tmp_path)
    made.write("echo.py", ECHO)
    return made


def asked(desk: Desk, dataset: dict[str, Any], *words: str) -> list[str]:
    """The items of a run, in the order in which their trials ended: one at a time."""
    document = {
        "name": "chosen",
        "dataset": dataset,
        "target": {"command": ["python", "echo.py"]},
        "scorers": [{"use": "includes", "threshold": 0}],
        "limits": {"concurrency": 1},
    }
    desk.write("chosen.json", json.dumps(document))
    ended = desk.run("run", "chosen.json", "--json", *words)
    assert ended.code in (0, 3), ended.err
    results = desk.run("runs", "results", "latest", "--jsonl").documents
    events = desk.run("runs", "watch", "latest", "--json").documents
    positions = [trial["trial"] for event in events if event["kind"] == "trials" for trial in event["trials"]]
    stored = [
        json.loads(line)["id"]
        for line in desk.run("dataset", "export", ended.document["dataset"]["name"]).out.splitlines()
    ]
    order = [stored[position] for position in positions]
    assert sorted(order, key=stored.index) == [each["item"] for each in results]
    return order


def test_a_shuffle_with_a_limit_is_a_sample_that_can_be_had_again(desk: Desk) -> None:
    whole = [row["id"] for row in ROWS]
    Random(5).shuffle(whole)
    dataset = {"name": "d", "records": ROWS, "shuffle": 5}

    assert asked(desk, dataset) == whole
    assert asked(desk, {**dataset, "limit": 7}) == whole[:7]
    assert asked(desk, {**dataset, "tags": ["even"], "items": ["i1*", "i2*"], "limit": 3}) == _shuffled_even()[:3]


def _shuffled_even() -> list[str]:
    chosen = [row["id"] for row in ROWS if row["tags"] and row["id"][1] in "12"]
    Random(5).shuffle(chosen)
    return chosen


def test_tags_choose_among_items(desk: Desk) -> None:
    assert asked(desk, {"name": "d", "records": ROWS, "tags": ["even"], "limit": 3}) == ["i0", "i2", "i4"]
    ended = desk.run("run", "chosen.json", "--set", "dataset.tags=[even, odd]")
    assert ended.code == 2
    assert "nothing to run: the dataset has no item with these `tags` and `limit`" in ended.reason


def test_rows_stand_inside_a_document_and_are_joined(desk: Desk) -> None:
    desk.write(
        "tasks.json", json.dumps({"data": {"rows": [{"id": "a", "question": "x"}, {"id": "b", "question": "y"}]}})
    )
    desk.write("answers.jsonl", '{"id": "b", "truth": "yes"}\n{"id": "a", "truth": "no"}\n')
    dataset = {
        "path": "tasks.json",
        "records": "data.rows",
        "join": "answers.jsonl",
        "fields": {"input": "question", "expected": "truth"},
    }

    assert asked(desk, dataset) == ["a", "b"]
    results = desk.run("runs", "results", "latest", "--jsonl").documents
    assert [(each["input"], each["expected"]) for each in results] == [("x", "no"), ("y", "yes")]


def test_rows_are_in_the_form_of_another_system(desk: Desk) -> None:
    desk.write("samples.py", 'print(\'[{"id": 1, "input": "x", "target": "B", "choices": ["p", "q"]}]\')')
    dataset = {
        "name": "s",
        "command": ["python", "samples.py"],
        "format": "json",
        "from": "inspect_ai",
        "shuffle_choices": 3,
    }

    assert asked(desk, dataset) == ["1"]
    (item,) = [json.loads(line) for line in desk.run("dataset", "export", "s").out.splitlines()]
    assert item["choices"][ord(item["expected"]) - ord("A")] == "q"


def test_a_shuffled_run_that_was_broken_off_asks_each_item_once(desk: Desk) -> None:
    rows = [{**row, "expected": "x"} for row in ROWS]
    desk.write("items.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    first = ["--set", "dataset.shuffle=9", "--set", "limits.concurrency=1", "--set", "limits.max_errors=1"]
    stopped = desk.run("run", "sums.yaml", "--json", *first)
    assert stopped.document["state"] == "ABORTED"
    assert desk.run("runs", "set", "latest", "limits.max_errors=100%").code == 0
    resumed = desk.run("runs", "resume", "latest", "--json")
    assert resumed.document["state"] == "COMPLETED"
    assert [each["item"] for each in desk.run("runs", "results", "latest", "--jsonl").documents] == [
        row["id"] for row in ROWS
    ]
