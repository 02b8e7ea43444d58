from kfuzz.mutate.dice import Dice

# The kinds of changes of record batches, and of messages; docs/mutate.md explains each.
KINDS: tuple[str, ...]
MESSAGE_KINDS: tuple[str, ...]

class Engine:
    """The native mutator. Several threads may share an engine; they take turns."""

    def __init__(self, repair: float = 1.0, produced: bool = False) -> None:
        """``repair``: the probability of each repair. ``produced``: repair keeps the form of a Produce request."""

    def mutate(self, data: bytes, other: bytes, dice: Dice, size_max: int) -> bytes:
        """``data`` after one to three changes and repair, at most ``size_max`` bytes, or as many as ``data`` has.

        ``other`` is an input from which parts are taken; it may be empty. Equal arguments give equal bytes.
        """

    def mutate_message(
        self, data: bytes, other: bytes, schema: bytes, dice: Dice, size_max: int, kind: str | None = None
    ) -> bytes:
        """The message ``data`` after one to three changes; or after one of this ``kind``, if it has a part for it.

        ``schema`` is ``Schema.flat()``, and ``other`` a message of the same schema.
        """

    def scramble(self, data: bytes, dice: Dice, size_max: int) -> bytes:
        """``data`` after one to three changes that ignore its structure."""

    @property
    def kinds(self) -> dict[str, int]:
        """How often each kind of change was applied."""

    # For tests: what the mutator writes, other readers must read, and what it opens must be what they read.
    def packed(self, codec: int, magic: int, payload: bytes, dice: Dice) -> bytes: ...
    def opened(self, codec: int, magic: int, data: bytes) -> bytes | None: ...

def seal(frame: bytes, length: bool, crc: bool) -> bytes:
    """``frame``, which is one whole batch or message, with a correct batch length and CRC.

    ``length`` and ``crc`` say which of the two to correct. A frame too short to hold them is returned unchanged.
    """
