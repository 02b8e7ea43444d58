"""``Schema.pick`` finds the same as a walk over the decoded values, for all messages and versions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kfuzz.kafka import RELEASES
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import Definition, Field, key_of
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema

SEEDS = range(2)


def forms() -> Iterator[tuple[Definition, int]]:
    """All messages of all releases at all versions, once each, the newest definition."""
    found = {}
    for release in RELEASES:
        for one in catalogue(release).messages.values():
            if one.kind in ("request", "response"):
                found.update({(one.name, version): one for version in one.valid_versions})
    return ((definition, version) for (_, version), definition in found.items())


def leaves(
    definition: Definition, fields: tuple[Field, ...], version: int, values: dict[str, Any]
) -> Iterator[tuple[Field, Any]]:
    """The fields that are no structs, with their values."""
    for field in fields:
        value = values.get(key_of(field.name))
        if version not in field.versions or value is None:
            continue
        if field.type.struct is None:
            yield field, value
            continue
        for one in value if field.type.array else [value]:
            yield from leaves(definition, definition.fields_of(field.type), version, one)


def expected(definition: Definition, version: int, values: dict[str, Any]) -> tuple[list[bytes], dict[int, int], bool]:
    records: list[bytes] = []
    errors: Counter[int] = Counter()
    has_host = False
    for field, value in leaves(definition, definition.fields, version, values):
        if field.type.name == "records":
            records.append(value)
        elif field.type.name == "int16" and not field.type.array and field.name.lower().endswith("errorcode") and value:
            errors[value] += 1
        elif field.name == "Host" and value:
            has_host = True
    return sorted(records), dict(errors), has_host


def test_pick_finds_what_the_values_have_and_nothing_in_what_is_refused() -> None:
    rng = random.Random(1)
    found: Counter[str] = Counter()
    for definition, version in forms():
        program = schema(definition, version)
        for seed in SEEDS:
            data = program.encode(filled(definition, version, seed))
            end, notes, picked = program.pick(memoryview(data))
            assert (end, notes) == program.check(data)
            assert picked is not None
            spans, errors, has_host = picked
            records = [data[at : at + size] for at, size in spans]
            _, _, values = program.decode(data)
            assert values is not None
            assert (sorted(records), errors, has_host) == expected(definition, version, values), (
                definition.name,
                version,
            )
            found.update(records=len(records), errors=len(errors), hosts=has_host)
        cut = data[: rng.randrange(len(data) + 1)]
        end, notes, picked = program.pick(cut)
        assert (end, notes) == program.check(cut)
        assert (picked is None) == (end < 0)
        found["refused"] += end < 0
    # Each kind is there.
    assert min(found[one] for one in ("records", "errors", "hosts")) > 20
    assert found["refused"] > 500


def test_records_are_found_where_they_are() -> None:
    program = schema(catalogue().find("FetchResponse"), 12)
    partitions = [{"records": b"first"}, {"records": None}, {"records": b""}]
    data = program.encode({"responses": [{"topic": "t", "partitions": partitions}]})
    _, _, picked = program.pick(data)
    assert picked is not None
    assert picked[0] == [(data.index(b"first"), 5), (len(data) - 3, 0)]
