"""Reads records and compressed payloads that end where memory ends; a read beyond kills it.

Run by test_wire_loops.py.
"""

from __future__ import annotations

import random

from guarded import Guarded
from written_records import written_payload

from kfuzz.kafka import CODECS
from kfuzz.records.codecs import compress
from kfuzz.wire.io.unpack import codecs, unpacked
from kfuzz.wire.records.record_batch import parse_places

LOG_APPEND = 0x08


def main() -> None:
    rng = random.Random(9)
    guarded = Guarded(64)
    read = cuts_read = 0
    # Five-byte varints from the first byte on, and nothing after the last one.
    long_fields = b"\xfe\x7f" + b"\0" + b"\xff\xff\xff\xff\x0f" * 3
    for _ in range(3_000):
        payload, count, last = written_payload(rng)
        cuts = [len(payload), *(rng.randrange(len(payload) + 1) for _ in range(3))]
        for data in [*(payload[:cut] for cut in cuts), long_fields[: rng.randrange(len(long_fields) + 1)]]:
            view = guarded.put(data)
            parse_places(view, 0, (0, 0, 0, 2, 0, LOG_APPEND, last, 0, 0, -1, -1, -1, max(count, 1)))
            view.release()
            read += 1
    for codec in codecs():
        # Also blocks without compression, and two of them.
        for plain in (b"", bytes(300), rng.randbytes(300), bytes(300) + rng.randbytes(70_000)):
            frame = compress(CODECS[codec], plain)
            for cut in {*range(min(len(frame), 400)), *range(max(len(frame) - 400, 0), len(frame) + 1)}:
                view = guarded.put(frame[:cut])
                unpacked(codec, view, 1 << 20)
                view.release()
                cuts_read += 1
    print(read, cuts_read > 2_000)


if __name__ == "__main__":
    main()
