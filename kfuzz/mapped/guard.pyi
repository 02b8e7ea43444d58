import mmap
from typing import final

@final
class Guard:
    """Watches over a mapping until ``pause``, which must come before the memory is unmapped."""

    def __init__(self, data: mmap.mmap, *, is_writable: bool = False) -> None: ...
    @property
    def is_cut(self) -> bool:
        """Whether pages were lost and replaced by zeros."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
