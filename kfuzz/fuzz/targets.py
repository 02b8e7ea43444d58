"""The table of fuzz targets, and the oracles behind those of records.

A target is a function of one input; it returns when all is well and raises when it has found something. Any exception
counts.
"""

from __future__ import annotations

import contextlib
import difflib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from kfuzz import records
from kfuzz.control import decode_control, encode_control
from kfuzz.errors import EncodeError, RecordsError, UsageError
from kfuzz.fuzz.canary import spring
from kfuzz.fuzz.messages import fuzz_messages
from kfuzz.fuzz.messages import mutate as mutate_message
from kfuzz.fuzz.oracle import OracleFailure, exact_buffer
from kfuzz.fuzz.packing import pack
from kfuzz.records import CODECS, Limits, Reading, Record, RecordBatch, Role, Verdict
from kfuzz.records.appending import append
from kfuzz.records.codecs import compress, decompress
from kfuzz.records.compaction import compact
from kfuzz.records.conversion import convert
from kfuzz.records.read.topic import Topic
from kfuzz.records.stream import check_stream, read_committed
from kfuzz.wire.checksum import crc32c
from kfuzz.wire.framing import next_frame
from kfuzz.wire.layout import BATCH_CRC_COVERS_FROM, BATCH_HEADER_SIZE, HEADER_AT
from kfuzz.wire.unpack import unpacked

__all__ = ["TARGETS", "OracleFailure", "PlantedBug", "Target", "exact_buffer", "find"]

# Small, so that bombs are cheap and the bound itself is met often.
LIMITS = Limits(decompressed_bytes=64 * 1024)
# What was read under LIMITS and written again may be longer: under LogAppendTime the records' own deltas are lost.
LIMITS_AGAIN = Limits(decompressed_bytes=1024 * 1024)

# The kinds of vectors whose bytes are record batches.
BATCHES = ("records", "stream")

BEYOND_CONSUMER: tuple[Role, ...] = ("broker", "log")

# Findings about bytes whose contents no encoder of the same format can say again; each with the reason.
UNWRITABLE = {
    # The record has no timestamp, and the wrapper's magic asks for one; or the reverse.
    "inner-magic-mismatch",
}

# Findings about what conversion or compaction has written as Kafka would; each with the reason.
UNREADABLE_AGAIN = {
    # Offsets that do not grow, or lie below 0, do not fit a wrapper of magic 1, which has the last one alone.
    "wrapper-offset-too-low",
    # Messages of magic 0 and 1 take more bytes than records.
    "decompressed-size-exceeded",
}


class PlantedBug(Exception):
    """The canary was found."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one target fuzzes.

    ``run`` takes one input. ``repairs``: mutated inputs get right lengths and CRCs, for they are record batches.
    ``mutate`` makes another input of one, of the longest size allowed, and of a seed; where that is empty, libFuzzer
    mutates. ``vectors``: the kinds of vectors that are seeds. ``dictionary``: its name under ``corpus/dictionaries``.
    ``length_max``: the longest input, in bytes.
    """

    name: str
    about: str
    run: Callable[[bytes], None]
    repairs: bool
    vectors: tuple[str, ...]
    dictionary: str
    length_max: int = 4096
    mutate: Callable[[bytes, int, int], bytes] | None = None

    @property
    def hooked(self) -> bool:
        """Whether mutations go through the hook."""
        return self.repairs or self.mutate is not None


# ------------------------------------------------------------------------------------------------- record-batch


def fuzz_record_batch(data: bytes) -> None:
    """Everything that reading and writing promise about any bytes at all."""
    buffer = exact_buffer(data)
    reading = records.read(buffer, limits=LIMITS)
    compare_paths(reading, records.check(buffer, limits=LIMITS))
    compare_profiles(reading, records.check(buffer, profile="strict", limits=LIMITS))
    compare_one_at_a_time(reading, buffer)
    # Records make their bytes when they are asked for, which may be long after the reader has let go.
    del buffer
    if reading.batches:
        check_round_trip(data, reading)


