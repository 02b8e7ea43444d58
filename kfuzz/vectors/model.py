"""The vector model: the types, and how the committed suite is loaded and checked against its schema.

docs/vectors.md describes the file format; ``vectors/schema.json`` is its JSON Schema.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_small
from kfuzz.vectors.ids import matching, registered, remedy
from kfuzz.vectors.kinds import OPTIONS

FORMAT = "kfuzz-vectors/1"
# Files list the contents of up to this many records and headers; for more, they hold a digest.
CONTENT_RECORDS_MAX = 1000
SCHEMA_FILE = "schema.json"
# Holds the version of the suite.
SUITE_FILE = "suite.json"
REQUIREMENTS_FILE = "requirements.json"
EXPECTED_DIRECTORY = "expected"
EXAMPLES_DIRECTORY = "examples"
OTHER_DIRECTORIES = (EXPECTED_DIRECTORY, EXAMPLES_DIRECTORY)
# kfuzz's own files are far smaller.
FILE_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Flag:
    """The explanation of a flag: the kind of trap that is in every vector with this flag."""

    name: str
    bug_type: str
    description: str
    effect: str
    links: tuple[str, ...] = ()
    cves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bomb:
    """Bytes too large for a file; ``recipe`` builds them on first access."""

    recipe: str
    size: int
    sha256: str
    # The file and the place in it, for error messages.
    place: str

    @property
    def data(self) -> bytes:
        """The bytes. Raises ``UsageError`` if the recipe is unknown or its bytes do not match size and digest."""
        from kfuzz.vectors.recipes.making.bombs import BOMBS

        if self.recipe not in BOMBS:
            known = ", ".join(sorted(BOMBS))
            raise UsageError(f"{self.place}.recipe: no recipe {self.recipe!r}; known are {known}")
        data = BOMBS[self.recipe]()
        if len(data) != self.size or hashlib.sha256(data).hexdigest() != self.sha256:
            raise UsageError(
                f"{self.place}.sha256: the recipe {self.recipe!r} makes different bytes; run `kfuzz vectors build`"
            )
        return data


@dataclass(frozen=True, slots=True)
class Vector:
    """One vector: the bytes, and the result that each role must reach.

    A vector of kind ``records`` has expectations for the consumer, and for the broker and the log where they matter.
    ``expect[role]`` has ``verdict`` ("valid", "invalid", "acceptable"), ``finding`` (the code of the finding that
    causes a refusal), ``batches`` (the contents that a reader must return if it accepts, in the protocol's JSON form),
    ``alternatives`` (other permitted readings), ``partial_tail`` and ``consumed`` (end of the last complete batch).
    ``kafka[version][role]`` is the answer of Apache Kafka itself: "accepted", "rejected" or "fault". The cell of
    a real broker's release also has ``produce`` and ``error`` (of a Produce request) and ``recovery`` (of a segment at
    its start).
    ``budget`` limits the cost of judging the vector: ``memory_bytes`` and ``cpu_ms``.
    ``data`` is the bytes. The first access builds the bytes of a bomb, and also contents that the file holds only as
    a digest; ``size`` and all other fields need no build.
    In a vector of kind ``stream``, ``steps`` follow one another, each with ``hex`` and its own ``expect``. There
    ``data`` joins the bytes of all steps, ``expect`` is empty, and ``options`` may have the names in
    ``STREAM_OPTIONS``. In kind ``records``, ``options`` may have ``topic``: the broker configuration that its verdict
    depends on. In kind ``message``, ``options`` has the message's name and version, and ``expect`` has the one role
    "reader", with the contents as ``message`` instead of ``batches``. In kind ``primitive``, ``options`` names the
    ``primitive``, and the contents are ``value``. In kind ``conversation``, ``options`` has the ``application`` and
    what happens to it, ``expect`` has the one role "client", with what each of its ``acts`` gets and which requests
    follow, and ``data`` joins the frames that Kafka's own client and broker exchanged.
    """

    id: str
    kind: str
    summary: str
    level: str
    requirements: tuple[str, ...]
    flags: tuple[str, ...]
    source: bytes | Bomb
    canonical: bool
    layout: tuple[Mapping[str, Any], ...]
    expect: Mapping[str, Mapping[str, Any]]
    kafka: Mapping[str, Mapping[str, str]]
    budget: Mapping[str, int] | None
    file: Path
    steps: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The bytes. Raises ``UsageError`` if a bomb's recipe makes bytes that do not match the file."""
        return self.source if isinstance(self.source, bytes) else self.source.data

    @property
    def size(self) -> int:
        """The number of bytes, known without building them."""
        return len(self.source) if isinstance(self.source, bytes) else self.source.size


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """One file of the suite: ``document`` is its JSON, ``vectors`` the parsed vectors."""

    path: Path
    about: str
    flags: Mapping[str, Flag]
    vectors: tuple[Vector, ...]
    document: Mapping[str, Any]


