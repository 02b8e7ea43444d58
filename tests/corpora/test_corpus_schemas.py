"""Values and keys with schemas: the kept libraries read them, and wrong schemas are refused in one sentence."""

from __future__ import annotations

import io
import json
import re
import tomllib
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import pytest
from cli_driver import kfuzz
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from made_corpora import batches_of
from referencing import Registry
from referencing.jsonschema import DRAFT7

from kfuzz.corpora import programs, schemed, shaping
from kfuzz.corpora.generation import generate
from kfuzz.corpora.json_schema_program import Compiler
from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.quantities import Range
from kfuzz.corpora.shaping import FRAMINGS, Schemed
from kfuzz.corpora.statistics import check_statistics
from kfuzz.corpora.value_writer import ValueWriter
from kfuzz.corpora.verification import Corpus, verify
from kfuzz.corpora.workload import Workload, load, parse, render
from kfuzz.errors import UsageError
from kfuzz.schemas import checked, proto
from spark_jobs import register_schemas

SCHEMAS = Path(__file__).with_name("schemas")
COUNTS = [1000, pytest.param(10_000, marks=pytest.mark.full)]
PARTS = tomllib.loads(Path(__file__).with_name("schemas.toml").read_text())
AVRO, PROTO, JSON, KEYS = (str(PARTS[name]) for name in ("avro", "proto", "json", "keys"))
DRAFT4 = "http://json-schema.org/draft-04/schema#"
NOW_MS = 1_700_000_000_123


def workload(values: str, *, keys: str = "", size: str = "1MiB") -> Workload:
    topic = f'size = "{size}"\nsegment_bytes = "512KiB"\n[[topics]]\nname = "orders"\n'
    return parse(f"{topic}[topics.keys]\n{keys}\n[topics.values]\n{values}", "w.toml", SCHEMAS)


def written(made: Workload, count: int) -> list[bytes]:
    """Values of some records, without what is before them."""
    topic = made.topics[0]
    program = schemed.program(topic.values, topic.keys.in_fields)
    found = ValueWriter(program).sample(count, NOW_MS, 10)
    assert max(map(len, found)) <= program.bytes_max
    assert {one[: len(topic.values.prefix)] for one in found} == {topic.values.prefix}
    return [one[len(topic.values.prefix) :] for one in found]


@pytest.mark.parametrize("count", COUNTS)
def test_fastavro_reads_every_record_of_a_hard_schema(count: int) -> None:
    known: dict[str, Any] = {}
    for name in ("address.avsc", "hard.avsc"):
        parsed = fastavro.parse_schema(json.loads((SCHEMAS / name).read_text()), named_schemas=known)
    rows: list[Any] = []
    for data in written(workload(AVRO), count):
        file = io.BytesIO(data)
        rows.append(fastavro.schemaless_reader(file, parsed, None))
        assert file.read() == b""
        # Also in the one form that its writer has.
        if len(rows) % 100 == 0:
            again = io.BytesIO()
            fastavro.schemaless_writer(again, parsed, rows[-1])
            assert fastavro.schemaless_reader(io.BytesIO(again.getvalue()), parsed, None) == rows[-1]
    assert [row["id"] for row in rows] == list(range(7, 7 + count))
    assert min(row["amount"] for row in rows) >= 1
    assert 480 < max(row["amount"] for row in rows) <= 500
    assert Counter(row["state"] for row in rows)["NEW"] == pytest.approx(count * 5 / 6, rel=0.1)
    assert sum("number" in row["payment"] for row in rows) == pytest.approx(count * 3 / 4, rel=0.1)
    assert sum(row["note"] is None for row in rows) == pytest.approx(count / 2, rel=0.1)
    assert sum(row["ok"] for row in rows) == pytest.approx(count * 0.9, rel=0.1)
    lines = [line for row in rows for line in row["lines"]]
    assert {len(row["lines"]) for row in rows} == {1, 2, 3, 4, 5}
    assert {line["n"] for line in lines} == set(range(1, 10))
    assert {len(line["sku"]) for line in lines} == {8}
    assert all(row["when"].timestamp() == NOW_MS / 1000 for row in rows)
    # It contains itself, and ends.
    assert {depth(row, "parent") for row in rows} == {1, 2, 3, 4}
    assert max(depth(row["tree"], "kids") for row in rows) == 4


