from typing import NamedTuple

from typing_extensions import Buffer

from kfuzz.wire.io.report import Note
from kfuzz.wire.io.scratch import Scratch
from kfuzz.wire.records.record import Record

class Message(NamedTuple):
    """A message of magic 0 or 1. ``value`` is where its value is and how long, ``extent`` where it begins and ends."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: tuple[int, int]
    extent: tuple[int, int]

def parse_message(data: Buffer, at: int, size: int) -> tuple[Message | None, list[Note]]:
    """Parse the message of ``size`` bytes at ``at``, a frame that ``next_frame`` found. None if it is refused; the
    notes say why.
    """

def parse_messages(payload: Buffer, most: int = 0) -> tuple[list[Message], int, int]:
    """The messages in a wrapper's decompressed value, up to the first refused one; how many they are, and their end.

    The list has at most ``most`` of them; 0 means all.
    """

def first_and_last(payload: Buffer) -> tuple[int, int] | None:
    """The offset fields of the first and last message in a wrapper, unchecked. None if Kafka reads no message."""

def encode_messages(
    records: list[Record], magic: int, base_offset: int, attributes: int, stamp: int | None = None
) -> Scratch:
    """Write ``records`` as messages, one after the other. Their offsets count from ``base_offset``.

    ``stamp`` (milliseconds), if given, replaces the timestamp of every record. Headers are not written. Raises
    ``EncodeError`` if a value does not fit its field. Mirrors ``LegacyRecord.write``.
    """

def encode_message(
    magic: int, offset: int, attributes: int, timestamp: int, key: Buffer | None, value: Buffer | None
) -> bytes:
    """Write one message of magic 0 or 1, preceded by its offset and size."""
