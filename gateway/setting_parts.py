"""What settings are made of: groups, and kinds of values, also as the one text of a variable or
flag. Used by the schemas (config.py, up_file.py), which say what settings there are.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESERVED = (".", "..", "zookeeper")


def _is_name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in _RESERVED:
        raise ValueError("must be 1 to 64 of the characters A-Z a-z 0-9 . _ - (not . or ..)")
    return text


def from_commas(raw: Any) -> Any:
    if isinstance(raw, str):
        return [part.strip() for part in raw.split(",") if part.strip()]
    return raw


def pairs_from_commas(raw: Any) -> Any:
    if not isinstance(raw, str):
        return raw
    pairs = [part.rpartition("=") for part in raw.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("must be PATTERN=VALUE[,PATTERN=VALUE]")
    return {pattern.strip(): value.strip() for pattern, _, value in pairs}


Globs = Annotated[tuple[str, ...], BeforeValidator(from_commas)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Shares = Annotated[dict[str, Share], BeforeValidator(pairs_from_commas)]
Name = Annotated[str, AfterValidator(_is_name)]
"""What may be a node name in the ZooKeeper tree."""
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Mode = Literal["single", "duplicate", "adaptive"]
Modes = Annotated[dict[str, Mode], BeforeValidator(pairs_from_commas)]


class Group(BaseModel):
    """A group of settings: unknown keys are refused and values never change."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, coerce_numbers_to_str=True
    )
