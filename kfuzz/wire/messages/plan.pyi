from typing import Any

# The number that the compiled modules use for each type of a field.
KINDS: dict[str, int]

class Program:
    """A message at one version. ``plans`` describe its structs, the message's own fields first.

    ``text_errors`` is the error handler for text that is not UTF-8.
    """

    def __init__(self, name: str, version: int, plans: list[dict[str, Any]], text_errors: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
