"""Reads and writes messages by their schemas. A schema is one version of a definition: a field list for each struct.

``schema`` is the entry point. ``plan`` holds the structs that the other modules share. ``checker`` checks bytes,
``reader`` makes values from checked bytes, ``writer`` makes bytes from values, and ``explainer`` finds the place of
each part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfuzz.wire.messages.checker import CODES
from kfuzz.wire.messages.schema import Schema

if TYPE_CHECKING:
    from kfuzz.wire.messages.checker import Note as Note
    from kfuzz.wire.messages.explainer import Place as Place

__all__ = ["CODES", "Schema"]