def default_root() -> Path:
    """The folder of the committed suite: ``vectors/`` in the repository, or the copy inside an installed wheel."""
    here = Path(__file__).resolve().parent
    for root in (here.parent.parent / "vectors", here / "suite"):
        if (root / SCHEMA_FILE).is_file():
            return root
    raise UsageError(f"no vectors beside {here}; install kfuzz whole or name the suite's directory")


def suite_version(root: str | Path | None = None) -> str | None:
    """The suite's version, such as "1.0.0" (docs/suite-policy.md explains it); None if the suite declares none."""
    path = _root(root)[0] / SUITE_FILE
    if not path.is_file():
        return None
    try:
        return str(load_json(read_file(path), str(path))["version"])
    except (LookupError, TypeError):
        raise UsageError(f'{path} must be JSON such as {{"version": "1.0.0"}}; correct it') from None


def load_requirements(root: str | Path | None = None) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """A suite's requirements by id, and the titles of the documents that they come from by the documents' numbers."""
    path = _root(root)[0] / REQUIREMENTS_FILE
    if root is not None and not path.is_file():
        path = default_root() / REQUIREMENTS_FILE
    document = load_json(read_file(path), str(path))
    try:
        return {entry["id"]: entry for entry in document["requirements"]}, dict(document["documents"])
    except (LookupError, TypeError, ValueError):
        raise UsageError(f"{path} is not a table of requirements; see docs/vectors.md") from None


def load_suite(
    pattern: str | Sequence[str] = "*", root: str | Path | None = None, *, kinds: Collection[str] = ("records",)
) -> tuple[Vector, ...]:
    """The vectors of ``kinds`` whose id matches a glob in ``pattern`` (``*`` also matches ``/``), sorted by id.

    No bomb is built here. Raises ``UsageError`` for a file that breaks the schema, an id that occurs twice, and a glob
    without a match. kfuzz's own suite (no ``root``) is not checked against the schema again.
    """
    globs = [pattern] if isinstance(pattern, str) else list(pattern)
    documents = [(path, document) for path, document in _documents(root) if document["kind"] in kinds]
    chosen = matching(_ids(documents), globs)
    vectors = (vector for path, document in documents for vector in vectors_of(path, document, chosen))
    return tuple(sorted(vectors, key=lambda vector: vector.id))


def find_vector(name: str, root: str | Path | None = None) -> Vector:
    """The vector with this id, of any kind. Raises ``UsageError`` for an unknown id and suggests a similar one."""
    place, own = _root(root)
    # An id begins with its file's path, so reading one file is enough. Suites with other ids are read as a whole.
    path = place / f"{name.rpartition('/')[0]}.json"
    documents = [(path, _document(path, own))] if name in registered(place) and path.is_file() else _documents(root)
    for path, document in documents:
        for vector in vectors_of(path, document, {name}):
            return vector
    raise UsageError(f"{name!r} is not the id of a vector; {remedy(name, _ids(documents))}")


def has_vector(name: str) -> bool:
    """Whether an id or a glob matches a vector of kfuzz's own suite."""
    return bool(fnmatch.filter(_own_ids(), name))


@cache
def _own_ids() -> frozenset[str]:
    return frozenset(_ids(_documents(None)))


