from kfuzz.mutate.dice import Dice

def scramble(data: bytes, dice: Dice) -> bytes:
    """``data`` with one to three changes that ignore its structure; at most 120 bytes longer."""

def varlong(value: int, smallest: int = 1) -> bytes:
    """The zigzag varint of the int64 ``value``; if shorter than ``smallest`` bytes (at most 16), stretched to them."""

def record_spans(payload: bytes) -> list[tuple[int, int]]:
    """The records of magic 2 in a decompressed payload as [start, end) pairs, up to the first unusable length."""

def record_numbers(record: bytes) -> list[tuple[int, int, int]]:
    """The varints of one record of magic 2 as ``(at, size_bytes, value)``, up to the first unreadable one.

    The record's length is the first.
    """

def seal(frame: bytes, length: bool, crc: bool) -> bytes:
    """One batch or message with its batch length, its CRC, or both corrected."""

def frame_spans(data: bytes) -> list[tuple[int, int]]:
    """The whole batches and messages in ``data`` as [start, end) pairs, up to the first unusable length."""
