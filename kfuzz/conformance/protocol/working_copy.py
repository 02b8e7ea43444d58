"""Judges a working copy of a library instead of the pinned version: builds the testee with it, in ``target/path``.

The testee's own folder, its build files and its product stay as they are. The working copy is not written to either:
where a package manager or a stack needs another place or name for it, a copy is made, without what has been built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from kfuzz.conformance.protocol.building import BuildFailed, alone, link, link_to, mirror, write
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.documents import load_json, load_toml
from kfuzz.errors import UsageError
from kfuzz.files import read_small

# Stands for the version of a working copy, in the report and in the name of the testee.
VERSION: Final = "path"
# Descriptions of packages are far smaller.
FILE_BYTES_MAX: Final = 1 << 20


def with_working_copy(testee: Testee, path: str | Path) -> Testee:
    """``testee`` with its library from the folder ``path``.

    ``UsageError`` if the testee does not support that, or if ``path`` is not a working copy of its library.
    """
    if not testee.library or testee.language not in _LANGUAGES:
        raise UsageError(f"{testee.label} cannot be built with a working copy; leave out --path")
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that to use --path")
    folder = Path(path)
    if not folder.is_dir():
        raise UsageError(f"--path {path} is not a folder; name a working copy of {testee.library}")
    made = _LANGUAGES[testee.language](testee, folder.resolve())
    return replace(made, version=VERSION, pinned=testee, product=None)


def _stage(testee: Testee) -> tuple[Path, Path]:
    """The folder of the build, and the testee's own."""
    assert testee.folder
    return testee.folder / "target" / "path", testee.folder


def _read(path: Path, file: str, library: str) -> str:
    try:
        return read_small(path / file, bytes_max=FILE_BYTES_MAX, follow=True).decode()
    except (UsageError, UnicodeDecodeError):
        raise _no_copy(path, f"has no {file} that can be read", library) from None


def _no_copy(path: Path, why: str, library: str) -> UsageError:
    return UsageError(f"--path {path} {why}; name a working copy of {library}")


def _moved(testee: Testee, folder: Path) -> Testee:
    """The testee with another folder, also where its commands name it."""

    def words_of(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.replace(str(testee.folder), str(folder)) for word in words)

    return replace(testee, folder=folder, argv=words_of(testee.argv), build=words_of(testee.build))


# --- Go -------------------------------------------------------------------------------------------------------------

_MODULE: Final = re.compile(r"^module\s+\"?([^\s\"]+)", re.MULTILINE)
_REQUIRED: Final = re.compile(r"^\s*(?:require\s+)?(\S+)\s+v\S+$", re.MULTILINE)


def _with_go(testee: Testee, path: Path) -> Testee:
    """A go.mod of its own replaces the module, and those modules inside it that the testee requires too."""
    stage, folder = _stage(testee)
    own, sums = ((folder / name).read_text() for name in ("go.mod", "go.sum"))
    [module] = _MODULE.findall(_read(path, "go.mod", testee.library))[:1] or [""]
    required = [name for name in _REQUIRED.findall(own) if f"{name}/".startswith(f"{testee.library}/")]
    if module not in required:
        raise _no_copy(path, f"has the module {module or 'without a name'}", " or ".join(required))
    places = {name: path / name.removeprefix(module).lstrip("/") for name in required if f"{name}/".startswith(module)}
    found = {name: place for name, place in places.items() if _is_module(place, name)}
    replacements = "".join(f"\nreplace {name} => {json.dumps(str(place))}\n" for name, place in found.items())

    def prepare() -> None:
        with alone(folder.parent, stage):
            write(stage / "go.mod", own + replacements)
            write(stage / "go.sum", sums)

    program = str(stage / "testee")
    build = ("go", "build", "-mod=mod", f"-modfile={stage / 'go.mod'}", "-o", program, ".")
    return replace(testee, build=build, argv=(program,), prepare=prepare)


def _is_module(place: Path, name: str) -> bool:
    file = place / "go.mod"
    return file.is_file() and _MODULE.findall(file.read_text())[:1] == [name]


# --- Rust -----------------------------------------------------------------------------------------------------------