def depth(value: Any, name: str) -> int:
    inner = value[name]
    return 1 + max((depth(one, name) for one in (inner if isinstance(inner, list) else [inner]) if one), default=0)


def test_the_mean_size_that_the_plan_uses_is_that_of_the_records() -> None:
    for values in (AVRO, PROTO, JSON):
        made = workload(values, size="2MiB")
        found = [batch for segment in Plan(made) for batch in batches_of(segment, made)]
        records = [record for batch in found for record in batch.records]
        assert 2 * (1 << 20) / len(records) == pytest.approx(offset_bytes_mean(made.topics[0]), rel=0.1)


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("given", [AVRO, PROTO, JSON], ids=["avro", "protobuf", "json"])
def test_a_corpus_is_right_and_cat_shows_its_values_as_json(given: str, framing: str, tmp_path: Path) -> None:
    values = given.replace("schema_id = 42", f'framing = "{framing}"' + "\nschema_id = 42" * (framing != "none"))
    if framing == "none":
        # `cat` finds no id, and the only schema refers to no other.
        values = (
            f'schema = "address.{dict(zip((AVRO, PROTO, JSON), ("avsc", "proto", "schema.json"), strict=True))[given]}"'
        )
    made = workload(values)
    generate(made, tmp_path / "out")
    assert verify(tmp_path / "out") == []
    corpus = Corpus.open(tmp_path / "out")
    checks, problems = check_statistics(corpus)
    assert problems == []
    assert {"values.schema"} <= {check.name for check in checks}
    line = json.loads(kfuzz("cat", tmp_path / "out" / "orders-0", "--records", "1").stdout)
    assert line["value"]["city" if framing == "none" else "state"]
    header = ["__value_schema_id", "\0\0\0\0*" + "\2\2" * (given is PROTO)]
    if framing == "apicurio-header":
        header = ["apicurio.value.globalId", "\0\0\0\0\0\0\0*"]
    assert line["headers"] == [header] * framing.endswith("-header")
    # Values of another schema, or with another id, are off the workload.
    other = replace(made.topics[0].values, texts=(("x.avsc", '"long"'),), schema="x.avsc", references=(), fields=())
    topic = replace(made.topics[0], values=other)
    _, problems = check_statistics(replace(corpus, workload=replace(made, topics=(topic,))))
    assert "values.schema" in " ".join(map(str, problems))


def test_cat_reads_an_id_of_eight_bytes_that_begins_like_one_of_four(tmp_path: Path) -> None:
    """The workload beside the data has the ids."""
    numbers = {"short": ("confluent", 1), "long": ("apicurio", (1 << 32) + 5)}
    topic = '[[topics]]\nname = "{}"\n[topics.values]\nschema = "x.avsc"\n{}framing = "{}"\nschema_id = {}\n'
    texts = 'texts = { "x.avsc" = \'{"type": "record", "name": "N", "fields": []}\' }\n'
    topics = "".join(topic.format(name, texts, *one) for name, one in numbers.items())
    generate(parse(f'size = "64KiB"\nsegment_bytes = "64KiB"\n{topics}', "w.toml"), tmp_path / "out")
    schema = tmp_path / "x.avsc"
    schema.write_text('{"type": "record", "name": "N", "fields": []}')
    for place, more in ((".", ()), ("long-0", ()), ("long-0", ("--schema", schema))):
        lines = kfuzz("cat", tmp_path / "out" / place, "--columns", "value", *more).stdout.splitlines()
        assert {json.dumps(json.loads(line)["value"]) for line in lines} == {"{}"}


