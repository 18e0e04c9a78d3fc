"""Files in the forms of other systems, JSON documents with rows somewhere inside, and files that are joined."""

from __future__ import annotations

import io
import json
import tracemalloc

import pytest

from evalbus import Item, Message, Value
from evalbus_server.dataset.lines import LineIndex
from evalbus_server.dataset.read import ReadOptions, read_file, read_stream
from evalbus_server.dataset.refusal import DatasetInvalid, Refusal
from evalbus_server.dataset.source import Format
from evalbus_server.model.dataset_use import FieldSource


def read(text: str, format: Format = "json", **options) -> list[Item]:
    fields = {name: FieldSource.model_validate(path) for name, path in options.pop("fields", {}).items()}
    batches = read_stream(io.BytesIO(text.encode()), format, ReadOptions(fields, **options), name="file")
    return [item for batch in batches for item in batch]


def lines(*documents: object) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


# --- rows inside a document -------------------------------------------------------------------------------------


def test_rows_stand_at_a_path():
    text = json.dumps({"skip": [{"deep": ['a"]}', "\\"]}, 5, None], "data": {"rows": [{"id": "a", "input": "x"}]}})

    assert read(text, records="data.rows") == [Item("a", "x")]
    assert read(json.dumps([[], [{"id": "a", "input": "x"}]]), records="[1]") == [Item("a", "x")]


def test_the_keys_of_an_object_are_ids():
    text = json.dumps({"x1": {"input": "a"}, "x2": {"input": "b", "id": "own"}})

    assert read(text, records=".") == [Item("x1", "a"), Item("own", "b", metadata={"key": "x2"})]


def test_rows_that_are_lists_have_numbers_as_columns():
    text = json.dumps({"test": [["hi", "greet"], ["bye", "part"]]})

    found = read(text, records="test", fields={"input": "0", "expected": "1"})

    assert [(item.input.text, item.expected and item.expected.text) for item in found] == [
        ("hi", "greet"),
        ("bye", "part"),
    ]


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ('{"a": 1}', "b", "the document has no 'b': there is no 'b' in it"),
        ('{"a": 1}', "a", "at 'a' stands '1', neither a list nor an object"),
        ('{"a": [1]}', "a", "'1' where an object or a list should begin"),
        ('{"a": [{"input": 1} {', "a", "not JSON at column 21: '{' where a comma should stand"),
        ('{"a": [{"input": 1},', "a", "the end of the file where an object or a list should begin"),
        ('{"x": "abc', "a", "not JSON at column 7: a text without an end"),
        ('{"x" 1}', "a", "not JSON at column 6: '1' where a colon should stand"),
        ("{}", "a..b", "records: not a path: 'a..b' at character 2"),
        ("[]", ".", "holds no items"),
    ],
)
def test_what_is_wrong_with_a_document_is_told(text, path, said):
    with pytest.raises(DatasetInvalid) as caught:
        read(text, records=path)
    assert said in str(caught.value)


def test_an_id_that_comes_twice_is_seen_also_where_all_rows_are_one_line():
    said = 'line 1: the id "a" is already that of another row of line 1; ids are compared as text'
    with pytest.raises(DatasetInvalid, match=said):
        read('[{"id":"a","input":"x"},{"id":"b","input":"x"},{"id":"a","input":"y"}]')


def test_records_goes_with_json_alone():
    with pytest.raises(DatasetInvalid, match="records is a path in a JSON document, but the format is csv"):
        read("input\nx\n", "csv", records="a")


def test_what_stands_before_the_rows_may_be_large(tmp_path):
    path = tmp_path / "large.json"
    with path.open("w") as file:
        file.write('{"before": [')
        file.write(",".join(['{"x": "' + "y" * 1000 + '"}'] * 20_000))
        file.write('], "rows": [{"id": "a", "input": 1}]}')

    tracemalloc.start()
    found = [item for batch in read_file(path, ReadOptions(records="rows")) for item in batch]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert found == [Item("a", 1)]
    assert peak < 4_000_000


