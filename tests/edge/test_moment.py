"""What is said a moment later: together, once, and not later than promised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edge_broker.moment import Moment

AFTER_S = 0.05


class _Said:
    def __init__(self) -> None:
        self.moment = Moment(AFTER_S, self._say)
        self.times_s: list[float] = []
        self._began_s = asyncio.get_running_loop().time()

    def _say(self) -> None:
        self.times_s.append(asyncio.get_running_loop().time() - self._began_s)

    async def wait(self) -> float:
        """When it was said, which it was once."""
        while not self.times_s:
            await asyncio.sleep(0.001)
        await asyncio.sleep(AFTER_S)
        (at_s,) = self.times_s
        self.times_s.clear()
        return at_s


def _run(scenario: Callable[[_Said], object]) -> float:
    async def main() -> float:
        said = _Said()
        scenario(said)
        return await asyncio.wait_for(said.wait(), 10.0)

    return asyncio.run(main())


def test_what_is_asked_for_in_a_moment_is_said_at_its_end() -> None:
    def scenario(said: _Said) -> None:
        for _ in range(3):
            said.moment.ask()

    assert _run(scenario) >= AFTER_S


def test_what_has_waited_while_it_was_held_is_said_at_once() -> None:
    def scenario(said: _Said) -> None:
        said.moment.ask()
        said.moment.hold()
        said.moment.ask()
        assert not said.times_s
        said.moment.let_go(0.9 * AFTER_S)
        assert len(said.times_s) == 1

    _run(scenario)


def test_what_has_hardly_waited_waits_for_the_rest() -> None:
    def scenario(said: _Said) -> None:
        said.moment.hold()
        said.moment.ask()
        said.moment.let_go(0.1 * AFTER_S)
        assert not said.times_s

    assert _run(scenario) >= 0.8 * AFTER_S


def test_nothing_is_said_that_was_not_asked_for_or_is_over() -> None:
    async def main() -> None:
        said = _Said()
        said.moment.hold()
        said.moment.let_go(AFTER_S)
        said.moment.ask()
        said.moment.close()
        await asyncio.sleep(2 * AFTER_S)
        assert not said.times_s

    asyncio.run(main())
