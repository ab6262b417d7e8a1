"""Compiles the Fast DDS application against Debian's library."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.apps.compiling import compiled

SOURCE = Path(__file__).with_name("hello.cpp")
_COMPILE = ("g++", "-std=c++17", "-O1", "-Wall")
_LIBRARIES = ("-lfastrtps", "-lfastcdr", "-pthread")
_HEADER = Path("/usr/include/fastdds/dds/domain/DomainParticipant.hpp")


class CompilerMissing(Exception):
    """What the Fast DDS application needs is not installed; the message says what to install."""


def build() -> Path:
    """The executable."""
    if shutil.which("g++") is None or not _HEADER.exists():
        raise CompilerMissing(
            "the Fast DDS application needs a compiler and the library: "
            "apt-get install g++ libfastrtps-dev"
        )
    return compiled(SOURCE, _COMPILE, _LIBRARIES)
