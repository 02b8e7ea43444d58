"""One connection to a broker: requests go out as they come, answers come back in their order.

It uses a socket of its own within asyncio's loop. asyncio's transports would copy what a full socket does not take at
once; here a request is a list of buffers, and ``sendmsg`` sends them from where they are, such as a mapped file.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from kfuzz import __version__
from kfuzz.client.address import Address, Security
from kfuzz.client.protocol import (
    ANSWER_SIZE_MAX,
    API_VERSIONS,
    CLIENT_ID,
    SIZE,
    BrokerError,
    ConnectionLost,
    correlation_id,
    error_name,
    request,
    response,
    spoken,
)
from kfuzz.client.sasl import CLEAR, dialogue
from kfuzz.client.tls import client_context, secured, set_once, why
from kfuzz.errors import DecodeError, UsageError
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.headers import written_version
from kfuzz.messages.model import Versions
from kfuzz.text import foreign_text

__all__ = ["Link", "Lost", "Permit", "are_of_this_machine", "connected", "why"]

# How a connection was lost: it was closed, no answer came in time, or what came was no answer.
Lost = Literal["closed", "silent", "garbled"]

# How many buffers one call may send. Linux takes 1024.
BUFFERS_MAX: Final = 128
RECEIVE_BYTES: Final = 64 << 10
MUTED_S_MAX: Final = 0.25
CORRELATION_MASK: Final = 0x7FFFFFFF
# How many of the offered mechanisms are named.
OFFERS_MAX: Final = 10

# A function that is called with an answer, without the size before it, or with None if the connection was lost before.
Take = Callable[[bytes | None], None]
# A function that is called with an address and what its name resolves to, before a connection opens. It may raise.
Permit = Callable[[Address, Sequence[str]], None]


def are_of_this_machine(hosts: Iterable[str]) -> bool:
    """Whether all of these numeric addresses are loopback addresses."""
    return all(ipaddress.ip_address(host).is_loopback for host in hosts)


async def connected(address: Address, permit: Permit) -> socket.socket:
    """A connection. The name is looked up once: what ``permit`` sees is what is connected to. ``OSError`` if it fails.

    The caller bounds the time.
    """
    if address.flaw:
        raise OSError(address.flaw)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    permit(address, [str(place[0]) for *_, place in found])
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, place in found:
        plain = socket.socket(family, kind, protocol)
        plain.setblocking(False)
        try:
            await loop.sock_connect(plain, place)
            return plain
        except BaseException as error:
            plain.close()
            if not isinstance(error, OSError):
                raise
            failure = error
    raise failure


class _Sent(NamedTuple):
    correlation: int
    deadline: float
    take: Take


@dataclass(eq=False)
class Link:
    """A connection. Open it before use; once :attr:`lost` has a reason, it stays lost.

    ``in_flight``: how many requests may wait for their answers, for callers of :meth:`room`. ``permit`` is called
    before it connects. ``context``: what ``client_context`` makes, for callers with many connections.
    """

    address: Address
    security: Security
    _: KW_ONLY
    timeout_ms: int
    in_flight: int = 1
    permit: Permit = lambda address, hosts: None
    context: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        self.timeout_s = self.timeout_ms / 1000
        # The versions that the broker offers, by the numbers of APIs.
        self.offered: dict[int | None, Versions] = {}
        self._spoken: dict[str, Versions] = {}
        self.lost: str | None = None
        self.lost_how: Lost = "closed"
        # The broker wants no requests before this time (``time.monotonic``).
        self.muted_until = 0.0
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._sent: deque[_Sent] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        # How many were woken and have not continued yet. Otherwise a quick caller could take all room again and again.
        self._promised = 0
        self._numbers = 0
        self._flushing = self._writing = False

    async def open(self, *, asks: bool = True) -> None:
        """Connect, learn which versions the broker has, and log in. ``ConnectionLost`` with the reason if that fails.

        Without ``asks`` it only connects: then the caller knows the versions, and no user logs in. ``UsageError`` if
        the certificates or the user are refused.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._connect()
                if asks:
                    await self._learn()
                if asks and self.security.user is not None:
                    await self._log_in(self.security.user)
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise UsageError(
                f"the certificate of {self.address} is not trusted: {error.verify_message}; name its CA with --tls-ca"
            ) from None
        except (OSError, TimeoutError) as error:
            self.lose(why(error))
            raise ConnectionLost(f"{self.address} cannot be reached: {self.lost}") from None
        except BaseException:
            self.close()
            raise

    async def _connect(self) -> None:
        plain = await connected(self.address, self._permitted)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        if self.security.tls:
            security = self.security
            context = self.context or client_context(security.ca, security.certificate, security.key)
            # If this fails, it closes the socket.
            self._socket = None
            self._socket = await secured(plain, context, self.address.host)
        self._loop.add_reader(self._socket, self._readable)

    def _permitted(self, address: Address, hosts: Sequence[str]) -> None:
        self.permit(address, hosts)
        security = self.security
        if security.user is None or security.tls or security.mechanism not in CLEAR:
            return
        if address.host.lower() in map(str.lower, security.plain_hosts):
            return
        if not are_of_this_machine(hosts):
            raise UsageError(
                f"the password of {security.user} would go to {address} without encryption; add --tls, or "
                f"--allow-plain {address.host} if nobody can listen on the way"
            )

    async def _learn(self) -> None:
        us = {"clientSoftwareName": CLIENT_ID, "clientSoftwareVersion": __version__}
        for version, values in ((3, us), (0, {})):
            answer = await self._answer_bytes(API_VERSIONS, version, values)
            if written_version(catalogue().find(f"{API_VERSIONS}Response"), version, answer) < version:
                # The broker is too old for this version.
                continue
            said = self.read(API_VERSIONS, version, answer)
            if said["errorCode"]:
                raise BrokerError(f"{self.address} does not report its versions", said["errorCode"])
            self.offered = {one["apiKey"]: Versions(one["minVersion"], one["maxVersion"]) for one in said["apiKeys"]}
            return

    async def _log_in(self, user: str) -> None:
        mechanism = self.security.mechanism
        said = await self.call("SaslHandshake", {"mechanism": mechanism})
        if said["errorCode"]:
            offered = foreign_text(", ".join(said["mechanisms"][:OFFERS_MAX])) or "none"
            raise UsageError(f"{self.address} does not offer SASL/{mechanism}, which --user needs; it offers {offered}")
        talk = dialogue(mechanism, user, self.security.password)
        with contextlib.suppress(StopIteration):
            words = next(talk)
            while True:
                said = await self.call("SaslAuthenticate", {"authBytes": words})
                if said["errorCode"]:
                    why_not = foreign_text(said["errorMessage"] or error_name(said["errorCode"]))
                    raise UsageError(f"{self.address} refuses the user {user}: {why_not}; check the password")
                words = talk.send(said["authBytes"])

    # -- requests

    def version(self, api: str) -> int:
        """The version for requests of ``api``; ``UsageError`` if there is none that both sides know."""
        if (known := self._spoken.get(api)) is None:
            known = self._spoken[api] = spoken(api, self.offered)
        if not known:
            raise UsageError(f"{self.address} offers no version of {api} that kfuzz knows; take another broker")
        return known.highest

    async def call(self, api: str, values: Message, version: int | None = None) -> Message:
        """The values of the answer; ``ConnectionLost`` if there is none. Errors in it are for the caller."""
        version = self.version(api) if version is None else min(version, self.version(api))
        return self.read(api, version, await self._answer_bytes(api, version, values))

    def read(self, api: str, version: int, answer: bytes) -> Message:
        """The values of an answer; the link is lost, with ``ConnectionLost``, if it cannot be read."""
        try:
            return response(api, version, answer)
        except DecodeError as error:
            self.lose(f"the answer to {api} cannot be read: {error}", "garbled")
            raise ConnectionLost(f"{self.address}: {self.lost}") from None

    async def _answer_bytes(self, api: str, version: int, values: Message) -> bytes:
        number = self.next_number()
        return await self.answer(number, [request(api, version, number, values)])

    async def answer(self, number: int, pieces: list[Any]) -> bytes:
        """Send a request of several buffers, and wait for its answer. ``ConnectionLost`` if there is none."""
        # If no answer comes in time, the link is closed and this raises.
        if (data := await self.later(number, pieces)) is None:
            raise ConnectionLost(f"{self.address}: {self.lost}")
        return data

    def later(self, number: int, pieces: list[Any]) -> asyncio.Future[bytes | None]:
        """Send a request of several buffers. The future gets the answer; None if the connection is lost before."""
        answer: asyncio.Future[bytes | None] = self._loop.create_future()
        self.send(number, pieces, partial(set_once, answer))
        return answer

    def next_number(self) -> int:
        """The number of the next request. Its answer repeats the number."""
        self._numbers = (self._numbers + 1) & CORRELATION_MASK
        return self._numbers

    def send(self, number: int, pieces: list[Any], take: Take | None) -> None:
        """Send a request of several buffers. ``take`` gets the answer; None if the broker will give none (acks 0).

        The buffers must not change until they are sent. On a lost link, ``take`` gets None soon.
        """
        if self.lost is not None:
            if take is not None:
                self._loop.call_soon(take, None)
            return
        if take is not None:
            self._sent.append(_Sent(number, time.monotonic() + self.timeout_s, take))
        self._out.extend(memoryview(piece).cast("B") for piece in pieces if len(piece))
        if self._flushing or self._writing:
            return
        if len(self._sent) < 2:
            # Another round of the loop costs as much as the call.
            self._flush()
        else:
            # Requests of one round of the loop go out in one call.
            self._flushing = True
            self._loop.call_soon(self._flush)

    def has_room(self) -> bool:
        """Whether another request may be sent now. Callers who were woken, and have not continued yet, come first."""
        return (
            len(self._sent) + self._promised < self.in_flight
            and len(self._out) < 3 * self.in_flight
            and self.muted_until <= time.monotonic()
        )

    async def room(self) -> None:
        """Wait for a time when there may be room, or until the link is lost; or a moment if the broker throttles."""
        if self.lost is not None:
            return
        delay = self.muted_until - time.monotonic()
        if delay > 0:
            # The caller may have no more to send before the broker wants it.
            await asyncio.sleep(min(delay, MUTED_S_MAX))
            return
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            self._promised -= waiting.done() and not waiting.cancelled()

    def wake(self, count: int | None = None) -> None:
        """Wake so many of the callers who wait for room; all of them without a number."""
        count = len(self._waiting) if count is None else count
        while count and self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._promised += 1
                count -= 1

    def expire(self) -> None:
        """Lose the link if its oldest request has waited too long. To be called now and then."""
        if self._sent and self._sent[0].deadline < time.monotonic():
            self.lose(f"no answer within {self.timeout_s:g} s", "silent")

    def close(self) -> None:
        self.lose("closed")

    def release(self) -> socket.socket:
        """Give the socket to the caller, who must close it. To be called after :meth:`open`; the link is lost then."""
        if self._socket is None or self._in or self.lost is not None:
            self.lose("an answer to no request", "garbled")
            raise ConnectionLost(f"{self.address}: {self.lost}")
        taken, self._socket = self._socket, None
        self._loop.remove_reader(taken)
        self._loop.remove_writer(taken)
        self.lose("released")
        return taken

    def lose(self, reason: str, how: Lost = "closed") -> None:
        """Close the connection because of ``reason``. All requests without an answer are lost."""
        if self.lost is not None:
            return
        self.lost = reason
        self.lost_how = how
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        self._out.clear()
        sent, self._sent = self._sent, deque()
        for one in sent:
            one.take(None)
        self.wake()

    # -- the socket

    def _flush(self) -> None:
        self._flushing = False
        if self._socket is None or self.lost is not None:
            return
        try:
            while self._out:
                self._written(self._transmit())
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._socket, self._flush)
            return
        except OSError as error:
            # The caller of `send` has not finished yet.
            self._loop.call_soon(self.lose, why(error))
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)
        if (free := self.in_flight - len(self._sent) - self._promised) > 0:
            self.wake(free)

    def _transmit(self) -> int:
        assert self._socket is not None
        if isinstance(self._socket, ssl.SSLSocket):
            return self._socket.send(self._out[0])
        return self._socket.sendmsg(islice(self._out, BUFFERS_MAX))

    def _written(self, size: int) -> None:
        out = self._out
        while size:
            first = out[0]
            if len(first) > size:
                out[0] = first[size:]
                return
            size -= len(first)
            out.popleft()

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            while self.lost is None:
                data = self._socket.recv(RECEIVE_BYTES)
                if not data:
                    self.lose("the broker closed the connection")
                    return
                self._in += data
                self._read_answers()
                # A TLS socket may hold more than the loop can see.
                if len(data) < RECEIVE_BYTES and not isinstance(self._socket, ssl.SSLSocket):
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self.lose(why(error))

    def _read_answers(self) -> None:
        at = 0
        while len(self._in) - at >= SIZE.size and self.lost is None:
            [size] = SIZE.unpack_from(self._in, at)
            if not SIZE.size <= size <= ANSWER_SIZE_MAX:
                self.lose(f"an answer of {size} bytes", "garbled")
                return
            if len(self._in) - at < SIZE.size + size:
                break
            answer = bytes(self._in[at + SIZE.size : at + SIZE.size + size])
            at += SIZE.size + size
            if not self._sent or correlation_id(answer) != self._sent[0].correlation:
                self.lose("an answer to no request", "garbled")
                return
            self._sent.popleft().take(answer)
            self.wake(1)
        del self._in[:at]
