"""The programs for maintainers in testees/*/reproduce: each one reads a good vector and says so in its last line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import the_testee
from programs import run_program

from kfuzz.conformance.protocol.testees import all_testees
from kfuzz.kafka import LATEST
from kfuzz.messages.catalogues import catalogue
from kfuzz.vectors import find_vector

RECORDS = "records/v2/count/of-3"
MESSAGE = "messages/requests/heartbeat-request-v4"

# They compile something first.
MARKS = {"rust": [pytest.mark.full], "java": [pytest.mark.java, pytest.mark.full], "go": [pytest.mark.full]}


def programs() -> list[Any]:
    testees = {testee.name: testee for testee in reversed(all_testees())}
    return [
        pytest.param(name, kind, marks=MARKS.get(testee.language, []), id=f"{name}-{kind}")
        for name, testee in sorted(testees.items())
        for kind in testee.reproducers
    ]


@pytest.mark.parametrize(("name", "kind"), programs())
def test_the_program_reads_a_good_vector(name: str, kind: str, tmp_path: Path) -> None:
    said = lines(name, kind, RECORDS if kind == "records" else MESSAGE, tmp_path)
    if kind == "records":
        assert said[-1] == "records: 3"
        assert [line.split()[:2] for line in said[:-1]] == [["offset", "0"], ["offset", "1"], ["offset", "2"]]
    else:
        assert said[-1].startswith("message: ")
        assert "memb3" in said[-1]


@pytest.mark.parametrize("name", ["aiokafka", "kafka-python", "franz-go"])
def test_the_program_says_what_the_library_refuses(name: str, tmp_path: Path) -> None:
    [*_, last] = lines(name, "records", "records/v2/header/crc-wrong", tmp_path)
    assert last.startswith("error: ")


def lines(name: str, kind: str, vector: str, folder: Path) -> list[str]:
    """Build what the program needs, and return what it says of a vector."""
    testee = the_testee(name)
    reproducer = testee.reproducers[kind]
    testee.make_ready()
    reproducer.make_ready()
    one = find_vector(vector)
    file = folder / "input"
    file.write_bytes(one.data)
    values = {"file": str(file)}
    if one.kind == "message":
        definition = catalogue(LATEST).find(one.options["message"])
        values |= {"kind": definition.kind, "key": str(definition.api_key), "version": str(one.options["version"])}
    command = reproducer.command(values)
    done = run_program(*command, cwd=reproducer.folder, timeout=60)
    return done.stdout.splitlines()
