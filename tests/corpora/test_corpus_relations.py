"""Relations: topics that share keys, references whose joins are predicted, and Debezium's changes of rows."""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from made_corpora import batches_of

from kfuzz.corpora import joins
from kfuzz.corpora.generation import generate
from kfuzz.corpora.partitioners import partition_of
from kfuzz.corpora.plan import Plan, decided
from kfuzz.corpora.schemed import decoder_of
from kfuzz.corpora.statistics import check_statistics
from kfuzz.corpora.summary import related
from kfuzz.corpora.verification import Corpus, verify
from kfuzz.corpora.workload import Workload, parse
from kfuzz.records import Record
from kfuzz.storage import Target

FOLDER = Path(__file__).parent
PARTS = tomllib.loads((FOLDER / "relations.toml").read_text())


def workload_of(text: str, size: str = "640KiB") -> Workload:
    return decided(parse(f'size = "{size}"\nsegment_bytes = "64KiB"\nseed = 7\n{text}', "w.toml", FOLDER))


def customers(keys: str = 'space = "people"', schema_part: str = "false", compacted: int = 0) -> str:
    return str(PARTS["customers"]).format(keys=keys, schema_part=schema_part, compacted=compacted)


def orders(to: str) -> str:
    return str(PARTS["orders"]).format(to=to)


def records(workload: Workload, topic: str) -> dict[int, list[Record]]:
    """The records of each partition, made from the last segment to the first."""
    found: dict[int, list[Record]] = defaultdict(list)
    for segment in sorted(Plan(workload), key=lambda one: -one.index):
        if segment.topic.name == topic:
            found[segment.partition] += [one for batch in batches_of(segment, workload) for one in batch.records]
    return {at: sorted(each, key=lambda one: one.offset) for at, each in found.items()}


def predicted(workload: Workload, topic: str) -> dict[str, Any]:
    plan = Plan(workload)
    return next(joins.predicted(plan, one) for one in plan.topics if one.topic.name == topic)


