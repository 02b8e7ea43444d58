"""Builds a testee with any version of its library, in ``target/versions/VERSION`` below the testee's own folder.

The tables ``[[any]]`` of testee.toml say how (testees/README.md). A build is kept until the testee's or the kit's
sources change. One that was interrupted begins again in an empty folder.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from kfuzz.conformance.protocol.building import BuildFailed, alone, link, mirror, run_build, sources
from kfuzz.errors import UsageError
from kfuzz.forms import TEXT, ListOf

# Three or four numbers, and perhaps a word, so that package managers do not take it for a range or an option.
_VERSION: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){2,3}(?:[-.+]?[0-9A-Za-z]+)*+")
VERSION_CHARACTERS_MAX: Final = 64
# The state of a version's folder whose last build ended with an error.
FAILED: Final = "failed"
# Files that the builds of the pinned version or of this one write.
_UNCOPIED: Final = ("Cargo.lock", "testee.toml")
PROBE_TIMEOUT_S: Final = 20
WORDS: Final = ListOf(TEXT, "give a list of words, the program first", least=1)
TEXTS: Final = ListOf(TEXT, "give a list of texts")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a testee is built and started with a version of its library that has no entry in testee.toml.

    It is for the versions below ``before``, or all others if that is empty. ``python`` is the version of the
    interpreter that ``{interpreter}`` stands for. The commands still have their placeholders.
    """

    build: Annotated[tuple[tuple[str, ...], ...], ListOf(WORDS)]
    run: Annotated[tuple[str, ...], WORDS]
    before: Annotated[str, TEXT] = ""
    requires: Annotated[tuple[str, ...], TEXTS] = ()
    python: Annotated[str, TEXT] = ""


def recipe_for(recipes: Sequence[Recipe], name: str, version: str) -> Recipe:
    """The recipe for a version of the testee ``name``; ``UsageError`` if it is not a version, or none of them fits."""
    if len(version) > VERSION_CHARACTERS_MAX or not _VERSION.fullmatch(version):
        raise UsageError(f"{name}@{version} names no version; write it with all its numbers, such as {name}@1.12.0")
    for recipe in recipes:
        if not recipe.before or order_of(version) < order_of(recipe.before):
            return recipe
    raise UsageError(f"{name}@{version} cannot be built: versions must be below {recipes[-1].before}; name another")


def order_of(version: str) -> tuple[tuple[int, ...], bool, str]:
    """The place of a version among others. One with a word comes before the release: 1.0.0-rc.1, 1.0.0."""
    numbers, word = re.fullmatch(r"([0-9.]*+)(.*)", version, re.DOTALL).groups()  # type: ignore[union-attr]
    # Some words come after the release: 0.11.6.post1, 1.0.0+incompatible.
    is_later = not word or word.startswith(("post", "+"))
    return tuple(int(part) for part in numbers.split(".") if part), is_later, word


def build_version(recipe: Recipe, place: Path, folder: Path, kit: Path | None, builds: Sequence[Sequence[str]]) -> None:
    """Build a copy of the testee in ``folder`` and its ``kit`` by the commands ``builds``, in the folder ``place``.

    Nothing is done if a whole build of the same sources and commands is there. Raises ``BuildFailed``.
    """
    state = place / "state"
    wanted = f"built {_digest([folder, *([kit] if kit else [])], builds)}"
    # Only a build waits for others.
    if _read(state) == wanted:
        return
    with alone(folder.parent, place):
        found = _read(state)
        if found == wanted:
            return  # another process has built it in the meantime
        if found:
            # The tools came to their end, so what they left can be used again: dependencies that take minutes to
            # compile.
            state.unlink()
        else:
            shutil.rmtree(place)
            place.mkdir()
        copy = place / "testee"
        mirror(folder, copy, but=_UNCOPIED)
        link(place, kit)
        try:
            python = _interpreter(recipe.python) if recipe.python else ""
            for command in builds:
                run_build([word.replace("{interpreter}", python) for word in command], copy)
        except BuildFailed:
            state.write_text(FAILED)
            raise
        state.write_text(wanted)


def _read(state: Path) -> str:
    """The text that the last build left when it came to its end; empty if none did."""
    return state.read_text() if state.is_file() else ""


def _digest(folders: Sequence[Path], builds: Sequence[Sequence[str]]) -> str:
    """Stands for all that a build is made of."""
    found = hashlib.sha256(repr(builds).encode())
    for folder in folders:
        for file in sorted(sources(folder)):
            if file.name not in _UNCOPIED:
                found.update(f"\0{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return found.hexdigest()


def _interpreter(version: str) -> str:
    """A Python of this version, such as ``3.7``: on the PATH, or one that uv or pyenv has installed."""
    finders = (["uv", "python", "find", "--no-python-downloads", version], ["pyenv", "prefix", version])
    tried = [f"python{version}"]
    for finder in finders:
        if shutil.which(finder[0]):
            found = subprocess.run(finder, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
            place = found.stdout.strip()
            tried.append(f"{place}/bin/python" if place and Path(place).is_dir() else place)
    for one in filter(None, tried):
        try:
            # pyenv has a command on the PATH for each version, also for those that it does not start.
            question = [one, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            said = subprocess.run(question, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if said.stdout.strip() == version:
            return one
    raise BuildFailed(f"it needs Python {version}, which is not here; install it, so that `python{version}` starts it")
