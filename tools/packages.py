"""Makes the packages for other ecosystems: ``python -m tools.packages [go npm crate java] [--test]``.

``kfuzz/vectors/packaged.py`` says what they hold. Nothing of it is committed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.commands import exit_code
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import require_empty, whole_directory
from kfuzz.vectors.model import load_suite, suite_version
from kfuzz.vectors.packaged import VECTORS_FILE, package_files, vectors_file

ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Package:
    """How one is made: where its data goes, the program that tests it, and the commands, each in a folder of it."""

    data: str
    program: str
    remedy: str
    tests: tuple[tuple[str, tuple[str, ...]], ...]


PACKAGES: Final = {
    "go": Package(
        VECTORS_FILE,
        "go",
        "install Go 1.26 or newer",
        ((".", ("go", "test", "./...")), ("example", ("go", "test", "-mod=mod", "./..."))),
    ),
    "npm": Package(
        VECTORS_FILE,
        "npm",
        "install Node 20 or newer",
        (
            (".", ("node", "--test", "kfuzz.test.mjs")),
            ("example", ("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")),
            ("example", ("node", "--test", "kafkajs.test.mjs")),
        ),
    ),
    "crate": Package(
        f"src/{VECTORS_FILE}",
        "cargo",
        "install Rust",
        ((".", ("cargo", "test", "--quiet")), ("example", ("cargo", "test", "--quiet"))),
    ),
    "java": Package(
        f"src/main/resources/kfuzz/{VECTORS_FILE}",
        "mvn",
        "install Java 17 and Maven",
        ((".", ("mvn", "-q", "-B", "test")),),
    ),
}


def data() -> bytes:
    """The contents of ``vectors.json`` for kfuzz's own suite."""
    return vectors_file(load_suite("records/*"), suite_version())


def make(name: str, folder: Path, made: bytes) -> None:
    """Write the package into ``folder``, which must be empty or an earlier package."""
    package = PACKAGES[name]
    if (folder / package.data).is_file():
        shutil.rmtree(folder)
    require_empty(folder)
    with whole_directory(folder) as new:
        for path, content in package_files(ROOT / "packages" / name, package.data, made):
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            # An error names the package's own folder.
            (new / path).write_bytes(content)
        shutil.copy2(ROOT / "LICENSE", new / "LICENSE")


def test(name: str, folder: Path) -> str:
    """Run the package's tests, and its example with a real decoder. Returns what went wrong, or ""."""
    for place, command in PACKAGES[name].tests:
        done = subprocess.run(command, cwd=folder / place, capture_output=True, text=True)
        if done.returncode:
            return f"{' '.join(command)} in {folder / place} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 if a test failed, 2 for wrong use."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.packages",
        description="Makes the Go module, the npm package, the crate and the Java artefact with the vectors inside.",
        epilog="example: python -m tools.packages go crate --test",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(PACKAGES)}; all if none is given")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "packages", help="the folder (out/packages)")
    parser.add_argument("--test", action="store_true", help="also run each package's tests and its example")
    options = parser.parse_args(arguments)
    failed = 0
    try:
        if unknown := [name for name in options.names if name not in PACKAGES]:
            raise UsageError(f"there is no package {unknown[0]!r}; take {', '.join(PACKAGES)}")
        made = data()
        for name in options.names or PACKAGES:
            folder = options.out.resolve() / name
            make(name, folder, made)
            print(f"{name}: {folder}, {len(made)} bytes of vectors")
            if not options.test:
                continue
            if shutil.which(PACKAGES[name].program) is None:
                print(f"{name}: not tested, {PACKAGES[name].program} is missing; {PACKAGES[name].remedy}")
                continue
            problem = test(name, folder)
            print(f"{name}: {problem or 'its tests and the example with a real decoder pass'}")
            failed += bool(problem)
    except KfuzzError as error:
        print(error, file=sys.stderr)
        return 2
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(exit_code("packages", main))
