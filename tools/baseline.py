"""Prints digests of what kfuzz reads and writes: ``python -m tools.baseline``. Each processor must print the same ones.

tests/test_baseline.py runs this under QEMU, on processors without AVX and without SSE4.2, and tools/arm64.py on arm64.
It imports only what every installation of kfuzz has. ``--columns`` imports PyArrow and NumPy too, which need newer
processors than kfuzz does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, get_args

from kfuzz import messages, records
from kfuzz.errors import KfuzzError
from kfuzz.vectors import Vector, load_suite
from kfuzz.wire.io import checksum

__all__ = ["main", "sample_step"]

# A larger vector would take seconds under QEMU.
SIZE_MAX: Final = 64 * 1024
# Around the sizes at which the kernels begin and change, and larger ones.
SIZES: Final = (*range(0, 300), 511, 512, 513, 1023, 1024, 1025, 4095, 4097, 16384, 65537, 262147)


def answer(function: Callable[..., Any], *words: Any, **options: Any) -> Any:
    """The result of a call, or the sentence of the error that it raises."""
    try:
        return function(*words, **options)
    except KfuzzError as error:
        return f"{type(error).__name__}: {error}"


def checksums() -> Iterator[object]:
    rng = random.Random(1)
    for size in SIZES:
        data = rng.randbytes(size)
        yield checksum.crc32c(data), checksum.crc32(data), checksum.zlib_tables(data)
        yield checksum.crc32c(data[1:], 7), checksum.crc32(data[1:], 7)
        yield checksum.crc32c_joined(checksum.crc32c(data), checksum.crc32c(data[::-1]), size)


def batches(vectors: Sequence[Vector]) -> Iterator[object]:
    """The findings of each role and profile, the contents, and the contents written again."""
    for vector in vectors:
        for profile in get_args(records.Profile):
            for role in records.ROLES:
                verdict = records.check(vector.data, profile=profile, role=role)
                yield vector.id, profile, role, verdict.record_count, list(map(str, verdict.findings))
        read = records.read(vector.data)
        yield records.to_json(read.batches)
        for batch in read.batches:
            # Codecs choose their own bytes; what they make is read again instead.
            written = answer(records.encode_batch, batch)
            if isinstance(written, bytes) and batch.compression != "none":
                written = records.to_json(records.read(written).batches)
            yield written


def bodies(vectors: Sequence[Vector]) -> Iterator[object]:
    """The findings and the values of messages, and the values written again."""
    for vector in vectors:
        name, version = vector.options["message"], vector.options["version"]
        yield (
            vector.id,
            answer(lambda *words: list(map(str, messages.check(*words).findings)), name, version, vector.data),
        )
        value = answer(messages.decode, name, version, vector.data)
        yield value
        if isinstance(value, dict):
            yield answer(messages.encode, name, version, value)


def generated() -> list[records.RecordBatch]:
    """Batches long enough for the fast loops."""
    rng = random.Random(2)
    rows = [
        records.Record(i, 1000 + i, rng.randbytes(rng.randrange(40)), rng.randbytes(rng.randrange(300)))
        for i in range(500)
    ]
    return [records.RecordBatch(0, 499, rows, compression=codec) for codec in records.CODECS]


def long_batches() -> Iterator[object]:
    for batch in generated():
        data = records.encode_batch(batch)
        if batch.compression == "none":
            yield data
        yield records.check(data).record_count, records.to_json(records.decode(data))
        yield list(map(str, records.check(data[:-1] + bytes([data[-1] ^ 1])).findings))
    old = records.encode([records.RecordBatch(i, i, [row], magic=1) for i, row in enumerate(generated()[0].records)])
    yield old, records.check(old).record_count


def tables() -> Iterator[object]:
    for batch in generated():
        table = records.columns(records.encode_batch(batch))
        yield table.to_pylist(), records.encode_columns(table)


def digest(results: Iterator[object]) -> str:
    found = hashlib.sha256()
    for result in results:
        found.update(repr(result).encode())
    return found.hexdigest()


def digests(columns: bool, sample: int) -> dict[str, str]:
    """One digest for each part. Of the vectors, every ``sample``-th takes part."""

    def chosen(kind: str) -> list[Vector]:
        return [vector for vector in load_suite(kinds=(kind,))[::sample] if vector.size <= SIZE_MAX]

    parts = {
        "checksums": checksums(),
        "batches": batches(chosen("records")),
        "long batches": long_batches(),
        "messages": bodies(chosen("message")),
    }
    if columns:
        parts["columns"] = tables()
    return {name: digest(results) for name, results in parts.items()}


def kernels() -> dict[str, bool]:
    """Which of the fast loops this processor and this environment allow."""
    return {
        "crc32c": checksum.kernel(b"") is not None,
        "crc32c 256": checksum.kernel(b"", 0, 256) is not None,
        "crc32": checksum.zlib_kernel(b"") is not None,
    }


def sample_step(text: str) -> int:
    """The number of ``--sample``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of vectors; give 1 or more")
    return int(text)


def main(words: Sequence[str] | None = None) -> int:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.baseline", description=__doc__, epilog="example: python -m tools.baseline --sample 10"
    )
    parser.add_argument("--columns", action="store_true", help="records as Arrow tables too")
    parser.add_argument(
        "--sample", type=sample_step, default=1, metavar="N", help="only every N-th vector (%(default)s)"
    )
    chosen = parser.parse_args(words)
    shown = {
        "machine": platform.machine(),
        "kernels": kernels(),
        "digests": digests(chosen.columns, chosen.sample),
    }
    print(json.dumps(shown, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
