"""Writes a small running testee that a user completes: ``testees/stubs/``, with the kit of its language in it.

The kits and the stubs are in ``testees/`` of the repository. An installed wheel has a copy in ``kits/``.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.conformance.protocol.building import BUILT_FOLDERS
from kfuzz.errors import UsageError
from kfuzz.files import require_empty, whole_directory

KIT: Final = "kit"


@dataclass(frozen=True, slots=True)
class Stub:
    """A language's stub: the file to edit, and the commands that build and start the testee in its folder."""

    file: str
    build: str
    run: str


STUBS: Final = {
    "go": Stub("main.go", "go build -o target/testee .", "./target/testee"),
    "rust": Stub("src/main.rs", "cargo build --release", "./target/release/my-testee"),
    "node": Stub("testee.mjs", "npm install", "node testee.mjs"),
    "python": Stub("testee.py", "", "python3 testee.py"),
}
LANGUAGES: Final = tuple(STUBS)


def write_stub(language: str, directory: str | Path) -> Stub:
    """Write a testee in ``language`` into ``directory``, which must be empty or not exist yet.

    ``UsageError`` if it holds something, or cannot be written. The folder is complete before it gets its name.
    """
    with whole_directory(require_empty(directory)) as made:
        for source, inside in ((f"stubs/{language}", made), (language, made / KIT)):
            shutil.copytree(_root() / source, inside, ignore=_is_built, copy_function=shutil.copyfile)
    return STUBS[language]


def _root() -> Path:
    """``testees/`` of the repository, or what an installed wheel has of it."""
    here = Path(__file__).resolve()
    for root in (here.parents[3] / "testees", here.parents[1] / "kits"):
        if (root / "stubs").is_dir():
            return root
    raise UsageError(f"there are no kits beside {here.parent}; install kfuzz whole")


def _is_built(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in BUILT_FOLDERS or name in (".gitignore", "Cargo.lock")}
