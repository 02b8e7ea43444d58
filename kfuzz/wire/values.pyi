from collections.abc import Iterable
from typing import Any, Final

# The name that stands for what a struct has of tags that its version does not know.
UNKNOWN_TAGGED_FIELDS: Final = "_unknownTaggedFields"

class Keyed(list[dict[str, Any]]):
    """The elements of an array that has map keys, in their order; ``find`` looks one up in O(1).

    >>> topics = Keyed([{"name": "a", "id": 1}, {"name": "b", "id": 2}], ("name",))
    >>> topics.find(name="b")
    {'name': 'b', 'id': 2}
    """

    def __init__(self, elements: Iterable[dict[str, Any]] = (), keys: tuple[str, ...] = ()) -> None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    def find(self, **values: Any) -> dict[str, Any] | None:
        """The first element with these values of all its keys, or None. ``UsageError`` where they are other keys."""

class KeyedTuple(tuple[StructValue, ...]):
    """The same where structs are objects."""

    keys: tuple[str, ...]
    def find(self, **values: Any) -> StructValue | None: ...

class StructValue:
    """A struct of a message as an object: an attribute for each field of its version, by the definition's name.

    A reader makes it; nothing in it can be changed, and arrays are tuples. Numbers stand in it as C has them; one is
    made each time that it is asked for. In a flexible version ``_unknownTaggedFields`` is there, too: a tuple of pairs
    of tag and bytes. Two are equal if their names and values are. Each struct of a schema has a type of its own, whose
    ``__match_args__`` are the names in their order. Fields that the version lacks are attributes too, with their
    defaults, and are not among those names.
    """

    __match_args__: tuple[str, ...]
    def __getattr__(self, name: str) -> Any: ...
    def to_dict(self) -> dict[str, Any]:
        """The fields of its version in dicts and lists, which can be changed, copied and pickled."""