def test_cat_decodes_the_topics_of_a_corpus_as_its_workload_says(tmp_path: Path) -> None:
    """Random bytes, some of which begin like an id, and values without one are beside values that have one."""
    schema = '{"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}'
    plain = f"""schema = "x.avsc", texts = {{ "x.avsc" = '{schema}' }}"""
    parts = {"framed": f'{plain}, framing = "confluent", schema_id = 7', "plain": plain, "random": "size = 50"}
    topics = "".join(f'[[topics]]\nname = "{name}"\nvalues = {{ {text} }}\n' for name, text in parts.items())
    generate(parse(f'size = "192KiB"\nsegment_bytes = "64KiB"\n{topics}', "w.toml"), tmp_path)
    left = "kfuzz: the values of plain have a schema but no id, and stay as they are; choose one topic by --topics\n"
    for place, chosen, decoded, said in (
        (".", "*", {"framed"}, left),
        (".", "plain", {"plain"}, ""),
        ("plain-0", "*", {"plain"}, ""),
        ("random-0", "*", set(), ""),
    ):
        shown = kfuzz("cat", tmp_path / place, "--topics", chosen, "--columns", "topic,value", code=0)
        assert shown.stderr == said
        found = [json.loads(line) for line in shown.stdout.splitlines()]
        objects = {one["topic"] for one in found if isinstance(one["value"], dict) and "hex" not in one["value"]}
        assert objects == decoded


PART = {
    "avsc": (
        '{"type":"record","name":"R","fields":[{"name":"part","type":"P"}]}',
        '{"type":"fixed","name":"P","size":2}',
    ),
    "proto": ('import "in/part.proto"; message N {} message R { P part = 1; }', "message P { int32 n = 1; }"),
    "schema.json": ('{"required": ["part"], "properties": {"part": {"$ref": "in/part.schema.json"}}}', '{"enum": [7]}'),
}


@pytest.mark.parametrize("suffix", PART)
def test_cat_reads_schemas_that_need_others(suffix: str, tmp_path: Path) -> None:
    """From the workload beside the data, whose topics may have other files of the same names, and from files."""
    main, part = PART[suffix]
    (tmp_path / "in").mkdir()
    names = [f"main.{suffix}", f"in/part.{suffix}"]
    message = ', message = "R"' * (suffix == "proto")
    for name, text in zip(names, (main, part), strict=True):
        (tmp_path / name).write_text('syntax = "proto3"; ' * bool(message) + text)
    values = f'values = {{ schema = "{names[0]}", references = ["{names[1]}"]{message} }}'
    generate(parse(f'size = "64KiB"\n[[topics]]\nname = "t"\n{values}', "w.toml", tmp_path), tmp_path / "out")
    given = ("--schema", tmp_path / names[0], "--schema", tmp_path / names[1], "--validate")
    # A file does not say which message of it the values are; it is the first one, which has no fields.
    for more, wanted in (((), {"part"}), (given, set() if message else {"part"})):
        for line in kfuzz("cat", tmp_path / "out", "-n", "9", "--columns", "value", *more, code=0).stdout.splitlines():
            assert set(json.loads(line)["value"]) == wanted, line


def test_a_file_after_the_schema_that_it_cannot_need_is_refused(tmp_path: Path) -> None:
    for name, text in (("x.avsc", '"long"'), ("y.proto", ""), ("z.proto", 'import "y.proto"; message A {}')):
        (tmp_path / name).write_text(text)
    (tmp_path / "t-0").mkdir()
    for names, sentence in (
        (("x.avsc", "y.proto"), "x.avsc cannot refer to {}/y.proto, which is of another kind; name one of them"),
        (
            ("z.proto",),
            "imports y.proto, which is not among the schemas that it refers to; correct it, or name another",
        ),
    ):
        given = [word for name in names for word in ("--schema", tmp_path / name)]
        assert sentence.format(tmp_path) in kfuzz("cat", tmp_path, *given, code=2).stderr


