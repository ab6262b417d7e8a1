"""Threads that wait go first when they wake, those that do what nobody waits for let others go
first, and what an operator asked of the scheduler stays. On a kernel before 6.12, which has one
slice for all, the slices themselves are not compared.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import subprocess
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import pytest

from gateway import slices
from gateway.shared_loop import SharedLoop, running_loop

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
_Result = TypeVar("_Result")
_SHORT_NS, _LONG_NS = 100_000, 20_000_000


class _Scheduling(NamedTuple):
    policy: int
    nice: int
    slice_ns: int


def _of_this_thread() -> _Scheduling:
    return _of(0)


def _of(thread: int) -> _Scheduling:
    attributes = slices._Attributes()
    size = ctypes.sizeof(attributes)
    call = _SCHED_GETATTR[platform.machine()]
    assert ctypes.CDLL(None).syscall(call, thread, ctypes.byref(attributes), size, 0) == 0
    return _Scheduling(attributes.policy, attributes.nice, attributes.runtime)


def _in_a_thread(work: Callable[[], _Result]) -> _Result:
    """What is changed there is gone with it."""
    found: list[_Result] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def _slices_of(*steps: Callable[[], object]) -> list[int]:
    def work() -> list[int]:
        found = []
        for step in steps:
            step()
            found.append(_of_this_thread().slice_ns)
        return found

    return _in_a_thread(work)


def _knows_slices() -> bool:
    return _in_a_thread(_of_this_thread).slice_ns > 0


def test_who_gives_way_has_a_long_slice_until_it_is_prompt_again() -> None:
    found = _slices_of(slices.be_prompt, slices.give_way, slices.give_way, slices.be_prompt)
    if _knows_slices():
        assert found == [_SHORT_NS, _LONG_NS, _LONG_NS, _SHORT_NS]


def test_what_is_started_unhurried_stays_so_and_its_starter_does_not() -> None:
    def work() -> list[int]:
        slices.be_prompt()
        end = threading.Event()
        with slices.unhurried():
            patient = threading.Thread(target=end.wait)
            patient.start()
            process = subprocess.Popen(["sleep", "60"])
        other = threading.Thread(target=end.wait)
        other.start()
        slices.shorten_all()
        threads = [patient.native_id or 0, process.pid, other.native_id or 0, 0]
        found = [_of(thread).slice_ns for thread in threads]
        end.set()
        process.kill()
        process.wait()
        patient.join()
        other.join()
        return found

    found = _in_a_thread(work)
    if _knows_slices():
        assert found == [_LONG_NS, _LONG_NS, _SHORT_NS, _SHORT_NS]


@pytest.mark.parametrize("policy", [os.SCHED_BATCH, os.SCHED_IDLE])
def test_policy_and_nice_value_of_an_operator_stay(policy: int) -> None:
    def work() -> list[_Scheduling]:
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        os.sched_setscheduler(0, policy, os.sched_param(0))
        found = []
        for change in (slices.give_way, slices.be_prompt):
            change()
            found.append(_of_this_thread())
        return found

    for each in _in_a_thread(work):
        assert (each.policy, each.nice) == (policy, 7)


def test_a_turn_that_gives_way_ends_prompt_whoever_has_it() -> None:
    found: dict[str, int] = {}

    def note(name: str) -> None:
        found[name] = _of_this_thread().slice_ns

    def turn(name: str) -> None:
        running_loop().give_way()
        note(f"{name}, in its turn")

    async def main() -> None:
        loop = running_loop()
        slices.be_prompt()
        ended = asyncio.Event()

        def other() -> None:
            loop.take_turn(turn, "a thread")
            note("a thread, after it")
            loop.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=other)
        thread.start()
        await ended.wait()
        thread.join()
        note("the loop")
        turn("the loop")
        await asyncio.sleep(0)
        note("the loop, in its next turn")

    def run() -> None:
        with asyncio.Runner(loop_factory=SharedLoop) as runner:
            runner.run(main())

    _in_a_thread(run)
    if _knows_slices():
        assert found.pop("the loop, in its turn") == found.pop("a thread, in its turn") == _LONG_NS
        assert set(found.values()) == {_SHORT_NS} and len(found) == 3
