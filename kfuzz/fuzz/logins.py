"""The target ``login``: a client of kfuzz logs in to a broker that answers anything, in any order.

An input is a chain of parts (:mod:`kfuzz.fuzz.wholes`). The first byte of a part says its kind. In the first part, this
byte also chooses the mechanism of SASL.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kfuzz.errors import KfuzzError
from kfuzz.fuzz.oracle import OracleFailure
from kfuzz.fuzz.wholes import parts

if TYPE_CHECKING:
    import asyncio

# The kinds of parts: an answer, after the number of the request; a frame; bytes without a size; a request to a broker.
ANSWER, FRAME, BYTES, REQUEST = range(4)
KINDS: Final = 4
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
# The keys of two APIs, as requests have them.
SASL_HANDSHAKE, SASL_AUTHENTICATE = b"\0\x11", b"\0\x24"
# libFuzzer ends an input that takes ten seconds, so this is never reached.
TIMEOUT_MS: Final = 60_000


@cache
def _loop() -> asyncio.AbstractEventLoop:
    import asyncio

    return asyncio.new_event_loop()


def fuzz_login(data: bytes) -> None:
    """A client logs in while a broker answers anything; requests before and after a login come to kfuzz's broker."""
    from kfuzz.serve.answers import Broker
    from kfuzz.serve.cluster import Caller
    from kfuzz.serve.topics import Topics

    found = [(choice % KINDS, content) for choice, content in parts(data)]
    broker, caller = Broker(Topics()), Caller("127.0.0.1", 9092)
    for kind, content in found:
        # The connection would be closed.
        with contextlib.suppress(KfuzzError):
            if kind == REQUEST:
                broker.answer(content, caller)
    mechanism = MECHANISMS[(data[0] if data else 0) // KINDS % len(MECHANISMS)]
    _loop().run_until_complete(_log_in(mechanism, iter(found)))


async def _log_in(mechanism: str, answers: Iterator[tuple[int, bytes]]) -> None:
    from kfuzz.client.address import Address, Security
    from kfuzz.client.link import Link

    loop, (ours, theirs) = _loop(), socket.socketpair()
    ours.setblocking(False)
    # The requests of the client by their numbers, and all that the broker has sent.
    asked: dict[bytes, bytes] = {}
    sent = bytearray()
    faults: list[dict[str, Any]] = []

    class Wired(Link):
        """A client at one end of a pair of sockets."""

        async def _connect(self) -> None:
            self._socket = ours
            loop.add_reader(ours, self._readable)

    def answer() -> None:
        before, is_last = len(sent), True
        # The client may be gone.
        with contextlib.suppress(OSError):
            request = theirs.recv(1 << 16)
            number = request[8:12]
            asked[number] = request[4:8]
            for kind, content in answers if request else ():
                frame = number + content if kind == ANSWER else content
                if kind != REQUEST:
                    sent.extend((b"" if kind == BYTES else len(frame).to_bytes(4, "big")) + frame)
                # In the middle of a frame, the client waits for the rest.
                if kind == ANSWER and _frames(sent)[1]:
                    is_last = False
                    break
            theirs.sendall(sent[before:])
            if is_last:
                theirs.shutdown(socket.SHUT_RDWR)
        if is_last:
            loop.remove_reader(theirs)

    def fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        faults.append(context)
        link.close()

    user = Security(user="u", password="p", mechanism=mechanism)
    link = Wired(Address("127.0.0.1", 9092), user, timeout_ms=TIMEOUT_MS)
    loop.set_exception_handler(fail)
    loop.add_reader(theirs, answer)
    try:
        with contextlib.suppress(KfuzzError):
            await link.open()
            _require_login(mechanism, asked, sent)
    finally:
        link.close()
        loop.remove_reader(theirs)
        theirs.close()
    if faults:
        raise OracleFailure(f"the client fails beside its login: {faults[0].get('exception')!r}")


def _frames(sent: bytearray) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The frames that were sent, as the number and the rest of each, and whether the last one is whole."""
    found, at = [], 0
    while len(sent) - at >= 4:
        end = at + 4 + int.from_bytes(sent[at : at + 4], "big")
        found.append((bytes(sent[at + 4 : at + 8]), bytes(sent[at + 8 : end])))
        at = end
    return found, at == len(sent)


def _require_login(mechanism: str, asked: dict[bytes, bytes], sent: bytearray) -> None:
    """The broker has let the client in, and with SCRAM it knows the password. Here, it never does."""
    if mechanism.startswith("SCRAM"):
        raise OracleFailure(f"the client logs in by {mechanism} to a broker that does not know the password")
    # The first one of a number counts.
    bodies = dict(reversed(_frames(sent)[0]))
    for number, key in asked.items():
        # From version 2 on, the number of tagged fields comes before the error.
        at, body = int(key == SASL_AUTHENTICATE + b"\0\2"), bodies.get(number, b"")
        is_login = key[:2] in (SASL_HANDSHAKE, SASL_AUTHENTICATE)
        if is_login and body[:at] in (b"", b"\0") and body[at : at + 2] != b"\0\0":
            raise OracleFailure(f"the client logs in, although the broker answers {body!r}")
