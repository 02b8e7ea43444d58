"""Your decoder as a testee of kfuzz. Put the call to it into ``decode_records``; README.md has the next steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent / "kit"))
import kfuzz_testee

# The exceptions that your decoder documents for bad input. Others are faults.
REJECTIONS: tuple[type[BaseException], ...] = ()


def decode_records(data: bytes) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Yield each batch of ``data``, the record data of a fetch, with its size in bytes (None if it is not known)."""
    # for batch in my_decoder.batches(data):
    #     records = [
    #         kfuzz_testee.record_json(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in batch.records
    #     ]
    #     yield {"records": records}, None
    raise kfuzz_testee.Unsupported("no decoder yet: call yours in decode_records")


if __name__ == "__main__":
    kfuzz_testee.serve(
        {
            "name": "my-decoder",
            "version": "1",
            "roles": ["consumer"],
            # The formats that your decoder can read. kfuzz asks for nothing else.
            "magic": [0, 1, 2],
            "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
            "checks_crc": True,
            "control": "shown",
        },
        decode_records,
        REJECTIONS,
    )
