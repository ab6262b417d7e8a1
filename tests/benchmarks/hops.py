"""What the hops of an express path take with nothing but sockets in between (tests/apps/hops.c):
the least any gateway could take on this machine now. Part of the latency benchmark.
"""

from __future__ import annotations

from pathlib import Path

from tests.apps.compiling import compiled
from tests.benchmarks.measure import Result
from tests.lab.fabric import Fabric

_SOURCE = Path(__file__).parents[1] / "apps" / "hops.c"
_COMPILE = ("gcc", "-std=gnu11", "-O2", "-Wall")
_IN_PORT, _OUT_PORT = "5000", "5001"
_FIRST_TCP_PORT = 5002


def measure(fabric: Fabric, rate_hz: float, seconds: float, warm_up_s: float, turn: int) -> Result:
    """From LAN a to LAN b over their direct link, at this rate; each turn has a port of its own."""
    program = str(compiled(_SOURCE, _COMPILE, ("-pthread",)))
    count, uncounted = round((seconds + warm_up_s) * rate_hz), round(warm_up_s * rate_hz)
    there, tcp_port = fabric.lab.express_address("b", "a"), str(_FIRST_TCP_PORT + turn)
    a, b = fabric.lab.lan("a"), fabric.lab.lan("b")
    subscriber = b.spawn([program, "sub", _OUT_PORT, str(count), str(uncounted)], name="hops-sub")
    subscriber.wait_for_line("ready")
    enters = b.spawn([program, "in", tcp_port, _OUT_PORT], name="hops-in")
    leaves = a.spawn([program, "out", _IN_PORT, there, tcp_port], name="hops-out")
    leaves.wait_for_line("ready")
    interval_us = round(1e6 / rate_hz)
    a.spawn([program, "pub", _IN_PORT, str(count), str(interval_us)], name="hops-pub")
    found = subscriber.wait_for_line(r"latency ([\d.]+) ([\d.]+) ([\d.]+)", seconds + 30.0)
    for process in (enters, leaves):
        process.kill()
    p50, p99, most = map(float, found.groups())
    return {"p50_us": p50, "p99_us": p99, "max_us": most, "count": count - uncounted}
