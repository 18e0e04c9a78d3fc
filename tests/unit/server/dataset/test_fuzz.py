"""Whatever bytes come, reading gives items or says what is wrong, and nothing else."""

from __future__ import annotations

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalbus_server.dataset.exports import HEADERS
from evalbus_server.dataset.foreign import FOREIGN
from evalbus_server.dataset.read import ReadOptions, read_stream
from evalbus_server.dataset.refusal import DatasetInvalid, Refusal

PIECES = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\n",
        b"\r",
        b"\\",
        b"\\u0000",
        b"\\ud800",
        b"null",
        b"1e5",
        b"-",
        b"\x00",
    ]
    + [
        b"input",
        b'"input"',
        b'{"input":1}',
        b'{"id":"a","input":"x"}\n',
        b"\xff",
        b"\xef\xbb\xbf",
        b"'",
        b"=",
        b";",
        b"\t",
    ]
    + [
        b'"messages":[{"role":"user","content":"x"}]',
        b'"vars":{}',
        b"vars:\n  - a: ",
        b"- ",
        b"&a ",
        b"*a",
        b"!!python/object ",
    ]
    + [header.encode() + b"\n" for header in sorted(HEADERS)]
)
BYTES = st.lists(PIECES, max_size=30).map(b"".join) | st.binary(max_size=60)
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def survives(data: bytes, format, **options) -> None:
    for refused in (None, list[Refusal]().append):
        try:
            for batch in read_stream(io.BytesIO(data), format, ReadOptions(refused=refused, **options), name="fuzz"):
                assert len(batch) == len(batch.lines)
        except DatasetInvalid as error:
            assert error.refusals
            assert "\n" not in str(error)


@pytest.mark.parametrize("format", ["jsonl", "json", "csv", "tsv", "yaml"])
@quick
@given(data=BYTES)
def test_any_bytes_in_any_format(format, data):
    survives(data, format)


@quick
@given(data=BYTES, path=st.sampled_from([".", "a", "[0]", "a.b[1]", "..", "input"]))
def test_any_bytes_with_any_path(data, path):
    survives(data, "json", records=path)


@pytest.mark.parametrize("foreign", FOREIGN)
@quick
@given(data=BYTES)
def test_any_bytes_in_any_form_of_others(foreign, data):
    survives(data, "jsonl", foreign=foreign)
    survives(data, "csv", foreign=foreign)


@quick
@given(first=BYTES, second=BYTES)
def test_any_two_files_joined(tmp_path_factory, first, second):
    path = tmp_path_factory.mktemp("fuzz") / "second.jsonl"
    path.write_bytes(second)
    survives(first, "jsonl", join=path)
