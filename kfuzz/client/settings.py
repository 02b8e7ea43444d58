"""Where a broker is, how to connect, and how patient a client is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from kfuzz.errors import UsageError

__all__ = ["PLAIN", "Access", "Address", "Security"]

PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """``HOST:PORT``, where an IPv6 address may stand in brackets. ``UsageError`` for anything else."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
            raise UsageError(f"{text!r} is not the address of a broker; give HOST:PORT, such as 127.0.0.1:9092")
        return Address(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect. With a ``user``, SASL/PLAIN is used. ``ca`` is a file of trusted certificates."""

    tls: bool = False
    ca: str | None = None
    user: str | None = None
    password: str = field(default="", repr=False)


# No encryption, no user.
PLAIN: Final = Security()


class Access(Protocol):
    """What a :class:`kfuzz.client.cluster.Cluster` must know. ``kfuzz.replay.Settings`` is one.

    - ``in_flight``: how many requests of a connection may wait for their answers.
    - ``timeout_ms``: how long an answer may take.
    - ``retries``: how often a request is sent again; ``reconnects``: how often lost connections are opened again.
    - ``create``: whether to create missing topics, with ``replication`` replicas (-1: the broker's default).
    - ``transaction_timeout_ms``: how long a transaction may be open.
    """

    @property
    def bootstrap(self) -> Address: ...

    @property
    def security(self) -> Security: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def retries(self) -> int: ...

    @property
    def reconnects(self) -> int: ...

    @property
    def create(self) -> bool: ...

    @property
    def replication(self) -> int: ...

    @property
    def transaction_timeout_ms(self) -> int: ...
