"""The bell wakes who waits, and carries no news that could be lost."""

from __future__ import annotations

import asyncio

from evalbus_server.watch.bell import Bell


async def woken(ring: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await ring.wait()
    except TimeoutError:
        return False
    return True


async def test_a_ring_wakes_everybody_who_waits_for_that_run() -> None:
    bell = Bell()
    rings = [bell.next_ring("r1") for _ in range(3)]

    bell.ring("r1")

    assert all([await woken(ring) for ring in rings])


async def test_a_ring_wakes_nobody_who_waits_for_another_run() -> None:
    bell = Bell()
    ring = bell.next_ring("r1")

    bell.ring("r2")

    assert not await woken(ring)


async def test_a_ring_taken_before_reading_is_set_by_a_commit_during_the_reading() -> None:
    bell = Bell()
    ring = bell.next_ring("r1")
    bell.ring("r1")  # the commit
    assert await woken(ring)

    assert not await woken(bell.next_ring("r1"))


async def test_a_run_that_nobody_watches_leaves_nothing_behind() -> None:
    bell = Bell()
    bell.next_ring("r1")
    bell.next_loud("r2")
    for number in range(1000):
        bell.ring(f"r{number}")

    assert (bell._rings, dict(bell._loud)) == ({}, {})


async def test_a_soft_ring_wakes_nobody_who_waits_for_a_loud_one() -> None:
    bell = Bell()
    ring, loud = bell.next_ring("r1"), bell.next_loud("r1")

    bell.ring_softly("r1")

    assert await woken(ring)
    assert not await woken(loud)
    bell.ring("r1")
    assert await woken(loud)


async def test_silence_wakes_everybody_now_and_later() -> None:
    bell = Bell()
    before = bell.next_ring("r1")

    bell.silence()

    assert await woken(before)
    assert await woken(bell.next_ring("r2"))
