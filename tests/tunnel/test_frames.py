"""Frames, batches and bundles: what is written is read back, garbage raises FrameError only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import FrameError, FrameVersionError
from gateway.tunnel import messages
from gateway.tunnel.columns import WRITE, pack
from gateway.tunnel.frames import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    Batch,
    Peer,
    StreamKey,
    bounds,
    bundle,
    decode,
    decode_batch,
    encode,
    encode_batch,
    is_bundle,
    readdress,
    unbundle,
)
from gateway.tunnel.tunnel_pb2 import Envelope

KEY = StreamKey("a", (1 << 64) - 1, 3)
ME = Peer("b", 1 << 63)

batches = st.lists(
    st.tuples(st.binary(max_size=20), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 3)),
    min_size=1,
    max_size=40,
)


@given(batches, st.integers(1, 1 << 40), st.lists(st.text("ab~.", min_size=1), max_size=4))
def test_batch_is_read_back(rows: list[tuple[bytes, int, int]], first: int, to: list[str]) -> None:
    samples, timestamps, kinds = map(list, zip(*rows, strict=True))
    frame = encode_batch(KEY, to, first, pack(timestamps, samples, bytes(kinds)))
    batch = decode_batch(frame)
    assert list(decode(frame).envelope.to) == to
    assert (batch.stream, batch.first, batch.count) == (KEY, first, len(rows))
    assert batch.last == first + len(rows) - 1
    assert list(batch.timestamps) == timestamps
    assert list(batch.samples()) == samples
    assert list(batch.kinds or bytes(len(rows))) == kinds
    assert (batch.kinds == b"") == (set(kinds) == {WRITE})
    half = range(len(rows) // 2, len(rows))
    assert list(batch.only(half).samples()) == samples[half.start :]
    assert batch.size_of(half.start, len(rows)) == sum(map(len, samples[half.start :]))


@pytest.mark.parametrize("size", [0, 1, 64])
def test_equal_sizes_need_no_column(size: int) -> None:
    frame = encode_batch(KEY, ["b"], 1, pack([0] * 100, [b"x" * size] * 100))
    batch = decode_batch(frame)
    assert batch.sizes is None
    assert [len(each) for each in batch.samples()] == [size] * 100
    assert batch.size_of(98, 100) == 2 * size


def test_readdressed_frame_differs_only_in_its_destination() -> None:
    frame = encode_batch(KEY, ["b", "c"], 5, pack([1, 2], [b"x", b"yy"]))
    again = readdress(frame, ["c"])
    assert again == encode_batch(KEY, ["c"], 5, pack([1, 2], [b"x", b"yy"]))
    timed = readdress(frame, ["c"], 77)
    assert timed == encode_batch(KEY, ["c"], 5, pack([1, 2], [b"x", b"yy"]), sent_ns=77)
    assert readdress(timed, ["c"]) == again


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (messages.hello(ME, "f", "lan", "1"), messages.Hello(ME, "f", "lan", "1")),
        (messages.welcome("r", "1"), messages.Welcome("r", "1")),
        (messages.peers([]), messages.Peers(())),
        (messages.peers([ME, Peer("c", 2)]), messages.Peers((ME, Peer("c", 2)))),
        (messages.ping(7, -1), messages.Ping(7, -1)),
        (messages.pong(messages.Ping(7, 8), 9), messages.Pong(7, 8, 9)),
        (messages.subscribe("a", ME, 5, "t", "p"), messages.Subscribe(ME, 5, "t", "p")),
        (messages.subscribe("a", ME, 5, "t", "p", 7), messages.Subscribe(ME, 5, "t", "p", 7)),
        (messages.unsubscribe("a", ME, "t", "p"), messages.Unsubscribe(ME, "t", "p")),
        (
            messages.open_stream(Peer("b", 7), KEY, "t", "p", 4, True, 2),
            messages.Open(KEY, "t", "p", 4, True, 2, 7),
        ),
        (
            messages.ack("a", ME, KEY, 4, [(6, 7), (9, 9)]),
            messages.Ack(ME, KEY, 4, ((6, 7), (9, 9)), False, False),
        ),
        (messages.ack("a", ME, KEY, 0, unknown=True), messages.Ack(ME, KEY, 0, (), True, False)),
        (messages.close(["b"], KEY, 9), messages.Close(KEY, 9)),
        (messages.refused("no"), messages.Refused("no", None)),
        (messages.refused("no", KEY, ["b"]), messages.Refused("no", KEY)),
        (messages.alive(["b"], KEY), messages.Alive(KEY)),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, tuple) else "",
)
def test_message_is_read_back(frame: bytes, message: messages.Message) -> None:
    assert messages.decode_message(frame) == message


def test_batch_is_a_message_too() -> None:
    batch = messages.decode_message(encode_batch(KEY, ["b"], 1, pack([5], [b"x"])))
    assert isinstance(batch, Batch)
    assert list(batch.samples()) == [b"x"]


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_bundle_is_taken_apart(frames: list[bytes]) -> None:
    message = bundle(frames)
    assert is_bundle(message)
    assert unbundle(message) == frames
    for cut in range(1, 5):
        try:
            assert unbundle(message[:-cut]) == frames[:-1]
        except FrameError:
            continue


def test_frame_is_its_own_bundle() -> None:
    frame = messages.ping(1, 2)
    assert unbundle(frame) == [frame]
    assert bounds(frame) == [(0, len(frame))]
    assert not is_bundle(frame)


# ---------------------------------------------------------------- garbage


def test_another_protocol_version_is_told_apart() -> None:
    frame = b"\x02" + messages.ping(1, 2)[1:]
    with pytest.raises(FrameVersionError, match="protocol version 2 is not 1"):
        decode(frame)
    with pytest.raises(FrameVersionError):
        unbundle(b"\x02" + bundle([frame])[1:])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda frame: frame[:3], "too few"),
        (lambda frame: b"", "too few"),
        (lambda frame: frame[:2] + b"\x01" + frame[3:], "reserved"),
        (lambda frame: frame[:20], "truncated"),
        (lambda frame: frame[:4] + b"\xff\xff\xff\xff" + frame[8:], "truncated"),
        (lambda frame: frame[:8] + b"\xff" * 30 + frame[38:], "not protobuf"),
        (lambda frame: frame + b"x", "sizes promise"),
        (lambda frame: frame[:-1], "sizes promise"),
        (lambda frame: frame + bytes(MAX_FRAME_BYTES), "more than"),
        (lambda frame: messages.ping(1, 1), "not a batch"),
    ],
)
def test_spoilt_batch_is_refused(spoil: object, reason: str) -> None:
    frame = encode_batch(KEY, ["b"], 1, pack([1, 2, 3], [b"xxxx"] * 3))
    with pytest.raises(FrameError, match=reason):
        decode_batch(spoil(frame))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("count", 0, "out of range"),
        ("count", 2, "bytes of times"),
        ("count", (1 << 32) - 1, "out of range"),
        ("first", 0, "out of range"),
        ("first", (1 << 64) - 1, "out of range"),
        ("timestamps", b"1234567", "bytes of times"),
        ("sizes", b"12345678", "bytes of sizes"),
        ("sizes", b"\xff" * 12, "sizes promise"),
        ("uniform_size", 5, "sizes promise"),
        ("kinds", b"\x00", "kinds"),
        ("kinds", b"\x00\x01\x04", "kinds"),
    ],
)
def test_contradicting_columns_are_refused(field: str, value: object, reason: str) -> None:
    envelope, payload, _ = decode(encode_batch(KEY, ["b"], 1, pack([1, 2, 3], [b"xxxx"] * 3)))
    setattr(envelope.batch, field, value)
    with pytest.raises(FrameError, match=reason):
        decode_batch(encode(envelope, (payload,)))


def test_frame_without_a_known_message_is_refused() -> None:
    with pytest.raises(FrameError, match="no message"):
        messages.decode_message(encode(Envelope(to=["b"])))


@given(st.binary(max_size=80))
def test_noise_raises_frame_error_only(noise: bytes) -> None:
    header = b"\x01\x00\x00\x00" + (len(noise) // 2).to_bytes(4, "little")
    for frame in (noise, header + noise, b"\x01\x01" + noise, b"\x01\x01" + bytes(6) + noise):
        try:
            for member in unbundle(frame):
                messages.decode_message(member)
        except FrameError:
            pass


@given(batches, st.data())
def test_flipped_bytes_raise_frame_error_only(
    rows: list[tuple[bytes, int, int]], data: st.DataObject
) -> None:
    samples, timestamps, kinds = map(list, zip(*rows, strict=True))
    frame = bytearray(encode_batch(KEY, ["b"], 1, pack(timestamps, samples, bytes(kinds))))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = messages.decode_message(bytes(frame))
    except FrameError:
        return
    if isinstance(message, Batch):
        assert sum(map(len, message.samples())) == len(message.payload)
        assert len(message.samples()) == message.count == len(message.timestamps)


def test_header_says_where_the_envelope_ends() -> None:
    frame = encode_batch(KEY, ["b"], 1, pack([1], [b"payload"]))
    length = int.from_bytes(frame[4:8], "little")
    assert frame[HEADER_BYTES + length :] == b"payload"
