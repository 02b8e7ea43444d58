"""Reads the records of Kafka log directories as Arrow batches. docs/dataframes.md is the guide.

``segments`` finds segments, ``slicing`` divides them along their indexes, ``reading`` reads them. ``transactions`` says
which records were aborted.
"""

from kfuzz.corpora.logs.reading import COLUMNS, MODES, read, read_slice, schema
from kfuzz.corpora.logs.segments import EVERYTHING, Segment, Selection, Slice, find_segments
from kfuzz.corpora.logs.slicing import ISOLATIONS, Isolation, require_isolation, slices

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
    "read",
    "read_slice",
    "require_isolation",
    "schema",
    "slices",
]
