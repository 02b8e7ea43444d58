"""Adds a vector without a recipe to a suite: kept bytes, such as a crash that a campaign found.

A build never touches such a vector. Nothing here writes: :func:`files_with` returns the files to write, so that a
caller can write all of them or none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.vectors import pages
from kfuzz.vectors.building import canonical_json
from kfuzz.vectors.coverage import COVERAGE_FILE, measure
from kfuzz.vectors.ids import ID, REGISTER_FILE, digest_of, registered, with_digests
from kfuzz.vectors.model import (
    Vector,
    load_file,
    load_files,
    load_requirements,
    parse_document,
    suite_file,
    suite_paths,
    vectors_of,
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a new vector goes: the file of the suite under ``root``, and its document so far."""

    root: Path
    path: Path
    document: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the file's vectors."""
        return str(self.document["kind"])

    @property
    def digests(self) -> dict[str, str]:
        """The ids of the file's vectors by the digest of their bytes."""
        return {digest_of(item): item["id"] for item in self.document["vectors"]}


def place_of(root: Path, id: str, new: Mapping[str, Any] | None = None) -> Place:
    """The place of a new vector. ``UsageError`` for an id that cannot be given: it has another form, it was given
    before, or there is no file for it, and no document ``new`` for a new file.
    """
    if not ID.fullmatch(id):
        raise UsageError(
            f"{id!r} is not the form of an id; use words of lower-case letters and digits, with - between them, "
            "such as records/v2/count/negative-one"
        )
    theme, _, slug = id.rpartition("/")
    if slug.isdigit():
        raise UsageError(f"the id {id!r} ends in a number; give it a name")
    path = root / f"{theme}.json"
    if other := next((one for one in (root, path.parent) if one.exists() and not one.is_dir()), None):
        raise UsageError(f"{other} is not a folder; name one")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file; remove it, or choose another id")
    if not path.exists() and new is None:
        themes = [one.relative_to(root).with_suffix("").as_posix() for one in suite_paths(root)]
        near = difflib.get_close_matches(theme, themes, n=1)
        hint = f"did you mean {near[0]}/{slug}? " if near else ""
        raise UsageError(
            f"{path} does not exist; {hint}a vector goes to a file that is there, and docs/vectors.md says how to "
            "write a new theme"
        )
    if id in registered(root):
        raise UsageError(f"the id {id!r} was given before, and ids are permanent; choose another one")
    return Place(root, path, load_file(path).document if new is None or path.exists() else new)


def vector_with(place: Place, item: Mapping[str, Any]) -> Vector:
    """The new vector, parsed. ``UsageError`` if its flags or requirements are unknown, or if the file has another
    vector with its summary or its bytes.
    """
    for flag in item["flags"]:
        if flag not in place.document["flags"]:
            known = ", ".join(sorted(place.document["flags"])) or "none"
            raise UsageError(f"{place.path.name} explains no flag {flag!r}; its flags are {known}")
    known_requirements, _ = load_requirements(place.root)
    for name in item["requirements"]:
        if name not in known_requirements:
            near = difflib.get_close_matches(name, known_requirements, n=1)
            hint = f"did you mean {near[0]}?" if near else "vectors/requirements.json has all of them"
            raise UsageError(f"there is no requirement {name!r}; {hint}")
    same = place.digests.get(digest_of(item))
    if same is not None:
        raise UsageError(f"the vector {same} has these bytes already; nothing is left to keep")
    for other in place.document["vectors"]:
        if other["summary"] == item["summary"]:
            raise UsageError(f"{other['id']} has the same summary; give another one with --summary")
    [vector] = vectors_of(place.path, _document_with(place, item), {item["id"]})
    return vector


def files_with(place: Place, item: Mapping[str, Any]) -> dict[Path, bytes]:
    """The files to write so that the suite has the vector ``item``: its file, the register of ids, and the page in
    ``docs/`` that counts the vectors. ``UsageError`` if the vector breaks the schema.
    """
    document = _document_with(place, item)
    content = canonical_json(document)
    parse_document(place.path, content)
    written = {place.path: content}
    register = with_digests(place.root, {item["id"]: digest_of(item)})
    if register is not None:
        written[place.root / REGISTER_FILE] = register
    if (place.root / COVERAGE_FILE).is_file():
        files = [
            suite_file(place.path, document) if file.path == place.path else file for file in load_files(place.root)
        ]
        written |= pages.changed(place.root, measure(place.root, files))
    return written


def _document_with(place: Place, item: Mapping[str, Any]) -> Json:
    vectors: Sequence[Mapping[str, Any]] = [*place.document["vectors"], item]
    return {**place.document, "vectors": sorted(vectors, key=lambda vector: str(vector["id"]))}
