"""Settings from signatures: what JSON has a form for, with its type and default."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Literal, Optional, Union

import pytest

from evalbus.adapters._parameters import REQUIRED, Parameter, parameters_of, settings_class, writable


class Colour(enum.Enum):
    RED = "red"


class Client:
    """Nothing that JSON has a form for."""


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, str),
        (Optional[int], int | None),  # noqa: UP045  # libraries write it so
        (Union[str, Client], str),  # noqa: UP007
        (bool | Callable[[str], str], bool),
        (Client, None),
        (type[Client], None),
        (Client | None, None),
        (Literal["a", "b"], Literal["a", "b"]),
        (list[str], list[str]),
        (Sequence[float], list[float]),
        (list[Client], None),
        (list[Colour], list[Colour]),
        (dict[str, float], Any),
        (list, Any),
        (Any, Any),
    ],
)
def test_the_part_of_an_annotation_that_json_can_say(annotation: Any, expected: Any) -> None:
    assert writable(annotation) == expected


def metric(
    model: str | Client,
    client: Client | None = None,
    limit: int = 3,
    colours: list[str] = ["a"],  # noqa: B006  # as others write it
    shape: Client = Client(),  # noqa: B008
    odd=object,
    _private: int = 1,
    *rest: str,
    **more: str,
) -> None:
    """What a library's constructor may look like."""


def test_parameters_that_only_python_can_give_are_left_out() -> None:
    assert parameters_of(metric, without=("limit",)) == (
        Parameter("model", str, REQUIRED),
        Parameter("colours", list[str], ["a"]),
        Parameter("odd", Any, None),
    )


def test_a_settings_class_keeps_defaults_apart() -> None:
    kind = settings_class("Metric", parameters_of(metric))
    one, other = kind(model="m"), kind(model="m")
    assert (one.limit, one.colours) == (3, ["a"])
    assert one.colours is not other.colours
    limit = next(each for each in parameters_of(metric) if each.name == "limit")
    assert (limit.is_given_in(one), limit.is_given_in(kind(model="m", limit=4))) == (False, True)


def test_true_is_not_one() -> None:
    parameter = Parameter("n", Any, 1)
    kind = settings_class("K", [parameter])
    assert parameter.is_given_in(kind(n=True))