def compare_paths(reading: Reading, verdict: Verdict) -> None:
    """The verdict-only path says what the object path says, and makes no objects."""
    for name in ("findings", "batch_count", "record_count", "consumed", "partial_tail"):
        if getattr(reading, name) != getattr(verdict, name):
            raise OracleFailure(f"{name}: read says {getattr(reading, name)!r}, check {getattr(verdict, name)!r}")
    if len(reading.batches) != reading.batch_count:
        raise OracleFailure(f"read made {len(reading.batches)} batches and counted {reading.batch_count}")
    # A broker stores some batches that nobody can read, and counts their records by the header.
    if sum(len(batch.records) for batch in reading.batches) != reading.record_count and not any(
        batch.unreadable for batch in reading.batches
    ):
        raise OracleFailure(f"read counted {reading.record_count} records; its batches hold another number")


def compare_one_at_a_time(reading: Reading, buffer: array[int]) -> None:
    """Reading batch by batch gives the same batches, and then the same refusal."""
    batches: list[RecordBatch] = []
    refused = None
    try:
        batches.extend(records.batches(buffer, limits=LIMITS))
    except RecordsError as error:
        refused = error.finding
    if refused != reading.fatal:
        raise OracleFailure(f"read refuses {reading.fatal}, batches {refused}")
    if refused is None and batches != reading.batches:
        raise OracleFailure(f"read and batches differ: {difference(reading.batches, batches)}")


def compare_profiles(kafka: Verdict, strict: Verdict) -> None:
    """Both profiles find the same things at the same places; strict refuses each of them."""
    if [(f.code, f.at, f.path) for f in kafka.findings] != [(f.code, f.at, f.path) for f in strict.findings]:
        raise OracleFailure(f"profile kafka finds {kafka.findings!r}, strict {strict.findings!r}")
    if any(finding.severity != "fatal" for finding in strict.findings):
        raise OracleFailure(f"profile strict lets a finding pass: {strict.findings!r}")


def check_round_trip(data: bytes, reading: Reading) -> None:
    """What was read can be written, reads the same again, and is the same bytes where those were canonical."""
    codes = {finding.code for finding in reading.findings}
    if codes & UNWRITABLE:
        return
    try:
        encoded = records.encode(reading.batches)
    except EncodeError as error:
        raise OracleFailure(f"what was read cannot be written: {error}") from error
    again = records.read(exact_buffer(encoded), limits=LIMITS_AGAIN)
    if again.batches != reading.batches:
        raise OracleFailure(
            difference(reading.batches, again.batches) + f"; findings of the second reading: {again.findings!r}"
        )
    if new := {finding.code for finding in again.findings} - codes:
        raise OracleFailure(f"writing what was read adds findings: {', '.join(sorted(new))}")
    if is_canonical(reading) and encoded != data[: reading.consumed]:
        raise OracleFailure(f"canonical bytes change: {data[: reading.consumed].hex()} becomes {encoded.hex()}")


def is_canonical(reading: Reading) -> bool:
    """Whether an encoder given these contents must produce the very bytes that were read.

    That is so where nothing was found, nothing is compressed (compressed bytes differ between the libraries' versions)
    and every record's own timestamp is among the contents (under LogAppendTime it is not).
    """
    return not reading.findings and all(
        batch.compression == "none" and batch.timestamp_type != "log-append" for batch in reading.batches
    )


