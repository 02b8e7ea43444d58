"""zstd frames that a library's encoder does not write, against Apache Kafka's own reader.

Kafka reads through a buffer of 16 KiB. A frame whose content is known to fit is decompressed in one pass, and then its
window does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

import pytest
from testee_driver import RunningTestee

from kfuzz import records
from kfuzz.mutate.engine import seal
from kfuzz.records import Record, RecordBatch
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

pytestmark = pytest.mark.java

MAGIC = b"\x28\xb5\x2f\xfd"
ONE_PASS = 16 * 1024
WINDOWS = {"1 KiB": b"\x00", "128 MiB": b"\x88", "144 MiB": b"\x89", "768 MiB": b"\x9c"}


def frame(content: bytes, window: bytes, size_bytes: int, block_bytes: int) -> bytes:
    """A frame of raw blocks. ``size_bytes`` is the width of the field with the content size; 0 leaves it out."""
    made = MAGIC + bytes([{0: 0, 4: 2, 8: 3}[size_bytes] << 6]) + window
    made += len(content).to_bytes(8, "little")[:size_bytes]
    for at in range(0, len(content), block_bytes):
        block = content[at : at + block_bytes]
        made += (len(block) << 3 | (at + block_bytes >= len(content))).to_bytes(3, "little") + block
    return made


def payload(size: int) -> bytes:
    """One record that takes this many bytes."""
    for more in range(5, 15):
        record = Record(0, 1, None, b"x" * (size - more))
        made = records.encode_batch(RecordBatch(0, 0, [record]))[BATCH_HEADER_SIZE:]
        if len(made) == size:
            return made
    raise AssertionError(f"no record takes {size} bytes")


def batch(compressed: bytes) -> bytes:
    head = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, None, b"")], compression="zstd"))[:BATCH_HEADER_SIZE]
    return seal(head + compressed, True, True)


def cases() -> Iterator[tuple[str, bytes]]:
    for size, (name, window), width, block in product(
        (31, 3000, ONE_PASS - 1, ONE_PASS, ONE_PASS + 1, 20_000), WINDOWS.items(), (0, 4, 8), (1000, 3000, 1 << 17)
    ):
        made = batch(frame(payload(size), window, width, block))
        yield f"{size} bytes, window {name}, size in {width} bytes, blocks of {block}", made
    # Of a long value, Kafka asks for more than 16 KiB at once; no case here has a long value in a second frame.
    for first, second in ((6000, 6000), (12_000, 12_000), (30_000, 10_000)):
        whole = payload(first + second)
        frames = frame(whole[:first], b"\x50", 4, 1 << 17) + frame(whole[first:], WINDOWS["768 MiB"], 4, 1 << 17)
        yield f"frames of {first} and {second} bytes", batch(frames)


def test_kafka_and_kfuzz_agree_on_windows_blocks_and_content_sizes(kafka: RunningTestee) -> None:
    made = dict(cases())
    expected = {name: not records.check(data).fatal for name, data in made.items()}
    assert 50 < sum(expected.values()) < len(expected) - 50
    for name, data in made.items():
        kafka.send_line(json.dumps({"id": name, "operation": "decode-records", "role": "consumer", "hex": data.hex()}))
        assert (name, kafka.read_answer()["outcome"] == "accepted") == (name, expected[name])
