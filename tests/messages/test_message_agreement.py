"""kfuzz and Apache Kafka's generated classes read and write every message of every version alike; counts are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import require_tool
from release_counts import COUNTS

from kfuzz.conformance.differential.messages import (
    KINDS,
    RECORD_KINDS,
    MessageDifferential,
    MessageDisagreement,
    differ_messages,
    keep_messages,
    sentences_of_messages,
)
from kfuzz.conformance.protocol.testees import all_testees, select
from kfuzz.kafka import RELEASES
from kfuzz.messages.catalogue import RECORDS
from kfuzz.messages.model import Kind

MUTANTS, SAMPLES = 200, 3
# Of each catalogue the kinds that are asked for; how many versions their messages have together; how many mutants
# agree; of how many of those what was read is written again alike, or refused alike; and how many the older Kafka reads
# beyond the bounds of the newer. Beside headers, requests and responses: what clients keep within these and in control
# records, and a broker in its logs and files.
AGREEMENT = [
    (release, name, kinds, *COUNTS[release]["agreement"][group])
    for release in RELEASES
    for name, kinds, group in (
        (release, KINDS, "clients"),
        (release, RECORD_KINDS, "client_records"),
        (RECORDS[release], RECORD_KINDS, "records"),
    )
]


@pytest.mark.java
@pytest.mark.parametrize(("release", "name", "kinds", "versions", "mutants", "rewritten", "ruled"), AGREEMENT)
def test_every_message_kind_and_version_agrees(
    release: str,
    name: str,
    kinds: tuple[Kind, ...],
    versions: int,
    mutants: int,
    rewritten: int,
    ruled: int,
    tmp_path: Path,
) -> None:
    require_tool("mvn", "install Maven and a JDK")
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    found = differ_messages(testee, name, kinds=kinds, samples=SAMPLES, mutants=MUTANTS)
    print(*sentences_of_messages(found, keep_messages(found, tmp_path, seed=1), seed=1, shown=9), sep="\n")
    assert [one.reason for one in found.disagreements] == []
    assert found.versions == versions
    whole = versions * (1 + SAMPLES)
    assert found.agreed == {"encoded": whole, "decoded": whole, "mutants": mutants, "rewritten": rewritten}
    assert sum(found.ruled.values()) == ruled
    assert mutants + ruled == versions * MUTANTS


def test_what_differs_is_told_and_kept_as_the_request_that_shows_it(tmp_path: Path) -> None:
    found = MessageDifferential("toy@1", versions=3)
    found.agreed["decoded"] = 12
    found.ruled["counts"] = 2
    found.disagreements += [MessageDisagreement(f"Fetch {i}: other bytes", {"hex": f"0{i}"}) for i in range(3)]
    files = keep_messages(found, tmp_path, seed=5)
    assert [file.name for file in files] == [f"seed-5-message-{i}.json" for i in range(3)]
    assert files[1].read_text() == '{\n  "hex": "01",\n  "id": "message"\n}\n'
    assert sentences_of_messages(found, files, seed=5, shown=2) == [
        f"Fetch 0: other bytes ({files[0]})",
        f"Fetch 1: other bytes ({files[1]})",
        f"… and 1 more in {tmp_path}",
        "2 under the rule: counts",
        "toy@1, seed 5, 3 versions: 0 encoded, 12 decoded, 0 mutants, 0 rewritten agree, 3 differ",
    ]