def _ids(documents: Iterable[tuple[Path, Mapping[str, Any]]]) -> set[str]:
    return {item["id"] for _, document in documents for item in document["vectors"]}


def load_files(root: str | Path | None = None) -> tuple[SuiteFile, ...]:
    """All files of the suite under ``root``, sorted by path. Raises ``UsageError`` as :func:`load_suite` does."""
    return tuple(suite_file(path, document) for path, document in _documents(root))


def _root(root: str | Path | None) -> tuple[Path, bool]:
    """The folder of a suite, and whether it is kfuzz's own suite."""
    place = default_root() if root is None else Path(root)
    return place, place.resolve() == default_root()


def _document(path: Path, own: bool) -> dict[str, Any]:
    # Skip the schema check for kfuzz's own suite: it takes seconds for each command, and lint does it already.
    if own:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            status = path.stat()
            return _own_document(path, (status.st_ino, status.st_mtime_ns, status.st_size))
    return parse_document(path, read_file(path))


@lru_cache(maxsize=256)
def _own_document(path: Path, _state: tuple[int, int, int]) -> dict[str, Any]:
    """A file of kfuzz's own suite, which one process reads once for as long as the file has this state."""
    document: dict[str, Any] = json.loads(read_file(path))
    return document


def _documents(given: str | Path | None) -> list[tuple[Path, dict[str, Any]]]:
    root, own = _root(given)
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory of vectors; name one that holds vector files")
    documents = [(path, _document(path, own)) for path in suite_paths(root)]
    if not documents:
        raise UsageError(f"{root} holds no vector file; name the suite's directory")
    first: dict[str, Path] = {}
    for path, document in documents:
        with _explained(path, document):
            _, names = document["kind"], [item["id"] for item in document["vectors"]]
        for name in names:
            if name in first:
                raise UsageError(f"{path}: the id {name!r} is also in {first[name]}; ids must be unique")
            first[name] = path
    return documents


def read_file(path: Path) -> bytes:
    """The content of a file of a suite; ``UsageError`` if it is no regular file, or too large."""
    # Some installers make links of a package's files.
    return read_small(path, bytes_max=FILE_BYTES_MAX, follow=path.is_relative_to(default_root()))


def suite_paths(root: Path) -> list[Path]:
    """The vector files under ``root``: every JSON file in a subdirectory, except the expected outcomes and the examples
    of a copy.
    """
    paths = (path for path in root.rglob("*.json") if path.parent != root)
    return sorted(path for path in paths if path.relative_to(root).parts[0] not in OTHER_DIRECTORIES)


def load_file(path: str | Path) -> SuiteFile:
    """One file of the suite, checked against the schema. A ``UsageError`` names the file, the place and the remedy."""
    path = Path(path)
    return suite_file(path, parse_document(path, read_file(path)))


def suite_file(path: Path, document: Mapping[str, Any]) -> SuiteFile:
    """The file of a checked document."""
    flags = {
        name: Flag(name, **flag | {key: tuple(flag.get(key, ())) for key in ("links", "cves")})
        for name, flag in document["flags"].items()
    }
    return SuiteFile(path, document["about"], flags, vectors_of(path, document), document)


def vectors_of(path: Path, document: Mapping[str, Any], ids: Set[str] | None = None) -> tuple[Vector, ...]:
    """The vectors of a checked document, in its order; if ``ids`` is given, only the vectors with those ids."""
    with _explained(path, document):
        kind = document["kind"]
        items = ((i, item) for i, item in enumerate(document["vectors"]) if ids is None or item["id"] in ids)
        return tuple(_vector(path, f"vectors[{i}]", kind, item) for i, item in items)


