"""The oracles: each promise holds on the kept inputs, and each clause is seen to fail when its promise is broken."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from faults import Fault, as_if, having, raising, require_seen
from fuzzer_stub import CANARY_INPUT, require_atheris

from kfuzz import records
from kfuzz.client import link
from kfuzz.corpora import workload as workloads
from kfuzz.errors import EncodeError, UsageError
from kfuzz.fuzz import producers, targets, wholes
from kfuzz.fuzz.decoded_bytes import skipped
from kfuzz.fuzz.packing import pack
from kfuzz.fuzz.producers import Partition, check_producers
from kfuzz.fuzz.seeding import CORPUS, read_hex, regressions, seeds, shapes
from kfuzz.fuzz.targets import TARGETS, PlantedBug
from kfuzz.logs import salvaging, snapshot
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.records import Record, RecordBatch, Verdict, stream
from kfuzz.records.codecs import Decompressed, compress
from kfuzz.relay.frames import Frame
from kfuzz.relay.rule import Rule
from kfuzz.schemas.values import Schemas
from kfuzz.vectors import Vector, load_suite
from kfuzz.wire.io.checksum import crc32c

PLAIN = records.encode_batch(
    RecordBatch(3, 4, [Record(3, 1000, b"k", b"v", ((b"h", b"x"),)), Record(4, 1001, None, b"")])
)
# A deviation: attribute bit 15 is unused.
DEVIANT = PLAIN[:17] + crc32c(b"\x80\0" + PLAIN[23:]).to_bytes(4, "big") + b"\x80\0" + PLAIN[23:]
REFUSED = PLAIN[:-1] + b"!"
# Two records from offset 0 on, as a producer sends them.
PRODUCED = records.encode_batch(RecordBatch(0, 1, [Record(0, 1000, b"k", b"v"), Record(1, 1001, None, b"w")]))
MARKER = records.encode_batch(
    RecordBatch(0, 0, [Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\7")], control=True, transactional=True)
)


def batch_of(sequence: int, epoch: int = 3, coordinator: int | None = None) -> RecordBatch:
    """A transactional batch of one record, or the ABORT marker of a coordinator of this epoch."""
    key, value = (None, b"v") if coordinator is None else (b"\0\0\0\0", b"\0\0" + coordinator.to_bytes(4, "big"))
    of: dict[str, Any] = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": sequence, "transactional": True}
    return RecordBatch(0, 0, [Record(0, 1000 + (coordinator or 0), key, value)], control=coordinator is not None, **of)


# A transaction that two markers abort; a stream in which a batch is sent again, and a marker and a batch come too late.
ENDED = records.encode([batch_of(0), batch_of(1), batch_of(-1, 3, 9), batch_of(-1, 3, 9)])
SENT = records.encode(
    [
        *map(batch_of, (*range(5), 0, 5)),
        batch_of(-1, 3, 9),
        batch_of(6),
        batch_of(0, 4),
        batch_of(-1, 4, 8),
        batch_of(7),
    ]
)
LOG_DIRECTORY, WORKLOAD, VALUE, ROWS = (
    shapes(TARGETS[name])[0] for name in ("log-directory", "readers", "values", "arrow")
)
RULE = wholes.chained([(1, b"Fetch error=NOT_LEADER_OR_FOLLOWER nth=2")])
REQUEST = wholes.chained([(0, struct.pack(">hhihhshh", 12, 0, 7, -1, 1, b"g", 0, 5) + b"\0\1m")])
LOGIN, LOGIN_BY_SCRAM = (next(one for one in shapes(TARGETS["login"]) if one[0] == at) for at in (0, 4))
LOGIN_REFUSED = next(one for one in shapes(TARGETS["login"]) if b"\0\0\x3a" in one)
GZIP = b"\0" + compress("gzip", b"plain")


def test_what_a_process_does_not_instrument_are_modules_and_each_target_keeps_its_own() -> None:
    require_atheris()
    from kfuzz.fuzz import harness

    lists = (harness.UNINSTRUMENTED, harness.BESIDE_RECORDS, harness.BESIDE_MESSAGES)
    assert all(harness.modules_in([name]) for name in chain(*lists))
    assert {"kfuzz.findings", "kfuzz.findings.records"} <= {*harness.modules_in(harness.UNINSTRUMENTED)}
    assert not [name for name in harness.modules_in(harness.BESIDE_RECORDS) if name.startswith("kfuzz.records")]
    assert {*harness.OF_RECORDS} == {one.name for one in TARGETS.values() if one.batches or one.streams}
    assert harness.MESSAGES in TARGETS
    assert all("kfuzz.fuzz.messages" in harness.modules_in(one) for one in lists[1:])


def of(data: bytes) -> Callable[..., Any]:
    """A function that gets other bytes than those that it should get."""
    return lambda real: lambda given, *arguments, **options: real(data, *arguments, **options)


def strict_finds_less(real: Callable[..., Verdict]) -> Callable[..., Verdict]:
    def check(data: Any, limits: records.Limits, profile: records.Profile = "kafka") -> Verdict:
        reading = real(data, limits=limits, profile=profile)
        return replace(reading, findings=[]) if profile == "strict" else reading

    return check


def without_headers(batch: RecordBatch) -> RecordBatch:
    return replace(batch, records=[Record(r.offset, r.timestamp, r.key, r.value) for r in batch.records])


def encoding(change: Callable[[RecordBatch], RecordBatch]) -> Callable[..., Any]:
    return lambda real: lambda batches: real([change(batch) for batch in batches])


def column(name: str, values: list[Any]) -> Callable[..., Any]:
    def changed(made: Any) -> Any:
        at = made.schema.get_field_index(name)
        field = made.schema.field(at)
        return made.set_column(at, field, pytest.importorskip("pyarrow").array(values, field.type))

    return as_if(changed)


def salvages_zeros(root: Path, copy: Path, **how: Any) -> None:
    copy.mkdir()
    copy.joinpath("0.log").write_bytes(bytes(100))


def at_epoch_9(data: bytes) -> bytes:
    return records.encode([replace(batch, producer_epoch=9) for batch in records.decode(data)])


class WithoutAborted(IndexWalk):
    transaction_index = b""


class WithoutMarkersTime(IndexWalk):
    """Remembers of each producer when it sent data, not when its transaction ended."""

    @property
    def producers(self) -> Any:
        return [(*one[:5], 1000, *one[6:]) for one in super().producers]


FAULTS: dict[str, list[Fault]] = {
    "record-batch": [
        # The verdict and the objects, and the two profiles.
        (records, "check", having(findings=[]), DEVIANT, "findings: "),
        (records, "check", having(batch_count=7), DEVIANT, "batch_count: "),
        (records, "check", having(record_count=7), DEVIANT, "record_count: "),
        (records, "check", having(consumed=7), DEVIANT, "consumed: "),
        (records, "check", having(partial_tail=True), DEVIANT, "partial_tail: "),
        (records, "check", lambda real: lambda data, limits, profile="kafka": real(data, limits=limits), DEVIANT,
         "profile strict has a finding that is not fatal"),
        (records, "check", strict_finds_less, DEVIANT, "profile kafka finds"),
        # The encoder.
        (records, "encode", encoding(without_headers), PLAIN, r"batch\[0\].records\[0\]: "),
        *((records, "encode", encoding(lambda batch, name=name: replace(batch, **{name: 123456})), PLAIN,
           rf"batch\[0\].{name}: ") for name in ("base_sequence", "partition_leader_epoch", "max_timestamp")),
        (records, "encode", lambda real: lambda batches: real(batches[1:]), PLAIN + PLAIN, "2 batches become 1"),
        (records, "encode", lambda real: raising(EncodeError("no room")), PLAIN,
         "encode refuses batches that read accepts: no room$"),
        (records, "encode", lambda real: lambda batches: DEVIANT, PLAIN, ".* adds findings: attributes-unused-bits$"),
        (records, "encode", as_if(lambda data: data + b"\0"), PLAIN, "canonical bytes change"),
        # Batches that are read one by one.
        (records, "batches", as_if(lambda batches: list(batches) * 2), PLAIN,
         "read and batches differ: 1 batches become 2"),
        (records, "batches", lambda real: lambda data, limits: [], REFUSED, "read refuses "),
    ],
    "columns": [
        (records, "columns", column("batch", [1, 0]), PLAIN, ".*becomes the row"),
        (records, "columns", column("offset", [3, 5]), PLAIN, ".*becomes the row"),
        (records, "columns", column("timestamp", [1000, None]), PLAIN, ".*becomes the row"),
        (records, "columns", column("key", [b"k", b""]), PLAIN, ".*becomes the row"),
        (records, "columns", column("value", [b"v", None]), PLAIN, ".*becomes the row"),
        (records, "columns", as_if(lambda made: made.slice(1)), PLAIN, "2 records become 1 rows"),
        (records, "encode_columns", lambda real: raising(EncodeError("no valid data")), PLAIN, "rows that were read "),
        (records, "columns", of(REFUSED), PLAIN, "read refuses None, but columns "),
        (records, "columns", of(PLAIN), REFUSED, "read refuses .*, but columns do not"),
    ],
    "broker": [
        (targets, "append", having(last_offset=7), PRODUCED, ".*append said 7"),
        (targets, "append", as_if(lambda made: replace(made, data=made.data * 2)), PRODUCED,
         "append does not store one whole batch"),
        (targets, "append", as_if(lambda made: replace(made, data=made.data[:-1])), PRODUCED,
         "append does not store one whole batch"),
        (targets, "append", of(PRODUCED), PRODUCED[:-1] + b"!", ".*append does not"),
        (records, "check", lambda real: lambda data, topic=None, **how: real(data, **how), PRODUCED,
         "a record lacks a key, and a compacted topic gets None"),
    ],
    "log-tools": [
        (targets, "convert", as_if(lambda made: replace(made, data=records.encode(made.batches[1:]))), PLAIN,
         "conversion to magic 0 loses records"),
        (targets, "convert", of(PLAIN), REFUSED, r"bytes that read refuses \(.*\) are converted to magic 0"),
        (targets, "convert", as_if(lambda made: replace(made, data=made.data[:-1])), PLAIN,
         "bytes that were converted to magic 0 cannot be read"),
        (targets, "compact", lambda real: lambda data, retain, **rest: real(data, lambda batch, record: True, **rest),
         PLAIN, r"compaction should keep \[\(None, "),
        (targets, "compact", as_if(lambda made: replace(made, data=at_epoch_9(made.data))), ENDED,
         "compaction should keep "),
        (targets, "encode_control", lambda real: lambda record: (bytes(4), b"\0\0\0\0\0\7"), MARKER,
         "the control record "),
        (targets, "read_committed", lambda real: lambda log: [] if isinstance(log, bytes) else real(log), PLAIN,
         r"read_committed of bytes gives \[\], of batches \[3\]"),
        (targets, "read_committed", lambda real: lambda log: list(real(log))[:-1], PLAIN,
         r"read_committed hands out \[\]; the markers say \[3\]"),
        # Producers: what is remembered of them, and what of it a broker writes.
        (stream, "BATCHES_KEPT", lambda real: 4, SENT,
         "sequence-overlap instead of sequence-duplicate: batch 5 of a leader"),
        (stream, "next_sequence", lambda real: lambda sequence, count=1: sequence + count, SENT,
         "sequence-gap instead of appended: "),
        (stream, "INT16_MAX", lambda real: -1, SENT, "producer-epoch-stale instead of appended: .* version 2"),
        (stream.ProducerState, "_is_stale", lambda real: lambda *given: False, SENT,
         "sequence-of-new-epoch instead of producer-epoch-stale: "),
        (stream, "end_marker", as_if(lambda made: (made[0], 9)), SENT,
         "appended instead of coordinator-epoch-stale: "),
        (producers, "check_stream", having(last_stable_offset=70), SENT, "the last stable offset is 70, "),
        (snapshot, "asdict", as_if(lambda made: made | {"current_txn_first_offset": -1}), SENT, "the snapshot has "),
        (snapshot.Producer, "followed_by", lambda real: lambda one, later: later or one, ENDED, "the snapshot has "),
        (producers, "IndexWalk", lambda real: WithoutMarkersTime, ENDED, "the snapshot has "),
        (producers, "IndexWalk", lambda real: WithoutAborted, ENDED, "the transaction index is "),
    ],
    "log-directory": [
        (salvaging, "salvage", lambda real: salvages_zeros, LOG_DIRECTORY, "a salvaged file is damaged"),
        (wholes, "_checked", lambda real: lambda root: object(), LOG_DIRECTORY, "check says "),
    ],
    "connection": [
        (Frame, "with_values", lambda real: lambda frame, values: real(frame, {**values, "generationId": 1}), REQUEST,
         "HeartbeatRequest: a frame without findings is written as "),
    ],
    "readers": [
        (workloads, "render", as_if(lambda text: text.replace("partitions = 2", "partitions = 3")), WORKLOAD,
         "a workload is another one after it was written"),
        (Rule, "to_json", lambda real: lambda rule: {**real(rule), "nth": "3" + real(rule)["nth"]}, RULE,
         "a rule is another one after it was written"),
    ],
    "values": [(Schemas, "texts", as_if(lambda texts: [b"{"]), VALUE, "the text of a value is no JSON")],
    "arrow": [
        (records, "encode_columns", lambda real: lambda table: real(table.slice(1)), ROWS,
         "3 rows are written as 2 records"),
        (records, "encode_columns", lambda real: lambda table: real(table.drop_columns("value")), ROWS,
         "the column value "),
    ],
    "login": [
        (link, "response", as_if(lambda values: {**values, "errorCode": 0}), LOGIN_REFUSED,
         "the client logs in, although the broker answers"),
        (link, "dialogue", lambda real: lambda mechanism, *known: real("PLAIN", *known), LOGIN_BY_SCRAM,
         "the client logs in by SCRAM-SHA-256 to a broker that does not know"),
        (link.Link, "_read_answers", lambda real: raising(ValueError("no")), LOGIN,
         "the client fails beside its login: ValueError"),
    ],
    "compression": [
        (targets, "decompress", as_if(lambda out: Decompressed(bytes(70_000), 1, "limit")), GZIP,
         ".*the limit is 65536"),
        (targets, "decompress", as_if(lambda out: Decompressed(b"x", 9_999, "whole")), GZIP, ".*consumed 9999"),
        (targets, "decompress", as_if(lambda out: Decompressed(b"x", 1, "whole")), GZIP,
         ".*with a limit one byte too small, decompress ended whole"),
        (targets, "compress", lambda real: lambda codec, plain, magic: real(codec, plain + b"!", magic=magic), GZIP,
         ".*compressed again"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        pytest.param(target, fault, id=f"{target}-{fault[1]}-{i}")
        for target, faults in FAULTS.items()
        for i, fault in enumerate(faults)
    ],
)
def test_a_broken_promise_is_a_crash(monkeypatch: pytest.MonkeyPatch, target: str, fault: Fault) -> None:
    if target == "columns":
        pytest.importorskip("pyarrow")
    require_seen(monkeypatch, TARGETS[target].run, fault)


@pytest.mark.parametrize(
    "batch",
    [
        # No sequence; a marker that compaction has removed; one with a time of its own; KRaft's control batch.
        replace(batch_of(-1), last_offset=1, records=[Record(1, 1000, None, b"v")]),
        replace(batch_of(-1, 4, 9), records=[]),
        replace(batch_of(-1, 4, 9), max_timestamp=5000),
        RecordBatch(0, 0, [Record(0, 5000, bytes(4), bytes(6))], control=True),
    ],
)
def test_a_snapshot_has_what_kafka_keeps_of_a_producer(batch: RecordBatch) -> None:
    log = records.encode([batch_of(0), replace(batch, base_offset=1, last_offset=1 + batch.last_offset)])
    check_producers(log, records.decode(log))


STREAMS = [vector for vector in load_suite("stream/*", kinds=("stream",)) if "broker" in vector.steps[0]["expect"]]


@pytest.mark.parametrize("vector", STREAMS, ids=lambda vector: vector.id)
def test_the_rules_of_producers_say_what_a_broker_does_with_a_stream(vector: Vector) -> None:
    partition = Partition(True, vector.options.get("transaction_version", 0))
    for step in vector.steps:
        [batch] = records.decode(bytes.fromhex(step["hex"]))
        outcome, finding, offset = partition.append(batch)
        told = {"outcome": outcome, "finding": finding or None, "base_offset": None if offset is None else str(offset)}
        told["last_stable_offset"] = str(partition.stable(partition.end))
        assert told == {name: step["expect"]["broker"].get(name) for name in told}


def test_an_exception_from_the_reader_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "read", raising(IndexError("out of range")))
    with pytest.raises(IndexError):
        TARGETS["record-batch"].run(PLAIN)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.full)], ids=["a-third", "all"])
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "canary"])
def test_every_seed_passes_its_target(name: str, step: int) -> None:
    found = seeds(TARGETS[name])
    assert len(found) > 10
    for data in found[::step]:
        TARGETS[name].run(data)


@pytest.mark.parametrize("name", list(TARGETS))
def test_every_kept_regression_passes_its_target(name: str) -> None:
    for file, data in regressions(TARGETS[name]):
        try:
            TARGETS[name].run(data)
        except Exception as error:
            pytest.fail(f"{file.name}: {error}")


def test_every_kept_regression_is_one_of_a_target_that_looks_at_it() -> None:
    for file in sorted((CORPUS / "regressions").rglob("*.*")):
        if file.suffix == ".json":
            assert file.with_suffix(".hex").is_file(), file
            continue
        name = file.parent.name
        assert file.suffix == ".hex", file
        assert read_hex(file), file
        for data in read_hex(file):
            # A differential reads record batches.
            assert not skipped(TARGETS["record-batch" if name == "differential" else name], data), file


def test_regressions_of_record_batch_are_found() -> None:
    assert regressions(TARGETS["record-batch"])


@pytest.mark.parametrize("data", shapes(TARGETS["compressed-batch"]), ids=lambda data: data[:24].hex())
def test_packing_makes_batches_that_are_read(data: bytes) -> None:
    packed = pack(data)
    assert packed is not None
    assert packed != data
    [batch] = records.decode(packed)
    assert batch.compression != "none"


def test_packing_leaves_alone_what_has_no_codec() -> None:
    assert pack(PLAIN) is None
    assert pack(PLAIN[:-1]) is None
    # Five codecs have names; the attributes have room for eight.
    for codec in (5, 6, 7):
        assert pack(PLAIN[:22] + bytes([codec]) + PLAIN[23:]) is None


def test_the_buffer_that_the_decoder_gets_has_no_byte_to_spare() -> None:
    empty = sys.getsizeof(targets.exact_buffer(b""))
    for size in (1, 16, 17, 61, 4096):
        assert sys.getsizeof(targets.exact_buffer(bytes(size))) == empty + size


def test_the_canary_sings_for_the_input_that_opens_every_gate_and_for_no_neighbour() -> None:
    data = CANARY_INPUT
    with pytest.raises(PlantedBug):
        TARGETS["canary"].run(data)
    # From here on the CRC stands, or covers what follows.
    for at in range(17, len(data)):
        TARGETS["canary"].run(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_an_unknown_target_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean record-batch"):
        targets.find("record-bach")


def test_a_difference_names_the_first_record_that_differs() -> None:
    before, after = ([RecordBatch(0, 2, [Record(i, 1, None, value) for i in range(3)])] for value in (b"v", b"v"))
    after[0].records[1] = Record(1, 1, None, b"other")
    assert targets.difference(before, after).startswith("batch[0].records[1]: ")
