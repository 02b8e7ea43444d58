"""Makes the packages for other ecosystems: ``python -m tools.packages [go npm crate java] [--test]``.

Each is a copy of ``packages/<name>`` with the vectors of records in one file, ``vectors.json``: for each vector its
bytes, its verdict for a consumer, and the records that a consumer gets. A bomb has its recipe's name instead of the
bytes. Equal suites give equal files. Nothing of it is committed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.commands import exit_code
from kfuzz import __version__
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import require_empty, whole_directory
from kfuzz.kafka import CODECS
from kfuzz.vectors.model import Bomb, Vector, load_suite, suite_version
from kfuzz.wire.framing import frames
from kfuzz.wire.layout import CODEC_AT, CODEC_MASK, MAGIC_AT

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = "vectors.json"
# In the manifests of packages.
VERSION: Final = b"0.0.0-kfuzz"
# What every README ends with.
RULES: Final = "rules.md"
# What earlier builds leave in the sources.
IGNORED: Final = shutil.ignore_patterns("target", "node_modules", "Cargo.lock", "go.sum", "package-lock.json")


@dataclass(frozen=True, slots=True)
class Package:
    """How one is made: where its data goes, the program that tests it, and the commands, each in a folder of it."""

    data: str
    program: str
    remedy: str
    tests: tuple[tuple[str, tuple[str, ...]], ...]


PACKAGES: Final = {
    "go": Package(
        DATA,
        "go",
        "install Go 1.26 or newer",
        ((".", ("go", "test", "./...")), ("example", ("go", "test", "-mod=mod", "./..."))),
    ),
    "npm": Package(
        DATA,
        "npm",
        "install Node 20 or newer",
        (
            (".", ("node", "--test", "kfuzz.test.mjs")),
            ("example", ("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")),
            ("example", ("node", "--test", "kafkajs.test.mjs")),
        ),
    ),
    "crate": Package(
        f"src/{DATA}",
        "cargo",
        "install Rust",
        ((".", ("cargo", "test", "--quiet")), ("example", ("cargo", "test", "--quiet"))),
    ),
    "java": Package(
        f"src/main/resources/kfuzz/{DATA}",
        "mvn",
        "install Java 17 and Maven",
        ((".", ("mvn", "-q", "-B", "test")),),
    ),
}


def vectors() -> list[dict[str, Any]]:
    """The vectors of records that say something about a consumer, as ``vectors.json`` has them."""
    suite = load_suite("records/*", kinds=("records",))
    return [_described(vector) for vector in suite if "consumer" in vector.expect]


def _described(vector: Vector) -> dict[str, Any]:
    expect = vector.expect["consumer"]
    out: dict[str, Any] = {"id": vector.id, "summary": vector.summary, "verdict": expect["verdict"]}
    if isinstance(vector.source, Bomb):
        # Its recipe takes seconds; its name says the codec.
        codecs = [codec for codec in CODECS if codec in vector.source.recipe] or ["none"]
        return out | {"recipe": vector.source.recipe, "sha256": vector.source.sha256, "codecs": codecs, "magics": [2]}
    out["hex"] = vector.data.hex()
    if expect["verdict"] != "invalid":
        out["records"] = list(_records(expect["batches"]))
    return out | needs(vector.data)


def needs(data: bytes) -> dict[str, Any]:
    """The codecs and the magics of the batches in ``data``, as far as Kafka knows them."""
    found = list(frames(data))
    codecs = {data[at + CODEC_AT[magic]] & CODEC_MASK for at, _, magic in found if magic in CODEC_AT}
    return {
        "codecs": [CODECS[codec] for codec in sorted(codecs) if codec < len(CODECS)],
        "magics": sorted({data[at + MAGIC_AT] for at, _, _ in found} & {0, 1, 2}),
    }


def _records(batches: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records that a consumer gets: those of control batches are not shown. All bytes are hex."""
    for batch in batches:
        for record in () if batch["control"] else batch["records"]:
            headers = [
                [name["hex"] if isinstance(name, dict) else name.encode().hex(), value]
                for name, value in record["headers"]
            ]
            # Magic 0 has no timestamps, and Kafka says -1.
            yield {**record, "timestamp": record["timestamp"] or "-1", "headers": headers}


def data() -> bytes:
    """The contents of ``vectors.json``: a vector in each line."""
    lines = ",\n".join(json.dumps(one, sort_keys=True, separators=(",", ":")) for one in vectors())
    head = json.dumps({"kfuzz": __version__, "suite": suite_version()}, sort_keys=True)[1:-1]
    return f'{{{head}, "vectors": [\n{lines}\n]}}\n'.encode()


def make(name: str, folder: Path, made: bytes) -> None:
    """Write the package into ``folder``, which must be empty or an earlier package."""
    package = PACKAGES[name]
    if (folder / package.data).is_file():
        shutil.rmtree(folder)
    require_empty(folder)
    with whole_directory(folder) as new:
        shutil.copytree(ROOT / "packages" / name, new, ignore=IGNORED, dirs_exist_ok=True)
        with (new / "README.md").open("ab") as readme:
            readme.write(b"\n" + (ROOT / "packages" / RULES).read_bytes())
        for path in sorted(new.rglob("*")):
            if path.is_file():
                path.write_bytes(path.read_bytes().replace(VERSION, __version__.encode()))
        shutil.copy2(ROOT / "LICENSE", new / "LICENSE")
        (new / package.data).parent.mkdir(parents=True, exist_ok=True)
        # An error names the package's own folder.
        (new / package.data).write_bytes(made)


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
