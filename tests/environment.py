"""The environment of what tests start."""

from __future__ import annotations

import os


def environment(**more: str) -> dict[str, str]:
    """This process's, and more; without settings of ddswan, which would change what is tested."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDSWAN_")}
    return {**kept, **more}
