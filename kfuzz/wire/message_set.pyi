from collections.abc import Callable

from typing_extensions import Buffer

from kfuzz.wire.report import Note

# (offset, crc, magic, attributes, timestamp, key, (value_at, value_length), (start, end))
MessageTuple = tuple[int, int, int, int, int, bytes | None, tuple[int, int], tuple[int, int]]

def parse_message(data: Buffer, at: int, size: int) -> tuple[MessageTuple | None, list[Note]]:
    """The message of ``size`` bytes at ``at``, found whole by ``next_frame``; None with notes where it is refused."""

def parse_messages(payload: Buffer, objects: bool) -> tuple[bool, list[MessageTuple], list[Note]]:
    """The messages inside a wrapper's decompressed value: ``(ok, messages, notes)``."""

def encode_message(
    magic: int,
    offset: int,
    attributes: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    crc32: Callable[[memoryview], int],
) -> bytes:
    """A whole message of magic 0 or 1 with its offset and size in front. Mirrors ``LegacyRecord.write``."""
