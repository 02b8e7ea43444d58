from typing_extensions import Buffer

from kfuzz.wire.report import Note

FRAME_LAYOUT: tuple[tuple[str, int, int], ...]
LOG_OVERHEAD: int

def next_frame(data: Buffer, at: int) -> tuple[int, int | None, list[Note]]:
    """Look at the batch that begins at byte ``at``: ``(size_bytes, magic, notes)``.

    ``size_bytes`` counts from ``at``; 0 is a partial tail (no error), -1 a frame that is refused, with its notes.
    Mirrors ``org.apache.kafka.common.record.ByteBufferLogInputStream``.
    """
