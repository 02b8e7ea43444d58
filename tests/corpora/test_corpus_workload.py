"""Workload files: what is read, and that every mistake gets one sentence with the key and the remedy."""

from __future__ import annotations

import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_driver import kfuzz
from hypothesis import given
from hypothesis import strategies as st

from kfuzz.corpora import workload as workload_module
from kfuzz.corpora.manifest import Row
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import Range, Topic, Workload, load, parse, read, render, schema
from kfuzz.errors import UsageError
from kfuzz.units import SIZES, parse_size, show_size

WORKLOADS = sorted((Path(__file__).parents[2] / "spark_jobs" / "workloads").glob("*.toml"))
TOPIC = '[[topics]]\nname = "t"\n'
KEYS = TOPIC + "partitions = 7\n[topics.keys]\n"
HASHED = KEYS + 'partitioner = "murmur2"\n'
CRC32 = KEYS + 'partitioner = "crc32"\n'
JSON = TOPIC + '[topics.values]\nkind = "json"\n'

# (what is in the file, words that the sentence must hold: the key and the remedy)
MISTAKES = {
    "typo in a key": ("sise = 1\n" + TOPIC, ["sise", "did you mean size?"]),
    "typo in a topic's key": (TOPIC + "partitons = 2\n", ["topics[0].partitons", "did you mean partitions?"]),
    "typo in a table's key": (TOPIC + "[topics.keys]\ncardinalty = 2\n", ["topics[0].keys.cardinalty", "cardinality"]),
    "unlike any key": (TOPIC + "zzz = 2\n", ["topics[0].zzz", "the keys here are name, partitions"]),
    "not TOML": ("size = = 1\n", ["is not TOML", "line 1", "correct it"]),
    "no topic": ("size = 1\n", ["topics", "give at least one [[topics]]"]),
    "topics not a list": ("topics = 3\n", ["topics", "give at least one [[topics]]"]),
    "no name": ("[[topics]]\npartitions = 1\n", ["topics[0] lacks name", "give 1 to 249"]),
    "bad name": ('[[topics]]\nname = "a/b"\n', ['topics[0].name is "a/b"', "a-z"]),
    "name that is a directory": ('[[topics]]\nname = ".."\n', ["topics[0].name", "not . or .."]),
    "name twice": (TOPIC + TOPIC, ["'t' twice", "its own"]),
    "size without a number": ('size = "big"\n' + TOPIC, ['size is "big"', '"256MiB"']),
    "size of an unknown unit": ('size = "3 bushels"\n' + TOPIC, ['size is "3 bushels"', '"256MiB"']),
    "size zero": ("size = 0\n" + TOPIC, ["size is 0", "from 1 B to 1024 PiB"]),
    "size negative": ("size = -5\n" + TOPIC, ["size is -5", "from 1 B"]),
    "size is a flag": ("size = true\n" + TOPIC, ["size is true", "give a size"]),
    "size beyond reason": ('size = "5000PiB"\n' + TOPIC, ['size is "5000PiB"', "1024 PiB"]),
    "segment too small": ("segment_bytes = 10\n" + TOPIC, ["segment_bytes is 10", "64 KiB to 1 GiB"]),
    "segment too large": ('segment_bytes = "2GiB"\n' + TOPIC, ["segment_bytes", "64 KiB to 1 GiB"]),
    "seed is text": ('seed = "x"\n' + TOPIC, ['seed is "x"', "whole number from 0"]),
    "partitions zero": (TOPIC + "partitions = 0\n", ["topics[0].partitions is 0", "from 1 to 100000"]),
    "share above one": (TOPIC + "[topics.headers]\nshare = 1.5\n", ["topics[0].headers.share is 1.5", "0 to 1"]),
    "share not a number": (TOPIC + "[topics.keys]\nnull_share = nan\n", ["keys.null_share is NaN", "0 to 1"]),
    "share is text": (TOPIC + '[topics.values]\nnull_share = "half"\n', ['values.null_share is "half"', "0 to 1"]),
    "shares above one together": (
        TOPIC + "[topics.producers]\nshare = 0.7\n[topics.transactions]\nshare = 0.7\n",
        ["producers.share", "1.4", "at most 1"],
    ),
    "kind of keys": (TOPIC + '[topics.keys]\nkind = "hot"\n', ['keys.kind is "hot"', "uniform, zipf or sequential"]),
    "exponent of too many digits": (
        TOPIC + '[topics.keys]\nkind = "zipf"\nexponent = 1.0625\n', ["keys.exponent is 1.0625", "at most 3 decimals"],
    ),
    "exponent too high": (
        TOPIC + '[topics.keys]\nkind = "zipf"\nexponent = 5\n', ["keys.exponent is 5", "from 0 to 4"],
    ),
    "exponent without zipf": (
        TOPIC + "[topics.keys]\nexponent = 1.5\n",
        ["keys.exponent is 1.5", 'keys.kind is "uniform"', 'choose the kind "zipf"'],
    ),
    "size of keys with a type": (KEYS + 'type = "int"\nsize = 5\n', ["topics[0].keys.size", 'type "int"', "remove it"]),
    "too many keys of int": (KEYS + 'type = "int"\ncardinality = 2147483649\n', ["keys.cardinality", 'type "long"']),
    "too many keys for a table": (HASHED + "cardinality = 10_000_001\n", ["keys.partitioner", "at most 10000000"]),
    "keys too long for a table": (HASHED + "size = 2000\n", ["keys.partitioner", "together 1 GiB", "lower card"]),
    "partition without a key": (HASHED + "cardinality = 9\n", ["topics[0] (t)", "partition 0 of 7", "raise keys.card"]),
    "null keys in one partition": (CRC32 + "null_share = 0.1\n", ["keys.partitioner", 'choose "consistent-random"']),
    "empty keys in one partition": (CRC32 + "size = { min = 0, max = 9 }\n", ["keys.partitioner", "size.min to 1"]),
    "sequential keys too short": (
        TOPIC + '[topics.keys]\nkind = "sequential"\nsize = 5\n', ["keys.size is at least 5", "6 digits", "raise size"],
    ),
    "JSON without fields": (JSON, ["values.fields is empty", "list fields"]),
    "JSON with a size": (
        JSON + 'size = 50\nfields = [{name = "a", type = "uuid"}]\n',
        ["values.size does not apply to JSON", "remove it"],
    ),
    "fields without JSON": (
        TOPIC + '[topics.values]\nfields = [{name = "a", type = "uuid"}]\n', ['values.fields needs the kind "json"'],
    ),
    "field of no type": (
        JSON + 'fields = [{name = "a"}]\n',
        ["topics[0].values.fields[0] lacks type", "choose counter, integer"],
    ),
    "field of a misspelt type": (
        JSON + 'fields = [{name = "a", type = "uid"}]\n', ['type is "uid"', "did you mean uuid?"],
    ),
    "field without a name": (
        JSON + 'fields = [{type = "uuid"}]\n', ["fields[0] lacks name", "give 1"],
    ),
    "field with a control character": (
        JSON + 'fields = [{name = "a\\u0007", type = "uuid"}]\n', ["fields[0].name is"],
    ),
    "field named twice": (
        JSON + 'fields = [{name = "a", type = "uuid"}, {name = "a", type = "key"}]\n',
        ["fields[1].name is 'a' for the second time", "a name of its own"],
    ),
    "fields not a list": (JSON + 'fields = 3\n', ["values.fields is 3", "a list of tables"]),
    "enum without values": (
        JSON + 'fields = [{name = "a", type = "enum"}]\n',
        ["fields[0] lacks values", "give a list of texts"],
    ),
    "enum without weight": (
        JSON + 'fields = [{name = "a", type = "enum", values = {A = 0}}]\n',
        ["fields[0].values has no weight above 0", "give a weight"],
    ),
    "enum with a text twice": (
        JSON + 'fields = [{name = "a", type = "enum", values = ["A", "A"]}]\n',
        ["fields[0].values has a text twice"],
    ),
    "enum of numbers": (
        JSON + 'fields = [{name = "a", type = "enum", values = [1]}]\n',
        ["fields[0].values is [1]", "printable"],
    ),
    "integer upside down": (
        JSON + 'fields = [{name = "a", type = "integer", min = 9, max = 3}]\n',
        ["fields[0].min is 9, above max (3)", "swap them"],
    ),
    "integer too wide, in an object": (
        JSON + 'fields = [{name = "o", type = "object", fields = '
        '[{name = "a", type = "integer", min = 0, max = 5000000000}]}]\n',
        ["fields[0].fields[0]: min to max holds more than 2^32", "narrow it"],
    ),
    "objects too deep": (
        JSON + 'fields = ' + '[{name = "o", type = "object", fields = ' * 9 + "[]"
        + "}]" * 9 + "\n",
        ["nested more than 8 deep", "flatter"],
    ),
    "JSON too large for a batch": (
        JSON + 'fields = [{name = "a", type = "text", words = 9000}]\n'
        '[topics.batches]\nrecords = 1000\n',
        ["a batch may take", "values.fields"],
    ),
    "ratio too high": (TOPIC + "[topics.values]\nratio = 9\n", ["values.ratio is 9", "from 0 to 8"]),
    "ratio too low": (
        TOPIC + "[topics.values]\nratio = 1.1\n[topics.batches]\ncodecs = 'lz4'\n",
        ["values.ratio is 1.1", "give 1.2 to 8"],
    ),
    "ratio without a codec": (TOPIC + "[topics.values]\nratio = 2\n", ["values.ratio needs a codec", "batches.codecs"]),
    "ratio of JSON": (
        JSON + 'ratio = 2\nfields = [{name = "a", type = "uuid"}]\n',
        ["values.ratio does not apply to JSON", "remove it"],
    ),
    "fresh bytes without ratio": (
        TOPIC + "[topics.values.fresh_bytes]\nlz4 = 3\n", ["values.fresh_bytes needs a ratio", "remove it"],
    ),
    "fresh bytes of another codec": (
        TOPIC + "[topics.batches]\ncodecs = 'zstd'\n[topics.values]\nratio = 2\nfresh_bytes = {lz4 = 3}\n",
        ["values.fresh_bytes has no number for zstd", "remove fresh_bytes"],
    ),
    "fresh bytes above the period": (
        TOPIC + "[topics.values]\nfresh_bytes = {lz4 = 600}\n", ["values.fresh_bytes.lz4 is 600", "from 0 to 512"],
    ),
    "more tombstones than values": (
        TOPIC + "[topics.values]\ntombstone_share = 0.7\nnull_share = 0.4\n",
        ["values.tombstone_share and null_share add up to 1.1", "at most 1"],
    ),
    "start that is no moment": (
        TOPIC + '[topics.timestamps]\nstart = "yesterday"\n', ['timestamps.start is "yesterday"', '"now-6h"'],
    ),
    "start without a zone": (
        TOPIC + '[topics.timestamps]\nstart = "2026-01-01T00:00:00"\n', ['timestamps.start is "2026', "a date such as"],
    ),
    "start before 1970": (
        TOPIC + '[topics.timestamps]\nstart = "1969-01-01T00:00:00Z"\n', ["timestamps.start is", "from 1970 on"],
    ),
    "start as a fraction": (
        TOPIC + "[topics.timestamps]\nstart = 1.5\n", ["timestamps.start is 1.5", "give milliseconds"],
    ),
    "start and end": (
        TOPIC + "[topics.timestamps]\nstart = 5\nend = 500\n", ["timestamps has both start and end", "remove one"],
    ),
    "end too early": (TOPIC + "[topics.timestamps]\nend = 500\n", ["before 1970", "raise timestamps.end"]),
    "late before 1970": (
        TOPIC + "[topics.timestamps]\nstart = 0\nlate_share = 0.1\n", ["60000 ms before 1970", "timestamps.start"],
    ),
    "hours of half a day": (
        TOPIC + "[topics.timestamps]\nhour_weights = [1, 2]\n", ["hour_weights is [1, 2]", "a list of 24"],
    ),
    "hours without records": (
        TOPIC + f"[topics.timestamps]\nhour_weights = {[0] * 24}\n", ["hour_weights has no number above 0"],
    ),
    "hours below nothing": (
        TOPIC + f"[topics.timestamps]\nhour_weights = {[-1] * 24}\n", ["hour_weights[0] is -1", "from 0 to 1000"],
    ),
    "bursts that do not divide a day": (
        TOPIC + "[topics.timestamps]\nburst_every_s = 1001\n", ["burst_every_s is 1001", "600 or 3600"],
    ),
    "bursts without an end": (
        TOPIC + "[topics.timestamps]\nburst_every_s = 60\n", ["burst_length_s is 60", "burst_every_s (60)", "lower it"],
    ),
    "compaction of old formats": (
        TOPIC + "compaction = { segments = 1 }\nlegacy = { magic1_segments = 1 }\n",
        ["topics[0].compaction does not go with legacy, because"],
    ),
    "range upside down": (TOPIC + "[topics.values]\nsize = {min=9, max=3}\n", ["values.size.min is 9", "swap them"]),
    "range without an end": (TOPIC + "[topics.values]\nsize = {min=9}\n", ["values.size lacks max", "give a whole"]),
    "range with a typo": (TOPIC + "[topics.values]\nsize = {min=1, max=2, skw=3}\n", ["skw", "did you mean skew?"]),
    "kind unknown": (TOPIC + '[topics.values]\nkind = "prose"\n', ['values.kind is "prose"', "random, text or json"]),
    "codec unknown": (TOPIC + '[topics.batches]\ncodecs = "brotli"\n', ["batches.codecs", "none, gzip"]),
    "codec with a typo": (TOPIC + "[topics.batches]\ncodecs = {zsdt = 1}\n", ["codecs.zsdt", "did you mean zstd?"]),
    "codecs without weight": (TOPIC + "[topics.batches]\ncodecs = {zstd = 0}\n", ["batches.codecs", "give a weight"]),
    "legacy codec": (TOPIC + '[topics.legacy]\ncodecs = "zstd"\n', ['legacy.codecs is "zstd"', "none or gzip"]),
    "batches of nothing": (TOPIC + "[topics.batches]\nrecords = 0\n", ["batches.records is 0", "from 1"]),
    "table is a number": (TOPIC + "keys = 3\n", ["topics[0].keys is 3", "make it a table"]),
    "timestamp type": (TOPIC + '[topics.timestamps]\ntype = "wall"\n', ["timestamps.type", "create or log-append"]),
    "batch above the reader's limit": (
        TOPIC + '[topics.values]\nsize = 1000000\n[topics.batches]\nrecords = 1000\n',
        ["topics[0] (t)", "batch", "32 MiB", "batches.records (1000)"],
    ),
    "segment above 2 GiB": (
        'size = "1TiB"\nsegment_bytes = "1GiB"\n'
        + TOPIC
        + "[topics.values]\nsize = {min=0, max=3000000, skew=16}\n[topics.batches]\nrecords = 10\n",
        ["topics[0] (t)", "2 GiB", "lower segment_bytes"],
    ),
    "size below one record": ("size = 50\n" + TOPIC, ["topics[0] (t)", "less than one record", "raise size"]),
    "time beyond reason": (
        'size = "1PiB"\n' + TOPIC + "[topics.timestamps]\nrecords_per_second = 1\n",
        ["timestamps would reach", "records_per_second"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_gets_one_sentence_with_place_and_remedy(mistake: str) -> None:
    text, words = MISTAKES[mistake]
    with pytest.raises(UsageError) as caught:
        Plan(parse(text, "bad.toml"), "bad.toml")
    sentence = str(caught.value)
    assert sentence.startswith("bad.toml")
    assert "\n" not in sentence
    assert not [word for word in words if word not in sentence], sentence


# Rules of several keys at once, the plan, a number in a text, or TOML itself: a JSON Schema cannot say them.
BEYOND_THE_SCHEMA = {
    "name twice", "size beyond reason", "segment too large", "share not a number", "range upside down",
    "shares above one together", "codecs without weight", "batch above the reader's limit", "segment above 2 GiB",
    "size below one record", "time beyond reason", "exponent of too many digits", "exponent without zipf",
    "sequential keys too short", "JSON without fields", "JSON with a size", "fields without JSON", "field named twice",
    "field with a control character", "enum without weight", "integer upside down", "integer too wide, in an object",
    "ratio too low", "ratio without a codec", "ratio of JSON", "fresh bytes without ratio",
    "fresh bytes of another codec",
    "start and end", "end too early", "late before 1970", "start before 1970", "hours without records",
    "bursts that do not divide a day", "bursts without an end", "more tombstones than values",
    "size of keys with a type", "too many keys of int", "too many keys for a table", "keys too long for a table",
    "partition without a key", "null keys in one partition", "empty keys in one partition",
    "objects too deep", "JSON too large for a batch", "compaction of old formats",
}  # fmt: skip


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize("mistake", sorted(MISTAKES.keys() - {"not TOML"}))
def test_the_schema_refuses_what_the_reader_refuses_but_for_these(
    validator: jsonschema.Draft202012Validator, mistake: str
) -> None:
    assert validator.is_valid(tomllib.loads(MISTAKES[mistake][0])) == (mistake in BEYOND_THE_SCHEMA)


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_the_schema_takes_the_examples_and_their_canonical_texts(
    validator: jsonschema.Draft202012Validator, path: Path
) -> None:
    validator.validate(tomllib.loads(path.read_text()))
    validator.validate(tomllib.loads(render(load(path))))


@pytest.mark.parametrize("unit", SIZES)
def test_the_schema_knows_every_unit_of_a_size_in_any_case(
    validator: jsonschema.Draft202012Validator, unit: str
) -> None:
    for text in (f"64{unit}", f" 64.5 {unit.lower()} "):
        assert parse_size(text) is not None
        validator.validate({"topics": [{"name": "t"}], "size": text})


def test_the_defaults_in_the_schema_are_those_of_the_reader(validator: jsonschema.Draft202012Validator) -> None:
    def with_defaults(one: dict[str, Any]) -> dict[str, Any]:
        inner = {name: with_defaults(part) for name, part in one["properties"].items() if part.get("type") == "object"}
        return inner | {name: part["default"] for name, part in one["properties"].items() if "default" in part}

    topic = {"name": "t", **with_defaults(schema()["properties"]["topics"]["items"])}
    values = {"topics": [topic], **with_defaults(schema())}
    validator.validate(values)
    assert read(values, "defaults") == Workload(topics=(Topic("t"),))
    assert topic["keys"]["cardinality"] == 1_000_000


def test_the_committed_schema_is_current() -> None:
    committed = Path(workload_module.__file__).with_name("workload.schema.json").read_text()
    # To bring it up to date: kfuzz corpus schema > kfuzz/corpora/workload.schema.json
    assert kfuzz("corpus", "schema").stdout == committed


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_the_examples_name_their_schema_for_editors(path: Path) -> None:
    named = path.read_text().splitlines()[0].removeprefix("#:schema ")
    assert (path.parent / named).samefile(Path(workload_module.__file__).with_name("workload.schema.json"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\x00")
    for path in (tmp_path, tmp_path / "absent.toml", tmp_path / "binary.toml"):
        with pytest.raises(UsageError, match=path.name):
            load(path)


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_the_canonical_text_of_a_workload_reads_back_as_the_same_workload(path: Path) -> None:
    workload = load(path)
    assert parse(render(workload), "again") == workload
    assert parse(render(workload), "again").fingerprint == workload.fingerprint


def shares(*four: float) -> str:
    tables = (
        "[topics.producers]\nshare = {}\n[topics.transactions]\nshare = {}\n[topics.legacy]\nmagic0 = {}\nmagic1 = {}\n"
    )
    return TOPIC + tables.format(*four)


@pytest.mark.parametrize("four", [(0.2, 0.4, 0.3, 0.1), (0.7, 0.1, 0.1, 0.1), (0.6, 0.3, 0.1, 0.0), (1.0, 0, 0, 0)])
def test_shares_that_sum_to_one_on_paper_are_taken_though_their_floats_pass_it(four: tuple[float, ...]) -> None:
    [topic] = Plan(parse(shares(*four), "full")).topics
    assert topic.topic.transactions.share == four[1]


def test_one_of_the_four_floats_sums_above_is_indeed_more_than_one() -> None:
    assert 0.2 + 0.4 + 0.3 + 0.1 > 1


@pytest.mark.parametrize("four", [(0.2, 0.4, 0.3, 0.1001), (0.001, 1, 0, 0), (0, 0.001, 1, 0), (0, 0, 0.001, 1)])
def test_shares_that_sum_to_more_than_one_are_refused_whichever_they_are(four: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=r"producers\.share, .* add up to 1\.\d+; lower one of them"):
        parse(shares(*four), "more")


def test_only_the_name_of_a_topic_is_required() -> None:
    assert parse(TOPIC, "small") == Workload(topics=(Topic("t"),))


@given(st.integers(0, 10**15), st.integers(0, 999), st.sampled_from([*SIZES]), st.sampled_from(["", " "]))
def test_sizes_are_read_with_and_without_units(whole: int, thousandths: int, unit: str, space: str) -> None:
    factor = 1024 if "I" in unit else 1000
    factor **= 0 if unit in ("", "B") else 1 + "KMGTP".index(unit[0])
    for written in (unit, unit.lower()):
        assert parse_size(f"{whole}{space}{written}") == whole * factor
        assert parse_size(f"{whole}.{thousandths:03}{space}{written}") == whole * factor + thousandths * factor // 1000
        assert parse_size(f"-{whole}{written}") is parse_size(written) is parse_size(f"{whole}{written}x") is None
    assert parse_size(show_size(whole)) == parse_size(whole) == whole


def test_the_fingerprint_depends_on_every_part() -> None:
    one = parse(TOPIC, "one")
    assert one.fingerprint != one.resized(1 << 20).fingerprint
    assert one.fingerprint != parse(TOPIC + "[topics.keys]\ncardinality = 2\n", "two").fingerprint


def test_a_single_number_is_a_range_of_one() -> None:
    topic = parse(TOPIC + "[topics.values]\nsize = 7\n", "one").topics[0]
    assert topic.values.size == Range(7, 7)
    assert topic.values.size.mean == 7


def test_the_guide_explains_every_key_with_its_table() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "corpora.md").read_text()
    topic = Topic("t")
    keys = [field.name for kind in (Workload, Topic) for field in fields(kind)]
    for table in fields(topic):
        value = getattr(topic, table.name)
        if is_dataclass(value):
            assert f"**`[topics.{table.name}]`**" in guide
            keys += [field.name for field in fields(value)]
    tables = {"topics", "keys", "values", "headers", "timestamps", "batches", "producers", "transactions", "legacy"}
    assert [key for key in keys if key not in tables and f"`{key}`" not in guide] == []


def test_the_guide_explains_every_column_of_the_manifest() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "corpora.md").read_text()
    assert [field.name for field in fields(Row) if f"`{field.name}`" not in guide] == []
