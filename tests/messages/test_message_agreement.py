"""kfuzz and Kafka's generated classes read and write every version of every message alike. The counts are fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import require_tool
from release_counts import COUNTS

from kfuzz.conformance.differential.messages import KINDS, RECORD_KINDS, differ_messages
from kfuzz.conformance.protocol.testees import all_testees, select
from kfuzz.conformance.report.differences import keep, sentences
from kfuzz.kafka import KAFKA_3, LATEST
from kfuzz.messages.catalogues import RECORDS

# The number of mutants of each version, and the number of samples that are written and read.
MUTANTS = 200
SAMPLES = {4: 1, MUTANTS: 3}
# The kinds of messages that are compared: headers, requests and responses; data inside these and in control records;
# and records in a broker's logs and files, which have their own catalogue.
GROUPS = {"clients": KINDS, "client_records": RECORD_KINDS, "records": RECORD_KINDS}


@pytest.mark.java
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("release", "mutants_of_each"),
    [
        (LATEST, 4),
        pytest.param(LATEST, MUTANTS, marks=pytest.mark.nightly),
        pytest.param(KAFKA_3, 4, marks=pytest.mark.full),
        pytest.param(KAFKA_3, MUTANTS, marks=pytest.mark.nightly),
    ],
)
def test_every_message_kind_and_version_agrees(release: str, group: str, mutants_of_each: int, tmp_path: Path) -> None:
    name = RECORDS[release] if group == "records" else release
    versions, mutants, rewritten, ruled = COUNTS[release]["agreement"][group]
    samples = SAMPLES[mutants_of_each]
    require_tool("mvn", "install Maven and a JDK")
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    found = differ_messages(testee, name, kinds=GROUPS[group], samples=samples, mutants=mutants_of_each)
    print(*sentences(found, keep(found, tmp_path, seed=1), seed=1, shown=9), sep="\n")
    assert [one.reason for one in found.deviations] == []
    assert (found.setting, found.restarts) == (f"in {versions} versions", 0)
    whole = versions * (1 + samples)
    assert (found.agreements["encoded"], found.agreements["decoded"]) == (whole, whole)
    assert found.agreements["mutants"] + found.rules.total() == versions * mutants_of_each
    if mutants_of_each == MUTANTS:
        said = (found.agreements["mutants"], found.agreements["rewritten"], found.rules.total())
        assert said == (mutants, rewritten, ruled)
    else:
        # A smaller run has about the same proportions as the full one.
        assert found.agreements["rewritten"] > rewritten * mutants_of_each / MUTANTS / 2
        assert found.rules.total() <= ruled * mutants_of_each / MUTANTS * 2
