from typing import Any

# The number of each type of a field, as the compiled modules use it.
KINDS: dict[str, int]

class Program:
    """A message at one version. ``plans`` describe its structs, the message's own fields first.

    ``text_errors`` is the error handler for strings that are not UTF-8.
    """

    def __init__(self, name: str, version: int, plans: list[dict[str, Any]], text_errors: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
