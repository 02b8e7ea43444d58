"""The files that the documentation's commands name."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import Final

from docs.pages import ROOT
from made_state import make_logs
from relay.capturing import ACK, SYN, Wire, pcap

from kfuzz import messages, records
from kfuzz.records import Record, RecordBatch

# Files and folders that commands and programs name by their place in the repository.
LINKED: Final = (
    "benchmarks",
    "examples",
    "kfuzz",
    "pyproject.toml",
    "spark_jobs",
    "testees",
    "tests",
    "tools",
    "vectors",
)
FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000


def segment(batches: int = 3) -> list[bytes]:
    """Batches of two records each."""
    made = []
    for batch in range(batches):
        rows = [
            Record(offset, FIRST_TIMESTAMP_MS + 1000 * batch + i, b"order-%d" % offset, b'{"item": "tea"}')
            for i, offset in enumerate((2 * batch, 2 * batch + 1))
        ]
        made.append(records.encode_batch(RecordBatch(2 * batch, 2 * batch + 1, rows, partition_leader_epoch=0)))
    return made


def make_place(folder: Path) -> Path:
    """Fill ``folder`` with what a reader of the documentation has at hand."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    make_samples(folder)
    return folder


def environment() -> dict[str, str]:
    """The environment of commands and programs: this interpreter's tools, and no settings of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KFUZZ_"))}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }


def make_connection(folder: Path, fetch: dict[str, object], batch: bytes) -> None:
    """The bytes that a client sent over a connection, and those that it received: ``batch``."""
    partitions = [{"highWatermark": 9, "records": batch}]
    fetched = {"responses": [{"topicId": bytes(15) + b"\1", "partitions": partitions}]}
    versions = {"apiKeys": [{"apiKey": 1, "minVersion": 4, "maxVersion": 18}]}
    sent, received = b"", b""
    for number, (key, version, name, asked, answered) in enumerate(
        [(18, 3, "ApiVersions", {"clientSoftwareName": "me"}, versions), (1, 17, "Fetch", fetch, fetched)], start=1
    ):
        header = {"requestApiKey": key, "requestApiVersion": version, "correlationId": number, "clientId": "me"}
        request = messages.encode("RequestHeader", 2, header) + messages.encode(f"{name}Request", version, asked)
        answer = messages.encode("ResponseHeader", int(key == 1), {"correlationId": number})
        answer += messages.encode(f"{name}Response", version, answered)
        sent += struct.pack(">i", len(request)) + request
        received += struct.pack(">i", len(answer)) + answer
    (folder / "sent.bin").write_bytes(sent)
    (folder / "received.bin").write_bytes(received)
    # The same in packets; the second half of the last answer is lost, and another request comes.
    wire = Wire()
    packets = [wire.packet(1, 0, flags=SYN), wire.packet(1, 1, flags=SYN | ACK), wire.packet(1, 0, sent)]
    packets.append(wire.packet(1, 1, received[:100]))
    wire.packet(1, 1, received[100:])
    (folder / "capture.pcap").write_bytes(pcap([*packets, wire.packet(1, 0, sent[:22])]))
    (folder / "server.log").write_text(
        "INFO Loading logs from log dirs (kafka.log.LogManager)\n"
        "WARN Found invalid messages in log segment /data/orders-0/00000000000000000000.log at byte offset 119.\n"
        "INFO Logs loading complete in 12 ms. (kafka.log.LogManager)\n"
    )


def make_values(folder: Path) -> None:
    """A log directory with orders in Avro, one of which has an unknown schema, and the schemas beside them."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    order = b"\x08anna\x04\x04\xd2" + bytes.fromhex("80a0abfef962")
    made = [(b"anna", b"\0\0\0\0\x2a\x02" + order), (b"ben", None), (b"anna", b"\0\0\0\0\x07\x04" + order)]
    known = json.dumps({"subject": "orders-value", "version": 1, "id": 42, "schema": schema})
    for name, rows in (("orders-0", made), ("_schemas-0", [(b'{"keytype":"SCHEMA"}', known.encode())])):
        (folder / name).mkdir(parents=True)
        some = [Record(i, FIRST_TIMESTAMP_MS + i, *row, ((b"source", b"web"),)) for i, row in enumerate(rows)]
        batch = records.encode_batch(RecordBatch(0, len(some) - 1, some))
        (folder / name / "00000000000000000000.log").write_bytes(batch)
    (folder / "42.avsc").write_text(schema)


def make_samples(folder: Path) -> None:
    """A good segment, the same with one wrong bit in its second batch, a log directory with that one and its indexes,
    a broker's log directory, a group's committed offset, bodies of messages, and a testee.
    """
    good = segment()
    (folder / "good.log").write_bytes(b"".join(good))
    broken = bytearray(b"".join(good))
    broken[len(good[0]) + 80] ^= 1
    (folder / "00000000000000000000.log").write_bytes(broken)
    partition = folder / "data" / "orders-0"
    partition.mkdir(parents=True)
    (partition / "00000000000000000000.log").write_bytes(broken)
    (partition / "00000000000000000000.index").write_bytes(struct.pack(">2i", 5, 2 * len(good[0])))
    (partition / "00000000000000000000.timeindex").write_bytes(struct.pack(">qi", FIRST_TIMESTAMP_MS + 2001, 5))
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    make_logs(folder / "broker", "orders", "broker")
    shutil.make_archive(str(folder / "backup"), "gztar", folder, "data")
    committed = Record(
        0,
        FIRST_TIMESTAMP_MS,
        b"\0\1" + messages.encode("OffsetCommitKey", 0, {"group": "billing", "topic": "orders", "partition": 0}),
        b"\0\3" + messages.encode("OffsetCommitValue", 3, {"offset": 4711, "commitTimestamp": FIRST_TIMESTAMP_MS}),
    )
    (folder / "committed.log").write_bytes(records.encode_batch(RecordBatch(0, 0, [committed])))
    make_values(folder / "shop")
    fetch = {
        "maxWaitMs": 500,
        "minBytes": 1,
        "topics": [{"topicId": bytes(15) + b"\1", "partitions": [{"fetchOffset": 7}]}],
    }
    (folder / "body.bin").write_bytes(messages.encode("Fetch", 17, fetch))
    make_connection(folder, fetch, bytes(broken[len(good[0]) : 2 * len(good[0])]))
    (folder / "metadata-body.bin").write_bytes(messages.encode("Metadata", 12, {"topics": None}))
    example = re.search(r"^```python\n(.*?)^```$", (ROOT / "testees/README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert example
    for name in ("my_testee.py", "mine.py"):
        (folder / name).write_text(example[1])
    (folder / "my-testee").write_text("#!/usr/bin/env python3\n" + example[1])
    (folder / "my-testee").chmod(0o755)
