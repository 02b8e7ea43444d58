"""The testees in Rust: they build, name the exact version of their library, and do what vectors/expected/ says."""

from __future__ import annotations

import tomllib

import pytest
from conftest import require_tool

from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.judge.matrix import Places, run
from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.vectors import KINDS, default_root, load_suite

# One family of record batches, and for a library of messages two messages: a header and a request.
FAMILIES = {
    "kafka-protocol": ("records/v2/count/*", "messages/headers/*", "messages/requests/api-versions-request-*"),
    "rskafka": ("records/v2/count/*",),
}


@pytest.fixture(params=FAMILIES)
def testee(request: pytest.FixtureRequest) -> Testee:
    (found,) = [testee for testee in all_testees() if testee.name == request.param]
    require_tool("cargo", f"{found.label} needs it")
    return found


def test_outcomes_are_as_expected_and_the_handshake_names_the_pinned_version(testee: Testee) -> None:
    cases = cases_of(load_suite(FAMILIES[testee.name], kinds=KINDS))
    (judged,) = run([testee], cases, places=Places.beside(default_root()), whole=False).testees
    assert judged.broken == ""
    assert judged.label == testee.label == f"{testee.name}@{pinned(testee)}"
    assert {key: judged.cells[key].text for key in judged.unexpected} == {}


def pinned(testee: Testee) -> str:
    """The version of the library in Cargo.toml, which must be exact."""
    assert testee.folder
    manifest = tomllib.loads((testee.folder / "Cargo.toml").read_text())
    dependency = manifest["dependencies"][testee.name]
    version = dependency if isinstance(dependency, str) else dependency["version"]
    assert version.startswith("=")
    return str(version[1:])
