"""What other systems make of the same inputs (`tests/data/vectors/datasets.jsonl`): the same here, or why not.

Version bumps are in `tests/unit/server/store/test_edits.py`, faults of schemas in `test_schema.py`.
"""

from __future__ import annotations

import io
import json
from array import array
from pathlib import Path
from typing import Any

import pytest

from evalbus import Item, Value
from evalbus_server.dataset.choices import ChoiceShuffler
from evalbus_server.dataset.read import ReadOptions, read_stream
from evalbus_server.dataset.refusal import DatasetInvalid
from evalbus_server.dataset.select import Selector, shuffle
from evalbus_server.dataset.source import Format

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "data" / "vectors" / "datasets.jsonl").read_text().splitlines()
]

DIFFERS = {
    "empty input raises": "refused here too, with the line",
    "blank line": "a blank line is no row (DI-16)",
    "unmapped fields dropped": "what is not mapped becomes metadata (I3)",
    "no header": "the header is the file's first line; columns are mapped by name",
    "blank and empty rows skipped": "a row of empty cells has no input, which is refused (I3)",
    "BOM tolerated (utf-8-sig)": "the vector abbreviates its text",
    "chat input": "expects an object of that system",
    "malformed": "refused here too, with the line",
}


def of(function: str) -> list[Any]:
    return [
        pytest.param(each, id=each["note"] or str(n)) for n, each in enumerate(VECTORS) if each["function"] == function
    ]


def read(text: str, format: Format, **options: Any) -> list[tuple[str, Any]]:
    batches = read_stream(
        io.BytesIO(text.encode()), format, ReadOptions(foreign="inspect_ai", **options), name="vector"
    )
    items = [item for batch in batches for item in batch]
    return [(item.input.text, item.expected.data if item.expected else "") for item in items]


@pytest.mark.parametrize("vector", of("dataset.csv") + of("dataset.json"))
def test_rows_are_read_as_that_system_reads_them_or_we_say_why_not(vector) -> None:
    given, expected, note = vector["input"], vector["expected"], vector["note"]
    format: Format = {"jsonl": "jsonl", "json": "json"}.get(given.get("ext", ""), "csv")  # type: ignore[assignment]
    if note in DIFFERS:
        return
    options = {"delimiter": given["delimiter"]} if "delimiter" in given else {}

    assert read(given["text"], format, **options) == [(each["input"], each["target"]) for each in expected]


def test_where_we_differ_it_is_told_what_we_do() -> None:
    assert read("\ufeffinput,target\nq,a\n", "csv") == [("q", "a")]
    assert read('{"input":"q"}\n\n{"input":"r"}\n', "jsonl") == [("q", ""), ("r", "")]
    assert read('{"input":[{"role":"user","content":"hi"}]}\n', "jsonl") == [("hi", "")]
    for text, line in (("input,target\n,a1\n", 2), ("input,target\n\nq1,a1\n,\n", 4)):
        with pytest.raises(DatasetInvalid, match=f"line {line}: no input"):
            read(text, "csv")
    with pytest.raises(DatasetInvalid, match="line 1: not JSON"):
        read('{"input":"q"\n', "jsonl")


@pytest.mark.parametrize("vector", of("e2e.sample_ids"))
def test_ids_that_come_twice_are_refused_and_missing_ones_are_made(vector) -> None:
    rows = "".join(json.dumps({"id": id, "input": f"q{n}"}) + "\n" for n, id in enumerate(vector["input"]["ids"]))
    options = ReadOptions(ids="position")
    batches = read_stream(io.BytesIO(rows.encode()), "jsonl", options, name="vector")

    if "raises" in vector["expected"]:
        with pytest.raises(DatasetInvalid, match="is already that of line 1"):
            list(batches)
    else:
        assert sorted(item.id for batch in batches for item in batch) == sorted(map(str, vector["expected"]["ids"]))


@pytest.mark.parametrize("vector", of("slice_dataset(sample_id)"))
def test_items_are_selected_by_their_ids_as_they_are(vector) -> None:
    """That system pads numbers with zeros first, so that `01` is 1 and `1*` is nothing: not here, an id is its text."""
    wanted = vector["input"]["sample_id"]
    patterns = [wanted] if isinstance(wanted, str) else wanted
    ids = list(map(str, vector["input"]["ids"]))
    selector = Selector(patterns)
    taken = [id for id in ids if selector.takes(id)]

    ours = {"ab*": ["abc", "abd"], "1*": ["1", "10"], "01": [], "zzz": []}
    assert taken == (ids if patterns == [] else ours[patterns[0]])


@pytest.mark.parametrize("vector", of("dataset.shuffle"))
def test_a_seed_gives_the_order_that_it_gives_there(vector) -> None:
    places = array("I", range(vector["input"]["n"]))
    for _ in shuffle(places, vector["input"]["seed"]):
        pass

    assert list(map(str, places)) == vector["expected"]


@pytest.mark.parametrize("vector", of("dataset.shuffle_choices"))
def test_choices_are_put_in_the_order_that_they_have_there(vector) -> None:
    given, expected = vector["input"], vector["expected"]
    found = ChoiceShuffler(given["seed"]).shuffled(Item("i", "x", given["target"], choices=given["choices"]))

    assert (list(found.choices), found.expected) == (expected["choices"], Value(expected["target"]))


@pytest.mark.parametrize("vector", of("datasetLimit") + of("slice_dataset(limit)"))
def test_a_limit_takes_the_first_ones(vector) -> None:
    given = vector["input"]
    ids = list(map(str, given.get("ids", range(given.get("available", 0)))))
    limit = given["limit"]
    if not isinstance(limit, int) or limit < 1:
        return  # no number of items: the experiment file refuses it, where that system ignores or empties
    selector = Selector(limit=limit)

    assert len([id for id in ids if selector.takes(id)]) == min(limit, len(ids))
