"""A part of a dump: some bytes, their offset, and their meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kfuzz.findings import Finding

_SCOPE = re.compile(r".*\bbatch\[\d+\](?:\.payload(?=\.))?")
# A dump shows at most this many characters of a string, or bytes of printable ASCII.
PREVIEW_SIZE = 48
# The bytes of a field that a line of a dump shows; a part has at least these.
SHOWN_BYTES = 64
# With bounds, a part keeps at most this many bytes of its field.
FIELD_BYTES_MAX = 32 << 10


@dataclass(frozen=True, slots=True)
class Part:
    """One field, or (if ``heading``) the heading of a batch, record, message or struct.

    ``data`` holds the field's bytes and ``at`` is their offset: in the buffer, or in the decompressed payload if
    ``path`` goes through one. ``value`` is the text that a dump shows. ``size`` is the field's size in bytes, and
    ``data`` may have only the first of them.

    A part with ``left_out`` replaces so many records, headers or messages, which are not shown.
    """

    path: str
    field: str
    at: int
    data: bytes
    value: str
    heading: bool = False
    cut_bytes: int = 0
    left_out: int = 0

    @property
    def size(self) -> int:
        return len(self.data) + self.cut_bytes

    @property
    def depth(self) -> int:
        return self.path.count(".") + (not self.heading)

    @property
    def name(self) -> str:
        """Its whole path."""
        return f"{self.path}.{self.field}" if self.field else self.path

    @property
    def payload(self) -> str:
        """The path of the decompressed payload that it is in, so that its offset counts from there; "" if in none."""
        return self.scope if self.scope.endswith(".payload") else ""

    @property
    def scope(self) -> str:
        """The scope of its path; its heading belongs to a payload too."""
        return scope_of(f"{self.path}.{self.field}")


@dataclass(slots=True)
class Bounds:
    """How much of a batch a dump has; 0 means all.

    - ``records``: the first ones of each batch or wrapper, and those around number ``around``.
    - ``headers``: the first ones of each record.
    - ``kept_bytes``: how many bytes the parts may keep together. Later ones keep the bytes that a line shows.
    """

    records: int = 0
    headers: int = 0
    kept_bytes: int = 0
    around: int | None = None
    left_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.left_bytes = self.kept_bytes

    def kept(self, data: bytes | memoryview, start: int, end: int) -> tuple[bytes, int]:
        """The bytes that a part keeps of ``data[start:end]``, and how many it leaves out."""
        size = max(end - start, 0)
        if not self.kept_bytes:
            return bytes(data[start:end]), 0
        most = min(size, FIELD_BYTES_MAX, max(self.left_bytes, SHOWN_BYTES))
        self.left_bytes -= most
        return bytes(data[start : start + most]), size - most


# No bounds: every byte has a part.
EVERYTHING = Bounds()


def scope_of(path: str) -> str:
    """The part of a field's path that names its batch or its batch's decompressed payload; "" if there is none.

    >>> scope_of("batch[0].payload.records[1].key"), scope_of("batch[0].payload")
    ('batch[0].payload', 'batch[0]')
    """
    found = _SCOPE.match(path)
    return found[0] if found else ""


def moved(finding: Finding, by: int, path: str) -> Finding:
    """The finding with another path, and ``by`` bytes further on unless it is in a decompressed payload."""
    is_inside = scope_of(finding.path).endswith(".payload")
    return replace(finding, at=finding.at if is_inside else finding.at + by, path=path)


def uvarint_size(data: bytes) -> int:
    """The bytes of the varint of at most 32 bits at the start of ``data``, also if it does not end."""
    longest = min(len(data), 5)
    return next((i + 1 for i, byte in enumerate(data[:longest]) if byte < 0x80), longest)


def preview(payload: bytes | memoryview, span: tuple[int, int]) -> str:
    """The bytes as text if they are printable ASCII, otherwise the number of bytes. ``span`` is (offset, length)."""
    at, length = span
    head = bytes(payload[at : at + min(length, PREVIEW_SIZE)])
    if all(0x20 <= byte < 0x7F for byte in head):
        return repr(head.decode("ascii")) + ("…" if length > PREVIEW_SIZE else "")
    return f"{length} bytes"
