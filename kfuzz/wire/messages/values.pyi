from collections.abc import Iterable
from typing import Any, Final

# The name under which a struct has the tagged fields that its version does not know.
UNKNOWN_TAGGED_FIELDS: Final = "_unknownTaggedFields"

class Keyed(list[dict[str, Any]]):
    """An array with map keys, as a list of dicts. ``find`` looks an element up in O(1).

    >>> from kfuzz.wire.messages.values import Keyed

    >>> topics = Keyed([{"name": "a", "id": 1}, {"name": "b", "id": 2}], ("name",))
    >>> topics.find(name="b")
    {'name': 'b', 'id': 2}
    """

    def __init__(self, elements: Iterable[dict[str, Any]] = (), keys: tuple[str, ...] = ()) -> None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    def find(self, **values: Any) -> dict[str, Any] | None:
        """The first element whose map keys have these values, or None. ``UsageError`` if other keys are given."""

class KeyedTuple(tuple[StructValue, ...]):
    """Like ``Keyed``, for structs that are objects."""

    keys: tuple[str, ...]
    def find(self, **values: Any) -> StructValue | None: ...

class StructValue:
    """A struct of a message as an object, with an attribute for each field.

    Only readers make such objects. They cannot be changed, and their arrays are tuples. Numbers are stored as C
    numbers; each access makes a Python number. In a flexible version, ``_unknownTaggedFields`` is a tuple of pairs of
    tag and bytes. Two objects are equal if their names and values are equal.

    Each struct of a schema has its own type. Its ``__match_args__`` are the names of the version's fields, in their
    order. Fields that the version lacks are attributes too, with their defaults, but are not in ``__match_args__``.
    """

    __match_args__: tuple[str, ...]
    def __getattr__(self, name: str) -> Any: ...
    def to_dict(self) -> dict[str, Any]:
        """The fields of its version as dicts and lists, which can be changed, copied and pickled."""
