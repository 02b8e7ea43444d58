"""Plants a bug in a copy of kfuzz, and lets a campaign look for it.

``tests/fuzz/planted/*.patch`` are the bugs: a few lines of header (what it is, which target looks for it, with which
sanitizer, whether only another reader can see it), then the change. The copy is in ``build/planted``; the checkout
never changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.files import copy_if_changed, locked

ROOT: Final = Path(__file__).resolve().parent.parent
PATCHES: Final = ROOT / "tests" / "fuzz" / "planted"
# Files that a campaign reads and never changes.
LINKED: Final = ("vectors", "corpus", "testees", "benchmarks", "tools", "README.md", "LICENSE")
COPIED: Final = ("setup.py", "pyproject.toml", "MANIFEST.in")
# Files that the next build for libFuzzer reuses.
KEPT: Final = (".work-*", ".compiled-*")
TRUTH: Final = "kafka-clients@4.4.0"


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted bug. ``target`` is the target that looks for it, ``truth`` says that it needs another reader."""

    name: str
    about: str
    target: str
    sanitizer: str
    truth: bool
    patch: Path

    @property
    def files(self) -> list[str]:
        """The files that it changes."""
        return [line[6:].strip() for line in self.patch.read_text().splitlines() if line.startswith("+++ b/")]


def planted() -> list[Planted]:
    """All planted bugs, by name."""
    return [_read(patch) for patch in sorted(PATCHES.glob("*.patch"))]


def _read(patch: Path) -> Planted:
    head = dict(line.split(": ", 1) for line in patch.read_text().split("\n\n", 1)[0].splitlines())
    return Planted(patch.stem, head["About"], head["Target"], head["Sanitizer"], head["Truth"] == "yes", patch)


class Garden:
    """A copy of kfuzz in ``folder``, in which one bug at a time is planted."""

    def __init__(self, folder: Path = ROOT / "build" / "planted") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            for name in COPIED:
                copy_if_changed(ROOT / name, folder / name)
            for source in (ROOT / "kfuzz").rglob("*"):
                if source.is_file() and "__pycache__" not in source.parts:
                    copy_if_changed(source, folder / source.relative_to(ROOT))
            for name in LINKED:
                link = folder / name
                if not link.is_symlink() and (ROOT / name).exists():
                    link.symlink_to(ROOT / name)
            self._take_builds()

    def _take_builds(self) -> None:
        """Take over what the checkout has compiled: only what a bug changes is then compiled again."""
        build = self.folder / "build"
        build.mkdir(exist_ok=True)
        for source in [*(ROOT / "build").glob("cython-*"), *(ROOT / "build").glob("temp.*")]:
            if not (build / source.name).exists():
                shutil.copytree(source, build / source.name)
        (build / "fuzz").mkdir(exist_ok=True)
        for kept in [path for name in KEPT for path in (ROOT / "build" / "fuzz").glob(name)]:
            if not (build / "fuzz" / kept.name).exists():
                shutil.copytree(kept, build / "fuzz" / kept.name)

    @contextmanager
    def with_bug(self, bug: Planted) -> Iterator[None]:
        """Plant ``bug`` and compile; afterwards the copy is as before, and compiles again when it is next used."""
        with locked(self.folder):
            try:
                with bug.patch.open("rb") as patch:
                    subprocess.run(["patch", "-p1", "--quiet"], cwd=self.folder, stdin=patch, check=True)
                self.call("setup.py", "--quiet", "build_ext", "--inplace")
                self.build_targets(bug.sanitizer)
                yield
            finally:
                for name in bug.files:
                    # A new time, so that it is compiled again.
                    shutil.copyfile(ROOT / name, self.folder / name)
                self._remove_fuzz_builds()

    def build_targets(self, sanitizer: str = "none") -> None:
        """Compile the copy for campaigns."""
        self.call("-c", f"from kfuzz.fuzz.building import build; build({sanitizer!r})")

    def _remove_fuzz_builds(self) -> None:
        for made in (self.folder / "build" / "fuzz").iterdir():
            if not any(made.match(name) for name in KEPT):
                shutil.rmtree(made)

    def call(self, *arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python with ``arguments`` in the copy; ``subprocess.SubprocessError`` if it does not end well."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout_s,
        )
