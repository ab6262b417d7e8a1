"""Express links between edges over real sockets: who dials, which connection stays, loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from gateway.tunnel import messages
from gateway.tunnel.express import ExpressLinks
from gateway.tunnel.express_greeting import Candidate
from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import Frame
from tests.tunnel.parts import FABRIC, hello, run, until

LOOPBACK = "127.0.0.1:0"


class Edge:
    """The express links of an edge that keeps what it gets."""

    def __init__(
        self,
        edge: str,
        incarnation: int = 1,
        listen: str | None = LOOPBACK,
        most_links: int = 64,
        fabric: str = FABRIC,
        on_frame: Callable[[Frame], None] | None = None,
    ) -> None:
        self.edge = edge
        self.incarnation = incarnation
        self.frames: list[bytes] = []
        self.states: list[str] = []
        self.drained: list[str] = []
        self.failures: list[Exception] = []
        self.unknown: set[str] = set()
        self._take = on_frame or (lambda frame: self.frames.append(frame.raw))
        self.links = ExpressLinks(
            hello(edge, incarnation, fabric),
            listen=listen,
            advertise=None,
            is_known=lambda edge, _: edge not in self.unknown,
            on_frame=lambda _, frame: self._take(frame),
            on_state=self.states.append,
            on_drained=self.drained.append,
            on_failure=self.failures.append,
            most_links=most_links,
        )

    async def __aenter__(self) -> Self:
        self.links.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.links.close()
        assert self.failures == []

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.incarnation, self.links.candidates)

    def want(self, *others: Edge) -> None:
        self.links.converge({other.edge: other.candidate for other in others})

    def link(self, other: Edge) -> ExpressLink:
        link = self.links.link(other.edge)
        assert link is not None
        return link

    async def linked(self, other: Edge) -> None:
        """Until both ends have the same connection."""

        def is_linked() -> bool:
            here, there = self.links.link(other.edge), other.links.link(self.edge)
            return here is not None and there is not None and here.is_dialled != there.is_dialled

        await until(is_linked)


def test_both_dial_and_the_connection_of_the_lower_id_stays() -> None:
    async def test() -> None:
        async with Edge("a") as a, Edge("b") as b:
            a.want(b)
            b.want(a)
            await a.linked(b)
            await until(lambda: a.link(b).rtt_s and b.link(a).rtt_s)
            assert a.link(b).is_dialled
            frame = messages.refused("x", to=["b"])
            assert a.link(b).send(frame)
            await until(lambda: b.frames == [frame])

    run(test())