def _with_rust(testee: Testee, path: Path) -> Testee:
    """A copy of the testee depends on the copied crate. Its folder has the name that a registry's folder would have."""
    stage, folder = _stage(testee)
    manifest = load_toml(_read(path, "Cargo.toml", testee.library), str(path / "Cargo.toml"))
    package = manifest.get("package")
    if not isinstance(package, dict):
        raise _no_copy(path, "has a Cargo.toml without a package", testee.library)
    if package.get("name") != testee.library:
        raise _no_copy(path, f"has the crate {package.get('name', 'without a name')}", testee.library)
    version = package.get("version")
    # A workspace may set the version for its members.
    crate = f"{testee.library}-{version if isinstance(version, str) else '0.0.0'}"

    def prepare() -> None:
        with alone(folder.parent, stage):
            for old in stage.glob(f"{testee.library}-*"):
                if old.name != crate:
                    shutil.rmtree(old)
            mirror(path, stage / crate)
            mirror(folder, stage / "testee", but=("Cargo.toml",))
            link(stage, testee.kit)
            own = (folder / "Cargo.toml").read_text()
            write(stage / "testee" / "Cargo.toml", _with_path(own, testee.library, f"../{crate}"))
            # Cargo finds the compiled dependencies in it, which take minutes to compile.
            compiled = stage / "testee" / "target"
            if (folder / "target" / "release").is_dir() and not compiled.exists():
                shutil.copytree(folder / "target" / "release", compiled / "release", copy_function=shutil.copy2)

    return replace(_moved(testee, stage / "testee"), prepare=prepare)


def _with_path(manifest: str, crate: str, path: str) -> str:
    """The manifest with the path of a dependency instead of its version."""
    place = f"path = {json.dumps(path)}"
    line = re.compile(rf'^({re.escape(crate)} = )(?:"[^"]*"$|(\{{.*?)version = "[^"]*")', re.MULTILINE)
    changed, count = line.subn(lambda m: m[1] + (m[2] + place if m[2] else f"{{ {place} }}"), manifest)
    if count != 1:
        raise BuildFailed(f"the testee's Cargo.toml has no line for {crate}")
    return changed


# --- Node -----------------------------------------------------------------------------------------------------------


def _with_node(testee: Testee, path: Path) -> Testee:
    """A copy of the testee has the pinned packages as links, and in place of the library a copy of the working copy."""
    stage, folder = _stage(testee)
    try:
        package = load_json(_read(path, "package.json", testee.library), str(path / "package.json"))
        name = package["name"]
    except (KeyError, TypeError):
        raise _no_copy(path, "has a package.json without a name", testee.library) from None
    if name != testee.library:
        raise _no_copy(path, f"has the package {name}", testee.library)

    def prepare() -> None:
        testee.make_ready()
        with alone(folder.parent, stage):
            mirror(folder, stage / "testee")
            link(stage, testee.kit)
            packages = stage / "testee" / "node_modules"
            for one in _packages(folder / "node_modules"):
                if one != testee.library:
                    link_to(packages / one, folder / "node_modules" / one)
            # Dependencies that the pinned version does not have.
            dependencies = package.get("dependencies")
            for one in dependencies if isinstance(dependencies, dict) else ():
                if not (packages / one).exists() and (path / "node_modules" / one).exists():
                    link_to(packages / one, path / "node_modules" / one)
            mirror(path, packages / testee.library, built=("node_modules",))

    return replace(_moved(testee, stage / "testee"), build=(), prepare=prepare)


def _packages(folder: Path) -> Iterable[str]:
    for one in sorted(folder.iterdir()):
        if one.name.startswith("@"):
            yield from (f"{one.name}/{inner.name}" for inner in sorted(one.iterdir()))
        elif not one.name.startswith("."):
            yield one.name


# --- Python ---------------------------------------------------------------------------------------------------------


def _with_python(testee: Testee, path: Path) -> Testee:
    """The working copy comes first in PYTHONPATH."""
    for root in (path / "src", path):
        if (root / testee.library / "__init__.py").is_file():
            paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
            return replace(testee, argv=("env", f"PYTHONPATH={paths}", *testee.argv))
    raise _no_copy(path, f"has no package {testee.library}", testee.library)


_LANGUAGES: Final[dict[str, Callable[[Testee, Path], Testee]]] = {
    "go": _with_go,
    "rust": _with_rust,
    "javascript": _with_node,
    "python": _with_python,
}
