"""Loading vector files: what breaks the schema or the JSON is one sentence with file, place and remedy."""

from __future__ import annotations

import doctest
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mini_suite
import pytest

from kfuzz import vectors
from kfuzz.errors import UsageError
from kfuzz.vectors import find_vector, load_files, model
from kfuzz.vectors.linting import lint
from kfuzz.vectors.model import default_root, load_file, load_suite


def test_the_committed_suite_loads_sorted() -> None:
    ids = [vector.id for vector in load_suite()]
    assert ids == sorted(ids)


def test_globs_choose_by_id_and_each_must_match() -> None:
    chosen = load_suite(["records/v2/count/of-*", "records/v2/bomb/zstd-*"])
    assert {vector.id.split("/")[2] for vector in chosen} == {"count", "bomb"}
    with pytest.raises(UsageError, match="no vector matches 'records/v3/"):
        load_suite(["records/v2/*", "records/v3/*"])


def test_a_bomb_is_made_by_its_recipe_and_is_not_in_the_file() -> None:
    (bomb,) = load_suite("records/v2/bomb/zstd-2gib-behind-record")
    assert len(bomb.data) == 65618
    assert bomb.data.hex()[:200] not in bomb.file.read_text()


def test_importing_the_model_loads_no_codec_no_reader_and_no_schema_library() -> None:
    heavy = (
        "[name for name in ('jsonschema', 'kfuzz.records', 'kfuzz.wire', 'lz4', 'zstandard') if name in sys.modules]"
    )
    code = f"import sys, kfuzz.vectors; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_examples_of_the_door_hold() -> None:
    done = doctest.testmod(vectors)
    assert (done.failed, done.attempted > 5) == (0, True)


# --- the schema -----------------------------------------------------------------------------------------------------


def first(document: dict[str, Any]) -> dict[str, Any]:
    vector: dict[str, Any] = document["vectors"][0]
    return vector


def consumer(document: dict[str, Any]) -> dict[str, Any]:
    return next(v["expect"]["consumer"] for v in document["vectors"] if "batches" in v["expect"]["consumer"])


PLACES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "document": lambda document: document,
    "flag": lambda document: next(iter(document["flags"].values())),
    "vector": first,
    "layout": lambda document: next(v["layout"][0] for v in document["vectors"] if v["layout"]),
    "expectation": consumer,
    "batch": lambda document: consumer(document)["batches"][0],
    "record": lambda document: consumer(document)["batches"][0]["records"][0],
    "budget": lambda document: next(v["budget"] for v in document["vectors"] if "budget" in v),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_schema_refuses_an_unknown_property(place: str, tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path, lambda document: PLACES[place](document).update(surprise=1))
    with pytest.raises(UsageError, match="surprise"):
        load_file(root / mini_suite.FILE)


