"""The exceptions that kfuzz raises to its callers.

``KfuzzError``
    the base class; its text is one sentence that says what to do
``UsageError``
    the request was wrong: a missing file, a bad option, a file that breaks its schema. Correct the request.
``DecodeError``
    the *bytes* were refused; ``finding`` says where and why. The request itself was fine. Record batches raise
    ``RecordsError``, messages raise ``MessageError``.
``EncodeError``
    the *values* cannot be written in the requested format. Correct the values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfuzz.findings import Finding

__all__ = ["DecodeError", "EncodeError", "KfuzzError", "MessageError", "NotRegular", "RecordsError", "UsageError"]


class KfuzzError(Exception):
    """Base class of every error that kfuzz raises on purpose."""


class UsageError(KfuzzError):
    """The request was wrong. The text names the place and the remedy; the command line exits with 2."""


class NotRegular(UsageError):
    """A link, a pipe, a device or a socket is where somebody else's folder should have a file; it was not opened."""


class EncodeError(KfuzzError):
    """A value does not fit the format (an int16 out of range, a header key of None, …)."""


class DecodeError(KfuzzError):
    """The bytes were refused. ``finding`` is the first fatal finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class RecordsError(DecodeError):
    """The bytes of record batches were refused."""


class MessageError(DecodeError):
    """The bytes of a message were refused."""


@contextlib.contextmanager
def needs(what: str) -> Iterator[None]:
    """A package that is missing for the imports in the block is a ``UsageError`` with this sentence."""
    try:
        yield
    except ImportError:
        raise UsageError(what) from None