def difference(before: list[RecordBatch], after: list[RecordBatch]) -> str:
    """The first place where two lists of batches differ, as a sentence."""
    if len(before) != len(after):
        return f"{len(before)} batches become {len(after)}"
    i, old, new = next((i, a, b) for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    for name in (field.name for field in fields(RecordBatch)):
        if name != "records" and getattr(old, name) != getattr(new, name):
            return f"batch[{i}].{name}: {getattr(old, name)!r} becomes {getattr(new, name)!r}"
    if len(old.records) != len(new.records):
        return f"batch[{i}]: {len(old.records)} records become {len(new.records)}"
    k = next(k for k, (a, b) in enumerate(zip(old.records, new.records, strict=True)) if a != b)
    return f"batch[{i}].records[{k}]: {old.records[k]!r} becomes {new.records[k]!r}"


def fuzz_compressed_batch(data: bytes) -> None:
    """The promises of ``record-batch``, for what stands inside compressed payloads and wrapper messages."""
    packed = pack(data)
    if packed is not None:
        fuzz_record_batch(packed)


# ------------------------------------------------------------------------------------------------- columns


def fuzz_columns(data: bytes) -> None:
    """Arrow's columns are whole by Arrow's own check, and hold what the objects hold."""
    buffer = exact_buffer(data)
    reading = records.read(buffer, limits=LIMITS)
    try:
        columns = records.columns(buffer, limits=LIMITS)
    except RecordsError as error:
        if error.finding != reading.fatal:
            raise OracleFailure(f"read refuses {reading.fatal}, columns {error.finding}") from error
        return
    if reading.fatal is not None:
        raise OracleFailure(f"read refuses {reading.fatal}; columns do not")
    columns.validate(full=True)
    rows = [row_of_columns(row) for row in columns.to_pylist()]
    wanted = [(i, record) for i, batch in enumerate(reading.batches) for record in batch.records]
    if len(rows) != len(wanted):
        raise OracleFailure(f"{len(wanted)} records become {len(rows)} rows")
    for found, (batch, record) in zip(rows, wanted, strict=True):
        as_row = (batch, record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        if found != as_row:
            raise OracleFailure(f"the record {as_row!r} becomes the row {found!r}")
    if list(records.iterate(buffer, limits=LIMITS)) != [record for _, record in wanted]:
        raise OracleFailure("iterate gives other records than read")
    check_columns_written(columns, rows)


def check_columns_written(columns: Any, rows: list[tuple[Any, ...]]) -> None:
    """What is written from columns holds the same rows, where their offsets fit a batch."""
    try:
        written = records.columns(records.encode_columns(columns))
    except EncodeError:
        return
    for (_, offset, timestamp, *content), row in zip(rows, written.to_pylist(), strict=True):
        _, *found = row_of_columns(row)
        if found != [offset, -1 if timestamp is None else timestamp, *content]:
            raise OracleFailure(f"the row {(offset, timestamp, *content)!r} is written as {found!r}")


def row_of_columns(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row in the order that records are compared in."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    return row["batch"], row["offset"], row["timestamp"], row["key"], row["value"], headers


# ------------------------------------------------------------------------------------------------- broker

# What a broker may do to the bytes: leave the payload alone, stamp it, build it anew.
TOPICS = (
    Topic(first_offset=70),
    Topic(timestamp_type="log-append", compacted=True, max_message_bytes=2000),
    Topic(compression="zstd", first_offset=1 << 40),
    Topic(compression="none", timestamp_type="log-append", timestamp_after_max_ms=3_600_000),
)


def fuzz_broker(data: bytes) -> None:
    """A Produce request and a segment: the reader's promises for both roles, and what becomes of accepted bytes."""
    buffer = exact_buffer(data)
    for role in BEYOND_CONSUMER:
        reading = records.read(buffer, role=role, limits=LIMITS)
        compare_paths(reading, records.check(buffer, role=role, limits=LIMITS))
        compare_profiles(reading, records.check(buffer, role=role, profile="strict", limits=LIMITS))
    for topic in TOPICS:
        check_append(buffer, topic)


def check_append(buffer: array[int], topic: Topic) -> None:
    """What a broker stores is one batch at the offset it said, and no consumer refuses its header."""
    fatal = records.check(buffer, role="broker", topic=topic, limits=LIMITS).fatal
    try:
        appended = append(buffer, topic, limits=LIMITS)
    except RecordsError as error:
        if fatal is not None and error.finding != fatal:
            raise OracleFailure(f"check refuses {fatal}, append {error.finding}") from error
        return
    if fatal is not None:
        raise OracleFailure(f"check refuses {fatal}; append does not")
    stored = records.read(exact_buffer(appended.data), role="log", limits=LIMITS_AGAIN)
    if stored.batch_count != 1 or stored.consumed != len(appended.data):
        raise OracleFailure(f"what is stored is no whole batch: {stored!r}")
    if stored.batches[0].last_offset != appended.last_offset:
        raise OracleFailure(f"the last offset is {stored.batches[0].last_offset}; append said {appended.last_offset}")


# ------------------------------------------------------------------------------------------------- log-tools


def fuzz_log_tools(data: bytes) -> None:
    """Conversion, compaction, streams and control records: refused by the taxonomy, or read again as they must be."""
    buffer = exact_buffer(data)
    reading = records.read(buffer, limits=LIMITS)
    for magic in (0, 1, 2):
        check_conversion(buffer, reading, magic)
    check_compaction(buffer, reading)
    for role in BEYOND_CONSUMER:
        with contextlib.suppress(RecordsError):
            check_stream(buffer, role=role, limits=LIMITS)
    with contextlib.suppress(RecordsError):
        list(read_committed(reading.batches))
    for batch in reading.batches:
        if batch.control:
            for record in batch.records:
                check_control_record(record)


def check_conversion(buffer: array[int], reading: Reading, magic: int) -> None:
    """What is converted can be read, and no record is lost that is not told of."""
    try:
        converted = convert(buffer, magic, compression="gzip" if magic < 2 else None, limits=LIMITS)
    except (RecordsError, EncodeError):
        return
    batches = readable(converted.data, f"converted to magic {magic}")
    if batches is None:
        return
    if reading.fatal is not None:
        raise OracleFailure(f"what is refused, {reading.fatal}, is converted to magic {magic}")
    dropped = sum(loss.count for loss in converted.losses if loss.kind == "control-batch")
    if sum(len(batch.records) for batch in batches) + dropped != reading.record_count:
        raise OracleFailure(f"records are lost on the way to magic {magic}; told were {converted.losses!r}")


def check_compaction(buffer: array[int], reading: Reading) -> None:
    """What remains can be read, and is what was to be retained."""
    try:
        compacted = compact(buffer, lambda batch, record: record.offset % 2 == 0, now_ms=1000, limits=LIMITS)
    except (RecordsError, EncodeError):
        return
    kept = [record.key for batch in reading.batches for record in batch.records if record.offset % 2 == 0]
    batches = readable(compacted.data, "compacted")
    if batches is not None and [record.key for batch in batches for record in batch.records] != kept:
        raise OracleFailure(f"compaction should keep {kept!r}")


def readable(data: bytes, how: str) -> list[RecordBatch] | None:
    """The batches of ``data``, which kfuzz itself has written; None where Kafka, too, writes what it cannot read."""
    reading = records.read(exact_buffer(data), limits=LIMITS_AGAIN)
    if reading.fatal is not None and reading.fatal.code in UNREADABLE_AGAIN:
        return None
    if reading.fatal is not None or reading.consumed != len(data):
        raise OracleFailure(f"what was {how} cannot be read: {reading.fatal or 'a partial tail'}")
    return reading.batches


def check_control_record(record: Record) -> None:
    """A control record that is understood is written with the same meaning, or refused as Kafka's writer refuses it."""
    try:
        understood = decode_control(record.key, record.value)
        # Unknown tagged fields may come in any order, and twice; nobody writes them so.
        key, value = encode_control(understood)
    except (RecordsError, EncodeError):
        return
    again = decode_control(key, value)
    if again != understood:
        raise OracleFailure(f"the control record {understood!r} becomes {again!r}")


# ------------------------------------------------------------------------------------------------- compression


def fuzz_compression(data: bytes) -> None:
    """The first byte picks the codec and the magic, the rest is the compressed payload."""
    if not data:
        return
    codec, magic = CODECS[1 + data[0] % 4], data[0] >> 2 & 1
    payload = memoryview(exact_buffer(data))[1:]
    limit = LIMITS.decompressed_bytes
    out = decompress(codec, payload, limit, magic=magic)
    plain = unpacked(CODECS.index(codec), payload, limit) if magic else None
    if plain is not None and out != (plain, len(payload), "whole", ""):
        raise OracleFailure(
            f"{codec}: {len(plain)} bytes came out without Python, with it {len(out.data)}, {out.ended}"
        )
    if len(out.data) > limit:
        raise OracleFailure(f"{codec}: {len(out.data)} bytes came out; the limit is {limit}")
    if not 0 <= out.consumed <= len(payload):
        raise OracleFailure(f"{codec}: consumed {out.consumed} of {len(payload)} bytes")
    if out.ended != "whole":
        return
    again = decompress(codec, compress(codec, out.data, magic=magic), limit, magic=magic)
    if out.data and (again.ended, again.data) != ("whole", out.data):
        raise OracleFailure(f"{codec}: what came out, compressed again, {again.ended}: {again.reason}")
    if out.data:
        tight = decompress(codec, payload, len(out.data) - 1, magic=magic)
        if tight.ended != "limit" or len(tight.data) >= len(out.data):
            raise OracleFailure(f"{codec}: under a limit one byte too small it ended {tight.ended}")


# ------------------------------------------------------------------------------------------------- canary


def fuzz_canary(data: bytes) -> None:
    """A planted bug: behind a whole frame, a right CRC-32C, and seven gates in the record's lengths."""
    buffer = exact_buffer(data)
    size, magic, _ = next_frame(buffer, 0)
    if magic != 2 or size < BATCH_HEADER_SIZE:
        return
    crc = int.from_bytes(data[HEADER_AT["crc"] : BATCH_CRC_COVERS_FROM], "big")
    if crc32c(memoryview(buffer)[BATCH_CRC_COVERS_FROM:size]) != crc:
        return
    if spring(buffer, BATCH_HEADER_SIZE):
        raise PlantedBug("the canary is found; the fuzzer works")


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "record-batch",
            "Read, check, write and read again: any bytes, every magic; the promises of kfuzz.records.",
            fuzz_record_batch,
            repairs=True,
            vectors=BATCHES,
            dictionary="record-batch",
        ),
        Target(
            "compressed-batch",
            "As record-batch, inside compressed payloads and wrapper messages, compressed after the mutation.",
            fuzz_compressed_batch,
            repairs=True,
            vectors=(),
            dictionary="record-batch",
        ),
        Target(
            "columns",
            "Records as Arrow columns: whole, the same as the objects, and written again. Needs pyarrow.",
            fuzz_columns,
            repairs=True,
            vectors=BATCHES,
            dictionary="record-batch",
        ),
        Target(
            "broker",
            "A Produce request and a segment: the reader's promises in these roles, and what a broker stores.",
            fuzz_broker,
            repairs=True,
            vectors=BATCHES,
            dictionary="record-batch",
        ),
        Target(
            "log-tools",
            "Conversion, compaction, streams, control records: refused by the taxonomy, or read again as they must be.",
            fuzz_log_tools,
            repairs=True,
            vectors=BATCHES,
            dictionary="record-batch",
        ),
        Target(
            "compression",
            "The codec containers alone: bounded, never raising, the same bytes after compressing again.",
            fuzz_compression,
            repairs=False,
            vectors=(),
            dictionary="compression",
        ),
        Target(
            "messages",
            "Any request, response or header: read, explained, written, as JSON; the promises of kfuzz.messages.",
            fuzz_messages,
            repairs=False,
            vectors=("message",),
            dictionary="message",
            mutate=mutate_message,
        ),
        Target(
            "canary",
            "A planted bug that must be found; it tests the fuzzer.",
            fuzz_canary,
            repairs=True,
            # The canary's depth must not change with the suite.
            vectors=(),
            dictionary="record-batch",
        ),
    )
}


def find(name: str) -> Target:
    """The target called ``name``; ``UsageError`` names the nearest one."""
    if name in TARGETS:
        return TARGETS[name]
    near = difflib.get_close_matches(name, TARGETS, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TARGETS)}"
    raise UsageError(f"no fuzz target {name!r}; {hint} `kfuzz fuzz --list` shows them")
