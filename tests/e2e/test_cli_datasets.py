"""`evalbus dataset` as a user has it, over a database and at a server."""

from __future__ import annotations

import gzip
import hashlib
import json
import resource
import subprocess
from pathlib import Path

import pytest

from .command_line import Desk, command, environment, serving

ROWS = "".join(json.dumps({"id": f"i{n}", "question": f"{n}+{n}", "answer": str(2 * n)}) + "\n" for n in range(5))
MAP = ("--map", "input=question", "--map", "expected=answer")
CASES = Path(__file__).parents[3] / "shared" / "cases" / "files"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path, items=2)
    made.write("rows.jsonl", ROWS)
    made.write("asked.jsonl", '{"question": "1+1"}\n')
    return made


def piped(desk: Desk, text: str | bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    data = text.encode() if isinstance(text, str) else text
    return subprocess.run(
        command(words), cwd=desk.folder, env=environment(None), input=data, capture_output=True, timeout=100
    )


def test_a_version_that_no_number_of_the_database_can_be_never_was(desk: Desk) -> None:
    desk.run("dataset", "import", "d", "asked.jsonl", "--map", "input=question")

    for words in (["show", "d", "--version", "9" * 30], ["diff", "d", "9" * 30], ["restore", "d", "9" * 30]):
        assert f"has no version {'9' * 30}: its latest is 1" in desk.run("dataset", *words).err


@pytest.mark.parametrize("delimiter", ["ab", '"', "\n"])
def test_what_cannot_separate_columns_is_refused(desk: Desk, delimiter: str) -> None:
    desk.write("rows.csv", "input,expected\n1,2\n")

    refused = desk.run("dataset", "import", "d", "rows.csv", "--delimiter", delimiter)

    assert refused.code == 2
    assert f"{delimiter!r} cannot separate columns" in refused.err


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_an_export_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was(desk: Desk, format: str) -> None:
    rows = "".join(
        json.dumps({"id": f"i{n}", "input": hashlib.sha512(b"%d" % n).hexdigest()}) + "\n" for n in range(4_000)
    )
    assert piped(desk, rows, "dataset", "import", "d", "-").returncode == 0
    out = desk.folder / f"out.{format}"
    out.write_text("before")

    done = subprocess.run(
        command(("dataset", "export", "d", "--format", format, "--out", out.name)),
        cwd=desk.folder,
        env=environment(None),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
        capture_output=True,
        timeout=100,
    )

    assert (done.returncode, done.stderr) == (4, f"evalbus: --out {out.name}: File too large\n".encode())
    assert out.read_text() == "before"
    assert not [each for each in desk.folder.iterdir() if each.name.startswith(".out")]


def test_an_export_goes_where_no_file_is(desk: Desk) -> None:
    desk.run("dataset", "import", "d", "asked.jsonl", "--map", "input=question")

    assert desk.run("dataset", "export", "d", "--out", "/dev/null").out == ""
    assert json.loads(desk.run("dataset", "export", "d", "--out", "/dev/stdout").out)["input"] == "1+1"


def test_an_import_tells_what_it_changed(desk: Desk) -> None:
    first = desk.run("dataset", "import", "sums", "rows.jsonl", *MAP, "--json")
    desk.write("rows.jsonl", ROWS.replace('"8"', '"9"').replace('"id": "i0"', '"id": "new"'))
    second = desk.run("dataset", "import", "sums", "rows.jsonl", *MAP, "--json")
    third = desk.run("dataset", "import", "sums", "rows.jsonl", *MAP, "--json")

    keys = ("version", "items", "added", "changed", "removed", "refused")
    told = [[each.document[key] for key in keys] for each in (first, second, third)]
    assert told == [[1, 5, 5, 0, 0, []], [2, 5, 1, 1, 1, []], [2, 5, 0, 0, 0, []]]


def test_a_refused_import_ends_with_2_and_tells_why_on_both_sides(desk: Desk) -> None:
    desk.write("bad.jsonl", ROWS + "{\n")

    ended = desk.run("dataset", "import", "sums", "bad.jsonl", *MAP, "--json")

    assert ended.code == 2
    assert ended.document["version"] is None
    assert [(each["line"], each["kind"]) for each in ended.document["refused"]] == [(6, "not_json")]
    assert json.loads(ended.reason)["error"]["reason"] == "DATASET_INVALID"
    assert "line 6" in json.loads(ended.reason)["error"]["message"]
    assert desk.run("dataset", "list").out == "No datasets.\n"


def test_with_partial_good_rows_go_in_and_bad_ones_are_listed(desk: Desk) -> None:
    desk.write("bad.jsonl", ROWS + "{\n" + ROWS.splitlines()[1] + "\n")

    ended = desk.run("dataset", "import", "sums", "bad.jsonl", *MAP, "--partial", "--json")

    assert ended.code == 0
    assert ended.document["items"] == 5
    assert [(each["line"], each["kind"]) for each in ended.document["refused"]] == [
        (6, "not_json"),
        (7, "duplicate_id"),
    ]


def test_ids_that_come_twice_beyond_what_reading_remembers_are_found_by_their_lines(
    tmp_path: Path, monkeypatch
) -> None:
    import asyncio

    from evalbus_server.dataset.read import ReadOptions, read_file
    from evalbus_server.dataset.refusal import DatasetInvalid, Refusal
    from evalbus_server.runner.datasets import Datasets
    from evalbus_server.store import open_store

    path = tmp_path / "twice.jsonl"
    rows = [{"id": f"i{n}", "input": n} for n in range(1000)] + [{"input": "same"}] * 3 + [{"id": "i7", "input": 7}]
    path.write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    with open_store(tmp_path / "d.db") as store:

        def bring(refused=None):
            options = ReadOptions(remembered=0, refused=refused)
            done = Datasets(store).bring_in("d", read_file(path, options), source="twice.jsonl", refused=refused)
            return asyncio.run(done)

        with pytest.raises(DatasetInvalid, match='line 1005: the id "i7" is already that of line 9'):
            bring()
        assert store.datasets() == []
        refused: list[Refusal] = []
        assert bring(refused.append).dataset.items == 1003
        assert [(each.line, each.kind) for each in refused] == [(1005, "duplicate_id")]
        made = [stored.id for stored in store.items("d", 1, after=999, limit=9)]
        assert made[1:] == [f"{made[0]}-2", f"{made[0]}-3"]


def test_a_packed_file_from_standard_input_is_unpacked(desk: Desk) -> None:
    ended = piped(desk, gzip.compress(ROWS.encode()), "dataset", "import", "sums", "-", *MAP)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.decode().strip() == "sums version 1: 5 items; 5 added"


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_an_export_comes_back_with_the_same_digest_and_bytes(desk: Desk, format: str) -> None:
    desk.run("dataset", "import", "sums", "rows.jsonl", *MAP)
    once, twice = (desk.run("dataset", "export", "sums", "--format", format).out for _ in range(2))
    desk.run("dataset", "export", "sums", "--format", format, "--out", f"out.{format}")
    back = desk.run("dataset", "import", "again", f"out.{format}", "--json")

    assert once == twice
    assert back.document["added"] == 5
    digests = [desk.run("dataset", "show", name, "--json").document["digest"] for name in ("sums", "again")]
    assert digests[0] == digests[1]


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not beside the project")
@pytest.mark.parametrize(
    "name",
    ["di10_null_missing_empty", "di12_big_ints", "di25_list_with_delimiters", "ce05_outputs", "ce04_formula_cells"],
)
def test_what_others_stumbled_over_goes_out_and_comes_back(desk: Desk, name: str) -> None:
    """CE-05, CE-10."""
    options = ("--map", "input=output") if name.startswith("ce") else ()
    ended = desk.run("dataset", "import", "a", str(CASES / f"{name}.jsonl"), *options)
    assert ended.code == 0, ended.err
    for format in ("jsonl", "csv"):
        desk.run("dataset", "export", "a", "--format", format, "--out", f"a.{format}")
        desk.run("dataset", "import", format, f"a.{format}")
    shown = [desk.run("dataset", "show", each, "--json").document["digest"] for each in ("a", "jsonl", "csv")]
    assert len(set(shown)) == 1


def test_the_answers_of_a_run_become_a_dataset(desk: Desk) -> None:
    desk.run("run", "sums.yaml")
    results = desk.run("runs", "results", "latest", "--jsonl").out

    ended = piped(desk, results, "dataset", "import", "answers", "-", "--from", "results", "--json")

    assert json.loads(ended.stdout)["items"] == 2
    item = desk.run("dataset", "show", "answers", "i001", "--json").document
    assert item["output"] == {"content": 2}
    assert item["expected"] == 2


def test_tags_choose_items(desk: Desk) -> None:
    desk.run("dataset", "import", "sums", "rows.jsonl", *MAP, "--tag", "test")
    desk.run("dataset", "add", "sums", "--input", "x", "--tag", "train")

    assert len(desk.run("dataset", "export", "sums", "--tag", "test").out.splitlines()) == 5
    assert len(desk.run("dataset", "export", "sums", "--tag", "train").out.splitlines()) == 1
    assert len(desk.run("dataset", "show", "sums", "--tag", "train", "--json").document["first_items"]) == 1


@pytest.mark.parametrize("at_a_server", [False, True])
def test_the_whole_life_of_a_dataset(desk: Desk, at_a_server: bool) -> None:
    """The same commands, documents and codes over a database and at a server."""
    if not at_a_server:
        whole_life(desk, ())
        return
    with serving(desk) as (_, address):
        whole_life(desk, ("--server", address))


def whole_life(desk: Desk, where: tuple[str, ...]) -> None:
    def dataset(verb: str, *words: str):
        ended = desk.run("dataset", verb, *words, *where, "--json")
        assert ended.code == 0, ended.err
        return ended.document

    assert dataset("create", "d", "--description", "about", "--metadata", '{"a": 1}')["version"] == 0
    assert dataset("import", "d", "rows.jsonl", *MAP)["added"] == 5
    added = dataset("add", "d", "--id", "x", "--input-json", '{"q": 1.50}', "--expected", "y", "--tag", "t")
    assert (added["version"], added["ids"], added["replayed"]) == (2, ["x"], [])
    assert dataset("add", "d", "--id", "x", "--input-json", '{"q": 1.50}', "--expected", "y", "--tag", "t")[
        "replayed"
    ] == ["x"]
    assert dataset("update", "d", "x", "--expected", "z")["changed"] == 1
    assert dataset("show", "d", "x") == {"id": "x", "input": {"q": 1.5}, "expected": "z", "tags": ["t"]}
    assert dataset("show", "d", "x", "--version", "2")["expected"] == "y"
    assert dataset("delete", "d", "i0", "i1")["removed"] == 2
    assert [each["version"] for each in dataset("versions", "d")["versions"]] == [4, 3, 2, 1, 0]
    diff = dataset("diff", "d", "1")
    assert (diff["added"], diff["removed"], diff["changed"]) == (1, 2, 0)
    assert {change["id"]: change["kind"] for change in diff["changes"]} == {
        "i0": "removed",
        "i1": "removed",
        "x": "added",
    }
    assert dataset("diff", "d", "2", "3")["changes"][0]["fields"] == ["expected"]
    lives = dataset("history", "d", "x")["history"]
    assert [(life["version"], life["until"], life["item"]["expected"]) for life in lives] == [
        (3, None, "z"),
        (2, 2, "y"),
    ]
    assert dataset("restore", "d", "1")["version"] == 5
    desk.write("schema.json", '{"type": "string", "maxLength": 4}')
    assert dataset("schema", "d", "--input", "schema.json")["input_schema"]["maxLength"] == 4
    refused = desk.run("dataset", "add", "d", "--input", "too long", *where)
    assert refused.code == 2
    assert "at input: 'too long' is too long" in refused.reason
    desk.write("tight.json", '{"maxLength": 2}')
    tight = desk.run("dataset", "schema", "d", "--input", "tight.json", *where)
    assert tight.code == 2
    assert "item 1: 'i0' at input: '0+0' is too long" in tight.reason
    assert dataset("schema", "d", "--clear")["input_schema"] is None
    assert dataset("scorers", "d") == {"dataset": "d", "scorers": []}
    assert dataset("scorers", "d", "exact_match", "tone")["scorers"] == ["exact_match", "tone"]
    assert dataset("show", "d", "--limit", "0")["scorers"] == ["exact_match", "tone"]
    unsure = desk.run("dataset", "scorers", "d", "exakt", "tone", *where)
    assert (unsure.code, unsure.reason) == (
        0,
        "note: 'exakt' is no builtin, so an experiment that is to use it has to declare it; did you mean exact_match?",
    )
    unnamed = desk.run("dataset", "scorers", "d", "", *where)
    assert (unnamed.code, unnamed.reason) == (
        2,
        "evalbus: '' is no name of a scorer: 1 to 200 characters, none a control character",
    )
    assert dataset("scorers", "d", "--clear")["scorers"] == []
    assert dataset("describe", "d", "--description", "other")["description"] == "other"
    assert dataset("purge", "d", "i2", "--yes")["rows"] >= 1
    assert dataset("show", "d", "i2")["input"] == "[purged]"
    conflict = desk.run("dataset", "add", "d", "--id", "i3", "--input", "other", *where)
    assert conflict.code == 2
    assert "item 1: the id 'i3' is there with other content; update it instead" in conflict.reason
    assert desk.run("dataset", "delete", "d", "nobody", *where).code == 2
    assert desk.run("dataset", "show", "d", "--version", "99", *where).code == 2
    exported = desk.run("dataset", "export", "d", *where).out
    assert [json.loads(line)["id"] for line in exported.splitlines()] == [f"i{n}" for n in range(5)]
    assert dataset("delete", "d", "--dataset", "--yes")["deleted"] is True
    assert dataset("list") == {"datasets": []}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("import", "d", "rows.jsonl", "--map", "question"), "is not FIELD=PATH"),
        (("import", "d", "rows.jsonl", "--map", "inptu=question"), "--map inptu=…: items have no field 'inptu'"),
        (("import", "d", "asked.jsonl"), "no input; there is question: say which with --map input=…"),
        (("import", "d", "asked.jsonl", "--map", "input=nope"), "no input: 'nope' is absent"),
        (
            ("import", "d", "asked.jsonl", "--map", "input=question", "--map", "expected=answer"),
            "--map maps expected to 'answer', but no row has it",
        ),
        (("import", "d", "rows.jsonl", "--map", "input={form: x}"), "form"),
        (("import", "d", "none.jsonl"), "there is no such file"),
        (("import", "", "rows.jsonl"), "the dataset's name '' must not be empty: it has 1 to 200 characters"),
        (("import", "d ", "rows.jsonl"), "the dataset's name 'd ' must not begin or end with white space"),
        (("import", "a\nb", "rows.jsonl"), r"the dataset's name 'a\nb' must not hold control characters"),
        (("create", ""), "the dataset's name '' must not be empty"),
        (("create", "\u3000d"), r"must not begin or end with white space"),
        (("import", "d", "rows.jsonl", "--ids", "none"), "--ids is content or position"),
        (("import", "d", "rows.jsonl", "--encoding", "nope"), "there is no encoding 'nope'"),
        (("add", "d"), "needs --input"),
        (("add", "d", "--input", "a", "--input-json", "1"), "exclude each other"),
        (("add", "d", "--input", "a", "--metadata", "[1]"), "must be a JSON object"),
        (("delete", "d"), "say which items"),
        (("delete", "d", "--dataset"), "nothing brings the dataset back: say --yes"),
        (("purge", "d", "x"), "nothing brings the content back"),
        (("diff", "d", "-1"), ""),
    ],
)
def test_wrong_words_are_refused_in_one_line(desk: Desk, words: tuple[str, ...], said: str) -> None:
    ended = desk.run("dataset", *words)

    assert ended.code == 2
    assert said in ended.reason
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("verb", ["", "import", "show", "export", "add", "update", "delete", "diff", "purge"])
def test_help_fits_a_screen(desk: Desk, verb: str) -> None:
    lines = desk.run("dataset", *verb.split(), "--help").out.splitlines()

    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
