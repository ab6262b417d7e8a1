"""The values and errors that cross the ZooKeeper door (zookeeper.py): session states, node
facts, the operations of a transaction, and the refusals a caller acts on.

Pure. Used by everybody in gateway/coordination.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import CoordinationError

ANY_VERSION = -1


class SessionState(StrEnum):
    """How the session with ZooKeeper is doing."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No connection; the session and its ephemeral nodes may still live."""
    LOST = "lost"
    """No session: its ephemeral nodes are gone or about to go. Also before the first one."""
    CLOSED = "closed"
    """Not started or stopped."""


@dataclass(frozen=True, slots=True)
class NodeStat:
    version: int
    """Counts the changes of the data."""
    czxid: int
    """The transaction that created the node: unique and growing."""
    ephemeral_owner: int
    """The session an ephemeral node lives in; 0 for a persistent one."""


@dataclass(frozen=True, slots=True)
class Check:
    """The transaction fails unless the node exists with this data version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


Operation = Check | Create | SetData | Delete


class NodeRefused(CoordinationError):
    """ZooKeeper refused an operation because of the state of one node; nothing was done."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class NoNode(NodeRefused):
    """The node, or the parent of a node to be made, does not exist."""


class NodeExists(NodeRefused):
    """A node to be made is there already."""


class NotEmpty(NodeRefused):
    """A node to be deleted has children."""


class BadVersion(NodeRefused):
    """Somebody else changed the node."""
