"""Choosing records by key, headers and null values, or as the last one of each key; columns of single headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfuzz.logs.arrow_rows import texts_of
from kfuzz.logs.latest import Latest
from kfuzz.logs.lines import matching, values_of

if TYPE_CHECKING:
    from kfuzz.schemas.values import Schemas, Side

# The name of a column with the values of one header begins so.
HEADER: Final = "header."
# Columns that have a key or a value as JSON.
JSON: Final[dict[str, Side]] = {"key_json": "key", "value_json": "value"}

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which records of a selection are wanted.

    - ``key``: those with this key.
    - ``headers``: those that have each of these headers; a value of None stands for any.
    - ``tombstones``: those whose value is null.
    - ``latest``: the last one of each key; without ``tombstones``, no key whose last value is null.
    """

    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    tombstones: bool = False
    latest: Latest | None = None

    def masks(self, table: pa.RecordBatch) -> Iterator[Mask]:
        """For each condition, which rows fulfil it. ``table`` has the bytes of headers in its column of headers."""
        if self.key is not None:
            yield np.frombuffer(matching(table.column("key"), self.key), np.bool_)
        for name, value in self.headers:
            yield np.frombuffer(matching(table.column("headers"), value, name), np.bool_)
        if self.tombstones or self.latest is not None:
            is_null = table.column("value").is_null().to_numpy(zero_copy_only=False)
            yield is_null if self.tombstones else ~is_null
        if self.latest is not None:
            yield self.latest.mask(table.column("offset").to_numpy())


EVERY: Final = Choice()


def header_column(name: str, headers: pa.Array[Any]) -> pa.Array[Any]:
    """The values of the last header of this name; null for a record without one."""
    return texts_of(_values(headers, name.encode()), pa.binary())


def json_column(
    schemas: Schemas | None, side: Side, data: pa.Array[Any], headers: pa.Array[Any], topic: str | None = None
) -> pa.Array[Any]:
    """Keys or values of a topic as JSON, by their schemas."""
    from kfuzz.schemas.values import HEADERS, Schemas

    ids: list[bytes | None] = []
    for name in HEADERS:
        found = _values(headers, name.format(side).encode())
        if any(found):
            ids = [one or other for one, other in zip(ids or found, found, strict=True)]
    return texts_of((schemas or Schemas()).texts(side, values_of(data), ids, topic))


def _values(headers: pa.Array[Any], name: bytes) -> list[bytes | None]:
    if not pa.types.is_list(headers.type):
        return values_of(headers, name)
    return [
        next((one["value"] for one in reversed(row or ()) if one["key"] == name), None) for row in headers.to_pylist()
    ]
