"""The layouts that the oldest documents print, in the API versions that used them.

Kafka 4.4 no longer has them; Kafka 3.9.2 still reads them. docs/messages.md lists layouts that no release ever had.
"""

from __future__ import annotations

from kfuzz.records import Record, RecordBatch, encode
from kfuzz.vectors.recipes.making.message import Body, body
from kfuzz.vectors.recipes.theme import Theme

# Error names and codes, as in the first versions of the protocol.
ERRORS = (
    ("none", 0),
    ("unknown", -1),
    ("offset-out-of-range", 1),
    ("corrupt-message", 2),
    ("unknown-topic-or-partition", 3),
    ("invalid-fetch-size", 4),
    ("leader-not-available", 5),
    ("not-leader", 6),
    ("request-timed-out", 7),
    ("broker-not-available", 8),
    ("replica-not-available", 9),
    ("message-too-large", 10),
    ("stale-controller-epoch", 11),
    ("offset-metadata-too-large", 12),
    ("network-exception", 13),
    ("given-to-nobody", 32767),
)


def theme() -> Theme:
    """The recipes of ``vectors/messages/printed.json``."""
    made = Theme(
        "messages/printed",
        "FetchRequest, FetchResponse and OffsetResponse as the oldest documents print them.",
        "message",
    ).having(requirements=["MSG-PRINTED-1"])
    _fetch_requests(made)
    _fetch_responses(made)
    _offset_responses(made)
    return made


def _fetch_request(**changes: int) -> Body:
    values = {"replicaId": -1, "maxWaitMs": 500, "minBytes": 1} | changes
    partitions = [{"partition": n, "fetchOffset": 100 * n, "partitionMaxBytes": 4096} for n in (0, 1)]
    return body("FetchRequest", 0, {**values, "topics": [{"topic": "t", "partitions": partitions}]})


def _fetch_requests(made: Theme) -> None:
    made.named("consumer", "a consumer requests two partitions of a topic", _fetch_request())
    made.named("replica", "another broker requests two partitions of a topic", _fetch_request(replicaId=2))
    nothing = body("FetchRequest", 0, {"replicaId": -1, "topics": []})
    made.named("no-topics", "no topic is requested", nothing, also=["MSG-ARRAY-1"])
    # The document prints uint32, but every release has int32.
    made.named("wait-sign", "the wait time is the largest uint32; Kafka reads -1", _fetch_request(maxWaitMs=-1))
    made.named(
        "bytes-sign",
        "the minimum bytes are 2,147,483,648 as uint32, which every release reads as -2,147,483,648",
        _fetch_request(minBytes=-(2**31)),
    )
    two = [
        {"topic": name, "partitions": [{"partition": 0, "fetchOffset": 2**63 - 1, "partitionMaxBytes": 1}]}
        for name in ("a", "b")
    ]
    at_the_end = body("FetchRequest", 0, {"replicaId": -1, "topics": two})
    made.named("two-topics", "two topics are requested at the largest offset", at_the_end)


def _fetch_response(error: int, messages: bytes | None) -> Body:
    partition = {"partitionIndex": 3, "errorCode": error, "highWatermark": 1000, "records": messages}
    return body("FetchResponse", 0, {"responses": [{"topic": "t", "partitions": [partition]}]})


def _fetch_responses(made: Theme) -> None:
    message = encode([RecordBatch(5, 5, [Record(5, None, b"k", b"v")], magic=0)])
    for slug, summary, messages in (
        ("message", "a message set of one message of magic 0", message),
        ("cut-message", "a message set whose last message is truncated, as brokers send it", message + message[:-3]),
        ("no-message", "an empty message set", b""),
    ):
        made.named(slug, summary, _fetch_response(0, messages), also=["MSG-BYTES-1"])
    for name, code in ERRORS:
        what = "which is not assigned" if name == "given-to-nobody" else name.replace("-", " ")
        made.named(f"error-{name}", f"error code {code}, {what}", _fetch_response(code, b""), also=["MSG-ERRORS-1"])


def _offset_responses(made: Theme) -> None:
    for slug, summary, offsets in (
        ("offsets", "a partition has three offsets, the oldest last", [900, 500, 0]),
        ("one-offset", "a partition has one offset", [2**63 - 1]),
        ("no-offsets", "a partition has no offset", []),
    ):
        partition = {"partitionIndex": 3, "errorCode": 0, "oldStyleOffsets": offsets}
        values = {"topics": [{"name": "t", "partitions": [partition]}]}
        made.named(slug, summary, body("ListOffsetsResponse", 0, values), also=["MSG-ARRAY-1"])
    whole = body("ListOffsetsResponse", 0, values)
    count = whole.place("count", "topics[0].partitions[0].oldStyleOffsets")
    made.named(
        "offsets-beyond",
        "the count claims more offsets than there are bytes",
        whole.broken(count, b"\x00\x00\x00\x09", "count-exceeds-message", after=bytes(8)),
        also=["MSG-ARRAY-1"],
    )
