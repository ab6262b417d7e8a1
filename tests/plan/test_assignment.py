"""Assignment planning: what is kept, what moves and where to, and that plans converge."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import Advice, Advised, Assignment, FabricView, TopicView
from gateway.plan.assignment import (
    AssignmentPlan,
    Cause,
    Rebalancing,
    empty_since,
    plan_assignments,
    plan_deletions,
)
from gateway.plan.strategies import (
    LeastConnections,
    LeastCpu,
    LeastLoad,
    LeastTopics,
    Strategy,
    choose_strategy,
)
from tests.plan.fabric import applied, fabric, router, topic

ALL: list[Strategy] = [LeastLoad(), LeastTopics(), LeastCpu(), LeastConnections()]
UNBOUNDED = Rebalancing(factor=1.2, max_moves=10_000)


def plan(
    view: FabricView,
    strategy: Strategy | None = None,
    rates: dict[str, float] | None = None,
    rebalancing: Rebalancing | None = None,
) -> AssignmentPlan:
    return plan_assignments(
        view,
        strategy or LeastTopics(),
        epoch=7,
        rates=rates or {},
        rebalancing=rebalancing,
    )


def primaries(view: FabricView) -> Counter[str]:
    return Counter(t.assignment.primary for t in view.topics.values() if t.assignment)


def assigned(name: str, primary: str, standby: str | None) -> TopicView:
    return topic(name, Assignment(primary, standby, 1))


def test_no_router_leaves_used_topics_unserved_and_says_so() -> None:
    view = fabric([], [assigned("t1", "r1", "r2"), topic("t2"), TopicView("unused")])
    assert plan(view) == AssignmentPlan(unserved=("t1", "t2"))


def test_an_advised_topic_leaves_its_router_for_the_standby_and_comes_back_when_told() -> None:
    advice = Advice((Advised("t1", avoid="r1"), Advised("new", avoid="r2")))
    topics = [assigned("t1", "r1", "r2"), assigned("t2", "r1", "r2"), topic("new")]
    view = replace(fabric([router("r1"), router("r2")], topics), advice=advice)
    made = {change.topic: change for change in plan(view).changes}
    assert made.keys() == {"t1", "new"}
    assert (made["t1"].after, made["t1"].why) == (Assignment("r2", "r1", 7), Cause.ADVICE)
    assert (made["new"].after.primary, made["new"].why) == ("r1", Cause.NEW_TOPIC)
    after = applied(view, plan(view))
    assert plan(after, rebalancing=UNBOUNDED).changes == ()
    # Of one router there is no choice.
    alone = plan(replace(after, routers={"r1": router("r1")}))
    assert {change.after.primary for change in alone.changes} == {"r1"}


def test_one_router_is_primary_without_standby() -> None:
    (change,) = plan(fabric([router("r1")], [topic("t")])).changes
    assert change.after == Assignment("r1", None, 7)
    assert change.why is Cause.NEW_TOPIC


def test_a_second_router_becomes_standby_and_takes_nothing_over() -> None:
    view = fabric([router("r1"), router("r2")], [assigned("t", "r1", None)])
    (change,) = plan(view).changes
    assert change.after == Assignment("r1", "r2", 7)
    assert change.why is Cause.STANDBY_FOUND
    assert not change.is_move


def test_a_dead_primary_is_replaced_by_its_standby() -> None:
    view = fabric([router("r2"), router("r3")], [assigned("t", "r1", "r3")])
    (change,) = plan(view).changes
    assert change.after == Assignment("r3", "r2", 7)
    assert change.why is Cause.ROUTER_LEFT
    assert change.is_move


def test_a_draining_router_hands_over_to_the_standby() -> None:
    view = fabric([router("r1", draining=True), router("r2")], [assigned("t", "r1", "r2")])
    (change,) = plan(view).changes
    assert change.after == Assignment("r2", None, 7)
    assert change.why is Cause.ROUTER_DRAINS


def test_a_dead_standby_is_replaced_and_the_primary_stays() -> None:
    view = fabric([router("r1"), router("r3")], [assigned("t", "r1", "r2")])
    (change,) = plan(view).changes
    assert change.after == Assignment("r1", "r3", 7)
    assert change.why is Cause.STANDBY_LEFT


def test_both_gone_places_the_topic_anew() -> None:
    view = fabric([router("r3"), router("r4")], [assigned("t", "r1", "r2")])
    (change,) = plan(view).changes
    assert change.after == Assignment("r3", "r4", 7)


def test_a_fabric_that_only_drains_keeps_working() -> None:
    view = fabric([router("r1", draining=True)], [assigned("t", "r1", None), topic("new")])
    assert [c.topic for c in plan(view).changes] == ["new"]


def test_a_restarted_router_keeps_its_topics() -> None:
    restarted = [replace(router("r1"), incarnation=99), router("r2")]
    assert plan(fabric(restarted, [assigned("t", "r1", "r2")])).changes == ()


def test_unused_topics_are_left_alone() -> None:
    unused = TopicView("t", Assignment("gone", None, 1))
    assert plan(fabric([router("r1")], [unused, TopicView("u")])) == AssignmentPlan()


def test_the_standby_prefers_another_zone() -> None:
    routers = [router("r1", zone="x"), router("r2", zone="x"), router("r3", zone="y")]
    view = fabric(routers, [assigned("t", "r1", None)])
    (change,) = plan(view).changes
    assert change.after.standby == "r3"


def test_a_lost_routers_topics_spread_over_the_others() -> None:
    """Their standbys were spread already, so are the standbys of the standbys."""
    view = fabric([router(f"r{n}") for n in range(1, 5)], [topic(f"t{n:02}") for n in range(24)])
    view = applied(view, plan(view))
    assert set(primaries(view).values()) == {6}
    without = replace(view, routers={k: v for k, v in view.routers.items() if k != "r1"})
    after = primaries(applied(without, plan(without)))
    assert set(after) == {"r2", "r3", "r4"}
    assert max(after.values()) <= 10


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)
def test_a_burst_of_new_topics_spreads(strategy: Strategy) -> None:
    """None has a measured rate, one topic has a large one."""
    routers = [
        router("r1", bytes_per_s=1e8, cpu=0.9, connections=9, topics=(("busy", 1e8),)),
        router("r2"),
        router("r3"),
    ]
    view = fabric(routers, [assigned("busy", "r1", "r2"), *(topic(f"t{n}") for n in range(30))])
    after = applied(view, plan(view, strategy, {"busy": 1e8}))
    assert max(primaries(after).values()) <= 11


def test_topics_that_arrive_one_by_one_spread_too() -> None:
    view = fabric([router("r1"), router("r2")], [])
    for n in range(10):
        view = replace(view, topics={**view.topics, f"t{n}": topic(f"t{n}")})
        view = applied(view, plan(view, LeastLoad()))
    assert primaries(view) == {"r1": 5, "r2": 5}


def test_least_load_places_by_bytes_not_by_number() -> None:
    quiet = [assigned(f"q{n}", "r2", "r1") for n in range(8)]
    view = fabric([router("r1"), router("r2")], [assigned("busy", "r1", "r2"), *quiet, topic("t")])
    rates = {"busy": 1e7, **{t.topic: 1e3 for t in quiet}}
    (change,) = plan(view, LeastLoad(), rates).changes
    assert change.after.primary == "r2"
    (change,) = plan(view, LeastTopics(), rates).changes
    assert change.after.primary == "r1"


def test_least_cpu_knows_that_machines_differ() -> None:
    slow = router("r1", bytes_per_s=1e7, cpu=0.8, topics=(("s", 1e7),))
    fast = router("r2", bytes_per_s=2e7, cpu=0.2, topics=(("f", 2e7),))
    view = fabric([slow, fast], [assigned("s", "r1", "r2"), assigned("f", "r2", "r1"), topic("t")])
    (change,) = plan(view, LeastCpu(), {"s": 1e7, "f": 2e7}).changes
    assert change.after.primary == "r2"


def test_least_connections_counts_the_edges_a_topic_joins() -> None:
    wide = topic("wide", Assignment("r1", "r2", 1), sub_lans="bcdefg")
    narrow = [assigned(f"n{n}", "r2", "r1") for n in range(3)]
    view = fabric([router("r1"), router("r2")], [wide, *narrow, topic("t")])
    (change,) = plan(view, LeastConnections()).changes
    assert change.after.primary == "r2"


def test_a_joining_router_gets_the_fewest_topics_that_help() -> None:
    view = fabric(
        [router("r1"), router("r2"), router("r3")],
        [assigned(f"t{n:02}", ("r1", "r2")[n % 2], ("r2", "r1")[n % 2]) for n in range(12)],
    )
    assert plan(view).changes == ()
    moved = plan(view, rebalancing=Rebalancing(factor=1.25))
    # Mean 4: 5 on a router is fine, 6 is not.
    assert sorted(c.before.primary for c in moved.changes if c.before) == ["r1", "r2"]
    assert {c.after.primary for c in moved.changes} == {"r3"}
    assert {c.why for c in moved.changes} == {Cause.REBALANCING}


def test_one_move_is_enough_for_one_overload() -> None:
    rates = {"a": 9e6, "b": 5e6, "c": 4e6, "d": 1e6}
    view = fabric(
        [router("r1"), router("r2")], [*(assigned(t, "r1", "r2") for t in "abc"), topic("d")]
    )
    view = applied(view, plan(view, LeastLoad(), rates))
    (change,) = plan(view, LeastLoad(), rates, Rebalancing(factor=1.3)).changes
    assert (change.topic, change.after.primary, change.after.standby) == ("a", "r2", "r1")


def test_small_differences_are_not_worth_a_move() -> None:
    view = fabric([router("r1"), router("r2")], [assigned(t, "r1", "r2") for t in "abc"])
    rates = dict.fromkeys("abc", 1000.0)
    strategy = choose_strategy("least-load", negligible_bytes_per_s=1e6)
    assert plan(view, strategy, rates, UNBOUNDED).changes == ()
    assert plan(view, LeastLoad(), rates, UNBOUNDED).changes != ()


def test_of_equal_moves_the_promotion_of_a_standby_wins() -> None:
    topics = [assigned(f"t{n}", "r1", "r2") for n in range(5)] + [assigned("t9", "r1", "r3")]
    view = fabric([router("r1"), router("r2"), router("r3")], topics)
    moved = plan(view, rebalancing=UNBOUNDED)
    assert all(c.before and c.after.primary == c.before.standby for c in moved.changes)


def test_moves_of_one_plan_are_bounded() -> None:
    view = fabric([router("r1"), router("r2")], [assigned(f"t{n}", "r1", "r2") for n in range(50)])
    moved = plan(view, rebalancing=Rebalancing(factor=1.1, max_moves=3))
    assert len(moved.changes) == 3


def test_topics_are_deleted_after_a_grace_without_use() -> None:
    view = fabric([], [topic("used"), TopicView("empty")])
    since = empty_since(view, {}, 100.0)
    assert since == {"empty": 100.0}
    since = empty_since(view, since, 103.0)
    assert plan_deletions(since, 103.0, 5.0) == ()
    assert plan_deletions(since, 105.0, 5.0) == ("empty",)
    used_again = replace(view, topics={"empty": topic("empty")})
    assert empty_since(used_again, since, 105.0) == {}


ROUTERS = [f"r{n}" for n in range(1, 6)]
routers = st.dictionaries(st.sampled_from(ROUTERS), st.booleans(), max_size=5)
names = st.sampled_from(ROUTERS)
assignments = st.none() | st.builds(Assignment, names, st.none() | names, st.just(1))


@st.composite
def views(draw: st.DrawFn) -> FabricView:
    lives = draw(routers)
    topics = [
        topic(f"t{n}", draw(assignments)) if draw(st.integers(0, 9)) else TopicView(f"t{n}")
        for n in range(draw(st.integers(0, 12)))
    ]
    zones = {name: draw(st.sampled_from(["", "x", "y"])) for name in sorted(lives)}
    return fabric([router(name, draining=lives[name], zone=zones[name]) for name in lives], topics)


some_rates = st.dictionaries(
    st.integers(0, 11).map(lambda n: f"t{n}"), st.sampled_from([0.0, 1.0, 500.0, 1e4, 1e6, 3e6])
)
rebalancings = st.sampled_from([None, UNBOUNDED])
every_strategy = pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)


@every_strategy
@given(views(), some_rates, rebalancings)
def test_result_is_usable_and_stable(
    strategy: Strategy, view: FabricView, rates: dict[str, float], rebalancing: Rebalancing | None
) -> None:
    after = applied(view, plan(view, strategy, rates, rebalancing))
    usable = {n for n, r in view.routers.items() if not r.draining} or set(view.routers)
    for name, seen in after.topics.items():
        if not (seen.pubs or seen.subs) or not usable:
            assert seen == view.topics[name]
            continue
        assert seen.assignment is not None
        assert seen.assignment.primary in usable
        if len(usable) > 1:
            assert seen.assignment.standby in usable - {seen.assignment.primary}
        else:
            assert seen.assignment.standby is None
    assert plan(after, strategy, rates, rebalancing).changes == ()


@every_strategy
@given(views(), some_rates)
def test_only_topics_of_routers_that_left_change_their_primary(
    strategy: Strategy, view: FabricView, rates: dict[str, float]
) -> None:
    usable = {n for n, r in view.routers.items() if not r.draining} or set(view.routers)
    for change in plan(view, strategy, rates).changes:
        if change.before is not None and change.before.primary in usable:
            assert change.after.primary == change.before.primary
            standby = change.before.standby
            assert standby not in usable or standby == change.before.primary
        elif change.before is not None and change.before.standby in usable:
            assert change.after.primary == change.before.standby


@every_strategy
@given(views(), some_rates)
def test_balance_no_single_move_would_improve_it(
    strategy: Strategy, view: FabricView, rates: dict[str, float]
) -> None:
    after = applied(view, plan(view, strategy, rates, UNBOUNDED))
    usable = {n for n, r in view.routers.items() if not r.draining} or set(view.routers)
    if not usable:
        return
    cost = strategy.costs(view, rates)
    held: dict[str, list[float]] = {name: [] for name in usable}
    for name, seen in after.topics.items():
        if seen.assignment is not None and (seen.pubs or seen.subs):
            held[seen.assignment.primary].append(cost(name, seen.assignment.primary))
    loads = {name: sum(costs) for name, costs in held.items()}
    mean = sum(loads.values()) / len(loads)
    bound = max(mean * UNBOUNDED.factor, mean + strategy.negligible)
    hot, least = max(loads, key=lambda r: loads[r]), min(loads.values())
    if loads[hot] > bound * 1.000001:
        smallest = min(c for c in held[hot] if c > 0)
        assert least + smallest >= loads[hot] * 0.999999
