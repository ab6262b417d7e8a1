"""Both ends of a reliable stream, joined by a wire that loses, delays, reorders, repeats and stops,
with subscribers that restart and paths that go down: nothing is lost, doubled or reordered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tunnel.frames import StreamKey
from gateway.tunnel.incoming import IncomingStream
from gateway.tunnel.outgoing import OutgoingStream

KEY = StreamKey("a", 7, 1)


@dataclass(frozen=True)
class Weather:
    loss: float
    repeat: float
    delay_s: float
    jitter_s: float


class World:
    """A virtual clock and what happens when."""

    def __init__(self, random: Random, weather: Weather) -> None:
        self.random = random
        self.weather = weather
        self.now_s = 0.0
        self.sent = 0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when_s: float, event: Callable[[], None]) -> None:
        heappush(self._events, (when_s, next(self._order), event))

    def post(self, arrive: Callable[[], None], is_up: Callable[[], bool]) -> None:
        """Over the wire; lost when the path is down at either end of the journey."""
        self.sent += 1
        if not is_up():
            return
        copies = 2 if self.random.random() < self.weather.repeat else 1
        for _ in range(copies):
            if self.random.random() >= self.weather.loss:
                delay_s = self.weather.delay_s + self.random.uniform(0, self.weather.jitter_s)
                self.at(self.now_s + delay_s, lambda: arrive() if is_up() else None)

    def run(self, is_done: Callable[[], bool], limit_s: float) -> None:
        while self._events and not is_done():
            self.now_s, _, event = heappop(self._events)
            assert self.now_s < limit_s, "it did not converge"
            event()


@dataclass
class Subscriber:
    """An edge: what it has written in this life, and whether its path is up."""

    edge: str
    incarnation: int = 0
    first: int = 1
    path: int = 0
    is_up: bool = True
    is_stuck: bool = False
    stream: IncomingStream[range] = field(init=False)
    queue: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)


class Sim:
    def __init__(self, world: World, edges: str, total: int, window_bytes: int) -> None:
        self.world = world
        self.total = total
        self.out = OutgoingStream(KEY, reliable=True, window_bytes=window_bytes)
        self.subscribers = {edge: Subscriber(edge) for edge in edges}
        self.resent = 0
        for subscriber in self.subscribers.values():
            self.start(subscriber)
        world.at(0.0, self.publish)
        world.at(0.0, self.watch)

    def start(self, subscriber: Subscriber) -> None:
        """A new life of this edge."""
        subscriber.incarnation += 1
        subscriber.first = self.out.add_subscriber(subscriber.edge, subscriber.incarnation)
        subscriber.stream = IncomingStream(
            KEY, reliable=True, first=subscriber.first, hold_bytes=2_000
        )
        subscriber.queue, subscriber.written = [], []

    def is_done(self) -> bool:
        return self.out.is_finished

    def publish(self) -> None:
        while self.out.has_room and self.out.next_number <= self.total:
            first = self.out.next_number
            size = min(self.world.random.randint(1, 9), self.total + 1 - first)
            frame = b"".join(n.to_bytes(4, "little") for n in range(first, first + size))
            self.out.record(size, frame, self.world.now_s)
            for edge in self.out.destinations:
                self.send(edge, first, frame)
            if self.world.random.random() < 0.3:
                break
        if self.out.next_number > self.total:
            self.out.end()
        else:
            self.world.at(self.world.now_s + 0.005, self.publish)

    def watch(self) -> None:
        """The publisher's timer."""
        due_s = self.out.next_due_s
        if due_s is not None and due_s <= self.world.now_s:
            resends = self.out.due(self.world.now_s, budget_bytes=200)
            self.resent += len(resends)
            for each in resends:
                self.send(each.edge, each.first, each.frame)
        self.world.at(self.world.now_s + 0.03, self.watch)

    def send(self, edge: str, first: int, frame: bytes) -> None:
        subscriber = self.subscribers[edge]
        life, path = subscriber.incarnation, subscriber.path

        def is_up() -> bool:
            return subscriber.is_up and subscriber.path == path

        def arrive() -> None:
            if subscriber.incarnation == life:
                self.receive(subscriber, first, frame)

        self.world.post(arrive, is_up)

    def receive(self, subscriber: Subscriber, first: int, frame: bytes) -> None:
        samples = range(first, first + len(frame) // 4)
        for each in subscriber.stream.offer(first, len(samples), samples, len(frame)):
            subscriber.queue += each.item[each.skip :]
        self.write(subscriber)

    def write(self, subscriber: Subscriber) -> None:
        """Into DDS, sometimes only a part; acknowledge."""
        if not subscriber.is_stuck:
            some = self.world.random.randint(0, len(subscriber.queue))
            subscriber.written += subscriber.queue[:some]
            del subscriber.queue[:some]
            if subscriber.queue:
                self.world.at(self.world.now_s + 0.02, lambda: self.write(subscriber))
            if subscriber.written:
                subscriber.stream.written(subscriber.written[-1])
        cumulative, ranges = subscriber.stream.acknowledgement()
        life = subscriber.incarnation
        self.world.post(
            lambda: self.on_ack(subscriber.edge, life, cumulative, ranges),
            lambda: subscriber.is_up,
        )

    def on_ack(
        self, edge: str, incarnation: int, cumulative: int, ranges: tuple[tuple[int, int], ...]
    ) -> None:
        self.out.on_ack(edge, incarnation, cumulative, ranges, self.world.now_s)

    def cut(self, subscriber: Subscriber, repair_after_s: float) -> None:
        subscriber.is_up = False
        subscriber.path += 1

        def repair() -> None:
            subscriber.is_up = True
            self.out.mark_for_resend(subscriber.edge)

        self.world.at(self.world.now_s + repair_after_s, repair)

    def stick(self, subscriber: Subscriber, for_s: float) -> None:
        subscriber.is_stuck = True

        def free() -> None:
            subscriber.is_stuck = False
            self.write(subscriber)

        self.world.at(self.world.now_s + for_s, free)

    def check(self) -> None:
        for subscriber in self.subscribers.values():
            assert subscriber.written == list(range(subscriber.first, self.total + 1))
        assert self.out.kept_bytes == 0


weathers = st.builds(
    Weather,
    loss=st.floats(0, 0.4),
    repeat=st.floats(0, 0.4),
    delay_s=st.floats(0, 0.3),
    jitter_s=st.floats(0, 0.3),
)
incidents = st.lists(
    st.tuples(
        st.floats(0, 3), st.sampled_from("bcd"), st.sampled_from(["cut", "stick", "restart"])
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 32), weathers, incidents, st.integers(300, 4_000))
def test_converges(
    seed: int, weather: Weather, troubles: list[tuple[float, str, str]], window_bytes: int
) -> None:
    world = World(Random(seed), weather)
    sim = Sim(world, "bcd", total=300, window_bytes=window_bytes)
    for when_s, edge, kind in troubles:
        subscriber = sim.subscribers[edge]
        if kind == "cut":
            world.at(when_s, lambda each=subscriber: sim.cut(each, 0.5))  # type: ignore[misc]
        elif kind == "stick":
            world.at(when_s, lambda each=subscriber: sim.stick(each, 1.0))  # type: ignore[misc]
        else:
            world.at(when_s, lambda each=subscriber: sim.start(each))  # type: ignore[misc]
    world.run(sim.is_done, limit_s=600.0)
    sim.check()


@pytest.mark.parametrize("delay_s", [0.0, 0.04, 0.3])
def test_good_weather_wastes_nothing(delay_s: float) -> None:
    """Without loss nothing is sent twice once the way's length is known."""
    world = World(Random(1), Weather(0.0, 0.0, delay_s, 0.0))
    sim = Sim(world, "bc", total=3_000, window_bytes=20_000)
    world.run(sim.is_done, limit_s=200.0)
    sim.check()
    assert sim.resent <= (0 if 2 * delay_s < 0.2 else 100)


def test_rare_loss_costs_little() -> None:
    world = World(Random(2), Weather(0.01, 0.0, 0.02, 0.0))
    sim = Sim(world, "b", total=5_000, window_bytes=20_000)
    world.run(sim.is_done, limit_s=200.0)
    sim.check()
    assert sim.resent < 0.05 * world.sent
