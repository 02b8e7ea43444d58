"""The exceptions that a caller can meet. This module imports nothing.

``KfuzzError``
    the root; its text is one sentence that a person can act on
``UsageError``
    the request itself was wrong: a missing file, a bad option, a file that breaks its schema. Mend the request.
``RecordsError``
    the *bytes* were refused; ``finding`` says where and why. Nothing is wrong with the request.
``MessageError``
    the same of a message's bytes
``EncodeError``
    the *values* cannot be written in the format asked for. Mend the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfuzz.findings import Finding

__all__ = ["EncodeError", "KfuzzError", "MessageError", "RecordsError", "UsageError"]


class KfuzzError(Exception):
    """Root of every error that kfuzz raises on purpose."""


class UsageError(KfuzzError):
    """The request was wrong; the text names the place and the remedy. The command line exits with 2."""


class EncodeError(KfuzzError):
    """A value does not fit the format (an int16 out of range, a header key of None, …)."""


class RecordsError(KfuzzError):
    """The bytes were refused. ``finding`` is the first fatal finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class MessageError(KfuzzError):
    """A message's bytes were refused. ``finding`` is the first fatal finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding
