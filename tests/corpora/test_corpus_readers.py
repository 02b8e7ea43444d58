"""Kept libraries in Java read what kfuzz generates, with the same fields as kfuzz's own decoding."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from conftest import require_kafka_build
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from made_corpora import batches_of
from test_corpus_relations import customers, predicted, records, workload_of

from kfuzz.conformance.broker.real import java_command
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import Topic, Workload, load
from kfuzz.records import Record
from kfuzz.schemas import Schema, Schemas, Store, proto

FOLDER = Path(__file__).with_name("readers")
PURCHASES = Path(__file__).parents[2] / "spark_jobs" / "workloads" / "purchases.toml"
LEGACY = ["id-handler=io.apicurio.registry.serde.Legacy8ByteIdHandler", "use-id=globalId"]


def read(profile: str, program: str, lines: list[str], *arguments: str) -> list[str]:
    """The lines that a Java program of the folder prints for these, with the jars of a profile of its pom.xml."""
    require_kafka_build()
    home = FOLDER / "target" / profile
    build = ("mvn", "-q", "-B", f"-P{profile}", f"-Dreader={profile}", "prepare-package")
    Testee(profile, "", (), folder=FOLDER, build=build, product=home / "lib").make_ready()
    command = java_command(home, str(FOLDER / program), arguments, log_levels={})
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def records_of(topic: Topic) -> list[Record]:
    made = Workload((topic,), size=128 << 10, segment_bytes=64 << 10)
    return [record for segment in Plan(made) for batch in batches_of(segment, made) for record in batch.records]


@contextmanager
def registry(schemas: dict[int, str]) -> Iterator[str]:
    """The address of a registry that answers what Apicurio's deserialisers ask: schemas, which refer to no other."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0].rpartition("/")[2]
            data = b"[]" if name == "references" else schemas[int(name)].encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/apis/registry"
        server.shutdown()


@pytest.mark.nightly
@pytest.mark.java
@pytest.mark.parametrize(
    ("version", "framings", "settings"),
    [
        (2, ["apicurio", "apicurio-header"], []),
        (3, ["apicurio-3", "apicurio-header"], ["headers.enabled=true"]),
        (3, ["apicurio"], LEGACY),
    ],
)
def test_the_deserialisers_of_apicurio_read_every_value(version: int, framings: list[str], settings: list[str]) -> None:
    ids: dict[int | str, Schema] = {}
    given: list[tuple[str, Record]] = []
    for topic in load(PURCHASES).topics:
        values = topic.values
        schema = ids[values.schema_id or 0] = Schema(values.schema_kind, values.texts[-1][1])
        for framing in framings:
            made = records_of(replace(topic, values=replace(values, framing=framing), partitions=1))
            given += [(schema.kind, one) for one in made if one.value is not None]
        if schema.kind == "PROTOBUF":
            message = GetMessageClass(proto.chosen(schema.text, (), "x", None)[0])
    ours, lines, wanted = Schemas([Store("", ids)]), [], []
    for kind, record in given:
        headers = [one for one in record.headers if one[0].startswith(b"apicurio")]
        lines.append(" ".join([kind, record.value.hex(), *(f"{name.decode()} {data.hex()}" for name, data in headers)]))
        wanted += ours.texts("value", [record.value], [data for _, data in headers])
    with registry({id: schema.text for id, schema in ids.items()}) as url:
        settings = [f"apicurio.registry.{one}" for one in (f"url={url}/v{version}", *settings)]
        said = read(f"apicurio-{version}", "Apicurio.java", lines, *settings)
    for (kind, _), text, our in zip(given, said, wanted, strict=True):
        found, fields = json.loads(text), json.loads(our)
        if kind == "PROTOBUF":
            # Java leaves out what has its default.
            found = json_format.MessageToDict(json_format.ParseDict(found, message()), **proto.FORM)
        elif kind == "AVRO":
            # It leaves Avro's logical types to the application.
            number = int.from_bytes(found["total"].encode("latin-1"), signed=True)
            found["total"] = str(Decimal(number).scaleb(-2))
            fields["at"] = round(datetime.fromisoformat(fields["at"]).timestamp() * 1000)
        assert found == fields
    assert ours.failures == 0
    assert len(said) > 500 * len(framings)


@pytest.mark.full
@pytest.mark.java
@pytest.mark.parametrize("keys", ['space = "people"', 'type = "long", partitioner = "murmur2"'])
def test_connect_and_debezium_make_the_predicted_rows_of_the_changes(keys: str) -> None:
    workload = workload_of(customers(keys, schema_part="true"))
    made = [one for each in records(workload, "customers").values() for one in each]
    lines = [f"{one.key.hex()} {'-' if one.value is None else one.value.hex()}" for one in made]
    rows: dict[str, Any] = {}
    tombstones = 0
    for record, line in zip(made, read("debezium", "Debezium.java", lines), strict=True):
        key, row = line.split("\t")
        assert json.loads(key) == json.loads(record.key)["payload"]
        found, tombstones = json.loads(row), tombstones + (record.value is None)
        if found is None:
            assert record.value is None
            assert rows[key] is None
            continue
        change = json.loads(record.value)["payload"]
        is_deleted = found.pop("__deleted") == "true"
        # A field that was added after the change is null.
        assert found == dict.fromkeys(found) | change["before" if is_deleted else "after"]
        rows[key] = None if is_deleted else found
    live = sum(one is not None for one in rows.values())
    expected = predicted(workload, "customers")["changes"]
    assert (expected["live_keys"], expected["deleted_keys"]) == (live, len(rows) - live)
    assert expected["tombstones"] == tombstones > 20
