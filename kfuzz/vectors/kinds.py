"""The kinds of vectors, one row each. The other modules of ``vectors/`` and the referee read the differences from here.

docs/vectors.md lists what else a new kind needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kfuzz.kafka import ROLES

# The verdicts that an expectation may give for a role.
VERDICTS: Final = ("valid", "invalid", "acceptable")
# The weight of a miss. A missed recommended vector is reported but does not fail the run.
LEVELS: Final = ("required", "recommended")
# The only role of messages and primitives: clients and brokers read them the same way.
READER: Final = "reader"
# The only role of conversations, for whole clients.
CLIENT: Final = "client"
# The option of a records vector that sets the broker's topic configuration.
TOPIC: Final = "topic"
# The kind for whole producers, and its options: the producer may also refuse to send the records; the fields of records
# that its user leaves out; how many records each send has; whether no send waits for the one before; for each send, the
# error of its topic in Metadata; the group whose offsets it commits, with a transaction for each send.
PRODUCE_KIND: Final = "produce"
MAY_REFUSE: Final = "may_refuse"
LEFT_OUT: Final = "left_out"
SENDS: Final = "sends"
AT_ONCE: Final = "at_once"
TOPIC_ERRORS: Final = "topic_errors"
GROUP: Final = "group"
# The kind for conversations, and its option that is no part of the question: the frames of Kafka's own client.
CONVERSATION: Final = "conversation"
FRAMES: Final = "frames"
QUESTION: Final = ("application", "given", "brokers", "broker", "rules")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of vector file.

    ``roles``: the roles that may judge its vectors; the first one judges every vector.
    ``contents``: the member of an expectation that holds the decoded contents; None if the expectations are in
    ``steps``. ``options``: the members that a vector may have beside its bytes, by their names in the testee protocol.
    ``findings``: the table of finding codes that its vectors may use. ``batches``: the bytes are record batches with
    CRCs.
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
        Kind(
            "stream",
            ROLES,
            None,
            ("isolation", "aborted", "fetch_offset", "transaction_version", "broker", "fetches_at_end"),
            "records",
            True,
        ),
        Kind("message", (READER,), "message", ("message", "version"), "messages", False),
        Kind("primitive", (READER,), "value", ("primitive",), "messages", False),
        # The bytes are a batch that holds the records to send, and that a broker accepts.
        Kind(
            PRODUCE_KIND,
            ("broker",),
            "batches",
            (
                *("compression", "idempotent", "transactional_id", "errors", "broker"),
                *(SENDS, AT_ONCE, TOPIC_ERRORS, GROUP, LEFT_OUT, MAY_REFUSE),
            ),
            "records",
            True,
        ),
        # The bytes are the frames of both directions. The contents are what each act of the application gets.
        Kind(CONVERSATION, (CLIENT,), "acts", (*QUESTION, FRAMES), "records", False),
    )
}
STREAM_OPTIONS: Final = KINDS["stream"].options
OPTIONS: Final = tuple(option for kind in KINDS.values() for option in kind.options)
