"""The loop whose turns other threads take: they are the loop meanwhile, and what they close has no
news any more.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from collections.abc import Callable

import pytest

from gateway import shared_loop
from gateway.shared_loop import SharedLoop, _Baton, _nothing, _Selector, running_loop
from tests.tunnel.parts import run


class _LateBaton(_Baton):
    """Others have their turn just before it is taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = bool

    def take(self) -> None:
        self.meanwhile()
        super().take()


def test_what_was_closed_while_the_loop_looked_has_no_news() -> None:
    """Else the loop would end by touching it."""
    baton = _LateBaton()
    baton.take()
    near, far = socket.socketpair()
    other, peer = socket.socketpair()
    with _Selector(baton, _nothing, _nothing, _nothing) as selector, near, far, other, peer:
        for each in (near, other):
            selector.register(each, selectors.EVENT_READ)
        for each in (far, peer):
            each.send(b"x")
        assert {key.fileobj for key, _ in selector.select(0)} == {near, other}

        def close() -> None:
            selector.unregister(near)
            near.close()

        baton.meanwhile = close
        assert [key.fileobj for key, _ in selector.select(0)] == [other]
        # What is watched for something else now is found by the next look.
        baton.meanwhile = lambda: selector.modify(
            other, selectors.EVENT_READ | selectors.EVENT_WRITE
        )
        assert selector.select(0) == []
        baton.meanwhile = bool
        ((key, events),) = selector.select(0)
        assert (key.fileobj, events) == (other, selectors.EVENT_READ | selectors.EVENT_WRITE)


def test_a_thread_closes_what_the_loop_waits_to_write() -> None:
    """As the reader of express links does when a connection with a queue breaks."""

    async def scenario() -> None:
        loop = running_loop()
        for _ in range(200):
            near, far = socket.socketpair()
            near.setblocking(False)
            closed = asyncio.Event()
            loop.add_reader(near, near.recv, 1)

            def close(near: socket.socket, closed: asyncio.Event) -> None:
                loop.remove_reader(near)
                near.close()
                closed.set()

            def news_and_close(
                near: socket.socket = near,
                far: socket.socket = far,
                closed: asyncio.Event = closed,
            ) -> None:
                with loop.turn:
                    far.send(b"x")
                    close(near, closed)

            thread = threading.Thread(target=news_and_close)
            thread.start()
            await closed.wait()
            with loop.turns_left_to_others():
                thread.join()
            far.close()

    run(scenario())


def test_a_turn_is_the_loop() -> None:
    async def scenario() -> None:
        loop = running_loop()
        said: asyncio.Future[str] = loop.create_future()
        problems: list[str] = []
        loop.set_exception_handler(lambda _, context: problems.append(context["message"]))

        def turn() -> None:
            assert asyncio.get_running_loop() is loop
            loop.call_later(0.001, said.set_result, "scheduled in a turn")

        def act(loop: SharedLoop) -> None:
            loop.take_turn(turn)
            loop.take_turn(lambda: 1 / 0)

        thread = threading.Thread(target=act, args=(loop,), name="guest")
        thread.start()
        async with asyncio.timeout(5.0):
            assert await said == "scheduled in a turn"
        with loop.turns_left_to_others():
            thread.join()
        assert len(problems) == 1
        assert "guest" in problems[0]

    run(scenario())


def test_turns_begin_with_the_same_whoever_has_them() -> None:
    """The loop itself, a foreign thread, and others while the loop waits for them; what it does
    belongs to the turn it opens."""

    async def scenario() -> None:
        loop = running_loop()
        problems: list[str] = []
        loop.set_exception_handler(lambda _, context: problems.append(context["message"]))
        scheduled: list[int] = []
        begun = seen = 0

        def begin() -> None:
            nonlocal begun
            assert asyncio.get_running_loop() is loop
            begun += 1
            if begun % 3 == 0:
                loop.call_soon(scheduled.append, begun)
            if begun == 50:
                raise ValueError

        def look() -> None:
            nonlocal seen
            if begun <= seen:
                problems.append("nothing before it")
            seen = begun

        def act() -> None:
            for _ in range(100):
                loop.take_turn(look)

        loop.begin_turns_with(begin)
        thread = threading.Thread(target=act, name="guest")
        thread.start()
        for _ in range(100):
            await asyncio.sleep(0.0001)
            look()
        with loop.turns_left_to_others():
            thread.join()
        assert begun > 200
        await asyncio.sleep(0)
        assert scheduled == [number for number in range(1, begun) if number % 3 == 0]
        assert len(problems) == 1
        assert "the beginning of a turn failed" in problems[0]

    run(scenario())


def test_what_has_leisure_follows_the_turn_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has just dealt with a sample, so what is done next is in nobody's way."""
    monkeypatch.setattr(shared_loop, "_LEISURE_S", 60.0)

    async def scenario() -> None:
        loop = running_loop()
        order: list[int | str] = []

        async def do_at_leisure(number: int, after_s: float) -> None:
            await loop.at_leisure(after_s)
            order.append(number)

        tasks = [
            loop.create_task(do_at_leisure(number, after_s))
            for number, after_s in enumerate([0.0, 60.0, 0.001])
        ]
        await asyncio.sleep(0.01)
        assert not order, "nothing before a thread had its turn"
        thread = threading.Thread(target=loop.take_turn, args=(order.append, "turn"))
        thread.start()
        async with asyncio.timeout(5.0):
            await asyncio.gather(tasks[0], tasks[2])
        assert order == ["turn", 0, 2], "not what is due later"
        tasks[1].cancel()
        with loop.turns_left_to_others():
            thread.join()

    run(scenario())


def test_what_has_leisure_is_done_although_no_thread_has_a_turn() -> None:
    async def scenario() -> None:
        began_s = time.monotonic()
        async with asyncio.timeout(5.0):
            await running_loop().at_leisure(0.02)
        assert time.monotonic() - began_s >= 0.02

    run(scenario())