def test_the_schema_is_part_of_the_workload_and_travels_with_it() -> None:
    made = workload(AVRO)
    # Without a folder, nothing can be read.
    assert parse(render(made), "again") == made
    values = made.topics[0].values
    texts = (values.texts[0], ("hard.avsc", values.texts[1][1].replace("PAID", "DONE")))
    changed = replace(made.topics[0], values=replace(values, texts=texts))
    assert replace(made, topics=(changed,)).fingerprint != made.fingerprint


@pytest.mark.parametrize("count", COUNTS)
def test_protobuf_reads_every_record_of_a_hard_schema(count: int) -> None:
    made = workload(PROTO)
    values = made.topics[0].values
    descriptor, indexes = proto.chosen(values.texts[-1][1], values.texts[:-1], "hard.proto", values.message)
    kind = GetMessageClass(descriptor)
    rows, same = [], 0
    for data in written(made, count):
        assert data.startswith(indexes)
        row: Any = kind.FromString(data.removeprefix(indexes))
        assert kind.FromString(row.SerializeToString()) == row
        if not (row.by_name or row.by_number or row.extra.fields or row.WhichOneof("payment")):
            same += 1
            assert row.SerializeToString() == data.removeprefix(indexes)
        rows.append(row)
    assert indexes == b"\2\2"
    assert same > count / 2000
    assert [row.id for row in rows] == list(range(count))
    assert {row.change for row in rows} == set(range(-50, 51))
    assert {row.state for row in rows} == {-1, 0, 1}
    assert {row.WhichOneof("payment") for row in rows} == {None, "card", "voucher"}
    assert {line.n for row in rows for line in row.lines} == {-1, 0, 1, 2}
    assert {(row.at.ToMilliseconds(), row.when_ms) for row in rows if row.HasField("at")} == {(NOW_MS, NOW_MS)}
    # Bytes that protobuf cannot read are no message.
    with pytest.raises(DecodeError):
        kind.FromString(data[:-1] + b"\xff")


def test_files_that_confluents_registry_knows_itself_are_imported(tmp_path: Path) -> None:
    (tmp_path / "x.proto").write_text(
        """
        syntax = "proto3";
        import "confluent/meta.proto";
        import "confluent/type/decimal.proto";
        message Order {
          option (confluent.message_meta) = { doc: "an order", params: [{ key: "a", value: "b" }] };
          confluent.type.Decimal total = 1 [(confluent.field_meta).tags = "PII"];
          map<string, int32> counts = 2;
        }
        """
    )
    text = '[[topics]]\nname = "t"\n[topics.values]\nschema = "x.proto"\nfields."total.scale" = { min = 2, max = 2 }'
    values = parse(text, "w.toml", tmp_path).topics[0].values
    made = schemed.program(values, Range(-1, -1))
    rows = [json.loads(schemed.decoder_of(values)(one, 0, b"\0")) for one in ValueWriter(made).sample(100, NOW_MS)]
    assert {row["total"]["scale"] for row in rows if "total" in row} == {2}


@pytest.mark.parametrize("count", COUNTS)
def test_jsonschema_takes_every_record_of_a_hard_schema(count: int) -> None:
    validator = jsonschema.Draft7Validator(
        json.loads((SCHEMAS / "hard.schema.json").read_text()),
        registry=Registry().with_resource(
            "address.schema.json", DRAFT7.create_resource(json.loads((SCHEMAS / "address.schema.json").read_text()))
        ),
    )
    rows = [json.loads(data) for data in written(workload(JSON), count)]
    for row in rows:
        validator.validate(row)
    assert [row["id"] for row in rows] == list(range(count))
    assert {row["state"] for row in rows} == {"NEW", 7}
    assert {line.get("n") for row in rows for line in row["lines"]} == {None, 2, 3, 4}
    assert sum("card" in row.get("payment", ()) for row in rows) == pytest.approx(count * 0.9 * 3 / 4, rel=0.1)
    assert {depth(row["tree"], "kids") for row in rows if "tree" in row} == {1, 2, 3, 4}
    # Everything that is not required is absent in a tenth of the records.
    names = Counter(name for row in rows for name in row)
    assert names["code"] == pytest.approx(count * 0.9, rel=0.05)
    assert not validator.is_valid(rows[0] | {"id": "x"})


