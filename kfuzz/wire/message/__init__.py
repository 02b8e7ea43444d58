"""Messages by their schemas. A schema is a definition at one version: a flat list of fields for each struct.

``plan`` holds the structs that the other modules share. ``checker`` checks bytes, ``reader`` turns checked bytes into
values, ``writer`` turns values into bytes, ``explainer`` lists the position of each part. ``schema`` is the interface
to all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfuzz.wire.message.checker import CODES
from kfuzz.wire.message.schema import Schema

if TYPE_CHECKING:
    from kfuzz.wire.message.checker import Note as Note
    from kfuzz.wire.message.explainer import Place as Place

__all__ = ["CODES", "Schema"]
