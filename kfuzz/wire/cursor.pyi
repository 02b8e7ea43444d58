from typing_extensions import Buffer

# All else is for compiled callers.

def uvarint_in_front(data: Buffer) -> int:
    """The number that a buffer begins with, an unsigned varint of five bytes at most: below 0 where there is none.

    -1 says that it is cut, -2 that it is longer.
    """

def uvarint_of(data: Buffer, longest: int) -> tuple[int, int]:
    """``(number, size)`` of what a buffer begins with, an unsigned varint of ``longest`` bytes, ten at most.

    The size is -1 where it is cut, -2 where it is longer. What does not fit 64 bits is dropped.
    """

def uvarint(number: int) -> bytes:
    """The bytes of an unsigned varint of up to 64 bits: seven bits a byte, the lowest first, as few as it takes."""