@pytest.mark.parametrize(
    "schema",
    [
        # Nothing is required, so any name may be the first one.
        {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#"}, "c": {"type": ["null", "string"]}}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{}, {"enum": ["{"]}]},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.05},
        {"type": "string", "minLength": 100, "maxLength": 100},
        {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}},
        {"type": "integer", "maximum": -1000},
        {"type": "number", "multipleOf": 5},
        {"type": "number", "multipleOf": 0.25, "exclusiveMinimum": -1, "maximum": 0},
        {"type": "integer", "multipleOf": 1.5},
        {"$schema": DRAFT4, "minimum": 0, "maximum": 0.05, "exclusiveMinimum": True, "exclusiveMaximum": True},
        {"$schema": DRAFT4, "type": "integer", "maximum": -7, "exclusiveMaximum": True},
    ],
)  # fmt: skip
def test_jsonschema_takes_the_values_of_small_schemas(schema: Any, tmp_path: Path) -> None:
    (tmp_path / "x.schema.json").write_text(json.dumps(schema))
    made = parse('[[topics]]\nname = "t"\n[topics.values]\nschema = "x.schema.json"', "w.toml", tmp_path)
    found = written(made, 1000)
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft7Validator)(schema)
    assert all(validator.is_valid(json.loads(data)) for data in found)
    assert len(set(found)) > 1


@pytest.mark.parametrize("size", [0, 16])
@pytest.mark.parametrize(
    ("precision", "scale", "field", "low", "high"),
    [
        (38, 18, "", 0, 100),
        (38, 10, "", 0, 100),
        (18, 8, "", 0, 100),
        (2, 2, "", 0, 1),
        (4, 2, "max = -99", -100, -99),
        (38, 18, "min = -5, max = 5", -5, 5),
        (38, 18, "max = -10_000", -10_100, -10_000),
        (38, 0, "min = -9_000_000_000_000_000_000, max = 9_000_000_000_000_000_000", -9e18, 9e18),
        (38, 18, "min = 20, max = 20", 20, 20),
    ],
)
def test_a_decimal_has_all_the_numbers_between_its_ends(
    precision: int, scale: int, field: str, low: float, high: float, size: int, tmp_path: Path
) -> None:
    kind = {"type": "fixed", "name": "F", "size": size} if size else {"type": "bytes"}
    kind |= {"logicalType": "decimal", "precision": precision, "scale": scale}
    (tmp_path / "x.avsc").write_text(
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})
    )
    more = f"fields.a = {{ {field} }}"
    made = parse(f'[[topics]]\nname = "t"\n[topics.values]\nschema = "x.avsc"\n{more}', "w.toml", tmp_path)
    decode = schemed.decoder_of(made.topics[0].values)
    found = [Decimal(json.loads(decode(data, 0))["a"]) for data in written(made, 1000)]
    assert low <= min(found) <= low + (high - low) / 100
    assert high - (high - low) / 100 <= max(found) <= high
    assert len(set(found)) >= (high > low) * 90
    # The last digits are random too.
    assert len({one.as_tuple().digits[-1] for one in found}) == (10 if high > low else 1)


