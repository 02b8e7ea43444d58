"""Generates all files that depend on the releases in kfuzz/kafka.py. docs/new-release.md lists the other steps.

Run it as ``make release``, or as ``python -m tools.release [VERSION…]`` to repeat it for known releases. For each
release it writes two catalogues from the jars, asks the release about every vector, lists its expected outcomes, and
writes the counts for the tests. It needs Java and Maven and takes about 15 minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from benchmarks.commands import exit_code
from kfuzz.conformance.protocol.testees import all_testees, select
from kfuzz.errors import UsageError
from kfuzz.files import write_whole
from kfuzz.kafka import RELEASES
from kfuzz.messages.catalogues import RECORDS, Catalogue, condense, load

__all__ = ["CLIENT_JARS", "RECORD_JARS", "catalogues_of"]

ROOT: Final = Path(__file__).resolve().parents[1]
CATALOGUES: Final = ROOT / "kfuzz" / "messages" / "definitions"
COUNTS: Final = ROOT / "tests" / "release_counts.toml"
CLIENT_JARS: Final = ("kafka-clients",)
# The jars of a broker that contain definitions. kafka-share-coordinator exists since Kafka 4.
RECORD_JARS: Final = (
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-transaction-coordinator",
)
SAMPLES: Final = 3
MUTANTS: Final = 200


def catalogues_of(folder: Path, release: str, jars: Iterable[str]) -> dict[str, Catalogue]:
    """The definitions by jar name, for each of the ``jars`` of this release that exists in ``folder``."""
    paths = {name: folder / f"{name}-{release}.jar" for name in jars}
    return {name: load(path) for name, path in paths.items() if path.exists()}


def write_catalogues(release: str) -> None:
    """Build the release's testee, which fetches the jars, and condense their definitions."""
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    testee.make_ready()
    folder = ROOT / "testees" / "kafka-clients" / "target" / release / "lib"
    for name, jars in ((release, CLIENT_JARS), (RECORDS[release], RECORD_JARS)):
        write_whole(CATALOGUES / f"{name}.json", condense(catalogues_of(folder, release, jars).values(), release))


def counts_of(release: str) -> str:
    """The release's table for tests/release_counts.toml."""
    # Import these late: they read the catalogues, which are new for a new release.
    from kfuzz.conformance.differential.messages import KINDS, RECORD_KINDS, differ_messages
    from kfuzz.messages.catalogues import catalogue

    clients, records = catalogue(release).messages.values(), catalogue(RECORDS[release]).messages.values()
    requests = [one for one in clients if one.kind == "request" and one.valid_versions]
    lines = [
        f'["{release}"]',
        f"versions = {sum(len(list(one.valid_versions)) for one in clients)}",
        f"record_versions = {sum(len(list(one.valid_versions)) for one in records)}",
        f"headers = {sum(len(list(one.valid_versions)) + 1 for one in requests)}",
    ]
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    for group, name, kinds in (
        ("clients", release, KINDS),
        ("client_records", release, RECORD_KINDS),
        ("records", RECORDS[release], RECORD_KINDS),
    ):
        found = differ_messages(testee, name, kinds=kinds, samples=SAMPLES, mutants=MUTANTS)
        if found.failed:
            reason = found.deviations[0].reason if found.deviations else "the testee broke"
            raise UsageError(f"{release} reads a message differently from kfuzz: {reason}; fix that first")
        agreed = found.agreements
        versions = agreed["encoded"] // (1 + SAMPLES)
        numbers = [versions, agreed["mutants"], agreed["rewritten"], found.rules.total()]
        lines.append(f"agreement.{group} = {numbers}")
    return "\n".join(lines) + "\n"


def write_counts(releases: Iterable[str]) -> None:
    """Add the table of each release, or replace its old table."""
    text = COUNTS.read_text()
    for release in releases:
        table = counts_of(release)
        if release in tomllib.loads(text):
            start = text.index(f'["{release}"]')
            end = text.find("\n[", start) + 1 or len(text)
            text = text[:start] + table + ("\n" if end < len(text) else "") + text[end:]
        else:
            text += "\n" + table
    write_whole(COUNTS, text)


def run(*words: str) -> None:
    """Run a kfuzz command in a new process, which sees the new catalogues. ``UsageError`` if it fails."""
    print(f"kfuzz {' '.join(words)}", flush=True)
    if subprocess.run([sys.executable, "-P", "-m", "kfuzz", *words], cwd=ROOT).returncode:
        raise UsageError(f"`kfuzz {' '.join(words)}` failed; fix the problem that it reports and run this again")


def main(words: list[str]) -> None:
    """Generate the files for the releases in ``words``, or for every release that has no counts yet."""
    counted = tomllib.loads(COUNTS.read_text())
    chosen = words or [release for release in RELEASES if release not in counted]
    if unknown := [release for release in chosen if release not in RELEASES]:
        raise UsageError(f"kfuzz/kafka.py has no release {unknown[0]}; add it there first")
    if not chosen:
        print(f"up to date for every release: {', '.join(RELEASES)}")
        return
    for release in chosen:
        print(f"{release}: catalogues", flush=True)
        write_catalogues(release)
    run("vectors", "build", "--confirm", "--broker")
    for release in chosen:
        run("conform", "--testee", f"kafka-clients@{release}", "--update-expected")
    print("counts for the tests", flush=True)
    write_counts(chosen)


if __name__ == "__main__":
    sys.exit(exit_code("tools.release", lambda: main(sys.argv[1:])))
