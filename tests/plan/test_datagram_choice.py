"""When deadline topics leave TCP for datagrams with repair data, and when they come back."""

from __future__ import annotations

from random import Random

import pytest

from gateway.plan import datagram_choice
from gateway.plan.datagram_choice import CLEAN_S, Counts, DatagramChoice
from gateway.plan.path_quality import PathQuality


class World:
    """A direct link whose TCP is held up, or not, and whose datagrams are lost, or not."""

    def __init__(self, level_s: float = 0.25) -> None:
        self.choice = DatagramChoice()
        self.now_s = 100.0
        self.stream = PathQuality("express")
        self.datagrams = PathQuality("express")
        self.counts = Counts(0, 0, 0)
        self.level_s = level_s
        self._random = Random(1)

    def pass_time(self, seconds: float, *, held_up: float = 0.0, lost: float = 0.0) -> list[bool]:
        """A hundred samples a second, ten looks; what was said at each look. What does not go over
        TCP is no news of it but for a probe a second."""
        said = []
        for tick in range(round(seconds * 100)):
            self.now_s += 0.01
            if not self.choice.is_used or tick % 100 == 0:
                self.stream.observe(self._delay_s(held_up), self.now_s)
            self.datagrams.observe(self.level_s, self.now_s)
            is_lost = self._random.random() < lost
            counts = self.counts
            self.counts = Counts(counts.sent + 1, counts.lost + is_lost, counts.overflows)
            if tick % 10 == 9:
                said.append(self.look())
        return said

    def _delay_s(self, held_up: float) -> float:
        return self.level_s * (3.0 if self._random.random() < held_up else 1.0)

    def look(self) -> bool:
        return self.choice.review(self.now_s, self.stream, self.datagrams, self.counts)


def used() -> World:
    world = World()
    world.pass_time(2.0, held_up=0.3, lost=0.01)
    assert world.choice.is_used
    return world


def test_where_losses_hold_up_what_goes_over_tcp() -> None:
    world = World()
    assert not any(world.pass_time(10.0))
    assert world.pass_time(5.0, held_up=0.3)[-1]


def test_not_on_a_short_path_where_jitter_looks_like_that() -> None:
    assert not any(World(0.002).pass_time(10.0, held_up=0.3))


def test_not_where_they_do_not_pass() -> None:
    world = used()
    world.choice.interrupt(world.now_s)
    assert not world.choice.is_used
    assert world.choice.why == "datagrams do not pass"
    assert world.look(), "until they do again"


def test_as_long_as_anything_is_lost_they_stay() -> None:
    assert all(used().pass_time(5 * CLEAN_S, lost=0.01))


def test_when_nothing_is_lost_any_more_tcp_will_do() -> None:
    """But not before what is remembered of TCP speaks for it: that would not last."""
    world = used()
    said = world.pass_time(40 * CLEAN_S)
    stayed = said.index(False)
    assert stayed > 10 * CLEAN_S
    assert not any(said[stayed:])
    assert world.choice.why == "nothing is lost any more"


def test_who_did_well_for_long_rests_as_if_it_had_never_failed() -> None:
    def fail(world: World) -> int:
        """So many looks it rests."""
        counts = world.counts
        world.counts = Counts(counts.sent, counts.lost, counts.overflows + 1)
        assert not world.look()
        return world.pass_time(200.0, held_up=0.3, lost=0.01).index(True)

    world = used()
    first, second = fail(world), fail(world)
    assert second > 1.5 * first
    world.pass_time(datagram_choice.FORGIVEN_S, held_up=0.3, lost=0.01)
    assert fail(world) == pytest.approx(first, rel=0.1)


def test_few_datagrams_without_a_loss_say_little() -> None:
    world = used()
    for _ in range(100):
        world.now_s += 1.0
        assert world.look()


def test_a_path_that_loses_very_much_is_full() -> None:
    world = used()
    assert not world.pass_time(10.0, held_up=0.3, lost=0.4)[-1]
    assert "lost" in world.choice.why
    rest = world.pass_time(datagram_choice.REST_S + 10.0, held_up=0.3, lost=0.01)
    assert not rest[0] and rest[-1], "for a while"


def test_a_path_that_was_cut_for_a_while_is_not_full() -> None:
    world = used()
    counts = world.counts
    world.counts = Counts(counts.sent + 500, counts.lost + 480, 0)
    assert world.look()
    assert all(world.pass_time(20.0, lost=0.01))


def test_each_time_it_fails_it_rests_longer() -> None:
    world = used()
    rests = []
    for _ in range(4):
        assert not world.pass_time(10.0, held_up=0.3, lost=0.5)[-1]
        rests.append(0)
        while not world.pass_time(0.1, held_up=0.3, lost=0.01)[0]:
            rests[-1] += 1
    assert rests[0] < rests[1] < rests[2] < rests[3]


def test_more_than_they_may_carry_goes_over_tcp() -> None:
    world = used()
    world.counts = Counts(world.counts.sent, world.counts.lost, 1)
    assert not world.look()


def test_who_holds_them_back_is_found_out() -> None:
    world = used()
    world.datagrams = PathQuality("express")
    for _ in range(200):
        world.now_s += 0.01
        world.datagrams.observe(0.5, world.now_s)
    assert not world.look()
    assert "longer" in world.choice.why


def test_another_link_counts_from_the_beginning() -> None:
    world = used()
    world.counts = Counts(0, 0, 0)
    assert all(world.pass_time(10.0, lost=0.01))


def test_a_repair_is_of_the_fewer_datagrams_the_more_are_lost_and_comes_soon() -> None:
    world = used()
    members = []
    for share in (0.0, 0.01, 0.05, 0.15):
        world.choice.lost_share = share
        members.append(world.choice.repair(0.25).most_members)
    assert members == sorted(members, reverse=True)
    assert members[0] > 3 and members[-1] == 1
    world.choice.lost_share = 0.0
    assert world.choice.repair(0.25, is_order_kept=True).most_members == 1
    assert world.choice.repair(0.25).within_s == pytest.approx(0.0125)
    assert world.choice.repair(10.0).within_s == datagram_choice.REPAIR_MOST_S
    assert world.choice.repair(None).within_s == datagram_choice.REPAIR_LEAST_S


def test_a_loss_of_long_ago_is_as_good_as_none() -> None:
    """It fades for ever and never is nothing: what is computed from it has to bear that."""
    choice = DatagramChoice()
    path = PathQuality("express")
    counts = Counts(200, 1, 0)
    choice.review(0.0, path, None, counts)
    assert choice.lost_share > 0.0
    for second in range(3000):
        counts = Counts(counts.sent + 200, counts.lost, 0)
        choice.review(float(second), path, None, counts)
        assert 1 <= choice.repair(0.1).most_members <= datagram_choice.MEMBERS_MOST
    assert choice.repair(0.1).most_members == datagram_choice.MEMBERS_MOST