@pytest.mark.parametrize("case", PARTS["weighed"])
def test_weights_of_a_union_choose_its_branch_which_keeps_its_own_values(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / case["file"]).write_text(case["schema"])
    text = f'[[topics]]\nname = "t"\n[topics.values]\nschema = "{case["file"]}"\nfields.a = {{ {case["field"]} }}'
    made = parse(text, "w.toml", tmp_path)
    decode = schemed.decoder_of(made.topics[0].values)
    found = [json.loads(decode(data, 0))["a"] for data in written(made, 1000)]
    texts = [one for one in found if isinstance(one, str)]
    assert len(texts) == pytest.approx(750, rel=0.1)
    assert all(re.fullmatch(case["texts"], one) for one in texts)
    assert len(set(texts)) >= case["least"]
    # Of a type that contains its union again, the weights are the same further in.
    inner = [one["a"] for one in found if isinstance(one, dict)]
    assert not inner or sum(isinstance(one, str) for one in inner) == pytest.approx(len(inner) * 3 / 4, rel=0.15)


def test_the_empty_path_is_the_value_itself(tmp_path: Path) -> None:
    union = [{"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]} for name in ("Made", "Gone")]
    for name, schema in (("union", union), ("list", {"type": "array", "items": "long"})):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    drawn = {"union": "values = { Made = 9, Gone = 1 }", "list": "count = 3"}
    text = "".join(
        f'[[topics]]\nname = "{name}"\n[topics.values]\nschema = "{name}.avsc"\nfields."" = {{ {one} }}\n'
        for name, one in drawn.items()
    )
    workload = parse(text, "w.toml", tmp_path)
    first, second = (replace(workload, topics=(topic,)) for topic in workload.topics)
    assert sum(data[0] for data in written(first, 1000)) // 2 == pytest.approx(100, rel=0.4)
    decode = schemed.decoder_of(workload.topics[1].values)
    assert {len(json.loads(decode(data, 0))) for data in written(second, 100)} == {3}


def values_of(schema: Any, folder: Path, field: str = "", root: Any = None) -> list[Any]:
    """Values of a JSON Schema, which kfuzz's own check takes."""
    whole = {"required": ["a"], "properties": {"a": schema}, **(root or {})}
    (folder / "x.schema.json").write_text(json.dumps(whole))
    text = f'[[topics]]\nname = "t"\n[topics.values]\nschema = "x.schema.json"\n{field}'
    made = parse(text, "w.toml", folder)
    decode = schemed.decoder_of(made.topics[0].values)
    return [json.loads(decode(data, 0))["a"] for data in written(made, 1000)]


@pytest.mark.parametrize("step", ["0.01", "0.05", "0.1", "0.25", "0.5", "0.001", "2.5", "1"])
def test_numbers_are_multiples_as_they_are_written(step: str, tmp_path: Path) -> None:
    found = values_of({"type": "number", "multipleOf": float(step), "minimum": 1}, tmp_path)
    assert {Decimal(repr(one)) % Decimal(step) for one in found} == {0}
    assert len(set(found)) > 90
    check = checked.checker(json.dumps({"multipleOf": float(step)}), [], "x")
    with pytest.raises(ValueError, match="is not a multiple of"):
        check(str(Decimal("33.08") + Decimal(step) / 2).encode())


def test_min_and_max_choose_among_multiples(tmp_path: Path) -> None:
    schema = {"type": "integer", "multipleOf": 5}
    assert set(values_of(schema, tmp_path, "fields.a = { min = -8, max = 8 }")) == {-5, 0, 5}
    found = values_of(schema, tmp_path, "fields.a = { min = 7, max = 1_000_000 }")
    assert (min(found) < 5000, max(found) > 995_000, {one % 5 for one in found}) == (True, True, {0})


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("hostname", r"[a-p]{4,16}\.example\.com"),
        ("duration", r"P\d+DT\d+H\d+M\d+S"),
        ("json-pointer", "/[a-p]{4,16}"),
        ("ipv4", ""),
        ("ipv6", ""),
    ],
)
def test_texts_have_their_format(kind: str, pattern: str, tmp_path: Path) -> None:
    found = values_of({"type": "string", "format": kind}, tmp_path)
    assert len(set(found)) > 900
    for one in found:
        if pattern:
            assert re.fullmatch(pattern, one)
        else:
            assert f"ipv{ip_address(one).version}" == kind


