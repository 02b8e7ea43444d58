from typing_extensions import Buffer

# All else is for compiled callers.

def uvarint_in_front(data: Buffer) -> int:
    """The number that a buffer begins with, an unsigned varint of five bytes at most: below 0 where there is none.

    -1 says that it is cut, -2 that it is longer.
    """
