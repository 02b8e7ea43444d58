"""Records of Kafka's own topics: keys and values become what they mean, and bad bytes become errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_driver import kfuzz

from kfuzz import records
from kfuzz.kafka import INTERNAL_TOPICS, LATEST
from kfuzz.messages import encode
from kfuzz.messages.catalogues import RECORDS, catalogue
from kfuzz.messages.internal import Side, decode_internal, topic_of_path
from kfuzz.messages.sample import filled
from kfuzz.records import Record, RecordBatch

DEFINITIONS = catalogue(RECORDS[LATEST]).messages
# Definitions that are no records of a topic.
OTHER = {"ProducerSnapshot", "QuorumStateData"}


def int16(number: int) -> bytes:
    return number.to_bytes(2, "big", signed=True)


def offset_commit(offset: int) -> Record:
    key = int16(1) + encode(DEFINITIONS["OffsetCommitKey"], 0, {"group": "g", "topic": "orders", "partition": 3})
    value = int16(3) + encode(DEFINITIONS["OffsetCommitValue"], 3, {"offset": 17, "metadata": "m"})
    return Record(offset, 1, key, value)


def test_every_record_definition_is_decoded_in_one_topic_in_each_version() -> None:
    seen = set()
    for definition in DEFINITIONS.values():
        for version in definition.valid_versions:
            data = encode(definition, version, filled(definition, version, 1))
            kind = definition.api_key or 0
            key, value = None, None
            if definition.kind == "metadata":
                value = bytes([1, kind, version]) + data
            elif definition.kind == "coordinator-key":
                key = int16(kind) + data
            elif definition.kind == "coordinator-value":
                key_definition = DEFINITIONS[definition.name.removesuffix("Value") + "Key"]
                key = int16(kind) + encode(key_definition, 0, filled(key_definition, 0, 1))
                value = int16(version) + data
            else:
                assert definition.name in OTHER
                continue
            topics = []
            for topic in INTERNAL_TOPICS:
                record = decode_internal(topic, key, value)
                side = record.key if value is None else record.value
                if side is not None and (side.name, side.error) == (definition.name, ""):
                    assert value is None or side.version == version
                    topics.append(topic)
            assert len(topics) == 1, (definition.name, version, topics)
            seen.add(topics[0])
    assert seen == set(INTERNAL_TOPICS)


@pytest.mark.parametrize(
    ("topic", "key", "value", "expected"),
    [
        ("__consumer_offsets", None, b"\0\0", "the key is null"),
        ("__consumer_offsets", b"\0", b"\0\0", "the key has 1 bytes; its kind takes 2"),
        ("__consumer_offsets", int16(99), b"\0\0", f"Kafka {LATEST} knows no record of kind 99 in this topic"),
        ("__transaction_state", int16(1), b"\0\0", f"Kafka {LATEST} knows no record of kind 1 in this topic"),
        ("__transaction_state", int16(0) + b"\0\1t", int16(9), f"the version is 9; Kafka {LATEST} knows 0-1"),
        ("__transaction_state", int16(0) + b"\0\1t", b"\0", "the value has 1 bytes; its version takes 2"),
        ("__cluster_metadata", None, b"", "the version of the frame is not a varint"),
        ("__cluster_metadata", None, b"\1\2", "the version is not a varint"),
        ("__cluster_metadata", None, b"\2\2\0", f"the version of the frame is 2; Kafka {LATEST} knows 1"),
        ("__cluster_metadata", None, b"\1\x7f\0", f"Kafka {LATEST} knows no record of kind 127 in this topic"),
        (
            "__cluster_metadata",
            None,
            b"\1\2\0\5",
            "TopicRecord.name at byte 0: the length is 4, and 0 bytes are left [length-exceeds-message]",
        ),
    ],
)
def test_bad_bytes_are_errors_of_their_side(topic: str, key: bytes | None, value: bytes, expected: str) -> None:
    side = decode_internal(topic, key, value).value
    assert side is not None
    assert (side.error, side.values) == (expected, None)
    assert side.to_json()["error"] == expected


def test_a_record_of_a_keyless_topic_has_no_key() -> None:
    assert decode_internal("__cluster_metadata", b"k", None).key == Side(
        "", 0, None, "the records of this topic have no key"
    )
    assert decode_internal("__cluster_metadata", None, None).value is None


def test_the_subscription_of_a_group_member_is_decoded_if_it_is_a_consumer() -> None:
    subscription = int16(9) + encode("ConsumerProtocolSubscription", 3, {"topics": ["orders"]}) + b"of a later version"
    member = {"memberId": "m", "clientId": "c", "clientHost": "h", "subscription": subscription, "assignment": b"\0"}
    for kind in ("consumer", "connect"):
        group = {"protocolType": kind, "generation": 1, "protocol": "range", "leader": "m", "members": [member]}
        data = int16(3) + encode(DEFINITIONS["GroupMetadataValue"], 3, group)
        side = decode_internal("__consumer_offsets", int16(2) + b"\0\1g", data).value
        assert side is not None
        assert side.values is not None
        (made,) = side.values["members"]
        assert made["assignment"] == "00"
        if kind == "consumer":
            assert (made["subscription"]["version"], made["subscription"]["data"]["topics"]) == (9, ["orders"])
        else:
            assert made["subscription"] == subscription.hex()


def test_the_topic_is_known_by_the_folder() -> None:
    assert topic_of_path("data/__consumer_offsets-12/00000000000000000000.log") == "__consumer_offsets"
    for path in (
        "__consumer_offsets/0.log",
        "orders-1/0.log",
        "__consumer_offsets-x/0.log",
        "__other-1/0.log",
        "0.log",
    ):
        assert topic_of_path(path) is None


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(records.encode_batch(RecordBatch(0, 1, [offset_commit(0), offset_commit(1)], compression="gzip")))
    return path


KEY = {"group": "g", "topic": "orders", "partition": 3}


def test_show_and_cat_decode_in_a_folder_of_the_topic_or_with_the_option(segment: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy.log"
    other.write_bytes(segment.read_bytes())
    text = f"key: OffsetCommitKey version 0: {json.dumps(KEY)}"
    assert kfuzz("show", segment).stdout.count(text) == 2
    assert kfuzz("show", segment, "--batch", "0").stdout.count(text) == 2
    assert "OffsetCommitKey" not in kfuzz("show", other).stdout
    assert kfuzz("show", other, "--records-of", "__consumer_offsets").stdout.count(text) == 2
    assert "OffsetCommitKey" not in kfuzz("show", segment, "--records-of", "none").stdout

    def keys(*words: str | Path) -> list[object]:
        done = kfuzz("cat", *words, code=0)
        return [json.loads(line)["key"] for line in done.stdout.splitlines()]

    decoded = {"type": "OffsetCommitKey", "version": 0, "data": KEY}
    assert keys(segment) == [decoded] * 2
    assert keys(tmp_path, "--topics", "__*") == [decoded] * 2
    assert keys(segment.parent, "--tail", "1") == [decoded]
    assert keys(other, "--records-of", "__consumer_offsets") == [decoded] * 2
    assert decoded not in keys(segment, "--records-of", "none")
    assert decoded not in keys(other)
    assert "orders" in kfuzz("cat", segment, "--table").stdout
    # Without its key, the kind of a value is not known.
    done = kfuzz("cat", segment, "--columns", "value")
    assert done.stdout == kfuzz("cat", segment, "--columns", "value", "--records-of", "none").stdout
