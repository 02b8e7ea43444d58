from kfuzz.mutate.dice import Dice

def scramble(data: bytes, dice: Dice) -> bytes:
    """``data`` with one to three changes, blind to what the bytes mean; at most 120 bytes longer."""

def varlong(value: int, smallest: int = 1) -> bytes:
    """The zigzag varint of the int64 ``value``, stretched to ``smallest`` bytes (at most 16) where it is shorter."""

def record_spans(payload: bytes) -> list[tuple[int, int]]:
    """Where the records of magic 2 stand in a decompressed payload: [start, end) pairs, as far as they go."""

def record_numbers(record: bytes) -> list[tuple[int, int, int]]:
    """The varints of one record of magic 2, its length first: ``(at, size_bytes, value)`` each, as far as they go."""

def seal(frame: bytes, length: bool, crc: bool) -> bytes:
    """One batch or message with its batch length, its CRC, or both mended."""

def frame_spans(data: bytes) -> list[tuple[int, int]]:
    """Where whole batches and messages stand in ``data``: [start, end) pairs, as far as lengths can be followed."""
