"""JSON values: real JSON, read by Python's own parser, with the fields and shares of the workload."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from made_corpora import batches_of, generate_segment

from kfuzz import records
from kfuzz.corpora.json_values import program
from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.words import FIRST_NAMES, LAST_NAMES, WORDS
from kfuzz.corpora.workload import Workload, parse, render, sizes_of

WORKLOAD = """
size = "2MiB"
segment_bytes = "1MiB"
[[topics]]
name = "orders"
[topics.keys]
size = { min = 3, max = 12 }
null_share = 0.2
[topics.values]
kind = "json"
null_share = 0.05
fields = [
    { name = "id", type = "counter", start = 7, step = 3 },
    { name = "when", type = "timestamp" },
    { name = "ms", type = "timestamp", format = "ms" },
    { name = "a \\"ü\\"", type = "enum", values = { NEW = 5, "PAID \\\\ \\"twice\\"" = 4, "zurück" = 1, never = 0 } },
    { name = "side", type = "enum", values = ["left", "right"] },
    { name = "buyer", type = "name" },
    { name = "price", type = "decimal", min = -2, max = 30, decimals = 3, null_share = 0.25 },
    { name = "small", type = "integer", min = -5, max = 100_000, skew = 4 },
    { name = "wide", type = "integer", min = -9007199254740991, max = -9007199250446336 },
    { name = "fixed", type = "integer", min = 9007199254740991, max = 9007199254740991 },
    { name = "paid", type = "boolean", share = 0.9 },
    { name = "note", type = "text", words = { min = 0, max = 6 } },
    { name = "trace", type = "uuid" },
    { name = "empty", type = "object", fields = [] },
    { name = "customer", type = "object", fields = [
        { name = "id", type = "key" },
        { name = "deeper", type = "object", fields = [{ name = "x", type = "integer" }] },
    ] },
]
"""  # fmt: skip


def values_of(workload: Workload) -> list[tuple[records.Record, dict[str, Any]]]:
    batches = [batch for segment in Plan(workload) for batch in batches_of(segment, workload)]
    return [(r, json.loads(r.value.decode())) for batch in batches for r in batch.records if r.value is not None]


@pytest.fixture(scope="module")
def made() -> list[tuple[records.Record, dict[str, Any]]]:
    return values_of(parse(WORKLOAD, "json.toml"))


def test_every_value_is_json_with_the_fields_in_the_workloads_order(
    made: list[tuple[records.Record, dict[str, Any]]],
) -> None:
    names = re.findall(r'^    \{ name = "((?:[^"\\]|\\.)*)"', WORKLOAD, re.MULTILINE)
    expected = [json.loads(f'"{name}"') for name in names]
    assert len(made) > 3000
    assert {tuple(value) for _, value in made} == {tuple(expected)}
    for record, value in made:
        text = (record.value or b"").decode()
        # The shortest form, letters as they are.
        assert json.loads(text, parse_float=str) == json.loads(text, parse_float=str, parse_int=int)
        compact = json.dumps(json.loads(text, parse_float=_Raw), separators=(",", ":"), ensure_ascii=False)
        assert re.sub(r'"raw:([-0-9.]+)"', r"\1", compact) == text
        assert value["empty"] == {}


class _Raw(str):
    def __new__(cls, text: str) -> _Raw:
        return super().__new__(cls, f"raw:{text}")


def test_each_type_of_field_holds_what_it_says(made: list[tuple[records.Record, dict[str, Any]]]) -> None:
    for record, value in made:
        assert value["id"] == 7 + 3 * record.offset
        assert record.timestamp is not None
        when = datetime.fromtimestamp(record.timestamp // 1000, UTC).replace(microsecond=record.timestamp % 1000 * 1000)
        assert value["when"] == when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert value["ms"] == record.timestamp
        first, last = value["buyer"].split()
        assert first in FIRST_NAMES
        assert last in LAST_NAMES
        assert value["price"] is None or -2 <= value["price"] <= 30
        assert -5 <= value["small"] <= 100_000
        assert -9007199254740991 <= value["wide"] <= -9007199250446336
        assert value["fixed"] == 9007199254740991
        assert set(value["note"].split()) <= set(WORDS)
        assert uuid.UUID(value["trace"]).version == 4
        assert str(uuid.UUID(value["trace"])) == value["trace"]
        assert value["customer"]["id"] == (None if record.key is None else record.key.decode())
        assert 0 <= value["customer"]["deeper"]["x"] <= 100
    prices = [value["price"] for _, value in made if value["price"] is not None]
    assert min(prices) < -1.9
    assert max(prices) > 29.9
    assert {len(str(price).partition(".")[2]) for price in prices} == {1, 2, 3}
    assert len({value["trace"] for _, value in made}) == len(made)
    assert {len(value["note"].split()) for _, value in made} == set(range(7))


def test_weights_and_shares_are_those_of_the_workload(made: list[tuple[records.Record, dict[str, Any]]]) -> None:
    total = len(made)

    def share(of: int) -> float:
        return of / total

    status = Counter(value['a "ü"'] for _, value in made)
    assert {name: share(count) for name, count in status.items()} == pytest.approx(
        {"NEW": 0.5, 'PAID \\ "twice"': 0.4, "zurück": 0.1}, abs=0.03
    )
    assert share(Counter(value["side"] for _, value in made)["left"]) == pytest.approx(0.5, abs=0.03)
    assert share(sum(value["paid"] for _, value in made)) == pytest.approx(0.9, abs=0.02)
    assert share(sum(value["price"] is None for _, value in made)) == pytest.approx(0.25, abs=0.03)
    assert len({value["buyer"] for _, value in made}) == 256
    low = sum(value["small"] < 100_000 // 16 for _, value in made)
    assert share(low) == pytest.approx(0.5, abs=0.03)


def test_the_plan_knows_the_size_of_json() -> None:
    workload = parse(WORKLOAD, "json.toml")
    topic = workload.topics[0]
    segment = Plan(workload)[0]
    log = generate_segment(segment, workload).log
    assert len(log) / segment.offsets == pytest.approx(offset_bytes_mean(topic), rel=0.02)
    longest = max(len(record.value or b"") for record, _ in values_of(workload))
    assert longest <= sizes_of(topic.values, topic.keys)[1] < 2 * longest


def test_dates_are_right_on_every_day_of_four_centuries_around() -> None:
    text = """
    size = "6MiB"
    [[topics]]
    name = "t"
    timestamps = { start = 0, records_per_second = 1 }
    values = { kind = "json", fields = [{ name = "d", type = "timestamp" }] }
    """
    for start in (0, 951_782_399_000, 4_107_542_399_000, 13_574_649_599_000, 253_402_300_000_000):
        for record, value in values_of(parse(text.replace("start = 0", f"start = {start}"), "dates"))[::301]:
            assert record.timestamp is not None
            seconds = min(record.timestamp // 1000, 253_402_300_799)
            assert value["d"][:19] == datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def test_json_fits_into_messages_of_the_old_formats_and_beside_headers() -> None:
    more = (
        "[topics.headers]\nshare = 0.5\n[topics.legacy]\nmagic0 = 0.3\nmagic1 = 0.3\ncodecs = { none = 1, gzip = 1 }\n"
    )
    found = values_of(parse(WORKLOAD + more, "legacy"))
    assert {record.timestamp is None for record, _ in found} == {True, False}
    assert all(value["id"] == 7 + 3 * record.offset for record, value in found)


def test_the_canonical_text_holds_every_field() -> None:
    workload = parse(WORKLOAD, "json.toml")
    assert parse(render(workload), "again") == workload
    assert program(workload.topics[0].values.fields).key_fields == 1


def test_the_example_of_the_guide_gives_the_value_that_it_shows() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "corpora.md").read_text()
    found = re.search(r"```toml\n(\[topics\.values\]\n.*?)```\n\n```json\n(.*?)\n```", guide, re.DOTALL)
    assert found is not None
    workload = parse(f'size = "1MiB"\n[[topics]]\nname = "orders"\n{found[1]}', "guide")
    first = batches_of(Plan(workload)[0], workload)[0].records[0]
    assert (first.value or b"").decode() == found[2]
