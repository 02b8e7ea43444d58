"""Where schemas come from: a file, a folder, or the records of a ``_schemas`` topic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kfuzz.documents import DEPTH_MAX, load_json
from kfuzz.errors import UsageError
from kfuzz.files import local_path, read_small

SCHEMA_BYTES_MAX: Final = 1 << 20
ANSWER_BYTES_MAX: Final = 4 << 20
FILES_MAX: Final = 100_000
REFERENCES_MAX: Final = 500
SUFFIXES: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".schema.json": "JSON"}
ID: Final = re.compile(r"\d{1,18}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Schema:
    """A schema's text. ``kind`` is AVRO, PROTOBUF or JSON; ``references`` are the names, subjects and versions of the
    schemas that it needs in its store, ``needed`` the names and texts of those that are known without one, in the order
    of their use. ``indexes`` are Protobuf's message indexes of values that have none; ``name`` is for sentences.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    name: str = field(default="the schema", compare=False)
    needed: tuple[tuple[str, str], ...] = ()
    indexes: bytes = b"\0"


@dataclass
class Store:
    """The schemas of a folder or of a topic, by id (a number, or a GUID in lower case) and by subject and version.

    ``is_whole``: no value has another id.
    """

    place: str
    ids: dict[int | str, Schema] = field(default_factory=dict)
    versions: dict[tuple[str, int], Schema] = field(default_factory=dict)
    is_whole: bool = False

    def find(self, key: int | str) -> Schema | None:
        """The schema with this id; None if there is none."""
        return self.ids.get(key)

    def version(self, subject: str, version: int) -> Schema | None:
        """The schema that is this version of a subject; None if there is none."""
        return self.versions.get((subject, version))

    def add(self, answer: Any, stem: str = "") -> None:
        """Add the schemas of a registry's answer, or of a record of ``_schemas``; nothing else is an error.

        ``stem`` is the name of the answer's file, which may be the id if the answer has none.
        """
        if isinstance(answer, list):
            for one in answer:
                self.add(one)
        elif (schema := schema_of(answer)) is not None:
            # The file of an answer for a subject is named after the version.
            number = answer.get("id", int(stem) if stem.isdigit() else stem)
            for key in (number, answer.get("guid")):
                if isinstance(key, int | str) and not isinstance(key, bool) and key != "":
                    self.ids[key.lower() if isinstance(key, str) else key] = schema
            if isinstance(answer.get("subject"), str) and isinstance(answer.get("version"), int):
                self.versions[answer["subject"], answer["version"]] = schema

    def needed(self, schema: Schema, done: dict[str, Schema] | None = None, depth: int = 0) -> dict[str, Schema]:
        """The schemas that ``schema`` refers to, by their names, each after those that it needs itself."""
        done = {} if done is None else done
        for name, subject, version in schema.references:
            if depth > DEPTH_MAX or len(done) > REFERENCES_MAX:
                raise UsageError("it refers to itself, or to too many other schemas")
            if (found := self.version(subject, version)) is None:
                raise UsageError(f"{subject} version {version}, to which it refers, is not in {self.place}")
            if name not in done:
                self.needed(found, done, depth + 1)
                done[name] = found
        return done


def schema_of(answer: Any) -> Schema | None:
    """The schema in an object as a registry answers it, and keeps it in ``_schemas``; None if it is none."""
    if not isinstance(answer, dict) or not isinstance(text := answer.get("schema"), str):
        return None
    kind = answer.get("schemaType") or "AVRO"
    found = answer.get("references") or ()
    try:
        references = tuple((str(one["name"]), str(one["subject"]), int(one["version"])) for one in found)
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return Schema(kind, text, references) if isinstance(kind, str) and len(text) <= SCHEMA_BYTES_MAX else None


def of_file(path: Path, *, follow: bool = True) -> Schema:
    """The schema in a file, whose suffix says its kind."""
    kind = next((kind for suffix, kind in SUFFIXES.items() if path.name.endswith(suffix)), None)
    if kind is None:
        raise UsageError(f"{path} is no schema by its name; give it one that ends with {', '.join(SUFFIXES)}")
    data = read_small(path, bytes_max=SCHEMA_BYTES_MAX, follow=follow)
    try:
        return Schema(kind, data.decode("utf-8-sig"), name=str(path))
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a schema: it is not UTF-8; name another file") from None


def of_folder(folder: Path) -> Store:
    """The schemas that a folder has at any depth.

    They are files named by their ids (``42.avsc``, ``42.proto``, ``42.schema.json``), and a registry's answers
    (``.json``), which name theirs: those to ``/schemas``, ``/schemas/ids/42`` (as ``42.json``) and
    ``/subjects/orders-value/versions/1``.
    """
    store = Store(str(folder))
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number == FILES_MAX:
            raise UsageError(f"{folder} has more than {FILES_MAX} files; name a folder with schemas only")
        stem = path.name.partition(".")[0].lower()
        if path.is_symlink() or not path.is_file():
            continue
        if path.name.endswith(tuple(SUFFIXES)) and ID.fullmatch(stem):
            store.ids[int(stem) if stem.isdigit() else stem] = of_file(path, follow=False)
        elif path.suffix == ".json":
            answer = load_json(read_small(path, bytes_max=ANSWER_BYTES_MAX), str(path))
            store.add(answer, stem if ID.fullmatch(stem) else "")
    if not store.ids:
        raise UsageError(f"{folder} has no schema with an id; name files after their ids, such as 42.avsc")
    return store


def of_records(place: str, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> Store:
    """The schemas in the keys and values of a topic ``_schemas``, also deleted ones: older values need them."""
    store = Store(place)
    for key, value in pairs:
        # Other records are about the registry's settings.
        if key is not None and value is not None and b'"SCHEMA"' in key:
            try:
                store.add(load_json(value, place, bytes_max=ANSWER_BYTES_MAX))
            except UsageError:
                continue
    return store


def store_of(place: str) -> Store | Schema:
    """The schemas of a folder, or the schema of a file."""
    path = local_path(place)
    return of_folder(path) if path.is_dir() else of_file(path)
