"""The table of fuzz targets, and the oracles of the targets for records.

A target is a function that takes one input. It returns if it finds nothing wrong and raises if it does. Any exception
counts as a find.
"""

from __future__ import annotations

import contextlib
import difflib
import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from itertools import cycle
from typing import Any

from kfuzz import records
from kfuzz.control import decode_control, encode_control
from kfuzz.errors import EncodeError, RecordsError, UsageError
from kfuzz.fuzz.canary import spring
from kfuzz.fuzz.logins import fuzz_login
from kfuzz.fuzz.messages import flat_schema_of, fuzz_messages, schema_of
from kfuzz.fuzz.oracle import OracleFailure, exact_buffer
from kfuzz.fuzz.packing import pack, selected
from kfuzz.fuzz.producers import Partition, check_producers, retold
from kfuzz.fuzz.recorder import guarded
from kfuzz.fuzz.tiers import SAMPLED, First, Messages, Packed, Records, Tiers
from kfuzz.fuzz.wholes import fuzz_arrow, fuzz_connection, fuzz_log_directory, fuzz_readers, fuzz_values
from kfuzz.records import CODECS, Limits, Reading, Record, RecordBatch, Role, Verdict
from kfuzz.records.appending import append
from kfuzz.records.codecs import compress, decompress
from kfuzz.records.compaction import compact
from kfuzz.records.conversion import convert
from kfuzz.records.read.topic import Topic
from kfuzz.records.stream import check_stream, read_committed
from kfuzz.vectors.kinds import CONVERSATION
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.io.layout import BATCH_CRC_COVERS_FROM, BATCH_HEADER_SIZE, HEADER_AT
from kfuzz.wire.io.unpack import unpacked
from kfuzz.wire.records.framing import next_frame

__all__ = ["TARGETS", "OracleFailure", "PlantedBug", "Target", "exact_buffer", "find"]

# Small, so that bombs are cheap and inputs often reach the limit.
LIMITS = Limits(decompressed_bytes=64 * 1024)
# Batches may grow when they are written again: LogAppendTime loses the records' own timestamp deltas.
LIMITS_AGAIN = Limits(decompressed_bytes=1024 * 1024)

# The kinds of vectors whose bytes are record batches.
BATCHES = ("records", "stream")

BEYOND_CONSUMER: tuple[Role, ...] = ("broker", "log")

# Findings about bytes whose contents no encoder of the same format can write again. Each has its reason.
UNWRITABLE = {
    # The record has no timestamp although the wrapper's magic requires one, or the reverse.
    "inner-magic-mismatch",
}

# Findings in the output of conversion or compaction where Kafka's output has them too. Each has its reason.
UNREADABLE_AGAIN = {
    # A wrapper of magic 1 stores only the last offset, so it cannot hold offsets that do not grow or are below 0.
    "wrapper-offset-too-low",
    # Messages of magic 0 and 1 take more bytes than records.
    "decompressed-size-exceeded",
}

# Findings in logs that a broker has written: compaction removes the records of markers.
CLEANED = {"control-record-count"}

# The type in the key of a COMMIT marker.
COMMIT = b"\0\1"


class PlantedBug(Exception):
    """The fuzzer found the canary."""


