"""Errors as statuses: nothing unmapped, nothing too long, nothing that has no form on the wire."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from evalbus_server.api.status import AGAIN_AFTER, STATUS, clean, to_status
from evalbus_server.errors import Invalid, Reason, ServerError, Unfit, Unreachable

CONTRACT = Path(__file__).parents[4] / "proto" / "README.md"


def details_of(error: ServerError) -> status_pb2.Status:
    ((key, value),) = to_status(error).trailing_metadata
    assert key == "grpc-status-details-bin"
    return status_pb2.Status.FromString(value)


def unpacked(error: ServerError, kind: type) -> list:
    found = []
    for detail in details_of(error).details:
        message = kind()
        if detail.Unpack(message):
            found.append(message)
    return found


def test_every_reason_has_a_status() -> None:
    """A reason nobody mapped would reach callers as UNKNOWN."""
    assert set(STATUS) == set(Reason)


def test_the_contract_lists_every_reason_with_its_status() -> None:
    table = CONTRACT.read_text().split("<!-- table: reasons -->")[1].split("\n\n")[0]
    listed = dict(re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+) \| \S", table, re.MULTILINE))

    assert listed == {reason.value: code.name for reason, code in STATUS.items()}


def test_the_reason_travels_as_error_info() -> None:
    (info,) = unpacked(Unreachable(Reason.PLUGIN_UNREACHABLE, "nobody there"), error_details_pb2.ErrorInfo)

    assert (info.reason, info.domain) == ("PLUGIN_UNREACHABLE", "evalbus")


def test_the_field_at_fault_travels_as_bad_request() -> None:
    error = Invalid(Reason.EXPERIMENT_INVALID, "limits.retries: must be 0 or more", field="limits.retries")
    (bad,) = unpacked(error, error_details_pb2.BadRequest)

    (violation,) = bad.field_violations
    assert (violation.field, violation.description) == ("limits.retries", "limits.retries: must be 0 or more")


def test_what_forbids_a_call_travels_as_precondition_failure() -> None:
    (failure,) = unpacked(
        Unfit(Reason.NOTHING_TO_RUN, "no item", field="dataset"), error_details_pb2.PreconditionFailure
    )

    assert [(each.type, each.subject) for each in failure.violations] == [("NOTHING_TO_RUN", "dataset")]


@pytest.mark.parametrize("reason", list(AGAIN_AFTER))
def test_what_passes_by_itself_says_when_to_try_again(reason: Reason) -> None:
    (info,) = unpacked(ServerError(reason, "later"), error_details_pb2.RetryInfo)

    assert info.retry_delay.ToSeconds() >= 1


def test_details_stay_under_4_kib_however_long_the_text_is() -> None:
    """Or gRPC would put another status in their place (PL-02)."""
    error = Invalid(Reason.EXPERIMENT_INVALID, "é" * 100_000, field="dataset.records" + "[7]" * 10_000)
    status = to_status(error)

    assert len(status.trailing_metadata[0][1]) < 4096
    assert len(status.details.encode()) <= 1000
    assert status.details == details_of(error).message


def test_a_lone_surrogate_does_not_turn_an_error_into_another_one() -> None:
    status = to_status(Invalid(Reason.DATASET_INVALID, "the id 'a\ud800b' comes twice", field="\udfff"))

    assert (status.code, status.details) == (grpc.StatusCode.INVALID_ARGUMENT, "the id 'a?b' comes twice")


def test_a_message_is_one_line() -> None:
    assert clean("line one\n  line\ttwo \r\n", 100) == "line one line two"


def test_a_text_is_cut_between_characters() -> None:
    assert clean("日本語" * 10, 20) == "日本語日本…"
