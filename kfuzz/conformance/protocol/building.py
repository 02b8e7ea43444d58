"""Builds testees, also in folders of their own with another copy of the library: there the testee's files are copied.

Only the standard library is needed, because ``make build`` uses this before anything is installed.
"""

from __future__ import annotations

import filecmp
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kfuzz.errors import KfuzzError
from kfuzz.files import locked

BUILD_TIMEOUT_S: Final = 900
# Lines that build tools print before the first error. Go names the package, npm a code.
NO_ERRORS: Final = (
    "# ",
    "go: downloading ",
    "npm error code ",
    "npm warn ",
    "warning",
    "[INFO]",
    "[WARN",
    "[ERROR] COMPILATION",
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
# Folders of build output, which never hold sources.
BUILT_FOLDERS: Final = frozenset({"target", "build", "node_modules", "__pycache__", "bin", "obj"})


class BuildFailed(KfuzzError):
    """A testee's build failed; the text is one sentence."""


def run_build(build: Sequence[str], folder: Path) -> None:
    """Run the command ``build`` in ``folder``; raises ``BuildFailed``."""
    try:
        done = subprocess.run(build, cwd=folder, capture_output=True, timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise BuildFailed(f"{build[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"`{shlex.join(build)}` did not finish within {BUILD_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
        said = [_COLOUR.sub("", line) for line in said]
        said = [line for line in said if not line.startswith(NO_ERRORS)] or said
        words = f": {said[0][:200]}" if said else ""
        raise BuildFailed(f"`{shlex.join(build)}` in {folder} ended with {done.returncode}{words}")


def sources(folder: Path) -> Iterable[Path]:
    """The files below ``folder`` that people wrote."""
    for path in folder.iterdir():
        if path.name in BUILT_FOLDERS or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from sources(path)
        elif path.is_file():
            yield path


@contextmanager
def alone(root: Path, stage: Path) -> Iterator[None]:
    """Make the folder ``stage``, and let no other process build a testee below ``root`` in the ``with`` block.

    An error of the system is a ``BuildFailed``.
    """
    try:
        stage.mkdir(parents=True, exist_ok=True)
        with locked(root):
            yield
    except OSError as error:
        raise BuildFailed(f"{error.filename} cannot be copied: {error.strerror}") from None


def mirror(
    source: Path, target: Path, *, but: tuple[str, ...] = (), built: Iterable[str] = BUILT_FOLDERS - {"build", "bin"}
) -> None:
    """Make ``target`` like ``source``. Hidden files, folders in ``built`` and names in ``but`` are left as they are.

    A file with equal contents stays untouched, and one that changes gets a new time: build tools go by that.
    """
    target.mkdir(parents=True, exist_ok=True)
    kept = {*built, *but}
    wanted = {path.name: path for path in source.iterdir() if path.name not in kept and not path.name.startswith(".")}
    for path in target.iterdir():
        if path.name not in wanted and path.name not in kept and path.name != "Cargo.lock":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name, path in wanted.items():
        copy = target / name
        if path.is_dir():
            mirror(path, copy, built=built)
        elif path.is_file() and not (copy.is_file() and filecmp.cmp(path, copy, shallow=False)):
            shutil.copyfile(path, copy)


def write(file: Path, text: str) -> None:
    """Write ``text``, but leave a file with this text untouched."""
    if not file.is_file() or file.read_text() != text:
        file.write_text(text)


def link(stage: Path, kit: Path | None) -> None:
    """Link the kit, if there is one, where a testee in ``stage`` looks for it."""
    if kit:
        link_to(stage / kit.name, kit)


def link_to(link: Path, target: Path) -> None:
    """Make ``link`` a symbolic link to ``target``, whatever it was a link to."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(target.resolve())
