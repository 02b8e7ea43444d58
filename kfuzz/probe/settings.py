"""Which broker is probed, and what that may cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kfuzz.client.address import Access, Address
from kfuzz.client.link import are_of_this_machine
from kfuzz.errors import UsageError

# Kafka's limit on the name of a topic, less room for the numbers after it.
PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")


class Ended(Exception):
    """A probe cannot continue; the text says why."""


@dataclass(frozen=True, slots=True)
class Settings(Access):
    """Which broker is probed, and what that may cost.

    - ``open_to_others``: whether the broker may be on another machine.
    - ``timeout_ms``: how long one answer may take; ``duration_s``: how long the whole probe may take.
    - ``prefix``: how the names of the probe's topics begin; ``keep``: whether they stay at the end.
    """

    open_to_others: bool = False
    timeout_ms: int = 10_000
    duration_s: float = 1800
    prefix: str = "kfuzz-probe"
    keep: bool = False
    retries: int = 3
    reconnects: int = 1_000_000

    def __post_init__(self) -> None:
        if not PREFIX.fullmatch(self.prefix):
            raise UsageError(f"{self.prefix!r} cannot begin the name of a topic; use letters, digits and . _ -")

    def permit(self, address: Address, hosts: Sequence[str]) -> None:
        """``UsageError`` unless hostile bytes may go to these hosts. For the connections of :mod:`kfuzz.client`."""
        if not self.open_to_others and not are_of_this_machine(hosts):
            raise UsageError(f"{address} is not this machine; add --yes if hostile bytes may go there")
