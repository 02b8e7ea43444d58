"""The search for the fields that kill: it names the field that must have its value, wherever that is, and no other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice

import pytest
from conftest import counts

from kfuzz import records
from kfuzz.annotate.killing import KillingField, mark
from kfuzz.annotate.records import annotate
from kfuzz.conformance.differential.records import seeds_of
from kfuzz.edit.killing import TRIES_MAX, killing_fields
from kfuzz.messages.catalogues import catalogue, newest
from kfuzz.messages.codec import check, decode, encode
from kfuzz.mutate import Mutator
from kfuzz.mutate.engine import seal
from kfuzz.records import CODECS, Codec, Record, RecordBatch, RecordsError
from kfuzz.vectors import Vector, load_suite
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, HEADER_AT


def two_batches(codec: Codec = "none", magic: int = 2) -> bytes:
    """Two batches of two records. The second value of the second batch is "bad"."""
    values = [[b"good", b"fine"], [b"good", b"bad"]]
    return records.encode(
        [
            RecordBatch(
                2 * i, 2 * i + 1, [Record(2 * i + k, 7, b"k", one[k]) for k in (0, 1)], compression=codec, magic=magic
            )
            for i, one in enumerate(values)
        ]
    )


def reads(data: bytes) -> list[Record]:
    try:
        return [record for batch in records.decode(data) for record in batch.records]
    except RecordsError:
        return []


def fatal(data: bytes) -> str:
    found = records.check(data).fatal
    return found.code if found else ""


def names(fields: tuple[KillingField, ...]) -> list[str]:
    return [field.field for field in fields]


@pytest.mark.parametrize("codec", CODECS)
def test_a_value_in_the_second_batch_is_found_also_in_a_compressed_payload(codec: Codec) -> None:
    data = two_batches(codec)
    found = killing_fields(data, lambda changed: any(one.value == b"bad" for one in reads(changed)))
    inside = "" if codec == "none" else ".payload"
    assert names(found)[0] == f"batch[1]{inside}.records[1].value"
    [(at, size)] = [(field.at, field.size) for field in found[:1]]
    part = list(annotate(data))[mark(list(annotate(data)), found[0]) or 0]
    assert (part.at, part.data) == (at, b"bad")
    assert size == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_a_value_in_a_message_of_an_old_format_is_found_also_in_a_wrapper(codec: Codec) -> None:
    if codec == "none":
        made = [RecordBatch(i, i, [Record(i, 7, b"k", value)], magic=1) for i, value in enumerate([b"good", b"bad"])]
        data = records.encode(made)
    else:
        data = two_batches(codec, magic=1)
    found = killing_fields(data, lambda changed: any(one.value == b"bad" for one in reads(changed)))
    path = "batch[1].value" if codec == "none" else "batch[1].payload.records[1].value"
    assert names(found)[0] == path


def test_a_number_of_the_header_is_found_and_its_crc_is_not() -> None:
    data = records.encode(
        [RecordBatch(0, 0, [Record(0, 7, b"k", b"v")], producer_id=77, producer_epoch=0, base_sequence=0)]
    )
    found = killing_fields(data, lambda changed: any(b.producer_id == 77 for b in records.read(changed).batches))
    assert names(found) == ["batch[0].producer_id"]
    assert (found[0].at, found[0].size) == (HEADER_AT["producer_id"], 8)


def test_a_wrong_crc_is_found() -> None:
    data = bytearray(two_batches())
    data[HEADER_AT["crc"]] ^= 1
    found = killing_fields(bytes(data), lambda changed: fatal(changed) == "crc-mismatch")
    assert names(found) == ["batch[0].crc"]


def test_null_and_empty_differ_although_both_are_ordinary() -> None:
    data = records.encode([RecordBatch(0, 0, [Record(0, 0, b"k", b"")])])
    found = killing_fields(data, lambda changed: any(one.value == b"" for one in reads(changed)))
    assert names(found)[0] == "batch[0].records[0].value_length"


def test_a_length_counts_where_only_the_length_matters() -> None:
    data = records.encode([RecordBatch(0, 0, [Record(0, 0, b"k", b"x" * 9)])])
    found = killing_fields(data, lambda changed: any(len(one.value or b"") == 9 for one in reads(changed)))
    assert names(found) == ["batch[0].records[0].value_length"]


def test_two_fields_are_named_together_if_either_is_enough() -> None:
    data = records.encode([RecordBatch(0, 1, [Record(0, 0, b"bad", b"v"), Record(1, 0, b"k", b"bad")])])
    found = killing_fields(data, lambda changed: any(b"bad" in (one.key, one.value) for one in reads(changed)))
    assert sorted(names(found)) == ["batch[0].records[0].key", "batch[0].records[1].value"]


def test_a_cause_that_every_input_has_names_no_field() -> None:
    assert killing_fields(two_batches(), lambda changed: True) == ()
    assert killing_fields(b"", lambda changed: True) == ()


def test_a_length_that_ends_a_record_too_early_is_named_as_the_reader_names_it() -> None:
    data = bytearray(records.encode([RecordBatch(0, 0, [Record(0, 0, b"k", b"v")])]))
    data[BATCH_HEADER_SIZE + 4] = 40
    found = killing_fields(seal(bytes(data), True, True), lambda changed: fatal(changed) != "")
    [first, *_] = found
    assert first.field == "batch[0].records[0].key_length"
    # The dump has no part for it.
    parts = list(annotate(seal(bytes(data), True, True)))
    part = parts[mark(parts, first) or 0]
    assert (part.field, part.at <= first.at < part.at + len(part.data)) == ("rest", True)


def test_equal_questions_give_equal_fields_and_there_are_not_more_than_allowed() -> None:
    data = two_batches("lz4")[:-3] + b"abc"
    asked: list[list[bytes]] = [[], []]

    def counted(into: list[bytes]) -> Callable[[bytes], bool]:
        return lambda changed: into.append(changed) or fatal(changed) != ""  # type: ignore[func-returns-value]

    first, again = (killing_fields(data, counted(into)) for into in asked)
    assert first == again
    assert asked[0] == asked[1]
    assert len(set(asked[0])) == len(asked[0]) <= TRIES_MAX


LEAST_OF_100 = 85


def is_hostile(field: KillingField, vector: Vector) -> bool:
    """Whether the field lies in a place that the vector's author made wrong. Of a compressed payload, all is."""
    for place in (place for place in vector.layout if place.get("hostile")):
        if ".payload" in field.field:
            if place["field"].rpartition(".")[2] in ("payload", "value"):
                return True
        elif field.at < place["at"] + place["size"] and place["at"] < field.at + field.size:
            return True
    return False


