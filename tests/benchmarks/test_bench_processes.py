"""Contestants in processes of their own: each makes its set itself, and one that fails says so in a sentence."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from benchmarks import kfuzz_work, peers
from benchmarks.contestant import ROOT, START, Contestant, ContestantFailed, compare, made
from benchmarks.measure import Contest, NotTheSameWork
from benchmarks.message_set import MessageSet
from benchmarks.mixed import CallCensus, MixedSet, UniformSet
from kfuzz import records
from kfuzz.errors import UsageError

SET = MixedSet(2)
UNIFORM = UniformSet(50, batch_records=(8, 8))
CONTEST = [Contest("kfuzz", "peer", ("peer",))]


def test_a_process_counts_measures_and_ends() -> None:
    contestant = Contestant("verdict: kfuzz", partial(kfuzz_work.verdict, SET))
    try:
        assert contestant.process.pid != os.getpid()
        assert contestant.census() == SET.census
        contestant.warm_up()
        lap = contestant.lap(1)
        assert lap.counted == SET.census.records
        assert lap.cpu_ns > 0
    finally:
        contestant.close()
    assert contestant.process.poll() is not None


@pytest.mark.parametrize("made_of", [SET, UNIFORM, MessageSet("small")])
def test_a_set_travels_as_its_seed(made_of: MixedSet | MessageSet) -> None:
    assert made_of.census
    sent = pickle.dumps(made_of)
    assert len(sent) < 300
    assert pickle.loads(sent) == made_of
    assert pickle.loads(sent).census == made_of.census


@pytest.mark.full
def test_each_contestant_has_a_process_and_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    ended: list[int] = []
    start, close = Contestant.__init__, Contestant.close

    def starting(self: Contestant, *arguments: object) -> None:
        start(self, *arguments)  # type: ignore[arg-type]
        started.append(self.process.pid)

    def closing(self: Contestant) -> None:
        close(self)
        ended.append(self.process.pid)

    monkeypatch.setattr(Contestant, "__init__", starting)
    monkeypatch.setattr(Contestant, "close", closing)
    jobs = {
        "kfuzz": (partial(kfuzz_work.verdict, SET), ROOT),
        "peer": (partial(made, peers.AioKafka, "verdict", SET), ROOT),
    }
    (ratio,) = compare("verdict", jobs, CONTEST, SET.census, 2, 1)
    assert ratio.peer == "peer"
    assert len(set(started)) == 2
    assert sorted(ended) == sorted(started)
    with pytest.raises(NotTheSameWork, match="kfuzz does not do the same work: records"):
        compare("verdict", jobs, CONTEST, MixedSet(3).census, 2, 1)
    assert len(started) == 4
    assert sorted(ended) == sorted(started)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(made, peers.AioKafka, "fly"), "path: kfuzz: AttributeError: .* has no attribute 'fly'"),
        (partial(made, UsageError, "fly"), "path: kfuzz: AttributeError: .*'fly'"),
        (partial(os.kill, 0, 99), "path: kfuzz: OSError: .*Invalid argument"),
        (partial(os._exit, 3), "path: kfuzz: its process has ended with exit code 3"),
    ],
)
def test_an_error_in_a_process_becomes_one_sentence(make: partial[object], said: str) -> None:
    contestant = Contestant("path: kfuzz", make)  # type: ignore[arg-type]
    try:
        with pytest.raises(ContestantFailed, match=said) as failed:
            contestant.census()
        assert "\n" not in str(failed.value)
    finally:
        contestant.close()


def test_a_process_that_was_killed_is_said_to_have_ended() -> None:
    contestant = Contestant("verdict: kfuzz", partial(kfuzz_work.verdict, SET))
    try:
        contestant.census()
        contestant.process.send_signal(signal.SIGKILL)
        with pytest.raises(ContestantFailed, match="verdict: kfuzz: its process has ended with exit code -9"):
            contestant.warm_up()
    finally:
        contestant.close()


def test_a_process_ends_with_its_input(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", START, ROOT], input=b"", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- what the contestants do ----------------------------------------------------------------------------------------


def test_records_of_calls_are_all_alike() -> None:
    rows = [content for batch in UNIFORM.contents for content in batch]
    assert {(len(row.key or b""), len(row.value or b"")) for row in rows} == {(10, 100)}
    assert [len(batch) for batch in UNIFORM.contents] == [8] * 50


@pytest.mark.parametrize("peer", [peers.AioKafka, peers.KafkaPython])
def test_a_call_is_made_for_each_batch(peer: type[peers.AioKafka] | type[peers.KafkaPython]) -> None:
    expected = CallCensus.of(50, UNIFORM.census)
    works = [kfuzz_work.call_check(UNIFORM), kfuzz_work.call_iterate(UNIFORM), kfuzz_work.call_read(UNIFORM)]
    works += [kfuzz_work.check_requests(UNIFORM, "broker"), peer().call(UNIFORM)]
    for work in works:
        assert work.census() == expected
        assert work.run() == 50


def test_a_log_with_transactions_stands_in_a_log_and_some_are_aborted() -> None:
    log = kfuzz_work.transactional_log(UNIFORM)
    data = records.encode(log)
    assert records.check(data, role="log").findings == []
    stream = records.check_stream(data)
    assert stream.findings == ()
    assert stream.last_stable_offset == log[-1].next_offset
    markers = {batch.records[0].key for batch in log if batch.control}
    assert markers == {kfuzz_work.ABORT, kfuzz_work.COMMIT}
    assert sum(len(batch.records) for batch in log if not batch.control) == UNIFORM.census.records


@pytest.mark.parametrize(
    "make",
    [
        kfuzz_work.append,
        partial(kfuzz_work.append, codec="lz4"),
        kfuzz_work.convert,
        kfuzz_work.compact,
        kfuzz_work.read_committed,
    ],
)
def test_each_work_of_a_broker_keeps_every_record_that_it_must(make: partial[object]) -> None:
    work = make(UNIFORM)
    assert work.census() == UNIFORM.census  # type: ignore[attr-defined]
    assert work.run() == UNIFORM.census.records  # type: ignore[attr-defined]


def test_a_cleaner_that_keeps_other_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    work = kfuzz_work.compact(UNIFORM)
    honest = kfuzz_work.compact_log
    monkeypatch.setattr(kfuzz_work, "compact_log", lambda log, retain, now_ms: honest(log, lambda *_: True, now_ms=0))
    with pytest.raises(NotTheSameWork, match="compact keeps 400 records"):
        work.census()
