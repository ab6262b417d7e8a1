"""Names are looked up without anybody waiting for a name server that is silent."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from gateway.errors import LinkError
from gateway.tunnel import names

PATIENCE_S = 10.0


def test_names_and_numbers_are_found() -> None:
    async def test() -> None:
        assert (socket.AF_INET, ("127.0.0.1", 80)) in await names.resolve("localhost", 80)
        assert await names.resolve("127.0.0.1", 80) == [(socket.AF_INET, ("127.0.0.1", 80))]
        with pytest.raises(LinkError):
            await names.resolve("nobody.invalid", 80)

    asyncio.run(test())


def test_a_loop_ends_while_a_name_is_still_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, answered = threading.Event(), threading.Event()

    def silent(host: str, port: int, flags: int = 0) -> list[tuple[int, names.Address]]:
        if flags:
            raise OSError("no number")
        assert answers.wait(PATIENCE_S)
        answered.set()
        return []

    monkeypatch.setattr(names, "resolve_now", silent)

    async def test() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await names.resolve("slow.example", 80)

    asyncio.run(test())
    assert not answered.is_set()
    answers.set()
    assert answered.wait(PATIENCE_S)  # and its late answer disturbs nobody