def test_values_of_an_enum_and_branches_that_look_alike_are_all_chosen(tmp_path: Path) -> None:
    schema: Any = {"enum": [1, "1", True, "true"]}
    assert {json.dumps(one) for one in values_of(schema, tmp_path)} == {"1", '"1"', "true", '"true"'}
    assert set(values_of(schema, tmp_path, "fields.a = { values = ['\"1\"'] }")) == {"1"}
    schema = {"oneOf": [{"title": "x", "const": 1}, {"title": "x", "const": 2}, {"title": "y", "const": 3}]}
    assert set(values_of(schema, tmp_path)) == {1, 2, 3}
    assert set(values_of(schema, tmp_path, "fields.a = { values = ['0', 'y'] }")) == {1, 3}


def test_a_counter_that_must_not_be_0_begins_again_at_its_start(tmp_path: Path) -> None:
    schema = {"type": "integer", "minimum": 1, "maximum": 100}
    found = values_of(schema, tmp_path, "fields.a = { type = 'counter', start = 3, step = 7 }")
    assert found[:15] == [*range(3, 101, 7), 3]
    assert values_of({"type": "integer", "maximum": 9}, tmp_path, "fields.a.type = 'counter'")[:9] == [*range(8), 0]


def test_a_json_schema_that_asks_for_more_than_kfuzz_knows_is_refused_with_a_value(tmp_path: Path) -> None:
    (tmp_path / "x.schema.json").write_text('{"properties": {"a": {"type": "string", "pattern": "^[A-Z]+$"}}}')
    text = '[[topics]]\nname = "t"\n[topics.values]\nschema = "x.schema.json"\n'
    with pytest.raises(UsageError, match=r"values\.schema refuses a value .*does not match.*say more in fields"):
        parse(text, "w.toml", tmp_path)
    assert parse(text + 'fields.a = { values = ["ABC"] }', "w.toml", tmp_path)


@pytest.mark.parametrize("sentence", PARTS["refused"])
def test_a_schema_that_cannot_be_generated_is_one_sentence(sentence: str, tmp_path: Path) -> None:
    refused = PARTS["refused"][sentence]
    name = refused.get("file", "x.avsc")
    kind = '{"type":"array","items":' * refused.get("arrays", 0) + refused.get("a", "") + "}" * refused.get("arrays", 0)
    record = '{"type":"record","name":"R","fields":[{"name":"a","type":%s}]}'
    (tmp_path / name).write_text(refused.get("schema") or record % kind)
    text = f'[[topics]]\nname = "t"\n[topics.values]\nschema = "{name}"\n{refused.get("more", "")}\n'
    (tmp_path / "w.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "w.toml")
    found = str(caught.value)
    assert found.startswith(f"{tmp_path}/w.toml: topics[0].values")
    assert sentence in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("last", "sentence", "attempts"),
    [
        ({"type": "string"}, "1000 places for values", 1),
        # Each of them is tried and left out again, because the last one has no end.
        ({"required": ["a"], "properties": {"a": {"$ref": "#/definitions/39"}}}, "1000 places for types", 3),
    ],
)
def test_types_that_name_the_next_one_twice_are_refused_soon(
    last: Any, sentence: str, attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {str(at): {"anyOf": [{"$ref": f"#/definitions/{at + 1}"}] * 2} for at in range(39)} | {"39": last}
    compile_, found = Compiler.compile, []

    def counted(made: Compiler, side: Schemed) -> None:
        found.append(side)
        compile_(made, side)

    monkeypatch.setattr(programs, "STEPS_MAX", 1000)
    monkeypatch.setattr(shaping, "TYPES_MAX", 1000)
    monkeypatch.setattr(Compiler, "compile", counted)
    with pytest.raises(UsageError, match=f"has more than {sentence}; name a smaller schema"):
        values_of({"$ref": "#/definitions/0"}, tmp_path, root={"definitions": known})
    assert len(found) == attempts


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ('"nix"', "schema: y.avsc names the type nix, which neither it nor a schema before it has; correct it"),
        # Each of the two names the other.
        ('"R"', "schema: y.avsc names the type R, which neither it nor a schema before it has; correct it"),
        ('["int","int"]', 'schema refers to y.avsc, which has "int" twice in a union at a; remove one'),
    ],
)
def test_a_fault_of_a_reference_names_its_file(kind: str, sentence: str, tmp_path: Path) -> None:
    record = '{"type":"record","name":"%s","fields":[{"name":"a","type":%s}]}'
    (tmp_path / "x.avsc").write_text(record % ("R", '"S"'))
    (tmp_path / "y.avsc").write_text(record % ("S", kind))
    text = '[[topics]]\nname = "t"\n[topics.values]\nschema = "x.avsc"\nreferences = ["y.avsc"]'
    with pytest.raises(UsageError, match=re.escape(sentence)):
        parse(text, "w.toml", tmp_path)


