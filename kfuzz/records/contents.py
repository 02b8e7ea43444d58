"""Convert batches to JSON and back. Vectors, the testee protocol and ``--json`` use this form.

64-bit integers are decimal strings. Bytes are hex or null. A header key is text, or ``{"hex": …}`` if it is not UTF-8.
docs/testee-protocol.md describes the form.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS, TIMESTAMP_TYPES
from kfuzz.records.model import Header, Record, RecordBatch

# The batch's fields in JSON, and whether each is a 64-bit integer. The base and max timestamp are left out: only a
# writer needs them.
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

# Fields with a fixed set of words, and fields that are true or false. All others are numbers.
WORDS: dict[str, tuple[str, ...]] = {"compression": CODECS, "timestamp_type": TIMESTAMP_TYPES}
TRUTHS = ("transactional", "control")


def to_json(batches: Iterable[RecordBatch]) -> list[dict[str, Any]]:
    """Return the JSON form of ``batches``: a list with one dict for each batch, ready for ``json.dumps``.

    >>> from kfuzz import records
    >>> shown = records.to_json([records.RecordBatch(7, 7, [records.Record(7, 1000, b"k", b"v")])])
    >>> shown[0]["records"]
    [{'offset': '7', 'timestamp': '1000', 'key': '6b', 'value': '76', 'headers': []}]
    """
    return [_batch_to_json(batch) for batch in batches]


def from_json(batches: Iterable[Mapping[str, Any]]) -> list[RecordBatch]:
    """Return the batches that a JSON form describes. A missing field gets its default.

    Raises ``UsageError``, which names the wrong place.

    >>> from kfuzz import records
    >>> batch = records.from_json([{"compression": "gzip", "records": [{"offset": "7", "value": "76"}]}])[0]
    >>> batch.base_offset, batch.compression, batch.records[0].value
    (7, 'gzip', b'v')
    """
    return [_batch_from_json(batch, f"batches[{i}]") for i, batch in enumerate(_list(batches, "batches"))]


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def bytes_form(data: bytes) -> str | dict[str, str]:
    """Text, or ``{"hex": "ff00"}`` for bytes that are not UTF-8, as in the lines of ``kfuzz cat``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _headers_to_json(headers: Iterable[Header]) -> list[list[Any]]:
    return [[bytes_form(key), None if value is None else value.hex()] for key, value in headers]


def _batch_to_json(batch: RecordBatch) -> dict[str, Any]:
    out: dict[str, Any] = {
        name: _number(getattr(batch, name)) if wide else getattr(batch, name) for name, wide in BATCH_FIELDS.items()
    }
    out["next_offset"] = str(batch.next_offset)
    if batch.unreadable:
        return out
    out["records"] = [
        {
            "offset": str(record.offset),
            "timestamp": None if (timestamp := record.timestamp) is None else str(timestamp),
            "key": None if (key := record.key) is None else key.hex(),
            "value": None if (value := record.value) is None else value.hex(),
            "headers": _headers_to_json(headers) if (headers := record.headers) else [],
        }
        for record in batch.records
    ]
    return out


def _batch_from_json(value: Any, where: str) -> RecordBatch:
    value = _object(value, where)
    known = {*BATCH_FIELDS, "next_offset", "records"}
    for name in value:
        if name not in known:
            raise UsageError(f"{where}.{name} is not a field of a batch; the fields are {', '.join(sorted(known))}")
    fields = {name: _field(name, value[name], f"{where}.{name}") for name in BATCH_FIELDS if name in value}
    given = _list(value.get("records", []), f"{where}.records")
    records = []
    for i, record in enumerate(given):
        try:
            records.append(_record_from_json(record))
        except UsageError as error:
            raise UsageError(f"{where}.records[{i}]{error}") from None
    fields.setdefault("base_offset", records[0].offset if records else 0)
    fields.setdefault("last_offset", records[-1].offset if records else fields["base_offset"])
    return RecordBatch(records=records, **fields)


def _field(name: str, value: Any, where: str) -> Any:
    if name in WORDS:
        if value not in WORDS[name]:
            raise UsageError(f"{where} is {_shortly(value)}; it must be one of {', '.join(WORDS[name])}")
        return value
    if name in TRUTHS:
        if not isinstance(value, bool):
            raise UsageError(f"{where} is {_shortly(value)}; it must be true or false")
        return value
    return None if value is None and name == "delete_horizon" else _integer(value, where)


def _record_from_json(value: Any) -> Record:
    """Convert one record. An error names the place inside the record, and the caller adds the record's own place.

    This saves formatting a place for every record: a batch may have very many.
    """
    value = _object(value, "")
    if "offset" not in value:
        raise UsageError(" is not a record: 'offset' is missing")
    timestamp = value.get("timestamp")
    headers = _list(value.get("headers", []), ".headers")
    return Record(
        _integer(value["offset"], ".offset"),
        None if timestamp is None else _integer(timestamp, ".timestamp"),
        _bytes(value.get("key"), ".key"),
        _bytes(value.get("value"), ".value"),
        tuple([_header(header, f".headers[{i}]") for i, header in enumerate(headers)]) if headers else (),
    )


def _header(value: Any, where: str) -> Header:
    pair = _list(value, where)
    if len(pair) != 2:
        raise UsageError(f"{where} has {len(pair)} parts; a header is a key and a value")
    return _header_key(pair[0], where), _bytes(pair[1], where)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    # The check against an abstract class is slow, and a JSON reader makes plain dicts.
    if type(value) is not dict and not isinstance(value, Mapping):
        raise UsageError(f"{where} is {_shortly(value)}; it must be an object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if type(value) is list:
        return value
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise UsageError(f"{where} is {_shortly(value)}; it must be a list")
    return list(value)


def _shortly(value: Any) -> str:
    return reprlib.repr(value)


def _integer(value: Any, where: str) -> int:
    """An int, from an int or decimal text. The encoder checks the range."""
    try:
        if isinstance(value, str) or type(value) is int:
            return int(value)
    except ValueError:
        pass
    raise UsageError(f"{where} is {_shortly(value)}; it must be a decimal integer")


def _bytes(value: Any, where: str) -> bytes | None:
    if value is None:
        return None
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where} is {_shortly(value)}; it must be hex or null") from None


def _header_key(value: Any, where: str) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            pass
    elif isinstance(value, Mapping) and isinstance(key := _bytes(value.get("hex"), where), bytes):
        return key
    raise UsageError(f'{where} has key {_shortly(value)}; it must be text or {{"hex": …}}')
