"""Building the suite: what recipes make, what is kept of the committed files, and what Kafka's answers confirm."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.vectors import building as build
from kfuzz.vectors.confirm import contradiction, first_difference, with_cells
from kfuzz.vectors.coverage import expectations
from kfuzz.vectors.ids import digest_of, register, registered
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import default_root, load_file, load_files, load_suite
from kfuzz.vectors.recipes.making import bombs, containers
from kfuzz.vectors.recipes.making.builder import Record, batch, concat, overlong, varint
from kfuzz.vectors.recipes.theme import Step, Theme, accepts, refuses
from kfuzz.vectors.recipes.themes import all_themes

CODEC_FILE = "records/v2/codec.json"


@pytest.fixture(scope="module")
def theme() -> Theme:
    return next(theme for theme in all_themes() if theme.path == "records/v2/codec")


@pytest.fixture
def committed() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((default_root() / CODEC_FILE).read_bytes())
    return document


# Vectors without a recipe, which `kfuzz keep` made.
KEPT = {"records/v1/message/inner-offsets-far-apart"}


def test_every_vector_of_the_suite_has_a_recipe_or_was_kept_and_every_file_has_a_theme() -> None:
    themes = all_themes()
    made = {recipe.id for theme in themes for recipe in theme.recipes}
    assert {vector.id for vector in load_suite(kinds=KINDS)} == made | KEPT
    root = default_root()
    assert {file.path.relative_to(root).with_suffix("").as_posix() for file in load_files()} == {
        theme.path for theme in themes
    }


def test_every_flag_is_explained_and_every_explained_one_is_used() -> None:
    themes = all_themes()
    used = {flag for theme in themes for recipe in theme.recipes for flag in recipe.document["flags"]}
    assert {name for theme in themes for name in theme.flags} - {theme.path for theme in themes} == used


def item(document: dict[str, Any], slug: str) -> dict[str, Any]:
    return next(vector for vector in document["vectors"] if vector["id"].endswith(f"/{slug}"))


def recompressed_zstd(data: bytes) -> bytes:
    """The batch with its payload compressed at another level."""
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(data[61:])
    (read,) = records.decode(data)
    again = zstandard.ZstdCompressor(level=19, write_checksum=True).compress(plain)
    count = len(read.records)
    fields = {"record_count": count, "last_offset_delta": count - 1, "max_timestamp": read.max_timestamp}
    return batch(codec="zstd", payload=again, **fields).data


def test_committed_compressed_bytes_stay_while_their_contents_agree(theme: Theme, committed: dict[str, Any]) -> None:
    before = item(committed, "zstd")
    other = recompressed_zstd(bytes.fromhex(before["hex"]))
    assert other.hex() != before["hex"]
    before["hex"] = other.hex()
    before["expect"]["consumer"]["consumed"] = len(other)
    before["layout"][0]["size"] = len(other) - 61
    after = item(build.merge(theme, committed), "zstd")
    assert after == before


def test_committed_compressed_bytes_go_where_their_contents_differ(theme: Theme, committed: dict[str, Any]) -> None:
    right = item(committed, "zstd")["hex"]
    other = batch(Record(), codec="zstd", payload=containers.packed("zstd", Record().encode())).data
    item(committed, "zstd")["hex"] = other.hex()
    after = item(build.merge(theme, committed), "zstd")
    assert records.read(bytes.fromhex(after["hex"])).batches == records.read(bytes.fromhex(right)).batches
    assert after["kafka"] == {}


def test_bytes_that_no_library_made_are_compared_byte_for_byte(theme: Theme, committed: dict[str, Any]) -> None:
    right = item(committed, "zstd-stored")["hex"]
    item(committed, "zstd-stored")["hex"] = batch(Record()).data.hex()
    after = item(build.merge(theme, committed), "zstd-stored")
    assert after["hex"] == right


def test_kafkas_answer_is_kept_for_the_same_bytes_and_dropped_for_others(
    theme: Theme, committed: dict[str, Any]
) -> None:
    kept = copy.deepcopy(item(committed, "gzip-stored")["kafka"])
    assert kept
    assert item(build.merge(theme, committed), "gzip-stored")["kafka"] == kept
    item(committed, "gzip-stored")["hex"] = "00"
    assert item(build.merge(theme, committed), "gzip-stored")["kafka"] == {}


def test_a_vector_without_a_recipe_is_never_touched(theme: Theme, committed: dict[str, Any]) -> None:
    crash = {**item(committed, "gzip-cut"), "id": "records/v2/codec/a-kept-crash", "hex": "00ff", "flags": ["Kept"]}
    committed["vectors"].insert(0, crash)
    committed["flags"]["Kept"] = {"bug_type": "crash", "description": "d", "effect": "e"}
    after = build.merge(theme, committed)
    assert item(after, "a-kept-crash") == crash
    assert after["flags"]["Kept"] == committed["flags"]["Kept"]


@pytest.mark.usefixtures("some_themes")
def test_build_writes_a_new_suite_whole_and_a_second_build_changes_nothing(tmp_path: Path) -> None:
    first = build.build(tmp_path)
    assert {file.changes for file in first} == {("the file is missing",)}
    build.write(tmp_path, first)
    second = build.build(tmp_path)
    assert [file.changes for file in second if file.changes] == []
    made = registered(tmp_path)
    assert len(made) > 100
    assert made.items() <= registered(default_root()).items()
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("summary", "write", "change"),
    [
        ("another", build.canonical_json, "records/framing/empty: summary differs"),
        (None, lambda document: json.dumps(document).encode(), "not in canonical form"),
    ],
)
@pytest.mark.usefixtures("some_themes")
def test_build_names_what_changed(
    summary: str | None, write: Callable[[Any], bytes], change: str, tmp_path: Path
) -> None:
    shutil.copytree(default_root(), tmp_path / "suite")
    path = tmp_path / "suite" / "records" / "framing.json"
    document = json.loads(path.read_bytes())
    item(document, "empty")["summary"] = summary or item(document, "empty")["summary"]
    path.write_bytes(write(document))
    (changed,) = [file for file in build.build(tmp_path / "suite") if file.changes]
    assert changed.changes == (change,)


def test_two_recipes_of_one_id_are_refused() -> None:
    made = Theme("records/v2/twice", "about")
    for _ in range(2):
        made.valid("same", "summary", batch(Record()), requirements=["RB-HEADER-1"])
    with pytest.raises(UsageError, match="two recipes"):
        build.merge(made, None)


def test_the_register_only_grows(tmp_path: Path) -> None:
    first, second, third, fourth = (digit * 16 for digit in "1239")
    register(tmp_path, {"b/2": second, "a/1": first})
    register(tmp_path, {"c/3": third, "a/1": fourth})
    assert (tmp_path / "ids.txt").read_text() == f"a/1 {first}\nb/2 {second}\nc/3 {third}\n"
    assert registered(tmp_path) == {"a/1": first, "b/2": second, "c/3": third}


@pytest.mark.parametrize("line", ["a/1 1111", "no-folder 1111111111111111", "<<<<<<< ours", "a/1 " + "1" * 17])
def test_a_broken_register_is_not_written_again(tmp_path: Path, line: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_text(before := f"{line}\nb/2 {'2' * 16}\n")
    with pytest.raises(UsageError, match=r"ids\.txt: the line .* is not an id with a digest"):
        register(tmp_path, {"c/3": "3" * 16})
    assert path.read_text() == before


def test_every_id_of_the_committed_suite_is_registered_with_the_digest_of_its_bytes() -> None:
    given = registered(default_root())
    items = [item for file in load_files() for item in file.document["vectors"]]
    assert given == {item["id"]: digest_of(item) for item in items}
    assert len(given) > 3000


def test_the_digest_of_a_stream_tells_its_steps_apart() -> None:
    digests = {
        digest_of({"steps": [{"hex": digits} for digits in steps]}) for steps in (["00", "11"], ["0011"], ["0011", ""])
    }
    assert len(digests) == 3
    assert digest_of({"recipe": "x", "sha256": "ab" * 32, "size": 1}) == "ab" * 8


# --- confirmation ---------------------------------------------------------------------------------------------------


def accepted(vector_id: str) -> dict[str, Any]:
    (vector,) = load_suite(vector_id)
    consumer = copy.deepcopy(dict(vector.expect["consumer"]))
    return {"id": vector_id, "outcome": "accepted", "consumed": consumer["consumed"], "batches": consumer["batches"]}


VALID, INVALID, ACCEPTABLE = (
    "records/v2/header/minimal",
    "records/v2/count/negative-one",
    "records/v2/count/zero-with-record",
)


@pytest.mark.parametrize(
    ("vector_id", "answer", "sentence"),
    [
        (VALID, {"outcome": "rejected", "error": "no"}, "it is valid, but Kafka's answer is rejected: no"),
        (VALID, {"outcome": "fault", "error": "OutOfMemoryError"}, "it is valid, but Kafka's answer is fault"),
        (VALID, {"consumed": 69}, "Kafka consumed 69 bytes"),
        (VALID, {"batches": []}, "batches has 0 entries; expected 1"),
        (INVALID, {"outcome": "accepted"}, "it is invalid, but Kafka accepts it"),
        (ACCEPTABLE, {"batches": [{}]}, "batches[0]."),
        (INVALID, {"outcome": "rejected"}, None),
        (INVALID, {"outcome": "fault"}, None),
        (ACCEPTABLE, {"outcome": "rejected"}, None),
        (ACCEPTABLE, {}, None),
        (VALID, {}, None),
    ],
)
def test_kafkas_answer_confirms_or_contradicts(vector_id: str, answer: dict[str, Any], sentence: str | None) -> None:
    (vector,) = load_suite(vector_id)
    said = {**(accepted(vector_id) if vector_id != INVALID else {}), **answer}
    found = contradiction(vector, said)
    assert (found is None) if sentence is None else (found is not None and sentence in found)


def test_one_wrong_timestamp_is_found_and_named() -> None:
    right = accepted(VALID)["batches"]
    wrong = copy.deepcopy(right)
    wrong[0]["records"][0]["timestamp"] = "1"
    assert first_difference(wrong, right) == "batches[0].records[0].timestamp is '1'; expected '1700000000000'"
    assert first_difference(right, right) is None


def test_a_large_value_may_be_given_by_its_digest() -> None:
    value = bytes(70_000)
    digest = {"sha256": hashlib.sha256(value).hexdigest(), "size": 70_000}
    assert first_difference({"value": value.hex()}, {"value": digest}) is None
    assert first_difference({"value": value.hex()}, {"value": {**digest, "size": 1}}) is not None


def test_a_build_drops_the_answers_of_a_release_that_kfuzz_no_longer_knows() -> None:
    theme = next(iter(build.all_themes()))
    committed = build.merge(theme, None)
    committed["vectors"][0]["kafka"] = {"4.4.0": {"consumer": "accepted"}, "4.3.1": {"broker": "rejected"}}
    assert build.merge(theme, committed)["vectors"][0]["kafka"] == {"4.4.0": {"consumer": "accepted"}}


def test_cells_hold_what_each_version_said_last_and_keep_the_other_roles() -> None:
    before = {"4.4.0": {"consumer": "accepted", "broker": "accepted"}, "4.3.1": {"recovery": "kept"}}
    document = {"vectors": [{"id": "a/b", "kafka": before}]}
    after = with_cells(document, {"4.4.0": {"a/b": {"outcome": "rejected"}}}, "broker")
    assert after["vectors"][0]["kafka"] == {
        "4.4.0": {"consumer": "accepted", "broker": "rejected"},
        "4.3.1": {"recovery": "kept"},
    }


def test_a_vector_of_several_roles_says_what_each_makes_of_it() -> None:
    made = Theme("records/v2/roles", "about")
    two = concat(batch(Record()), batch(Record(), base_offset=1))
    made.valid("two-batches", "s", two, requirements=["RB-HEADER-1"], broker=refuses("batch-count"), log=accepts())
    expect = made.recipes[0].document["expect"]
    assert expect["broker"] == {"verdict": "invalid", "finding": "batch-count"}
    assert expect["log"] == expect["consumer"]


def test_a_stream_has_its_bytes_and_expectations_in_its_steps(tmp_path: Path) -> None:
    made = Theme("stream/sequence", "about", kind="stream")
    refused = {
        "verdict": "invalid",
        "outcome": "rejected",
        "error": "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "finding": "sequence-gap",
        "last_stable_offset": "1",
    }
    steps = [
        Step(
            batch(Record()),
            {"broker": {"verdict": "valid", "outcome": "appended", "base_offset": "0", "last_stable_offset": "1"}},
        ),
        Step(batch(Record()), {"broker": refused}),
    ]
    made.stream("gap", "s", *steps, requirements=["SEQ-ORDER-1"], aborted=[(4000, 7)], isolation="read_committed")
    path = tmp_path / "sequence.json"
    path.write_bytes(build.canonical_json(build.merge(made, None)))
    (vector,) = load_file(path).vectors
    assert [step["hex"] for step in vector.steps] == [step.raw.data.hex() for step in steps]
    assert vector.data == steps[0].raw.data + steps[1].raw.data
    assert vector.expect == {}
    assert vector.options == {"isolation": "read_committed", "aborted": [{"producer_id": "4000", "first_offset": "7"}]}
    assert [(role, found["verdict"]) for role, found in expectations(vector)] == [
        ("broker", "valid"),
        ("broker", "invalid"),
    ]


# --- what recipes are made of ---------------------------------------------------------------------------------------


READERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "snappy": lambda stream: snappy.decompress(stream[20:]),
    "lz4": lz4.frame.decompress,
    "zstd": lambda stream: zstandard.ZstdDecompressor().decompressobj().decompress(stream),
}


@pytest.mark.parametrize("size", [0, 1, 15, 16, 61, 300, 5000])
@pytest.mark.parametrize("codec", READERS)
def test_streams_written_by_hand_are_read_by_the_usual_libraries(codec: str, size: int) -> None:
    data = bytes(index * 7 % 256 for index in range(size))
    assert READERS[codec](containers.stored(codec, data)) == data


@pytest.mark.parametrize("zeros", [30, 258, 4 * bombs.MIB, 5 * bombs.MIB + 77])
@pytest.mark.parametrize("codec", bombs.ZEROS)
def test_bombs_hold_the_zeros_that_they_promise(codec: str, zeros: int) -> None:
    assert READERS[codec](bombs.ZEROS[codec](b"abc", zeros, b"z")) == b"abc" + bytes(zeros) + b"z"


def test_the_digest_of_a_large_value_is_that_of_its_zeros() -> None:
    assert hashlib.sha256(bytes(bombs.VALUE_BYTES)).hexdigest() == bombs.VALUE_SHA256


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-64, "7f"), (-65, "8101"), (2**31 - 1, "feffffff0f")],
)
def test_varints_are_zigzag_and_as_short_as_can_be(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


def test_an_overlong_varint_differs_in_length_alone() -> None:
    assert overlong(1, 5).hex() == "8280808000"
    assert overlong(64, 2) == varint(64)


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no lenght"):
        Record(raw={"lenght": b""}).encode()
    with pytest.raises(ValueError, match="no recordcount"):
        batch(Record(), recordcount=1)
    with pytest.raises(ValueError, match="hostile, but not set: crc"):
        batch(Record(), hostile=["crc"])
