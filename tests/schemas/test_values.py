"""Keys and values as JSON by their schemas: every type, framing and reference, and bytes that do not fit."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from kfuzz import records
from kfuzz.annotate.records import annotate
from kfuzz.errors import UsageError
from kfuzz.records import Record, RecordBatch
from kfuzz.schemas import Schema, Schemas, Store
from kfuzz.schemas.proto import _compiled
from kfuzz.schemas.store import of_file

TWICE = {str(at): {"allOf": [{"$ref": f"#/definitions/{at + 1}"}] * 2} for at in range(40)}

GUID = UUID(int=77)


def avro(kind: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(json.dumps(kind))), value)
    return file.getvalue()


def store(*schemas: Schema, **versions: Schema) -> Schemas:
    """The schemas with ids from 1 on, the first one also with a GUID, and others that they refer to."""
    made = Store("the test", dict(enumerate(schemas, 1)), {(name, 1): one for name, one in versions.items()})
    made.ids[str(GUID)] = schemas[0]
    return Schemas([made])


def decoded(schemas: Schemas, data: bytes, *header: bytes) -> Any:
    [text] = schemas.texts("value", [data], header)
    return json.loads(text or b"null")


def store_of(kind: Any) -> Schemas:
    return store(Schema("AVRO", json.dumps(kind)))


def logical(kind: str, logical_type: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


@pytest.mark.parametrize(
    ("kind", "value", "form"),
    [
        ("long", 2**62 + 1, 2**62 + 1),
        ("float", 1.1, 1.1),
        ("double", float("nan"), "NaN"),
        ("double", float("-inf"), "-Infinity"),
        ("bytes", b"\xff\0", {"hex": "ff00"}),
        (["null", "string", "long"], 7, 7),
        ({"type": "map", "values": "bytes"}, {"a": b"text"}, {"a": "text"}),
        (
            logical("bytes", "decimal", precision=30, scale=2),
            Decimal("-1234567890123456789012.34"),
            "-1234567890123456789012.34",
        ),
        (logical("int", "date"), date(2026, 11, 24), "2026-11-24"),
        (logical("int", "time-millis"), time(1, 2, 3, 4000), "01:02:03.004000"),
        (logical("long", "time-micros"), time(1, 2, 3, 4), "01:02:03.000004"),
        (logical("long", "timestamp-millis"), datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (logical("long", "local-timestamp-millis"), datetime(2026, 1, 2), "2026-01-02T00:00:00"),
        (logical("string", "uuid"), GUID, str(GUID)),
        (logical("fixed", "uuid", name="U", size=16), GUID.bytes, str(GUID)),
        (
            logical("fixed", "duration", name="D", size=12),
            bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]),
            {"months": 1, "days": 2, "milliseconds": 3},
        ),
        (logical("long", "no-such-type"), 5, 5),
        # Values that are outside their types stay as they were written.
        (logical("int", "date"), 2**31 - 1, 2**31 - 1),
        (logical("int", "time-millis"), 2**31 - 1, 2**31 - 1),
        (logical("long", "timestamp-micros"), 2**62, 2**62),
        (logical("string", "uuid"), "no id", "no id"),
    ],
)
def test_each_type_of_avro_has_its_form(kind: Any, value: Any, form: Any) -> None:
    # fastavro would write some of these as other values than these bytes.
    plain = {name: one for name, one in kind.items() if name != "logicalType"} if isinstance(kind, dict) else kind
    raw = value if isinstance(value, int | bytes) else None
    data = avro(kind if raw is None else plain, value)
    assert decoded(store_of(kind), b"\0\0\0\0\1" + data) == form


NODE = {
    "type": "record",
    "name": "a.Node",
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["LEAF", "TREE"]}},
        {"name": "next", "type": ["null", "Node"]},
    ],
}


def test_recursive_values_of_avro_are_decoded_and_deep_ones_end_no_process() -> None:
    tree = {"kind": "TREE", "next": {"kind": "LEAF", "next": None}}
    assert decoded(store_of(NODE), b"\0\0\0\0\1" + avro(NODE, tree)) == tree
    deep = decoded(store_of(NODE), b"\0\0\0\0\1" + b"\0\2" * 100_000)
    assert deep["error"] == "it is nested too deeply"
    # Lists inside the record count too: each of its levels uses more of the stack.
    kind: Any = ["null", "L"]
    for _ in range(90):
        kind = {"type": "array", "items": kind}
    lists = store_of({"type": "record", "name": "L", "fields": [{"name": "l", "type": kind}]})
    assert decoded(lists, b"\0\0\0\0\1" + b"\2" * 100_000)["error"] == "it is nested too deeply"


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}])
def test_an_array_of_nothing_is_not_decoded(items: Any) -> None:
    schemas = store_of({"type": "array", "items": items})
    assert "take no bytes" in decoded(schemas, b"\0\0\0\0\1" + b"\xfe" * 8 + b"\x7f\0")["error"]


def test_references_are_followed_and_missing_ones_are_named() -> None:
    whole = {"type": "record", "name": "W", "fields": [{"name": "p", "type": "x.Part"}]}
    part = {"type": "record", "name": "x.Part", "fields": [{"name": "n", "type": "int"}]}
    schema = Schema("AVRO", json.dumps(whole), (("x.Part", "part", 1),))
    assert decoded(store(schema, part=Schema("AVRO", json.dumps(part))), b"\0\0\0\0\1\x0e") == {"p": {"n": 7}}
    assert decoded(store(schema), b"\0\0\0\0\1\x0e")["error"].startswith("part version 1")


@pytest.mark.parametrize("id", ["", '"$id": "https://example.org/w.json", '])
def test_references_of_json_schema_count_from_the_id_of_the_schema(id: str) -> None:
    schema = Schema("JSON", f'{{{id}"items": {{"$ref": "part.json"}}}}', (("part.json", "part", 1),))
    part = Schema("JSON", '{"type": "string"}')
    schemas = Schemas([Store("", {1: schema, 2: Schema("JSON", schema.text)}, {("part", 1): part})], checks=True)
    assert decoded(schemas, b'\0\0\0\0\1["a"]') == ["a"]
    assert decoded(schemas, b"\0\0\0\0\1[5]")["error"] == "$[0]: 5 is not of type 'string'"
    assert decoded(schemas, b"\0\0\0\0\2[5]")["error"].startswith("schema 2 needs part.json, which neither")


def test_an_import_that_is_missing_is_named() -> None:
    shown = decoded(store(Schema("PROTOBUF", PROTO)), b"\0\0\0\0\1\0")
    assert shown["error"] == "schema 1 imports other/kind.proto, which is not among the schemas that it refers to"


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "other/kind.proto";
message Order { message Line { int64 big = 1; } string unused = 1; message Inner { string s = 1; } }
message Event {
  oneof one { int32 number = 1; string text = 2; }
  map<int32, Order.Line> lines = 3;
  google.protobuf.Timestamp at = 4;
  other.Kind kind = 5;
  repeated float some = 6;
  bytes raw = 7;
  bool flag = 8;
  optional int32 rare = 9;
}
"""
KIND = 'syntax = "proto3"; package other; enum Kind { NONE = 0; FIRST = 1; }'


