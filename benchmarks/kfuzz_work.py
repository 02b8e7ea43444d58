"""kfuzz's work, and the work of the codec libraries by themselves. Imports ``mixed``, ``measure``, kfuzz and codecs."""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import lz4.frame
import pyarrow as pa
import snappy
import zstandard

from benchmarks.measure import InProcess
from benchmarks.mixed import Census, MixedSet, count
from kfuzz import records
from kfuzz.errors import RecordsError
from kfuzz.records import Codec

__all__ = [
    "bare_compress",
    "bare_decompress",
    "bare_eager",
    "census_of",
    "columns",
    "eager",
    "encode",
    "encode_columns",
    "encode_messages",
    "lazy",
    "verdict",
]

# By magic, the bytes before a payload: a batch's header, or a wrapper's fields up to its value with a null key.
BEFORE_PAYLOAD_BYTES: Final = {0: 26, 1: 34, 2: 61}
# The block size with which Kafka's producer calls snappy.
SNAPPY_BLOCK_BYTES: Final = 32 * 1024


def census_of(buffers: Sequence[bytes | bytearray]) -> Census:
    """Count the records in ``buffers``; ``RecordsError`` if they cannot be read."""
    return count(
        (record.key, record.value, record.headers)
        for buffer in buffers
        for batch in records.decode(buffer)
        for record in batch.records
    )


def verdict(mixed: MixedSet, codec: Codec = "none") -> InProcess:
    """Check every rule and make no objects."""
    fetches = mixed.fetches(codec)

    def run() -> int:
        found = 0
        for fetch in fetches:
            reading = records.check(fetch)
            if reading.fatal is not None:
                raise RecordsError(reading.fatal)
            found += reading.record_count
        return found

    return InProcess(run, lambda: census_of(fetches))


def columns(mixed: MixedSet, codec: Codec = "none") -> InProcess:
    """Make an Arrow table for each fetch; keys and values are not copied."""
    fetches = mixed.fetches(codec)

    def run() -> int:
        return sum(records.columns(fetch).num_rows for fetch in fetches)

    def census() -> Census:
        return count(
            (row["key"], row["value"], [(header["key"], header["value"]) for header in row["headers"]])
            for fetch in fetches
            for row in records.columns(fetch).to_pylist()
        )

    return InProcess(run, census)


def lazy(mixed: MixedSet, codec: Codec = "none") -> InProcess:
    """Iterate over ``Record`` objects and read none of their fields."""
    fetches = mixed.fetches(codec)

    def run() -> int:
        for fetch in fetches:
            for record in records.iterate(fetch):  # noqa: B007
                pass
        return record.offset + 1

    return InProcess(run, lambda: census_of(fetches))


def eager(mixed: MixedSet, codec: Codec = "none") -> InProcess:
    """Iterate over ``Record`` objects and read their keys, values and headers."""
    fetches = mixed.fetches(codec)

    def run() -> int:
        for fetch in fetches:
            for record in records.iterate(fetch):
                record.key  # noqa: B018
                record.value  # noqa: B018
                record.headers  # noqa: B018
        return record.offset + 1

    return InProcess(run, lambda: census_of(fetches))


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


def encode(mixed: MixedSet, codec: Codec = "none", level: int | None = None) -> InProcess:
    """Encode ``Record`` objects, batch by batch; ``level`` is the compression level."""
    batches = mixed.record_batches
    for batch in batches:
        batch.compression = codec

    def run() -> int:
        written = 0
        for batch in batches:
            records.encode_batch(batch, level=level)
            written += len(batch.records)
        return written

    return InProcess(run, lambda: census_of([records.encode_batch(batch, level=level) for batch in batches]))


def encode_messages(mixed: MixedSet) -> InProcess:
    """Encode messages of magic 0 or 1; one call encodes as many as a batch has records."""
    groups = mixed.messages

    def run() -> int:
        written = 0
        for messages in groups:
            records.encode(messages)
            written += len(messages)
        return written

    return InProcess(run, lambda: census_of([records.encode(messages) for messages in groups]))


def encode_columns(mixed: MixedSet) -> InProcess:
    """Encode the batches of each fetch from its Arrow table."""
    tables = [_table(records.columns(fetch)) for fetch in mixed.fetches()]

    def run() -> int:
        written = 0
        for table in tables:
            records.encode_columns(table)
            written += table.num_rows
        return written

    return InProcess(run, lambda: census_of([records.encode_columns(table) for table in tables]))


def _table(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in Arrow's ordinary binary types, which other programs use."""
    header = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    types = {"key": pa.binary(), "value": pa.binary(), "headers": pa.list_(header)}
    return columns.cast(pa.schema([field.with_type(types.get(field.name, field.type)) for field in columns.schema]))


def bare_decompress(mixed: MixedSet, codec: Codec) -> InProcess:
    """Call only the codec library, once per batch; for snappy once per block, with the blocks cut out beforehand."""
    payloads = [batch[BEFORE_PAYLOAD_BYTES[mixed.magic] :] for batch in mixed.encoded(codec)]
    if codec == "snappy":
        payloads = [block for payload in payloads for block in _snappy_blocks(payload)]
    return _bare(payloads, _decompressor(codec), mixed)


def bare_compress(mixed: MixedSet, codec: Codec) -> InProcess:
    """Like :func:`bare_decompress`, but compress, at Kafka's default level."""
    payloads = [batch[BEFORE_PAYLOAD_BYTES[mixed.magic] :] for batch in mixed.encoded()]
    if codec == "snappy":
        payloads = [
            payload[at : at + SNAPPY_BLOCK_BYTES]
            for payload in payloads
            for at in range(0, len(payload), SNAPPY_BLOCK_BYTES)
        ]
    return _bare(payloads, _compressor(codec), mixed)


def _bare(payloads: list[bytes], call: Callable[[bytes], bytes], mixed: MixedSet) -> InProcess:
    def run() -> int:
        for payload in payloads:
            call(payload)
        return mixed.census.records

    # This reads no records, but its payloads are those of the set's batches: report the set's census.
    return InProcess(run, lambda: mixed.census)


def _decompressor(codec: Codec) -> Callable[[bytes], bytes]:
    if codec == "gzip":
        return lambda data: zlib.decompress(data, zlib.MAX_WBITS | 16)
    if codec == "snappy":
        return lambda data: bytes(snappy.uncompress(data))
    if codec == "lz4":
        return lambda data: bytes(lz4.frame.decompress(data))
    return zstandard.ZstdDecompressor().decompress


def _compressor(codec: Codec) -> Callable[[bytes], bytes]:
    if codec == "gzip":
        return lambda data: zlib.compress(data, wbits=zlib.MAX_WBITS | 16)
    if codec == "snappy":
        return lambda data: bytes(snappy.compress(data))
    if codec == "lz4":
        return lambda data: bytes(
            lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False)
        )
    return zstandard.ZstdCompressor(level=3).compress


def _snappy_blocks(payload: bytes) -> list[bytes]:
    blocks = []
    at = 16
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        blocks.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks
