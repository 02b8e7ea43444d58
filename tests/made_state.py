"""Small logs of Kafka's own topics and of transactions, for tests of ``kfuzz state`` and for the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kfuzz import records
from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker, encode_control
from kfuzz.kafka import LATEST
from kfuzz.messages import encode
from kfuzz.messages.catalogues import RECORDS, catalogue
from kfuzz.messages.model import Definition
from kfuzz.records import Record, RecordBatch

FIRST_MS = 1_700_000_000_000
DEFINITIONS = catalogue(RECORDS[LATEST]).messages
ID = bytes(15) + b"\1"
Pair = tuple[bytes | None, bytes | None]


def definition(name: str) -> tuple[Definition, int]:
    one = DEFINITIONS[name]
    return one, one.valid_versions.highest


def coordinator(name: str, key: dict[str, Any], value: dict[str, Any] | None, version: int | None = None) -> Pair:
    """A record of a coordinator; without ``value``, a tombstone."""
    keys, (values, newest) = DEFINITIONS[f"{name}Key"], definition(f"{name}Value")
    version = newest if version is None else version
    written = None if value is None else version.to_bytes(2, "big") + encode(values, version, value)
    return (keys.api_key or 0).to_bytes(2, "big") + encode(keys, 0, key), written


def framed(name: str, /, **value: Any) -> Pair:
    one, version = definition(f"{name}Record")
    return None, bytes([1, one.api_key or 0, version]) + encode(one, version, value)


def marker(commit: bool) -> Pair:
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return encode_control(ControlRecord(ControlRecordKey(kind), EndTransactionMarker(7)))


def write(folder: Path, *batches: tuple[list[Pair], dict[str, Any]], name: str = "0" * 20 + ".log") -> Path:
    """A segment of batches: their records, and the fields of their headers. Each batch is one second later."""
    folder.mkdir(parents=True, exist_ok=True)
    at, made = int(name[:20]), []
    for number, (pairs, header) in enumerate(batches):
        rows = [Record(at + i, FIRST_MS + 1000 * number, key, value) for i, (key, value) in enumerate(pairs)]
        made.append(RecordBatch(at, at + len(rows) - 1, rows, **header))
        at += len(rows)
    path = folder / name
    path.write_bytes(records.encode(made))
    return path


def of(producer: int, *, control: bool = False, sequence: int = -1) -> dict[str, Any]:
    known = {"producer_id": producer, "producer_epoch": 2, "base_sequence": sequence}
    return known | {"transactional": True, "control": control}


def make_orders(folder: Path) -> None:
    """Producer 1 is committed, 2 aborted, 3, 4 and 5 are open; the coordinator has 3 as open and 5 as ended."""
    data: list[Pair] = [(b"k", b"v"), (b"k", b"v")]
    write(
        folder / "orders-0",
        (data, of(1, sequence=0)),
        (data, of(3, sequence=0)),
        ([marker(True)], of(1, control=True)),
        (data, of(2, sequence=0)),
        ([marker(False)], of(2, control=True)),
        (data, of(3, sequence=2)),
        (data, of(4, sequence=0)),
        (data, of(5, sequence=0)),
    )
    known = [
        coordinator(
            "TransactionLog",
            {"transactionalId": f"tx-{producer}"},
            {"producerId": producer, "transactionStatus": number, "transactionPartitions": partitions},
        )
        for producer, number, partitions in ((3, 1, [{"topic": "orders", "partitionIds": [0]}]), (5, 4, []))
    ]
    write(folder / "__transaction_state-0", (known, {}))


def commit(group: str, offset: int, version: int = 4, **more: Any) -> Pair:
    key = {"group": group, "topic": "orders", "partition": 0}
    return coordinator("OffsetCommit", key, {"offset": offset, "commitTimestamp": FIRST_MS, **more}, version)


def make_broker(folder: Path) -> None:
    """A log directory for the documentation: orders, two groups and the metadata."""
    make_orders(folder)
    rows = [commit("billing", 4), commit("shipping", 2)]
    rows.append(coordinator("ConsumerGroupMetadata", {"groupId": "shipping"}, {"epoch": 5}))
    write(folder / "__consumer_offsets-0", (rows, {}))
    topic = framed("Topic", name="orders", topicId=ID)
    partition = framed("Partition", topicId=ID, partitionId=0, replicas=[1, 2], isr=[1, 2], leader=1, leaderEpoch=3)
    level = framed("FeatureLevel", name="metadata.version", featureLevel=33)
    change = framed("PartitionChange", topicId=ID, partitionId=0, leader=2, isr=[2])
    config = {"resourceType": 2, "resourceName": "orders", "name": "retention.ms", "value": "86400000"}
    write(folder / "__cluster_metadata-0", ([level, topic, partition, change, framed("Config", **config)], {}))