def test_protobuf_has_nested_indexes_imports_maps_and_known_types() -> None:
    schemas = store(Schema("PROTOBUF", PROTO, (("other/kind.proto", "kind", 1),)), kind=Schema("PROTOBUF", KIND))
    event = bytes.fromhex("1202686f 1a06080512020807 22020805 2801 3204cdcc8c3f 3a01ff")
    shown = {
        "text": "ho",
        "lines": {"5": {"big": "7"}},
        "at": "1970-01-01T00:00:05Z",
        "kind": "FIRST",
        "some": [1.1],
        "raw": "/w==",
        "flag": False,
    }
    assert decoded(schemas, b"\0\0\0\0\1\2\2" + event) == shown
    # The second message that is declared in the first one.
    assert decoded(schemas, b"\0\0\0\0\1\4\0\2" + b"\n\1x") == {"s": "x"}
    # A single 0 is the first message.
    assert decoded(schemas, b"\0\0\0\0\1\0") == {"unused": ""}
    assert decoded(schemas, event, b"\1" + GUID.bytes + b"\2\2") == shown
    # Apicurio's serializer writes the message's name.
    for id in (b"\0\0\0\1", (1).to_bytes(8, "big")):
        assert decoded(schemas, b"\0" + id + b"\7\n\5Event" + event) == shown
    assert decoded(schemas, b"\0\0\0\0\1\x04\0\x20")["error"]
    bad = store(
        Schema("PROTOBUF", "message {"), Schema("PROTOBUF", "", (("../x", "kind", 1),)), kind=Schema("PROTOBUF", KIND)
    )
    assert "schema 1:1:9" in decoded(bad, b"\0\0\0\0\1\0")["error"]
    assert "leads out" in decoded(bad, b"\0\0\0\0\2\0")["error"]


