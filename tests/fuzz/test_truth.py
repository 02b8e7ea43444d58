"""A campaign's questions to another reader: every input of the corpus, also those that come later."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_driver import kfuzz
from fuzzer_stub import stub

from kfuzz import records
from kfuzz.conformance.differential.found import Asked, Differential
from kfuzz.conformance.judge.causes import Deviation, causes_of
from kfuzz.conformance.protocol.peer import Question
from kfuzz.conformance.protocol.testees import Testee, own
from kfuzz.errors import UsageError
from kfuzz.fuzz import campaign, kept, other_reader
from kfuzz.fuzz.causes import Causes, truth_of
from kfuzz.fuzz.messages import selector
from kfuzz.fuzz.other_reader import Truth, asked_once, harm_of, named_testee
from kfuzz.fuzz.packing import pack
from kfuzz.fuzz.sample_pipe import Sampler
from kfuzz.fuzz.seeding import read_hex, regressions, shapes
from kfuzz.fuzz.targets import TARGETS
from kfuzz.kafka import LATEST
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.schemas import schema
from kfuzz.records import Record, RecordBatch

GOOD = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")]))
LIAR = """
import json, sys, time
sys.path.insert(0, {folder!r})
import toy
toy.handshake("liar", magic=[0, 1, 2], codecs=["none", "gzip", "snappy", "lz4", "zstd"],
              operations=["decode-records", "decode-message", "encode-message"],
              messages={{"HeartbeatRequest": [0, 4]}})
for line in sys.stdin:
    {answers}