# --- delimiters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_what_separates_columns_is_found(delimiter):
    text = f"id{delimiter}input\na{delimiter}x\n"

    assert read(text, "csv") == [Item("a", "x")]


# --- joining ----------------------------------------------------------------------------------------------------


def joined(tmp_path, first: str, second: str, **options) -> list[Item]:
    (tmp_path / "second.jsonl").write_text(second)
    return read(first, "jsonl", join=tmp_path / "second.jsonl", **options)


def test_rows_of_a_second_file_are_joined_by_id_in_any_order(tmp_path):
    first = lines({"id": "a", "input": "x"}, {"id": "b", "input": "y"}, {"id": "c", "input": "z"})
    second = lines({"id": "c", "truth": 3}, {"id": "a", "truth": 1})

    found = joined(tmp_path, first, second, fields={"expected": "truth"})

    assert [(item.id, item.expected and item.expected.data) for item in found] == [("a", 1), ("b", None), ("c", 3)]


def test_what_cannot_be_joined_is_refused(tmp_path):
    first = lines({"id": "a", "input": "x"}, {"input": "y"})
    second = lines({"id": "a", "input": "other"}, {"id": "a"}, {"id": "z"}, {"truth": 1})

    with pytest.raises(DatasetInvalid) as caught:
        joined(tmp_path, first, second)

    said = str(caught.value)
    assert "line 1: both files have a column 'input', and it differs" in said
    assert "line 2: cannot be joined: it has no 'id'" in said
    assert "no row of the first file has the 'id' 'z'" in said


# --- lines and remembered ids -----------------------------------------------------------------------------------


def test_lines_that_follow_each_other_evenly_are_one_entry():
    index = LineIndex()
    noted = [1, 2, 3, 4, 8, 12, 16, 17, 30, 31]
    for line in noted:
        index.note(line)

    assert [index.line(place) for place in range(len(noted))] == noted
    assert index.size < 5


def test_reading_remembers_as_many_ids_as_it_should():
    text = lines({"id": "a", "input": 1}, {"id": "b", "input": 2}, {"id": "b", "input": 3}, {"input": 4}, {"input": 4})

    (batch,) = read_stream(io.BytesIO(text.encode()), "jsonl", ReadOptions(remembered=1), name="x")

    assert [item.id for item in batch][:3] == ["a", "b", "b"]
    assert batch.lines == [1, 2, 3, 4, 5]
    assert batch.made == set()  # the first content that is remembered counts its copies itself
    assert batch[4].id == f"{batch[3].id}-2"


# --- other systems ----------------------------------------------------------------------------------------------


def test_samples_of_inspect_ai():
    text = json.dumps(
        [
            {
                "id": 1,
                "input": "q",
                "target": ["a", "b"],
                "choices": ["x", "y"],
                "metadata": {"k": 1},
                "files": {"f": "p"},
            },
            {
                "input": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "hi", "source": "input"},
                    {
                        "role": "assistant",
                        "content": "yes?",
                        "tool_calls": [{"id": "1", "function": "f", "arguments": {}}],
                    },
                ],
                "target": "t",
            },
        ]
    )

    first, second = read(text, foreign="inspect_ai")

    assert first == Item("1", "q", ["a", "b"], choices=["x", "y"], metadata={"k": 1, "files": {"f": "p"}})
    assert second.input == Value("hi")
    assert [message.role for message in second.messages] == ["system", "user", "assistant"]
    assert second.messages[2].tool_calls[0].name == "f"


@pytest.mark.parametrize(
    ("choices", "read_as"),
    [("a b c", ["a", "b", "c"]), ("one", ["one"]), ("New York, Paris", ["New York", "Paris"])],
)
def test_choices_of_inspect_ai_in_csv_are_split_as_it_splits_them(choices, read_as):
    (item,) = read(f'input,target,choices\nq,t,"{choices}"\n', "csv", foreign="inspect_ai")

    assert list(item.choices) == read_as


