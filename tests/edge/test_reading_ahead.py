"""Express links whose wires are read ahead of turns by compiled code (inward.c), with frames it can
do nothing about: nothing is mixed up between what it has read and what is read in turns.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import closing

import pytest

from edge_broker.dds import shortcuts
from edge_broker.dds.samples import IS_COMPILED
from edge_broker.dds.shortcuts import IncomingAim
from tests.tunnel.express_parts import Edge, Turn, frame_to, run
from tests.tunnel.parts import until


@pytest.mark.parametrize("seed", range(4))
def test_floods_of_all_sizes_arrive_whole_and_in_order(seed: int) -> None:
    assert IS_COMPILED
    from edge_broker.dds import bulk

    async def test(turn: Turn) -> None:
        draw = random.Random(seed)
        sizes = [draw.choice((10, 1_000, 60_000, 140_000)) for _ in range(400)]
        frames = [frame_to("b", size) for size in sizes]
        async with Edge("a", turn) as a, Edge("b", turn, ahead=shortcuts.wires_ahead()) as b:

            def settle() -> None:
                for wire, chunk, _ in bulk.read():
                    b.reader.on_read(wire, chunk)

            b.reader.settle = settle
            a.want(b)
            await a.linked(b)
            for frame in frames:
                assert a.link(b).send(frame)
                if draw.random() < 0.3:
                    await asyncio.sleep(0)
            await until(lambda: len(b.frames) >= len(frames) or not b.links.link("a"))
            assert b.frames == frames
            a.links.converge({})

    with closing(IncomingAim(b"somebody's")) as aim:
        aim.set(1, 1)  # there is something to look for
        run(test)
