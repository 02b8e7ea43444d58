"""Seeds: many, in a fixed order, and never the end of a campaign."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.fuzz import seeding as seeds_module
from kfuzz.fuzz.messages import KINDS as MESSAGE_KINDS
from kfuzz.fuzz.messages import chosen, selector
from kfuzz.fuzz.seeding import dictionary, inputs, read_hex, seeds, shapes
from kfuzz.fuzz.targets import TARGETS
from kfuzz.messages.catalogues import catalogue
from kfuzz.vectors import load_suite


def broken_suite(**_: object) -> NoReturn:
    raise UsageError("vectors/records/x.json: not JSON at line 1")


def test_vectors_are_seeds_of_record_batch() -> None:
    found = seeds(TARGETS["record-batch"])
    wanted = [v.data for v in load_suite() if v.kind == "records" and 0 < len(v.data) <= 4096]
    assert set(wanted) <= set(found)
    assert found == sorted(set(found), key=lambda data: (len(data), data))


def test_seeds_of_messages_are_messages_after_bytes_that_name_them() -> None:
    vectors = load_suite(kinds=("message",))
    known = catalogue().messages
    wanted = [
        selector(known[name], version) + vector.data
        for vector in vectors
        if (name := vector.options["message"]) in known
        and known[name].kind in MESSAGE_KINDS
        and (version := vector.options["version"]) in known[name].valid_versions
    ]
    assert len(wanted) > 0.9 * len(vectors)
    named = dict(inputs(TARGETS["messages"]))
    assert set(wanted) <= set(named.values())
    for target in TARGETS.values():
        if target.name != "messages":
            assert not {vector.id for vector in vectors} & {name for name, _ in inputs(target)}


def test_every_message_is_among_the_seeds_of_messages() -> None:
    choices = [chosen(data) for data in shapes(TARGETS["messages"])]
    assert None not in choices
    there = {choice[0].name for choice in choices if choice}
    wanted = [one for one in catalogue().messages.values() if one.kind in MESSAGE_KINDS and one.valid_versions]
    assert there == {definition.name for definition in wanted}


def test_a_suite_that_does_not_load_costs_its_seeds_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "load_suite", broken_suite)
    said: list[str] = []
    assert seeds(TARGETS["record-batch"], say=said.append)
    assert said == ["no seeds from the vectors: vectors/records/x.json: not JSON at line 1"]


def test_without_vectors_every_magic_and_codec_is_still_among_the_seeds() -> None:
    batches = [batch for data in shapes(TARGETS["record-batch"]) for batch in records.read(data).batches]
    there = {(batch.magic, batch.compression) for batch in batches}
    assert there >= {(2, codec) for codec in records.CODECS}
    assert there >= {(magic, codec) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")}


def test_seeds_of_messages_have_the_timestamps_that_their_magic_has() -> None:
    stamps: dict[int, set[int | None]] = {0: set(), 1: set()}
    for data in shapes(TARGETS["record-batch"]):
        for batch in records.read(data).batches:
            if batch.magic < 2:
                stamps[batch.magic] |= {record.timestamp for record in batch.records}
    assert stamps[0] == {None}
    assert stamps[1] >= {seeds_module.TIME_MS, seeds_module.TIME_MS + 5}
    assert -1 not in stamps[1]


def test_the_canary_starts_from_one_ordinary_batch_that_opens_no_gate() -> None:
    [data] = seeds(TARGETS["canary"])
    TARGETS["canary"].run(data)


@pytest.mark.parametrize("name", list(TARGETS))
def test_every_target_has_its_dictionary(name: str) -> None:
    assert dictionary(TARGETS[name]) is not None


def test_a_line_that_is_not_hex_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.hex"
    file.write_text("# a comment\n00 01 # two bytes\n\nxyz\n")
    with pytest.raises(UsageError, match="line 4 is not hex"):
        read_hex(file)
    file.write_text("# a comment\n00 01 # two bytes\n\nff\n")
    assert read_hex(file) == [b"\0\1", b"\xff"]
