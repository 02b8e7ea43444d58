"""Copy the suite for other projects to vendor: the files, and a page that explains how to use them without kfuzz.

``manifest.json`` lists the files of a copy. It is written last: a folder without it holds no complete copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfuzz import __version__
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, read_small, remove_empty, require_no_link, require_writable, write_whole
from kfuzz.vectors.building import canonical_json
from kfuzz.vectors.ids import matching
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import (
    EXAMPLES_DIRECTORY,
    FILE_BYTES_MAX,
    REQUIREMENTS_FILE,
    SCHEMA_FILE,
    SUITE_FILE,
    _documents,
    default_root,
    read_file,
    suite_version,
    vectors_of,
)
from kfuzz.vectors.packaged import VECTORS_FILE, package_files, vectors_file
from kfuzz.vectors.pages import rendered

FORMAT = "kfuzz-copy/1"
MANIFEST_FILE = "manifest.json"
README_FILE = "README.md"
LICENSE_FILE = "LICENSE"
BOMBS_DIRECTORY = "bombs"
# The packages that every copy has, and their folders among the examples.
PACKAGES = (("packages/go", "go"), ("packages/npm", "javascript"))
# A package's tests of itself need vectors that a copy may not have.
OWN_TESTS = (".test.mjs", "_test.go")


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of :func:`copy`: ``files`` below ``directory``, without the manifest.

    ``version`` is the suite's version (docs/suite-policy.md), or None if the suite declares none.
    ``verdicts`` counts the vectors by their verdict for the consumer; for the broker or the log if there is no consumer
    expectation. Streams are left out, because each of their steps has its own verdict. ``bombs`` counts the vectors
    that have a recipe; ``bomb_bytes`` is the total size of the bomb files written.
    """

    directory: Path
    version: str | None
    files: tuple[str, ...]
    vectors: int
    kinds: Mapping[str, int]
    verdicts: Mapping[str, int]
    bombs: int
    bomb_bytes: int


def copy(
    directory: str | Path,
    globs: Sequence[str] = ("*",),
    *,
    root: str | Path | None = None,
    bombs: bool = False,
    force: bool = False,
) -> Copied:
    """Copy the vectors whose ids match any of ``globs`` from the suite at ``root`` (kfuzz's own) into ``directory``.

    ``bombs``: also write the bytes of the vectors that have a recipe. A folder that is not empty is refused, unless
    ``force`` is set: then the files of an earlier copy are replaced, and all other files stay.

    Raises ``UsageError`` for a folder that is not empty, a folder that cannot be written, and a glob without a match.
    All files are complete before the first is moved to its place. A copy that fails leaves no file or folder.
    """
    target = Path(directory)
    _require_room(target, force)
    source = default_root() if root is None else Path(root)
    chosen = _chosen(source, globs)
    made = dict(_files(source, chosen, bombs))
    report = _report(target, suite_version(source), chosen, made)
    made[README_FILE] = rendered("copied.md.j2", report=report, bombs=bombs, version=__version__).encode()
    earlier = _earlier(target)
    _clear_of_files(target, made)
    for name in earlier:
        require_no_link(target, Path(name).parent)
    with _staging(target) as staging:
        for name, content in made.items():
            write_whole(staging / name, content)
        write_whole(staging / MANIFEST_FILE, _manifest(report, chosen, made))
        _publish(staging, target, [*sorted(made), MANIFEST_FILE])
    for name in earlier - {*made, MANIFEST_FILE}:
        (target / name).unlink(missing_ok=True)
    return report


Documents = list[tuple[str, dict[str, Any]]]


def _chosen(source: Path, globs: Sequence[str]) -> Documents:
    """The suite's files by relative name, reduced to the chosen vectors and the flags that those use."""
    found = _documents(source)
    ids = matching({vector["id"] for _, document in found for vector in document["vectors"]}, globs)
    chosen: Documents = []
    for path, document in found:
        vectors = [vector for vector in document["vectors"] if vector["id"] in ids]
        used = {flag for vector in vectors for flag in vector["flags"]}
        flags = {name: flag for name, flag in document["flags"].items() if name in used}
        if vectors:
            chosen.append((path.relative_to(source).as_posix(), {**document, "flags": flags, "vectors": vectors}))
    return chosen


