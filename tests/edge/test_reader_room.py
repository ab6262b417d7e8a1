"""A reader is made for the smallest samples its topic had lately."""

from __future__ import annotations

from edge_broker.reader_room import ReaderRoom

TOPIC = ("a topic", "a type")


def room_after(*sizes: int) -> int:
    room = ReaderRoom(8192, 64 << 20)
    for size in sizes:
        room.learn(TOPIC, size)
    return room.samples(TOPIC)


def test_only_topics_that_are_always_large_get_less() -> None:
    assert room_after() == 8192
    assert room_after(1 << 20) == 8192
    assert room_after(1 << 20, 1 << 20) == 8192
    assert room_after(1 << 20, 1 << 20, 1 << 20) == 64
    assert room_after(1 << 20, 100, 1 << 20) == 8192
    assert room_after(100, 1 << 15, 1 << 16, 1 << 16) == 2048
    assert room_after(1 << 26, 1 << 26, 1 << 26) == 64  # never none


def test_what_is_remembered_is_bounded() -> None:
    room = ReaderRoom(8192, 64 << 20)
    for _ in range(3):
        room.learn(TOPIC, 1 << 20)
    for number in range(20_000):
        room.learn((str(number), ""), 1)
    assert room.samples(TOPIC) == 8192
    assert len(room._sizes) == 10_000
