"""The layouts that the oldest documents print, in the versions that had them.

Kafka 4.4 has none of them any more; Kafka 3.9.2 still reads them. What no release ever had is in docs/messages.md.
"""

from __future__ import annotations

from kfuzz.records import Record, RecordBatch, encode
from kfuzz.vectors.recipes.making.message import Body, body
from kfuzz.vectors.recipes.theme import Theme

__all__ = ["theme"]

PRINTED = ["MSG-PRINTED-1"]
# Names by their codes, as the protocol has had them since its first versions.
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
    """messages/printed"""
    made = Theme(
        "messages/printed",
        "FetchRequest, FetchResponse and OffsetResponse as the oldest documents print them.",
        "message",
    )
    _fetch_requests(made)
    _fetch_responses(made)
    _offset_responses(made)
    return made


def _add(made: Theme, whole: Body, slug: str, summary: str, *more: str) -> None:
    name = f"{whole.definition.name} in version {whole.version}"
    made.message(f"{whole.slug}-{slug}", f"{name}: {summary}", whole, requirements=[*PRINTED, *more], canonical=True)


def _fetch_request(**changes: int) -> Body:
    values = {"replicaId": -1, "maxWaitMs": 500, "minBytes": 1} | changes
    partitions = [{"partition": n, "fetchOffset": 100 * n, "partitionMaxBytes": 4096} for n in (0, 1)]
    return body("FetchRequest", 0, {**values, "topics": [{"topic": "t", "partitions": partitions}]})


def _fetch_requests(made: Theme) -> None:
    _add(made, _fetch_request(), "consumer", "two partitions of a topic, asked by a consumer")
    _add(made, _fetch_request(replicaId=2), "replica", "two partitions of a topic, asked by another broker")
    _add(made, body("FetchRequest", 0, {"replicaId": -1, "topics": []}), "no-topics", "no topics", "MSG-ARRAY-1")
    # The document prints uint32; every release has int32.
    _add(made, _fetch_request(maxWaitMs=-1), "wait-sign", "the largest uint32 to wait, which every release reads as -1")
    _add(
        made,
        _fetch_request(minBytes=-(2**31)),
        "bytes-sign",
        "2,147,483,648 as uint32 bytes, which every release reads as -2,147,483,648",
    )
    two = [
        {"topic": name, "partitions": [{"partition": 0, "fetchOffset": 2**63 - 1, "partitionMaxBytes": 1}]}
        for name in ("a", "b")
    ]
    _add(
        made,
        body("FetchRequest", 0, {"replicaId": -1, "topics": two}),
        "two-topics",
        "two topics, at the largest offset",
    )


def _fetch_response(error: int, messages: bytes | None) -> Body:
    partition = {"partitionIndex": 3, "errorCode": error, "highWatermark": 1000, "records": messages}
    return body("FetchResponse", 0, {"responses": [{"topic": "t", "partitions": [partition]}]})


def _fetch_responses(made: Theme) -> None:
    message = encode([RecordBatch(5, 5, [Record(5, None, b"k", b"v")], magic=0)])
    for slug, summary, messages in (
        ("message", "a message set of one message of magic 0", message),
        ("cut-message", "a message set whose last message is cut, as brokers send it", message + message[:-3]),
        ("no-message", "an empty message set", b""),
    ):
        _add(made, _fetch_response(0, messages), slug, summary, "MSG-BYTES-1")
    for name, code in ERRORS:
        summary = (
            f"error code {code}, which nobody has given"
            if name == "not-given"
            else f"error code {code}, {name.replace('-', ' ')}"
        )
        _add(made, _fetch_response(code, b""), f"error-{name}", summary, "MSG-ERRORS-1")


def _offset_responses(made: Theme) -> None:
    for slug, summary, offsets in (
        ("offsets", "three offsets of a partition, the oldest last", [900, 500, 0]),
        ("one-offset", "one offset of a partition", [2**63 - 1]),
        ("no-offsets", "no offset of a partition", []),
    ):
        partition = {"partitionIndex": 3, "errorCode": 0, "oldStyleOffsets": offsets}
        values = {"topics": [{"name": "t", "partitions": [partition]}]}
        _add(made, body("ListOffsetsResponse", 0, values), slug, summary, "MSG-ARRAY-1")
    whole = body("ListOffsetsResponse", 0, values)
    count = whole.place("count", "topics[0].partitions[0].oldStyleOffsets")
    made.message(
        f"{whole.slug}-offsets-beyond",
        "ListOffsetsResponse in version 0: more offsets than there are bytes",
        whole.broken(count, b"\x00\x00\x00\x09", "count-exceeds-message", behind=bytes(8)),
        requirements=["MSG-PRINTED-1", "MSG-ARRAY-1"],
    )
