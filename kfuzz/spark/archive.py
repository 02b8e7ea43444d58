"""The environment that Spark sends to executors without kfuzz: one archive with kfuzz and what its workers import.

``spark-submit --archives`` unpacks it on every executor, and ``PYTHONPATH`` there names the unpacked folder. pyspark is
not in it, because Spark brings its own. This module does not import pyspark.
"""

from __future__ import annotations

import gzip
import importlib.machinery
import importlib.metadata
import io
import json
import re
import shlex
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

import kfuzz
from kfuzz.errors import UsageError
from kfuzz.files import open_whole, read_bytes
from kfuzz.fuzz.building import Build, compiled_files
from kfuzz.fuzz.seeding import CORPUS
from kfuzz.vectors.model import default_root

# The folder that an executor unpacks the archive into, relative to the directory that its workers start in.
FOLDER: Final = "kfuzz_env"
ABOUT: Final = "kfuzz-archive.json"
ROOT: Final = "kfuzz[corpus]"
# Packages that only a command line, a report or a check of the suite imports.
NOT_FOR_WORKERS: Final = frozenset({"click", "jinja2", "jsonschema", "packaging", "rich"})
# Sources, headers and stubs. Nothing imports them.
LEFT_OUT: Final = frozenset(
    (".a", ".c", ".cc", ".cmake", ".cpp", ".h", ".hpp", ".lib", ".pxd", ".pxi", ".pyc", ".pyi", ".pyx")
)
LEFT_OUT_FOLDERS: Final = frozenset(("__pycache__", "include", "tests"))
# Files to keep from an installer's folder: versions for `importlib.metadata`, and the licenses. The other files
# depend on how the package was installed.
KEPT_OF_METADATA: Final = re.compile(r"METADATA|entry_points\.txt|(licenses/.*)?(LICEN[CS]E|NOTICE|COPYING)[^/]*", re.I)
TAGGED: Final = re.compile(r"\.(cpython|pypy)[^/]*\.so")
BESIDE: Final = (
    ("vectors", "suite"),
    ("vectors", "examples"),
    ("vectors", "packages"),
    ("vectors", "LICENSE"),
    ("conformance", "kits"),
)
SUFFIXES: Final = (".zip", ".tar.gz", ".tgz")
# The first moment that a zip file can store.
ZIP_DATE: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Archive:
    """A written archive. ``bytes`` is its size, and ``packages`` maps each package in it to its version."""

    path: Path
    bytes: int
    python: str
    platform: str
    packages: dict[str, str]


def make_archive(out: str | Path, extra: Sequence[str] = (), *, builds: Sequence[Build] = ()) -> Archive:
    """Write the archive for this Python's version and platform to ``out``, a ``.zip``, ``.tar.gz`` or ``.tgz``.

    ``extra`` names further installed packages that go in, with the packages that they require. With ``builds`` for
    fuzzing, executors can run campaigns. Equal installed packages give equal bytes. Raises ``UsageError`` if a package
    is missing or editable, if the name ``out`` has another ending, or if a file of that name is not an archive.
    """
    path = Path(out)
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path} has none of the endings that Spark unpacks; name a file {' or '.join(SUFFIXES)}")
    if path.exists() and not (path.is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))):
        raise UsageError(f"{path} is there and is no archive; name another file, or remove it first")
    roots = [ROOT, *(["kfuzz[fuzz]"] if builds else []), *extra]
    packages = dict(sorted((name, importlib.metadata.version(name)) for name in _required(roots)))
    entries = {**dict(_kfuzz()), **dict(_suite()), **dict(_fuzzing(builds))}
    for name in packages:
        entries.update(_installed(name))
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    packages = {"kfuzz": kfuzz.__version__, **packages}
    about = {"packages": packages, "platform": sysconfig.get_platform(), "python": python}
    entries[ABOUT] = (json.dumps(about, indent=2, sort_keys=True) + "\n").encode()
    with open_whole(path) as file:
        (_write_zip if path.name.endswith(".zip") else _write_tar)(file, sorted(entries.items()))
    return Archive(path, path.stat().st_size, python, sysconfig.get_platform(), packages)


def submit_lines(archive: Path) -> list[str]:
    """Commands that run a job of kfuzz from ``archive``, with a line above each that says where."""
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    common = [
        f"--archives {shlex.quote(f'{archive}#{FOLDER}')}",
        f"--conf spark.executorEnv.PYTHONPATH=./{FOLDER}",
        f"--conf spark.pyspark.python={python}",
    ]
    driver_here = f"--conf spark.pyspark.driver.python={shlex.quote(sys.executable)}"
    job = "spark_jobs/generate_corpus.py --workload WORKLOAD --out /shared/corpus"
    masters = {
        "a standalone cluster": ["--master spark://HOST:7077", *common, driver_here],
        "YARN, driver here": ["--master yarn", *common, driver_here],
        "YARN, driver in the cluster": [
            "--master yarn --deploy-mode cluster",
            *common,
            f"--conf spark.yarn.appMasterEnv.PYTHONPATH=./{FOLDER}",
        ],
    }
    return [
        line
        for where, options in masters.items()
        for line in (f"{where}:", "  " + " \\\n    ".join(["spark-submit", *options, job]))
    ]


