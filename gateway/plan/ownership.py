"""Which of a LAN's edges serves a topic: rendezvous hashing over the live edges, so that all of
them come to the same answer without talking, and a lost edge moves only its own topics. Called by
the edges on every view change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from gateway.model import EdgeInfo


def owner(topic: str, lan: str, edges: Iterable[EdgeInfo]) -> str | None:
    """The id of the edge of `lan` that serves `topic`; None when the LAN has no live edge."""
    candidates = (info.edge for info in edges if info.lan == lan)
    return max(candidates, key=lambda edge: (_weight(topic, edge), edge), default=None)


def _weight(topic: str, edge: str) -> bytes:
    # Edge ids never contain a NUL, so no two pairs hash the same text. A topic name from the
    # wire may hold a lone surrogate; it is hashed as it stands.
    text = f"{edge}\0{topic}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).digest()