@dataclass(frozen=True, slots=True)
class Target:
    """One fuzz target.

    - ``run`` takes one input: it is the full oracle.
    - ``first`` makes the first tier (:mod:`kfuzz.fuzz.tiers`), which all inputs meet. Without it they meet ``run``.
    - ``batches``: inputs are record batches, as those of most targets are; the native mutator changes their structure.
    - ``compresses``: the target compresses the payloads of its inputs, so the mutator leaves them uncompressed.
    - ``streams``: inputs are compressed payloads, after a byte that selects codec and magic.
    - ``flat_schema_of``: inputs are messages; their first bytes select the schema by which the mutator changes them.
    - ``vectors``: the kinds of vectors that are seeds.
    - ``dictionary``: the name of the dictionary in ``corpus/dictionaries``.
    - ``length_max``: the longest input, in bytes.
    - ``seeds_of``: the target whose seeds it has, if it has none of its own.
    - ``implementation``, ``package``: what is fuzzed, as ``name@version``, and the package that holds its code.
    """

    name: str
    about: str
    run: Callable[[bytes], None]
    batches: bool = True
    vectors: tuple[str, ...] = BATCHES
    dictionary: str = "record-batch"
    compresses: bool = False
    streams: bool = False
    length_max: int = 4096
    flat_schema_of: Callable[[bytes], bytes | None] | None = None
    first: Callable[[], First] | None = None
    seeds_of: str = ""
    implementation: str = "kfuzz"
    package: str = "kfuzz"

    def tiers(
        self,
        *,
        all_twice: bool,
        report: Callable[[bytes, Exception], None] | None = None,
        sample: Callable[[bytes], None] | None = None,
    ) -> Callable[[bytes], None]:
        """The function that a fuzzer calls: both tiers, or ``run`` alone if there is only one.

        ``report`` gets each input that breaks the target, with the exception. Without it, the function raises.
        ``sample`` gets a part of the other inputs.
        """
        if self.first is not None:
            return Tiers(self.first(), self.run, all_twice, report, sample)
        run = self.run if sample is None else _sampled(self.run, sample)
        return run if report is None else guarded(run, report)

    @property
    def hooked(self) -> bool:
        """Whether the target uses the mutation hook."""
        return self.batches or self.flat_schema_of is not None