def test_the_entries_of_maps_are_in_order() -> None:
    text = """
    syntax = "proto3";
    import "google/protobuf/struct.proto";
    message Line { int32 z = 1; int32 a = 2; map<string, int32> sizes = 3; }
    message Event { map<string, Line> lines = 1; repeated Line more = 2; google.protobuf.Struct any = 3; }
    """
    entries = b"".join(b"\n\5\n\1%c\x10\1" % name for name in b"qwertzuiop").replace(b"\n\5", b"\x1a\5")
    line = b"\x08\1\x10\2" + entries
    lines = b"".join(b"\n%c\n\1%c\x12%c%b" % (len(line) + 5, name, len(line), line) for name in b"lkjhgfdsa")
    values = b"".join(b"\n\7\n\1%c\x12\2 \1" % name for name in b"mnbvcxy")
    event = lines + b"\x12%c%b" % (len(line), line) + b"\x1a%c%b" % (len(values), values)
    (shown,) = store(Schema("PROTOBUF", text)).texts("value", [b"\0\0\0\0\1\2\2" + event])
    sizes = dict.fromkeys("eiopqrtuwz", 1)
    one = {"z": 1, "a": 2, "sizes": sizes}
    wanted = {"lines": dict.fromkeys("adfghjkls", one), "more": [one], "any": dict.fromkeys("bcmnvxy", True)}
    assert (shown or b"").decode() == json.dumps(wanted, separators=(",", ":"))


@pytest.mark.parametrize(
    "kind",
    [
        {"pattern": "^([a-z]+)+[0-9]$"},
        {"definitions": {"40": {}} | TWICE, "allOf": [{"$ref": "#/definitions/0"}]},
    ],
    ids=["pattern", "references"],
)
def test_a_schema_that_would_take_years_to_check_refuses_the_value(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.schemas.checked.VALUE_S_MAX", 0.1)
    found = Schemas([Store("", {1: Schema("JSON", json.dumps(kind))})], checks=True)
    assert decoded(found, b'\0\0\0\0\1"' + b"a" * 60 + b'"')["error"].startswith("comparing it with the schema takes")


def test_json_keeps_its_numbers_and_is_checked_if_asked() -> None:
    schema = Schema("JSON", '{"type": "object", "required": ["b"]}')
    assert store(schema).texts("value", [b'\0\0\0\0\1{"a": 1.50}', b"\0\0\0\0\1nope"])[0] == b'{"a":1.50}'
    found = Schemas([Store("", {1: schema})], checks=True)
    assert decoded(found, b'\0\0\0\0\1{"a": 1}')["error"] == "$: 'b' is a required property"
    assert decoded(found, b'\0\0\0\0\1{"b": 1}') == {"b": 1}


def test_ids_are_before_the_value_or_in_a_header() -> None:
    schemas = store_of("string")
    data = avro("string", "ho")
    assert decoded(schemas, b"\0\0\0\0\1" + data) == "ho"
    assert decoded(schemas, b"\0" + (1).to_bytes(8, "big") + data) == "ho"
    for header in (b"\1" + GUID.bytes, b"\0\0\0\0\1", (1).to_bytes(8, "big")):
        assert decoded(schemas, data, header) == "ho"
    assert schemas.failures == 0
    assert decoded(schemas, data, b"?")["error"] == "the header with the schema's id is damaged"


def test_bytes_that_are_the_whole_value_may_lack_their_length() -> None:
    schemas = store_of({"type": "bytes"})
    assert [decoded(schemas, b"\0\0\0\0\1" + data) for data in (b"\4ho", b"hoho", b"")] == ["ho", "hoho", ""]
    assert schemas.failures == 0


def test_what_is_not_decoded_is_shown_with_its_bytes_and_counted() -> None:
    schemas = store(Schema("AVRO", '"string"'), Schema("AVRO", '{"type":'), Schema("OTHER", ""))
    for data, reason in (
        (b"\0\0\0\0\1\x06ho", "the value does not fit the schema"),
        (b"\0\0\0\0\1\x04hoho", "2 bytes follow the value"),
        (b"\0\0\0\0\2", "schema 2 is not JSON"),
        (b"\0\0\0\0\3", "its schema is of kind OTHER"),
        (b"\0\0\0\0\x09", "no schema has this id in the test"),
    ):
        shown = decoded(schemas, data)
        assert reason in shown["error"]
        assert (shown["schema_id"], shown["hex"]) == (data[4], data.hex())
    assert schemas.failures == 5
    assert schemas.first_failure.startswith("schema 1: the value does not fit")
    # Nothing says that these have a schema.
    plain = [decoded(schemas, data) for data in (b"text", b"\xff", b"\0\0\0\0\0\0\0\1")]
    assert plain == ["text", {"hex": "ff"}, "\0" * 7 + "\1"]
    assert schemas.failures == 5


def test_a_single_schema_decodes_values_with_and_without_an_id_and_no_keys() -> None:
    schemas = Schemas([Schema("AVRO", '"long"')])
    assert schemas.texts("value", [b"\0", b"\x0e", b"\0\0\0\0\x63\x0e"]) == [b"0", b"7", b"7"]
    assert schemas.texts("key", [b"\x0e"], [b"\1" + GUID.bytes]) == [b'"\\u000e"']
    assert schemas.texts("value", [b"\x0e"], [b"\1" + GUID.bytes]) == [b"7"]
    # Keys have others.
    both = Schemas([Schema("AVRO", '"long"'), Store("", {1: Schema("AVRO", '"string"')})])
    assert both.texts("key", [b"\2k"], [b"\0\0\0\0\1"]) == [b'"k"']
    assert schemas.failures == both.failures == 0


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.avsc", "{", "x.avsc is not JSON"),
        ("x.avsc", '{"type": "no"}', "x.avsc is not an Avro schema: "),
        ("x.proto", "message {", "x.proto:1:9"),
        ("x.schema.json", "{", "x.schema.json is not JSON"),
        ("x.schema.json", '{"type": 5}', "x.schema.json is not a JSON Schema: $.type: 5"),
        ("x.avsc", '"long"', "x.avsc is not the schema of these values: 3 bytes follow the value"),
    ],
)
def test_a_single_schema_that_is_wrong_is_one_error(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=re.escape(reason)) as error:
        Schemas([of_file(tmp_path / name)], checks=name.endswith(".json")).texts("value", [None, b"text", b"more"])
    assert str(error.value).count("; ") == 1
    if text == '"long"':
        some = Schemas([of_file(tmp_path / name)])
        assert some.texts("value", [b"\0", b"text"])[0] == b"0"
        assert b"3 bytes follow" in some.texts("value", [b"text"])[0]


