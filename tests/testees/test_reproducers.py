"""The programs for maintainers in testees/*/reproduce: each one reads a good vector and says so in its last line."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import missing, require_tool
from testee_driver import TESTEES

from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.kafka import LATEST
from kfuzz.messages.catalogues import catalogue
from kfuzz.vectors import find_vector

RECORDS = "records/v2/count/of-3"
MESSAGE = "messages/requests/heartbeat-request-v4"

TABLES: dict[str, dict[str, Any]] = {
    file.parent.name: tomllib.loads(file.read_text()).get("reproduce", {}) for file in TESTEES.glob("*/testee.toml")
}
# They compile something first.
MARKS = {"rust": [pytest.mark.full], "java": [pytest.mark.java, pytest.mark.full], "go": [pytest.mark.full]}


def programs() -> list[Any]:
    languages = {testee.name: testee.language for testee in all_testees()}
    return [
        pytest.param(name, kind, marks=MARKS.get(languages[name], []), id=f"{name}-{kind}")
        for name, kinds in sorted(TABLES.items())
        for kind in kinds
    ]


@pytest.mark.parametrize(("name", "kind"), programs())
def test_the_program_reads_a_good_vector(name: str, kind: str, tmp_path: Path) -> None:
    testee = next(testee for testee in all_testees() if testee.name == name)
    table = TABLES[name][kind]
    assert testee.folder
    assert (testee.folder / table["program"]).is_file()
    ready(testee, table)
    said = lines(testee, table, RECORDS if kind == "records" else MESSAGE, tmp_path)
    if kind == "records":
        assert said[-1] == "records: 3"
        assert [line.split()[:2] for line in said[:-1]] == [["offset", "0"], ["offset", "1"], ["offset", "2"]]
    else:
        assert said[-1].startswith("message: ")
        assert "memb3" in said[-1]


@pytest.mark.parametrize("name", ["aiokafka", "kafka-python", "franz-go"])
def test_the_program_says_what_the_library_refuses(name: str, tmp_path: Path) -> None:
    testee = next(testee for testee in all_testees() if testee.name == name)
    ready(testee, TABLES[name]["records"])
    [*_, last] = lines(testee, TABLES[name]["records"], "records/v2/header/crc-wrong", tmp_path)
    assert last.startswith("error: ")


def ready(testee: Testee, table: dict[str, Any]) -> None:
    """Skip with a reason if a tool or module is missing; else build what the program needs."""
    for tool in testee.requires:
        require_tool(tool, f"{testee.label} needs it")
    if reason := testee.missing():
        missing(testee.name, reason)
    if "build" in table:
        subprocess.run(filled(testee, table["build"]), cwd=testee.folder, check=True, capture_output=True, timeout=600)
    else:
        testee.make_ready()


def lines(testee: Testee, table: dict[str, Any], vector: str, folder: Path) -> list[str]:
    one = find_vector(vector)
    file = folder / "input"
    file.write_bytes(one.data)
    places = {"{file}": str(file)}
    if one.kind == "message":
        definition = catalogue(LATEST).find(one.options["message"])
        key, version = str(definition.api_key), str(one.options["version"])
        places |= {"{kind}": definition.kind, "{key}": key, "{version}": version}
    done = subprocess.run(
        filled(testee, table["run"], places), cwd=testee.folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def filled(testee: Testee, words: list[str], places: dict[str, str] | None = None) -> list[str]:
    for place, text in {
        "{python}": sys.executable,
        "{folder}": str(testee.folder),
        "{release}": testee.version,
        **(places or {}),
    }.items():
        words = [word.replace(place, text) for word in words]
    return words
