"""Schemas for the keys and values of a log: those of a partition ``_schemas``, and of other places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kfuzz.files import URL
from kfuzz.logs.lines import values_of
from kfuzz.logs.reading import read
from kfuzz.schemas.store import Schema, Store, of_records, store_of
from kfuzz.schemas.values import Schemas

# The partition in which Confluent's registry keeps its schemas.
SCHEMAS: Final = "_schemas-0"


def open_schemas(places: Iterable[str] = (), registry: str | None = None, *, checks: bool = False) -> Schemas:
    """The schemas of some places, and of the registry at a URL.

    A place is a schema's file, a folder of schemas named by their ids, a partition ``_schemas-0``, or a log directory
    with one. ``UsageError`` if one cannot be read.
    """
    found: list[Store | Schema] = [_store(place) for place in places]
    if registry is not None:
        from kfuzz.schemas.registry import Registry

        found.append(Registry(registry))
    return Schemas(found, checks=checks)


def beside(path: str) -> Path | None:
    """The partition with schemas in a log directory, or beside a partition or a segment; None if there is none."""
    if path == "-" or URL.fullmatch(path):
        return None
    place = Path(path).absolute()
    return next((one / SCHEMAS for one in (place, *place.parents[:2]) if (one / SCHEMAS).is_dir()), None)


def _store(place: str) -> Store | Schema:
    folder = Path(place)
    folder = folder / SCHEMAS if (folder / SCHEMAS).is_dir() else folder
    return of_records(str(folder), _pairs(folder)) if folder.name == SCHEMAS else store_of(place)


def _pairs(folder: Path) -> Iterator[tuple[bytes | None, bytes | None]]:
    for rows in read(folder, columns=["key", "value"], mode="tolerant"):
        yield from zip(values_of(rows.column("key")), values_of(rows.column("value")), strict=True)
