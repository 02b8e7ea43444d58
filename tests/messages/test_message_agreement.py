"""kfuzz and Apache Kafka's generated classes read and write every API, kind and version alike; the counts are pinned.

KFUZZ_CAMPAIGN=1 (``make campaign``) asks 200 mutants of each.
"""

from __future__ import annotations

import os

import pytest
from conftest import require_tool

from kfuzz.conformance.message_differential import differ_messages
from kfuzz.conformance.testees import all_testees, select

MUTANTS = 200 if os.environ.get("KFUZZ_CAMPAIGN") else 25
SAMPLES = 3
# Headers, requests and responses of all versions.
VERSIONS = {"3.9.2": 651, "4.4.0": 622}


@pytest.mark.java
@pytest.mark.parametrize("release", VERSIONS)
def test_every_api_kind_and_version_agrees(release: str) -> None:
    require_tool("mvn", "install Maven and a JDK")
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    found = differ_messages(testee, release, samples=SAMPLES, mutants=MUTANTS)
    assert [one.reason for one in found.disagreements] == []
    versions = VERSIONS[release]
    assert found.versions == versions
    assert found.agreed["encoded"] == found.agreed["decoded"] == versions * (1 + SAMPLES)
    assert found.agreed["mutants"] + sum(found.ruled.values()) == versions * MUTANTS
    # What the older one reads and the newer does not is rare, and is nothing else.
    assert sum(found.ruled.values()) <= versions * MUTANTS // 1000
    assert release != "4.4.0" or not found.ruled
