"""Datagrams that are lost, repeated, overtaken and garbled, and made again."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import FrameError
from gateway.tunnel.repair import (
    MOST_BODY_BYTES,
    MOST_DATAGRAM_BYTES,
    Heard,
    Opener,
    Sealer,
    read_head,
)

NOTHING = Heard(0, 0)
TOKEN = 0xABCDEF0123456789


class Sender:
    """Seals bodies and repairs them when that is due."""

    def __init__(self, *, within_s: float = 0.02, most_members: int = 5) -> None:
        self.sealer = Sealer(TOKEN)
        self._within_s = within_s
        self._most_members = most_members

    def send(self, body: bytes, now_s: float) -> list[bytes]:
        return self.pass_time(now_s) + self.sealer.seal(
            body, NOTHING, now_s, within_s=self._within_s, most_members=self._most_members
        )

    def pass_time(self, now_s: float) -> list[bytes]:
        return self.sealer.repairs(NOTHING, now_s)


def opened(opener: Opener, datagrams: list[bytes]) -> list[bytes]:
    return [body for each in datagrams for body in opener.open(read_head(each), each)]


def bodies_of(sizes: list[int]) -> list[bytes]:
    random = Random(1)
    return [
        number.to_bytes(2, "little") + random.randbytes(size) for number, size in enumerate(sizes)
    ]


SIZES = st.lists(
    st.one_of(st.integers(0, 200), st.integers(0, MOST_BODY_BYTES - 2)), min_size=1, max_size=30
)


@given(SIZES, st.floats(0.0, 0.1), st.integers(1, 8))
def test_nothing_lost_is_everything_once_and_in_order(
    sizes: list[int], gap_s: float, members: int
) -> None:
    sender, opener = Sender(most_members=members), Opener()
    bodies = bodies_of(sizes)
    datagrams = [x for at, body in enumerate(bodies) for x in sender.send(body, at * gap_s)]
    assert max(map(len, datagrams)) <= MOST_DATAGRAM_BYTES
    assert opened(opener, datagrams) == bodies
    assert opener.heard == (sender.sealer.number, sender.sealer.number)
    assert not opener.repaired


@given(SIZES, st.floats(0.0, 0.1), st.integers(1, 8), st.data())
def test_of_those_between_two_repairs_any_one_may_be_lost(
    sizes: list[int], gap_s: float, members: int, data: st.DataObject
) -> None:
    sender, opener = Sender(most_members=members), Opener()
    bodies = bodies_of(sizes)
    sent = [x for at, body in enumerate(bodies) for x in sender.send(body, at * gap_s)]
    sent += sender.pass_time(1e9)
    lost = data.draw(st.integers(0, len(sent) - 1))
    got = opened(opener, sent[:lost] + sent[lost + 1 :])
    # What is in several datagrams may be overtaken while one of them is made again.
    assert sorted(got) == sorted(bodies)


def test_a_lost_one_is_made_again_before_the_one_behind_it() -> None:
    sender, opener = Sender(most_members=1), Opener()
    bodies = bodies_of([50] * 6)
    sent = [each for at, body in enumerate(bodies) for each in sender.send(body, at * 0.01)]
    assert len(sent) == len(bodies), "repairs travel with what follows"
    assert opened(opener, sent[:2] + sent[3:]) == bodies
    assert opener.repaired == 1


def test_a_repair_nothing_follows_goes_by_itself_when_it_is_due() -> None:
    sender, opener = Sender(within_s=0.02), Opener()
    (body,) = bodies_of([50])
    sender.send(body, 1.0)
    assert sender.sealer.due_s == pytest.approx(1.02)
    assert sender.pass_time(1.01) == []
    (repair,) = sender.pass_time(1.02)
    assert opened(opener, [repair]) == [body]
    (later,) = sender.pass_time(sender.sealer.due_s)
    assert opened(opener, [later]) == []
    assert sender.sealer.due_s == inf
    opener = Opener()
    assert opened(opener, [later]) == [body], "if the first was lost, too"


def test_a_repair_waits_for_the_next_datagram_as_long_as_that_is_expected_in_time() -> None:
    sender = Sender(within_s=0.02, most_members=10)
    counts = []
    for number in range(40):
        before = sender.sealer.number
        sender.send(b"x" * 40, number * 0.007)
        counts.append(sender.sealer.number - before)
    assert set(counts) == {1, 2}
    assert counts.count(2) <= 40 / 8 + 3, "only the second ones had to go by themselves"


def test_what_comes_after_it_was_made_again_was_not_lost() -> None:
    sender, opener = Sender(most_members=1), Opener()
    sent = [x for at, body in enumerate(bodies_of([50] * 40)) for x in sender.send(body, at * 0.01)]
    late: list[bytes] = []
    for at, each in enumerate(sent):
        if at % 6 == 2:
            late.append(each)
            continue
        opened(opener, [each])
        if at % 6 == 5:
            assert opened(opener, late) == []
            late.clear()
    opened(opener, late)
    assert opener.repaired > 5
    assert opener.heard == (len(sent), len(sent))


def test_other_datagrams_between_them_do_not_put_a_repair_out_of_reach() -> None:
    sender, opener = Sender(within_s=1e6), Opener()
    (body,) = bodies_of([50])
    sender.send(body, 0.0)
    told = [each for _ in range(200) for each in sender.sealer.plain(b"x", NOTHING)]
    assert sorted(opened(opener, told)) == sorted([b"x"] * 200 + [body])


def test_two_lost_of_one_repair_are_made_again_when_one_of_them_comes_late() -> None:
    sender, opener = Sender(most_members=4), Opener()
    bodies = bodies_of([50] * 5)
    sent = [each for body in bodies for each in sender.send(body, 0.0)]
    early = opened(opener, [sent[0], sent[3], sent[4]])
    assert early == [bodies[0], bodies[3], bodies[4]]
    assert opened(opener, [sent[2]]) == [bodies[1], bodies[2]]
    assert opened(opener, [sent[1]]) == [], "it has been made again"


@given(st.lists(st.integers(0, 400), min_size=5, max_size=60), st.randoms())
def test_in_any_order_and_twice_each_frame_comes_once(sizes: list[int], random: Random) -> None:
    sender, opener = Sender(), Opener()
    bodies = bodies_of(sizes)
    sent = [each for at, body in enumerate(bodies) for each in sender.send(body, at * 0.005)]
    shuffled = sent * 2
    random.shuffle(shuffled)
    assert sorted(opened(opener, shuffled)) == sorted(bodies)
    assert opener.count + opener.repaired >= len(sent)


@pytest.mark.parametrize("burst", [2, 3, 4])
def test_several_lost_in_a_row_are_made_again(burst: int) -> None:
    for start in range(20, 60):
        sender, opener = Sender(within_s=0.005, most_members=1), Opener()
        bodies = bodies_of([40] * 60)
        sent = [x for at, body in enumerate(bodies) for x in sender.send(body, at * 0.01)]
        while sender.sealer.due_s < inf:
            sent += sender.pass_time(sender.sealer.due_s)
        got = opened(opener, sent[:start] + sent[start + burst :])
        assert sorted(got) == sorted(bodies), start


def test_losses_of_one_in_a_hundred_leave_hardly_any() -> None:
    sender, opener = Sender(most_members=5), Opener()
    random = Random(7)
    bodies = [number.to_bytes(4, "little") for number in range(20_000)]
    got = []
    for at, body in enumerate(bodies):
        for each in sender.send(body, at * 0.005):
            if random.random() >= 0.01:
                got += opened(opener, [each])
    missing = len(bodies) - len(got)
    assert len(set(got)) == len(got)
    assert missing < 0.0002 * len(bodies)
    assert opener.repaired > 0.008 * len(bodies)


def test_what_was_heard_goes_back_with_each() -> None:
    sealer = Sealer(TOKEN)
    heard = Heard(7, 5)
    (datagram,) = sealer.seal(b"x", heard, 0.0, within_s=1.0, most_members=1)
    head = read_head(datagram)
    assert (head.token, head.number, head.heard) == (TOKEN, 1, heard)
    (greeting,) = sealer.plain(b"", heard)
    assert read_head(greeting)[:3] == (0, TOKEN, 2)
    opener = Opener()
    assert opened(opener, [greeting]) == []
    assert opener.heard == (2, 1)


def test_a_greeting_among_those_a_repair_is_of_changes_nothing() -> None:
    sender, opener = Sender(most_members=8), Opener()
    first, second = bodies_of([30, 60])
    datagrams = sender.send(first, 0.0) + sender.sealer.plain(b"", NOTHING)
    datagrams += sender.send(second, 0.0)
    assert opened(opener, datagrams[1:] + sender.pass_time(1.0)) == [second, first]


def test_a_link_that_was_silent_for_long_goes_on() -> None:
    opener = Opener()
    for number in (1, 5000, 5001, 1_000_000):
        sealer = Sealer(TOKEN)
        sealer.number = number - 1
        (datagram,) = sealer.seal(b"x", NOTHING, 0.0, within_s=1.0, most_members=64)
        assert opened(opener, [datagram]) == [b"x"]
    assert opener.count == 4


@given(st.binary(max_size=100), st.binary(max_size=MOST_BODY_BYTES), st.integers(0, 4))
def test_garbage_is_refused_or_is_bodies_but_never_anything_else(
    bare: bytes, body: bytes, kind: int
) -> None:
    opener = Opener()
    (garbled,) = Sealer(TOKEN).plain(b"", NOTHING)
    garbled = garbled[:1] + bytes([kind]) + garbled[2:]
    for datagram in (bare, garbled + body):
        try:
            opened(opener, [datagram])
        except FrameError:
            continue


@given(st.data())
def test_a_datagram_with_a_flipped_byte_ends_nothing(data: st.DataObject) -> None:
    sender, opener = Sender(), Opener()
    for at in range(30):
        for each in sender.send(bytes([at]) * 20, at * 0.005):
            garbled = bytearray(each)
            place = data.draw(st.integers(0, len(garbled) - 1))
            garbled[place] ^= 1 << data.draw(st.integers(0, 7))
            try:
                opened(opener, [bytes(garbled)])
            except FrameError:
                continue
