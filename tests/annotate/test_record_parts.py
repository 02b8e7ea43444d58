"""What a dump says of each byte: that every byte is in it once, and that fields are called what they mean."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kfuzz import records
from kfuzz.annotate.parts import Part
from kfuzz.annotate.records import annotate
from kfuzz.control import (
    ControlRecord,
    ControlRecordKey,
    ControlRecordType,
    KRaftVersionRecord,
    encode_control,
)
from kfuzz.mutate import Mutator
from kfuzz.records.model import Record, RecordBatch


def control_parts(key: bytes | None, value: bytes | None) -> dict[str, str]:
    """The texts of the fields of a control batch's only record."""
    batch = RecordBatch(0, 0, [Record(0, 1, key, value)], control=True)
    return {part.field: part.value for part in annotate(records.encode([batch])) if ".records[0]" in part.path}


def test_a_control_records_key_and_value_are_named() -> None:
    record = ControlRecord(ControlRecordKey(ControlRecordType.KRAFT_VERSION), KRaftVersionRecord(1))
    texts = control_parts(*encode_control(record))
    assert texts["key"] == "KRAFT_VERSION"
    assert texts["value"] == 'KRaftVersionRecord version 0: {"version": 0, "kRaftVersion": 1}'


@pytest.mark.parametrize(
    ("key", "value", "texts"),
    [
        ("00000063", "beef", ("unknown type 99", "2 bytes")),
        ("0000", "beef", ("the key has 2 bytes; version and type take 4", "2 bytes")),
        ("00000001", "0000", ("4 bytes", "4 bytes are needed here, and 0 are left")),
        ("00000005", "0009ff", ("KRAFT_VERSION", "3 bytes")),
    ],
)
def test_what_is_no_control_record_is_said_where_it_is_not(key: str, value: str, texts: tuple[str, str]) -> None:
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
