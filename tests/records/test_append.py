"""A broker's changes to bytes: LogValidator stores the same, for every pair of codecs and both timestamp types."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any

import pytest
from conftest import counts
from kafka_tools import ask_all
from testee_driver import RunningTestee

from kfuzz import records
from kfuzz.errors import EncodeError, RecordsError, UsageError
from kfuzz.mutate import Mutator
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.engine import seal
from kfuzz.records import CODECS, Record, RecordBatch
from kfuzz.records.appending import (
    Appended,
    append,
    assign_offsets,
    recompress,
    set_max_timestamp,
    set_partition_leader_epoch,
    stamp_log_append_time,
)
from kfuzz.records.builder import rebuild
from kfuzz.records.read.topic import Topic
from kfuzz.vectors.model import load_suite

NOW_MS = 1_700_000_000_000
MUTANTS = 3_000
RECORDS = [Record(i, NOW_MS + (5, 9, 7)[i], b"key", b"value", ((b"h", b"1"),)) for i in range(3)]


def produced(**fields: Any) -> bytes:
    return records.encode_batch(RecordBatch(**({"base_offset": 0, "last_offset": 2, "records": RECORDS} | fields)))


def test_messages_of_magic_0_have_no_largest_timestamp() -> None:
    found = {magic: rebuild(RECORDS, magic=magic, base_offset=0, without_headers=True) for magic in (0, 1)}
    assert (found[0].max_timestamp, found[0].offset_of_max_timestamp) == (-1, -1)
    assert (found[1].max_timestamp, found[1].offset_of_max_timestamp) == (NOW_MS + 9, 1)


# --- against Kafka --------------------------------------------------------------------------------------------------


def in_json(topic: Topic) -> dict[str, Any]:
    """The topic as the testee is told of it: 64-bit integers are text."""
    wide = ("now", "first_offset", "timestamp_before_max_ms", "timestamp_after_max_ms")
    names = (*wide, "compression", "timestamp_type", "compacted", "leader_epoch", "max_message_bytes")
    return {name: str(getattr(topic, name)) if name in wide else getattr(topic, name) for name in names}


def answers(kafka: RunningTestee, inputs: list[tuple[bytes, Topic]]) -> list[dict[str, Any]]:
    request = {"operation": "decode-records", "role": "broker"}
    return ask_all(kafka, [request | {"hex": data.hex(), "topic": in_json(topic)} for data, topic in inputs])


def agreed(data: bytes, topic: Topic, answer: dict[str, Any]) -> str:
    """How kfuzz and Kafka agree; an assertion where they do not."""
    try:
        mine = append(data, topic)
    except RecordsError:
        assert answer["outcome"] != "accepted", data.hex()
        return "refused"
    assert answer["outcome"] == "accepted", (data.hex(), answer)
    assert mine.consumed == answer["consumed"]
    theirs = bytes.fromhex(answer["hex"])
    if mine.in_place or theirs[22] & 7 == 0:
        assert mine.data == theirs, data.hex()
        return "in place" if mine.in_place else "rebuilt without a codec"
    # Libraries compress alike in other bytes: length, CRC and payload may differ, and nothing else.
    assert (mine.data[:8], mine.data[12:17], mine.data[21:61]) == (theirs[:8], theirs[12:17], theirs[21:61]), data.hex()
    assert contents(mine.data) == contents(theirs)
    return "recompressed"


def contents(data: bytes) -> list[dict[str, Any]]:
    return records.to_json(records.decode(data))


def held_to_kafka(kafka: RunningTestee, inputs: list[tuple[bytes, Topic]]) -> Counter[str]:
    return Counter(
        agreed(data, topic, answer) for (data, topic), answer in zip(inputs, answers(kafka, inputs), strict=True)
    )


@pytest.mark.java
@pytest.mark.parametrize("count", counts(240, 960))
def test_kafka_stores_the_same_for_every_codec_to_every_other_and_both_timestamp_types(
    kafka: RunningTestee, count: int
) -> None:
    batches = [
        produced(compression=codec, timestamp_type=kind, **fields)
        for codec, kind in product(CODECS, ("create", "log-append"))
        for fields in (
            {},
            {"producer_id": 7, "producer_epoch": 1, "base_sequence": 5, "transactional": True},
            {"delete_horizon": NOW_MS},
            {"max_timestamp": -1},
        )
    ]
    topics = [
        Topic(compression=codec, timestamp_type=kind, first_offset=first, leader_epoch=3, now=NOW_MS + 77)
        for codec, kind, first in product(("producer", *CODECS), ("create", "log-append"), (0, 1 << 40))
    ]
    pairs = list(product(batches, topics))
    assert len(pairs) == 960
    seen = held_to_kafka(kafka, random.Random(1).sample(pairs, count))
    assert all(seen[how] > count // 20 for how in ("refused", "in place", "rebuilt without a codec", "recompressed")), (
        seen
    )


@pytest.mark.full
@pytest.mark.java
def test_kafka_stores_the_same_of_the_suite_and_of_mutants(kafka: RunningTestee) -> None:
    suite = [vector.data for vector in load_suite() if not vector.budget and len(vector.data) < 1 << 16]
    inputs = []
    for index, data in enumerate([*suite, *(Mutator(11, role="broker").input_at(i) for i in range(MUTANTS))]):
        dice = Dice(3, index)
        topic = Topic(
            compression=dice.pick(("producer", "producer", *CODECS)),
            timestamp_type=dice.pick(("create", "log-append")),
            first_offset=dice.pick((0, 5, 1 << 40)),
            leader_epoch=dice.pick((0, 9)),
            compacted=dice.chance(0.2),
            now=NOW_MS,
            **dice.pick(({}, {}, {"timestamp_before_max_ms": 500, "timestamp_after_max_ms": 300})),
            **dice.pick(({}, {}, {}, {"max_message_bytes": 150})),
        )
        inputs.append((data, topic))
    seen = held_to_kafka(kafka, inputs)
    assert all(seen[how] > 50 for how in ("refused", "in place", "rebuilt without a codec", "recompressed")), seen


# --- alone ----------------------------------------------------------------------------------------------------------


def test_the_default_topic_keeps_the_payload_and_counts_from_0() -> None:
    data = produced(compression="zstd", partition_leader_epoch=-1)
    assert append(data) == Appended(
        data[:12] + bytes(4) + data[16:], 0, 2, NOW_MS + 9, in_place=True, consumed=len(data)
    )


def test_a_partial_tail_is_dropped() -> None:
    data = produced()
    appended = append(data + data[:40])
    assert (appended.consumed, len(appended.data)) == (len(data), len(data))


def test_batches_that_a_broker_refuses_are_refused_with_their_finding() -> None:
    with pytest.raises(RecordsError) as caught:
        append(produced(base_offset=5, last_offset=7))
    assert caught.value.finding.code == "base-offset-not-zero"


def test_a_batch_that_cannot_be_rebuilt_is_refused_only_where_it_must_be() -> None:
    data = produced(producer_id=7, producer_epoch=-1, base_sequence=0)
    assert append(data).in_place
    with pytest.raises(RecordsError, match="no producer epoch") as caught:
        append(data, Topic(compression="gzip"))
    assert caught.value.finding.code == "rebuild-refused"


def test_a_batch_that_grows_beyond_the_limit_as_it_is_rebuilt_is_refused() -> None:
    data = produced(records=[Record(i, NOW_MS, None, b"a" * 1000) for i in range(3)], compression="gzip")
    topic = Topic(compression="none", max_message_bytes=500)
    assert len(data) < 500
    with pytest.raises(RecordsError) as caught:
        append(data, topic)
    assert caught.value.finding.code == "batch-too-large"


def test_offsets_and_leader_epoch_are_set_without_touching_the_crc() -> None:
    data = produced()
    moved = set_partition_leader_epoch(assign_offsets(data, 1 << 40), 6)
    (batch,) = records.decode(moved)
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (1 << 40, (1 << 40) + 2, 6)
    assert moved[16:] == data[16:]


def test_log_append_time_stamps_every_record_and_seals_the_batch() -> None:
    (batch,) = records.decode(stamp_log_append_time(produced(compression="lz4"), 99))
    assert batch.timestamp_type == "log-append"
    assert [record.timestamp for record in batch.records] == [99, 99, 99]


def test_a_max_timestamp_that_is_right_leaves_even_unused_bits_alone() -> None:
    data = produced()
    odd = seal(data[:21] + b"\x80\x80" + data[23:], length=False, crc=True)
    assert set_max_timestamp(odd, "create", NOW_MS + 9) == odd
    assert set_max_timestamp(odd, "create", NOW_MS)[21:23] == b"\0\0"


def test_recompression_keeps_everything_but_the_bytes() -> None:
    data = produced(producer_id=7, producer_epoch=1, base_sequence=5, partition_leader_epoch=4, base_offset=0)
    for codec in CODECS:
        other = recompress(data, codec)
        assert contents(recompress(other, "none")) == contents(data)
        assert contents(other) == [{**batch, "compression": codec} for batch in contents(data)]
    assert recompress(data, "none") == data


def test_wrong_use_is_reported() -> None:
    with pytest.raises(UsageError, match="magic 2"):
        assign_offsets(produced(magic=1, records=[Record(0, 5, b"k", b"v" * 60)], last_offset=0), 5)
    with pytest.raises(UsageError, match="does not exist"):
        set_max_timestamp(produced(), "none", 5)
    with pytest.raises(UsageError, match="one batch"):
        recompress(produced() * 2, "gzip")
    with pytest.raises(RecordsError):
        recompress(produced()[:-1] + b"?", "gzip")
    with pytest.raises(EncodeError, match="at least one record"):
        recompress(produced(records=[]), "gzip")
    with pytest.raises(UsageError, match="compression"):
        Topic(compression="brotli")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="first_offset is -1"):
        Topic(first_offset=-1)
