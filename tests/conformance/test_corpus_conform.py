"""A testee reads a corpus. A wrong answer is reported with its place. If it dies, only the fatal batch is blamed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import the_testee

from kfuzz.conformance.judge.corpus import SegmentResult, conform_segments, report_lines
from kfuzz.corpora.generation import generate
from kfuzz.corpora.hostile import hostile_vector
from kfuzz.corpora.manifest import Row
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.workload import parse
from kfuzz.errors import KfuzzError

WORKLOAD = parse('size = "600KiB"\nsegment_bytes = "256KiB"\n[[topics]]\nname = "demo"\n', "the test")

# kfuzz's own testee, whose answers pass through `answer`: it may change them, or end the process.
TESTEE = """
import json, os, sys
from io import BytesIO
from kfuzz.conformance.judge import own

def answer(request, found):
{body}
    return found

own._put(sys.stdout.buffer, own._handshake("kafka"))
for line in sys.stdin.buffer:
    request = json.loads(line)
    print(json.dumps(answer(request, own._answer(line, "kafka"))), flush=True)
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    out = tmp_path_factory.mktemp("corpus") / "out"
    return out, list(generate(WORKLOAD, out))


def asked(corpus: tuple[Path, list[Row]], tmp_path: Path, body: str) -> list[SegmentResult]:
    out, rows = corpus
    return list(conform_segments(out, WORKLOAD, range(len(rows)), changing(tmp_path, body)))


def changing(folder: Path, body: str) -> list[str]:
    """The command of a testee whose function ``answer`` has this body."""
    script = folder / "testee.py"
    script.write_text(TESTEE.replace("{body}", "".join(f"    {line}\n" for line in body.splitlines())))
    return [sys.executable, str(script)]


def test_a_testee_that_reads_all_has_no_deviation(corpus: tuple[Path, list[Row]], tmp_path: Path) -> None:
    results = asked(corpus, tmp_path, "pass")
    assert [result.deviations for result in results] == [(), (), ()]
    assert [(result.path, result.batches) for result in results] == [(row.path, row.batches) for row in corpus[1]]


def test_a_lost_record_is_named_with_its_batch(corpus: tuple[Path, list[Row]], tmp_path: Path) -> None:
    body = "if found['batches'][0]['base_offset'] == '100':\n    found['batches'][0]['records'].pop()"
    [deviation] = [one for result in asked(corpus, tmp_path, body) for one in result.deviations]
    path, at = corpus[1][0].path, deviation.number
    assert (deviation.input, deviation.reason, deviation.harm) == (f"{path}@{at}", "", "loses")
    assert deviation.error == "batch[0] has too few records: 99; expected 100"
    log = (corpus[0] / path).read_bytes()
    assert int.from_bytes(log[at : at + 8], "big") == 100
    assert int.from_bytes(log[at + 8 : at + 12], "big") + 12 == deviation.size_bytes


def test_a_testee_that_dies_costs_only_its_culprit(corpus: tuple[Path, list[Row]], tmp_path: Path) -> None:
    body = "if found['batches'][0]['base_offset'] in ('100', '700'):\n    os._exit(9)"
    results = asked(corpus, tmp_path, body)
    deviations = [one for result in results for one in result.deviations]
    assert [one.harm for one in deviations] == ["kills", "kills"]
    assert sum(result.batches for result in results) == sum(row.batches for row in corpus[1])
    assert report_lines(results)[-1].endswith(": 2 deviations, 0 unsupported")


def test_a_testee_that_does_not_start_ends_the_run(corpus: tuple[Path, list[Row]]) -> None:
    out, rows = corpus
    with pytest.raises(KfuzzError, match=r"^the testee /bin/false does not start: "):
        list(conform_segments(out, WORKLOAD, range(len(rows)), ["/bin/false"]))


def test_a_damaged_corpus_is_not_blamed_on_the_testee(corpus: tuple[Path, list[Row]], tmp_path: Path) -> None:
    rows = list(generate(WORKLOAD, tmp_path / "out"))
    log = tmp_path / "out" / rows[1].path
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(KfuzzError, match=r"has an unlabelled bad batch at byte \d+; run `kfuzz corpus verify`$"):
        list(conform_segments(tmp_path / "out", WORKLOAD, range(len(rows)), None))
    log.write_bytes(data[:-1])
    with pytest.raises(KfuzzError, match=r"is not what its corpus says"):
        list(conform_segments(tmp_path / "out", WORKLOAD, range(len(rows)), None))


HOSTILE = parse(
    'size = "400KiB"\nsegment_bytes = "64KiB"\nseed = 3\n[[topics]]\nname = "traps"\nadversarial.share = 0.2\n',
    "the test",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    out = tmp_path_factory.mktemp("hostile") / "out"
    return out, len(generate(HOSTILE, out))


def test_kfuzz_treats_every_hostile_batch_as_its_label_says(hostile: tuple[Path, int]) -> None:
    out, count = hostile
    results = list(conform_segments(out, resolve(HOSTILE), range(count), None))
    assert [one for result in results for one in result.deviations] == []
    assert sum(result.hostile for result in results) > 200


@pytest.mark.full
def test_kafka_treats_every_hostile_batch_as_its_label_says(hostile: tuple[Path, int]) -> None:
    testee = the_testee("kafka-clients@4.4.0")
    testee.make_ready()
    out, count = hostile
    results = list(conform_segments(out, resolve(HOSTILE), range(count), testee.argv, cwd=testee.folder))
    # Kafka's own faults are in the suite: exceptions that its reader does not declare.
    found = [(one.harm, one.reason) for result in results for one in result.deviations]
    assert found
    for harm, vector in found:
        assert (harm, hostile_vector(vector).kafka["4.4.0"]["consumer"]) == ("panics", "fault")
    assert sum(result.hostile for result in results) > 200


def test_a_testee_that_accepts_wrong_checksums_is_told_by_the_labels(hostile: tuple[Path, int], tmp_path: Path) -> None:
    body = (
        "if found['outcome'] == 'rejected' and 'crc' in found.get('error', '').lower() + str(found.get('finding')):\n"
        "    found = {'id': request['id'], 'outcome': 'accepted', 'batches': []}"
    )
    out, count = hostile
    results = list(conform_segments(out, resolve(HOSTILE), range(count), changing(tmp_path, body)))
    deviations = [one for result in results for one in result.deviations]
    assert deviations
    assert all("crc" in one.reason for one in deviations)
    assert {one.harm for one in deviations} <= {"accepts", "differs"}
