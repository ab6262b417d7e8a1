"""The errors of the house. Leaf module: everybody may import it, it imports nobody.

Every error is one line that tells its reader what to do; `exit_code` is what the command line
returns for it (1: failed, 2: misuse).
"""

from __future__ import annotations


class DdswanError(Exception):
    """Base of every error this project raises on purpose."""

    exit_code = 1


class ConfigError(DdswanError):
    """The configuration or the command line is wrong; the user can mend it."""

    exit_code = 2


class CoordinationError(DdswanError):
    """ZooKeeper refused or could not do something."""


class CoordinationLost(CoordinationError):
    """The session to ZooKeeper is gone or suspended; what was asked may not have happened."""


class RecordError(DdswanError):
    """A znode's content cannot be understood."""


class FrameError(DdswanError):
    """A frame from the wire cannot be understood."""


class FrameVersionError(FrameError):
    """A frame speaks another version of the protocol."""


class LinkError(DdswanError):
    """A tunnel link could not be opened or served."""


class DdsError(DdswanError):
    """A DDS call failed."""


class TypeUnavailable(DdsError):
    """The type of a topic cannot be rebuilt here, so it cannot be bridged."""
