from collections.abc import Iterator

from typing_extensions import Buffer

from kfuzz.wire.report import Note

def next_frame(data: Buffer, at: int) -> tuple[int, int | None, list[Note]]:
    """Look at the batch that begins at byte ``at``: ``(size_bytes, magic, notes)``.

    ``size_bytes`` counts from ``at``; 0 is a partial tail (no error), -1 a frame that is refused, with its notes.
    Mirrors ``org.apache.kafka.common.record.ByteBufferLogInputStream``.
    """

def frames(data: Buffer, at: int = 0, *, any_magic: bool = False) -> Iterator[tuple[int, int, int]]:
    """The whole batches and messages from byte ``at`` on: ``(at, size_bytes, magic)`` of each.

    The walk ends at the end, at a partial tail, and at a frame that is refused; :func:`next_frame` says which it is.
    With ``any_magic`` lengths alone are followed, as a reader does inside a wrapper (mirrors
    ``AbstractLegacyRecordBatch.DataLogInputStream``). ``IndexError`` where ``at`` lies outside of ``data``.
    """
