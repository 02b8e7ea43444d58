"""The differential: Kafka and kfuzz agree on mutated inputs, and whoever disagrees is caught, named and kept."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import lz4.frame
import pytest
from cli_driver import kfuzz
from conftest import counts, the_testee
from referee_tools import refusing
from signals import KFUZZ, interrupt_when, start

from kfuzz import records
from kfuzz.cli import differential as cli
from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.differential.records import RULES, differ
from kfuzz.conformance.differential.sharing import from_text, to_text
from kfuzz.conformance.judge.reference import OwnVerdict, verdict
from kfuzz.conformance.protocol.lines import Answer
from kfuzz.conformance.protocol.testees import Testee, own
from kfuzz.conformance.report.differences import outcome_of
from kfuzz.errors import UsageError
from kfuzz.kafka import LATEST, Codec
from kfuzz.mutate import Mutator
from kfuzz.mutate.engine import seal
from kfuzz.records import Record, RecordBatch, Role
from kfuzz.records.codecs import compress
from kfuzz.records.codecs.snappy import XERIAL_MAGIC
from kfuzz.vectors.model import load_suite
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.records.message_set import encode_message

ROOT = Path(__file__).resolve().parents[2]
# The rules for inputs that both refuse, but Kafka with an exception that it does not declare.
MANNERS = (
    "a codec without a name",
    "a legacy length beyond its message",
    "a leader epoch before the log's start",
    "undeclared exceptions",
)


def rule(name: str, data: bytes, answer: Answer, role: Role = "consumer") -> bool:
    (found,) = [rule for rule in RULES if name in rule.name]
    return found.fits(data, verdict(data, role), answer)


@pytest.mark.java
@pytest.mark.parametrize(
    ("role", "most", "accepted"), [("consumer", 16_000, 5), ("broker", 6_000, 6), ("log", 2_000, 2)]
)
@pytest.mark.parametrize("percent", counts(4, 100))
def test_kafka_and_kfuzz_agree_on_mutated_inputs(role: Role, most: int, accepted: int, percent: int) -> None:
    count = most * percent // 100
    testee = the_testee(f"kafka-clients@{LATEST}")
    seeds = [v.data for v in load_suite() if v.kind == "records" and not v.budget and len(v.data) <= 4096]
    found = differ(testee, islice(Mutator(1, seeds=seeds, role=role), count), role=role)
    assert [f"{item.reason}\n{item.data.hex()}" for item in found.deviations] == []
    assert (found.inputs, found.restarts) == (count, 0)
    assert found.agreed + found.rules.total() == count
    # Both sides must be kept busy, and rules must stay the exception, or agreement means little.
    assert found.agreements["accepted"] > count // accepted
    assert found.agreements["rejected"] > count // 8
    # Both refuse, for one reason: that is a matter of manners. The rules that let outcomes differ are rare.
    assert found.rules["undeclared exceptions"] < count // 50
    assert found.rules.total() - sum(found.rules[name] for name in MANNERS) < count // (30 if role == "log" else 150)


def test_a_broken_reader_is_caught() -> None:
    """A reader that gives other values than are there disagrees with every other."""

    def broken(data: bytes, role: Role) -> OwnVerdict:
        made = verdict(data, role)
        for batch in made.batches[-1:]:
            for record in batch["records"][-1:]:
                record["value"] = "bb"
        return made

    found = differ(own(), islice(Mutator(1), 300), judged=broken)
    assert len(found.deviations) > 50
    assert any("value is " in item.reason for item in found.deviations)
    assert found.agreed > 50


def test_a_broker_that_stores_other_bytes_is_caught() -> None:
    def broken(data: bytes, role: Role) -> OwnVerdict:
        made = verdict(data, role)
        return made if made.stored is None else replace(made, stored=made.stored[:-1] + b"?")

    found = differ(own(), islice(Mutator(1, role="broker"), 300), role="broker", judged=broken)
    assert len(found.deviations) > 50
    assert all("the stored bytes differ at byte " in item.reason for item in found.deviations)


def test_stored_bytes_are_compared_where_nothing_was_compressed_anew() -> None:
    """Two compressors may make different streams of the same contents."""

    def made_anew(data: bytes, role: Role) -> OwnVerdict:
        made = verdict(data, role)
        return made if made.stored is None else replace(made, stored=made.stored[:-1] + b"?", in_place=False)

    found = differ(own(), islice(Mutator(1, role="broker"), 300), role="broker", judged=made_anew)
    assert found.deviations == []


@pytest.mark.parametrize("role", ["consumer", "broker", "log"])
def test_readers_that_are_one_agree_on_everything(role: Role) -> None:
    found = differ(own(), islice(Mutator(1, role=role), 1_000), role=role)
    assert (found.agreed, found.deviations, found.rules) == (1_000, [], {})


def test_no_rule_excuses_a_testee_that_is_not_kafka(tmp_path: Path) -> None:
    found = differ(refusing(tmp_path), islice(Mutator(1), 300))
    assert found.agreed + len(found.deviations) == 300
    assert all("kfuzz: accepted; refusing@1: rejected" in item.reason for item in found.deviations)
    assert found.agreed > 60
    assert len(found.deviations) > 60


def test_codecs_and_magics_that_a_testee_declares_unsupported_are_not_asked(tmp_path: Path) -> None:
    found = differ(refusing(tmp_path, magic=[]), islice(Mutator(1), 200))
    assert found.unsupported > 150
    assert found.inputs == 200


@pytest.mark.parametrize(
    ("action", "harm", "text"),
    [
        ("sys.exit('wild pointer')", "kills", "ended with status 1: wild pointer"),
        ("toy.say({'id': 'of another'})", "panics", "the answer lacks outcome"),
    ],
)
def test_an_input_that_breaks_the_testee_is_found_and_the_run_continues(
    tmp_path: Path, action: str, harm: str, text: str
) -> None:
    deadly = [Mutator(1).input_at(i) for i in (100, 101, 250)]
    wanted = [data.hex() for data in deadly]
    testee = refusing(tmp_path, f"if json.loads(line)['hex'] in {wanted}: {action}")
    found = differ(testee, islice(Mutator(1), 300))
    broken = [item for item in found.deviations if item.harm == harm]
    assert [item.data for item in broken] == deadly
    assert all(text in item.error for item in broken)
    assert (found.inputs, found.restarts, found.unconfirmed) == (300, 3, 0)
    assert found.failed
    # Every input has one answer: each other input is refused, rightly or not.
    indexes = [item.number for item in found.deviations]
    assert len(set(indexes)) == len(indexes)
    assert found.agreed == 300 - len(indexes)


def test_the_smallest_input_of_a_cause_is_made_simpler(tmp_path: Path) -> None:
    big = records.encode([RecordBatch(7, 16, [Record(7 + i, 9, b"k" * 9, b"v" * 50) for i in range(10)])])
    plain = differ(refusing(tmp_path), [big])
    item = plain.causes[0].smallest
    assert (item.data, item.shrunk_from) == (big, 0)
    found = differ(refusing(tmp_path), [big], shrunk=1)
    [cause] = found.causes
    item = cause.smallest
    assert cause.smallest.key == plain.causes[0].smallest.key
    # A partial tail is refused, too.
    assert (item.data, item.shrunk_from, item.number) == (b"\0", len(big), 0)
    assert (found.inputs, len(found.deviations)) == (1, 1)


@pytest.mark.full
def test_an_input_that_kills_is_made_simpler_and_still_kills(tmp_path: Path) -> None:
    big = records.encode([RecordBatch(7, 16, [Record(7 + i, 9, b"k" * 9, b"v" * 50) for i in range(10)])])
    dies = "if len(json.loads(line)['hex']) >= 200: sys.exit('too long')"
    found = differ(refusing(tmp_path, dies), [big], shrunk=1)
    [cause] = found.causes
    item = cause.smallest
    assert (cause.harm, item.shrunk_from) == ("kills", len(big))
    assert 100 <= len(item.data) < 200


@pytest.mark.full
def test_the_field_that_kills_is_found_with_the_cause_as_its_measure(tmp_path: Path) -> None:
    """The testee ends at a value "bad"; the shrinker leaves that, and the search names it."""
    big = records.encode([RecordBatch(7, 8, [Record(7, 9, b"k" * 9, b"good"), Record(8, 9, None, b"bad")])])
    dies = "if '626164' in json.loads(line)['hex']: sys.exit('a bad value')"
    found = differ(refusing(tmp_path, dies), [big], shrunk=1)
    [cause] = found.causes
    item = cause.smallest
    assert cause.harm == "kills"
    assert item.data.endswith(b"bad")
    assert [(field.at, field.size) for field in item.kills] == [(len(item.data) - 3, 3)]
    again = from_text(to_text(found))
    assert again.deviations == found.deviations


def test_a_testee_that_breaks_for_no_input_alone_is_reported(tmp_path: Path) -> None:
    found = differ(refusing(tmp_path, "if count == 100: sys.exit('tired')"), islice(Mutator(1), 150))
    assert (found.inputs, found.restarts, found.unconfirmed) == (150, 1, 1)
    assert found.failed
    assert all("tired" not in item.error for item in found.deviations)


def test_a_testee_that_does_not_begin_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="nobody: no handshake"):
        differ(Testee("nobody", "", (sys.executable, "-c", "")), [])


def test_a_rule_excuses_a_segment_that_kafka_cuts_off_before_sound_batches() -> None:
    one = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")]))
    data = one + one[:8] + b"\x7f\0\0\x42" + one[12:] + one
    kept = verdict(data, "log").batches
    assert rule("batch-length-wrong", data, Answer("x", "accepted", batches=kept), "log")
    assert not rule("batch-length-wrong", data, Answer("x", "accepted", batches=[]), "log")
    assert not rule("batch-length-wrong", one + one[:-1], Answer("x", "accepted", batches=kept), "log")


def test_every_rule_is_a_row_of_the_docs() -> None:
    text = (ROOT / "docs" / "differences.md").read_text()
    for found in RULES:
        assert f"| {found.name} |" in text


def test_an_undeclared_exception_is_excused_where_kfuzz_refuses_for_the_same_fault() -> None:
    good = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")]))
    endless = good[:61] + b"\xff" * 6 + good[67:]
    endless = endless[:17] + crc32c(endless[21:]).to_bytes(4, "big") + endless[21:]
    assert verdict(endless).fatal is not None
    fault = Answer("x", "fault", error="IllegalArgumentException: Varint is too long")
    assert rule("undeclared", endless, fault)
    assert not rule("undeclared", good, fault)
    assert not rule("undeclared", good[:-1] + b"?", fault)
    assert not rule("undeclared", endless, Answer("x", "fault", error="IllegalArgumentException: newLimit < 0"))
    assert not rule("undeclared", endless, Answer("x", "fault", error="NullPointerException"))


def test_a_codec_is_excused_only_if_the_batch_or_a_message_inside_it_has_it() -> None:
    inner = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], magic=1))
    nested = inner[:17] + b"\6" + inner[18:]
    nested = nested[:12] + zlib.crc32(nested[16:]).to_bytes(4, "big") + nested[16:]
    for data in (nested, wrapped(inner + nested)):
        fault = Answer("x", "fault", error="IllegalArgumentException: Unknown compression type id: 6", batches=[])
        assert rule("codec without", data, fault)
        assert not rule("codec without", data, replace(fault, error=fault.error[:-1] + "7"))
        assert not rule("codec without", data, replace(fault, outcome="rejected"))
        assert not rule("codec without", wrapped(inner), fault)


def test_a_legacy_length_is_excused_only_with_the_numbers_that_kafka_names() -> None:
    inner = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], magic=1))
    longer = inner[:26] + (7).to_bytes(4, "big") + inner[30:]
    longer = longer[:12] + zlib.crc32(longer[16:]).to_bytes(4, "big") + longer[16:]
    for data in (longer, wrapped(inner + longer)):
        fault = Answer("x", "fault", error="IllegalArgumentException: newLimit > capacity: (7 > 6)", batches=[])
        assert rule("legacy length", data, fault)
        assert rule("legacy length", data, replace(fault, error="IndexOutOfBoundsException"))
        assert not rule("legacy length", data, replace(fault, error=fault.error.replace("6", "5")))
        assert not rule("legacy length", wrapped(inner), fault)
        assert not rule("legacy length", wrapped(inner), replace(fault, error="IndexOutOfBoundsException"))


def test_a_leader_epoch_is_excused_only_at_the_offset_that_kafka_names() -> None:
    data = records.encode_batch(RecordBatch(-5, 0, [Record(0, -5, b"k", b"v")], partition_leader_epoch=3))
    words = "IllegalArgumentException: Received invalid partition leader epoch entry "
    for epoch, offset, fits in ((3, -5, True), (4, -5, False), (3, -6, False)):
        fault = Answer("x", "fault", error=f"{words}EpochEntry[epoch={epoch}, startOffset={offset}]")
        assert rule("leader epoch", data, fault, "log") is fits


def test_a_lack_of_memory_is_excused_where_a_size_in_the_payload_claims_more_than_the_heap_has() -> None:
    excused = partial(rule, "inside a compressed payload")
    message = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], magic=1))
    wrapper, modest = (
        wrapped(message + b"\0" * 8 + size.to_bytes(4, "big") + message[12:]) for size in (256 << 20, (256 << 20) - 1)
    )
    fault = Answer("x", "fault", error="OutOfMemoryError: Java heap space", batches=[])
    assert [finding.code for finding in verdict(wrapper).findings] == ["inner-partial-tail"]
    assert excused(wrapper, fault)
    assert not excused(modest, fault)
    assert not excused(wrapped(message), fault)
    assert not excused(wrapped(message) + wrapper, fault)
    for words in ("Java heap space", "Requested array size exceeds VM limit"):
        silent = Answer("x", "fault", error=f"OutOfMemoryError: {words}")
        assert excused(wrapped(message) + wrapper, silent)
        assert not excused(wrapped(message) + modest, silent)
    assert not excused(wrapper, Answer("x", "fault", error="OutOfMemoryError: Metaspace", batches=[]))
    assert not excused(wrapper, Answer("x", "rejected", error="OutOfMemoryError: Java heap space"))
    # Bytes that were read whole need no excuse.
    whole = Answer("x", "accepted", batches=verdict(wrapper).batches)
    assert not excused(wrapper, whole)
    unread = Answer("x", "accepted", batches=[{"base_offset": "0"}])
    assert excused(wrapper, unread)
    assert not excused(modest, unread)
    # The same where both refuse what follows, and not where Kafka alone does.
    refused = Answer("x", "rejected", error="CorruptRecordException", batches=[{"base_offset": "0"}])
    bad = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")]))[:-1] + b"!"
    assert excused(wrapper + bad, refused)
    assert not excused(modest + bad, refused)
    assert not excused(wrapper, refused)


@pytest.mark.parametrize(
    ("codec", "payload", "excused"),
    [
        ("gzip", compress("gzip", b"\x80\x80\x80\x80\x02" + bytes(9)), True),  # A record of 256 MiB.
        ("gzip", compress("gzip", b"\xfe\xff\xff\xff\x01" + bytes(9)), False),  # A byte less.
        ("gzip", compress("gzip", b"\x0e" + bytes(7) + b"\x80\x80\x80\x80\x02"), True),
        # Streams that are cut or go wrong after the record's length.
        ("gzip", compress("gzip", b"\x80\x80\x80\x80\x02" + bytes(9))[:-9], True),
        ("gzip", compress("gzip", b"\x80\x80\x80\x80\x02" + bytes(9), level=0)[:23] + b"\xff" * 9, True),
        ("zstd", bytes.fromhex("28b52ffd0038f90000 8080808002"), True),
        ("zstd", bytes.fromhex("28b52ffd0038f90000 808080"), False),
        ("snappy", b"\x80\x80\x80\x80\x01\0", True),  # The size that a block claims to become.
        ("snappy", b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x10\0\0\0\0", True),  # The size that a chunk claims to have.
        ("snappy", b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x0f\xff\xff\xff\0", False),
        ("none", b"\x80\x80\x80\x80\x02", False),  # Nobody makes room for what is there already.
    ],
)
def test_each_claim_that_kafka_makes_room_for_is_looked_at(codec: Codec, payload: bytes, excused: bool) -> None:
    data = bytearray(
        records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], compression=codec))[:61] + payload
    )
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    fault = Answer("x", "fault", error="OutOfMemoryError: Java heap space", batches=[])
    assert rule("inside a compressed payload", bytes(data), fault) == excused


def test_a_record_count_is_excused_in_a_compressed_batch_alone() -> None:
    fault = Answer("x", "fault", error="OutOfMemoryError: Java heap space", batches=[])
    for codec, count, excused in (("gzip", 64 << 20, True), ("gzip", (64 << 20) - 1, False), ("none", 64 << 20, False)):
        batch = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], compression=cast("Codec", codec)))
        claiming = batch[:57] + count.to_bytes(4, "big") + batch[61:]
        assert rule("inside a compressed payload", claiming, fault, "log") == excused


def wrapped(inner: bytes) -> bytes:
    return encode_message(1, 0, 1, 0, None, compress("gzip", inner, magic=1))


def test_rules_about_codecs_look_at_the_batch_at_which_kafka_stopped() -> None:
    lz4, gzip = (
        records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], compression=codec))
        for codec in ("lz4", "gzip")
    )
    deep = Answer("x", "fault", error="StackOverflowError", batches=[])
    assert rule("gzip", gzip, deep)
    assert not rule("gzip", lz4 + gzip, deep)
    refused = Answer("x", "rejected", error="KafkaException", batches=[])
    assert not rule("lz4", lz4, refused)
    # The block's size is at 68: 61 of header, 7 of frame descriptor. An empty block before it is no end mark.
    assert rule("lz4", records_with_empty_block(lz4), refused)
    assert not rule("lz4", gzip + records_with_empty_block(lz4), refused)


def test_an_empty_lz4_block_is_found_after_a_content_size() -> None:
    good = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")]))
    frame = lz4.frame.compress(good[61:], store_size=True)
    # Magic, flags, block descriptor, eight bytes of content size, header checksum: the first block is at 15.
    assert frame[4] & 8
    refused = Answer("x", "rejected", error="KafkaException", batches=[])
    for payload, excused in ((frame, False), (frame[:15] + b"\0\0\0\x80" + frame[15:], True)):
        data = good[:21] + b"\0\3" + good[23:61] + payload
        data = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
        assert rule("lz4", data, refused) == excused


def test_a_segment_that_kafka_refuses_after_its_last_batch_may_be_refused_for_any() -> None:
    lz4 = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], compression="lz4"))
    gzip = records.encode_batch(RecordBatch(1, 1, [Record(1, 0, b"k", b"v")], compression="gzip"))
    segment = seal(records_with_empty_block(lz4), True, True) + gzip
    for reported, excused in ((2, True), (1, False), (0, True)):
        refused = Answer("x", "rejected", error="KafkaException", batches=[{}] * reported)
        assert rule("an lz4 block of no bytes", segment, refused, "log") == excused


def test_a_broker_may_refuse_the_length_of_the_batch_after_the_first_one() -> None:
    good = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")]))
    bad = good[:8] + (14).to_bytes(4, "big") + good[12:26]
    for length, excused in (((1 << 31) - 1, True), ((1 << 31) - 2, False)):
        after = bytes(8) + length.to_bytes(4, "big") + b"\0\0\0\0\2"
        fault = Answer("x", "fault", error="IllegalArgumentException: newLimit < 0: (-2147483637 < 0)", batches=[])
        assert rule("undeclared exceptions", bad + after, fault, "broker") == excused


@pytest.mark.parametrize(
    ("after", "excused"), [(XERIAL_MAGIC[:6] + b"o", True), (XERIAL_MAGIC, False), (b"x" * 8, False)]
)
def test_a_snappy_stream_may_continue_after_what_begins_like_a_header(after: bytes, excused: bool) -> None:
    good = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], compression="snappy"))
    data = seal(good + after, True, True)
    refused = Answer("x", "rejected", error="InvalidRecordException", batches=[])
    assert rule("snappy", data, refused) == excused
    # Kafka refuses the batch in front of it.
    assert not rule("snappy", good + data, refused)


@pytest.mark.full
@pytest.mark.java
def test_kafka_may_continue_where_kfuzz_stops_at_its_limit() -> None:
    """Then Kafka reads more batches before it refuses one."""
    testee = the_testee(f"kafka-clients@{LATEST}")
    large = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", bytes(65 << 20))], compression="gzip"))
    negative = bytes(8) + b"\xce\x19\x00\x01" + bytes(4) + b"\x02" + bytes(60)
    found = differ(testee, [large + negative])
    assert (found.deviations, found.rules["`decompressed-size-exceeded`"]) == ([], 1)


def records_with_empty_block(batch: bytes) -> bytes:
    data = batch[:68] + b"\0\0\0\x80" + batch[68:]
    return data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]


# --- what was met on the way ----------------------------------------------------------------------------------------

REGRESSIONS = sorted((ROOT / "corpus" / "regressions" / "differential").glob("*.hex"))


def own_outcome(data: bytes, role: Role = "consumer") -> dict[str, Any]:
    """The outcome of ``data`` in kfuzz, as Java would tell it: header keys are text."""
    made = verdict(data, role)
    if made.fatal is not None:
        return {"outcome": "refused"}
    for header in (h for batch in made.batches for record in batch.get("records", ()) for h in record["headers"]):
        if isinstance(header[0], dict):
            header[0] = bytes.fromhex(header[0]["hex"]).decode("utf-8", "replace")
    return outcome_of({"outcome": "accepted", "consumed": made.consumed, "batches": made.batches})


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_inputs_that_once_differed_are_read_as_kafka_reads_them(file: Path) -> None:
    comment, text = file.read_text().splitlines()
    assert comment.startswith("# ")
    kafka = json.loads(file.with_suffix(".json").read_text())
    assert kafka.pop("testee").startswith("kafka-clients@")
    role = kafka.pop("role", "consumer")
    if kafka["outcome"] != "accepted":
        kafka = {"outcome": "refused"}
    assert own_outcome(bytes.fromhex(text), role) == kafka


def test_an_outcome_in_short_tells_contents_apart() -> None:
    first, other = ({"outcome": "accepted", "consumed": 0, "batches": batches} for batches in ([], [{"magic": 2}]))
    assert outcome_of(first)["contents_sha256"] != outcome_of(other)["contents_sha256"]
    assert outcome_of({"outcome": "fault", "error": "x", "batches": []}) == {"outcome": "fault", "error": "x"}
    good = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")]))
    assert own_outcome(good)["consumed"] == len(good)


# --- the command line -----------------------------------------------------------------------------------------------


def test_disagreements_exit_with_1_are_reported_with_their_hex_and_kept_whole(tmp_path: Path) -> None:
    script = refusing(tmp_path).argv
    done = kfuzz(
        "differential", "--count", "200", "--seed", "4", "--command", " ".join(script),
        "--out", str(tmp_path),
        "records/v2/header/*", "--json", str(tmp_path / "report.json"), code=1,
    )  # fmt: skip
    document = json.loads((tmp_path / "report.json").read_text())
    assert (document["testee"], document["seed"], document["inputs"]) == ("refusing@1", 4, 200)
    [cause] = document["causes"]
    named = {f"input {item['index']}": item for item in document["deviations"]}
    first = named[cause["smallest"]["id"]]
    assert len(first["hex"]) == min(len(item["hex"]) for item in named.values())
    kept = tmp_path / "differential" / f"seed-4-input-{first['index']}.bin"
    assert kept.read_bytes().hex() == first["hex"]
    beside = json.loads(kept.with_suffix(".json").read_text())
    [smallest] = beside.pop("cause")["deviations"]
    assert (smallest["harm"], "kills" in smallest) == ("refuses", False)
    assert beside == {"testee": "refusing@1", "outcome": "rejected"}
    assert len(list((tmp_path / "differential").glob("*.bin"))) == 1
    assert (cause["harm"], len(cause["cases"])) == ("refuses", len(document["deviations"]))
    assert (
        f"{cause['smallest']['id']} of seed 4, made simpler (7 to 1 bytes): refused bytes that must be" in done.stdout
    )
    assert done.stdout.splitlines()[-1].endswith(f"{len(document['deviations'])} differ")


def test_agreement_exits_with_0_and_prints_json_alone() -> None:
    document = json.loads(kfuzz("differential", "--testee", "kfuzz", "--count", "300", "--json", "-", code=0).stdout)
    assert (document["agreed"], document["deviations"], document["restarts"]) == (300, [], 0)


def test_an_interrupt_before_a_supported_input_is_no_wrong_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ended(*_: object, begun: Callable[[Differential], None], **__: object) -> None:
        begun(Differential("toy@1", inputs=2, unsupported=2))
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "differ", ended)
    done = kfuzz("differential", "--testee", "kfuzz", "--out", tmp_path, code=130)
    assert done.stderr.splitlines()[-1] == "kfuzz: interrupted"
    assert "2 unsupported by toy@1" in done.stdout


def test_an_interrupted_run_shows_and_keeps_what_it_found(tmp_path: Path) -> None:
    script = refusing(tmp_path, f"count == 300 and open({str(tmp_path / 'asked')!r}, 'x')").argv
    report = tmp_path / "report.json"
    process = start(
        [*KFUZZ, "differential", "--count", "10000000", "--command", " ".join(script), "--json", report], cwd=tmp_path
    )
    out, said = interrupt_when(process, (tmp_path / "asked").exists, within_s=60)
    assert (process.returncode, said.splitlines()[-1]) == (130, "kfuzz: interrupted")
    document = json.loads(report.read_text())
    assert (document["interrupted"], document["inputs"] > 200) == (True, True)
    assert all((tmp_path / cause["file"]).is_file() for cause in document["causes"])
    assert out.splitlines()[-1].endswith(f"{len(document['deviations'])} differ")
