from typing_extensions import Buffer

class Scratch(Buffer):
    """Bytes that a writer has made, as a read-only buffer, until something else is made of them.

    Their memory serves the next writer once nobody refers to this one.
    """

    def __len__(self) -> int:
        """In bytes."""
