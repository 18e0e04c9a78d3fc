"""Page sizes are lowered, and a token serves its own list and filter alone."""

from __future__ import annotations

import base64

import pytest

from evalbus_server.api.pages import Tokens, page_size
from evalbus_server.errors import Invalid, Reason


@pytest.mark.parametrize(("wanted", "size"), [(0, 50), (1, 1), (500, 500), (501, 500), (2**31 - 1, 500)])
def test_a_page_size_has_a_default_and_too_much_is_lowered(wanted: int, size: int) -> None:
    assert page_size(wanted, default=50, most=500) == size


def test_a_negative_page_size_is_refused() -> None:
    with pytest.raises(Invalid) as caught:
        page_size(-1, default=50, most=500)

    assert (caught.value.reason, caught.value.field) == (Reason.REQUEST_INVALID, "page_size")


def test_a_token_gives_back_its_place() -> None:
    tokens = Tokens("results", "r1", [1, 3], "a*")

    assert tokens.place(tokens.after(17, 2), [int, int]) == [17, 2]


def test_no_token_is_the_first_page() -> None:
    assert Tokens("runs").place("", [str]) is None


@pytest.mark.parametrize(
    "token",
    [
        Tokens("runs", "other", "").after("r1"),
        Tokens("datasets").after("r1"),
        Tokens("runs", "mine", "").after(1),
        Tokens("runs", "mine", "").after("r1", "r2"),
        Tokens("runs", "mine", "").after("r1")[:-3],
        base64.urlsafe_b64encode(b"12345678" + b"[" * 100_000).decode(),
        "é",
        "\ud800",
        "====",
        "A",
    ],
)
def test_a_token_of_another_list_or_filter_is_refused(token: str) -> None:
    with pytest.raises(Invalid) as caught:
        Tokens("runs", "mine", "").place(token, [str])

    assert caught.value.reason is Reason.PAGE_TOKEN_INVALID
