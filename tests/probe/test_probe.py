"""`kfuzz probe`: a broker gets exactly the bytes of the vectors, and whatever it does with them is an outcome.

The broker is a fake one that makes trouble; test_probe_brokers.py has real ones.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz, outcome
from made_segments import batch
from probe.odd_broker import OddBroker

from kfuzz import records
from kfuzz.client.cluster import Cluster
from kfuzz.client.protocol import ConnectionLost
from kfuzz.conformance import report
from kfuzz.conformance.judge.compare import Cell
from kfuzz.conformance.judge.matrix import Places, published
from kfuzz.conformance.judge.reference import for_broker
from kfuzz.errors import UsageError
from kfuzz.kafka import BROKER_RELEASE, Codec
from kfuzz.probe import Address, Probed, Settings, cases_for_broker, probe, probing, summary
from kfuzz.probe.asking import Place, ask
from kfuzz.probe.observed import Observed, stored_as
from kfuzz.records import Record
from kfuzz.records.appending import recompress, stamp_log_append_time
from kfuzz.records.read.topic import DEFAULT_TOPIC
from kfuzz.vectors import Vector, default_root, load_suite
from vectors import mini_suite

GLOB = "records/v2/count/*"
GOOD = "records/v2/count/of-2"
BAD = "records/v2/count/negative-one"
AT_FETCH = ", when the accepted batch was fetched"
# Bombs whose contents are above kfuzz's limits, so only Kafka's own answer is known.
TOO_LARGE = {f"records/v2/bomb/{codec}-value-96mib" for codec in ("gzip", "lz4", "zstd")}


@cache
def suite() -> tuple[Vector, ...]:
    return tuple(load_suite())


def some(*globs: str) -> list[Vector]:
    """The vectors whose ids match. Loading the suite takes a second, so it is loaded once."""
    return [vector for vector in suite() if any(fnmatchcase(vector.id, glob) for glob in globs)]


def bytes_of(id: str) -> bytes:
    (vector,) = some(id)
    return vector.data


def odd_with(word: str | int, *ids: str) -> OddBroker:
    """A broker that does something odd with these vectors."""
    return OddBroker(odd={bytes_of(id): word for id in ids or (GOOD,)})


def probed(broker: OddBroker, *globs: str, **settings: Any) -> Probed:
    """The probe of a fake broker, without a file of expected outcomes."""
    cases = cases_for_broker(some(*(globs or (GOOD, BAD, "records/v2/count/of-3"))))
    asked = Settings(Address("127.0.0.1", broker.port), **{"timeout_ms": 2000, **settings})
    return probe(cases, asked, places=Places.beside(default_root()))


def cells(done: Probed) -> dict[str, Cell]:
    (column,) = done.run.testees
    return {id: cell for (id, _), cell in column.cells.items()}


def test_the_broker_gets_exactly_the_bytes_of_the_vectors_each_in_its_own_partition() -> None:
    with OddBroker() as broker:
        done = probed(broker, GLOB)
    vectors = some(GLOB)
    sent = [data for data in broker.produced if data in {vector.data for vector in vectors}]
    assert sorted(sent) == sorted(vector.data for vector in vectors)
    assert {cell.outcome for cell in cells(done).values()} == {"pass"}
    [(_, topic, partitions)] = [event for event in broker.events if event[0] == "create"]
    assert topic.startswith("kfuzz-probe-")
    # One more for the good batch.
    assert partitions == len(vectors) + 1


def test_the_topics_of_a_probe_are_deleted_unless_they_are_to_be_kept() -> None:
    with OddBroker(topics={"mine": 1}) as broker:
        probed(broker, prefix="other")
        assert list(broker.topics) == ["mine"]
        probed(broker, prefix="other", keep=True)
    _, topic = broker.topics
    assert topic.startswith("other-")


def test_many_vectors_need_several_topics_but_only_one_at_a_time() -> None:
    with OddBroker() as broker:
        probed(broker, "records/v2/headers/*", "records/v2/count/*")
    names = [event[0] for event in broker.events if event[0] in ("create", "delete")]
    assert len(names) > 2
    assert names == ["create", "delete"] * (len(names) // 2)


@pytest.mark.parametrize(
    ("id", "odd", "outcome", "harm", "text"),
    [
        (GOOD, "close", "fault", "panics", "closed the connection instead of an answer"),
        (GOOD, "keep silent", "timeout", "hangs", "gave no answer"),
        (GOOD, "garble", "protocol-error", "panics", "answered with bytes that cannot be read"),
        (GOOD, "restart", "crash", "kills", "the broker ended"),
        (GOOD, 87, "fail", "refuses", "refused bytes that must be accepted: INVALID_RECORD"),
        (GOOD, -1, "fault", "panics", "UNKNOWN_SERVER_ERROR"),
        (GOOD, 56, "fault", "panics", "KAFKA_STORAGE_ERROR"),
        (
            GOOD,
            "store, and say that it was refused",
            "fail",
            "accepts",
            "answered INVALID_RECORD, but serves the batch",
        ),
        (GOOD, "lose", "fail", "loses", "accepted the batch, but does not serve it"),
        (GOOD, "damage", "fail", "loses", "serves what consumers refuse (crc-mismatch), but it got good data"),
        (GOOD, "wrong offset", "fail", "differs", "answered base offset 5, but serves the batch at 0"),
        (GOOD, "close at fetch", "fault", "panics", f"closed the connection instead of an answer{AT_FETCH}"),
        (GOOD, "silent at fetch", "timeout", "hangs", f"gave no answer{AT_FETCH}"),
        (
            BAD,
            "accept",
            "fail",
            "accepts",
            "accepted bytes that must be refused (record-count-negative), and consumers refuse what it serves",
        ),
    ],
)
def test_whatever_a_broker_does_is_the_outcome_of_that_vector_alone(
    id: str, odd: str | int, outcome: str, harm: str, text: str
) -> None:
    with odd_with(odd, id) as broker:
        done = probed(broker, GLOB, timeout_ms=1000)
    found = cells(done)
    assert (found[id].outcome, found[id].harm, found[id].text) == (outcome, harm, text)
    assert {other for other, cell in found.items() if cell.outcome != "pass"} == {id}
    assert len(found) == len(some(GLOB))
    assert done.ended == ""
    assert broker.topics == {}


def test_a_vector_without_an_answer_is_asked_again_before_it_is_blamed() -> None:
    with odd_with("silent once") as broker:
        done = probed(broker, GLOB, timeout_ms=1000)
    assert broker.produced.count(bytes_of(GOOD)) == 2
    assert {cell.outcome for cell in cells(done).values()} == {"pass"}


def test_a_broker_that_is_gone_before_a_question_ended_because_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, *_ = some(GLOB)
    lost: list[bytes] = []

    async def flaky(cluster: Cluster, place: Place, data: bytes) -> Observed:
        if data == second.data and not lost:
            lost.append(data)
            raise ConnectionLost("nobody listens")
        return await ask(cluster, place, data)

    monkeypatch.setattr(probing, "ask", flaky)
    with OddBroker() as broker:
        found = cells(probed(broker, GLOB))
    assert (found[first.id].outcome, found[first.id].answer["text"]) == ("crash", "after its answer")
    assert {cell.outcome for id, cell in found.items() if id != first.id} == {"pass"}
    assert len(found) == len(some(GLOB))


def test_a_broker_that_is_gone_ends_the_probe_with_what_was_seen() -> None:
    with odd_with("die") as broker:
        done = probed(broker, GLOB, timeout_ms=1000)
    found = cells(done)
    assert found[GOOD].outcome == "crash"
    assert {cell.outcome for id, cell in found.items() if id != GOOD} == {"pass"}
    assert 1 < len(found) < len(some(GLOB))
    assert done.ended.startswith(f"the broker does not work any more since {GOOD}: 127.0.0.1:{broker.port} cannot be")
    assert "\n" not in done.ended
    # The report says so too, but others may not learn which vector did it.
    assert done.run.failed
    assert report.to_json(done.run)["testees"][0]["stopped"] == done.ended
    [column] = published(done.run, Places.beside(default_root())).testees
    assert column.stopped == "it was not asked to the end"
    with odd_with("die", BAD) as broker:
        asked = Settings(Address("127.0.0.1", broker.port), timeout_ms=1000)
        places = Places.beside(default_root())
        public = probe(cases_for_broker(some(BAD, GOOD)), asked, places=places, publish=True)
    assert (public.ended, BAD in str(report.sentences(public.run))) == ("the probe ended early", False)


def test_a_broker_that_keeps_silent_ends_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.probe.probing.SILENT_MAX", 2)
    with odd_with("keep silent", *(vector.id for vector in some(GLOB))) as broker:
        done = probed(broker, GLOB, timeout_ms=500)
        assert broker.topics == {}
    assert [cell.outcome for cell in cells(done).values()] == ["timeout"] * 2
    assert done.ended == "2 vectors got no answer; raise --timeout, or choose fewer vectors"


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        ({"refuses": 29}, "refuses a good batch: TOPIC_AUTHORIZATION_FAILED"),
        ({"denied": 31}, "the topics cannot be created: CLUSTER_AUTHORIZATION_FAILED"),
        ({"host": "192.0.2.1"}, "is not this machine; add --yes"),
        ({"versions": {"ApiVersions": (0, 4)}}, "offers no version of CreateTopics that kfuzz knows"),
    ],
)
def test_a_broker_that_cannot_be_probed_is_refused_with_a_sentence(trouble: dict[str, Any], sentence: str) -> None:
    with OddBroker(**trouble) as broker, pytest.raises(UsageError, match=sentence) as raised:
        probed(broker)
    assert "\n" not in str(raised.value)


def test_a_broker_without_settings_of_topics_is_probed_with_its_defaults() -> None:
    topic = "records/v2/topic/compacted-without-key"
    with OddBroker(knows_settings=False) as broker:
        done = probed(broker, GOOD, topic)
    assert cells(done)[GOOD].outcome == "pass"
    assert cells(done)[topic].outcome == "unsupported"
    assert "INVALID_CONFIG" in cells(done)[topic].text
    assert any("so defaults were used" in note for note in done.run.testees[0].notes)


def test_an_answer_that_depends_on_a_coordinator_is_no_judgement() -> None:
    ids = [vector.id for vector in some("records/v2/header/transactional*")]
    with odd_with(48, *ids) as broker:
        done = probed(broker, *ids)
    assert {cell.outcome for cell in cells(done).values()} == {"unsupported"}


LARGE = "records/v2/bomb/records-131071"
DEFAULT = DEFAULT_TOPIC.max_message_bytes
MORE = 10_000_000


@pytest.mark.parametrize(
    ("limit", "tells", "outcome", "note"),
    [
        (DEFAULT, str(DEFAULT), "pass", ""),
        (DEFAULT, None, "pass", "the broker does not report its max.message.bytes, so it is judged by Kafka's default"),
        (DEFAULT, "9" * 5000, "pass", "does not report"),
        (DEFAULT, "-1", "pass", "does not report"),
        (100, "100", "pass", "is 100, and"),
        (MORE, str(MORE), "pass", f"the broker's max.message.bytes is {MORE}, and it is judged by that"),
        pytest.param(MORE, None, "fail", "does not report", marks=pytest.mark.full),
        # A broker that takes more than it says.
        pytest.param(MORE, str(DEFAULT), "fail", "", marks=pytest.mark.full),
    ],
)
def test_a_broker_is_judged_by_its_own_limit_of_a_batch(limit: int, tells: str | None, outcome: str, note: str) -> None:
    with OddBroker(max_message_bytes=limit, tells=tells) as broker:
        done = probed(broker, GOOD, LARGE, timeout_ms=20_000)
    assert cells(done)[LARGE].outcome == outcome
    assert cells(done)[GOOD].outcome == "pass"
    notes = done.run.testees[0].notes
    assert [note in one for one in notes] == [True] * bool(note)
    assert all(len(one) < 200 for one in notes)


def test_a_broker_is_not_asked_to_explain_a_limit_that_decides_nothing() -> None:
    with OddBroker() as broker:
        assert probed(broker).run.testees[0].notes == ()


@pytest.mark.parametrize("duration_s", [0, 0.5])
def test_a_probe_ends_when_its_time_is_over_also_what_it_waits_for_and_removes_its_topics(duration_s: float) -> None:
    with odd_with("keep silent") as broker:
        began = time.monotonic()
        done = probed(broker, GOOD, timeout_ms=3_600_000, duration_s=duration_s)
        assert broker.topics == {}
    assert done.ended == f"{duration_s:g} s are over, and not all vectors were asked; add --duration"
    assert cells(done) == {}
    assert time.monotonic() - began < 60


def test_the_words_of_a_broker_are_bounded_in_the_report() -> None:
    def rude(api: str, values: Any) -> Any:
        if api == "Produce" and (code := values["responses"][0]["partitionResponses"][0]["errorCode"]):
            said = {"index": 0, "errorCode": code, "errorMessage": "\x1b[2J" + "A" * 30_000, "baseOffset": -1}
            values["responses"][0]["partitionResponses"] = [said]
        return values

    with OddBroker(rewrite=rude) as broker:
        done = probed(broker)
    text = cells(done)[BAD].answer["text"]
    assert text.endswith("(cut from 30004 characters)")
    assert len(text.encode()) <= 4096


def _bomb(codec: Codec, records_: list[Record]) -> bytes:
    return records.encode([records.RecordBatch(0, len(records_) - 1, records_, compression=codec)])


@pytest.mark.parametrize(
    "served",
    [
        lambda: records.encode([records.RecordBatch(0, 0, [])]) * 2000,
        lambda: _bomb("none", [Record(i, 0, None, None) for i in range(250_000)]),
        lambda: _bomb("zstd", [Record(0, 0, None, None, [(b"", None)] * 1_200_000)]),
        lambda: _bomb("zstd", [Record(0, 0, None, bytes(3 << 20))]),
        lambda: bytes(5 << 20),
    ],
)
def test_a_broker_that_serves_much_more_than_it_got_costs_little(served: Callable[[], bytes]) -> None:
    data = bytes_of(GOOD)
    with OddBroker(serves={data: served()}) as broker:
        done = probed(broker, GOOD)
    cell = cells(done)[GOOD]
    assert (cell.outcome, cell.text) == ("protocol-error", f"answered with bytes that cannot be read{AT_FETCH}")


def test_every_vector_is_expected_as_a_real_broker_answered_it() -> None:
    either = set()
    for vector in suite():
        verdict = for_broker(vector).expect["broker"]["verdict"]
        said = vector.kafka[BROKER_RELEASE]["produce"]
        if verdict == "acceptable" and "broker" not in vector.expect:
            either.add(vector.id)
        # Kafka's releases differ on the others that are acceptable.
        elif verdict != "acceptable":
            assert (said == "accepted") == (verdict != "invalid"), vector.id
    assert either == TOO_LARGE


BATCH = batch(0, value=b"v" * 50)
MOVED = (7).to_bytes(8, "big") + BATCH[8:12] + (3).to_bytes(4, "big") + BATCH[16:]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda: BATCH, "same"),
        (lambda: MOVED, "same"),
        (lambda: stamp_log_append_time(BATCH, 9), "edited"),
        (lambda: recompress(BATCH, "gzip"), "recompressed"),
        (lambda: batch(0, value=b"w" * 50), "changed"),
        (lambda: BATCH + BATCH, "changed"),
        (lambda: BATCH[:-1], "changed"),
        (lambda: b"", "nothing"),
    ],
)
def test_stored_bytes_are_told_apart(change: Callable[[], Any], word: str) -> None:
    assert stored_as(BATCH, bytes(change())) == word


def test_the_report_says_what_was_answered_stored_and_served_and_can_be_read_again() -> None:
    with odd_with("accept", BAD) as broker:
        done = probed(broker)
    assert summary(done.run, 3) == [
        "judged    3 of 3",
        "answered  NONE 3",
        "stored    same 3",
        "consumers read it 2, refuse it 1",
    ]
    document = json.loads(json.dumps(report.to_json(done.run)))
    told = next(case["cells"]["broker"]["answer"] for case in document["cases"] if case["id"] == BAD)
    assert told["consumer"] == "rejected"
    assert told["finding"] == "record-count-negative"
    assert bytes.fromhex(told["hex"]) == bytes_of(BAD)
    again = report.from_json(document, suite())
    assert [cause.id for cause in again.causes] == [cause.id for cause in done.run.causes]


# --- the command ------------------------------------------------------------------------------------------------------


def test_outcomes_of_ones_own_are_written_and_a_change_is_noticed(tmp_path: Path) -> None:
    root = str(mini_suite.write(tmp_path / "suite"))
    file = tmp_path / "mine.txt"
    with odd_with("close", BAD) as broker:
        address = f"127.0.0.1:{broker.port}"
        asked = ("probe", address, "--vectors", root)
        assert outcome(*asked)[0] == 1
        output = kfuzz(*asked, "--expected", file, "--update-expected", code=0).stdout
        assert f"{BAD} broker fault  # lets escape: closed the connection" in file.read_text()
        assert kfuzz(*asked, "--expected", file, code=0).stdout.endswith("as expected\n")
        broker.odd.clear()
        code, output, _ = outcome(*asked, "--expected", file)
    assert code == 1
    assert "a line expects fault; now it is pass" in output


def test_a_crash_that_nobody_knows_of_is_withheld(tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path / "suite")
    (root / "expected").mkdir()
    with odd_with("restart", BAD) as broker:
        asked = ("probe", f"127.0.0.1:{broker.port}", "--vectors", root, "--name", "broker-odd@1", "--timeout", "2")
        assert outcome(*asked, "--update-expected")[0] == 0
        listed = (root / "expected/broker-odd@1.txt").read_text()
        assert BAD not in listed
        assert "withheld 1 scrypt:" in listed
        assert f"{BAD} broker crash" in (tmp_path / "embargo/broker-odd@1.txt").read_text()
        code, *printed = outcome(*asked, "--publish", "--json", "-")
    assert code == 0
    assert "crash" not in "".join(printed).replace('"crashes', "")


def test_a_broker_that_is_gone_is_told_with_exit_code_1() -> None:
    with odd_with("die", BAD) as broker:
        code, output, said = outcome("probe", f"127.0.0.1:{broker.port}", BAD, GOOD, "--timeout", "1")
    assert code == 1
    assert f"kfuzz: the broker does not work any more since {BAD}" in said
    assert "judged    1 of 2" in output


def test_a_server_that_never_answers_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, _, said = outcome("probe", f"127.0.0.1:{server.getsockname()[1]}", GOOD, "--timeout", "1")
    assert (code, said.count("\n")) == (2, 1)
    assert "cannot be reached: no answer in time" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_probe_that_is_interrupted_removes_its_topics(number: signal.Signals) -> None:
    with odd_with("keep silent") as broker:
        argv = [sys.executable, "-m", "kfuzz", "probe", f"127.0.0.1:{broker.port}", GOOD, "--timeout", "60"]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            while bytes_of(GOOD) not in broker.produced and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        assert broker.topics == {}
    assert process.returncode == 128 + number
    assert said.strip() == ("kfuzz: interrupted" if number == signal.SIGINT else "kfuzz: terminated")
