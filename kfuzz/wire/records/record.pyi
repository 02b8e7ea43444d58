from collections.abc import Sequence
from typing import ClassVar, final

@final
class Record:
    """One record.

    ``timestamp`` is in milliseconds, None for magic 0. Header keys are bytes, because Kafka does not check that they
    are UTF-8. ``EncodeError`` if the offset, the timestamp or the attributes do not fit their fields. Mirrors
    ``org.apache.kafka.common.record.Record``.
    """

    __match_args__: ClassVar[tuple[str, ...]]
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]]
    attributes: int

    def __init__(
        self,
        offset: int,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] = (),
        attributes: int = 0,
    ) -> None: ...
