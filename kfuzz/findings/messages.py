"""What a finding in a message means, as ``findings`` says it of those in records.

It stands here, below ``kfuzz.messages``, because the values of control records are messages too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kfuzz.findings.model import Code, Finding, Profile

if TYPE_CHECKING:
    from kfuzz.wire.message import Note

__all__ = ["CODES", "from_message_note"]

# Kafka's severity of each, the requirement that it breaks, and its sentence.
CODES: Final[Mapping[str, Code]] = {
    "bool-not-0-or-1": Code("deviation", "MSG-BOOL-1", "the flag is {found}; it must be 0 or 1"),
    "bytes-after-message": Code("deviation", "MSG-FIELDS-1", "{found} bytes are left behind the message"),
    "count-exceeds-message": Code(
        "fatal", "MSG-ARRAY-1", "the array has {found} elements, and {allowed} bytes are left"
    ),
    "count-too-large": Code(
        "fatal", "MSG-ARRAY-1", "the array has {found} elements; {allowed} is the most that Kafka reads"
    ),
    "length-below-minus-one": Code("deviation", "MSG-NULL-1", "the length is {found}; only {allowed} says null"),
    "length-exceeds-message": Code("fatal", "MSG-BYTES-1", "the length is {found}, and {allowed} bytes are left"),
    "message-cut": Code("fatal", "MSG-FIELDS-1", "{allowed} bytes belong here, and {found} are left"),
    "nested-too-deep": Code("fatal", None, "structs stand {found} deep in one another; {allowed} is the most"),
    "null-not-allowed": Code(
        "fatal", "MSG-NULL-2", "the length is {found}, which is null; this version has no null here"
    ),
    "string-not-utf8": Code("deviation", "MSG-STRING-1", "the {found} bytes of the text are not UTF-8"),
    "string-too-long": Code("fatal", "MSG-STRING-2", "the text takes {found} bytes; {allowed} is the most"),
    "tag-count-exceeds-message": Code(
        "fatal", "MSG-TAG-1", "there are {found} tagged fields, and {allowed} bytes are left"
    ),
    "tag-count-too-large": Code(
        "fatal", "MSG-TAG-1", "there are {found} tagged fields; {allowed} is the most that Kafka reads"
    ),
    "tag-not-ascending": Code("deviation", "MSG-TAG-1", "tag {found} comes where {allowed} is the least"),
    "tag-not-in-version": Code("fatal", "MSG-TAG-2", "tag {found} is of other versions"),
    "tag-repeated": Code("deviation", "MSG-TAG-1", "tag {found} is there again"),
    "tag-size-exceeds-message": Code(
        "fatal", "MSG-TAG-1", "the tagged field has {found} bytes, and {allowed} are left"
    ),
    "tag-size-mismatch": Code(
        "deviation", "MSG-TAG-1", "the tagged field is said to have {found} bytes; it has {allowed}"
    ),
    "tag-unknown": Code("deviation", "MSG-TAG-3", "tag {found} is not known"),
    "varint-overlong": Code(
        "deviation", "MSG-COMPACT-1", "the number takes {found} bytes, more than it needs or can say"
    ),
    "varint-too-long": Code("fatal", "MSG-COMPACT-1", "the number takes {found} bytes or more; {allowed} is the most"),
}
# What the documents themselves allow, or ask for: whoever does not know a tag keeps or steps over it.
_NEVER_REFUSED: Final = frozenset({"tag-unknown"})


def from_message_note(name: str, note: Note, profile: Profile) -> Finding:
    """The finding for what a walk has noted of the message called ``name``."""
    code, at, found, allowed, steps = note
    path = name + "".join(f".{step}" + (f"[{element}]" if element >= 0 else "") for step, element in steps)
    known = CODES[code]
    severity = "deviation" if code in _NEVER_REFUSED else known.severity(profile, "consumer")
    return Finding(code, severity, at, path, known.requirement, known.sentence.format(found=found, allowed=allowed))
