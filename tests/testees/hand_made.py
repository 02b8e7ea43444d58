"""Record batches as hex, and what they hold: checked byte by byte against Kafka's definitions; for tests only."""

from __future__ import annotations

import hashlib
from typing import Any

from crc32c import crc32c


def record(offset: int, **fields: Any) -> dict[str, Any]:
    """The protocol's form of a record; by default key ``k``, value ``v``, no headers, at 1700000000000 ms."""
    usual = {"timestamp": "1700000000000", "key": "6b", "value": "76", "headers": []}
    return {"offset": str(offset)} | usual | fields


def batch(records: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The protocol's form of a batch; fields not given are those of an ordinary batch of that magic, usually 2."""
    legacy = fields.get("magic", 2) < 2
    usual: dict[str, Any] = {
        "base_offset": records[0]["offset"] if records else "0",
        "last_offset": records[-1]["offset"] if records else "0",
        "magic": 2,
        "compression": "none",
        "timestamp_type": "none" if fields.get("magic") == 0 else "create",
        "transactional": False,
        "control": False,
        "producer_id": "-1",
        "producer_epoch": -1,
        "base_sequence": -1,
        "partition_leader_epoch": -1 if legacy else 0,
        "delete_horizon": None,
        "records": records,
    } | fields
    return usual | {"next_offset": str(int(usual["last_offset"]) + 1)}


def _bytes(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


V2 = _bytes(
    "0000000000000007 0000004f 00000005 02 0cbafae4",  # base offset 7, length 79, leader epoch 5, magic 2, CRC
    "0000 00000002 0000018bcfe56800 0000018bcfe56805",  # attributes, last offset delta 2, base and max timestamp
    "ffffffffffffffff ffff ffffffff 00000003",  # no producer id, epoch, sequence; 3 records
    "1e 00 00 00 02 6b 02 76 04  02 68 02 00  02 68 01",  # k = v with the header h twice: one byte, and null
    "0c 00 0a 02 01 00 00",  # 5 ms later, null key, empty value
    "0c 00 01 04 00 01 00",  # 1 ms before the first, empty key, null value
)
V2_HOLDS = batch(
    [
        record(7, headers=[["h", "00"], ["h", None]]),
        record(8, timestamp="1700000000005", key=None, value=""),
        record(9, timestamp="1699999999999", key="", value=None),
    ],
    partition_leader_epoch=5,
)

V2_COMMIT = _bytes(
    "0000000000000007 00000042 00000000 02 596cae1d",
    "0030 00000000 0000018bcfe56800 0000018bcfe56800",  # attributes: control, transactional
    "0000000000000001 0003 ffffffff 00000001",  # producer 1, epoch 3
    "20 00 00 00 08 00000001 0c 000000000000 00",  # key: version 0, type 1 (commit); value: version 0, epoch 0
)
V2_COMMIT_HOLDS = batch(
    [record(7, key="00000001", value="000000000000")],
    transactional=True,
    control=True,
    producer_id="1",
    producer_epoch=3,
)

V0 = _bytes("0000000000000007 00000010 1fecd70a 00 00", "00000001 6b 00000001 76")
V0_HOLDS = batch([record(7, timestamp=None)], magic=0)

V1 = _bytes("0000000000000007 00000018 39268c33 01 00 0000018bcfe56800", "00000001 6b 00000001 76")
V1_HOLDS = batch([record(7)], magic=1)

VALID = {"v2": (V2, V2_HOLDS), "v2-commit": (V2_COMMIT, V2_COMMIT_HOLDS), "v0": (V0, V0_HOLDS), "v1": (V1, V1_HOLDS)}


def sealed(data: bytes) -> bytes:
    """The batch of magic 2 with its length and CRC made right."""
    length = (len(data) - 12).to_bytes(4, "big")
    return data[:8] + length + data[12:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def of_magic_2(payload: bytes, *, count: int, attributes: int = 0) -> bytes:
    """A batch of magic 2 around the payload, with the given record count and attributes, whatever they promise."""
    header = bytearray(V2[:61])
    header[21:23] = attributes.to_bytes(2, "big")
    header[57:61] = count.to_bytes(4, "big", signed=True)
    return sealed(bytes(header) + payload)


LARGE = of_magic_2(
    # length 70008; attributes, deltas and key length -1 in a byte each, value length 70000; no headers
    _bytes("f0c508 00 00 00 01 e0c508") + bytes(70_000) + b"\x00",
    count=1,
)
LARGE_VALUE = {"sha256": hashlib.sha256(bytes(70_000)).hexdigest(), "size": 70_000}
