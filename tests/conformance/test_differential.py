"""The differential: Kafka and kfuzz agree on mutated inputs, and whoever disagrees is caught, named and kept."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from conftest import require_tool

from kfuzz import records
from kfuzz.conformance.differential import RULES, Differential, differ, outcome_of
from kfuzz.conformance.protocol import Answer
from kfuzz.conformance.testees import Testee, all_testees, own
from kfuzz.errors import UsageError
from kfuzz.mutate import Mutator
from kfuzz.records import Reading, Record, RecordBatch
from kfuzz.vectors.model import load_suite

ROOT = Path(__file__).resolve().parents[2]
INPUTS = 20_000
REFUSING = """
import json, sys
sys.path.insert(0, {folder!r})
import toy
toy.handshake("refusing", magic=[0, 1, 2], codecs=["none", "gzip", "snappy", "lz4", "zstd"])
for count, line in enumerate(sys.stdin):
    {action}
    toy.say({{"id": json.loads(line)["id"], "outcome": "rejected"}})
"""


def refusing(tmp_path: Path, action: str = "pass") -> Testee:
    """A testee that refuses everything, and does ``action`` before it answers request ``count``."""
    script = tmp_path / "refusing.py"
    script.write_text(REFUSING.format(folder=str(Path(__file__).parent / "wicked"), action=action))
    return Testee("refusing", "1", (sys.executable, "-S", str(script)))


def conform(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kfuzz.cli.main", "conform", *arguments], capture_output=True, text=True, timeout=120
    )


def rule(name: str, data: bytes, answer: Answer) -> bool:
    (found,) = [rule for rule in RULES if name in rule.name]
    return found.fits(data, records.read(data), answer)


@pytest.mark.java
def test_kafka_and_kfuzz_agree_on_20_000_mutated_inputs() -> None:
    testee = next(testee for testee in all_testees() if testee.label == "kafka-clients@4.4.0")
    for program in testee.requires:
        require_tool(program, f"{testee.label} needs it")
    seeds = [v.data for v in load_suite() if v.kind == "records" and not v.budget and len(v.data) <= 4096]
    found = differ(testee, islice(Mutator(1, seeds=seeds), INPUTS))
    assert [f"{item.reason}\n{item.data.hex()}" for item in found.disagreements] == []
    assert (found.inputs, found.broken) == (INPUTS, "")
    assert found.agreed + found.rules.total() == INPUTS
    # Both sides must be kept busy, and rules must stay the exception, or agreement means little.
    assert found.accepted > INPUTS // 5
    assert found.rejected > INPUTS // 5
    assert found.rules.total() < INPUTS // 8


def test_a_broken_reader_is_caught() -> None:
    """A reader that drops the last record's value disagrees with every other."""

    def broken(data: bytes) -> Reading:
        reading = records.read(data)
        if reading.batches and reading.batches[-1].records:
            reading.batches[-1].records[-1].value = b"broken"
        return reading

    found = differ(own(), islice(Mutator(1), 300), read=broken)
    assert len(found.disagreements) > 50
    assert any("value is " in item.reason for item in found.disagreements)
    assert found.agreed > 50


def test_readers_that_are_one_agree_on_everything() -> None:
    found = differ(own(), islice(Mutator(1), 1_000))
    assert (found.agreed, found.disagreements, found.rules) == (1_000, [], {})


def test_no_rule_excuses_a_testee_that_is_not_kafka(tmp_path: Path) -> None:
    found = differ(refusing(tmp_path), islice(Mutator(1), 300))
    assert found.agreed + len(found.disagreements) == 300
    assert all("kfuzz: accepted; refusing@1: rejected" in item.reason for item in found.disagreements)
    assert found.agreed > 60
    assert len(found.disagreements) > 60


def test_what_a_testee_declares_unsupported_is_not_asked(tmp_path: Path) -> None:
    script = tmp_path / "nothing.py"
    script.write_text(
        REFUSING.format(folder=str(Path(__file__).parent / "wicked"), action="pass").replace("[0, 1, 2]", "[]")
    )
    found = differ(Testee("nothing", "1", (sys.executable, "-S", str(script))), islice(Mutator(1), 200))
    assert found.unsupported > 150
    assert found.inputs == 200


def test_a_testee_that_dies_is_one_sentence_and_its_open_requests_are_kept(tmp_path: Path) -> None:
    found = differ(refusing(tmp_path, "if count == 100: sys.exit('wild pointer')"), islice(Mutator(1), 300))
    assert found.broken == "refusing@1 ended with status 1: wild pointer, with input 100 the first unanswered"
    assert found.failed
    assert found.inputs == 100
    assert [item.index for item in found.unanswered] == list(range(100, 164))
    assert found.unanswered[0].data == Mutator(1).input_at(100)


