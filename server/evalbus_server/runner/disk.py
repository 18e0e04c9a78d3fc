"""The disk: nothing is left there of what was overwritten in the database, neither in its log nor where rows had been."""

from __future__ import annotations

import asyncio

from evalbus_server.store import Store

BETWEEN_TRIES = 0.1
"""Seconds between two tries while a reader needs the log."""


async def clear_disk(store: Store, tries: int) -> bool:
    """Let nothing be left of it; False: a reader needs the log, and did so at every one of the *tries*.

    Raises:
        StoreTrouble: the file cannot be written.
    """
    for wiped in store.wipe():
        if wiped:
            await asyncio.sleep(0)
            continue
        tries -= 1
        if tries <= 0:
            return False
        await asyncio.sleep(BETWEEN_TRIES)
    return True
