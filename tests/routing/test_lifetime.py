"""What a process waits for may never come: a stop ends the wait, and a failure is told."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import DdswanError, LinkError
from gateway.lifetime import Lifetime, run_until_signalled


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_a_part_that_fails_during_the_wait_is_told() -> None:
    lifetime = Lifetime()

    async def life() -> None:
        asyncio.get_running_loop().call_soon(lifetime.fail, LinkError("the listener broke"))
        if await lifetime.wait_or_stop(for_ever()):
            await lifetime.until_stop_or_failure()

    with pytest.raises(LinkError, match="the listener broke"):
        asyncio.run(run_until_signalled(life, lifetime))


def test_a_task_that_ends_during_the_wait_is_told() -> None:
    async def life() -> None:
        lifetime = Lifetime()
        lifetime.spawn("part", asyncio.sleep(0))
        await lifetime.wait_or_stop(for_ever())

    with pytest.raises(DdswanError, match="part ended unexpectedly"):
        asyncio.run(life())


def test_a_stop_ends_the_wait_and_is_no_failure() -> None:
    lifetime = Lifetime()

    async def life() -> None:
        asyncio.get_running_loop().call_soon(lifetime.stop)
        assert not await lifetime.wait_or_stop(for_ever())

    assert asyncio.run(run_until_signalled(life, lifetime)) == 0


def test_what_came_in_time_is_taken() -> None:
    async def life() -> None:
        assert await Lifetime().wait_or_stop(asyncio.sleep(0))

    asyncio.run(life())
