"""kfuzz's work with records, and the work of the codec libraries and of marshal by themselves.

Imports ``mixed``, ``measure``, kfuzz and codecs.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Final

import lz4.frame
import pyarrow as pa
import snappy
import zstandard

from benchmarks.measure import InProcess, NotTheSameWork
from benchmarks.mixed import CallCensus, Census, MixedSet, UniformSet, count, record_of
from kfuzz import records
from kfuzz.records import Codec, Record, RecordBatch, Role, Topic
from kfuzz.records.appending import append as append_batch
from kfuzz.records.compaction import compact as compact_log
from kfuzz.records.conversion import convert as convert_log

# By magic, the bytes before a payload: a batch's header, or a wrapper's fields up to its value with a null key.
BEFORE_PAYLOAD_BYTES: Final = {0: 26, 1: 34, 2: 61}
# The block size with which Kafka's producer calls snappy.
SNAPPY_BLOCK_BYTES: Final = 32 * 1024
PRODUCERS: Final = 5
# Batches of a transaction before its marker.
TRANSACTION_BATCHES: Final = 3
# One transaction in this many is aborted.
ABORTED_EACH: Final = 4
# An end marker. Its key is version and type, its value is version and coordinator epoch.
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
MARKER_VALUE: Final = bytes(6)


def census_of(buffers: Sequence[bytes | bytearray]) -> Census:
    """Count the records in ``buffers``; ``RecordsError`` if they cannot be read."""
    return count(
        (record.key, record.value, record.headers)
        for buffer in buffers
        for batch in records.decode(buffer)
        for record in batch.records
    )


def _calls(batches: Sequence[bytes]) -> CallCensus:
    return CallCensus.of(len(batches), census_of(batches))


def _pass_over(
    items: Callable[..., Any], census: Callable[[Any], Any]
) -> Callable[[Callable[[Any], int]], Callable[..., InProcess]]:
    """The decorated function is one pass over ``items``, which are made of a set before anything is timed."""

    def decorate(run: Callable[[Any], int]) -> Callable[..., InProcess]:
        @wraps(run)
        def make(*arguments: Any) -> InProcess:
            made = items(*arguments)
            return InProcess(partial(run, made), partial(census, made))

        return make

    return decorate


# --- reading --------------------------------------------------------------------------------------------------------


@_pass_over(MixedSet.fetches, census_of)
def verdict(fetches: list[bytes]) -> int:
    """Check every rule and make no objects."""
    found = 0
    for fetch in fetches:
        reading = records.check(fetch)
        reading.raise_fatal()
        found += reading.record_count
    return found


def _census_of_columns(fetches: list[bytes]) -> Census:
    return count(
        (row["key"], row["value"], [(header["key"], header["value"]) for header in row["headers"]])
        for fetch in fetches
        for row in records.columns(fetch).to_pylist()
    )


@_pass_over(MixedSet.fetches, _census_of_columns)
def columns(fetches: list[bytes]) -> int:
    """Make an Arrow table for each fetch; keys and values are not copied."""
    return sum(records.columns(fetch).num_rows for fetch in fetches)


@_pass_over(MixedSet.fetches, census_of)
def lazy(fetches: list[bytes]) -> int:
    """Iterate over ``Record`` objects and read none of their fields."""
    for fetch in fetches:
        for record in records.iterate(fetch):  # noqa: B007
            pass
    return record.offset + 1


@_pass_over(MixedSet.fetches, census_of)
def eager(fetches: list[bytes]) -> int:
    """Iterate over ``Record`` objects and read their keys, values and headers."""
    for fetch in fetches:
        for record in records.iterate(fetch):
            record.key  # noqa: B018
            record.value  # noqa: B018
            record.headers  # noqa: B018
    return record.offset + 1


def bare_eager(mixed: MixedSet) -> InProcess:
    """Let CPython's marshal make the same keys, values and headers from its own format, a batch at a time."""
    dumped = [
        marshal.dumps([(content.key, content.value, tuple(content.headers)) for content in batch])
        for batch in mixed.contents
    ]

    def run() -> int:
        for data in dumped:
            for key, value, headers in marshal.loads(data):
                key, value, headers  # noqa: B018
        return mixed.census.records

    return InProcess(run, lambda: count(one for data in dumped for one in marshal.loads(data)))


@_pass_over(MixedSet.encoded, _calls)
def call_check(batches: list[bytes]) -> int:
    """Call ``records.check`` on each batch."""
    for batch in batches:
        records.check(batch)
    return len(batches)


@_pass_over(MixedSet.encoded, _calls)
def call_iterate(batches: list[bytes]) -> int:
    """Make a list of each batch's records with ``records.iterate``."""
    for batch in batches:
        list(records.iterate(batch))
    return len(batches)


