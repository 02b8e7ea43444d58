"""Where a broker is, how to connect, and how patient a client is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Final

from kfuzz.errors import UsageError
from kfuzz.text import foreign_text, printable

PORT_MAX: Final = 65535
PORT_DIGITS_MAX: Final = 5
# The longest name in DNS; IPv6 addresses with a zone are shorter.
HOST_CHARACTERS_MAX: Final = 253


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """``HOST:PORT``, where an IPv6 address may be in brackets. ``UsageError`` for anything else."""
        host, _, port = text.rpartition(":")
        if port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS_MAX:
            address = Address(host.removeprefix("[").removesuffix("]"), int(port))
            if not address.flaw:
                return address
        raise UsageError(
            f"{foreign_text(text, bytes_max=300)!r} is not the address of a broker; give HOST:PORT, such as "
            "127.0.0.1:9092"
        )

    @staticmethod
    def parse_all(text: str) -> tuple[Address, ...]:
        """One or more addresses with commas between them. ``UsageError`` as for :meth:`parse`."""
        return tuple(map(Address.parse, text.split(",")))

    @staticmethod
    def advertised(host: str | None, port: int) -> Address:
        """The address that a broker names. It may have a :attr:`flaw`."""
        return Address(foreign_text(host or "", bytes_max=HOST_CHARACTERS_MAX + 1), port)

    @property
    def flaw(self) -> str:
        """Why nothing can be at this address; empty if something can."""
        if not 0 < self.port <= PORT_MAX:
            return f"there is no port {self.port}"
        try:
            if ":" in self.host:
                # Otherwise it is a URL, or several addresses.
                IPv6Address(self.host)
            # Also refuses empty parts, and parts of more than 63 letters. Its time grows with the square of the length.
            is_name = 0 < len(self.host) <= HOST_CHARACTERS_MAX and bool(self.host.encode("idna"))
        except ValueError:
            is_name = False
        is_name = is_name and self.host.isprintable() and not {" ", "/"} & set(self.host)
        return "" if is_name else "this is not the name of a host"

    def __str__(self) -> str:
        host = printable(self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect. With a ``user``, SASL is used. ``ca`` is a file of trusted certificates.

    PLAIN and OAUTHBEARER send the password, or the token in its place, as it is. So without ``tls`` it goes only to
    this machine, and to ``plain_hosts``. ``certificate`` and ``key`` are files with which the client shows who it is.
    """

    tls: bool = False
    ca: str | None = None
    user: str | None = None
    password: str = field(default="", repr=False)
    plain_hosts: tuple[str, ...] = ()
    mechanism: str = "PLAIN"
    certificate: str | None = None
    key: str | None = None


# A connection without encryption and user.
PLAIN: Final = Security()


def _say_nothing(sentence: str) -> None:
    """Programs do not wait in front of a terminal."""


@dataclass(frozen=True, slots=True)
class Access:
    """Which brokers a client talks to, and how patient it is.

    - ``others``: more brokers of the same cluster, which are asked if ``bootstrap`` cannot be reached.
    - ``in_flight``: how many requests of a connection may wait for their answers.
    - ``timeout_ms``: how long an answer may take.
    - ``again_ms``: how long after its begin a request may be sent again, if ``retries`` allow it; None is any time.
    - ``on_wait`` gets a sentence, once, if there was no answer and a request is sent again.
    - ``retries``: how often a request is sent again; ``reconnects``: how often lost connections are opened again.
    - ``create``: whether to create missing topics, with ``replication`` replicas (-1: the broker's default).
    - ``transaction_timeout_ms``: how long a transaction may be open.
    """

    bootstrap: Address
    security: Security = PLAIN
    in_flight: int = 5
    timeout_ms: int = 30_000
    retries: int = 10
    reconnects: int = 20
    create: bool = False
    replication: int = -1
    transaction_timeout_ms: int = 900_000
    others: tuple[Address, ...] = ()
    again_ms: int | None = None
    on_wait: Callable[[str], None] = field(default=_say_nothing, compare=False, repr=False)
