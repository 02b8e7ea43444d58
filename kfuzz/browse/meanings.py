"""The purpose of each field, in a sentence: of batches, records and messages. ``meanings.toml`` has the sentences."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kfuzz.annotate.messages import field_of
from kfuzz.annotate.parts import Part
from kfuzz.messages.model import Definition

# By what has the field: a batch, a record, a header of one, or a message.
_SENTENCES: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_IN_BATCH: Final = re.compile(r"(?:^|\.)batch\[\d+\](?P<inside>.*)$")


def meaning_of(part: Part, magic: int = 2, definition: Definition | None = None) -> str:
    """A sentence about the part; "" if nothing is known of it.

    ``magic`` is that of the part's batch: inner messages of magic 0 and 1 are not records. ``definition`` is that of
    the message that the part is in.
    """
    if batch := _IN_BATCH.search(part.path):
        return _in_batch(part, batch["inside"], magic)
    if definition is None:
        return ""
    if part.field in _SENTENCES["message"]:
        return _SENTENCES["message"][part.field]
    is_length = part.name.endswith(" length")
    field = field_of(definition, part.name.removesuffix(" length"))
    if field is None:
        return ""
    words = f"{'The length of a' if is_length else 'A'} field of type {field.type}, in versions {field.versions}"
    if str(field.nullable) != "none":
        words += f"; may be null in versions {field.nullable}"
    if field.tag is not None:
        words += f"; tag {field.tag} in versions {field.tagged}"
    return f"{words}. {field.about}".rstrip()


def _in_batch(part: Part, inside: str, magic: int) -> str:
    if part.heading:
        if not inside:
            return "A record batch, or before magic 2 a message."
        if inside.endswith(".payload"):
            return "What the compressed payload holds. Offsets count from its first byte here."
        return "A record." if magic == 2 else "A message inside the wrapper."
    if "].headers[" in inside:
        return _SENTENCES["header"].get(part.field, "")
    if ".records[" in inside and magic == 2:
        return _SENTENCES["record"].get(part.field, "")
    return _SENTENCES["batch"].get(part.field, "")
