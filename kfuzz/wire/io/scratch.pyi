from typing_extensions import Buffer

class Scratch(Buffer):
    """A writer's output as a read-only buffer, for use before it is copied elsewhere.

    When the last reference to this object is dropped, the next writer reuses its memory.
    """

    def __len__(self) -> int:
        """The length in bytes."""
