"""A dump's words for each byte: every byte is in it once, and fields are called what they mean."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from kfuzz import records
from kfuzz.annotate.parts import Bounds, Part
from kfuzz.annotate.records import annotate
from kfuzz.control import (
    ControlRecord,
    ControlRecordKey,
    ControlRecordType,
    ControlValue,
    EndTransactionMarker,
    KRaftVersionRecord,
    encode_control,
)
from kfuzz.kafka import Codec
from kfuzz.mutate import Mutator
from kfuzz.records.model import Record, RecordBatch


def control_parts(key: bytes | None, value: bytes | None) -> dict[str, str]:
    """The texts of the fields of a control batch's only record."""
    batch = RecordBatch(0, 0, [Record(0, 1, key, value)], control=True)
    return {part.field: part.value for part in annotate(records.encode([batch])) if ".records[0]" in part.path}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (
            ControlRecordType.KRAFT_VERSION,
            KRaftVersionRecord(1),
            'KRaftVersionRecord version 0: {"version": 0, "kRaftVersion": 1}',
        ),
        (ControlRecordType.COMMIT, EndTransactionMarker(7), 'EndTxnMarker version 0: {"coordinatorEpoch": 7}'),
    ],
)
def test_a_control_records_key_and_value_are_named(kind: ControlRecordType, value: ControlValue, text: str) -> None:
    texts = control_parts(*encode_control(ControlRecord(ControlRecordKey(kind), value)))
    assert (texts["key"], texts["value"]) == (kind.name, text)


@pytest.mark.parametrize(
    ("key", "value", "texts"),
    [
        ("00000063", "beef", ("unknown type 99", "2 bytes")),
        ("0000", "beef", ("the key has 2 bytes; version and type take 4", "2 bytes")),
        ("00000001", "0000", ("4 bytes", "4 bytes are needed here, and 0 are left")),
        ("00000005", "0009ff", ("KRAFT_VERSION", "3 bytes")),
    ],
)
def test_bytes_that_are_no_control_record_are_named_at_their_part(key: str, value: str, texts: tuple[str, str]) -> None:
    said = control_parts(bytes.fromhex(key), bytes.fromhex(value))
    assert (said["key"], said["value"]) == texts


def test_a_record_outside_a_control_batch_is_no_control_record() -> None:
    data = records.encode([RecordBatch(0, 0, [Record(0, 1, bytes.fromhex("00000001"), bytes(6))])])
    assert {part.value for part in annotate(data) if part.field == "key"} == {"4 bytes"}


def test_a_delete_horizon_is_called_one() -> None:
    batch = RecordBatch(0, 0, [Record(0, 7, b"k", None)], delete_horizon=9)
    texts = [
        [part.value for part in annotate(records.encode([made])) if part.field == "base_timestamp"]
        for made in (batch, RecordBatch(0, 0, [Record(0, 7, b"k", None)]))
    ]
    assert texts == [["9 (the delete horizon)"], ["7"]]


def test_every_byte_of_any_input_is_in_one_part() -> None:
    mutator = Mutator(71)
    for _ in range(2000):
        data = mutator.input()
        whole: dict[str, list[Part]] = defaultdict(list)
        sizes = {"": len(data)}
        for part in annotate(data):
            batch, inside, _ = part.path.partition(".payload")
            buffer = batch + inside if inside else ""
            if part.heading and part.path == buffer:
                sizes[buffer] = int(part.value.split()[1])
            whole[buffer].append(part)
        for buffer, size in sizes.items():
            at = 0
            for part in whole[buffer]:
                if part.data:
                    assert part.at == at, (part, data.hex())
                    at += len(part.data)
            assert at == size, (buffer, data.hex())


# ------------------------------------------------------------------------------------------------- bounds


def with_many(magic: Any, compression: Codec, count: int = 50) -> bytes:
    made = [Record(i, 1, b"k%d" % i, b"v" * 100, ((b"h", b"x"),) * 9 if magic == 2 else ()) for i in range(count)]
    return records.encode([RecordBatch(0, count - 1, made, magic=magic, compression=compression)])


@pytest.mark.parametrize(("magic", "compression"), [(2, "none"), (2, "zstd"), (1, "gzip"), (0, "snappy")])
def test_records_left_out_are_counted_and_the_others_stay_the_same(magic: Any, compression: Codec) -> None:
    data = with_many(magic, compression)
    whole = {(part.path, part.field): part for part in annotate(data)}
    parts = list(annotate(data, bounds=Bounds(records=5, headers=2)))
    left = [part for part in parts if part.left_out]
    assert all(part == whole[part.path, part.field] for part in parts if not part.left_out)
    assert [part.left_out for part in left if "headers" not in part.path] == [45]
    assert [part.left_out for part in left if "headers" in part.path] == ([7] * 5 if magic == 2 else [])
    # Together they have all bytes of the records.
    inside = [part for part in parts if ".records[" in part.path]
    shown = sum(part.size for part in inside)
    assert shown == sum(len(part.data) for part in whole.values() if ".records[" in part.path)


def test_the_record_that_is_looked_for_is_shown_with_its_neighbours() -> None:
    parts = list(annotate(with_many(2, "zstd"), bounds=Bounds(records=3, around=30)))
    headings = [
        (part.path.rpartition(".")[2], part.left_out) for part in parts if part.heading and ".records" in part.path
    ]
    numbers = [*((f"records[{i}]", 0) for i in range(3)), ("records[3]", 26)]
    assert headings == [*numbers, *((f"records[{i}]", 0) for i in (29, 30, 31)), ("records[32]", 18)]
    whole = {(part.path, part.field): part for part in annotate(with_many(2, "zstd"))}
    assert all(part == whole[part.path, part.field] for part in parts if not part.left_out)


def test_a_record_that_cannot_be_read_ends_the_count() -> None:
    data = bytearray(with_many(2, "none"))
    at = next(part.at for part in annotate(data) if part.path.endswith("records[40]") and part.field == "key_length")
    data[at : at + 1] = b"\x7e"
    parts = list(annotate(data, bounds=Bounds(records=5)))
    assert [part.left_out for part in parts if part.left_out] == [35]
    assert parts[-1] == list(annotate(data))[-1]


def test_parts_keep_a_bounded_number_of_bytes() -> None:
    data = records.encode([RecordBatch(0, 9, [Record(i, 1, None, bytes(100_000)) for i in range(10)])])
    values = [part for part in annotate(data, bounds=Bounds(kept_bytes=50_000)) if part.field == "value"]
    assert {part.size for part in values} == {100_000}
    assert len(values[0].data) == 32 << 10
    assert sum(len(part.data) for part in values) < 52_000
