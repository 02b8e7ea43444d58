"""Memory that writers keep: whoever writes while another one does, or after it, changes nothing of it."""

from __future__ import annotations

import threading

from kfuzz import records
from kfuzz.errors import EncodeError
from kfuzz.wire.records.batch_writer import encode_records


class Nosy(bytearray):
    """A value that encodes a batch while it is encoded itself."""

    asked = 0

    def __bytes__(self) -> bytes:
        Nosy.asked += 1
        records.encode_batch(batch_of(50, b"other"))
        return b"value"


def batch_of(count: int, value: bytes) -> records.RecordBatch:
    return records.RecordBatch(0, count - 1, [records.Record(i, i, b"k%d" % i, value) for i in range(count)])


def test_payloads_that_are_kept_stay_as_they_are() -> None:
    payloads = [encode_records(batch_of(n, b"%d" % n).records, 0, None)[0] for n in (3, 1, 200, 2)]
    copies = [bytes(payload) for payload in payloads]
    del payloads[1]
    for _ in range(3):
        encode_records(batch_of(500, b"\xff" * 100).records, 0, None)
    assert [bytes(payload) for payload in payloads] == [copies[0], *copies[2:]]
    assert [len(payload) for payload in payloads] == [len(copies[0]), len(copies[2]), len(copies[3])]


def test_a_batch_encoded_while_another_is() -> None:
    odd, plain = batch_of(20, b"value"), batch_of(20, b"value")
    for record in odd.records[::3]:
        record.value = Nosy()
    assert records.encode_batch(odd) == records.encode_batch(plain)
    assert Nosy.asked == 7


def test_a_batch_that_is_refused_leaves_the_next_one_alone() -> None:
    expected = records.encode_batch(batch_of(5, b"value"))
    broken = batch_of(200, b"value")
    broken.records[150].key = 7  # type: ignore[assignment]
    for _ in range(3):
        try:
            records.encode_batch(broken)
        except EncodeError:
            assert records.encode_batch(batch_of(5, b"value")) == expected
        else:
            raise AssertionError("a key of 7 was written")


def test_a_payload_larger_than_what_is_kept() -> None:
    large = batch_of(3, b"x" * (1 << 20))
    assert [len(record.value or b"") for record in records.iterate(records.encode_batch(large))] == [1 << 20] * 3


def test_threads_encode_side_by_side() -> None:
    """Compression lets other threads run while the payload is read."""
    batches = [batch_of(400 + n, b"%d" % n * 50) for n in range(4)]
    for batch, codec in zip(batches, records.CODECS[1:], strict=True):
        batch.compression = codec
    expected = [records.encode_batch(batch) for batch in batches]
    differing: list[int] = []

    def encode(n: int) -> None:
        for _ in range(50):
            if records.encode_batch(batches[n]) != expected[n]:
                differing.append(n)

    threads = [threading.Thread(target=encode, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert differing == []
