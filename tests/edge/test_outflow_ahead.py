"""Whatever comes in between: of samples that go ahead of the loop and samples that do not, each is
sent once, in the order they came, under the number it is accounted for.
"""

from __future__ import annotations

from collections import deque
from typing import cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_broker.dds.shortcuts import GoneAhead, OutgoingAim
from edge_broker.links import Links
from edge_broker.outflow import Outflow
from edge_broker.source import ReaderSource, Taken
from gateway.model import Profile, Qos, Reliability
from gateway.observe.metrics import BrokerMetrics
from gateway.tunnel.columns import NOTHING, pack
from gateway.tunnel.frames import StreamKey, decode_batch

MOST_TAKEN = 3
LONE = b"one writer's"


class Lan:
    """A reader, and what outward.c does with it: `sent` are the numbers and samples that left."""

    def __init__(self) -> None:
        self.inbox: deque[bytes] = deque()
        self.taken: deque[tuple[list[bytes], int]] = deque()
        self.sent: list[tuple[int, bytes]] = []
        self.is_aimed = False
        self.next = self.end = 0
        self.has_news = False
        """The thread that waits for DDS is woken."""
        self.must_account = False
        self.is_wire_full = False
        self.count = 0

    def arrive(self) -> None:
        self.count += 1
        self.inbox.append(self.count.to_bytes(4, "little"))
        if self.is_aimed and self.next < self.end and len(self.taken) < MOST_TAKEN:
            self._shoot()
        else:
            self.is_aimed = False
            self.has_news = True
            self.must_account |= bool(self.taken)

    def _shoot(self) -> None:
        found = [self.inbox.popleft() for _ in range(min(2, len(self.inbox)))]
        self.has_news = False  # to take is to make DDS forget it
        goes = len(found) == 1 and not self.is_wire_full
        self.taken.append((found, int(goes)))
        if goes:
            self.sent.append((self.next, found[0]))
            self.next += 1
        else:
            self.is_aimed = False
            self.must_account = True


class Aim(OutgoingAim):
    def __init__(self, lan: Lan) -> None:
        self.lan = lan

    def set(  # type: ignore[override]
        self, ways: object, writer: int, stream: bytes, first: int, end: int, *_: object, **__: bool
    ) -> None:
        lan = self.lan
        if not lan.is_aimed and not lan.taken:
            lan.is_aimed, lan.next, lan.end = True, first, end

    def keep(self, end: int, until_s: float) -> bool:
        if self.lan.is_aimed:
            self.lan.end = end
        return self.lan.is_aimed

    def lower(self) -> bool:
        self.lan.is_aimed = False
        return bool(self.lan.taken)

    def gone(self) -> GoneAhead | None:
        return GoneAhead(1, self.lan.taken[0][1]) if self.lan.taken else None


class Source(ReaderSource):
    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self.aim = Aim(lan)
        self._is_accepted = lambda _: True

    def take(self, most: int, *, is_sent: bool = False) -> Taken:
        lan = self.lan
        if lan.taken:
            found = lan.taken.popleft()[0]
            if len(found) > 1:
                found += lan.inbox
                lan.inbox.clear()
        else:
            found = [lan.inbox.popleft() for _ in range(min(most, len(lan.inbox)))]
        if not found:
            return Taken(NOTHING, (), False)
        self._lone_writer = 1 if len(found) == 1 else None
        return Taken(pack(range(len(found)), found), (), len(found) == most)


class Link:
    is_up = True
    is_congested = False
    connects = 1
    open_descriptor = 7

    def __init__(self, lan: Lan) -> None:
        self.lan = lan

    def send(self, frame: bytes) -> bool:
        batch = decode_batch(frame)
        samples = map(bytes, batch.samples())
        self.lan.sent += [(batch.first + at, sample) for at, sample in enumerate(samples)]
        return True

    def send_rest(self) -> bool:
        return True


class Routes:
    generation = 1

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self.link = Link(lan)

    def path(self, topic: str, destination: str) -> Link:
        return self.link

    def send(self, topic: str, destination: str, frame: bytes) -> bool:
        return True

    def change(self) -> None:
        self.link = Link(self.lan)
        self.generation += 1
        self.lan.is_aimed = False


STEPS = ("arrive", "wait", "account", "settle", "reroute", "fill wire", "drain wire", "tick")


TWO_ARE_TAKEN_OF_THREE = ["arrive", "wait", *["arrive"] * 5, "wait", "arrive"]
"""More come than may go ahead, and one more after it was aimed again."""


@example(TWO_ARE_TAKEN_OF_THREE)
@given(steps=st.lists(st.sampled_from(("arrive",) * 6 + STEPS), max_size=60))
@settings(deadline=None, max_examples=400)
def test_each_sample_is_sent_once_and_in_order(steps: list[str]) -> None:
    lan = Lan()
    routes = Routes(lan)
    outflow = Outflow(
        StreamKey("a", 1, 1),
        "topic",
        Profile("T", None, False, Qos(reliability=Reliability.RELIABLE)),
        Source(lan),
        cast(Links, routes),
        BrokerMetrics("edge", "0"),
        window_bytes=1 << 20,
        batch_samples=256,
        batch_bytes=1 << 20,
        may_keep_more=lambda: False,
    )
    outflow.add_subscriber("b", 1)
    now_s = 100.0
    has_more = False

    def wait() -> None:
        """What the threads of the edge would do next."""
        nonlocal has_more
        if lan.must_account:
            lan.must_account = False
            has_more = outflow.account(now_s) or has_more
        elif lan.has_news or has_more:
            lan.has_news = False
            has_more = outflow.forward(now_s)

    for step in steps:
        now_s += 0.001
        match step:
            case "arrive":
                lan.arrive()
            case "account" if lan.taken:
                has_more = outflow.account(now_s) or has_more
            case "wait":
                wait()
            case "settle":
                outflow.settle_aim()
                assert not lan.taken and not lan.is_aimed
            case "reroute":
                routes.change()
            case "fill wire":
                lan.is_wire_full = True
            case "drain wire":
                lan.is_wire_full = False
            case "tick" if lan.taken:
                lan.must_account = True
        if not lan.taken and not lan.inbox and not lan.is_aimed:
            assert outflow.stream.next_number == lan.count + 1
    lan.must_account |= bool(lan.taken)
    for _ in range(1000):
        if not (lan.must_account or lan.has_news or has_more):
            break
        wait()
    assert not lan.inbox and not lan.taken, "nothing is left that nobody is woken for"
    assert outflow.stream.next_number == lan.count + 1
    expected = [(number, number.to_bytes(4, "little")) for number in range(1, lan.count + 1)]
    # On another way as well when that has changed meanwhile: who gets it knows by the number.
    assert list(dict.fromkeys(lan.sent)) == expected