@pytest.mark.parametrize("kind", ["uniform", "zipf", "sequential"])
def test_a_key_with_a_schema_follows_from_its_number(kind: str, tmp_path: Path) -> None:
    more = "[topics.headers]\nshare = 0.5\n[topics.legacy]\n"
    keys = KEYS.replace("KIND", kind)
    if kind == "zipf":
        # The partitioner hashes the bytes of keys, which the statistics check.
        keys = 'partitioner = "murmur2"\n' + keys
    made = workload(AVRO.replace('type = "key"', "words = 1") + more, keys=keys)
    if kind == "zipf":
        made = replace(made, topics=(replace(made.topics[0], partitions=3),))
    generate(made, tmp_path / "out")
    _, problems = check_statistics(Corpus.open(tmp_path / "out"))
    assert problems == []
    tenants: dict[int, str] = {}
    schema = json.loads(made.topics[0].keys.texts[0][1])
    for segment in Plan(made):
        for batch in batches_of(segment, made):
            for record in batch.records:
                names = [name for name, _ in record.headers]
                assert names.count(b"__key_schema_id") == (record.key is not None)
                if record.key is not None:
                    key: Any = fastavro.schemaless_reader(io.BytesIO(record.key), schema, None)
                    assert tenants.setdefault(key["id"], key["tenant"]) == key["tenant"]
                    if kind == "sequential":
                        assert key["id"] == record.offset % 500
    assert max(tenants) < 500
    assert set(tenants.values()) == {"a", "b"}


def test_a_key_with_a_schema_is_no_field_of_json() -> None:
    with pytest.raises(UsageError, match="but keys with a schema are bytes; remove that field"):
        workload('kind = "json"\nfields = [{ name = "k", type = "key" }]', keys=KEYS.replace("KIND", "uniform"))


def test_the_script_registers_each_schema_after_those_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = AVRO.replace('type = "key"', "words = 1")
    generate(workload(values, keys=KEYS.replace("KIND", "uniform"), size="128KiB"), tmp_path / "out")
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(register_schemas, "post", lambda url, body: sent.append((url, body)))
    assert register_schemas.register("http://here", str(tmp_path / "out")) == ["orders-key", "orders-value"]
    assert [url.removeprefix("http://here/subjects/") for url, _ in sent] == [
        "orders-key/versions", "address.avsc/versions", "orders-value/versions",
    ]  # fmt: skip
    assert [body.get("id") for _, body in sent] == [41, None, 42]
    assert sent[2][1]["schema"] == (SCHEMAS / "hard.avsc").read_text()
    assert sent[2][1]["references"] == [{"name": "address.avsc", "subject": "address.avsc", "version": 1}]
