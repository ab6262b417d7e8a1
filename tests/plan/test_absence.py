"""Whom a publisher's edge waits for: edges that may come back, as long as anybody would, and not
those whose LAN is served by another."""

from __future__ import annotations

from gateway.model import EdgeInfo, FabricView
from gateway.plan.absence import Absence, Life

PATIENCE_S = 30.0
B: Life = ("b", 1)


def view(*edges: tuple[str, str, int]) -> FabricView:
    return FabricView(edges={id: EdgeInfo(id, lan, incarnation) for id, lan, incarnation in edges})


class World:
    def __init__(self) -> None:
        self.absence = Absence(PATIENCE_S)
        self.absence.see(view(("b", "lan", 1)))
        self.subscribers = ["b"]
        self.is_linked = False
        self.is_reliable = True

    def is_gone(self, now_s: float, life: Life = B) -> bool:
        return self.absence.is_gone(
            life,
            self.subscribers,
            now_s,
            is_linked=self.is_linked,
            is_reliable=self.is_reliable,
        )


def test_who_vanishes_is_waited_for_but_not_for_ever() -> None:
    world = World()
    assert not world.is_gone(0.0)
    assert not world.absence.is_any
    world.absence.see(view())
    assert not world.is_gone(100.0)
    assert world.absence.is_any
    assert not world.is_gone(100.0 + PATIENCE_S - 0.1)
    assert world.is_gone(100.0 + PATIENCE_S)


def test_who_was_back_meanwhile_is_waited_for_anew() -> None:
    world = World()
    for back in (view(("b", "lan", 1)), None):
        world.absence.see(view())
        assert not world.is_gone(100.0)
        world.absence.see(back or view())
        world.absence.forget_others({B}, set() if back else {B})
        assert not world.absence.is_any
        world.absence.see(view())
        assert not world.is_gone(100.0 + PATIENCE_S)


def test_who_can_be_reached_is_there_whatever_the_tree_says() -> None:
    world = World()
    world.absence.see(view())
    world.is_linked = True
    assert not world.is_gone(0.0)
    assert not world.is_gone(10 * PATIENCE_S)
    assert not world.absence.is_any


def test_a_new_life_ends_the_former_at_once() -> None:
    world = World()
    world.absence.see(view(("b", "lan", 2)))
    assert world.is_gone(0.0)
    assert not world.is_gone(0.0, ("b", 2))


def test_for_best_effort_streams_nothing_is_kept_so_nobody_is_waited_for() -> None:
    world = World()
    world.is_reliable = False
    world.absence.see(view())
    assert world.is_gone(0.0)


def test_who_does_not_subscribe_any_longer_is_not_waited_for() -> None:
    world = World()
    world.absence.see(view())
    assert not world.is_gone(0.0)
    world.absence.forget_others(set(), set())
    assert not world.absence.is_any


def test_another_edge_of_its_lan_takes_its_place_also_while_it_can_be_reached() -> None:
    world = World()
    world.is_linked = True
    both = (("b", "lan", 1), ("b2", "lan", 1), ("c", "far", 1))
    world.absence.see(view(*both))
    world.subscribers = ["b", "b2", "c"]
    assert not world.is_gone(0.0)  # while the tree has both, each has its topics
    world.absence.see(view(*both[1:]))
    assert world.is_gone(0.0)
    assert not world.is_gone(0.0, ("b2", 1))
    assert not world.is_gone(0.0, ("c", 1))
    assert world.absence.is_taken_over("b", ["b2"])
    world.subscribers = ["b", "c"]
    assert not world.is_gone(0.0)
