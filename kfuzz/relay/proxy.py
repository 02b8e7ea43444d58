"""The proxy: where it listens for each broker, and what becomes of each frame."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from kfuzz.client.address import PLAIN, PORT_MAX, Address, Security
from kfuzz.client.link import Link, are_of_this_machine
from kfuzz.client.protocol import ConnectionLost
from kfuzz.client.tls import client_context, secured, server_context, why
from kfuzz.errors import EncodeError, KfuzzError, MessageError, UsageError
from kfuzz.relay.addresses import replace_addresses
from kfuzz.relay.connection import Connection, Side
from kfuzz.relay.frames import API_VERSIONS, CORRELATION, KEYS, Direction, Exchange, Frame, offers
from kfuzz.relay.pipe import BLOCKED, CLOSE, SIZE, SMALL_FRAME_BYTES, Buffers, Step, framed
from kfuzz.relay.recording import RECORD_BYTES_MAX, Recorder
from kfuzz.relay.rule import SEED, Rule
from kfuzz.relay.rules import Rules
from kfuzz.relay.watching import Watch
from kfuzz.serve.server import cannot_open, own_address
from kfuzz.units import counted

Tell = Callable[[str], None]

CONNECTIONS_MAX: Final = 2000
# Each connection has two ends. The process needs some handles for other things.
HANDLES_KEPT: Final = 64
# A cluster with more brokers than this is not led through one proxy.
BROKERS_MAX: Final = 1000
# How long it may take to connect to a broker and to log in, and how long a client's TLS handshake may take.
CONNECT_MS_MAX: Final = 10_000
HANDSHAKE_S_MAX: Final = 10.0
# New connections that are taken in one turn.
ACCEPTS_MAX: Final = 64
# The pause after one that could not be taken.
ACCEPT_AGAIN_S: Final = 0.5
BACKLOG: Final = 1024
# Small frames that may wait to be checked and counted after they are passed on, and for how long. To check one takes
# about 10 µs, and then the processor has to fetch what the next exchange needs again.
UNSETTLED_MAX: Final = 64
UNSETTLED_S_MAX: Final = 0.005
# Small responses for which the proxy knows what it sends in their place.
KNOWN_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """How a proxy behaves.

    - ``host``, ``port``: where it listens for the first broker; port 0 is any free one. The others get the next ports
      if those are free.
    - ``security``: how it connects to brokers, and who logs in.
    - ``cert``, ``key``: files of the certificate for clients and of its key; without ``cert``, clients use no TLS.
    - ``open_to_others``: whether it may listen for, and connect to, other machines.
    - ``strict``: close a connection instead of passing on what a strict reader refuses.
    - ``batches``: check the record batches too.
    - ``rules``: what is done to frames from the start; ``seed``: for the rules' random decisions.
    - ``record``: the folder to record into, with at most ``record_bytes_max`` bytes.
    """

    host: str = "127.0.0.1"
    port: int = 0
    security: Security = PLAIN
    cert: Path | None = None
    key: Path | None = None
    open_to_others: bool = False
    strict: bool = False
    batches: bool = False
    connections_max: int = CONNECTIONS_MAX
    rules: tuple[Rule, ...] = ()
    seed: int = SEED
    record: Path | None = None
    record_bytes_max: int = RECORD_BYTES_MAX


class Proxy:
    """A proxy in the event loop that runs. Use it in an ``async with`` block; :attr:`places` says where it listens.

    ``brokers``: those whose addresses clients get first. Others are found in what these say, and get a place too.
    ``tell`` gets sentences for a person. Entering the block raises ``UsageError`` if an address cannot be used.
    """

    def __init__(self, brokers: Sequence[Address], settings: Settings, *, tell: Tell = lambda sentence: None) -> None:
        # A broker that is given twice has one place.
        self.brokers = tuple(dict.fromkeys(brokers))
        self.settings = settings
        self.tell = tell
        self._watch = Watch(tell)
        self.buffers = Buffers()
        self.rules = Rules(settings.rules, seed=settings.seed, note=self._watch.note)
        # Sees each frame as it came.
        self.on_frame: Callable[[Frame], object] | None = None
        # Where it listens for each broker.
        self.places: dict[Address, Address] = {}
        self.connections: set[Connection] = set()
        self.connections_total = self.refused = 0
        self.recorder: Recorder | None = None
        # Bytes after the correlation id that a client gets, by the API key and version and by the bytes that the broker
        # sent there. Empty if they are the same.
        self.known: dict[tuple[bytes, bytes], bytes] = {}
        # Whether frames are not changed but by rules, and to keep clients inside, and are not recorded.
        self.only_watches = not settings.strict and settings.record is None
        self._unsettled: deque[tuple[Side, bytes, int]] = deque()
        self._is_settling = False
        self._settling: asyncio.TimerHandle | None = None
        self._listening: list[socket.socket] = []
        # For TLS with brokers, and with clients.
        self._to_brokers: ssl.SSLContext | None = None
        self._to_clients: ssl.SSLContext | None = None
        self._host = settings.host
        self._family: int = socket.AF_INET
        self._handles_max = max((resource.getrlimit(resource.RLIMIT_NOFILE)[0] - HANDLES_KEPT) // 2, 1)

    @property
    def bootstrap(self) -> str:
        """Where clients find the first brokers: ``host:port`` of each, with commas between."""
        return ",".join(str(self.places[broker]) for broker in self.brokers)

    @property
    def watch(self) -> Watch:
        """The sums of all frames until now."""
        self.settle()
        return self._watch

    # -- where it listens

    async def __aenter__(self) -> Self:
        self._secure()
        host, port = self.settings.host, self.settings.port
        self._family, self._host = await own_address(
            host, port, what="proxy", open_to_others=self.settings.open_to_others
        )
        if port and port + len(self.brokers) - 1 > PORT_MAX:
            raise UsageError(
                f"{len(self.brokers)} brokers need the ports {port} to {port + len(self.brokers) - 1}; "
                f"take a port from which there are enough up to {PORT_MAX}, or 0 for any free ones"
            )
        try:
            for number, broker in enumerate(self.brokers):
                self._listen(broker, port and port + number)
        except OSError as error:
            self._close()
            raise cannot_open(f"port {port + number} of {host}", error) from None
        if self.settings.record is not None:
            bytes_max = self.settings.record_bytes_max
            try:
                self.recorder = Recorder(self.settings.record, bytes_max, self.brokers, self.places, self.tell)
            except BaseException:
                self._close()
                raise
        return self

    def _secure(self) -> None:
        """Read the files of certificates and keys."""
        security, cert, key = self.settings.security, self.settings.cert, self.settings.key
        if security.tls:
            self._to_brokers = client_context(security.ca, security.certificate, security.key)
        if cert is not None:
            self._to_clients = server_context(cert, key)
        elif key is not None:
            raise UsageError(f"{key} is a key without a certificate; name the file of its certificate with --tls-cert")

    async def __aexit__(self, *error: object) -> None:
        self._close()
        tasks = [one.task for one in self.connections]
        for one in list(self.connections):
            one.task.cancel()
            one.close()
        # A second Ctrl-C may end the wait below.
        if self.recorder is not None:
            self.recorder.end()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.buffers.close()

    def _close(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
            listening.close()
        self._listening.clear()

    def _listen(self, broker: Address, port: int) -> Address:
        is_ipv6 = self._family == socket.AF_INET6
        address = self._host, port
        listening = socket.create_server(address, family=self._family, backlog=BACKLOG, dualstack_ipv6=is_ipv6)
        listening.setblocking(False)
        self._listening.append(listening)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening, broker)
        place = self.places[broker] = Address(self._host, listening.getsockname()[1])
        return place

    def place(self, host: str, port: int) -> Address:
        """Where clients find the broker that is at this address."""
        broker = Address.advertised(host, port)
        if (known := self.places.get(broker)) is not None:
            return known
        # Brokers may be set up to name the proxy itself. A place for that would lead through the proxy twice.
        if self._is_own(port, [self._host if host == "localhost" else host]):
            return Address(self._host, port)
        flaw = broker.flaw or (f"there are {BROKERS_MAX} brokers already" if len(self.places) >= BROKERS_MAX else "")
        next_port = self.settings.port and self.settings.port + len(self.places)
        # If the next port is not free, any other serves.
        for port in () if flaw else (next_port if next_port <= PORT_MAX else 0, 0):
            try:
                return self._listen(broker, port)
            except OSError as error:
                flaw = why(error)
        self._watch.note_broker(broker, "broker-without-place", f"clients cannot reach it through the proxy: {flaw}")
        # Nobody listens there.
        return Address(self._host, 1)

    # -- connections

    def _accept(self, listening: socket.socket, broker: Address) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                client, _ = listening.accept()
            except BLOCKED:
                return
            except OSError:
                # There are no handles left, for example. The loop would call this again at once.
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(ACCEPT_AGAIN_S, self._accept_again, listening, broker)
                return
            self.connections_total += 1
            most = min(self.settings.connections_max, self._handles_max)
            if len(self.connections) >= most:
                self.refused += 1
                if self.refused == 1:
                    remedy = "; `ulimit -n` allows more" if most < self.settings.connections_max else ""
                    self.tell(f"there are {counted(most, 'connection')} already, so new ones are closed{remedy}")
                client.close()
                continue
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.add(Connection(self.connections_total, self, client, broker))

    def _accept_again(self, listening: socket.socket, broker: Address) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening, broker)

    async def client_end(self, client: socket.socket) -> socket.socket:
        """The client's end, ready for frames. If its TLS handshake fails, it is closed: ``OSError``."""
        if self._to_clients is None:
            return client
        async with asyncio.timeout(HANDSHAKE_S_MAX):
            return await secured(client, self._to_clients)

    async def broker_end(self, broker: Address) -> socket.socket:
        """A connection to a broker, ready for frames. A ``KfuzzError`` with the reason if there is none."""
        security = self.settings.security
        link = Link(broker, security, timeout_ms=CONNECT_MS_MAX, permit=self._permit, context=self._to_brokers)
        try:
            await link.open(asks=security.user is not None)
            return link.release()
        except ConnectionLost:
            raise KfuzzError(f"it cannot be reached: {link.lost}") from None

    def _is_own(self, port: int, hosts: Sequence[str]) -> bool:
        """Whether one of these is an address where the proxy itself listens."""
        if port not in (own.port for own in self.places.values()):
            return False
        return any(host == self._host or (self._is_everywhere and _is_here(host)) for host in hosts)

    @property
    def _is_everywhere(self) -> bool:
        """Whether it listens at all addresses of this machine."""
        return ipaddress.ip_address(self._host).is_unspecified

    def _permit(self, address: Address, hosts: Sequence[str]) -> None:
        if self._is_own(address.port, hosts):
            raise OSError("the proxy itself listens there; name the broker's own address")
        if not self.settings.open_to_others and not are_of_this_machine(hosts):
            raise OSError("it is not on this machine; add --yes if the proxy may connect to it")

    def gone(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self.recorder is not None:
            self.recorder.closed(connection.number)

    # -- frames

    def settle_later(self, side: Side, data: bytes) -> None:
        """Check and count a small frame when there is time, or others wait for that too."""
        unsettled = self._unsettled
        unsettled.append((side, data, time.monotonic_ns()))
        if len(unsettled) == UNSETTLED_MAX:
            asyncio.get_running_loop().call_soon(self.settle)
        elif self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(UNSETTLED_S_MAX, self._settle_in_time)

    def _settle_in_time(self) -> None:
        self._settling = None
        self.settle()

    def settle(self) -> None:
        """Check and count all small frames that came until now."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            while self._unsettled:
                side, data, now_ns = self._unsettled.popleft()
                side.settle(data, now_ns)
        finally:
            self._is_settling = False

    def holds(self, direction: Direction, exchange: Exchange) -> bool:
        """Whether a frame must be whole before it is passed on, because it may be changed."""
        if self.settings.strict or self.rules.may_match(direction, exchange):
            return True
        api = exchange.api
        return direction == "response" and api is not None and api.is_inside

    def saw(self, frame: Frame, now_ns: int = 0) -> None:
        """Take note of a frame as it came."""
        size = SIZE.size + len(memoryview(frame.data))
        if self.settings.batches:
            frame.check_batches()
        if frame.direction == "request":
            self._watch.asked(frame, size)
        else:
            self._watch.answered(frame, size, now_ns)
        if frame.findings:
            self._watch.found(frame, frame.findings)
        if self.on_frame is not None:
            self.on_frame(frame)

    def treat(self, connection: Connection, frame: Frame) -> Sequence[Step] | None:
        """The steps in place of a frame; None if it is sent as it is."""
        if self.settings.strict and (frame.findings or frame.form is None):
            return [CLOSE]
        try:
            inside = self._inside(connection, frame)
        except (EncodeError, MessageError) as error:
            # The client must not leave the proxy.
            self._watch.note("response-not-inside", frame.direction, frame.exchange, f"it is not passed on: {error}")
            return [CLOSE]
        if self.rules.may_match(frame.direction, frame.exchange):
            steps = self.rules.steps(connection, inside or frame)
            if steps is not None:
                return steps
        # At all addresses of this machine, what clients get depends on the address that they use.
        is_same = inside is None or not self._is_everywhere
        if frame.direction == "response" and len(memoryview(frame.data)) <= SMALL_FRAME_BYTES and is_same:
            self._know(frame, inside)
        return None if inside is None else [framed(inside.data)]

    def _know(self, frame: Frame, inside: Frame | None) -> None:
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        keys = KEYS.pack(frame.exchange.key, frame.exchange.version)
        rest = bytes(memoryview(frame.data)[CORRELATION.size :])
        self.known[keys, rest] = b"" if inside is None else bytes(memoryview(inside.data)[CORRELATION.size :])

    def _inside(self, connection: Connection, frame: Frame) -> Frame | None:
        """The frame that keeps the client inside; None if this one does."""
        if frame.direction == "request" or not frame.is_read:
            return None
        if frame.exchange.name == API_VERSIONS:
            # Offer no version whose addresses could not be replaced.
            _, body = offers(frame)
            return None if body is None else frame.with_body(body)
        if not frame.has_hosts:
            return None

        def place(host: str, port: int) -> tuple[str, int]:
            return connection.host, self.place(host, port).port

        values = frame.values()
        is_changed = replace_addresses(frame.name, frame.exchange.version, values, place)
        return frame.with_values(values) if is_changed else None

    def to_json(self) -> dict[str, Any]:
        self.settle()
        return {
            "connections": self.connections_total,
            "refused": self.refused,
            "brokers": [
                {"broker": str(broker), "host": place.host, "port": place.port} for broker, place in self.places.items()
            ],
            "seed": self.rules.seed,
            "rules": self.rules.to_json(),
        } | self._watch.to_json()

    def lines(self) -> Iterator[str]:
        self.settle()
        refused = f", {self.refused} of them refused" if self.refused else ""
        yield f"{counted(self.connections_total, 'connection')}{refused}"
        yield from self._watch.lines()
        yield from map(str, self.rules)


def _is_here(host: str) -> bool:
    """Whether a numeric address belongs to this machine."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError):
        return False
    return True
