"""Messages by their schemas. A schema is a definition at one version, flat: a list of fields for each struct.

``plan`` holds the structs that the other modules share. ``checker`` walks over bytes, ``reader`` makes values of what
was checked, ``writer`` makes bytes of values, ``explainer`` says where everything stands; ``schema`` is their door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfuzz.wire.message.checker import CODES
from kfuzz.wire.message.schema import Schema

if TYPE_CHECKING:
    from kfuzz.wire.message.checker import Note as Note
    from kfuzz.wire.message.explainer import Place as Place

__all__ = ["CODES", "Schema"]