def assert_most_are_right(
    vectors: Iterable[Vector], side: str, least: int, is_right: Callable[[Vector, str], bool]
) -> None:
    """``is_right`` gets vectors that this side refuses, each with the code of its finding."""
    invalid = (v for v in vectors if v.size < 3000 and v.expect[side]["verdict"] == "invalid")
    chosen = islice(invalid, 0, None, 1 if least == 500 else 5)
    right = [is_right(vector, vector.expect[side]["finding"]) for vector in chosen]
    assert len(right) >= least
    assert sum(right) * 100 >= len(right) * LEAST_OF_100, f"{sum(right)} of {len(right)}"


@pytest.mark.parametrize("least", counts(100, 500))
def test_the_field_is_the_hostile_field_of_almost_every_vector_of_records(least: int) -> None:
    def is_right(vector: Vector, code: str) -> bool:
        def breaks(changed: bytes) -> bool:
            return any(one.code == code and one.severity == "fatal" for one in records.check(changed).findings)

        found = killing_fields(vector.data, breaks)
        return bool(found) and is_hostile(found[0], vector)

    assert_most_are_right(load_suite("records/*"), "consumer", least, is_right)


@pytest.mark.parametrize("least", counts(100, 500))
def test_the_field_is_the_hostile_field_of_almost_every_vector_of_messages(least: int) -> None:
    def is_right(vector: Vector, code: str) -> bool:
        version = vector.options["version"]
        definition = newest(vector.options["message"], version)

        def breaks(changed: bytes) -> bool:
            return any(one.code == code for one in check(definition, version, changed).findings)

        found = killing_fields(vector.data, breaks, (definition, version))
        return bool(found) and any(place.get("hostile") and place["at"] == found[0].at for place in vector.layout)

    vectors = load_suite(["messages/counts/*", "messages/lengths/*", "messages/claims/*"], kinds=("message",))
    assert_most_are_right(vectors, "reader", least, is_right)


def test_a_value_in_a_message_is_found() -> None:
    definition = catalogue().find("ApiVersionsRequest")
    data = encode(definition, 3, {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "bad"})

    def breaks(changed: bytes) -> bool:
        reading = check(definition, 3, changed)
        return reading.fatal is None and decode(definition, 3, changed)["clientSoftwareVersion"] == "bad"

    found = killing_fields(data, breaks, (definition, 3))
    assert names(found) == ["ApiVersionsRequest.clientSoftwareVersion"]


def test_a_field_is_the_same_after_it_was_kept() -> None:
    field = KillingField("batch[0].payload.records[1].key", 12, 1)
    assert KillingField.from_json(field.to_json()) == field
    assert str(field) == "batch[0].payload.records[1].key at byte 12 (1 byte)"


@pytest.mark.parametrize("inputs", counts(60, 1000, 4000))
def test_any_bytes_can_be_searched(inputs: int) -> None:
    """The answers are as good as random, so every kind of change is made."""

    def breaks(changed: bytes) -> bool:
        return hashlib.sha1(changed).digest()[0] > 2

    mutator = Mutator(5, seeds=seeds_of(load_suite("records/*")))
    found = [killing_fields(mutator.input_at(i), breaks) for i in range(inputs)]
    assert sum(map(bool, found)) > inputs // 3
    assert all(field.at >= 0 and field.size > 0 for fields in found for field in fields)
    for length in range(80):
        killing_fields(hashlib.shake_128(bytes([length])).digest(length), breaks)
