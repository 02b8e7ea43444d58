"""Reads the records of Kafka log directories as Arrow batches. docs/dataframes.md is the guide.

``segments`` finds segments and divides them by their indexes; ``reading`` reads them.
"""

from kfuzz.corpora.logs.reading import COLUMNS, MODES, read, read_slice, schema
from kfuzz.corpora.logs.segments import EVERYTHING, Segment, Selection, Slice, find_segments, slices

__all__ = [
    "COLUMNS",
    "EVERYTHING",
    "MODES",
    "Segment",
    "Selection",
    "Slice",
    "find_segments",
    "read",
    "read_slice",
    "schema",
    "slices",
]
