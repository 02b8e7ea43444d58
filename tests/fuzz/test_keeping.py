"""kfuzz keep and kfuzz show of a crash: the field that kills is marked, Kafka decides, and all files are written or
none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import mini_suite
import pytest
from cli_driver import kfuzz
from fuzzer_stub import CANARY_INPUT

from kfuzz import records
from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.broker import is_for_broker
from kfuzz.conformance.judge.causes import Deviation, causes_of
from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.judge.confirmation import Confirmation
from kfuzz.edit.killing import killing_fields
from kfuzz.errors import UsageError
from kfuzz.fuzz import keeping, kept
from kfuzz.fuzz import reproducing as once
from kfuzz.fuzz.causes import Causes, cause_of
from kfuzz.fuzz.decoded_bytes import body_of, killing_fields_of
from kfuzz.fuzz.packing import pack, unpack
from kfuzz.fuzz.recorder import Find
from kfuzz.fuzz.seeding import CORPUS, read_hex, seeds
from kfuzz.fuzz.targets import TARGETS
from kfuzz.kafka import BROKER_RELEASE, RELEASES
from kfuzz.mutate.engine import seal
from kfuzz.records import CODECS, Record, RecordBatch
from kfuzz.vectors import building, load_suite
from kfuzz.vectors.linting import lint
from kfuzz.vectors.model import Vector, default_root

COUNT_AT = 57
ID = "records/v2/count/kept-by-a-test"


def hostile(count: int = -7) -> bytes:
    """A batch of one record that claims another number of records; its CRC is right."""
    batch = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")]))
    made = batch[:COUNT_AT] + count.to_bytes(4, "big", signed=True) + batch[COUNT_AT + 4 :]
    return seal(made, True, True)


def breaks(data: bytes) -> bool:
    return any(one.code == "record-count-negative" for one in records.check(data).findings)


def planted(out: Path, data: bytes, target: str = "record-batch") -> Path:
    """The file of a cause, as a campaign writes it, with the field that kills."""
    causes = Causes(out / target, TARGETS[target])
    find = Find("exception", "ValueError: -7 records", "kfuzz/records/reader.pyx:7", "Traceback", data)
    causes.add(find)
    kills = killing_fields_of(TARGETS[target], data, breaks)
    cause = cause_of(TARGETS[target], find)
    causes.replace(cause.id, replace(cause.smallest, kills=kills))
    [file] = causes.write()
    return file


def confirmed(vector: Vector) -> Confirmation:
    """The answers that Kafka would give if it agreed."""
    outcome = {"valid": "accepted", "acceptable": "accepted", "invalid": "rejected"}
    answers = {
        role: {release: {vector.id: {"outcome": outcome[str(expected["verdict"])]}} for release in RELEASES}
        for role, expected in vector.expect.items()
    }
    assert cases_of([vector])
    cell = {"produce": "rejected", "error": "INVALID_RECORD", "recovery": "kept"}
    return Confirmation(answers, [], {vector.id: cell} if is_for_broker(vector) else {})


def contradicted(vector: Vector) -> Confirmation:
    return Confirmation(
        {}, [f"{vector.id}: Kafka 4.4.0 as consumer contradicts it: it is invalid, but Kafka accepts it"]
    )


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return mini_suite.write(tmp_path / "suite")


@pytest.fixture
def crash(tmp_path: Path) -> Path:
    return planted(tmp_path / "out", hostile())


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Vector], Confirmation]], None]:
    def answers(ask: Callable[[Vector], Confirmation]) -> None:
        monkeypatch.setattr(keeping, "ask_kafka_about", ask)

    answers(confirmed)
    return answers


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def keep(crash: Path, suite: Path, *words: str, code: int | None = None) -> Any:
    return kfuzz("keep", crash, "--vectors", suite, "--regressions", suite.parent / "regressions", *words, code=code)


# ------------------------------------------------------------------------------------------------- kfuzz show


def test_show_marks_the_field_that_kills_and_names_the_cause(crash: Path) -> None:
    done = kfuzz("show", crash, code=0)
    [marked] = [line for line in done.stdout.splitlines() if "<-- kills" in line]
    assert marked.startswith("00000039  ff ff ff f9")
    assert "record_count: -7   <-- kills, record-count-negative at 0x39" in marked
    lines = done.stdout.splitlines()
    assert lines[1].startswith("cause ")
    assert "of record-batch, panic or undeclared error: ValueError: -7 records (kfuzz/records/reader.pyx:7)" in lines[1]
    assert lines[-1] == "the field that kills: batch[0].record_count at byte 57 (4 bytes)"


def test_show_of_a_crash_as_json_has_the_cause_and_the_fields(crash: Path) -> None:
    document = json.loads(kfuzz("show", crash, "--json").stdout)
    assert document["kills"] == [{"field": "batch[0].record_count", "at": 57, "size": 4}]
    assert (document["cause"]["harm"], document["cause"]["target"]) == ("panics", "record-batch")


def test_show_of_a_compressed_batch_shows_what_is_compressed(tmp_path: Path) -> None:
    three_records = (0).to_bytes(3, "big") + b"\x03"
    data = next(data for data in seeds(TARGETS["compressed-batch"]) if data[COUNT_AT : COUNT_AT + 4] == three_records)
    causes = Causes(tmp_path / "compressed-batch", TARGETS["compressed-batch"])
    causes.add(Find("exception", "x", "kfuzz/a.py:1", "", data))
    [file] = causes.write()
    done = kfuzz("show", file)
    assert "decompressed: " in done.stdout
    assert done.stdout.splitlines()[-1] == "the field that kills is not known; --find looks for it"


def test_a_crash_that_breaks_show_itself_is_one_sentence(crash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> NoReturn:
        raise ZeroDivisionError("of seven")

    monkeypatch.setattr(records, "check", broken)
    done = kfuzz("show", crash, code=2)
    assert "kfuzz's own reader fails on" in done.stderr
    assert f"ZeroDivisionError: of seven; `kfuzz fuzz record-batch --reproduce {crash}` shows where" in done.stderr


def test_find_needs_the_input_of_a_cause(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(hostile())
    done = kfuzz("show", plain, "--find", code=2)
    assert "--find needs the input of a cause; no campaign or differential wrote" in done.stderr


def test_a_table_of_causes_without_fields_is_read(crash: Path) -> None:
    table = crash.parent / "causes.json"
    entries = json.loads(table.read_text())
    del entries[0]["deviations"][0]["kills"]
    table.write_text(json.dumps(entries))
    found = kept.kept_at(crash)
    assert found is not None
    assert found.deviation.kills == ()


def test_a_later_campaign_with_the_same_smallest_input_keeps_the_fields(crash: Path) -> None:
    causes = Causes(crash.parent.parent, TARGETS["record-batch"])
    causes.add(Find("exception", "ValueError: -7 records", "kfuzz/records/reader.pyx:7", "Traceback", hostile()))
    causes.write()
    found = kept.kept_at(crash)
    assert found is not None
    assert [field.field for field in found.deviation.kills] == ["batch[0].record_count"]


# ------------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize("target", ["record-batch", "compressed-batch", "broker", "messages", "compression"])
def test_a_body_becomes_the_same_input_again(target: str) -> None:
    chosen = TARGETS[target]
    bodies = 0
    for data in seeds(chosen)[:200]:
        body = body_of(chosen, data)
        if body is None:
            continue
        bodies += 1
        again = body_of(chosen, body.input_of(body.data))
        assert again is not None
        assert again.data == body.data
    assert bodies > 10
    assert body_of(TARGETS["log-directory"], b"abc") is None


def test_a_stream_of_records_is_in_a_batch_that_can_be_read() -> None:
    read = set()
    for data in seeds(TARGETS["compression"]):
        body = body_of(TARGETS["compression"], data)
        reading = records.read(body.data) if body else None
        if reading and reading.batches and reading.batches[0].records:
            read.add((reading.batches[0].compression, reading.batches[0].magic))
    assert read >= {(codec, magic) for codec in CODECS[1:] for magic in (0, 2) if (codec, magic) != ("zstd", 0)}


@pytest.mark.parametrize("magic", [1, 2])
def test_unpacked_is_what_was_packed(magic: int) -> None:
    for codec in CODECS[1:4]:
        count = 2
        made = [Record(i, 7, b"k", b"v" * 9) for i in range(count)]
        packed = records.encode_batch(RecordBatch(0, count - 1, made, magic=magic, compression=codec))
        again = pack(unpack(packed))
        assert again is not None
        assert records.decode(again) == records.decode(packed)


# ------------------------------------------------------------------------------------------------- kfuzz keep


@pytest.mark.usefixtures("kafka")
def test_a_crash_becomes_a_vector_and_a_regression(crash: Path, suite: Path) -> None:
    done = keep(crash, suite, "--id", ID, "--flag", "RecordCountNegative", code=0)
    [vector] = load_suite(ID, suite)
    assert vector.data == hostile()
    assert vector.layout == ({"at": 57, "field": "record_count", "size": 4, "hostile": True},)
    assert vector.expect["consumer"] == {"verdict": "invalid", "finding": "record-count-negative"}
    assert (vector.requirements, vector.flags) == (("RB-COUNT-1",), ("RecordCountNegative",))
    assert vector.kafka[BROKER_RELEASE]["recovery"] == "kept"
    assert vector.kafka["4.4.0"]["consumer"] == "rejected"
    regression = suite.parent / "regressions" / "record-batch" / "kept-by-a-test.hex"
    assert read_hex(regression) == [hostile()]
    assert regression.read_text().startswith("# The record count is -7; it must be 0 or more.\n")
    for file in (regression, suite / "ids.txt", suite / mini_suite.FILE):
        assert f"wrote {file}" in done.stdout


@pytest.mark.full
@pytest.mark.usefixtures("kafka", "some_themes")
def test_the_suite_with_a_kept_vector_is_as_built_and_has_nothing_to_fix(
    crash: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = tmp_path / "whole"
    building.write(suite, building.build(suite))
    for name in ("requirements.json", "schema.json"):
        (suite / name).write_bytes((default_root() / name).read_bytes())
    before = {problem for problem in lint(suite) if ID in str(problem)}
    assert keep(crash, suite, "--id", ID).returncode == 0
    assert all(not file.changes for file in building.build(suite))
    assert {problem for problem in lint(suite) if ID in str(problem)} == before == set()


def test_kafka_that_disagrees_is_quoted_and_nothing_is_written(
    crash: Path, suite: Path, kafka: Callable[[Callable[[Vector], Confirmation]], None]
) -> None:
    kafka(contradicted)
    before = everything(suite.parent)
    lines = keep(crash, suite, "--id", ID, code=1).stdout.splitlines()
    assert lines[0] == f"{ID}: Kafka 4.4.0 as consumer contradicts it: it is invalid, but Kafka accepts it"
    assert "kfuzz as consumer refuses it: record-count-negative" in lines
    assert "--regression-only" in lines[-1]
    assert everything(suite.parent) == before


@pytest.mark.usefixtures("kafka")
def test_a_dry_run_prints_the_vector_and_writes_nothing(crash: Path, suite: Path) -> None:
    before = everything(suite.parent)
    done = keep(crash, suite, "--id", ID, "--dry-run", code=0)
    assert f'"id": "{ID}"' in done.stdout
    assert f"would write {suite / mini_suite.FILE}" in done.stdout
    assert everything(suite.parent) == before


@pytest.mark.usefixtures("kafka")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give the vector a name with --id, or keep only a regression with --regression-only"),
        (("--id", "records/v2/count/Loud"), "'records/v2/count/Loud' is not the form of an id"),
        (("--id", "records/v2/count/17"), "ends in a number; give it a name"),
        (("--id", "records/v2/cuont/x"), "did you mean records/v2/count/x?"),
        (("--id", "records/v2/count/of-2"), "was given before, and ids are permanent; choose another one"),
        (("--id", ID, "--flag", "Nope"), "explains no flag 'Nope'; its flags are"),
        (("--id", ID, "--requirement", "RB-COUNT-99"), "there is no requirement 'RB-COUNT-99'; did you mean RB-COUNT-"),
        (("--id", ID, "--hostile", "batch[0].nothing"), "there is no field 'batch[0].nothing'; name one by its whole"),
        (("--regression-only", "--flag", "x"), "--flag is about a vector; leave it out with --regression-only"),
        (("--id", ID, "--target", "recrod"), "no fuzz target 'recrod'; did you mean record-batch?"),
    ],
)
def test_wrong_use_is_one_sentence_and_nothing_is_written(
    crash: Path, suite: Path, words: tuple[str, ...], sentence: str
) -> None:
    before = everything(suite.parent)
    if "--regression-only" in words:
        done = kfuzz("keep", crash, *words)
    else:
        done = keep(crash, suite, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert everything(suite.parent) == before


@pytest.mark.usefixtures("kafka")
def test_the_same_bytes_are_not_kept_twice(crash: Path, suite: Path) -> None:
    assert keep(crash, suite, "--id", ID).returncode == 0
    done = keep(crash, suite, "--id", f"{ID}-again", "--summary", "another one", code=2)
    assert f"the vector {ID} has these bytes already" in done.stderr


@pytest.mark.usefixtures("kafka")
def test_a_file_that_no_campaign_wrote_needs_its_target(suite: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.hex"
    plain.write_text(f"# said so\n{hostile().hex()}\n")
    table = tmp_path / "out" / "record-batch" / "causes" / "causes.json"
    table.parent.mkdir(parents=True)
    table.write_text("[]")
    for file in (plain, table):
        said = keep(file, suite, "--id", ID, code=2).stderr
        assert "is not the smallest input of a cause; name a file that a campaign or a differential wrote" in said
    assert keep(plain, suite, "--id", ID, "--target", "record-batch").returncode == 0
    # Nobody asked what kills, so the place is that of kfuzz's finding.
    [vector] = load_suite(ID, suite)
    assert vector.layout == ({"at": 57, "field": "record_count", "size": 4, "hostile": True},)


def test_a_crash_that_still_breaks_the_reader_is_only_a_regression(
    crash: Path, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> NoReturn:
        raise ZeroDivisionError("of seven")

    monkeypatch.setattr(keeping, "verdict", broken)
    done = keep(crash, suite, "--id", ID, code=2)
    assert "ZeroDivisionError: of seven; mend it first, or keep the input with --regression-only" in done.stderr


def test_inputs_of_kfuzzs_own_tools_are_only_regressions(
    tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "breaks_now", lambda target, data, natively: True)
    crash = planted(tmp_path / "out", hostile(), "columns")
    assert "keep it with --regression-only" in keep(crash, suite, "--id", ID, code=2).stderr
    regressions = tmp_path / "regressions"
    kfuzz("keep", crash, "--regression-only", "--id", "seven-less", "--regressions", regressions, code=0)
    file = regressions / "columns" / "seven-less.hex"
    assert file.read_text() == f"# ValueError: -7 records.\n{hostile().hex()}\n"
    again = kfuzz("keep", crash, "--regression-only", "--id", "seven-less", "--regressions", regressions)
    assert (again.returncode, "exists; choose another name" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("target", "data", "sentence"),
    [
        ("record-batch", hostile(), "does not fail on this kfuzz: the target record-batch passes"),
        ("messages", bytes(17) + b"\x7f", "its first 3 bytes select no message"),
        ("compressed-batch", b"no batch", "it does not begin with a whole batch that has a codec"),
        ("compression", b"", "it is empty"),
    ],
)
def test_an_input_that_tests_nothing_is_not_kept_as_a_regression(
    tmp_path: Path, target: str, data: bytes, sentence: str
) -> None:
    crash = planted(tmp_path / "out", data, target)
    done = kfuzz("keep", crash, "--regression-only", "--regressions", tmp_path / "regressions")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert sentence in done.stderr
    assert not (tmp_path / "regressions").exists()


def test_an_input_is_run_again_in_a_process_of_its_own() -> None:
    # The canary is the only target that breaks on purpose.
    assert once.breaks_now(TARGETS["canary"], CANARY_INPUT, natively=False)
    assert not once.breaks_now(TARGETS["canary"], hostile(), natively=False)


def test_the_canary_is_never_kept(tmp_path: Path) -> None:
    crash = planted(tmp_path / "out", hostile(), "canary")
    done = kfuzz("keep", crash, "--regression-only", "--regressions", tmp_path / "regressions", code=2)
    assert "the canary is a planted bug that must stay hard to find" in done.stderr


def test_an_installed_kfuzz_says_that_it_keeps_nothing(crash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "CORPUS", crash.parent / "nowhere")
    for words in (("--id", ID), ("--regression-only",)):
        assert "in a checkout of kfuzz" in kfuzz("keep", crash, *words, code=2).stderr


@pytest.mark.usefixtures("kafka")
def test_a_full_disk_leaves_everything_as_it_was(crash: Path, suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(suite.parent)
    real, calls = os.replace, [0]

    def replace(source: Any, target: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr("kfuzz.files.os.replace", replace)
    keep(crash, suite, "--id", ID, code=2)
    assert calls[0] >= 2
    assert everything(suite.parent) == before


@pytest.mark.usefixtures("kafka")
def test_a_message_becomes_a_vector_of_its_kind(tmp_path: Path, suite: Path) -> None:
    path = "messages/counts"
    whole = json.loads((default_root() / f"{path}.json").read_bytes())
    whole["vectors"] = whole["vectors"][:1]
    whole["flags"] = {name: flag for name, flag in whole["flags"].items() if name in whole["vectors"][0]["flags"]}
    (suite / "messages").mkdir()
    (suite / f"{path}.json").write_bytes(building.canonical_json(whole))
    # A FetchRequest of version 17 whose number of topics is too high.
    data = bytes.fromhex("000111") + bytes(17) + b"\x7f"
    causes = Causes(tmp_path / "messages", TARGETS["messages"])
    causes.add(Find("exception", "IndexError", "kfuzz/messages/codec.py:3", "", data))
    [file] = causes.write()
    done = keep(file, suite, "--id", f"{path}/kept-by-a-test", "--summary", "the number of topics is 126", code=0)
    [vector] = load_suite(f"{path}/kept-by-a-test", suite, kinds=("message",))
    assert (vector.options, vector.data) == ({"message": "FetchRequest", "version": 17}, data[3:])
    assert vector.expect["reader"]["verdict"] == "invalid"
    done = keep(file, suite, "--id", ID, "--summary", "s")
    assert "holds vectors of the kind records, and this is one of the kind message" in done.stderr


@pytest.mark.usefixtures("kafka")
def test_an_input_of_a_differential_is_kept_with_kafkas_answer(tmp_path: Path, suite: Path) -> None:
    file = tmp_path / "seed-1-input-3.bin"
    file.write_bytes(hostile())
    kills = tuple(killing_fields(hostile(), breaks))
    [cause] = causes_of([Deviation("kafka-clients@4.4.0", "accepts", reason="accepted bad bytes", kills=kills)])
    said = {"testee": "kafka-clients@4.4.0", "outcome": "rejected", "error": "no", "cause": cause.to_json()}
    file.with_suffix(".json").write_text(json.dumps(said))
    shown = kfuzz("show", file).stdout
    assert f"cause {cause.id} of kafka-clients@4.4.0 as consumer, accepts what Kafka refuses: accepted bad" in shown
    assert "record_count: -7   <-- kills" in shown
    assert keep(file, suite, "--id", ID).returncode == 0
    kept = tmp_path / "regressions" / "differential" / "kept-by-a-test.hex"
    assert read_hex(kept) == [hostile()]
    answer = json.loads(kept.with_suffix(".json").read_text())
    assert (answer["testee"], answer["outcome"]) == ("kafka-clients@4.4.0", "rejected")


@pytest.mark.usefixtures("kafka")
def test_a_message_of_a_differential_is_an_input_of_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "seed-1-message-3.json"
    request = {"operation": "decode-message", "message": "FetchRequest", "version": 17, "hex": "00" * 17 + "7f"}
    file.write_text(json.dumps(request))
    found = kept.kept_at(file)
    assert found is not None
    assert (found.target, found.data.hex()) == ("messages", "000111" + "00" * 17 + "7f")
    shown = kfuzz("show", file).stdout
    assert "FetchRequest: version 17" in shown
    assert "cause" not in shown
    words = ("--regression-only", "--id", "n", "--summary", "s", "--regressions", tmp_path / "regressions")
    # It does not break the target, and the testee that reads it otherwise is not known.
    assert "the target messages passes" in kfuzz("keep", file, *words).stderr
    monkeypatch.setattr(kept, "breaks_now", lambda target, data, natively: True)
    kfuzz("keep", file, *words, code=0)
    assert read_hex(tmp_path / "regressions" / "messages" / "n.hex") == [found.data]
    file.write_text(json.dumps({**request, "operation": "encode-message"}))
    assert kept.kept_at(file) is None
    file.write_text("{")
    assert kept.kept_at(file) is None


def test_a_regression_of_a_differential_needs_kafkas_answer(tmp_path: Path) -> None:
    item = Deviation("other@1", "accepts", error="s", data=hostile())
    crash = kept.KeptInput(tmp_path / "x", kept.DIFFERENTIAL, None, item)
    with pytest.raises(UsageError, match=r"holds Kafka's answer, and this is one of other@1"):
        keeping.kept_regression(crash, "x", regressions=tmp_path)


@pytest.mark.java
@pytest.mark.full
def test_kafka_confirms_a_real_input_of_a_campaign(suite: Path) -> None:
    file = CORPUS / "regressions" / "record-batch" / "zstd-block-beyond-window.hex"
    summary = "a block of a zstd frame is larger than its window"
    done = keep(file, suite, "--target", "record-batch", "--id", ID, "--summary", summary, "--json", code=0)
    item = json.loads(done.stdout)["vector"]
    assert {release: item["kafka"][release]["consumer"] for release in RELEASES} == dict.fromkeys(RELEASES, "rejected")
    assert item["kafka"][BROKER_RELEASE]["produce"] == "fault"


def test_fields_are_kept_in_the_table_of_causes_and_in_the_text(crash: Path) -> None:
    [entry] = json.loads((crash.parent / "causes.json").read_text())
    assert entry["deviations"][0]["kills"] == [KillingField("batch[0].record_count", 57, 4).to_json()]
    assert "kills: batch[0].record_count at byte 57 (4 bytes)\n" in crash.with_suffix(".txt").read_text()