def test_a_testee_that_does_not_begin_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="nobody: no handshake"):
        differ(Testee("nobody", "", (sys.executable, "-c", "")), [])


def test_every_rule_is_a_row_of_the_docs() -> None:
    text = (ROOT / "docs" / "differences.md").read_text()
    for found in RULES:
        assert f"| {found.name} |" in text


def test_a_rule_fits_what_it_is_about_and_nothing_else() -> None:
    good = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], compression="lz4"))
    refused = good[:-1] + bytes([good[-1] ^ 1])
    fault = Answer("x", "fault", error="IllegalArgumentException: no codec")
    assert rule("undeclared", refused, fault)
    assert not rule("undeclared", good, fault)
    assert not rule("undeclared", refused, Answer("x", "fault", error="NullPointerException"))
    assert rule("inside a wrapper", good, Answer("x", "fault", error="OutOfMemoryError: Java heap space"))
    assert not rule("inside a wrapper", good, Answer("x", "rejected", error="OutOfMemoryError"))
    assert rule("gzip", good, Answer("x", "fault", error="StackOverflowError"))
    assert not rule("lz4", good, fault)
    # The block's size is at 68: 61 of header, 7 of frame descriptor. An empty block before it is no end mark.
    assert rule("lz4", records_with_empty_block(good), fault)


def records_with_empty_block(batch: bytes) -> bytes:
    data = batch[:68] + b"\0\0\0\x80" + batch[68:]
    return data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]


# --- what was met on the way ----------------------------------------------------------------------------------------

REGRESSIONS = sorted((ROOT / "corpus" / "regressions" / "differential").glob("*.hex"))


def own_outcome(data: bytes) -> dict[str, Any]:
    """What kfuzz makes of ``data``, as Java would tell it: header keys are text."""
    reading = records.read(data)
    if reading.fatal is not None:
        return {"outcome": "refused"}
    batches = records.to_json(reading.batches)
    for header in (h for batch in batches for record in batch["records"] for h in record["headers"]):
        if isinstance(header[0], dict):
            header[0] = bytes.fromhex(header[0]["hex"]).decode("utf-8", "replace")
    return outcome_of({"outcome": "accepted", "consumed": reading.consumed, "batches": batches})


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_what_once_differed_is_read_as_kafka_reads_it(file: Path) -> None:
    comment, text = file.read_text().splitlines()
    assert comment.startswith("# ")
    kafka = json.loads(file.with_suffix(".json").read_text())
    assert kafka.pop("testee").startswith("kafka-clients@")
    if kafka["outcome"] != "accepted":
        kafka = {"outcome": "refused"}
    assert own_outcome(bytes.fromhex(text)) == kafka


def test_an_outcome_in_short_tells_contents_apart() -> None:
    first, other = ({"outcome": "accepted", "consumed": 0, "batches": batches} for batches in ([], [{"magic": 2}]))
    assert outcome_of(first)["contents_sha256"] != outcome_of(other)["contents_sha256"]
    assert outcome_of({"outcome": "fault", "error": "x", "batches": []}) == {"outcome": "fault", "error": "x"}
    good = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")]))
    assert own_outcome(good)["consumed"] == len(good)


# --- the command line -----------------------------------------------------------------------------------------------


def test_disagreements_exit_with_1_are_told_with_their_hex_and_kept_whole(tmp_path: Path) -> None:
    script = refusing(tmp_path).argv
    done = conform(
        "--differential", "--count", "200", "--seed", "4", "--command", " ".join(script), "--out", str(tmp_path),
        "records/v2/header/*", "--json", str(tmp_path / "report.json"),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    document = json.loads((tmp_path / "report.json").read_text())
    assert (document["testee"], document["seed"], document["inputs"]) == ("refusing@1", 4, 200)
    first = document["disagreements"][0]
    kept = tmp_path / "differential" / f"seed-4-input-{first['index']}.bin"
    assert kept.read_bytes().hex() == first["hex"]
    assert json.loads(kept.with_suffix(".json").read_text()) == {"testee": "refusing@1", "outcome": "rejected"}
    assert f"input {first['index']} of seed 4: refused what must be accepted" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f"{len(document['disagreements'])} differ")


def test_agreement_exits_with_0_and_prints_json_alone() -> None:
    done = conform("--differential", "--testee", "kfuzz", "--count", "300", "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["agreed"], document["disagreements"], document["broken"]) == (300, [], None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--count", "3"), "--count belongs to --differential"),
        (("--differential", "--role", "broker"), "knows the role consumer alone"),
        (("--differential", "--update-expected"), "--update-expected is about the vectors"),
        (("--differential", "--testee", "kfuzz", "--command", "true"), "--differential asks one testee"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = conform(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_empty_run_has_found_nothing() -> None:
    assert not Differential("x@1").failed
