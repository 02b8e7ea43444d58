from typing_extensions import Buffer

from kfuzz.wire.record import Record
from kfuzz.wire.report import Note
from kfuzz.wire.scratch import Scratch

# (offset, crc, magic, attributes, timestamp, key, (value_at, value_length), (start, end))
MessageTuple = tuple[int, int, int, int, int, bytes | None, tuple[int, int], tuple[int, int]]

def parse_message(data: Buffer, at: int, size: int) -> tuple[MessageTuple | None, list[Note]]:
    """The message of ``size`` bytes at ``at``, found whole by ``next_frame``; None with notes where it is refused."""

def parse_messages(payload: Buffer) -> list[MessageTuple]:
    """The messages inside a wrapper's decompressed value, up to the first that is refused."""

def first_and_last(payload: Buffer) -> tuple[int, int] | None:
    """The offsets of the first and the last message in a wrapper, whatever they say; None where Kafka reads none."""

def encode_messages(
    records: list[Record], magic: int, base_offset: int, attributes: int, stamp: int | None = None
) -> Scratch:
    """The messages of ``records``, one after the other; their offsets count from ``base_offset``.

    ``stamp`` is the timestamp of all (milliseconds), where they have not their own. Headers are not written.
    ``EncodeError`` where a value does not fit its field. Mirrors ``LegacyRecord.write``.
    """

def encode_message(
    magic: int, offset: int, attributes: int, timestamp: int, key: Buffer | None, value: Buffer | None
) -> bytes:
    """One message of magic 0 or 1 with its offset and size in front."""
