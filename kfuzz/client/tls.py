"""TLS on a socket that does not block, as a client or a server, within asyncio's loop and without its transports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from pathlib import Path
from typing import Final, TypeVar

from kfuzz.errors import UsageError
from kfuzz.files import read_small

T = TypeVar("T")
CERTIFICATES_BYTES_MAX: Final = 16 << 20
# OpenSSL's reasons for a peer that sends something else.
NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG"})


def client_context(ca: str | None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """How to connect: trust the certificates in the file ``ca``, or the system's. ``UsageError`` if it has none.

    ``certificate`` and ``key`` are as for :func:`server_context`.
    """
    try:
        context = ssl.create_default_context(cadata=_certificates(ca))
    except OSError as error:
        raise UsageError(f"{ca} is not a file of certificates: {why(error)}") from None
    # In TLS 1.2, the peer could otherwise begin a new handshake at any time, and sending would have to wait for it.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if certificate is not None:
        _show(context, certificate, key, "--client")
    return context


def _certificates(ca: str | None) -> str | None:
    """The certificates to trust; None for those of the system. ssl's own reading would wait for a pipe's writer."""
    if ca is None:
        return None
    data = read_small(ca, bytes_max=CERTIFICATES_BYTES_MAX, follow=True)
    # Without any, ssl would take the system's.
    if b"-----BEGIN CERTIFICATE-----" not in data:
        raise UsageError(f"{ca} is not a file of certificates: it has none in PEM form")
    return data.decode("ascii", "ignore")


def server_context(certificate: str | Path, key: str | Path | None) -> ssl.SSLContext:
    """How to take connections, with a file of certificates, ours first, and one of its key.

    Without ``key``, the key is in the file of the certificate. ``UsageError`` if they cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _show(context, certificate, key, "--tls")
    return context


def _show(context: ssl.SSLContext, certificate: str | Path, key: str | Path | None, options: str) -> None:
    """Use a certificate and its key. ``UsageError`` if they cannot be used; ``options`` begins the options for them."""
    key = certificate if key is None else key
    pem = {one: read_small(one, bytes_max=CERTIFICATES_BYTES_MAX, follow=True) for one in (certificate, key)}
    if b"-----BEGIN CERTIFICATE-----" not in pem[certificate]:
        raise UsageError(f"{certificate} has no certificate in PEM form; name another file with {options}-cert")
    if b"PRIVATE KEY-----" not in pem[key]:
        raise UsageError(f"{key} has no private key in PEM form; name its file with {options}-key")
    try:
        # Without a password, OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        reason = "it belongs to another certificate" if error.reason == "KEY_VALUES_MISMATCH" else ""
        if not reason:
            reason = "one of them is broken, or the key needs a password"
        raise UsageError(f"the key in {key} cannot be used with {certificate}: {reason}") from None
    except OSError as error:
        raise UsageError(f"{certificate} or {key} cannot be read: {why(error)}") from None


async def secured(plain: socket.socket, context: ssl.SSLContext, host: str | None = None) -> ssl.SSLSocket:
    """TLS over a connected socket that does not block. The caller bounds the time.

    As a client, ``host`` is the name that the server's certificate must have; as a server it is None. Any error closes
    the socket. Raises ``OSError``, and its subclass ``ssl.SSLCertVerificationError`` for a certificate that is not
    trusted.
    """
    loop = asyncio.get_running_loop()
    secure: socket.socket = plain
    try:
        secure = made = context.wrap_socket(
            plain, server_side=host is None, server_hostname=host, do_handshake_on_connect=False
        )
        while True:
            ready = loop.create_future()
            try:
                made.do_handshake()
                return made
            except ssl.SSLWantReadError:
                loop.add_reader(made, set_once, ready, None)
            except ssl.SSLWantWriteError:
                loop.add_writer(made, set_once, ready, None)
            try:
                await ready
            finally:
                loop.remove_reader(made)
                loop.remove_writer(made)
    except BaseException:
        secure.close()
        raise


def set_once(future: asyncio.Future[T], value: T) -> None:
    """Give a future its value, if nobody has given it one or cancelled it."""
    if not future.done():
        future.set_result(value)


def say_end(one: socket.socket) -> None:
    """If the socket has TLS, say that no more bytes follow. Without this, the peer must suspect that some were cut off.

    What the peer has sent and nobody has received is lost.
    """
    if isinstance(one, ssl.SSLSocket):
        # It also asks for the same from the peer, which comes later or never.
        with contextlib.suppress(OSError, ValueError):
            one.unwrap()


def why(error: OSError) -> str:
    """The error of a socket, in the system's words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        if error.reason in NO_TLS:
            return "the other side does not speak TLS"
        if error.reason == "UNEXPECTED_EOF_WHILE_READING":
            return "the other side closed the connection"
        return str(error.reason or error)
    if error.errno and not isinstance(error, socket.gaierror):
        # asyncio replaces the system's error text; restore it.
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
