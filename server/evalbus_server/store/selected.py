"""Which items a run asks, and in which order, where that is not just the first ones of its dataset."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import TypeAlias

from evalbus_server.store.connection import Connection

Positions: TypeAlias = Sequence[int]

PART = 4_096
"""Places that one row of the list has."""


def store(connection: Connection, run: int, positions: Positions) -> None:
    """Store the list of a run in the open transaction."""
    rows = [
        (run, part, _little(array("I", positions[part * PART : (part + 1) * PART])).tobytes())
        for part in range(-(-len(positions) // PART))
    ]
    connection.execute_many("INSERT INTO chosen (run, part, positions) VALUES (?, ?, ?)", rows)


def positions(connection: Connection, run: int, place: int, limit: int) -> list[int]:
    """The positions at some places of a run's list, from *place* on: at most *limit*, and fewer where a part ends."""
    part, first = divmod(place, PART)
    found = connection.row("SELECT positions FROM chosen WHERE run = ? AND part = ?", (run, part))
    if found is None:
        return []
    stored = array("I")
    stored.frombytes(found[0][4 * first : 4 * (first + limit)])
    return _little(stored).tolist()


def _little(numbers: array[int]) -> array[int]:
    """The same numbers with the lowest byte first, as they are stored, or back from there."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
