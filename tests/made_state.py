"""Small logs of Kafka's own topics and of transactions, for tests of ``kfuzz state`` and for the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kfuzz import records
from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker, encode_control
from kfuzz.kafka import LATEST
from kfuzz.messages import encode
from kfuzz.messages.catalogues import RECORDS, catalogue
from kfuzz.messages.jsonform import from_json
from kfuzz.records import Record, RecordBatch

FIRST_MS = 1_700_000_000_000
DEFINITIONS = catalogue(RECORDS[LATEST]).messages
# By name, the files of a log directory. In "orders", producer 1 is committed, 2 aborted, and 3, 4 and 5 are open; the
# coordinator has 3 as open and 5 as ended. "metadata" is a snapshot that ends at 5, and the records from there on.
LOGS = json.loads(Path(__file__).with_suffix(".json").read_text())
MARKERS = {
    name: encode_control(ControlRecord(ControlRecordKey(kind), EndTransactionMarker(7)))
    for name, kind in (("commit", ControlRecordType.COMMIT), ("abort", ControlRecordType.ABORT))
}


def make_logs(folder: Path, *names: str) -> None:
    for name in names:
        for path, batches in LOGS[name].items():
            _write(folder / path, batches)


def _write(path: Path, batches: list[dict[str, Any]]) -> None:
    """A segment or a snapshot. Each batch is one second later."""
    at, made = int(path.stem) if path.suffix == ".log" else 0, []
    for number, batch in enumerate(batches):
        pairs, header = list(map(_pair, batch["records"])), {}
        if "producer" in batch:
            header = {"producer_id": batch["producer"], "producer_epoch": 2, "transactional": True}
            header["base_sequence"] = batch.get("sequence", -1)
            header["control"] = batch["records"] in (["commit"], ["abort"])
        rows = [Record(at + i, FIRST_MS + 1000 * number, *pair) for i, pair in enumerate(pairs)]
        made.append(RecordBatch(at, at + len(rows) - 1, rows, **header))
        at += len(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(records.encode(made))


def _pair(form: Any) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record: a marker, plain data, or the fields of one of Kafka's own records."""
    if isinstance(form, str):
        return MARKERS.get(form, (b"k", b"v"))
    (name, fields), *_ = form.items()
    if name == "hex":
        return bytes.fromhex(fields[0]), bytes.fromhex(fields[1])
    if "value" not in form:
        number, version, data = _encoded(f"{name}Record", fields)
        return None, bytes([1, number, version]) + data
    # A coordinator's record; without a value, a tombstone.
    number, _, data = _encoded(f"{name}Key", fields)
    key = number.to_bytes(2, "big") + data
    if form["value"] is None:
        return key, None
    _, version, data = _encoded(f"{name}Value", form["value"], form.get("version"))
    return key, version.to_bytes(2, "big") + data


def _encoded(name: str, fields: Any, version: int | None = None) -> tuple[int, int, bytes]:
    """The number of this kind of record, the version (if none is given, the newest), and the bytes of the fields."""
    one = DEFINITIONS[name]
    version = one.valid_versions.highest if version is None else version
    return one.api_key or 0, version, encode(one, version, from_json(one, version, fields))