# ------------------------------------------------------------------------------------------------ what goes in


def _required(requirements: Iterable[str]) -> set[str]:
    """The packages that must be installed for ``requirements``, without kfuzz and those that workers do not import."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting: list[Requirement] = []
    for text in requirements:
        try:
            waiting.append(Requirement(text))
        except InvalidRequirement:
            raise UsageError(f"{text!r} is not the name of a package; write it as for pip install") from None
    left_out = NOT_FOR_WORKERS - {canonicalize_name(one.name) for one in waiting}
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                declared = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                raise UsageError(
                    f"{name} is not installed here, and workers need it; "
                    f"run `pip install {_remedy(name, requirements)}`"
                ) from None
            needed = [Requirement(text) for text in declared]
            waiting += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]
        if name != "kfuzz":
            found.add(name)
        waiting = [one for one in waiting if canonicalize_name(one.name) not in left_out]
    return found


def _remedy(name: str, requirements: Iterable[str]) -> str:
    return name if name in requirements else "'kfuzz[corpus]'"


def _kfuzz() -> Iterator[tuple[str, bytes]]:
    """kfuzz's own files: those of its folder, so that an editable installation gives what a wheel gives."""
    package = Path(kfuzz.__file__).resolve().parent
    for path in package.rglob("*"):
        inside = path.relative_to(package)
        # A wheel has in here what a checkout has beside it. The suite and the license are added from their own place.
        if path.is_file() and inside.parts[:2] not in BESIDE:
            name = f"kfuzz/{inside.as_posix()}"
            if _wanted(name):
                yield name, read_bytes(path)


def _suite() -> Iterator[tuple[str, bytes]]:
    """The golden vectors and the license, where a wheel has them."""
    root = default_root()
    yield "kfuzz/vectors/LICENSE", read_bytes(root.parent / "LICENSE")
    for path in root.rglob("*.json"):
        yield f"kfuzz/vectors/suite/{path.relative_to(root).as_posix()}", read_bytes(path)


def _fuzzing(builds: Sequence[Build]) -> Iterator[tuple[str, bytes]]:
    """The compiled modules of these builds, and the seeds and dictionaries of a checkout."""
    for made in builds:
        yield from ((name, read_bytes(path)) for name, path in compiled_files(made))
    for path in CORPUS.rglob("*") if builds else ():
        if path.is_file():
            yield f"{CORPUS.name}/{path.relative_to(CORPUS).as_posix()}", read_bytes(path)


def _installed(name: str) -> Iterator[tuple[str, bytes]]:
    distribution = importlib.metadata.distribution(name)
    modules = 0
    for file in distribution.files or []:
        inside = PurePosixPath(file.as_posix())
        # Scripts are outside of the folder of packages.
        if ".." in inside.parts or inside.is_absolute() or not _wanted(str(inside)):
            continue
        modules += inside.suffix in (".py", ".so") and not inside.name.startswith("__editable__")
        yield str(inside), read_bytes(Path(str(distribution.locate_file(file))))
    if not modules:
        raise UsageError(
            f"{name} is installed without its modules, as an editable package is; "
            f"run `pip install --force-reinstall {name}`"
        )


def _wanted(name: str) -> bool:
    path = PurePosixPath(name)
    if path.parts[0].endswith((".dist-info", ".egg-info")):
        return bool(KEPT_OF_METADATA.fullmatch("/".join(path.parts[1:])))
    if path.name.startswith(".") or path.suffix in LEFT_OUT or not LEFT_OUT_FOLDERS.isdisjoint(path.parts[:-1]):
        return False
    # A checkout may hold modules that were compiled for several versions of Python.
    return not TAGGED.search(name) or name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


# ---------------------------------------------------------------------------------------------------- writing


def _write_zip(file: IO[bytes], entries: Iterable[tuple[str, bytes]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            about = zipfile.ZipInfo(name, ZIP_DATE)
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = 0o644 << 16
            # Otherwise this byte names the system that made the archive.
            about.create_system = 3
            archive.writestr(about, data)


def _write_tar(file: IO[bytes], entries: Iterable[tuple[str, bytes]]) -> None:
    # Without a name and a time, which gzip would store.
    with (
        gzip.GzipFile("", "wb", fileobj=file, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, data in entries:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            about.mode = 0o644
            archive.addfile(about, io.BytesIO(data))