def set_in(
    place: Callable[[dict[str, Any]], dict[str, Any]], name: str, value: Any
) -> Callable[[dict[str, Any]], None]:
    return lambda document: place(document).update({name: value})


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "odd-hex": (set_in(first, "hex", "abc"), r"vectors\[0\]\.hex"),
    "upper-case-hex": (set_in(first, "hex", "AB"), r"vectors\[0\]\.hex"),
    "hex-and-recipe": (
        lambda d: first(d).update(recipe="zstd-value-96mib", size=1, sha256="0" * 64),
        r"vectors\[0\]",
    ),
    "recipe-without-digest": (lambda d: (first(d).pop("hex"), first(d).update(recipe="x")), "sha256"),
    "neither-hex-nor-recipe": (lambda d: first(d).pop("hex"), r"vectors\[0\]"),
    "unknown-level": (set_in(first, "level", "optional"), r"vectors\[0\]\.level"),
    "id-with-space": (set_in(first, "id", "records/v2/a b"), r"vectors\[0\]\.id"),
    "id-of-one-word": (set_in(first, "id", "records"), r"vectors\[0\]\.id"),
    "no-requirement": (set_in(first, "requirements", []), r"vectors\[0\]\.requirements"),
    "unknown-role": (lambda d: first(d)["expect"].update(cook={"verdict": "valid"}), r"vectors\[0\]\.expect"),
    "unknown-verdict": (lambda d: consumer(d).update(verdict="good"), "verdict"),
    "valid-without-contents": (lambda d: consumer(d).pop("batches"), "batches"),
    "valid-without-consumed": (lambda d: consumer(d).pop("consumed"), "consumed"),
    "valid-with-finding": (lambda d: consumer(d).update(finding="crc-mismatch"), "finding"),
    "invalid-without-finding": (
        lambda d: next(
            v["expect"]["consumer"] for v in d["vectors"] if v["expect"]["consumer"]["verdict"] == "invalid"
        ).pop("finding"),
        "'finding' is a required property",
    ),
    "int64-as-number": (lambda d: consumer(d)["batches"][0].update(base_offset=0), "base_offset"),
    "int64-with-leading-zero": (lambda d: consumer(d)["batches"][0].update(base_offset="007"), "base_offset"),
    "batch-without-magic": (lambda d: consumer(d)["batches"][0].pop("magic"), "magic"),
    "header-of-three": (
        lambda d: consumer(d)["batches"][0]["records"][0].update(headers=[["a", "00", "b"]]),
        "headers",
    ),
    "cell-of-another-word": (lambda d: first(d).update(kafka={"4.4.0": {"consumer": "ok"}}), "kafka"),
    "another-format": (lambda d: d.update(format="kfuzz-vectors/2"), "format"),
    "unknown-kind": (lambda d: d.update(kind="soup"), "kind"),
    "cve-of-another-form": (lambda d: next(iter(d["flags"].values())).update(cves=["2022-1"]), "cves"),
    "no-vector": (lambda d: d.update(vectors=[]), "vectors"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_schema_names_the_place_that_is_wrong(case: str, tmp_path: Path) -> None:
    spoil, place = WRONG[case]
    path = mini_suite.write(tmp_path, spoil) / mini_suite.FILE
    with pytest.raises(UsageError, match=place) as caught:
        load_file(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < 500


# --- broken files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not JSON: line 1, column 1: "),
        (b'{"about": ', "not JSON: line 1, column 11: "),
        (b"\xff\xfe{}", "byte 0 is not UTF-8"),
        (b'{"about": "a", "about": "b"}', "the name 'about' occurs twice"),
        (b"[]", "the document: "),
        (b"null", "the document: "),
        (b"[" * 100_000, "nested deeper than 100 levels"),
        (b'{"size": ' + b"9" * 5000 + b"}", "a number has too many digits"),
        (b'{"about": "\\ud800"}', "has half of a character"),
        (b"[]" + b" " * (16 << 20), "is larger than 16777216 bytes"),
        (bytes(range(256)), "not UTF-8"),
    ],
)
def test_a_file_that_is_no_vector_file_is_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "records" / "broken.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_suite(root=tmp_path)
    assert str(path) in str(caught.value)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b'{"about": ', b"[]", b'{"vectors": [{}]}', b'{"kind": "records", "vectors": 7}'])
def test_a_spoiled_file_of_the_own_suite_is_one_sentence_too(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(default_root() / "schema.json", tmp_path)
    root = mini_suite.write(tmp_path)
    monkeypatch.setattr(model, "default_root", lambda: root)
    (root / mini_suite.FILE).write_bytes(content)
    for load in (load_suite, load_files, lambda: find_vector("records/v2/count/of-2")):
        with pytest.raises(UsageError) as caught:
            load()
        assert str(caught.value).startswith(str(root / mini_suite.FILE))


def test_a_place_without_vectors_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no vector file"):
        load_suite(root=tmp_path)
    with pytest.raises(UsageError, match="is not a directory"):
        load_suite(root=tmp_path / "missing")


def test_an_id_that_is_given_twice_names_both_files(tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path)
    twin = root / "records" / "v2" / "twin.json"
    twin.write_bytes((root / mini_suite.FILE).read_bytes())
    with pytest.raises(UsageError, match=r"twin\.json.*count\.json|count\.json.*twin\.json"):
        load_suite(root=root)


def test_a_recipe_that_makes_other_bytes_is_refused(tmp_path: Path) -> None:
    document = json.loads((default_root() / "records/v2/bomb.json").read_bytes())
    document["vectors"] = [v for v in document["vectors"] if v["recipe"] == "zstd-value-96mib"]
    document["vectors"][0]["sha256"] = "0" * 64
    path = tmp_path / "records" / "bomb.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"bomb\.json: vectors\[0\]\.sha256: .*makes different bytes"):
        _ = load_file(path).vectors[0].data
    assert any("makes different bytes" in problem.text for problem in lint(tmp_path))
    document["vectors"][0]["recipe"] = "no-such-bomb"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="no recipe 'no-such-bomb'; known are"):
        _ = load_file(path).vectors[0].data
    assert any("no recipe 'no-such-bomb'" in problem.text for problem in lint(tmp_path))
