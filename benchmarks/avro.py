"""Avro values as JSON: a segment with them, and what a user of fastavro or of confluent-kafka would write.

``python benchmarks/avro.py fastavro|confluent FOLDER`` prints the segment of the folder as ``kfuzz cat`` does. All of
them print the same JSON.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kfuzz import records
from kfuzz.files import map_bytes
from kfuzz.records import Record, RecordBatch

ID: Final = 42
FRAME: Final = b"\0" + ID.to_bytes(4, "big")
PER_BATCH: Final = 100
# About the size of a record.
RECORD_BYTES: Final = 90
START_S: Final = 1_700_000_000
SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "country", "type": "string"},
    ],
}


def make(folder: Path, size: int) -> int:
    """Write a segment of about ``size`` bytes, and its schema; the number of records."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    count = max(size // RECORD_BYTES // PER_BATCH, 1) * PER_BATCH
    (folder / "orders-0").mkdir(parents=True)
    (folder / f"{ID}.avsc").write_text(json.dumps(SCHEMA))
    with (folder / "orders-0" / "00000000000000000000.log").open("wb") as out:
        for start in range(0, count, PER_BATCH):
            made = []
            for i in range(start, start + PER_BATCH):
                file = io.BytesIO()
                order = {
                    "id": i,
                    "customer": f"customer-{i % 1000}",
                    "total": i / 7,
                    "count": i % 9,
                    "paid": i % 2 == 0,
                    "note": "please ring twice" if i % 3 else None,
                    "state": "PAID",
                    "created": datetime.fromtimestamp(START_S + i, UTC),
                    "tags": ["new", "gift"],
                    "country": "DE",
                }
                fastavro.schemaless_writer(file, schema, order)
                made.append(Record(i, START_S * 1000 + i, b"key-%d" % i, FRAME + file.getvalue()))
            out.write(records.encode([RecordBatch(start, start + PER_BATCH - 1, made)]))
    return count


def _fastavro(schema: str) -> Callable[[bytes], Any]:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))
    return lambda data: fastavro.schemaless_reader(io.BytesIO(data[len(FRAME) :]), parsed, None)


def _confluent(schema: str) -> Callable[[bytes], Any]:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client: Any = SchemaRegistryClient.new_client({"url": "mock://"})
    known = Schema(schema, "AVRO")
    # The registry in memory counts from 1.
    for number in range(1, ID + 1):
        client.register_schema(
            f"orders-{number}", known if number == ID else Schema(f'{{"type": "fixed", "name": "F", "size": {number}}}')
        )
    read: Any = AvroDeserializer(client)
    context = SerializationContext("orders", MessageField.VALUE)
    return lambda data: read(data, context)


def main() -> None:
    """Print the segment."""
    reader, folder = sys.argv[1], Path(sys.argv[2])
    read = {"fastavro": _fastavro, "confluent": _confluent}[reader]((folder / f"{ID}.avsc").read_text())
    segment = folder / "orders-0" / "00000000000000000000.log"

    def as_text(value: Any) -> str:
        return str(value.isoformat()).replace("+00:00", "Z")

    for record in records.iterate(map_bytes(segment)):
        line = {
            "topic": "orders",
            "partition": 0,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key and record.key.decode(),
            "value": read(record.value or b""),
            "headers": [[name.decode(), value and value.decode()] for name, value in record.headers],
        }
        print(json.dumps(line, default=as_text, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
