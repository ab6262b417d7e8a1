"""What goes to the broker at the other end of a gRPC link: over an express link beside it while
there is one, else over gRPC; never over both at a time, which would change the order. Used by
both ends: router_link.py and tunnel_server.py. Who makes express links stays out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.tunnel.express_link import ExpressLink
from gateway.tunnel.frames import is_bundle, unbundle
from gateway.tunnel.pump import Pump
from gateway.tunnel.traced import PassingFrame


class Lane:
    """`pump` is the queue in front of gRPC."""

    def __init__(self, pump: Pump) -> None:
        self.losses = 0
        """Express links that ended with what was on its way."""
        self._pump = pump
        self._express: ExpressLink | None = None
        self._is_over_express = False

    def attach(self, express: ExpressLink | None) -> None:
        """Beside gRPC there is this one now."""
        if express is self._express:
            return
        if self._is_over_express:
            self.losses += 1
        self._express = express
        self._is_over_express = False

    @property
    def has_express(self) -> bool:
        return self._express is not None

    @property
    def descriptor(self) -> int | None:
        """Of the express link frames go over."""
        express = self._chosen()
        return None if express is None else express.descriptor

    @property
    def queued_bytes(self) -> int:
        queued = self._pump.queued_bytes
        return queued if self._express is None else queued + self._express.queued_bytes

    @property
    def is_congested(self) -> bool:
        """Producers stop until it is drained."""
        return self._pump.is_congested or (self._express is not None and self._express.is_congested)

    @property
    def open_descriptor(self) -> int | None:
        """What frames may be written on ahead of turns, now; None: they may not."""
        express = self._chosen()
        return None if express is None else express.open_descriptor

    def send(self, frame: bytes) -> bool:
        """A frame or a bundle; False when it was dropped."""
        express = self._chosen()
        if express is None:
            return self._pump.put(frame)
        if type(frame) is PassingFrame:
            frame = frame.left(time.time_ns())
        elif is_bundle(frame):
            return express.send_together(unbundle(frame))
        return express.send(frame)

    def send_together(self, frames: Sequence[bytes]) -> bool:
        """Small frames, at the price of one where that makes a difference."""
        express = self._chosen()
        if express is not None:
            return express.send_together(frames)
        sent = [self._pump.put(frame) for frame in frames]
        return all(sent)

    def gather(self, is_gathered: bool) -> None:
        """What is sent from now on leaves together, when that is over; over gRPC all but the first
        does anyway."""
        if self._express is not None:
            self._express.gather(is_gathered)

    def send_rest(self) -> bool:
        """A frame has gone ahead, perhaps only in part; False when it is lost with its link."""
        return self._express is not None and self._express.send_rest()

    def _chosen(self) -> ExpressLink | None:
        """The express link once gRPC has nothing left."""
        if not self._is_over_express and self._express is not None and not self._pump.queued_bytes:
            self._is_over_express = True
        return self._express if self._is_over_express else None
