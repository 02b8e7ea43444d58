"""Recognises by its first bytes a file that is given in place of record batches.

A verb that reads record batches asks this first: "0 batches and a partial tail" would be a kind verdict on a capture, a
compressed file or an index under another name. ``contents.toml`` has how such files begin. This module needs neither
numpy nor pyarrow.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.errors import UsageError
from kfuzz.findings import Finding, Profile
from kfuzz.findings.model import WHOLE
from kfuzz.findings.stored import stored_finding
from kfuzz.logs.stored import entry_struct, kind_by_content, kind_of
from kfuzz.text import printable
from kfuzz.wire.walk.search import Search

if TYPE_CHECKING:
    from typing_extensions import Buffer

CAPTURE: Final = "not record batches; `kfuzz show --frames` reads it"
PACKED: Final = "not record batches; unpack it first"
OTHER: Final = "not record batches; name a log segment, or the bytes of a fetch"
GZIP: Final = b"\x1f\x8b"
# The bytes at the start of a file, its name, and what to do.
SIGNATURES: Final = tuple(
    (start.encode("latin-1"), title, {"capture": CAPTURE, "packed": PACKED, "other": OTHER}[kind])
    for kind, titles in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
    for title, starts in titles.items()
    for start in starts
)
CAPTURES: Final = tuple(start for start, _, what in SIGNATURES if what is CAPTURE)
# A damaged offset may begin with so few bytes of a signature by chance; then a sound batch decides.
SHORT_BYTES: Final = 2
TAR_AT: Final = 257
TAR: Final = b"ustar"
# So many bytes of a text are looked at.
TEXT_BYTES: Final = 4096
# The start of JSON's objects and arrays; a line of a broker's own log begins with a date in brackets.
JSON: Final = re.compile(r"""\s*(\{\s*["}]|\[\s*([\[{"\]]|-?\d[\d.eE+-]*\s*[,\]]))""")
# A longer text has more than one word.
WORD_CHARACTERS: Final = 64
# A checkpoint is not larger.
CHECKPOINT_BYTES: Final = 1 << 20
# Kafka's times, in milliseconds: from the year 2000 on, up to 2200.
TIMES_MS: Final = range(946_684_800_000, 7_258_118_400_000)
# So many entries of an index are looked at; fewer of the sparse ones could be the start of a batch.
ENTRIES_MOST: Final = 1000
ENTRIES_LEAST: Final = 2
# How the offset of a batch begins: none has reached 2 ** 48, and a wrong one may be negative.
OFFSET_TOPS: Final = (b"\x00\x00", b"\xff\xff")


def require_batches(name: str | Path, data: Buffer) -> None:
    """Raise ``UsageError`` if ``data``, the bytes of the file ``name`` (``-`` for standard input), are not record
    batches. The sentence says what they are, and what reads them.

    A damaged log passes: one with a sound batch anywhere, or with a beginning that could be a batch. An empty file
    passes too.
    """
    shown = "standard input" if str(name) == "-" else printable(str(name))
    if str(name) != "-" and (kind := kind_of(str(name))) is not None:
        raise UsageError(f"{shown} is {kind.title}, and has no record batches; `kfuzz show {shown}` prints its entries")
    if (found := what_else(data)) is not None:
        raise UsageError(f"{shown} {found}")


def what_else(data: Buffer) -> str | None:
    """A name for ``data`` that is no record batches, as the end of a sentence; None if it may be record batches."""
    view = memoryview(data).cast("B")
    search = Search(view)
    if not len(view) or search.holds(0):
        return None
    head = bytes(view[:TEXT_BYTES])
    for signature, title, remedy in SIGNATURES:
        if head.startswith(signature) and (len(signature) > SHORT_BYTES or search.find(0, len(view)) is None):
            return f"is {title}, {remedy}"
    if head[TAR_AT:].startswith(TAR):
        return f"is a tar archive, {PACKED}"
    # An uncertain guess must not hide a batch.
    guess = _kafkas_own(view) or _text(head)
    return None if guess is None or search.find(0, len(view)) is not None else guess


def not_batches(data: Buffer, profile: Profile) -> Finding | None:
    """A finding if ``data``, in which no batch was found, are not the start of a batch that was cut off."""
    other = what_else(data)
    if other is None and not begins_like_batch(data):
        other = "has no batch, and does not begin like one"
    return None if other is None else stored_finding("not-record-batches", WHOLE, 0, profile, detail=other)


def begins_like_batch(data: Buffer) -> bool:
    """Whether ``data`` may be the beginning of a batch, by its offset."""
    top = bytes(memoryview(data).cast("B")[: len(OFFSET_TOPS[0])])
    return any(one.startswith(top) for one in OFFSET_TOPS)


def _kafkas_own(view: memoryview) -> str | None:
    """One of the files beside a segment, under another name."""
    for suffix, title, least, fits, rising in INDEXES:
        layout = entry_struct(suffix)
        filled = view[: layout.size * ENTRIES_MOST]
        if len(view) % layout.size:
            continue
        rows = list(layout.iter_unpack(filled))
        # A broker makes the index of its active segment as large as it may become.
        while len(rows) > 1 and not any(rows[-1]):
            rows.pop()
        if len(rows) >= least and all(fits(*row) for row in rows) and all(_rises(rows, *one) for one in rising):
            named = f"00000000000000000000{suffix}"
            return f"looks like {title}, and has no record batches; give it its own name, such as {named}"
    kind = kind_by_content(bytes(view)) if len(view) <= CHECKPOINT_BYTES else None
    return None if kind is None else f"is {kind.title}, and has no record batches; `kfuzz show` prints its entries"


def _rises(rows: list[tuple[int, ...]], column: int, least: int) -> bool:
    """Whether the column grows by at least so much from each row to the next."""
    return all(after[column] - before[column] >= least for before, after in pairwise(rows))


# Of each kind of index: suffix, title, fewest entries, what an entry must be, and the least by which columns rise.
INDEXES: Final[tuple[tuple[str, str, int, Callable[..., bool], tuple[tuple[int, int], ...]], ...]] = (
    (".timeindex", "a time index", 1, lambda time, offset: time in TIMES_MS and offset >= 0, ((0, 1), (1, 0))),
    (
        ".txnindex",
        "a transaction index",
        1,
        lambda version, producer, first, last, stable: version == 0 <= producer and 0 <= first <= last and stable >= 0,
        ((3, 1),),
    ),
    (".index", "an offset index", ENTRIES_LEAST, lambda offset, position: min(offset, position) >= 0, ((0, 1), (1, 1))),
)


def _text(head: bytes) -> str | None:
    """A text, by its first bytes."""
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The last character may be cut.
        if len(head) < TEXT_BYTES or error.start < len(head) - 3:
            return None
        text = head[: error.start].decode("utf-8-sig")
    if not all(char.isprintable() or char in "\t\r\n\f\x1b" for char in text):
        return None
    if JSON.match(text):
        return f"is JSON, {OTHER}"
    # One letter again and again is damage.
    return f"is a text, {OTHER}" if len(text) < WORD_CHARACTERS or len(text.split()) > 1 else None


def is_capture(data: Buffer) -> bool:
    """Whether these are the bytes of a capture of packets, perhaps packed by gzip."""
    start = bytes(memoryview(data)[:TEXT_BYTES])
    if start.startswith(GZIP):
        try:
            start = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, 4)
        except zlib.error:
            return False
    return start.startswith(CAPTURES)
