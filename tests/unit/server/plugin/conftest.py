"""What the tests of the exchange share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.clock import Clock, jumping


@pytest.fixture
async def clock() -> AsyncIterator[Clock]:
    """The loop of a test, with a time that jumps."""
    with jumping() as clock:
        yield clock
