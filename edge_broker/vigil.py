"""Keeps the processors of the edge's machine awake while topics with very strict deadlines flow: to
wake one that rests takes as long as all that an edge does with a lone sample. Asked once a second
by app.py, if an operator wants it.
"""

from __future__ import annotations

import os
from pathlib import Path

from gateway.observe.logs import get_logger
from gateway.observe.metrics import BrokerMetrics

_log = get_logger("edge.vigil")

DEVICE = Path("/dev/cpu_dma_latency")
"""While a process has it open, Linux lets no processor rest so deeply that it takes longer to wake
than the microseconds written there. However the process ends, that ends with it."""
_NONE_US = (0).to_bytes(4, "little")
_LINGER_S = 1.5
"""A topic sends at least once within its deadline, which is a second at most."""


class Vigil:
    """Holds the device while samples come."""

    def __init__(self, deadline_s: float, metrics: BrokerMetrics, device: Path = DEVICE) -> None:
        """For topics with this deadline or a stricter one."""
        self.deadline_s = deadline_s
        self._device = device
        self._held: int | None = None
        self._samples = 0
        self._until_s = 0.0
        self._is_refused = False
        self._gauge = metrics.processors_awake

    def look(self, samples: int, now_s: float) -> None:
        """So many samples have passed by now of those such topics that there still are."""
        if samples > self._samples:
            self._until_s = now_s + _LINGER_S
        self._samples = samples
        if now_s >= self._until_s:
            self.end()
        elif self._held is None and not self._is_refused:
            self._begin()

    def _begin(self) -> None:
        try:
            self._held = os.open(self._device, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._held, _NONE_US)
        except OSError as error:
            self.end()
            self._is_refused = True
            _log.warning(
                "processors cannot be kept awake, samples of strict deadlines take longer; let the "
                "edge write to this device, or set express.awake_deadline_s to 0",
                device=str(self._device),
                reason=error.strerror,
            )
        else:
            self._gauge.set(1)
            _log.info("processors are kept awake while topics with strict deadlines flow")

    def end(self) -> None:
        """Processors may rest."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
            self._gauge.set(0)
            _log.info("processors may rest")
