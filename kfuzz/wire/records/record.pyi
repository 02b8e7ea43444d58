# The docstring is in record.pyx, where ``help`` finds it.
from collections.abc import Sequence
from typing import ClassVar, final

@final
class Record:
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