def test_tests_of_promptfoo():
    yaml = """
prompts: ["{{question}}"]
tests:
  - description: capital
    vars: {question: What is the capital of France?}
    assert:
      - {type: latency, threshold: 5}
      - {type: contains, value: Paris}
      - {type: equals, value: Paris!}
  - vars: {language: French, text: Hello {{name}}}
    metadata: {kind: hard}
""".replace("Hello {{name}}", "'Hello {{name}}'")

    first, second = read(yaml, "yaml", foreign="promptfoo")

    assert first.input == Value("What is the capital of France?")
    assert first.expected == Value("Paris!")
    assert first.metadata["description"] == "capital"
    assert len(first.metadata["assert"]) == 3
    assert second.input.data == {"language": "French", "text": "Hello {{name}}"}
    assert second.metadata == {"kind": "hard"}


def test_tests_of_promptfoo_in_csv():
    text = "question,__expected,__description,__metadata:kind\nq1,contains: Paris,capital,hard\nq2,Rome is: it,,\n"

    first, second = read(text, "csv", foreign="promptfoo")

    assert (first.input, first.expected) == (Value("q1"), Value("Paris"))
    assert first.metadata["kind"] == "hard"
    assert second.expected == Value("Rome is: it")


def test_samples_of_openai_evals():
    text = lines(
        {"input": [{"role": "system", "content": "s"}, {"role": "user", "content": "2+2"}], "ideal": ["4", "four"]}
    )

    (item,) = read(text, "jsonl", foreign="openai_evals")

    assert (item.input, item.expected) == (Value("2+2"), Value.of(["4", "four"]))
    assert item.messages == (Message("system", (Value("s"),)), Message("user", (Value("2+2"),)))


def test_items_of_voltagent():
    item = {"name": "refund", "input": "how?", "expected": "so", "extra": {"level": 2}}
    for text in (json.dumps({"name": "qa", "data": [item]}), json.dumps([item])):
        assert read(text, foreign="voltagent") == [Item("refund", "how?", "so", metadata={"level": 2})]


def test_items_of_mastra():
    item = {
        "id": "u1",
        "externalId": "e1",
        "input": {"q": 1},
        "groundTruth": {"a": 2},
        "metadata": {"k": 1},
        "datasetId": "d",
    }
    bare = {"id": "u2", "externalId": None, "input": "x", "groundTruth": None, "metadata": None}

    assert read(json.dumps([item, bare]), foreign="mastra") == [
        Item("e1", {"q": 1}, {"a": 2}, metadata={"k": 1, "mastraId": "u1"}),
        Item("u2", "x"),
    ]


def test_results_of_a_run():
    text = lines(
        {"item": "a", "epoch": 1, "outcome": "PASSED", "input": "q", "expected": "x", "output": "said", "scores": {}},
        {"item": "a", "epoch": 2, "outcome": "ERRORED", "input": "q", "scores": {}},
    )

    first, second = read(text, "jsonl", foreign="results")

    assert (first.id, first.input, first.expected) == ("a", Value("q"), Value("x"))
    assert first.output is not None
    assert first.output.content == Value("said")
    assert (second.id, second.output, second.metadata["outcome"]) == ("a#2", None, "ERRORED")


@pytest.mark.parametrize("foreign", ["inspect_ai", "promptfoo", "openai_evals", "voltagent", "mastra", "results"])
@pytest.mark.parametrize(
    "row", [{"input": [5]}, {"vars": 5}, {"extra": "x", "input": 1}, {"input": [{"content": "x"}]}, {}]
)
def test_a_row_of_another_form_is_refused_and_never_raises(foreign, row):
    refused: list[Refusal] = []
    try:
        found = read(lines(row), "jsonl", foreign=foreign, refused=refused.append)
    except DatasetInvalid as error:
        refused += error.refusals
        found = []
    assert len(found) + len(refused) >= 1