"""


def reader(tmp_path: Path, answers: str) -> Testee:
    script = tmp_path / "reader.py"
    script.write_text(LIAR.format(folder=str(Path(__file__).parent.parent / "conformance" / "wicked"), answers=answers))
    return Testee("liar", "1", (sys.executable, "-S", str(script)))


@pytest.fixture
def liar(tmp_path: Path) -> Testee:
    """A reader that refuses everything."""
    return reader(tmp_path, 'toy.say({"id": json.loads(line)["id"], "outcome": "rejected"})')


@pytest.fixture
def silent(tmp_path: Path) -> Testee:
    """A reader that does not return from the first input."""
    return reader(tmp_path, "time.sleep(1000)")


def corpus(tmp_path: Path, *inputs: bytes) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for i, data in enumerate(inputs):
        (folder / str(i)).write_bytes(data)
    return folder


def asked(tmp_path: Path, testee: Testee, name: str, *inputs: bytes, sample: bytes = b"") -> tuple[Truth, Differential]:
    """The answers of the testee about the inputs in a corpus, and of one in the sample."""
    truth = Truth(testee, TARGETS[name], corpus(tmp_path, *inputs))
    truth.start(tmp_path / "samples")
    if sample:
        Sampler(str(tmp_path / "samples"), waits=True)(sample)
    found = truth.finish(60)
    assert found is not None
    return truth, found


@pytest.mark.parametrize("name", ["record-batch", "columns", "broker", "log-tools"])
def test_a_reader_that_agrees_gives_no_cause_and_inputs_that_come_later_are_asked(tmp_path: Path, name: str) -> None:
    folder = corpus(tmp_path, GOOD, GOOD[:-1])
    truth = Truth(own(), TARGETS[name], folder)
    truth.start(tmp_path / "samples")
    (folder / "late").write_bytes(b"x" + GOOD)
    found = truth.finish(60)
    assert found is not None
    assert (found.inputs, found.agreed) == (3, 3)


def test_a_reader_that_refuses_what_kfuzz_accepts_is_a_cause(tmp_path: Path, liar: Testee) -> None:
    truth, found = asked(tmp_path, liar, "record-batch", GOOD, GOOD + GOOD, b"rubbish" * 9)
    [cause] = found.causes
    item = cause.smallest
    # If the other reader is right, kfuzz accepts what it must refuse.
    assert (cause.count, item.data, harm_of(item)) == (2, GOOD, "accepts")
    assert truth.described(item) == "kfuzz: accepted; liar@1: rejected"
    assert truth.differences == 2


def deviation(reason: str, request: Mapping[str, Any] | None = None, *, harm: str, error: str = "") -> Deviation:
    found = Differential("liar@1")
    found.add(Question(request or {}, Asked(0, None)), {}, reason=reason, error=error or reason, harm=harm)
    return found.deviations[0]


def test_other_contents_are_reported_as_the_reader_s() -> None:
    truth = Truth(Testee("liar", "1", ()), TARGETS["record-batch"], Path())
    wrong = "batch[0].base_offset is 1; expected 2"
    item = deviation(f"{wrong}; kfuzz: accepted; liar@1: accepted", harm="loses", error=wrong)
    assert truth.described(item) == f"as liar@1 reads it, {item.reason}"
    item = deviation("liar@1 died of SIGSEGV", harm="kills", error="died of SIGSEGV")
    assert truth.described(item) == item.reason


def test_a_sample_of_the_inputs_is_asked_too(tmp_path: Path, liar: Testee) -> None:
    [cause] = asked(tmp_path, liar, "record-batch", sample=GOOD)[1].causes
    assert (cause.count, cause.smallest.data) == (1, GOOD)


def test_messages_are_asked_as_the_message_that_they_select(tmp_path: Path, liar: Testee) -> None:
    _, found = asked(tmp_path, liar, "messages", MESSAGE, b"\xff\xff\xff none")
    # Read, and written again.
    assert [(item.request["operation"], item.request["message"]) for item in found.deviations] == [
        ("decode-message", "HeartbeatRequest"),
        ("encode-message", "HeartbeatRequest"),
    ]


HEARTBEAT = catalogue().messages["HeartbeatRequest"]
MESSAGE = selector(HEARTBEAT, 4) + schema(HEARTBEAT, 4).encode({})
COMPRESSED = shapes(TARGETS["compressed-batch"])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("record-batch", GOOD),
        ("messages", MESSAGE),
        *(("compressed-batch", data) for data in (COMPRESSED[0], COMPRESSED[-1])),
    ],
)
def test_the_input_of_a_cause_is_one_of_its_target(tmp_path: Path, liar: Testee, name: str, data: bytes) -> None:
    truth, found = asked(tmp_path, liar, name, data)
    assert found.deviations
    # Data that is compressed again has right lengths and checksums, so it may be another input with the same bytes.
    change = pack if TARGETS[name].compresses else bytes
    assert {change(truth.input_of(item)) for item in found.deviations} == {change(data)}


def differing(out: Path, target: str, data: bytes, label: str = "kafka-clients@4.4.0") -> Path:
    """The file of a cause that a campaign with --truth wrote."""
    causes = Causes(out / target, TARGETS[target])
    item = deviation("liar@1: rejected", {"operation": "decode-records", "hex": "00"}, harm="refuses")
    [cause] = causes_of([item])
    own = replace(item, implementation=label, harm=harm_of(item), error=item.reason, data=data)
    causes.add_cause(replace(cause, deviations=(own,)))
    [file] = causes.write()
    return file


def test_show_of_such_a_cause_opens_the_message(tmp_path: Path) -> None:
    file = differing(tmp_path, "messages", MESSAGE)
    lines = kfuzz("show", file).stdout.splitlines()
    assert "of messages, accepts what Kafka refuses: liar@1: rejected" in lines[1]
    assert "HeartbeatRequest: version 4" in lines[2]
    assert "kills" not in lines[-1]
    done = kfuzz("show", file, "--find")
    assert (done.returncode, "no field of a message kills" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("target", "data", "form"),
    [
        ("messages", MESSAGE, "messages"),
        ("record-batch", GOOD, "differential"),
        ("compressed-batch", COMPRESSED[0], "differential"),
    ],
)
def test_a_disagreement_is_kept_as_long_as_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, liar: Testee, target: str, data: bytes, form: str
) -> None:
    file = differing(tmp_path / "out", target, data)
    words = ("keep", file, "--regression-only", "--id", "n", "--regressions", tmp_path / "kept")
    monkeypatch.setattr(kept, "one_testee", lambda *given, default: own())
    done = kfuzz(*words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "does not fail on this kfuzz: kfuzz and kafka-clients@4.4.0 agree" in done.stderr
    monkeypatch.setattr(kept, "one_testee", lambda *given, default: liar)
    assert kfuzz(*words).returncode == 0
    assert read_hex(tmp_path / "kept" / form / "n.hex") == [pack(data) if target == "compressed-batch" else data]
    if form == "differential":
        answer = json.loads((tmp_path / "kept" / form / "n.json").read_text())
        assert answer == {"testee": "kafka-clients@4.4.0", "outcome": "rejected"}


def test_a_disagreement_with_another_reader_than_kafka_is_no_regression(tmp_path: Path) -> None:
    done = kfuzz("keep", differing(tmp_path, "messages", MESSAGE, "liar@1"), "--regression-only")
    assert "holds Kafka's answer, and this is one of liar@1" in done.stderr


def test_a_disagreement_is_reproduced_with_the_reader(tmp_path: Path) -> None:
    file = differing(tmp_path, "messages", MESSAGE, "kfuzz")
    words = ("fuzz", "messages", "--truth", "kfuzz", "--reproduce", file)
    done = kfuzz(*words)
    assert (done.returncode, done.stdout) == (0, f"messages: {file} does not break it\n")


@pytest.mark.java
@pytest.mark.skipif(not regressions(TARGETS["messages"]), reason="no message is kept that once differed")
def test_messages_that_once_differed_are_read_as_kafka_reads_them() -> None:
    kafka = named_testee(f"kafka-clients@{LATEST}")
    kept = regressions(TARGETS["messages"])
    assert [file.name for file, data in kept if asked_once(kafka, TARGETS["messages"], data)] == []


def test_an_interrupted_campaign_asks_no_more(tmp_path: Path) -> None:
    truth = Truth(own(), TARGETS["record-batch"], corpus(tmp_path, *[GOOD] * 500))
    truth.start(tmp_path / "samples")
    truth.stop()
    found = truth.finish(60)
    assert found is None or found.inputs < 500
    assert not truth.is_late


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_reader_that_never_answers_is_left_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: Testee, is_stopped: bool
) -> None:
    monkeypatch.setattr(other_reader, "WIND_DOWN_S", 0.5)
    truth = Truth(silent, TARGETS["record-batch"], corpus(tmp_path, *[GOOD] * 100))
    truth.start(tmp_path / "samples")
    if is_stopped:
        truth.stop()
    started_s = time.monotonic()
    found = truth.finish(600 if is_stopped else 0.5)
    assert time.monotonic() - started_s < 20
    assert found is not None
    assert (found.inputs, truth.is_late) == (0, not is_stopped)
    running = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    assert not [one for one in running if str(tmp_path) in " ".join(one.cmdline())]


def test_a_reader_that_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    truth = Truth(Testee("nobody", "", (sys.executable, "-c", "")), TARGETS["record-batch"], corpus(tmp_path))
    with pytest.raises(UsageError, match="nobody: no handshake"):
        truth.start(tmp_path / "samples")


def test_an_unknown_reader_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean kafka-clients"):
        named_testee("kafka-clinets")


@pytest.mark.parametrize(("harm", "own_harm"), [("refuses", "accepts"), ("accepts", "refuses"), ("loses", "loses")])
def test_the_class_of_harm_is_that_of_kfuzz(harm: str, own_harm: str) -> None:
    assert harm_of(deviation("", harm=harm)) == own_harm


@pytest.mark.parametrize(("target", "data", "questions"), [("record-batch", GOOD, 1), ("messages", MESSAGE, 2)])
def test_an_input_that_another_reader_reads_differently_is_a_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, liar: Testee, target: str, data: bytes, questions: int
) -> None:
    stub(tmp_path, monkeypatch, "sleep 0.1", target=target)
    monkeypatch.setattr(campaign, "seeds", lambda target, say: [data])
    [result] = campaign.run([target], 5, out=tmp_path / "out", truth=liar)
    # A message is also written again.
    assert result.compared == len(result.causes) == questions
    for file, cause in result.causes.items():
        item = cause.smallest
        assert (cause.harm, item.data, cause.count, truth_of(item, "kfuzz")) == ("accepts", data, 1, "liar@1")
        assert "rejected" in item.error
        assert file.read_bytes() == data


def test_a_campaign_goes_on_without_a_reader_that_never_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, silent: Testee
) -> None:
    stub(tmp_path, monkeypatch, "sleep 0.1", target="record-batch")
    monkeypatch.setattr(campaign, "seeds", lambda target, say: [GOOD])
    monkeypatch.setattr(campaign, "TRUTH_LATE_S", 0.1)
    monkeypatch.setattr(other_reader, "WIND_DOWN_S", 0.5)
    said: list[str] = []
    [result] = campaign.run(["record-batch"], 5, out=tmp_path / "out", truth=silent, say=said.append)
    assert (result.compared, result.causes, result.corpus_after) == (0, {}, 1)
    assert [line.partition(" after ")[0] for line in said] == ["record-batch: liar@1 had not answered everything"]
    assert result.to_json()["truth_late"] is result.failed is True


def test_targets_about_which_no_testee_can_be_asked_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, liar: Testee
) -> None:
    stub(tmp_path, monkeypatch, "sleep 0.1", target="record-batch")
    shutil.copy(tmp_path / "bin" / "record-batch", tmp_path / "bin" / "canary")
    monkeypatch.setattr(campaign, "seeds", lambda target, say: [b"rubbish"])
    said: list[str] = []
    campaign.run(["record-batch", "canary"], 5, out=tmp_path / "out", truth=liar, say=said.append)
    assert said == ["no testee can be asked about an input of canary"]
