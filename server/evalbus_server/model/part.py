"""The parts of an experiment."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Frozen, strict about types (text is no number), and closed: an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_alias=True, validate_by_name=True)
    FIRST_KEY: ClassVar[str] = ""
    """The key under which a text stands that somebody has written in the place of the part."""