@_pass_over(MixedSet.encoded, _calls)
def call_read(batches: list[bytes]) -> int:
    """Call ``records.read`` on each batch."""
    for batch in batches:
        records.read(batch)
    return len(batches)


# --- writing --------------------------------------------------------------------------------------------------------


def _to_encode(mixed: MixedSet, codec: Codec = "none", level: int | None = None) -> tuple[list[RecordBatch], Any]:
    batches = mixed.record_batches
    for batch in batches:
        batch.compression = codec
    return batches, level


@_pass_over(_to_encode, lambda made: census_of([records.encode_batch(batch, level=made[1]) for batch in made[0]]))
def encode(made: tuple[list[RecordBatch], Any]) -> int:
    """Encode ``Record`` objects, batch by batch; of a set, a codec and a compression level."""
    batches, level = made
    written = 0
    for batch in batches:
        records.encode_batch(batch, level=level)
        written += len(batch.records)
    return written


@_pass_over(lambda mixed: mixed.messages, lambda groups: census_of([records.encode(group) for group in groups]))
def encode_messages(groups: list[list[RecordBatch]]) -> int:
    """Encode messages of magic 0 or 1; one call encodes as many as a batch has records."""
    written = 0
    for messages in groups:
        records.encode(messages)
        written += len(messages)
    return written


def _tables(mixed: MixedSet) -> list[pa.RecordBatch]:
    """Each fetch in Arrow's ordinary binary types, which other programs use."""
    header = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    types = {"key": pa.binary(), "value": pa.binary(), "headers": pa.list_(header)}
    read = [records.columns(fetch) for fetch in mixed.fetches()]
    schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in read[0].schema])
    return [columns.cast(schema) for columns in read]


@_pass_over(_tables, lambda tables: census_of([records.encode_columns(table) for table in tables]))
def encode_columns(tables: list[pa.RecordBatch]) -> int:
    """Encode the batches of each fetch from its Arrow table."""
    written = 0
    for table in tables:
        records.encode_columns(table)
        written += table.num_rows
    return written


# --- codecs by themselves -------------------------------------------------------------------------------------------

DECOMPRESS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    "gzip": lambda data: zlib.decompress(data, zlib.MAX_WBITS | 16),
    "snappy": snappy.uncompress,
    "lz4": lz4.frame.decompress,
    "zstd": zstandard.ZstdDecompressor().decompress,
}
# At Kafka's default levels.
COMPRESS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    "gzip": lambda data: zlib.compress(data, wbits=zlib.MAX_WBITS | 16),
    "snappy": snappy.compress,
    "lz4": partial(lz4.frame.compress, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False),
    "zstd": zstandard.ZstdCompressor(level=3).compress,
}


def bare_decompress(mixed: MixedSet, codec: Codec) -> InProcess:
    """Call only the codec library, once per batch; for snappy once per block, with the blocks cut out beforehand."""
    payloads = _payloads(mixed, codec)
    if codec == "snappy":
        payloads = [block for payload in payloads for block in _snappy_blocks(payload)]
    return _bare(payloads, DECOMPRESS[codec], mixed)


def bare_compress(mixed: MixedSet, codec: Codec) -> InProcess:
    """Like :func:`bare_decompress`, but compress."""
    payloads = _payloads(mixed, "none")
    if codec == "snappy":
        payloads = [
            payload[at : at + SNAPPY_BLOCK_BYTES]
            for payload in payloads
            for at in range(0, len(payload), SNAPPY_BLOCK_BYTES)
        ]
    return _bare(payloads, COMPRESS[codec], mixed)


def _payloads(mixed: MixedSet, codec: Codec) -> list[bytes]:
    return [batch[BEFORE_PAYLOAD_BYTES[mixed.magic] :] for batch in mixed.encoded(codec)]


def _bare(payloads: list[bytes], call: Callable[[bytes], bytes], mixed: MixedSet) -> InProcess:
    def run() -> int:
        for payload in payloads:
            call(payload)
        return mixed.census.records

    # This reads no records, but its payloads are those of the set's batches: report the set's census.
    return InProcess(run, lambda: mixed.census)


def _snappy_blocks(payload: bytes) -> list[bytes]:
    blocks = []
    at = 16
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        blocks.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks


# --- roles and a broker's other operations, on uniform records ------------------------------------------------------


def _requests(uniform: UniformSet) -> list[bytes]:
    """Each batch in the form in which a producer sends it, with offsets from 0."""
    return [
        records.encode_batch(RecordBatch(0, len(batch) - 1, [record_of(i, content) for i, content in enumerate(batch)]))
        for batch in uniform.contents
    ]


