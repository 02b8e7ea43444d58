"""Where responses name brokers: each such address is replaced by one where the proxy listens for that broker.

A message names a broker where a struct has a host and a port, whatever the API: brokers in Metadata and
DescribeCluster, coordinators, the current leaders in Produce and Fetch, voters and their listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from kfuzz.messages.catalogues import newest
from kfuzz.messages.model import Definition, Field, key_of

__all__ = ["Place", "has_addresses", "replace_addresses"]

# Gets a host and a port, and gives those to show instead.
Place = Callable[[str, int], tuple[str, int]]
HOST: Final = "host"
PORT: Final = "port"


@cache
def _paths(name: str, version: int) -> tuple[tuple[str, ...], ...]:
    """The fields that lead to structs with a host and a port, from the message on; () is the message itself."""
    definition = newest(name, version)
    return tuple(_found(definition, definition.fields, version, ()))


def _found(
    definition: Definition, fields: tuple[Field, ...], version: int, path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    there = [one for one in fields if version in one.versions]
    names = {key_of(one.name) for one in there}
    if HOST in names and PORT in names:
        yield path
    for one in there:
        if one.type.struct is not None:
            yield from _found(definition, definition.fields_of(one.type), version, (*path, key_of(one.name)))


def has_addresses(name: str, version: int) -> bool:
    """Whether this version of a message names hosts."""
    return bool(_paths(name, version))


def replace_addresses(name: str, version: int, values: Mapping[str, Any], place: Place) -> bool:
    """Replace all addresses in the values of a message. Whether there was one.

    An address without a host or a port stays: that is how a response says that it has none.
    """
    changed = False
    for path in _paths(name, version):
        for one in _structs(values, path):
            host, port = one.get(HOST), one.get(PORT)
            if host and isinstance(port, int) and port > 0:
                one[HOST], one[PORT] = place(host, port)
                changed = True
    return changed


def _structs(values: Any, path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if isinstance(values, list):
        for one in values:
            yield from _structs(one, path)
    elif isinstance(values, dict):
        if path:
            yield from _structs(values.get(path[0]), path[1:])
        else:
            yield values
