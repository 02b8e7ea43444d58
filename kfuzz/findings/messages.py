"""The finding codes for messages; ``findings.records`` has those for record batches.

This module is in the layer below ``kfuzz.messages``, because the values of control records are messages too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kfuzz.findings.model import Code, Finding, Profile

if TYPE_CHECKING:
    from kfuzz.wire.messages import Note

# For each code: Kafka's severity, the requirement that it breaks, and its sentence.
CODES: Final[Mapping[str, Code]] = {
    "bool-not-0-or-1": Code("deviation", "MSG-BOOL-1", "the flag is {found}; it must be 0 or 1"),
    "bytes-after-message": Code("deviation", "MSG-FIELDS-1", "{found} bytes follow the message"),
    "count-exceeds-message": Code(
        "fatal", "MSG-ARRAY-1", "the array has {found} elements, and {allowed} bytes are left"
    ),
    "count-too-large": Code("fatal", "MSG-ARRAY-1", "the array has {found} elements; Kafka reads at most {allowed}"),
    "length-below-minus-one": Code("deviation", "MSG-NULL-1", "the length is {found}; null is {allowed}"),
    "length-exceeds-message": Code("fatal", "MSG-BYTES-1", "the length is {found}, and {allowed} bytes are left"),
    "message-cut": Code("fatal", "MSG-FIELDS-1", "{allowed} bytes are needed here, and {found} are left"),
    "nested-too-deep": Code("fatal", None, "structs are nested {found} levels deep; at most {allowed} are allowed"),
    "null-not-allowed": Code(
        "fatal", "MSG-NULL-2", "the length is {found}, which means null; this version does not allow null here"
    ),
    "string-not-utf8": Code("deviation", "MSG-STRING-1", "the {found} bytes of the text are not UTF-8"),
    "string-too-long": Code("fatal", "MSG-STRING-2", "the text takes {found} bytes; at most {allowed} are allowed"),
    "tag-count-exceeds-message": Code(
        "fatal", "MSG-TAG-1", "there are {found} tagged fields, and {allowed} bytes are left"
    ),
    "tag-count-too-large": Code("fatal", "MSG-TAG-1", "there are {found} tagged fields; Kafka reads at most {allowed}"),
    "tag-not-ascending": Code("deviation", "MSG-TAG-1", "the tag is {found}; here it must be at least {allowed}"),
    "tag-not-in-version": Code("fatal", "MSG-TAG-2", "tag {found} belongs to other versions"),
    "tag-repeated": Code("deviation", "MSG-TAG-1", "tag {found} is repeated"),
    "tag-size-exceeds-message": Code(
        "fatal", "MSG-TAG-1", "the tagged field has {found} bytes, and {allowed} are left"
    ),
    "tag-size-mismatch": Code("deviation", "MSG-TAG-1", "the tagged field claims {found} bytes; it has {allowed}"),
    "tag-unknown": Code("deviation", "MSG-TAG-3", "tag {found} is unknown"),
    "varint-overlong": Code(
        "deviation", "MSG-COMPACT-1", "the varint of {found} bytes is longer than needed, or exceeds 32 bits"
    ),
    "varint-too-long": Code(
        "fatal", "MSG-COMPACT-1", "the varint takes {found} bytes or more; at most {allowed} are allowed"
    ),
}
# The documents require this: a reader that does not know a tag keeps or skips it. So no profile refuses it.
_NEVER_REFUSED: Final = frozenset({"tag-unknown"})


def from_message_note(name: str, note: Note, profile: Profile) -> Finding:
    """The finding for a ``note`` that the walk made in the message called ``name``."""
    code, at, found, allowed, steps = note
    path = name + "".join(f".{step}" + (f"[{element}]" if element >= 0 else "") for step, element in steps)
    known = CODES[code]
    severity = "deviation" if code in _NEVER_REFUSED else known.severity(profile, "consumer")
    return Finding(code, severity, at, path, known.requirement, known.sentence.format(found=found, allowed=allowed))
