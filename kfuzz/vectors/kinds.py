"""The kinds of vectors: one row for each, from which the rest of ``vectors/`` and the referee take what differs.

docs/vectors.md lists what else a new kind needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kfuzz.kafka import ROLES

__all__ = ["KINDS", "LEVELS", "OPTIONS", "READER", "STREAM_OPTIONS", "TOPIC", "VERDICTS", "Kind"]

# What an expectation may say of a role.
VERDICTS: Final = ("valid", "invalid", "acceptable")
# How much a miss weighs: a recommended vector that is missed is reported and fails nothing.
LEVELS: Final = ("required", "recommended")
# The only role of messages and primitives: clients and brokers read them in the same way.
READER: Final = "reader"
# The option of records that configures the broker.
TOPIC: Final = "topic"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a vector file may be about.

    ``roles`` may judge its vectors; the first of them judges each. ``contents`` is the member of an expectation that
    holds what is read; None where the expectations stand in ``steps``. ``options`` is what a vector may say beside its
    bytes, by the names of the testee protocol. ``findings`` names the table of codes that a vector may find.
    ``batches``: the bytes are record batches, with CRCs.
    """

    name: str
    roles: tuple[str, ...]
    contents: str | None
    options: tuple[str, ...]
    findings: Literal["records", "messages"]
    batches: bool


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("records", ROLES, "batches", (TOPIC,), "records", True),
        Kind("stream", ROLES, None, ("isolation", "aborted", "fetch_offset", "transaction_version"), "records", True),
        Kind("message", (READER,), "message", ("message", "version"), "messages", False),
        Kind("primitive", (READER,), "value", ("primitive",), "messages", False),
    )
}
STREAM_OPTIONS: Final = KINDS["stream"].options
OPTIONS: Final = tuple(option for kind in KINDS.values() for option in kind.options)
