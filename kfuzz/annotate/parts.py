"""A part of a dump: some bytes, where they stand, and what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PREVIEW_SIZE", "Part", "preview", "scope_of"]

_SCOPE = re.compile(r".*\bbatch\[\d+\](?:\.payload(?=\.))?")
# Of a text or of bytes that are one, a dump shows so many.
PREVIEW_SIZE = 48


@dataclass(frozen=True, slots=True)
class Part:
    """``size`` bytes at ``at`` that are one field, or (``heading``) the beginning of something that has fields.

    ``data`` are the bytes themselves: of the buffer, or of a decompressed payload where ``path`` goes through one.
    """

    path: str
    field: str
    at: int
    data: bytes
    value: str
    heading: bool = False

    @property
    def depth(self) -> int:
        return self.path.count(".") + (not self.heading)


def scope_of(path: str) -> str:
    """Of a field's whole path, what it lies in: a batch, the decompressed payload of one, or neither ("").

    >>> scope_of("batch[0].payload.records[1].key"), scope_of("batch[0].payload")
    ('batch[0].payload', 'batch[0]')
    """
    found = _SCOPE.match(path)
    return found[0] if found else ""


def preview(payload: bytes | memoryview, span: tuple[int, int]) -> str:
    """The bytes as text where they are printable ASCII, else their number."""
    at, length = span
    head = bytes(payload[at : at + min(length, PREVIEW_SIZE)])
    if all(0x20 <= byte < 0x7F for byte in head):
        return repr(head.decode("ascii")) + ("…" if length > PREVIEW_SIZE else "")
    return f"{length} bytes"
