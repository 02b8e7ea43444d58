"""The strategies of kfuzz.strategies: valid is valid for Kafka too, hostile is refused often, and both shrink."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any, TypeVar

import pytest
from conftest import require_tool
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from programs import SAME_PATHS, run_program

from kfuzz import records, strategies
from kfuzz.conformance.differential.records import differ
from kfuzz.conformance.protocol.testees import all_testees, select
from kfuzz.errors import UsageError
from kfuzz.fuzz.targets import committed_by_markers
from kfuzz.kafka import LATEST
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.records import RecordBatch

T = TypeVar("T")
EXAMPLES = 120
WIDELY = settings(max_examples=EXAMPLES, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
SEARCH = settings(WIDELY, max_examples=2_000)
# The size of the smallest hostile bytes with the finding argv[1].
SHRINK = """
import sys
from hypothesis import find
from kfuzz import records, strategies
from test_strategies import SEARCH
def has(data):
    return sys.argv[1] in {finding.code for finding in records.check(data).findings}
print(len(find(strategies.batch_bytes(hostile=True), has, settings=SEARCH)))
"""


def drawn(strategy: st.SearchStrategy[T], examples: int = EXAMPLES) -> list[T]:
    """Examples of the strategy."""
    made: list[T] = []

    @settings(WIDELY, max_examples=examples)
    @given(strategy)
    def keep(example: T) -> None:
        made.append(example)

    keep()
    return made


@pytest.mark.parametrize(
    "magics", [(2,), (0, 1, 2), *(pytest.param(one, marks=pytest.mark.full) for one in ((0,), (1,)))]
)
def test_valid_bytes_have_no_findings(magics: tuple[int, ...]) -> None:
    counts: Counter[Any] = Counter()
    for data in drawn(strategies.batch_bytes(magics=magics)):
        reading = records.read(data, profile="strict")
        assert (reading.findings, reading.consumed) == ([], len(data))
        for batch in reading.batches:
            counts[batch.magic] += 1
            counts[batch.compression] += 1
            counts["records"] += len(batch.records)
            counts["transactional"] += batch.transactional
    assert {magic for magic in (0, 1, 2) if counts[magic]} == set(magics)
    assert counts["lz4"] > 5
    assert counts["none"] > 5
    assert counts["records"] > EXAMPLES / 2
    assert bool(counts["transactional"]) == (2 in magics)


def test_logs_are_sound_and_their_markers_say_what_is_committed() -> None:
    counts: Counter[str] = Counter()
    for log in drawn(strategies.logs()):
        data = records.encode(log)
        assert records.check(data, profile="strict").findings == []
        assert records.check_stream(data, role="log").findings == ()
        committed = [batch.base_offset for batch in records.read_committed(data)]
        assert committed == committed_by_markers(log)
        counts["aborted"] += len(committed) < sum(bool(one.records) and not one.control for one in log)
        counts["several"] += len({batch.producer_id for batch in log if batch.transactional}) > 1
        counts["wrapped"] += any(batch.base_sequence > strategies.INT32_MAX - 9 for batch in log)
    assert min(counts.values()) > 5
    assert len(counts) == 3


def test_long_batches_and_long_headers_are_valid() -> None:
    longest = widest = 0
    for batch in drawn(strategies.batches(records_max=300, span_bytes_max=200), 40):
        assert records.check(records.encode_batch(batch), profile="strict").findings == []
        longest = max(longest, len(batch.records))
        widest = max([widest, *(len(value or b"") for one in batch.records for _, value in one.headers)])
    assert longest > 64
    assert widest > 64


@pytest.mark.java
@pytest.mark.parametrize("is_hostile", [False, pytest.param(True, marks=pytest.mark.full)])
def test_kafka_reads_the_same(is_hostile: bool) -> None:
    require_tool("mvn", "install Maven and a JDK")
    [testee] = select(all_testees(), [f"kafka-clients@{LATEST}"])
    # Hypothesis first draws what is nearly valid; of many examples, nearly a third is refused.
    count = 5 * EXAMPLES if is_hostile else EXAMPLES
    given_bytes = drawn(strategies.batch_bytes(hostile=is_hostile, magics=(0, 1, 2)), count)
    found = differ(testee, given_bytes)
    assert [one.reason for one in found.deviations] == []
    if is_hostile:
        assert found.agreements["rejected"] > len(given_bytes) / 10
    else:
        assert found.agreements == {"accepted": len(given_bytes)}


def test_message_sets_are_of_magic_0_and_1() -> None:
    magics = {batch.magic for data in drawn(strategies.message_sets()) for batch in records.decode(data)}
    assert magics == {0, 1}


def test_valid_messages_of_any_api_have_no_findings_and_are_written_again() -> None:
    kinds = set()
    for name, version, data in drawn(strategies.message_bytes()):
        definition = catalogue().find(name)
        reading = codec.read(definition, version, data)
        assert {finding.code for finding in reading.findings} <= {"tag-unknown"}
        assert reading.message is not None
        assert codec.encode(definition, version, reading.message) == data
        kinds.add(definition.kind)
    assert kinds >= {"request", "response"}


def test_hostile_messages_are_often_refused() -> None:
    made = drawn(strategies.message_bytes("FetchRequest", hostile=True))
    assert {name for name, _, _ in made} == {"FetchRequest"}
    assert len({version for _, version, _ in made}) > 5
    refused = [codec.check(catalogue().find(name), version, data).fatal for name, version, data in made]
    assert len(made) / 10 < sum(finding is not None for finding in refused) < len(made)


def test_the_values_of_a_message_can_be_written() -> None:
    definition = catalogue().find("MetadataRequest")
    version = definition.valid_versions.highest
    for values in drawn(strategies.messages("MetadataRequest")):
        assert codec.decode(definition, version, codec.encode(definition, version, values)).keys() >= values.keys()


def test_hostile_batches_have_findings_that_valid_ones_never_have() -> None:
    def codes(batch: RecordBatch) -> set[str]:
        return {finding.code for finding in records.check(records.encode_batch(batch)).findings}

    assert not any(codes(batch) for batch in drawn(strategies.batches()))
    assert {"base-offset-negative", "header-key-not-utf8"} <= set().union(
        *map(codes, drawn(strategies.hostile_batches()))
    )


@pytest.mark.nightly
@pytest.mark.parametrize("code", ["crc-mismatch", "record-count-too-high"])
def test_hostile_bytes_shrink_to_a_small_batch(code: str) -> None:
    # How far hypothesis gets depends on its version, and on the modules that the process has loaded. So this has a
    # process of its own.
    done = run_program(sys.executable, "-c", SHRINK, code, timeout=600, variables=SAME_PATHS)
    # The header of a batch has 61 bytes.
    assert int(done.stdout) <= 5 * 61


@pytest.mark.full
def test_a_valid_batch_shrinks_to_its_cause() -> None:
    found = find(strategies.batches(), lambda batch: any(record.headers for record in batch.records), settings=SEARCH)
    [record] = found.records
    assert (record.offset, record.timestamp, record.key, record.value) == (0, 0, None, None)
    assert record.headers == ((b"", None),)
    assert (found.compression, found.producer_id) == ("none", -1)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: strategies.records(magic=3), "magics are 3; give any of 0, 1 and 2"),
        (lambda: strategies.batch_bytes(magics=()), "magics are none; give any of 0, 1 and 2"),
        (lambda: strategies.message_sets(codecs=["zstd"]), "magic 1 has none of the codecs zstd; add another codec"),
        (lambda: strategies.batches(codecs=["brotli"]), "codecs are none, gzip, snappy, lz4, zstd; brotli is none of"),
        (lambda: strategies.batches(records_max=0), "records_max is 0; give 1 or more"),
        (lambda: strategies.messages("FetchRequests"), "FetchRequests"),
        (lambda: strategies.messages("FetchRequest", 99), "FetchRequest has no version 99; it has 4-"),
        (lambda: strategies.message_bytes("FetchRequest", 99), "FetchRequest has no version 99; it has 4-"),
    ],
)
def test_wrong_arguments_are_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make()


def test_without_hypothesis_the_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['hypothesis'] = None\nimport kfuzz.strategies"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "kfuzz.strategies needs hypothesis; install it with: pip install 'kfuzz[strategies]'"
    )