def test_the_parts_of_a_file_have_decoded_values() -> None:
    batch = RecordBatch(0, 1, [Record(0, 1, b"\xff", b"\0\0\0\0\1\x04h\x1b"), Record(1, 1, None, b"\0\0\0\0\1")])
    parts = annotate(records.encode([batch]), records_of=store_of("string").shown)
    key, value, bad = (part.value for part in parts if part.field in ("key", "value"))
    assert (key, value) == ('{"hex":"ff"}', '"h\\u001b"')
    assert "the value does not fit the schema" in bad


@pytest.mark.full
def test_values_of_confluents_serializers_are_decoded() -> None:
    registry = pytest.importorskip("confluent_kafka.schema_registry", reason="needs confluent-kafka[schemaregistry]")
    from confluent_kafka.schema_registry import header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    client = registry.SchemaRegistryClient.new_client({"url": "mock://"})
    proto = 'syntax = "proto3"; message A { message B { string s = 1; } }'
    pool = DescriptorPool()
    pool.Add(_compiled(proto, (), "a")[0])
    message = GetMessageClass(pool.FindMessageTypeByName("A.B"))
    order = json.dumps({"type": "record", "name": "O", "fields": [{"name": "s", "type": ["null", "string"]}]})
    shape = json.dumps({"title": "O", "type": "object"})
    for conf in ({}, {"schema.id.serializer": header_schema_id_serializer}):
        for kind, text, value, serializer in (
            ("AVRO", order, {"s": "x"}, AvroSerializer(client, order, conf=dict(conf))),
            ("JSON", shape, {"s": "x"}, JSONSerializer(shape, client, conf=dict(conf))),
            ("PROTOBUF", proto, message(s="x"), ProtobufSerializer(message, client, conf=dict(conf))),
        ):
            headers: list[tuple[str, bytes]] = []
            data = serializer(value, SerializationContext(kind, MessageField.VALUE, headers))
            known = client.get_latest_version(f"{kind}-value")
            schema = Schema(kind, text)
            schemas = Schemas([Store("", {known.schema_id: schema, known.guid: schema})])
            assert bool(headers) == bool(conf)
            assert decoded(schemas, data, *(one for _, one in headers)) == {"s": "x"}
