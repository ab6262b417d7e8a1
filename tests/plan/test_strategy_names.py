"""The configuration offers exactly the strategies there are."""

from __future__ import annotations

from typing import get_args

import pytest

from gateway.config import Router
from gateway.plan.strategies import choose_strategy

NAMES = get_args(Router.model_fields["strategy"].annotation)


@pytest.mark.parametrize("name", NAMES)
def test_every_configurable_strategy_exists(name: str) -> None:
    assert choose_strategy(name, negligible_bytes_per_s=1.0).name == name


def test_no_other_name_is_known() -> None:
    assert len(NAMES) == 4
    with pytest.raises(KeyError):
        choose_strategy("most-topics", negligible_bytes_per_s=1.0)
