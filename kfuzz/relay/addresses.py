"""Where responses name brokers: each such address is replaced by one where the proxy listens for that broker.

A message names a broker where a struct has a host and a port, whatever the API: brokers in Metadata and
DescribeCluster, coordinators, the current leaders in Produce and Fetch, voters and their listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from kfuzz.messages.model import key_of
from kfuzz.relay.paths import Steps, paths_of, slots

# Gets a host and a port, and gives those to show instead.
Place = Callable[[str, int], tuple[str, int]]
HOST: Final = "host"
PORT: Final = "port"


@cache
def _hosts(name: str, version: int) -> tuple[Steps, ...]:
    """The paths to the hosts of structs that have a port too."""
    found = paths_of(name, version, lambda one: key_of(one.name) in (HOST, PORT))
    return tuple(steps for steps in found if steps[-1] == HOST and (*steps[:-1], PORT) in found)


def has_addresses(name: str, version: int) -> bool:
    """Whether this version of a message names hosts."""
    return bool(_hosts(name, version))


def replace_addresses(name: str, version: int, values: Mapping[str, Any], place: Place) -> bool:
    """Replace all addresses in the values of a message. Whether there was one.

    An address without a host or a port stays: that is how a response says that it has none.
    """
    changed = False
    for path in _hosts(name, version):
        for one, _ in slots(values, path):
            host, port = one[HOST], one.get(PORT)
            if host and isinstance(port, int) and port > 0:
                one[HOST], one[PORT] = place(host, port)
                changed = True
    return changed
