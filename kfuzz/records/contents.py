"""Batches as JSON and back: the form of the vectors, the testee protocol and ``--json`` (docs/testee-protocol.md).

64-bit integers are decimal strings; bytes are hex or null; a header key is text, or ``{"hex": …}`` where it is not
UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.records.model import Record, RecordBatch

__all__ = ["from_json", "to_json"]

# The batch's fields in JSON, and whether each is a 64-bit integer; timestamps that only a writer needs are not
# contents.
BATCH_FIELDS: dict[str, bool] = {
    "base_offset": True,
    "last_offset": True,
    "magic": False,
    "compression": False,
    "timestamp_type": False,
    "transactional": False,
    "control": False,
    "producer_id": True,
    "producer_epoch": False,
    "base_sequence": False,
    "partition_leader_epoch": False,
    "delete_horizon": True,
}


def to_json(batches: Iterable[RecordBatch]) -> list[dict[str, Any]]:
    """The JSON form of ``batches``."""
    return [_batch_to_json(batch) for batch in batches]


def from_json(batches: Iterable[Mapping[str, Any]]) -> list[RecordBatch]:
    """The batches of a JSON form; ``UsageError`` names the place that is wrong. Fields left out take their defaults."""
    return [_batch_from_json(batch, f"batches[{i}]") for i, batch in enumerate(batches)]


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _key(key: bytes) -> str | dict[str, str]:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"hex": key.hex()}


def _batch_to_json(batch: RecordBatch) -> dict[str, Any]:
    out: dict[str, Any] = {
        name: _number(getattr(batch, name)) if wide else getattr(batch, name) for name, wide in BATCH_FIELDS.items()
    }
    out["next_offset"] = str(batch.next_offset)
    out["records"] = [
        {
            "offset": str(record.offset),
            "timestamp": _number(record.timestamp),
            "key": _hex(record.key),
            "value": _hex(record.value),
            "headers": [[_key(key), _hex(value)] for key, value in record.headers],
        }
        for record in batch.records
    ]
    return out


def _batch_from_json(value: Mapping[str, Any], where: str) -> RecordBatch:
    known = {*BATCH_FIELDS, "next_offset", "records"}
    for name in value:
        if name not in known:
            raise UsageError(f"{where}.{name} is not a field of a batch; the fields are {', '.join(sorted(known))}")
    fields: dict[str, Any] = {}
    for name, wide in BATCH_FIELDS.items():
        if name in value:
            fields[name] = _integer(value[name], f"{where}.{name}") if wide and value[name] is not None else value[name]
    records = [_record_from_json(record, f"{where}.records[{i}]") for i, record in enumerate(value.get("records", ()))]
    fields.setdefault("base_offset", records[0].offset if records else 0)
    fields.setdefault("last_offset", records[-1].offset if records else fields["base_offset"])
    return RecordBatch(records=records, **fields)


def _record_from_json(value: Mapping[str, Any], where: str) -> Record:
    try:
        timestamp = value.get("timestamp")
        return Record(
            _integer(value["offset"], f"{where}.offset"),
            None if timestamp is None else _integer(timestamp, f"{where}.timestamp"),
            _bytes(value.get("key"), f"{where}.key"),
            _bytes(value.get("value"), f"{where}.value"),
            tuple(
                (_header_key(key, f"{where}.headers[{i}]"), _bytes(part, f"{where}.headers[{i}]"))
                for i, (key, part) in enumerate(value.get("headers", ()))
            ),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where} is not a record: {error}") from None


def _integer(value: Any, where: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where} is {value!r}; it must be a decimal integer") from None


def _bytes(value: Any, where: str) -> bytes | None:
    if value is None:
        return None
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where} is {value!r}; it must be hex or null") from None


def _header_key(value: Any, where: str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and isinstance(key := _bytes(value.get("hex"), where), bytes):
        return key
    raise UsageError(f'{where} has key {value!r}; it must be text or {{"hex": …}}')
