"""Values of ten fields by a schema, as the generator of corpora writes them, and as fastavro and protobuf do.

All of them write the same bytes. fastavro gets dicts that are ready. protobuf's messages, of its compiled upb, are made
from dicts that are ready, because a user has no other way to fill them.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, Final, NamedTuple

from benchmarks.avro import SCHEMA, START_S
from benchmarks.measure import InProcess
from kfuzz.corpora import schemed
from kfuzz.corpora.quantities import Range
from kfuzz.corpora.shaping import Schemed
from kfuzz.corpora.value_writer import ValueWriter
from kfuzz.corpora.workload import Values

COUNT: Final = 1000
AVRO: Final = "order.avsc"
PROTO: Final = "order.proto"
PROTO_TEXT: Final = """
syntax = "proto3";
message Order {
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  string customer = 2;
  double total = 3;
  int32 count = 4;
  bool paid = 5;
  optional string note = 6;
  State state = 7;
  int64 created = 8;
  repeated string tags = 9;
  string country = 10;
}
"""


class Census(NamedTuple):
    """The values, and their bytes."""

    values: int
    bytes: int


def side(name: str) -> Schemed:
    """A workload's values with one of the schemas."""
    return Values(schema=name, texts=((name, json.dumps(SCHEMA) if name == AVRO else PROTO_TEXT),))


def _writer(name: str) -> ValueWriter:
    return ValueWriter(schemed.program(side(name), Range(-1, -1)))


def values(name: str) -> list[bytes]:
    """The values that all contestants write."""
    return _writer(name).sample(COUNT, START_S * 1000)


def census(name: str) -> Census:
    """The values and bytes of a pass."""
    return Census(COUNT, sum(map(len, values(name))))


def _work(write: Any) -> InProcess:
    def run() -> int:
        write()
        return COUNT

    return InProcess(run, lambda: Census(COUNT, write()))


def generate(name: str) -> InProcess:
    """kfuzz's compiled program."""
    writer = _writer(name)
    return _work(lambda: sum(map(len, writer.sample(COUNT, START_S * 1000))))


def fastavro_writer() -> InProcess:
    """fastavro's ``schemaless_writer``."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    rows: list[Any] = [fastavro.schemaless_reader(BytesIO(data), schema, None) for data in values(AVRO)]

    def write() -> int:
        size = 0
        for row in rows:
            file = BytesIO()
            fastavro.schemaless_writer(file, schema, row)
            size += len(file.getvalue())
        return size

    return _work(write)


def protobuf_writer() -> InProcess:
    """A message of protobuf, and its ``SerializeToString``."""
    from google.protobuf.internal import api_implementation
    from google.protobuf.message_factory import GetMessageClass

    from kfuzz.schemas.proto import chosen

    assert api_implementation.Type() == "upb"
    made = GetMessageClass(chosen(PROTO_TEXT, (), PROTO, None)[0])
    read = (made.FromString(data) for data in values(PROTO))
    rows = [{field.name: getattr(one, field.name) for field, _ in one.ListFields()} for one in read]
    rows = [{name: list(value) if name == "tags" else value for name, value in row.items()} for row in rows]

    def write() -> int:
        return sum(len(made(**row).SerializeToString()) for row in rows)

    return _work(write)