@contextlib.contextmanager
def _explained(path: Path, document: Any) -> Iterator[None]:
    """If reading an unchecked document fails, check it against the schema: that error names the place."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError):
        _check_schema(path, document)
        raise


def parse_document(path: Path, content: bytes) -> dict[str, Any]:
    """The JSON of a vector file, checked against the schema."""
    try:
        document = load_json(content, str(path), object_pairs_hook=_unique_names)
    except _RepeatedName as error:
        raise UsageError(f"{path}: the name {error} occurs twice in one object; keep one of them") from None
    # JSON can write half of a character, which no file and no terminal takes.
    if b"\\ud" in content.lower():
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UsageError(f"{path} has half of a character, such as \\ud800, in a text; correct it") from None
    _check_schema(path, document)
    checked: dict[str, Any] = document
    return checked


class _RepeatedName(Exception):
    """A name occurs twice in one JSON object. Without this error, the second value would silently win."""


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise _RepeatedName(repr(name))
        result[name] = value
    return result


@cache
def _validator() -> Any:
    import jsonschema

    schema = json.loads((default_root() / SCHEMA_FILE).read_bytes())
    return jsonschema.Draft202012Validator(schema)


def _check_schema(path: Path, document: Any) -> None:
    from jsonschema.exceptions import relevance

    errors = list(_validator().iter_errors(document))
    if not errors:
        return
    # Report the first place in the file. An alternative's own error says more than "matches none of them".
    error = min(errors, key=lambda error: [(isinstance(step, str), str(step), step) for step in error.absolute_path])
    while error.context:
        error = max(error.context, key=relevance)
    message = error.message if len(error.message) <= 200 else error.message[:200] + "…"
    raise UsageError(f"{path}: {_json_path(error.absolute_path)}: {message}; see {SCHEMA_FILE} beside the suite")


def _json_path(steps: Iterable[str | int]) -> str:
    """A path such as ``vectors[3].expect.consumer``; ``the document`` for the root."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the document"


def _vector(path: Path, place: str, kind: str, item: Mapping[str, Any]) -> Vector:
    return Vector(
        id=item["id"],
        kind=kind,
        summary=item["summary"],
        level=item["level"],
        requirements=tuple(item["requirements"]),
        flags=tuple(item["flags"]),
        source=_source(path, place, item),
        canonical=item["canonical"],
        layout=tuple(item["layout"]),
        expect=_expect(item),
        kafka=item["kafka"],
        budget=item.get("budget"),
        file=path,
        steps=tuple(item.get("steps", ())),
        options={name: item[name] for name in OPTIONS if name in item},
    )


def contents_digest(contents: Any) -> dict[str, Any]:
    """The replacement for contents that are too long for a file: SHA-256 and size of their compact JSON."""
    text = json.dumps(contents, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return {"sha256": hashlib.sha256(text).hexdigest(), "size": len(text)}


def _expect(item: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The expectations by role. If the file has only a digest of the contents, the recipe builds them on access."""
    expect = item.get("expect", {})
    return {
        role: _Made(expectation, item["recipe"]) if _has_digest(item, expectation) else expectation
        for role, expectation in expect.items()
    }


def _has_digest(item: Mapping[str, Any], expectation: Mapping[str, Any]) -> bool:
    return "recipe" in item and ("message" in expectation or isinstance(expectation.get("batches"), dict))


class _Made(Mapping[str, Any]):
    """An expectation whose ``batches`` or ``message`` a recipe builds on first access."""

    __slots__ = ("_recipe", "_stated")

    def __init__(self, stated: Mapping[str, Any], recipe: str) -> None:
        self._stated = stated
        self._recipe = recipe

    def __getitem__(self, name: str) -> Any:
        value = self._stated[name]
        if name not in ("batches", "message"):
            return value
        from kfuzz.vectors.recipes.making.bombs import contents

        return contents(self._recipe)

    def __contains__(self, name: object) -> bool:
        return name in self._stated

    def __iter__(self) -> Iterator[str]:
        return iter(self._stated)

    def __len__(self) -> int:
        return len(self._stated)


def _source(path: Path, place: str, item: Mapping[str, Any]) -> bytes | Bomb:
    if "hex" in item:
        return bytes.fromhex(item["hex"])
    if "steps" in item:
        return b"".join(bytes.fromhex(step["hex"]) for step in item["steps"])
    if "application" in item:
        return b"".join(bytes.fromhex(frame["hex"]) for frame in item.get("frames", ()))
    return Bomb(item["recipe"], item["size"], item["sha256"], f"{path}: {place}")
