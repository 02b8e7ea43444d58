"""Builds a testee, starts it and reads its handshake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kfuzz.conformance.protocol.peer import TesteeProcess
from kfuzz.conformance.protocol.session import Limits, NoHandshake
from kfuzz.conformance.protocol.testees import BuildFailed, Testee
from kfuzz.errors import UsageError

__all__ = ["started"]


@contextmanager
def started(testee: Testee) -> Iterator[TesteeProcess]:
    """Build ``testee`` if necessary, start it, and read its handshake. The testee ends with the ``with`` block.

    ``UsageError`` if its toolchain is missing, its build fails, or it gives no handshake.
    """
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or name another with --testee")
    try:
        testee.make_ready()
        limits = Limits(start_ms=testee.start_timeout_ms)
        with TesteeProcess(testee.argv, cwd=testee.folder, limits=limits) as peer:
            yield peer
    except (BuildFailed, NoHandshake) as error:
        raise UsageError(f"{testee.label}: {error}; docs/testee-protocol.md says how a testee starts") from None
