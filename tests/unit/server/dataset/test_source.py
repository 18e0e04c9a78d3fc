"""Bytes become lines: split on LF alone, decoded strictly, unpacked if packed."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from evalbus_server.dataset import source
from evalbus_server.dataset.refusal import FileRefused
from evalbus_server.dataset.source import Line, format_of, lines_of, open_bytes, pieces_of


def refusal(content: bytes, encoding: str | None = None) -> tuple[int, str]:
    with pytest.raises(FileRefused) as in_lines:
        list(lines_of(io.BytesIO(content), encoding))
    with pytest.raises(FileRefused) as in_pieces:
        list(pieces_of(io.BytesIO(content), encoding))
    assert str(in_lines.value) == str(in_pieces.value)
    assert in_lines.value.line == in_pieces.value.line
    return in_lines.value.line, str(in_lines.value)


def test_only_a_line_feed_ends_a_line():
    content = "a\r\nb\u2028c\x0bd\x85e\n\nf".encode()

    assert list(lines_of(io.BytesIO(content))) == [
        Line(1, "a\r"),
        Line(2, "b\u2028c\x0bd\x85e"),
        Line(3, ""),
        Line(4, "f"),
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp1252", "shift_jis", "utf-8", "utf-8-sig"])
def test_named_encodings_are_decoded(encoding, monkeypatch):
    monkeypatch.setattr(source, "PIECE", 5)
    text = "\u00e9\u010a, x\nline two\n" if encoding.startswith("utf") else "plain\nline two\n"
    content = text.encode(encoding)

    assert [line.text for line in lines_of(io.BytesIO(content), encoding)] == text.split("\n")[:2]
    assert "".join(pieces_of(io.BytesIO(content), encoding)) == text


def test_a_byte_that_does_not_fit_is_named_with_line_and_offset(monkeypatch):
    monkeypatch.setattr(source, "PIECE", 4)

    assert refusal(b"\xef\xbb\xbfab\ncd\xe9f\n") == (
        2,
        "not UTF-8: byte 0xe9 at offset 8; say which with encoding: …, such as cp1252",
    )
    assert refusal(b"ab\nc\xe2\x82") == (
        2,
        "not UTF-8: byte 0xe2 at offset 4; say which with encoding: …, such as cp1252",
    )
    assert refusal(b"ab\nc\xe9", "ascii") == (2, "not ascii: byte 0xe9 at offset 4; it must be another encoding")


def test_an_encoding_that_is_none_is_refused():
    line = "there is no encoding 'klingon'; try utf-8, cp1252 or utf-16"
    assert refusal(b"a", "klingon") == (0, line)
    assert refusal(b"a", "base64") == (0, line.replace("klingon", "base64"))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(source, "LONGEST_LINE", 1 << 20)
    with pytest.raises(FileRefused, match="a line of more than 1 MiB"):
        list(lines_of(io.BytesIO(b"x" * (1 << 21))))
    with pytest.raises(FileRefused, match="a line of more than 1 million characters"):
        list(lines_of(io.BytesIO(("x" * (1 << 21)).encode("utf-16")), "utf-16"))


def test_a_packed_file_is_unpacked_and_a_broken_one_refused(tmp_path):
    path = tmp_path / "items.jsonl.gz"
    packed = gzip.compress(b"one\ntwo\n" * 1000)
    path.write_bytes(packed)
    with open_bytes(path) as file:
        assert len(list(lines_of(file))) == 2000

    path.write_bytes(packed[:-20])
    with open_bytes(path) as file, pytest.raises(FileRefused, match="the packed file is broken"):
        list(lines_of(file))


@pytest.mark.parametrize(
    ("start", "what"),
    [(b"PK\x03\x04", "ZIP or Excel"), (b"PAR1", "Parquet"), (b"BZh9", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd")],
)
def test_archives_under_another_name_are_refused(tmp_path, start, what):
    path = tmp_path / "items.csv"
    path.write_bytes(start + b"rest")
    with pytest.raises(FileRefused, match=what):
        open_bytes(path)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(FileRefused, match="there is no such file"):
        open_bytes(tmp_path / "none.csv")
    with pytest.raises(FileRefused, match="is a folder"):
        open_bytes(tmp_path)
    with pytest.raises(FileRefused, match="cannot be read"):
        open_bytes(Path("a\0b"))


def test_the_suffix_says_the_format():
    assert format_of(Path("a.JSONL")) == "jsonl"
    assert format_of(Path("a.ndjson")) == "jsonl"
    assert format_of(Path("a.b.csv.gz")) == "csv"
    assert format_of(Path("a.txt"), "tsv") == "tsv"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a.txt", r"the suffix '\.txt' says no format; give format: jsonl, json, csv, tsv, yaml or parquet"),
        ("a", "a name without a suffix says no format; give format: jsonl"),
        ("none.txt", "there is no such file"),
        (".", "is a folder; name the file in it"),
    ],
)
def test_without_a_format_the_first_thing_that_is_wrong_is_said(tmp_path, name, why):
    for made in ("a.txt", "a"):
        (tmp_path / made).write_text("x")

    with pytest.raises(FileRefused, match=why):
        format_of(tmp_path / name)