def _sampled(run: Callable[[bytes], None], sample: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """``run``, after which ``sample`` gets one in SAMPLED inputs."""
    turns = cycle(range(SAMPLED))

    def one(data: bytes) -> None:
        run(data)
        if next(turns) == 0:
            sample(data)

    return one


# ------------------------------------------------------------------------------------------------- record-batch


def fuzz_record_batch(data: bytes) -> None:
    """Any bytes, every magic: read, check, write, read again. Checks the promises of kfuzz.records."""
    buffer = exact_buffer(data)
    reading = records.read(buffer, limits=LIMITS)
    compare_paths(reading, records.check(buffer, limits=LIMITS))
    compare_profiles(reading, records.check(buffer, profile="strict", limits=LIMITS))
    compare_one_at_a_time(reading, buffer)
    # Records read their fields on first access. This must work after the caller has dropped the buffer.
    del buffer
    if reading.batches:
        check_round_trip(data, reading)


def compare_paths(reading: Reading, verdict: Verdict) -> None:
    """``check`` gives the same verdict as ``read``, and ``read`` counts its batches and records right."""
    for name in ("findings", "batch_count", "record_count", "consumed", "partial_tail"):
        if getattr(reading, name) != getattr(verdict, name):
            raise OracleFailure(f"{name}: read says {getattr(reading, name)!r}, but check {getattr(verdict, name)!r}")
    if len(reading.batches) != reading.batch_count:
        raise OracleFailure(f"read made {len(reading.batches)} batches but counted {reading.batch_count}")
    # A broker stores some batches that cannot be read; their records are counted from the header.
    if sum(len(batch.records) for batch in reading.batches) != reading.record_count and not any(
        batch.unreadable for batch in reading.batches
    ):
        raise OracleFailure(f"read counted {reading.record_count} records; its batches hold a different number")


def compare_one_at_a_time(reading: Reading, buffer: array[int]) -> None:
    """Reading batch by batch gives the same batches and the same error."""
    batches: list[RecordBatch] = []
    refused = None
    try:
        batches.extend(records.batches(buffer, limits=LIMITS))
    except RecordsError as error:
        refused = error.finding
    if refused != reading.fatal:
        raise OracleFailure(f"read refuses {reading.fatal}, but batches {refused}")
    if refused is None and batches != reading.batches:
        raise OracleFailure(f"read and batches differ: {difference(reading.batches, batches)}")


def compare_profiles(kafka: Verdict, strict: Verdict) -> None:
    """Both profiles find the same things at the same places. In ``strict`` every finding is fatal."""
    if [(f.code, f.at, f.path) for f in kafka.findings] != [(f.code, f.at, f.path) for f in strict.findings]:
        raise OracleFailure(f"profile kafka finds {kafka.findings!r}, strict {strict.findings!r}")
    if any(finding.severity != "fatal" for finding in strict.findings):
        raise OracleFailure(f"profile strict has a finding that is not fatal: {strict.findings!r}")


def check_round_trip(data: bytes, reading: Reading) -> None:
    """Batches that were read can be written and read again unchanged. Canonical bytes stay the same."""
    codes = {finding.code for finding in reading.findings}
    if codes & UNWRITABLE:
        return
    try:
        encoded = records.encode(reading.batches)
    except EncodeError as error:
        raise OracleFailure(f"encode refuses batches that read accepts: {error}") from error
    again = records.read(exact_buffer(encoded), limits=LIMITS_AGAIN)
    if again.batches != reading.batches:
        raise OracleFailure(
            difference(reading.batches, again.batches) + f"; findings of the second reading: {again.findings!r}"
        )
    if new := {finding.code for finding in again.findings} - codes:
        raise OracleFailure(f"writing and reading again adds findings: {', '.join(sorted(new))}")
    if is_canonical(reading) and encoded != data[: reading.consumed]:
        raise OracleFailure(f"canonical bytes change: {data[: reading.consumed].hex()} becomes {encoded.hex()}")


def is_canonical(reading: Reading) -> bool:
    """Whether an encoder must produce the same bytes from these contents.

    It must if there are no findings, no batch is compressed (compressed bytes depend on the library's version) and the
    contents include every record's own timestamp (under LogAppendTime they do not).
    """
    return not reading.findings and all(
        batch.compression == "none" and batch.timestamp_type != "log-append" for batch in reading.batches
    )


def difference(before: list[RecordBatch], after: list[RecordBatch]) -> str:
    """A sentence about the first difference between two lists of batches."""
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
    """Like record-batch, inside compressed payloads and wrappers; compresses them after the mutation."""
    packed = pack(data)
    if packed is not None:
        fuzz_record_batch(packed)


# ------------------------------------------------------------------------------------------------- columns


def fuzz_columns(data: bytes) -> None:
    """Records as Arrow columns: valid, the same as the objects, written again. Needs pyarrow."""
    buffer = exact_buffer(data)
    reading = records.read(buffer, limits=LIMITS)
    try:
        columns = records.columns(buffer, limits=LIMITS)
    except RecordsError as error:
        if error.finding != reading.fatal:
            raise OracleFailure(f"read refuses {reading.fatal}, but columns {error.finding}") from error
        return
    if reading.fatal is not None:
        raise OracleFailure(f"read refuses {reading.fatal}, but columns do not")
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
        raise OracleFailure("iterate and read give different records")
    check_columns_written(columns, rows)


def check_columns_written(columns: Any, rows: list[tuple[Any, ...]]) -> None:
    """Batches written from columns hold the same rows. Skipped if some rows are too far from each other for a batch."""
    try:
        written = records.columns(records.encode_columns(columns))
    except EncodeError as error:
        if "does not fit a batch" not in str(error):
            raise OracleFailure(f"rows that were read cannot be written: {error}") from error
        return
    for (_, offset, timestamp, *content), row in zip(rows, written.to_pylist(), strict=True):
        _, *found = row_of_columns(row)
        if found != [offset, -1 if timestamp is None else timestamp, *content]:
            raise OracleFailure(f"the row {(offset, timestamp, *content)!r} is written as {found!r}")


def row_of_columns(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row as a tuple, with its fields in the order in which records are compared."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    return row["batch"], row["offset"], row["timestamp"], row["key"], row["value"], headers


# ------------------------------------------------------------------------------------------------- broker

# These topics make a broker keep the payload, change its timestamps, or build it again.
TOPICS = (
    Topic(first_offset=70),
    Topic(timestamp_type="log-append", compacted=True, max_message_bytes=2000),
    Topic(compression="zstd", first_offset=1 << 40),
    Topic(compression="none", timestamp_type="log-append", timestamp_after_max_ms=3_600_000),
)


def fuzz_broker(data: bytes) -> None:
    """A Produce request and a segment: reading in the roles broker and log, and what a broker stores."""
    buffer = exact_buffer(data)
    for role in BEYOND_CONSUMER:
        reading = records.read(buffer, role=role, limits=LIMITS)
        compare_paths(reading, records.check(buffer, role=role, limits=LIMITS))
        compare_profiles(reading, records.check(buffer, role=role, profile="strict", limits=LIMITS))
    for topic in TOPICS:
        check_append(buffer, topic)
    check_keys(buffer)


def check_append(buffer: array[int], topic: Topic) -> None:
    """``append`` stores one whole batch at the offset that it returns, and refuses what ``check`` refuses."""
    fatal = records.check(buffer, role="broker", topic=topic, limits=LIMITS).fatal
    try:
        appended = append(buffer, topic, limits=LIMITS)
    except RecordsError as error:
        if fatal is not None and error.finding != fatal:
            raise OracleFailure(f"check refuses {fatal}, but append {error.finding}") from error
        return
    if fatal is not None:
        raise OracleFailure(f"check refuses {fatal}, but append does not")
    stored = records.read(exact_buffer(appended.data), role="log", limits=LIMITS_AGAIN)
    if stored.batch_count != 1 or stored.consumed != len(appended.data):
        raise OracleFailure(f"append does not store one whole batch: {stored!r}")
    if stored.batches[0].last_offset != appended.last_offset:
        raise OracleFailure(f"the last offset is {stored.batches[0].last_offset}, append said {appended.last_offset}")


def check_keys(buffer: array[int]) -> None:
    """A compacted topic refuses what another one takes if, and only if, a record has no key."""
    reading = records.read(buffer, role="broker", limits=LIMITS)
    if reading.fatal is not None or "records-unreadable" in {finding.code for finding in reading.findings}:
        return
    lacks_key = any(record.key is None for batch in reading.batches for record in batch.records)
    fatal = records.check(buffer, role="broker", topic=Topic(compacted=True), limits=LIMITS).fatal
    if lacks_key != (fatal is not None):
        raise OracleFailure(f"{'a' if lacks_key else 'no'} record lacks a key, and a compacted topic gets {fatal}")


# ------------------------------------------------------------------------------------------------- log-tools


def fuzz_log_tools(data: bytes) -> None:
    """Conversion, compaction, streams, control records: a kfuzz error, or a result that reads back."""
    buffer = exact_buffer(data)
    reading = records.read(buffer, limits=LIMITS)
    for magic in (0, 1, 2):
        check_conversion(buffer, reading, magic)
    check_compaction(buffer, reading)
    for role in BEYOND_CONSUMER:
        with contextlib.suppress(RecordsError):
            check_stream(buffer, role=role, limits=LIMITS)
    check_committed(data, reading)
    if {finding.code for finding in reading.findings} <= CLEANED:
        for log in retold(data):
            again = records.read(log, limits=LIMITS)
            check_producers(log, again.batches)
            check_committed(log, again)
    for batch in reading.batches:
        if batch.control:
            for record in batch.records:
                check_control_record(record)


def check_conversion(buffer: array[int], reading: Reading, magic: int) -> None:
    """Converted bytes can be read, and every lost record is reported."""
    try:
        converted = convert(buffer, magic, compression="gzip" if magic < 2 else None, limits=LIMITS)
    except (RecordsError, EncodeError):
        return
    batches = readable(converted.data, f"converted to magic {magic}")
    if batches is None:
        return
    if reading.fatal is not None:
        raise OracleFailure(f"bytes that read refuses ({reading.fatal}) are converted to magic {magic}")
    dropped = sum(loss.count for loss in converted.losses if loss.kind == "control-batch")
    if sum(len(batch.records) for batch in batches) + dropped != reading.record_count:
        raise OracleFailure(f"conversion to magic {magic} loses records; it reports only {converted.losses!r}")


def check_compaction(buffer: array[int], reading: Reading) -> None:
    """The compacted bytes can be read, and hold exactly the records to retain, of the same producers."""
    try:
        compacted = compact(buffer, lambda batch, record: record.offset % 2 == 0, now_ms=1000, limits=LIMITS)
    except (RecordsError, EncodeError):
        return
    kept = [(record.key, *sender(one)) for one in reading.batches for record in one.records if record.offset % 2 == 0]
    batches = readable(compacted.data, "compacted")
    if batches is not None and [(record.key, *sender(one)) for one in batches for record in one.records] != kept:
        raise OracleFailure(f"compaction should keep {kept!r}")


def sender(batch: RecordBatch) -> tuple[int, int, int, bool]:
    """The producer of a batch, as its header says."""
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional


def readable(data: bytes, how: str) -> list[RecordBatch] | None:
    """The batches of ``data``, which kfuzz has written. None for output that Kafka also writes but cannot read."""
    reading = records.read(exact_buffer(data), limits=LIMITS_AGAIN)
    if reading.fatal is not None and reading.fatal.code in UNREADABLE_AGAIN:
        return None
    if reading.fatal is not None or reading.consumed != len(data):
        raise OracleFailure(f"bytes that were {how} cannot be read: {reading.fatal or 'a partial tail'}")
    return reading.batches


def check_committed(data: bytes, reading: Reading) -> None:
    """``read_committed`` gives the same of bytes and of batches; of a log without findings, what its markers say."""
    if reading.fatal is not None:
        return
    outcomes: list[list[int] | str] = []
    for log in (data, reading.batches):
        try:
            outcomes.append([batch.base_offset for batch in read_committed(log)])
        except RecordsError as error:
            outcomes.append(error.finding.code)
    of_bytes, of_batches = outcomes
    if of_bytes != of_batches:
        raise OracleFailure(f"read_committed of bytes gives {of_bytes}, of batches {of_batches}")
    wanted = None if reading.findings else committed_by_markers(reading.batches)
    if wanted is not None and of_bytes != wanted:
        raise OracleFailure(f"read_committed hands out {of_bytes}; the markers say {wanted}")


def committed_by_markers(batches: list[RecordBatch]) -> list[int] | None:
    """The base offsets of what a consumer gets: the next marker of a producer decides about its transactional batches.

    None for a log that is not as a broker writes it. Nothing here is shared with ``kfuzz.records.stream``.
    """
    ends = [-1, *(batch.last_offset for batch in batches)]
    in_order = all(end < batch.base_offset <= batch.last_offset for end, batch in zip(ends, batches, strict=False))
    # A consumer passes over records that lie before another one that it got.
    offsets = [record.offset for batch in batches for record in batch.records]
    follower = Partition(leads=False)
    if not in_order or offsets != sorted(offsets) or any(wrong for _, wrong, _ in map(follower.append, batches)):
        return None
    found = []
    # From the end, so that the next marker of each producer is known.
    markers: dict[int, bool] = {}
    stable_offset = math.inf
    for batch in reversed(batches):
        if batch.producer_id < 0 and (batch.control or batch.transactional):
            return None
        if batch.control:
            if not batch.records or batch.records[0].key is None:
                return None
            markers[batch.producer_id] = batch.records[0].key[2:4] == COMMIT
        elif not batch.transactional or markers.get(batch.producer_id):
            found.append(batch)
        elif batch.producer_id not in markers:
            stable_offset = batch.base_offset
    return [batch.base_offset for batch in reversed(found) if batch.records and batch.base_offset < stable_offset]


def check_control_record(record: Record) -> None:
    """A control record that can be decoded and written again keeps its meaning."""
    try:
        understood = decode_control(record.key, record.value)
        # Unknown tagged fields may be read in any order and twice, but no writer accepts them like this.
        key, value = encode_control(understood)
    except (RecordsError, EncodeError):
        return
    again = decode_control(key, value)
    if again != understood:
        raise OracleFailure(f"the control record {understood!r} becomes {again!r}")


# ------------------------------------------------------------------------------------------------- compression


def fuzz_compression(data: bytes) -> None:
    """Only the codecs: limits hold, nothing raises, and compressing again keeps the bytes."""
    if not data:
        return
    codec, magic = selected(data)
    payload = memoryview(exact_buffer(data))[1:]
    limit = LIMITS.decompressed_bytes
    out = decompress(codec, payload, limit, magic=magic)
    plain = unpacked(CODECS.index(codec), payload, limit) if magic else None
    if plain is not None and out != (plain, len(payload), "whole", ""):
        raise OracleFailure(
            f"{codec}: unpacked gives {len(plain)} bytes, but decompress gives {len(out.data)}, {out.ended}"
        )
    if len(out.data) > limit:
        raise OracleFailure(f"{codec}: decompress gives {len(out.data)} bytes, but the limit is {limit}")
    if not 0 <= out.consumed <= len(payload):
        raise OracleFailure(f"{codec}: consumed {out.consumed} of {len(payload)} bytes")
    if out.ended != "whole":
        return
    again = decompress(codec, compress(codec, out.data, magic=magic), limit, magic=magic)
    if out.data and (again.ended, again.data) != ("whole", out.data):
        raise OracleFailure(f"{codec}: compressed again, the output differs: {again.ended}: {again.reason}")
    if out.data:
        tight = decompress(codec, payload, len(out.data) - 1, magic=magic)
        if tight.ended != "limit" or len(tight.data) >= len(out.data):
            raise OracleFailure(f"{codec}: with a limit one byte too small, decompress ended {tight.ended}")


# ------------------------------------------------------------------------------------------------- canary


def fuzz_canary(data: bytes) -> None:
    """A planted bug that the fuzzer must find. It tests the fuzzer itself."""
    # It needs a whole frame, a correct CRC-32C and a record that passes seven gates.
    buffer = exact_buffer(data)
    size, magic, _ = next_frame(buffer, 0)
    if magic != 2 or size < BATCH_HEADER_SIZE:
        return
    crc = int.from_bytes(data[HEADER_AT["crc"] : BATCH_CRC_COVERS_FROM], "big")
    if crc32c(memoryview(buffer)[BATCH_CRC_COVERS_FROM:size]) != crc:
        return
    if spring(buffer, BATCH_HEADER_SIZE):
        raise PlantedBug("the canary is found; the fuzzer works")


def _target(run: Callable[[bytes], None], **options: Any) -> Target:
    """A target that is called after its function, with the docstring as the sentence about it."""
    return Target(run.__name__.removeprefix("fuzz_").replace("_", "-"), str(run.__doc__), run, **options)


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _target(fuzz_record_batch, first=Records),
        _target(fuzz_compressed_batch, first=partial(Packed, pack), compresses=True, vectors=()),
        _target(fuzz_columns, first=Records),
        _target(fuzz_broker, first=partial(Records, "broker")),
        _target(fuzz_log_tools, first=partial(Records, "log")),
        _target(fuzz_compression, batches=False, streams=True, vectors=(), dictionary="compression"),
        _target(
            fuzz_messages,
            batches=False,
            vectors=("message",),
            dictionary="message",
            flat_schema_of=flat_schema_of,
            first=partial(Messages, schema_of),
        ),
        _target(fuzz_log_directory, batches=False, vectors=(), dictionary="wholes", length_max=16_384),
        _target(fuzz_connection, batches=False, vectors=(CONVERSATION,), dictionary="wholes", length_max=16_384),
        _target(fuzz_login, batches=False, vectors=(), dictionary="wholes"),
        _target(fuzz_readers, batches=False, vectors=(), dictionary="wholes"),
        _target(fuzz_values, batches=False, vectors=(), dictionary="wholes"),
        _target(fuzz_arrow, batches=False, vectors=(), dictionary="wholes"),
        # Vectors as seeds would change how hard the canary is to find.
        _target(fuzz_canary, vectors=()),
    )
}


def find(name: str) -> Target:
    """The target called ``name``. ``UsageError`` for an unknown name suggests the nearest one."""
    if name in TARGETS:
        return TARGETS[name]
    near = difflib.get_close_matches(name, TARGETS, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]}?" if near else f"the targets are {', '.join(TARGETS)};"
    raise UsageError(f"no fuzz target {name!r}; {hint} `kfuzz fuzz --targets` shows them")
