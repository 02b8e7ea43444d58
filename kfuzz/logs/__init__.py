"""Any log directory of Kafka: its segments as Arrow batches, lines, findings and copies.

``segments`` finds segments, ``slicing`` divides them along their indexes, ``reading`` reads them (docs/dataframes.md).
``transactions`` says which records were aborted. ``printing``, ``checking``, ``salvaging`` and ``comparing`` serve the
verbs ``cat``, ``check``, ``salvage`` and ``diff`` (docs/files.md); ``latest`` has the last value of each key.
``producers``, ``internal_topics`` and ``metadata`` serve ``state``. ``stored``, ``snapshot`` and ``contents`` know the
files beside segments, ``whole`` judges them together, and ``index_walk`` rebuilds indexes. Nothing here knows a
workload.

Names are imported on first use, because only some of the modules need pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kfuzz.logs.reading import COLUMNS, MODES, read, read_slice, schema
    from kfuzz.logs.segments import EVERYTHING, Segment, Selection, Slice, find_segments
    from kfuzz.logs.slicing import ISOLATIONS, Isolation, require_isolation, slices
    from kfuzz.places import opened

__all__ = [
    "COLUMNS",
    "EVERYTHING",
    "ISOLATIONS",
    "MODES",
    "Isolation",
    "Segment",
    "Selection",
    "Slice",
    "find_segments",
    "opened",
    "read",
    "read_slice",
    "require_isolation",
    "schema",
    "slices",
]

# The first ones need no pyarrow.
_MODULES: Final = ("kfuzz.places", "kfuzz.logs.segments", "kfuzz.logs.slicing", "kfuzz.logs.reading")


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        if hasattr(found := import_module(module), name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
