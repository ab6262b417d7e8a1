"""Single samples of deadline topics over direct links, which take the shortcut, while everything
around them changes: who comes late, who leaves, writers that become others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import watched
from tests.e2e.traffic import assert_same_order, indices, leave, of, publish, subscribe
from tests.lab.fabric import Fabric
from tests.lab.namespaces import Lab
from tests.lab.process import wait_until
from tests.lab.wan import Wan

TOPICS = 4
OPTIONS = (f"--topics={TOPICS}", "--deadline-ms=200", "--durability=transient_local")
ENDLESS = ("--rate=100", "--count=1000000", "--stay-s=-1")
VISITS = 8


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    lans = ["a", "b", "c"]
    wan = Wan(direct=[("a", "b"), ("a", "c")], is_emulated=False)
    with Lab(*lans, wan=wan) as lab, watched(Fabric(lab, lans)) as running:
        yield running


def test_late_joiners_get_every_sample_while_lone_ones_go_ahead(fabric: Fabric) -> None:
    """Each is in the history they get first or in what follows it, and never in both."""
    steady = subscribe(fabric, "b", "lone", *OPTIONS)
    publisher = publish(fabric, "a", "lone", *OPTIONS, *ENDLESS)
    names = [f"lone{number}" for number in range(TOPICS)]
    steady.wait_for_line('"index": 100,', 30.0)
    for visit in range(VISITS):
        late = subscribe(fabric, "cb"[visit % 2], "lone", *OPTIONS)
        aims = {name: of(publisher, "written", name)[-1]["index"] + 20 for name in names}
        for name in names:
            late.wait_for_line(f'"{name}", "index": {aims[name]},', 20.0)
        late.terminate()
        for name in names:
            got = indices(late, name)
            assert_same_order(list(range(got[-1] + 1)), got)
    leave(publisher)
    for name in names:
        sent = [record["index"] for record in of(publisher, "written", name)]
        wait_until(lambda n=name, s=sent: indices(steady, n)[-1] == s[-1], 20.0, f"all of {name}")  # type: ignore[misc]
        assert_same_order(sent, indices(steady, name))
    steady.terminate()
