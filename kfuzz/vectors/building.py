"""Build the vector files from the recipes.

Three things come from the committed files, because no recipe can make them: compressed bytes (another library version
makes different ones), the answers of Apache Kafka, and vectors without a recipe (a kept crash). A build keeps them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.kafka import BROKER_RELEASE, RELEASES
from kfuzz.vectors.ids import digest_of, register
from kfuzz.vectors.kinds import FRAMES, QUESTION
from kfuzz.vectors.model import FORMAT, Vector, parse_document, vectors_of
from kfuzz.vectors.recipes.theme import Recipe, Theme
from kfuzz.vectors.recipes.themes import all_themes

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Built:
    """One file as the recipes make it. ``committed`` is None for a new file; ``changes`` is empty for an equal one."""

    path: Path
    document: Json
    committed: bytes | None
    changes: tuple[str, ...]

    @property
    def content(self) -> bytes:
        """The bytes that the file should have."""
        return canonical_json(self.document)

    @property
    def vectors(self) -> tuple[Vector, ...]:
        """The file's vectors, parsed."""
        return vectors_of(self.path, self.document)


def canonical_json(document: Any) -> bytes:
    """JSON in the only form used for vector files: sorted keys, two spaces, UTF-8, one newline at the end."""
    return (json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode()


def build(root: Path) -> tuple[Built, ...]:
    """Every theme's file as it should be under ``root``; writes nothing."""
    return tuple(_built(root, theme) for theme in all_themes())


def write(root: Path, files: Sequence[Built]) -> None:
    """Write the files that changed, each one atomically, and register their vectors' ids and digests."""
    for file in files:
        if file.content != file.committed:
            write_whole(file.path, file.content)
    register(root, {vector["id"]: digest_of(vector) for file in files for vector in file.document["vectors"]})


def _built(root: Path, theme: Theme) -> Built:
    path = root / f"{theme.path}.json"
    committed = read_bytes(path) if path.is_file() else None
    before = parse_document(path, committed) if committed is not None else None
    document = merge(theme, before)
    content = canonical_json(document)
    changes = () if content == committed else _changes(before, document)
    return Built(path, document, committed, changes)


def merge(theme: Theme, before: Mapping[str, Any] | None) -> Json:
    """The theme's document, plus the parts that only the committed document (``before``) has."""
    kept = {item["id"]: _of_known_releases(item) for item in before["vectors"]} if before else {}
    made: dict[str, Json] = {}
    for recipe in theme.recipes:
        if recipe.id in made:
            raise UsageError(f"two recipes of {theme.path} make {recipe.id!r}; rename one of them")
        made[recipe.id] = _vector(recipe, kept.get(recipe.id))
    flags = {**(before["flags"] if before else {}), **theme.flags}
    vectors = sorted(
        [*made.values(), *(item for name, item in kept.items() if name not in made)], key=lambda v: v["id"]
    )
    used = {flag for vector in vectors for flag in vector["flags"]}
    return {
        "about": theme.about,
        "flags": {name: flag for name, flag in flags.items() if name in used},
        "format": FORMAT,
        "kind": theme.kind,
        "vectors": vectors,
    }


def _of_known_releases(item: Mapping[str, Any]) -> Json:
    """The vector without the answers of a release that kfuzz does not know any more."""
    known = (*RELEASES, BROKER_RELEASE)
    return {**item, "kafka": {name: cell for name, cell in item["kafka"].items() if name in known}}


def _vector(recipe: Recipe, committed: Mapping[str, Any] | None) -> Json:
    if committed is None:
        return recipe.to_json(recipe.data, {})
    data = recipe.data
    if recipe.by_content and "hex" in committed:
        before = bytes.fromhex(committed["hex"])
        if before != data and same_contents(before, data):
            data = before
            recipe = _with_places_of(recipe, committed)
    made = recipe.to_json(data, {})
    # Kafka's answers are about exact bytes; changed bytes have no answers yet.
    same = all(made.get(name) == committed.get(name) for name in ("hex", "sha256"))
    same = same and _steps_bytes(made) == _steps_bytes(committed)
    # And about exact questions.
    same = same and all(made.get(name) == committed.get(name) for name in QUESTION)
    frames = {FRAMES: committed[FRAMES]} if same and FRAMES in committed else {}
    return {**made, **frames, "kafka": committed["kafka"] if same else {}}


def _steps_bytes(item: Mapping[str, Any]) -> list[str]:
    return [step["hex"] for step in item.get("steps", ())]


def _with_places_of(recipe: Recipe, committed: Mapping[str, Any]) -> Recipe:
    """The recipe with the committed layout and ``consumed``: another compressor's stream has another length."""
    document = {**recipe.document, "layout": committed["layout"]}
    document["expect"] = {
        role: {**expectation, **_consumed(committed["expect"].get(role, committed["expect"]["consumer"]))}
        if "consumed" in expectation
        else expectation
        for role, expectation in document["expect"].items()
    }
    return Recipe(document, recipe.data, recipe.by_content, recipe.bomb)


def _consumed(expectation: Mapping[str, Any]) -> Json:
    return {"consumed": expectation["consumed"]} if "consumed" in expectation else {}


def same_contents(first: bytes, second: bytes) -> bool:
    """Whether two buffers differ only in the compression of their payloads."""
    from kfuzz import records

    readings = [records.read(data) for data in (first, second)]
    if any(
        reading.fatal or reading.consumed != len(data) for reading, data in zip(readings, (first, second), strict=True)
    ):
        return False
    return bool(readings[0].batches == readings[1].batches)


def _changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """The differences, one line per vector, in the order of the file; never empty for bytes that differ."""
    if before is None:
        return ("the file is missing",)
    old = {item["id"]: item for item in before["vectors"]}
    changes = []
    for vector in after["vectors"]:
        committed = old.get(vector["id"])
        if committed is None:
            changes.append(f"{vector['id']}: missing")
        elif committed != vector:
            names = sorted(name for name in {*committed, *vector} if committed.get(name) != vector.get(name))
            changes.append(f"{vector['id']}: {', '.join(names)} differ" + ("s" if len(names) == 1 else ""))
    changes += [f"{name} differs" for name in ("about", "flags", "kind") if before[name] != after[name]]
    return tuple(changes) or ("not in canonical form",)
