from typing_extensions import Buffer

# The rest of the module is for compiled callers.

def uvarint_in_front(data: Buffer) -> int:
    """The unsigned varint of at most five bytes at the start of a buffer; -1 if it is cut off, -2 if it is longer."""

def uvarint_of(data: Buffer, longest: int) -> tuple[int, int]:
    """``(number, size)`` of the unsigned varint of at most ``longest`` bytes at the start of a buffer.

    The size is in bytes: -1 if the varint is cut off, -2 if it is longer. Bits above the 64th are dropped.
    ``ValueError`` unless ``longest`` is 1 to 10.
    """

def uvarint(number: int) -> bytes:
    """Encode a number of up to 64 bits as an unsigned varint: seven bits a byte, the lowest first, no spare bytes."""
