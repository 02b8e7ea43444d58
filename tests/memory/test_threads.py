"""Objects that docs/threads.md allows to share give the same from many threads; others end in an error, not a crash.

The interpreter changes threads as often as it can here. The assertions hold in whatever order the threads run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread
from typing import Any

import pyarrow
import pytest

from kfuzz import records
from kfuzz.messages import codec
from kfuzz.mutate import Mutator
from kfuzz.records import Record, RecordBatch
from kfuzz.records.read.reader import headers
from kfuzz.wire.walk.scan import END, EachRecord, Scan

THREADS = 4
ROUNDS = 40
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def eager_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def from_all(work: Callable[[int], Any]) -> list[Any]:
    """The result of ``work(thread)`` in each of the threads, which begin together."""
    gate = Barrier(THREADS)

    def begun(thread: int) -> Any:
        gate.wait(TIMEOUT_S)
        return work(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        return [done.result(TIMEOUT_S) for done in [pool.submit(begun, thread) for thread in range(THREADS)]]


def holds_in_all(rounds: int, *checks: Callable[[], bool]) -> bool:
    """Whether all of these hold in each round of each thread."""

    def work(_: int) -> bool:
        return all(check() for _ in range(rounds) for check in checks)

    return all(from_all(work))


def batch_of(codec_name: str = "none", count: int = 100) -> RecordBatch:
    made = [
        Record(i, i, b"key%d" % i if i % 3 else None, b"value %d" % i * 5, ((b"h", b"%d" % i),) if i % 4 == 0 else ())
        for i in range(count)
    ]
    return RecordBatch(0, count - 1, made, compression=codec_name)  # type: ignore[arg-type]


def contents(given: Iterable[Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in given]


DATA = {name: records.encode_batch(batch_of(name)) for name in records.CODECS}


@pytest.mark.parametrize("name", records.CODECS)
def test_the_same_bytes_are_read_by_many_threads(name: str) -> None:
    expected = contents(batch_of(name).records)
    assert holds_in_all(
        ROUNDS,
        lambda: contents(records.decode(DATA[name])[0].records) == expected,
        lambda: contents(records.iterate(DATA[name])) == expected,
        lambda: records.check(DATA[name]).fatal is None,
    )


def test_lazy_records_are_asked_by_many_threads_at_once() -> None:
    expected = contents(batch_of().records)
    for _ in range(ROUNDS):
        shared = records.decode(DATA["none"])[0].records
        found = from_all(lambda _, shared=shared: contents(shared))
        assert found == [expected] * THREADS


@pytest.mark.parametrize("name", records.CODECS)
def test_one_batch_is_written_by_many_threads(name: str) -> None:
    shared = records.decode(DATA[name])[0]
    table = records.columns(DATA[name])
    by_columns = records.encode_columns(table)
    assert holds_in_all(
        ROUNDS // 4,
        lambda: contents(records.decode(records.encode_batch(shared))[0].records) == contents(shared.records),
        lambda: records.encode_columns(table) == by_columns,
        lambda: records.columns(DATA[name]).equals(table),
    )
    assert isinstance(table, pyarrow.RecordBatch)


def test_one_iterator_gives_each_record_to_one_thread_or_an_error() -> None:
    data = b"".join(DATA[name] for name in ("none", "lz4")) * 20
    for _ in range(ROUNDS // 4):
        shared = records.iterate(data)

        def work(_: int, shared: Iterator[Record] = shared) -> list[tuple[int, bytes | None]]:
            mine: list[tuple[int, bytes | None]] = []
            while True:
                try:
                    record = next(shared)
                except StopIteration:
                    return mine
                except (ValueError, RuntimeError) as error:
                    if "already executing" not in str(error) and "another thread" not in str(error):
                        raise
                    continue
                mine.append((record.offset, record.value))

        given = [one for mine in from_all(work) for one in mine]
        # None is given twice, and none is mixed from two.
        assert len(given) <= 100 * 40
        assert all(value == b"value %d" % offset * 5 for offset, value in given)
        assert all(given.count((i, b"value %d" % i * 5)) <= 40 for i in range(0, 100, 25))


def test_two_threads_in_one_scan_are_told_apart() -> None:
    data = records.encode_batch(batch_of(count=5000)) * 40
    for _ in range(5):
        scan = Scan(data, with_rows=False)

        def work(_: int, scan: Scan = scan) -> bool:
            try:
                return scan.next() == END
            except RuntimeError as error:
                if "another thread is reading these batches" not in str(error):
                    raise
                return False

        assert any(from_all(work))
        assert scan.next() == END
        assert (scan.batch_count, scan.record_count) == (40, 40 * 5000)


def test_records_of_a_stop_are_gone_once_the_scan_continues() -> None:
    scan = Scan(DATA["none"] * 2, with_rows=True)
    scan.next()
    before = EachRecord(scan, bool)
    next(before)
    scan.next()
    with pytest.raises(RuntimeError, match="moved on"):
        next(before)


def test_one_schema_reads_and_writes_messages_in_many_threads() -> None:
    values = {
        "topics": [{"name": f"t{i}", "partitions": [{"leaderId": i}]} for i in range(20)],
        "brokers": [{"nodeId": i, "host": "h\u00e9", "port": 1} for i in range(5)],
    }
    data = codec.encode("MetadataResponse", 12, values)
    expected = codec.decode("MetadataResponse", 12, data)
    shared = codec.decode("MetadataResponse", 12, data, objects=True)
    assert holds_in_all(
        ROUNDS,
        lambda: codec.encode("MetadataResponse", 12, shared) == data,
        lambda: codec.encode("MetadataResponse", 12, expected) == data,
        lambda: codec.decode("MetadataResponse", 12, data) == expected,
        lambda: codec.decode("MetadataResponse", 12, data, objects=True) == shared,
        lambda: shared.topics.find(name="t7").partitions[0].leaderId == 7,
        lambda: expected["topics"].find(name="t7")["partitions"][0]["leaderId"] == 7,
    )


def test_a_mutator_gives_its_inputs_by_number_to_every_thread() -> None:
    shared = Mutator(seed=3)
    expected = [Mutator(seed=3).input_at(i) for i in range(ROUNDS)]
    assert from_all(lambda _: [shared.input_at(i) for i in range(ROUNDS)]) == [expected] * THREADS


def test_a_buffer_cannot_be_resized_while_it_is_read() -> None:
    buffer = bytearray(DATA["none"] * 2)
    reading = records.batches(buffer)
    next(reading)
    with pytest.raises(BufferError):
        buffer += b"more"
    assert len(list(reading)) == 1


def many_batches() -> bytes:
    batch = records.encode([RecordBatch(0, 99, [Record(i, 0, None, b"v" * 50) for i in range(100)])])
    return b"".join((100 * i).to_bytes(8, "big") + batch[8:] for i in range(10_000))


def one_batch() -> bytes:
    offsets = pyarrow.array(range(1_000_000), pyarrow.int64())
    return bytes(
        records.encode_columns(pyarrow.table({"offset": offsets, "value": pyarrow.array([b"v"] * len(offsets))}))
    )


@pytest.mark.parametrize(
    ("made", "read"), [(many_batches, records.check), (one_batch, lambda data: list(headers(data)))]
)
def test_other_threads_run_while_much_is_read(made: Callable[[], bytes], read: Callable[[bytes], Any]) -> None:
    data, marks = made(), []

    def work() -> None:
        marks.append(time.perf_counter())
        assert read(data)
        marks.append(time.perf_counter())

    reader = Thread(target=work)
    reader.start()
    seen = []
    while reader.is_alive():
        seen.append(time.perf_counter())
        time.sleep(0.0002)
    # With the GIL held, this thread would stand still from the first mark to the second.
    assert sum(marks[0] < at < marks[1] for at in seen) >= 5
