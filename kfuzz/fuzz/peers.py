"""Peers: other people's readers of record batches, as fuzz targets.

A peer is a testee in Python whose ``testee.toml`` has a table ``fuzz`` (testees/README.md). The fuzzer calls the
testee's own function ``read``, and ``REJECTIONS`` of the testee are the exceptions that count as a documented answer.
The library's code runs only in fuzzing processes, because it may end them.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.errors import UsageError
from kfuzz.fuzz.oracle import Undeclared, exact_bytes
from kfuzz.fuzz.targets import Target


@dataclass(frozen=True, slots=True)
class Peer:
    """One library: ``folder`` holds its testee, ``package`` is what Python imports, ``distribution`` what pip installs.

    If it is ``compiled``, its compiled modules are fuzzed in a build of their own. ``version`` is the installed one.
    """

    name: str
    version: str
    package: str
    distribution: str
    compiled: bool
    folder: Path

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"

    @property
    def target(self) -> Target:
        """The peer as a fuzz target. Its ``run`` imports the library, so call that only in a fuzzing process."""
        return Target(
            self.name,
            f"{self.label} reads record batches, in the steps of its testee.",
            partial(_run, self.folder, self.package),
            seeds_of="record-batch",
            implementation=self.label,
            package=self.package,
        )


def find(name: str, *, root: Path | None = None) -> Peer:
    """The peer called ``name`` among the testees in ``root``; without it, in ``testees/`` of the checkout.

    Raises ``UsageError`` if there is none, or if the library is not installed.
    """
    testees = {testee.name: testee for testee in all_testees(root) if testee.fuzzed}
    if not testees:
        raise UsageError("the peers are in testees/, which an installed kfuzz does not have; run this in a checkout")
    if name not in testees:
        near = difflib.get_close_matches(name, testees, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"no peer {name!r}; {hint}the peers are {', '.join(testees)}")
    return _peer(testees[name])


def in_folder(folder: Path) -> Peer:
    """The peer whose testee is in ``folder``."""
    return next(_peer(testee) for testee in all_testees(folder.parent) if testee.folder == folder)


def _peer(testee: Testee) -> Peer:
    assert testee.fuzzed
    assert testee.folder
    distribution = testee.fuzzed.distribution
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(f"{distribution} is not installed; pip install 'kfuzz[testees]'") from None
    return Peer(testee.name, version, testee.library, distribution, testee.fuzzed.compiled, testee.folder)


@cache
def reader(folder: Path, package: str) -> Callable[[bytes], None]:
    """A function that reads one input as the testee in ``folder`` does, and raises ``Undeclared``.

    This imports the library.
    """
    spec = importlib.util.spec_from_file_location("kfuzz_peer", folder / "testee.py")
    assert spec
    assert spec.loader
    testee: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(testee)
    read, rejections, kit = testee.read, testee.REJECTIONS, testee.kfuzz_testee
    # A line for each bad input would fill the disk.
    logging.disable()

    def run(data: bytes) -> None:
        try:
            for _ in read(exact_bytes(data)):
                pass
        except rejections:
            pass
        except KeyboardInterrupt:
            raise
        # A panic of an extension in Rust is not an Exception, and neither is the end of the program.
        except BaseException as error:
            raise Undeclared(kit.describe(error), kit.place_of(error, package) or "") from error

    return run


def _run(folder: Path, package: str, data: bytes) -> None:
    reader(folder, package)(data)
