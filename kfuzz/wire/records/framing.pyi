from collections.abc import Iterator

from typing_extensions import Buffer

from kfuzz.wire.io.report import Note

def next_frame(data: Buffer, at: int) -> tuple[int, int | None, list[Note]]:
    """Return ``(size_bytes, magic, notes)`` of the batch that begins at byte ``at``.

    ``size_bytes`` counts from ``at``; 0 is a partial tail (no error), -1 a frame that is refused, with its notes.
    ``IndexError`` if ``at`` lies outside of ``data``. Mirrors
    ``org.apache.kafka.common.record.ByteBufferLogInputStream``.
    """

def frames(data: Buffer, at: int = 0, *, any_magic: bool = False) -> Iterator[tuple[int, int, int]]:
    """Yield ``(at, size_bytes, magic)`` of each whole batch or message from byte ``at`` on.

    The walk stops at the end of the data, at a partial tail, or at a frame that is refused; :func:`next_frame` says
    which. ``any_magic`` makes it follow only the lengths, as a reader does inside a wrapper (mirrors
    ``AbstractLegacyRecordBatch.DataLogInputStream``). ``IndexError`` if ``at`` lies outside of ``data``.
    """