def _files(source: Path, chosen: Documents, bombs: bool) -> Iterator[tuple[str, bytes]]:
    # A user's own suite follows kfuzz's schema, and may have no requirements file.
    yield SCHEMA_FILE, read_bytes(default_root() / SCHEMA_FILE)
    own = source / REQUIREMENTS_FILE
    yield REQUIREMENTS_FILE, read_file(own if own.is_file() else default_root() / REQUIREMENTS_FILE)
    if (source / SUITE_FILE).is_file():
        yield SUITE_FILE, read_file(source / SUITE_FILE)
    yield LICENSE_FILE, read_bytes(_beside(LICENSE_FILE))
    examples = _beside(EXAMPLES_DIRECTORY)
    for path in sorted(examples.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{EXAMPLES_DIRECTORY}/{path.relative_to(examples).as_posix()}", read_bytes(path)
    # No vector is parsed to copy it, except for these packages.
    vectors = [vector for name, document in chosen for vector in vectors_of(Path(name), document)]
    data = vectors_file(sorted(vectors, key=lambda vector: vector.id), suite_version(source))
    for package, place in PACKAGES:
        for name, content in package_files(_beside(package), VECTORS_FILE, data):
            if "/" in name or not name.endswith(OWN_TESTS):
                yield f"{EXAMPLES_DIRECTORY}/{place}/{name}", content
    for name, document in chosen:
        yield name, canonical_json(document)
        if bombs:
            yield from _bombs(name, document)


def _bombs(name: str, document: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    recipes = {vector["id"]: vector["recipe"] for vector in document["vectors"] if "recipe" in vector}
    for vector in vectors_of(Path(name), document, set(recipes)):
        yield f"{BOMBS_DIRECTORY}/{recipes[vector.id]}.bin", vector.data


def _beside(name: str) -> Path:
    """The path of a file that every copy includes: in the repository's root, or inside an installed wheel."""
    here = Path(__file__).resolve().parent
    for path in (here.parent.parent / name, here / name):
        if path.exists():
            return path
    raise UsageError(f"there is no {name} beside {here}; install kfuzz whole")


def _report(target: Path, version: str | None, chosen: Documents, made: Mapping[str, bytes]) -> Copied:
    vectors = [(document["kind"], vector) for _, document in chosen for vector in document["vectors"]]
    return Copied(
        directory=target,
        version=version,
        files=tuple(sorted([*made, README_FILE])),
        vectors=len(vectors),
        kinds=Counter(kind for kind, _ in vectors),
        verdicts=Counter(_verdict(kind, vector) for kind, vector in vectors if "expect" in vector),
        bombs=sum("recipe" in vector for _, vector in vectors),
        bomb_bytes=sum(len(data) for name, data in made.items() if name.startswith(f"{BOMBS_DIRECTORY}/")),
    )


def _verdict(kind: str, vector: Mapping[str, Any]) -> str:
    expect = vector["expect"]
    return str(next(expect[role]["verdict"] for role in KINDS[kind].roles if role in expect))


def _manifest(report: Copied, chosen: Documents, made: Mapping[str, bytes]) -> bytes:
    return canonical_json(
        {
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in made.items()},
            "format": FORMAT,
            "kfuzz": __version__,
            "suite": report.version,
            "vectors": sorted(name for name, _ in chosen),
        }
    )


# --- the target folder ----------------------------------------------------------------------------------------------


def _require_room(target: Path, force: bool) -> None:
    if os.path.isfile(target):
        raise UsageError(f"{target} is a file; name a folder")
    require_writable(target, directory=True)
    if not force and target.is_dir() and any(target.iterdir()):
        raise UsageError(
            f"{target} is not empty; name another folder, or use --overwrite to replace an earlier copy "
            "(other files stay)"
        )


def _clear_of_files(target: Path, made: Mapping[str, bytes]) -> None:
    """Raise ``UsageError`` if a file has the name of a needed folder, or the reverse, before anything is moved."""
    for name in [*made, MANIFEST_FILE]:
        path = target / name
        require_no_link(target, Path(name).parent)
        # A folder has the file's name, or a file has the name of one of its folders.
        inner = [path, *(target / parent for parent in Path(name).parents if parent.name)]
        if path.is_dir() or any(folder.exists() and not folder.is_dir() for folder in inner[1:]):
            raise UsageError(f"{path} cannot be written: something else has that name; name another folder")
        for folder in inner[1:]:
            if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
                raise UsageError(f"{folder} cannot be written: permission denied; name another folder")


def _earlier(target: Path) -> set[str]:
    """The files of the copy in ``target``; empty if there is no valid manifest."""
    try:
        manifest = load_json(read_small(target / MANIFEST_FILE, bytes_max=FILE_BYTES_MAX), MANIFEST_FILE)
        if manifest["format"] != FORMAT:
            return set()
        names = [str(name) for name in manifest["files"]]
    except (UsageError, ValueError, KeyError, TypeError):
        return set()
    # Anyone may have changed the manifest. The copy replaces only files, and only inside the folder.
    inside = {name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts}
    return {name for name in inside if (target / name).is_file()}


@contextlib.contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A temporary folder on the target's file system in which the copy is made; it is always removed.

    If the copy fails, parent folders that were created for it are removed too.
    """
    parent = target if target.is_dir() else target.parent
    missing = [folder for folder in (target, *target.parents) if not folder.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kfuzz-copy.", dir=parent, ignore_cleanup_errors=True) as staging:
            yield Path(staging)
    except BaseException as error:
        remove_empty(missing)
        if isinstance(error, OSError):
            raise UsageError(f"{target} cannot be written: {error.strerror}; name another folder") from None
        raise


def _publish(staging: Path, target: Path, names: Sequence[str]) -> None:
    """Move the finished files to their places in the order of ``names``; on failure, remove the new ones again."""
    added: list[Path] = []
    missing: list[Path] = []
    try:
        for name in names:
            path = target / name
            missing += [folder for folder in path.parents if not folder.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                added.append(path)
            (staging / name).replace(path)
    except BaseException:
        for path in added:
            path.unlink(missing_ok=True)
        remove_empty(sorted(missing, reverse=True))
        raise
