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
from kfuzz.forms import table_of
from kfuzz.units import SIZES, parse_size, show_size

WORKLOADS = sorted((Path(__file__).parents[2] / "spark_jobs" / "workloads").glob("*.toml"))
TOPIC = '[[topics]]\nname = "t"\n'
MISTAKES = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text())


def text_of(mistake: str) -> str:
    """The workload with this mistake."""
    made = MISTAKES[mistake]
    return str(made["text"] if "text" in made else f"{made.get('root', '')}\n{TOPIC}{made.get('topic', '')}\n")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_gets_one_sentence_with_place_and_remedy(mistake: str) -> None:
    with pytest.raises(UsageError) as caught:
        Plan(parse(text_of(mistake), "bad.toml"), "bad.toml")
    sentence = str(caught.value)
    assert sentence.startswith("bad.toml")
    assert "\n" not in sentence
    assert [word for word in MISTAKES[mistake]["words"] if word not in sentence] == [], sentence


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize("mistake", sorted(MISTAKES.keys() - {"not TOML"}))
def test_the_schema_refuses_what_the_reader_refuses_but_for_these(
    validator: jsonschema.Draft202012Validator, mistake: str
) -> None:
    assert validator.is_valid(tomllib.loads(text_of(mistake))) == MISTAKES[mistake].get("beyond_the_schema", False)


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
        inner = {name: with_defaults(part) for name, part in one["properties"].items() if "properties" in part}
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


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(TOPIC.encode("utf-8-sig"))
    assert load(tmp_path / "w.toml") == parse(TOPIC, "w")


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
            keys += table_of(type(value)).keys
    tables = {"topics", "keys", "values", "headers", "timestamps", "batches", "producers", "transactions", "legacy"}
    assert [key for key in keys if key not in tables and f"`{key}`" not in guide] == []


def test_the_guide_explains_every_column_of_the_manifest() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "corpora.md").read_text()
    assert [field.name for field in fields(Row) if f"`{field.name}`" not in guide] == []
