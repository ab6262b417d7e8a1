"""What a publishing edge keeps, sends again and gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tunnel.frames import StreamKey
from gateway.tunnel.outgoing import (
    FIRST_TIMEOUT_S,
    LAST_TIMEOUT_S,
    REMINDER_S,
    REORDER_GRACE_S,
    RESEND_AHEAD_BYTES,
    OutgoingStream,
)

KEY = StreamKey("a", 7, 1)
FRAME = b"f" * 100


def outgoing(
    *subscribers: str, reliable: bool = True, window_bytes: int = 10_000
) -> OutgoingStream:
    stream = OutgoingStream(KEY, reliable=reliable, window_bytes=window_bytes)
    for edge in subscribers:
        stream.add_subscriber(edge, 1)
    return stream


def resent(stream: OutgoingStream, now_s: float) -> list[tuple[str, int]]:
    return [(each.edge, each.first) for each in stream.due(now_s)]


def send(stream: OutgoingStream, *counts: int, now_s: float = 0.0) -> None:
    for count in counts:
        stream.record(count, FRAME, now_s)


def test_kept_until_every_subscriber_has_written_it() -> None:
    stream = outgoing("b", "c")
    send(stream, 10, 5)
    assert stream.on_ack("b", 1, 15, (), 0.1)
    assert [each.first for each in stream.unacknowledged("c")] == [1, 11]
    assert stream.unacknowledged("b") == []
    assert stream.on_ack("c", 1, 12, (), 0.1)
    assert [(each.first, each.last) for each in stream.unacknowledged("c")] == [(11, 15)]
    assert not stream.is_finished
    stream.end()
    assert stream.on_ack("c", 1, 15, (), 0.1)
    assert stream.is_finished
    assert stream.kept_bytes == 0


def test_a_batch_is_missing_until_it_has_arrived() -> None:
    stream = outgoing("b", "c")
    send(stream, 10, 5, 5)
    stream.on_ack("b", 1, 10, [(16, 20)], 0.1)
    firsts = [
        None if (sent := stream.missing("b", first)) is None else sent.first
        for first in (1, 11, 16, 21)
    ]
    assert firsts == [None, 11, None, None]
    assert stream.missing("c", 1) is not None
    assert stream.missing("nobody", 1) is None
    assert outgoing("b", reliable=False).missing("b", 1) is None


def test_late_subscriber_starts_at_the_next_number() -> None:
    stream = outgoing("b")
    send(stream, 10)
    assert stream.add_subscriber("c", 5) == 11
    assert stream.add_subscriber("c", 5) == 11
    assert stream.destinations == ("b", "c")
    assert stream.unacknowledged("c") == []
    send(stream, 1)
    stream.on_ack("c", 5, 11, (), 0.0)
    assert stream.add_subscriber("c", 5) == 12


def test_new_incarnation_replaces_the_old_one() -> None:
    stream = outgoing("b")
    send(stream, 10)
    assert stream.add_subscriber("b", 2) == 11
    assert stream.kept_bytes == 0
    assert not stream.on_ack("b", 1, 10, (), 0.0)
    assert stream.subscribers == {"b": 2}


def test_removing_the_slowest_frees_the_window() -> None:
    stream = outgoing("b", "c", window_bytes=400)
    send(stream, 1)
    assert stream.has_room
    send(stream, 1)
    assert not stream.has_room
    stream.on_ack("b", 1, 2, (), 0.0)
    assert not stream.has_room
    stream.remove_subscriber("c")
    assert stream.has_room


def test_empty_window_takes_a_batch_of_any_size() -> None:
    stream = outgoing("b", window_bytes=1)
    assert stream.has_room
    send(stream, 1)
    assert not stream.has_room


def test_best_effort_keeps_nothing() -> None:
    stream = outgoing("b", reliable=False, window_bytes=1)
    send(stream, 10, 10)
    assert stream.next_number == 21
    assert stream.has_room
    assert stream.next_due_s is None
    assert not stream.on_ack("b", 1, 10, (), 0.0)


@pytest.mark.parametrize(
    ("cumulative", "ranges"),
    [(11, ()), (5, ((6, 11),)), (5, ((8, 7),)), (5, ((0, 3),)), (1 << 63, ())],
)
def test_acknowledging_what_was_never_sent_is_ignored(
    cumulative: int, ranges: tuple[tuple[int, int], ...]
) -> None:
    stream = outgoing("b")
    send(stream, 10)
    assert not stream.on_ack("b", 1, cumulative, ranges, 0.0)
    assert stream.acknowledged("b") == 0


def test_overtaken_batch_is_sent_again_after_the_grace_and_then_after_a_timeout() -> None:
    stream = outgoing("b")
    send(stream, 1, 1, 1)
    stream.on_ack("b", 1, 1, ((3, 3),), 0.01)
    due_s = stream.next_due_s
    assert due_s is not None
    assert due_s == pytest.approx(0.01 + REORDER_GRACE_S)
    assert resent(stream, due_s - 0.001) == []
    assert resent(stream, due_s) == [("b", 2)]
    assert resent(stream, due_s + 0.001) == []
    again_s = stream.next_due_s
    assert again_s is not None
    assert due_s + 0.1 < again_s
    assert resent(stream, again_s) == [("b", 2)]
    stream.on_ack("b", 1, 3, (), again_s)
    assert stream.next_due_s is None


def test_arrived_but_unwritten_is_not_sent_again_save_for_a_reminder() -> None:
    """A slow reader and a lost acknowledgement look alike."""
    stream = outgoing("b")
    stream.record(1, FRAME, 0.0)
    stream.record(1, b"small", 0.0)
    stream.record(1, FRAME, 0.0)
    stream.on_ack("b", 1, 0, ((1, 3),), 0.1)
    waits = []
    now_s = 0.1
    for _ in range(8):
        due_s = stream.next_due_s
        assert due_s is not None
        assert resent(stream, due_s - 0.01) == []
        assert resent(stream, due_s) == [("b", 2)]
        waits.append(due_s - now_s)
        now_s = due_s
    assert waits[0] == pytest.approx(REMINDER_S)
    assert waits[-1] == pytest.approx(LAST_TIMEOUT_S)
    assert len(stream.unacknowledged("b")) == 3
    stream.on_ack("b", 1, 3, (), now_s)
    assert stream.next_due_s is None


def test_silence_is_answered_with_ever_longer_timeouts_until_progress() -> None:
    stream = outgoing("b")
    send(stream, 1, 1)
    waits = []
    now_s = 0.0
    for _ in range(8):
        due_s = stream.next_due_s
        assert due_s is not None
        assert resent(stream, due_s) == [("b", 1), ("b", 2)]
        waits.append(due_s - now_s)
        now_s = due_s
    assert waits[:3] == pytest.approx([FIRST_TIMEOUT_S, 2 * FIRST_TIMEOUT_S, 4 * FIRST_TIMEOUT_S])
    assert waits[-1] == LAST_TIMEOUT_S
    stream.on_ack("b", 1, 1, (), now_s)
    due_s = stream.next_due_s
    assert due_s is not None
    assert due_s - now_s < 6 * FIRST_TIMEOUT_S


def test_timeout_learns_a_long_way() -> None:
    """With 600 ms there and back only the first batches are sent twice."""
    stream = outgoing("b")
    wasted = 0
    for number in range(1, 21):
        sent_s = float(number)
        send(stream, 1, now_s=sent_s)
        due_s = stream.next_due_s
        while due_s is not None and due_s < sent_s + 0.6:
            wasted += len(stream.due(due_s))
            due_s = stream.next_due_s
        stream.on_ack("b", 1, number, (), sent_s + 0.6)
    assert wasted <= 4


def test_lost_path_resends_everything_missing_at_once_within_the_budget() -> None:
    stream = outgoing("b", "c")
    send(stream, 1, 1, 1, 1)
    stream.on_ack("b", 1, 0, ((2, 2),), 0.01)
    stream.mark_for_resend("b")
    assert stream.next_due_s == 0.0
    first = [(each.edge, each.first) for each in stream.due(0.02, budget_bytes=500)]
    assert first == [("b", 1), ("b", 3)]
    assert stream.next_due_s == 0.0
    assert resent(stream, 0.02) == [("b", 4)]
    assert stream.next_due_s != 0.0


def test_what_was_lost_comes_again_as_fast_as_it_is_acknowledged() -> None:
    """Not one burst for each timeout: hundreds of megabytes may have been lost with a path."""
    count, size = 256, 256 * 1024
    stream = outgoing("b", window_bytes=count * size)
    for _ in range(count):
        stream.record(1, bytes(size), 0.0)
    now_s = FIRST_TIMEOUT_S
    arrived = 0
    rounds = 0
    while arrived < count:
        rounds += 1
        burst: list[int] = []
        while more := stream.due(now_s):
            burst += [each.first for each in more]
        assert burst == list(range(burst[0], burst[0] + len(burst)))
        assert 0 < (burst[-1] - arrived) * size <= RESEND_AHEAD_BYTES + 2 * size
        assert stream.next_due_s != 0.0
        now_s += 0.01
        arrived = burst[-1]
        assert stream.on_ack("b", 1, arrived, (), now_s)
        assert stream.is_recovering == (arrived < count)
    assert rounds <= 2 * count * size // RESEND_AHEAD_BYTES


def test_reopened_gets_again_what_had_only_arrived() -> None:
    stream = outgoing("b")
    send(stream, 1, 1, 1)
    stream.on_ack("b", 1, 1, ((2, 3),), 0.01)
    assert stream.reopen("b", 1) == 2
    assert resent(stream, 0.02) == [("b", 2), ("b", 3)]


def test_laggards_are_those_who_hold_up_others() -> None:
    stream = outgoing("b", "c", "d", window_bytes=700)
    send(stream, 1, now_s=0.0)
    send(stream, 1, now_s=5.0)
    stream.on_ack("b", 1, 2, (), 6.0)
    stream.on_ack("c", 1, 1, (), 6.0)
    assert stream.laggards(11.0, 10.0) == ["d"]
    assert stream.laggards(9.0, 10.0) == []
    assert stream.laggards(16.0, 10.0) == ["c", "d"]
    stream.remove_subscriber("b")
    assert stream.laggards(16.0, 10.0) == ["d"], "c waits for nobody but itself"
    stream.remove_subscriber("d")
    assert stream.laggards(100.0, 10.0) == []


def test_no_laggards_while_there_is_room() -> None:
    stream = outgoing("b", "c")
    send(stream, 1)
    stream.on_ack("b", 1, 1, (), 0.0)
    assert stream.laggards(100.0, 10.0) == []


acks = st.tuples(
    st.sampled_from("bc"),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=3),
)
steps = st.one_of(st.integers(1, 6), acks)


@given(st.lists(steps, max_size=60))
def test_against_sets_of_numbers(
    script: list[int | tuple[str, int, list[tuple[int, int]]]],
) -> None:
    """Keeps exactly what somebody has not written, and resends exactly what has not arrived."""
    stream = outgoing("b", "c")
    batches: list[tuple[int, int]] = []
    written = {"b": 0, "c": 0}
    arrived: dict[str, set[int]] = {"b": set(), "c": set()}
    now_s = 0.0
    for step in script:
        now_s += 0.01
        if isinstance(step, int):
            batches.append((stream.next_number, stream.next_number + step - 1))
            send(stream, step, now_s=now_s)
            continue
        edge, cumulative, ranges = step
        known = stream.on_ack(edge, 1, cumulative, ranges, now_s)
        end = stream.next_number
        if cumulative < end and all(first <= last < end for first, last in ranges):
            written[edge] = max(written[edge], cumulative)
            arrived[edge] |= set(range(1, cumulative + 1)).union(
                *(range(first, last + 1) for first, last in ranges)
            )
        else:
            assert not known
    for edge in "bc":
        kept = [(each.first, each.last) for each in stream.unacknowledged(edge)]
        assert kept == [each for each in batches if each[1] > written[edge]]
        stream.mark_for_resend(edge)
    low = min(written.values())
    assert stream.kept_bytes == sum(len(FRAME) + 256 for first, last in batches if last > low)
    missing = [
        (edge, first)
        for edge in "bc"
        for first, last in batches
        if not set(range(first, last + 1)) <= arrived[edge]
    ]
    assert resent(stream, now_s) == missing