def check_requests(uniform: UniformSet, role: Role) -> InProcess:
    """Call ``records.check`` on each batch, in the form in which a producer sends it."""
    data = _requests(uniform)

    def run() -> int:
        for batch in data:
            records.check(batch, role=role)
        return len(data)

    def census() -> CallCensus:
        for batch in data:
            records.check(batch, role=role).raise_fatal()
        return _calls(data)

    return InProcess(run, census)


def check_log(transactional: bool, uniform: UniformSet, role: Role) -> InProcess:
    """Call ``records.check`` on a segment of the set's batches."""
    segment = records.encode(transactional_log(uniform) if transactional else uniform.record_batches)

    def run() -> int:
        verdict = records.check(segment, role=role)
        verdict.raise_fatal()
        return verdict.record_count

    return InProcess(run, lambda: census_of([segment]))


def transactional_log(uniform: UniformSet) -> list[RecordBatch]:
    """The batches of the set from alternating transactional producers, with markers that end every transaction."""
    log: list[RecordBatch] = []
    sequences = dict.fromkeys(range(PRODUCERS), 0)
    left = dict.fromkeys(range(PRODUCERS), 0)
    ended = 0

    def add(producer: int, rows: list[Record], **fields: Any) -> None:
        batch = RecordBatch(rows[0].offset, rows[-1].offset, rows, producer_id=producer, producer_epoch=0, **fields)
        batch.transactional = True
        batch.partition_leader_epoch = 0
        log.append(batch)

    def end(producer: int) -> None:
        nonlocal ended
        ended += 1
        kind = COMMIT if ended % ABORTED_EACH else ABORT
        add(producer, [Record(log[-1].next_offset, 0, kind, MARKER_VALUE)], control=True)
        left[producer] = 0

    for turn, batch in enumerate(uniform.contents):
        producer = turn % PRODUCERS
        offset = log[-1].next_offset if log else 0
        rows = [record_of(offset + i, content) for i, content in enumerate(batch)]
        add(producer, rows, base_sequence=sequences[producer])
        sequences[producer] += len(rows)
        left[producer] += 1
        if left[producer] == TRANSACTION_BATCHES:
            end(producer)
    for producer in [producer for producer, batches in left.items() if batches]:
        end(producer)
    return log


def append(uniform: UniformSet, codec: Codec | None = None) -> InProcess:
    """Append each batch as a broker does: in place, or built again if the topic has another ``codec``."""
    data = _requests(uniform)
    topic = Topic(compression=codec or "producer")

    def run() -> int:
        stored = 0
        for batch in data:
            done = append_batch(batch, topic)
            stored += done.last_offset - done.first_offset + 1
        return stored

    return InProcess(run, lambda: census_of([append_batch(batch, topic).data for batch in data]))


def convert(uniform: UniformSet) -> InProcess:
    """Convert the log to messages of magic 1, as a broker of Kafka 3 did for old consumers."""
    log = b"".join(uniform.encoded())
    count = uniform.census.records

    def run() -> int:
        convert_log(log, 1)
        return count

    return InProcess(run, lambda: census_of([convert_log(log, 1).data]))


def compact(uniform: UniformSet) -> InProcess:
    """Run one pass of the log cleaner, which keeps the last record of each key."""
    log = b"".join(uniform.encoded())
    latest = {content.key: at for at, content in enumerate(content for batch in uniform.contents for content in batch)}

    def retain(batch: RecordBatch, record: Record) -> bool:
        return latest[record.key] == record.offset

    def run() -> int:
        return compact_log(log, retain, now_ms=0).records_read

    def census() -> Census:
        kept = [record.offset for record in records.iterate(compact_log(log, retain, now_ms=0).data)]
        if kept != sorted(latest.values()):
            raise NotTheSameWork(f"compact keeps {len(kept)} records, not the last of each of {len(latest)} keys")
        return census_of([log])

    return InProcess(run, census)


def read_committed(uniform: UniformSet) -> InProcess:
    """Read a transactional log as a ``read_committed`` consumer does."""
    batches = transactional_log(uniform)
    log = records.encode(batches)
    committed = [record for batch in _committed(batches) for record in batch.records]

    def run() -> int:
        seen = sum(len(batch.records) for batch in records.read_committed(log))
        return uniform.census.records if seen == len(committed) else seen

    def census() -> Census:
        if [record for batch in records.read_committed(log) for record in batch.records] != committed:
            raise NotTheSameWork("read_committed gives other records than those of the committed transactions")
        return uniform.census

    return InProcess(run, census)


def _committed(log: list[RecordBatch]) -> list[RecordBatch]:
    """The batches whose producer commits with its next marker; the log is searched from its end."""
    found = []
    commits: dict[int, bool] = {}
    for batch in reversed(log):
        if batch.control:
            commits[batch.producer_id] = batch.records[0].key == COMMIT
        elif commits[batch.producer_id]:
            found.append(batch)
    return found[::-1]
