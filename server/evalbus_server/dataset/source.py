"""Bytes of a dataset file as text: its encoding, its lines, and which byte is wrong in which of them."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from evalbus_server.dataset.refusal import FileRefused

Format = Literal["jsonl", "json", "csv", "tsv", "yaml", "parquet"]

LONGEST_LINE = 16 << 20
"""A longer line is no row; it is refused before it fills the memory."""
PIECE = 1 << 18

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".parquet": "parquet",
}
_ARCHIVES = {
    b"PK\x03\x04": "looks like a ZIP or Excel file; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "looks like an old Excel file; save the sheet as CSV",
    b"PAR1": "looks like a Parquet file; say format: parquet",
    b"\x28\xb5\x2f\xfd": "is packed with zstd; unpack it first",
    b"BZh": "is packed with bzip2; unpack it first",
    b"\xfd7zXZ": "is packed with xz; unpack it first",
}
_WIDE_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Line(NamedTuple):
    """A physical line without its LF."""

    number: int
    text: str


def format_of(path: Path, given: Format | None = None) -> Format:
    """The format that was given, else the one of the file's suffix (before `.gz`).

    Raises:
        FileRefused: neither says it, or there is no file.
    """
    if given is not None:
        return given
    inner = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    found = _SUFFIXES.get(inner.suffix.lower())
    if found is None:
        with open_bytes(path):  # that there is no file, or that it is a folder, is the better advice
            what = f"the suffix {inner.suffix!r}" if inner.suffix else "a name without a suffix"
            raise FileRefused(
                0, "unknown_format", f"{what} says no format; give format: jsonl, json, csv, tsv, yaml or parquet"
            )
    return found


def open_bytes(path: Path, format: Format = "jsonl") -> BinaryIO:
    """The bytes of a file in a format, unpacked if it is gzipped.

    Raises:
        FileRefused: it cannot be read, or is an archive under another name.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise FileRefused(0, "no_file", "there is no such file") from None
    except IsADirectoryError:
        raise FileRefused(0, "no_file", "is a folder; name the file in it") from None
    except (OSError, ValueError) as error:
        raise FileRefused(0, "no_file", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        start = file.peek(8)
        return file if format == "parquet" else unpacked(file, start)
    except BaseException:
        file.close()
        raise


def unpacked(file: BinaryIO, start: bytes) -> BinaryIO:
    """A file that begins so, unpacked if it is gzipped.

    Raises:
        FileRefused: it is an archive under another name.
    """
    for mark, what in _ARCHIVES.items():
        if start.startswith(mark):
            raise FileRefused(0, "archive", what)
    if start.startswith(b"\x1f\x8b"):
        return io.BufferedReader(_Gunzipped(file))
    return file


class _Gunzipped(gzip.GzipFile):
    """A gzipped file that closes the file below it too."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._below = file

    def close(self) -> None:
        super().close()
        self._below.close()


def lines_of(file: BinaryIO, encoding: str | None = None) -> Iterator[Line]:
    """The lines of a file, split on LF alone and decoded strictly; a byte-order mark at the start is left out.

    Raises:
        FileRefused: bytes do not fit the encoding (UTF-8 unless another is named), a line has no end, or a packed
            file is broken.
    """
    name = _encoding_name(encoding)
    if name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        yield from _wide_lines(pieces_of(file, encoding))
        return
    number = offset = 0
    while True:
        content = _read_line(file, number + 1)
        if not content:
            return
        number += 1
        if number == 1:
            _refuse_wide(content, encoding)
            if name == "utf-8" and content.startswith(codecs.BOM_UTF8):
                content, offset = content[3:], 3
        try:
            text = content.decode(name)
        except UnicodeDecodeError as error:
            raise _undecodable(number, error.object[error.start], offset + error.start, encoding) from None
        offset += len(content)
        yield Line(number, text[:-1] if text.endswith("\n") else text)


def _read_line(file: BinaryIO, number: int) -> bytes:
    content = _guarded(partial(file.readline, LONGEST_LINE + 1), number)
    if len(content) > LONGEST_LINE:
        raise FileRefused(number, "too_long", f"a line of more than {LONGEST_LINE >> 20} MiB")
    return content


def _guarded(read: Callable[[], bytes], line: int) -> bytes:
    try:
        return read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileRefused(line, "broken_archive", f"the packed file is broken: {error}") from None
    except OSError as error:
        raise FileRefused(line, "no_file", f"cannot be read: {error.strerror or error}") from None


def _refuse_wide(content: bytes, encoding: str | None) -> None:
    wide = _WIDE_MARKS.get(content[:2])
    if wide is not None and encoding is None:
        raise FileRefused(
            1, "encoding", f"not UTF-8: byte 0x{content[0]:02x} at offset 0; it looks like {wide}, say encoding: utf-16"
        )


def _undecodable(line: int, byte: int, offset: int, encoding: str | None) -> FileRefused:
    advice = "say which with encoding: …, such as cp1252" if encoding is None else "it must be another encoding"
    name = "UTF-8" if encoding is None else encoding
    return FileRefused(line, "encoding", f"not {name}: byte 0x{byte:02x} at offset {offset}; {advice}")


def _encoding_name(encoding: str | None) -> str:
    if encoding is None:
        return "utf-8"
    try:
        with contextlib.suppress(UnicodeError):
            b" ".decode(encoding)  # Finds out whether it is one of text.
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise FileRefused(0, "encoding", f"there is no encoding {encoding!r}; try utf-8, cp1252 or utf-16") from None
    return "utf-8" if name == "utf-8-sig" else name


def pieces_of(file: BinaryIO, encoding: str | None = None) -> Iterator[str]:
    """The text of a file in pieces of any size, decoded strictly; a byte-order mark at the start is left out.

    Raises:
        FileRefused: bytes do not fit the encoding (UTF-8 unless another is named), or a packed file is broken.
    """
    name = _encoding_name(encoding)
    decode = codecs.getincrementaldecoder(name)().decode
    line, offset, first, ended = 1, 0, True, False
    while not ended:
        content = _guarded(partial(file.read, PIECE), line)
        ended = not content
        if first:
            _refuse_wide(content, encoding)
        try:
            text = decode(content, final=ended)
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            at = offset + len(content) - len(error.object) + error.start
            line += before.decode(name, "ignore").count("\n")
            raise _undecodable(line, error.object[error.start], at, encoding) from None
        if text:
            yield text.removeprefix("\ufeff") if first else text
            first = False
        offset += len(content)
        line += text.count("\n")


def _wide_lines(pieces: Iterator[str]) -> Iterator[Line]:
    """Lines of an encoding in which a LF is more than one byte."""
    rest, number = "", 0
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        for text in whole:
            number += 1
            yield Line(number, text)
        if len(rest) > LONGEST_LINE:
            raise FileRefused(number + 1, "too_long", f"a line of more than {LONGEST_LINE >> 20} million characters")
    if rest:
        yield Line(number + 1, rest)
