"""Builds a testee, starts it and reads its handshake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kfuzz.conformance.protocol.session import Limits, NoHandshake, Session
from kfuzz.conformance.protocol.testees import BuildFailed, Testee
from kfuzz.conformance.protocol.words import Handshake
from kfuzz.errors import UsageError

__all__ = ["started"]


@contextmanager
def started(testee: Testee, limits: Limits) -> Iterator[tuple[Session, Handshake]]:
    """Build ``testee`` if necessary, start it, and read its handshake. The testee ends with the ``with`` block.

    ``UsageError`` if its toolchain is missing, its build fails, or it gives no handshake.
    """
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or name another with --testee")
    try:
        testee.make_ready()
        with Session(testee.argv, cwd=testee.folder) as session:
            yield session, session.start(replace(limits, start_ms=testee.start_timeout_ms))
    except (BuildFailed, NoHandshake) as error:
        raise UsageError(f"{testee.label}: {error}; docs/testee-protocol.md says how a testee starts") from None
