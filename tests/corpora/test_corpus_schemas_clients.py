"""The deserialisers of confluent-kafka read the values of a workload with schemas, by ids before them or in headers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from made_corpora import batches_of

from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import Workload, load
from kfuzz.schemas import proto

WORKLOAD = Path(__file__).parents[2] / "spark_jobs" / "workloads" / "purchases.toml"
GUID = "9b0fbec8-1da9-4754-8d67-935659ba34e9"


def records_of(made: Workload) -> list[Any]:
    found = [record for segment in Plan(made) for batch in batches_of(segment, made) for record in batch.records]
    return [record for record in found if record.value is not None]


@pytest.mark.full
@pytest.mark.parametrize("framing", ["confluent", "confluent-header"])
@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF", "JSON"])
def test_the_deserialisers_of_confluent_read_every_value(kind: str, framing: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("authlib", reason="confluent-kafka[schemaregistry] is not installed")
        from confluent_kafka.schema_registry import Schema
        from confluent_kafka.schema_registry.avro import AvroDeserializer
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
        from confluent_kafka.serialization import MessageField, SerializationContext

    [topic] = [one for one in load(WORKLOAD).topics if one.values.schema_kind == kind]
    # Header ids of confluent-kafka are GUIDs.
    values = replace(topic.values, framing=framing, schema_id=GUID if framing == "confluent-header" else 42)
    made = Workload((replace(topic, values=values, partitions=1),), size=256 << 10, segment_bytes=128 << 10)
    text = values.texts[-1][1]
    given = Schema(text, kind)

    class Registry:
        def get_associations_by_resource_name(self, *_: Any, **__: Any) -> list[Any]:
            return []

        def get_schema(self, schema_id: int, *_: Any, **__: Any) -> Any:
            assert schema_id == 42
            return given

        def get_schema_by_guid(self, guid: str, *_: Any, **__: Any) -> Any:
            assert guid == GUID
            return given

    deserialiser: Any
    if kind == "AVRO":
        deserialiser = AvroDeserializer(Registry())
    elif kind == "JSON":
        deserialiser = JSONDeserializer(text, schema_registry_client=Registry())
    else:
        message = GetMessageClass(proto.chosen(text, (), "x", None)[0])
        deserialiser = ProtobufDeserializer(message, {"use.deprecated.format": False})
    records = records_of(made)
    assert len(records) > 500
    for record in records:
        headers = [(name.decode(), value) for name, value in record.headers]
        found = deserialiser(record.value, SerializationContext(topic.name, MessageField.VALUE, headers))
        assert found
