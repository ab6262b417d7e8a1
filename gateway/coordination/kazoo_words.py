"""Operations on nodes in kazoo's words, and its errors in ours. Called by zookeeper.py: the two are
the door, beyond which nobody knows kazoo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo import exceptions as kz
from kazoo.client import TransactionRequest

from gateway.coordination.nodes import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NodeRefused,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
)
from gateway.errors import CoordinationError, CoordinationLost

_LOST = (
    kz.ConnectionLoss,
    kz.SessionExpiredError,
    kz.OperationTimeoutError,
    kz.SessionMovedError,
    kz.RequestTimeoutError,
    kz.AuthFailedError,  # of the session: what may not be done with one node is NoAuthError
)
_REFUSED: dict[type[Exception], tuple[type[NodeRefused], str]] = {
    kz.NoNodeError: (NoNode, "does not exist or has no parent"),
    kz.NodeExistsError: (NodeExists, "exists already"),
    kz.NotEmptyError: (NotEmpty, "is not empty"),
    kz.BadVersionError: (BadVersion, "was changed by somebody else"),
}


def request_of(client: Any, operations: Sequence[Operation]) -> Any:
    """A transaction, not yet sent."""
    request = TransactionRequest(client)
    for operation in operations:
        match operation:
            case Check(path, version):
                request.check(path, version)
            case Create(path, data, ephemeral):
                request.create(path, data, ephemeral=ephemeral)
            case SetData(path, data, version):
                request.set_data(path, data, version)
            case Delete(path, version):
                request.delete(path, version)
    return request


def is_refusal(result: Any) -> bool:
    """Of what a transaction answers for one operation: whether it is why nothing was done. Those
    before and after it have only been taken back."""
    return isinstance(result, Exception) and not isinstance(
        result, kz.RolledBackError | kz.RuntimeInconsistency
    )


def translated(error: Exception, path: str) -> CoordinationError:
    """What we raise for it."""
    if isinstance(error, _LOST):
        return CoordinationLost(f"the connection to ZooKeeper broke while it worked on {path}")
    for kind, (refusal, what) in _REFUSED.items():
        if isinstance(error, kind):
            return refusal(f"{path} {what} in ZooKeeper", path)
    return CoordinationError(f"ZooKeeper refused to work on {path}: {type(error).__name__}")