@pytest.mark.parametrize("keys", ["null_share = 0", 'partitioner = "murmur2"', 'type = "long"'])
def test_a_join_gives_the_predicted_counts(keys: str) -> None:
    workload = workload_of(customers(keys) + orders('topic = "customers", dangling = 0.0123'))
    there = {json.loads(one.key or b"")["id"] for each in records(workload, "customers").values() for one in each}
    assert len(there) == 100
    found: Counter[bool] = Counter()
    made = records(workload, "orders").values()
    for each in made:
        for one in each:
            found[json.loads(one.value or b"")["customer"] in there] += 1
    [expected] = predicted(workload, "orders")["references"]
    assert expected == {
        "field": "customer",
        "to": "customers",
        "matching": found[True],
        "dangling": found[False],
        "exact": True,
    }
    assert found[False] == sum(len(each) * 123 // 10_000 for each in made)


def test_references_with_a_lag_name_keys_that_were_written_before() -> None:
    workload = workload_of(PARTS["written"] + orders('topic = "written", lag_ms = 900'))
    written = {one.key: one.timestamp for each in records(workload, "written").values() for one in each}
    first = 1_700_000_000_000 + 900
    gaps, early = [], 0
    for each in records(workload, "orders").values():
        for one in each:
            key = json.loads(one.value or b"")["customer"].encode()
            assert (key in written) == (one.timestamp >= first)
            early += key not in written
            gaps += [one.timestamp - written[key]] if key in written else []
    # The newest key that the lag allows is named too.
    assert 900 <= min(gaps) < 910
    [expected] = predicted(workload, "orders")["references"]
    assert (expected["dangling"], expected["matching"], expected["exact"]) == (early, len(gaps), True)


def test_topics_of_a_space_have_the_same_keys_and_may_refer_to_each_other() -> None:
    workload = workload_of(PARTS["circle"])
    keys = {name: {one.key for each in records(workload, name).values() for one in each} for name in "abc"}
    named = {json.loads(one.value or b"")["r"].encode() for one in records(workload, "a")[0]}
    assert keys["a"] == keys["b"] == named
    assert not keys["a"] & keys["c"]


@pytest.mark.parametrize("suffix", ["avsc", "proto", "schema.json"])
def test_fields_of_schemas_refer_to_keys(suffix: str) -> None:
    workload = workload_of(PARTS["schemas"].format(suffix=suffix), "256KiB")
    decode = decoder_of(workload.topics[2].values)
    made = [json.loads(decode(one.value or b"", 0, b"\0")) for one in records(workload, "o")[0]]
    there = {one.key.decode() for one in records(workload, "a")[0] if one.key}
    assert {one["who"] for one in made} == there
    dangling = sum(int(one.get("n", 0)) >= 50 for one in made)
    assert dangling == len(made) // 10 == predicted(workload, "o")["references"][1]["dangling"]
    assert {int(one.get("n", 0)) for one in made} > set(range(50))


def test_keys_of_few_letters_are_alike_and_dangling_references_match_some() -> None:
    workload = workload_of(PARTS["alike"], "1MiB")
    there = {(one.key or b"").decode() for one in records(workload, "there")[0]}
    found = Counter(json.loads(one.value or b"")["r"] in there for one in records(workload, "r")[0])
    [expected] = predicted(workload, "r")["references"]
    assert predicted(workload, "there") == {"different_keys": len(there)}
    assert predicted(workload, "schema") == {"different_keys": len({one.key for one in records(workload, "schema")[0]})}
    assert (expected["matching"], expected["exact"]) == (pytest.approx(found[True], rel=0.02), False)
    # So many are not looked at.
    many = workload_of('topics = [{ name = "t", keys = { size = { min = 1, max = 2 }, cardinality = 2_000_000 } }]')
    assert related(predicted(many, "t")) == ["keys: at most 272 different ones, all that have this size"]
    assert expected["dangling"] == pytest.approx(found[False], rel=0.05)


@pytest.mark.parametrize("topic", ["json", "avro", "proto", "cdc"])
def test_values_and_fields_that_are_absent_refer_to_nothing(topic: str) -> None:
    workload = workload_of(PARTS["shares"], "1MiB")
    values = next(one.values for one in workload.topics if one.name == topic)
    decode = decoder_of(values) if values.schema else lambda data, at, indexes: data
    there = {(one.key or b"").decode() for one in records(workload, "there")[0]}
    found: dict[str, Counter[bool]] = {"a": Counter(), "b": Counter()}
    for one in records(workload, topic)[0]:
        value = None if one.value is None else json.loads(decode(one.value, 0, b"\0"))
        value = value and (value["after"] or value["before"]) if topic == "cdc" else value
        for name, holder in (("a", value), ("b", (value or {}).get("b"))):
            if holder and (key := holder.get("a")) is not None:
                found[name][key in there] += 1
    for name, one in zip("ab", predicted(workload, topic)["references"], strict=True):
        assert one["matching"] == pytest.approx(found[name][True], rel=0.1), name
        assert one["dangling"] == pytest.approx(found[name][False], rel=0.1, abs=3), name
        assert one["exact"] == (topic == "avro" and name == "b")


def rows_of(each: list[Record]) -> tuple[Counter[str], dict[bytes, Any]]:
    """Fold a partition's changes by key, and check what was before each of them."""
    rows: dict[bytes, Any] = {}
    kinds: Counter[str] = Counter()
    for one in each:
        assert one.key is not None
        change = None if one.value is None else json.loads(one.value)
        kinds["tombstone" if change is None else change["op"]] += 1
        if change is None:
            assert rows[one.key] is None
            continue
        assert change["before"] == rows.get(one.key)
        assert (change["after"] is None, change["before"] is None) == (change["op"] == "d", change["op"] in "rc")
        assert change["after"] is None or {"id": change["after"]["id"]} == json.loads(one.key)
        assert change["ts_ms"] == one.timestamp
        assert (change["source"]["snapshot"] == "true") == (change["op"] == "r") == (change["transaction"] is None)
        rows[one.key] = change["after"]
    return kinds, rows


@pytest.mark.parametrize("keys", ['space = "people"', 'partitioner = "consistent-random"'])
def test_each_change_begins_with_the_row_that_the_one_before_left(tmp_path: Path, keys: str) -> None:
    workload = workload_of(customers(keys))
    kinds: Counter[str] = Counter()
    rows: dict[bytes, Any] = {}
    for each in records(workload, "customers").values():
        more, its = rows_of(each)
        kinds += more
        rows |= its
        orders = [json.loads(one.value)["transaction"] for one in each if one.value]
        assert {one["total_order"] for one in orders if one} == {1, 2, 3, 4}
        assert max(Counter(one["id"] for one in orders if one).values()) == 4
    assert kinds["r"] == 100
    assert min(kinds.values()) > 40
    live = [one for one in rows.values() if one]
    assert all("vip" in one for one in live)
    expected = predicted(workload, "customers")["changes"]
    assert expected == {
        "live_keys": len(live),
        "deleted_keys": 100 - len(live),
        "tombstones": kinds["tombstone"],
        "records_left": kinds.total(),
        "exact": True,
    }
    generate(workload, tmp_path / "out")
    assert verify(tmp_path / "out") == []
    assert check_statistics(Corpus.open(Target.of(tmp_path / "out")))[1] == []


def test_the_keys_of_changes_are_objects_with_the_primary_key_or_plain() -> None:
    keys = 'type = "long", partitioner = "murmur2"'
    id_column = {"type": "int64", "optional": False, "field": "id"}
    schema = {"type": "struct", "fields": [id_column], "optional": False, "name": "kfuzz.public.customers.Key"}
    for more, wanted in (
        ("false", lambda id: {"id": id}),
        ("true", lambda id: {"schema": schema, "payload": {"id": id}}),
        ("false\nplain_keys = true", lambda id: id),
    ):
        for partition, each in records(workload_of(customers(keys, more)), "customers").items():
            for one in each:
                assert one.key
                assert partition_of("murmur2", one.key, 2) == partition
                if one.value is not None:
                    change = json.loads(one.value)
                    change = change.get("payload", change)
                    key = int.from_bytes(one.key) if "plain" in more else json.loads(one.key)
                    assert key == wanted((change["after"] or change["before"])["id"])


def test_compaction_leaves_the_last_change_of_each_key() -> None:
    whole = workload_of(customers())
    cleaned = workload_of(customers(compacted=3))
    end = 3 * Plan(whole)[0].offsets
    for partition, each in records(whole, "customers").items():
        last = {one.key: one.offset for one in each if one.offset < end}
        wanted = [(one.key, one.value) for one in each if one.offset >= end or last[one.key] == one.offset]
        assert [(one.key, one.value) for one in records(cleaned, "customers")[partition]] == wanted
    expected = predicted(cleaned, "customers")["changes"]["records_left"]
    assert expected == sum(map(len, records(cleaned, "customers").values()))


def test_the_schema_part_has_the_fields_of_the_row() -> None:
    for one in records(workload_of(customers(schema_part="true")), "customers")[0]:
        if one.value is None:
            continue
        made = json.loads(one.value)
        parts = {field["field"]: field for field in made["schema"]["fields"]}
        assert list(parts) == list(made["payload"])
        names = [field["field"] for field in parts["after"]["fields"]]
        assert made["payload"]["after"] is None or list(made["payload"]["after"]) == names
        assert [field["field"] for field in parts["source"]["fields"]] == list(made["payload"]["source"])


def test_a_larger_corpus_begins_with_the_smaller_one() -> None:
    text = customers(compacted=2) + orders('topic = "customers", dangling = 0.1')
    small, large = workload_of(text), workload_of(text, "1MiB")
    end = Plan(small).topics[0].first_offset(2)
    for topic in ("customers", "orders"):
        more = records(large, topic)
        for partition, each in records(small, topic).items():
            # The last segment may be another.
            kept = [one for one in each if one.offset < end]
            assert kept
            assert more[partition][: len(kept)] == kept
