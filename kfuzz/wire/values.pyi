from collections.abc import Iterable
from typing import Any, Final

# The name of the attribute or key with a struct's tagged fields that its version does not define.
UNKNOWN_TAGGED_FIELDS: Final = "_unknownTaggedFields"

class Keyed(list[dict[str, Any]]):
    """The elements of an array with map keys, in their order; ``find`` looks an element up in O(1).

    >>> topics = Keyed([{"name": "a", "id": 1}, {"name": "b", "id": 2}], ("name",))
    >>> topics.find(name="b")
    {'name': 'b', 'id': 2}
    """

    def __init__(self, elements: Iterable[dict[str, Any]] = (), keys: tuple[str, ...] = ()) -> None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    def find(self, **values: Any) -> dict[str, Any] | None:
        """The first element whose keys have these values, or None. ``UsageError`` unless exactly the keys are given."""

class KeyedTuple(tuple[StructValue, ...]):
    """The same for an array whose structs are objects."""

    keys: tuple[str, ...]
    def find(self, **values: Any) -> StructValue | None: ...

class StructValue:
    """A struct of a message as an object, with an attribute for each field of its version, named as in the definition.

    Only a reader creates it. It cannot be changed, and arrays are tuples. Numbers are stored as C types; each access
    creates a Python number. In a flexible version it also has ``_unknownTaggedFields``: a tuple of ``(tag, bytes)``
    pairs. Two structs are equal if their names and values are. Each struct of a schema has its own type, whose
    ``__match_args__`` are the names in their order. Fields that the version lacks are attributes too, with their
    defaults, but they are not among those names.
    """

    __match_args__: tuple[str, ...]
    def __getattr__(self, name: str) -> Any: ...
    def to_dict(self) -> dict[str, Any]:
        """The fields of its version as dicts and lists, which can be changed, copied and pickled."""
