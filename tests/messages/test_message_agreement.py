"""kfuzz and Apache Kafka's generated classes read and write every message of every version alike; counts are pinned.

KFUZZ_CAMPAIGN=1 (``make campaign``) asks 200 mutants of each.
"""

from __future__ import annotations

import os

import pytest
from conftest import require_tool

from kfuzz.conformance.message_differential import KINDS, RECORD_KINDS, differ_messages
from kfuzz.conformance.testees import all_testees, select
from kfuzz.messages.model import Kind

MUTANTS = 200 if os.environ.get("KFUZZ_CAMPAIGN") else 25
SAMPLES = 3
# Of each catalogue the kinds that are asked for, and how many versions their messages have together. Beside headers,
# requests and responses: what clients keep within these and in control records, and a broker in its logs and files.
VERSIONS = [
    ("3.9.2", "3.9.2", KINDS, 651),
    ("4.4.0", "4.4.0", KINDS, 622),
    ("3.9.2", "3.9.2", RECORD_KINDS, 15),
    ("4.4.0", "4.4.0", RECORD_KINDS, 18),
    ("3.9.2", "records-3.9.2", RECORD_KINDS, 74),
    ("4.4.0", "records-4.4.0", RECORD_KINDS, 104),
]


@pytest.mark.java
@pytest.mark.parametrize(("release", "name", "kinds", "versions"), VERSIONS)
def test_every_message_kind_and_version_agrees(release: str, name: str, kinds: tuple[Kind, ...], versions: int) -> None:
    require_tool("mvn", "install Maven and a JDK")
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    found = differ_messages(testee, name, kinds=kinds, samples=SAMPLES, mutants=MUTANTS)
    assert [one.reason for one in found.disagreements] == []
    assert found.versions == versions
    assert found.agreed["encoded"] == found.agreed["decoded"] == versions * (1 + SAMPLES)
    assert found.agreed["mutants"] + sum(found.ruled.values()) == versions * MUTANTS
    # What the older one reads and the newer does not is rare, and is nothing else.
    assert sum(found.ruled.values()) <= versions * MUTANTS // 50
    assert release != "4.4.0" or not found.ruled
