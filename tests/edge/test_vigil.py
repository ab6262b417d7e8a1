"""Processors are kept awake while samples of strict deadlines come, and no longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge_broker.vigil import Vigil
from gateway.observe.metrics import BrokerMetrics


class _World:
    def __init__(self, device: Path) -> None:
        self.metrics = BrokerMetrics("edge", "1")
        self.device = device
        self.vigil = Vigil(0.01, self.metrics, device)

    @property
    def is_held(self) -> bool:
        open_files = {Path(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")}
        is_open = any(os.path.realpath(each) == str(self.device) for each in open_files)
        assert (b"ddswan_processors_awake 1.0" in self.metrics.render()) == is_open
        return is_open


@pytest.fixture
def world(tmp_path: Path) -> _World:
    device = tmp_path / "latency"
    device.touch()
    return _World(device)


def test_held_from_the_first_sample_until_a_while_after_the_last(world: _World) -> None:
    world.vigil.look(0, 100.0)
    assert not world.is_held
    world.vigil.look(1, 101.0)
    assert world.is_held
    assert world.device.read_bytes() == bytes(4)
    world.vigil.look(2, 102.0)
    world.vigil.look(2, 103.0)
    assert world.is_held
    world.vigil.look(2, 104.0)
    assert not world.is_held
    world.vigil.look(3, 105.0)
    assert world.is_held
    world.vigil.end()
    assert not world.is_held


def test_topics_that_go_do_not_count_as_samples(world: _World) -> None:
    world.vigil.look(1000, 100.0)
    world.vigil.look(400, 101.0)
    world.vigil.look(400, 102.0)
    assert not world.is_held
    world.vigil.look(401, 103.0)
    assert world.is_held
    world.vigil.end()


def test_who_may_not_is_told_once(world: _World, caplog: pytest.LogCaptureFixture) -> None:
    world.device.unlink()
    for second in range(5):
        world.vigil.look(second, 100.0 + second)
        assert not world.is_held
    told = [record for record in caplog.records if record.name == "ddswan.edge.vigil"]
    assert [record.levelname for record in told] == ["WARNING"]
