"""What an edge knows of one path to another edge: what is under way on it and what is lost."""

from __future__ import annotations

import pytest

from edge_broker.known_path import Path
from edge_broker.links import EXPRESS
from gateway.tunnel import messages
from gateway.tunnel.messages import ProbeAnswer
from tests.edge.path_parts import MS, OTHER, Clocks, World


def test_what_a_report_leaves_out_is_lost_and_what_is_due_is_outstanding(world: World) -> None:
    routing = world.routing("one", "duplicate")
    world.set_clock()
    sent_ns = []
    for _ in range(11):
        sent_ns.append(world.clocks.wall_ns)
        world.send(routing)
        world.clocks.pass_ms(1)
    assert world.path("r1")["outstanding_ms"] == pytest.approx(11)
    world.pairs.on_arrivals(messages.Arrivals(OTHER, sent_ns[7], 5, (20_000,) * 5), "r1")
    assert world.path("r1")["outstanding_ms"] == pytest.approx(3)
    world.clocks.pass_ms(200)
    world.pairs.on_arrivals(messages.Arrivals(OTHER, sent_ns[8], 7, (20_000,) * 2), "r1")
    assert world.path("r1")["lost"] == 0  # they may come yet: those of a moment change places
    world.clocks.pass_ms(100)
    world.pairs.on_arrivals(messages.Arrivals(OTHER, sent_ns[9], 8, (20_000,)), "r1")
    assert world.path("r1")["lost"] == 2
    assert world.path(EXPRESS)["lost"] == 0
    # The receiver lives anew and counts from one again: nothing more is lost.
    world.pairs.on_arrivals(messages.Arrivals(OTHER, sent_ns[10], 1, (20_000,)), "r1")
    world.clocks.pass_ms(300)
    world.pairs.on_arrivals(messages.Arrivals(OTHER, sent_ns[10], 1, ()), "r1")
    assert world.path("r1")["lost"] == 2
    assert world.path("r1")["outstanding_ms"] == 0


def test_batches_that_change_places_are_not_lost(clocks: Clocks) -> None:
    """A single sample goes ahead of the batch that is just being sent, and is noted after it."""
    path = Path(EXPRESS)
    now_s = 0.0
    for total in range(3, 3000, 3):
        clocks.pass_ms(10)
        now_s += 0.01
        first_ns, second_ns = clocks.wall_ns, clocks.wall_ns + 1
        path.note_batch(second_ns)
        path.note_batch(first_ns)
        assert path.outstanding_s(first_ns + 10 * MS) == pytest.approx(0.01)
        # Reports come between the two; the first tells of a third one, too.
        path.note_batch(second_ns)
        for came in (total - 2, total - 1, total - 1, total):
            path.confirm(second_ns, came, clocks.wall_ns + 2, now_s)
    assert path.quality.lost == 0
    assert path.outstanding_s(clocks.wall_ns) == 0


def test_what_went_long_before_an_answered_probe_is_lost_and_no_longer_waited_for(
    world: World,
) -> None:
    """Nothing tells of the last batches of a path that lost them: it would be stalled for ever."""
    routing = world.routing("one", "duplicate")
    world.set_clock()
    for _ in range(5):
        world.send(routing)
        world.clocks.pass_ms(10)
    world.links.up.discard("r1")  # other paths are taken meanwhile
    path = world.pairs.pair(OTHER.edge).paths["r1"]
    world.clocks.pass_ms(2000)
    for _ in range(2):
        probed_ns = world.clocks.wall_ns
        path.note_probe(probed_ns)
        world.clocks.pass_ms(40)
        world.pairs.on_answer(ProbeAnswer(OTHER, probed_ns, probed_ns + 20 * MS), "r1")
        world.clocks.pass_ms(1000)
    assert world.path("r1")["outstanding_ms"] == 0
    assert world.path("r1")["lost"] == 5


def test_an_answered_probe_says_nothing_of_what_was_sent_at_about_its_time(world: World) -> None:
    """Reports are told together, answers at once."""
    world.send(world.routing("one", "duplicate"))
    world.clocks.pass_ms(100)
    path = world.pairs.pair(OTHER.edge).paths["r1"]
    path.note_probe(world.clocks.wall_ns)
    assert path.confirm_probe(world.clocks.wall_ns, world.clocks.now_s)
    assert world.path("r1")["outstanding_ms"] == pytest.approx(100)


@pytest.mark.parametrize("back_s", [0.5, 3600.0])
def test_when_the_clock_is_set_back_what_is_sent_then_waits_for_word_again(
    world: World, back_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    routing = world.routing("one", "duplicate")
    world.set_clock()
    for _ in range(20):
        world.send(routing)
        world.clocks.pass_ms(10)
        world.report("r1", 10)
    world.send(routing)
    late = messages.Arrivals(OTHER, world.clocks.wall_ns, world.sent["r1"], (10_000,))
    path = world.pairs.pair(OTHER.edge).paths["r1"]
    path.note_probe(world.clocks.wall_ns)
    world.clocks.wall_ns -= int(back_s * 1e9)
    world.pairs.tick()
    assert "set back" in caplog.text
    world.pairs.on_arrivals(late, "r1")  # what is stamped by then may still come
    world.clocks.pass_ms(10)
    sent_ns = world.clocks.wall_ns
    world.send(routing)
    world.clocks.pass_ms(30)
    assert path.confirmed_ns < sent_ns
    assert world.path("r1")["outstanding_ms"] == pytest.approx(40)  # of a probe, then of a sample
    world.report("r1", 10)
    assert path.confirmed_ns >= sent_ns
    assert world.path("r1")["outstanding_ms"] == 0
