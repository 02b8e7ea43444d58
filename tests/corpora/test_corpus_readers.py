"""Kept libraries in Java read what kfuzz generates, with the same fields as kfuzz's own decoding."""

from __future__ import annotations

import json
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
from programs import run_program
from test_corpus_relations import customers, predicted, records, workload_of
from test_corpus_schemas_clients import WORKLOAD, records_of

from kfuzz.conformance.broker.real import java_command
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.corpora.workload import Workload, load
from kfuzz.schemas import Schema, Schemas, Store, proto

LONG_IDS = "io.apicurio.registry.serde.Legacy8ByteIdHandler"
FOLDER = Path(__file__).with_name("readers")
# Those of the workload, by their ids.
SCHEMAS: dict[int | str, Schema] = {}


class Registry(BaseHTTPRequestHandler):
    """Answers what Apicurio's deserialisers ask: for a schema by its id, and for those that it refers to, here none."""

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"[]" if name == "references" else SCHEMAS[int(name)].text.encode())


def read(profile: str, program: str, lines: list[str], *arguments: str) -> list[str]:
    """The lines that a Java program of the folder prints for these, with the jars of a profile of its pom.xml."""
    require_kafka_build()
    home = FOLDER / "target" / profile
    build = ("mvn", "-q", "-B", f"-P{profile}", f"-Dreader={profile}", "prepare-package")
    Testee(profile, "", (), folder=FOLDER, build=build, product=home / "lib").make_ready()
    command = java_command(home, str(FOLDER / program), arguments, log_levels={})
    done = run_program(*command, input="\n".join(lines), encoding="utf-8")
    return done.stdout.splitlines()


@pytest.mark.nightly
@pytest.mark.java
@pytest.mark.parametrize(
    ("version", "framings", "settings"),
    [
        (2, ["apicurio", "apicurio-header"], []),
        (3, ["apicurio-3", "apicurio-header"], ["apicurio.registry.headers.enabled", "true"]),
        (3, ["apicurio"], ["apicurio.registry.use-id", "globalId", "apicurio.registry.id-handler", LONG_IDS]),
    ],
)
def test_the_deserialisers_of_apicurio_read_every_value(version: int, framings: list[str], settings: list[str]) -> None:
    lines, wanted = [], []
    for topic in load(WORKLOAD).topics:
        values = topic.values
        schema = SCHEMAS[values.schema_id or 0] = Schema(values.schema_kind, values.texts[-1][1])
        ours = Schemas([Store("", SCHEMAS)])
        for framing in framings:
            one = replace(topic, values=replace(values, framing=framing), partitions=1)
            for record in records_of(Workload((one,), size=128 << 10, segment_bytes=64 << 10)):
                headers = [(name.decode(), data) for name, data in record.headers if name.startswith(b"apicurio")]
                lines.append(
                    " ".join([schema.kind, record.value.hex(), *(f"{name} {data.hex()}" for name, data in headers)])
                )
                wanted.append((schema, *ours.texts("value", [record.value], [data for _, data in headers])))
        assert ours.failures == 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/apis/registry/v{version}"
        said = read(f"apicurio-{version}", "Apicurio.java", lines, "apicurio.registry.url", url, *settings)
        server.shutdown()
    assert len(said) > 500 * len(framings)
    for text, (schema, our) in zip(said, wanted, strict=True):
        found, fields = json.loads(text), json.loads(our)
        if schema.kind == "PROTOBUF":
            # Java leaves out what has its default.
            message = GetMessageClass(proto.chosen(schema.text, (), "x", None)[0])
            found = json_format.MessageToDict(json_format.ParseDict(found, message()), **proto.FORM)
        elif schema.kind == "AVRO":
            # It leaves Avro's logical types to the application.
            number = int.from_bytes(found["total"].encode("latin-1"), signed=True)
            found["total"] = str(Decimal(number).scaleb(-2))
            fields["at"] = round(datetime.fromisoformat(fields["at"]).timestamp() * 1000)
        assert found == fields


@pytest.mark.full
@pytest.mark.java
@pytest.mark.parametrize("keys", ['space = "people"', 'type = "long", partitioner = "murmur2"'])
def test_connect_and_debezium_make_the_predicted_rows_of_the_changes(keys: str) -> None:
    workload = workload_of(customers(keys, schema_part="true"))
    made = [one for each in records(workload, "customers").values() for one in each]
    lines = [f"{one.key.hex()} {(one.value or b'').hex()}" for one in made]
    rows: dict[str, Any] = {}
    for record, line in zip(made, read("debezium", "Debezium.java", lines), strict=True):
        key, _, row = line.partition("\t")
        assert json.loads(key) == json.loads(record.key)["payload"]
        if record.value is None:
            assert (row, rows[key]) == ("", None)
            continue
        found, change = json.loads(row), json.loads(record.value)["payload"]
        is_deleted = found.pop("__deleted") == "true"
        # A field that was added after the change is null.
        assert found == dict.fromkeys(found) | change["before" if is_deleted else "after"]
        rows[key] = None if is_deleted else found
    live = sum(one is not None for one in rows.values())
    expected = predicted(workload, "customers")["changes"]
    assert (expected["live_keys"], expected["deleted_keys"]) == (live, len(rows) - live)
    assert expected["tombstones"] == sum(one.value is None for one in made) > 20
