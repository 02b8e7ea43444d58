"""A corpus at a URI is installed, replayed and loaded as one in a directory; a silent store is left soon."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_driver import outcome
from made_corpora import once
from replay.fake_broker import FakeBroker
from s3_server import place, s3
from test_corpus_install import PARTITIONS, WORKLOAD, contents, log_dir

from kfuzz import storage
from kfuzz.corpora.generation import generate
from kfuzz.storage import Target

__all__ = ["log_dir", "place", "s3"]

corpus = once(WORKLOAD)


def test_a_corpus_is_installed_from_every_place(place: str, corpus: Path, log_dir: Path) -> None:
    generate(WORKLOAD, place)
    if "://" in place:
        code, _, said = outcome("corpus", "install", place, "--log-dir", log_dir, "--link")
        assert (code, said) == (
            2,
            f"kfuzz: {place} is not on this machine, so nothing can be linked; leave out --link\n",
        )
    code, said, _ = outcome("corpus", "install", place, "--log-dir", log_dir)
    assert (code, said.split(" in ")[0]) == (0, f"{place}: installed 3 partitions with 7 segments")
    for name in PARTITIONS:
        wanted = {one: data for one, data in contents(corpus / name).items() if one != "partition.metadata"}
        assert contents(log_dir / name).items() >= wanted.items()


def test_a_log_and_a_workload_are_sent_from_every_place(place: str, corpus: Path) -> None:
    generate(WORKLOAD, place)
    sent = []
    for log in (corpus, place):
        with FakeBroker({"pay.s-1": 2, "t": 1}) as broker:
            code, _, said = outcome(
                "corpus", "replay", log, "--bootstrap", f"127.0.0.1:{broker.port}", "--topics", "pay*"
            )
        assert code == 0, said
        sent.append({where: [one.records for one in held] for where, held in broker.batches.items()})
    assert sent[0] == sent[1]
    for workload in (place, f"{place}/_workload.toml"):
        with FakeBroker({"pay.s-1": 2, "t": 1}) as broker:
            options = ("--bootstrap", f"127.0.0.1:{broker.port}", "--records", "500", "--topics", "t")
            code, _, said = outcome("load", workload, *options)
        assert (code, sum(len(one.records) for one in broker.batches["t", 0]) > 300) == (0, True), said


@pytest.mark.parametrize("call", ["ls", "_open", "mv"])
def test_a_store_that_falls_silent_at_any_call_is_left(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setattr(storage, "ANSWER_S_MAX", 0.01)
    monkeypatch.setattr(storage, "HURRIED_ANSWER_S_MAX", 0.01)
    monkeypatch.setattr(MemoryFileSystem, call, lambda *what, **how: time.sleep(600))
    workload = Path("spark_jobs/workloads/demo.toml").resolve()
    code, _, said = outcome("corpus", "generate", workload, "--out", f"memory://{tmp_path.name}", "--size", "1MiB")
    monkeypatch.undo()
    storage._hurried_until_s.clear()
    Target.of(f"memory://{tmp_path.name}").remove_directory("")
    assert (code, said.count("\n"), ": no answer within 0.01 s; check the address" in said) == (2, 1, True), said


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_a_silent_store(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        running = subprocess.Popen(
            [sys.executable, "-m", "kfuzz", "cat", "s3://corpora/x"], stderr=subprocess.PIPE, text=True
        )
        # It has asked, and waits.
        asked, _ = silent.accept()
        asked.recv(1)
        running.send_signal(number)
        said = running.communicate(timeout=storage.ANSWER_S_MAX / 2)[1]
        asked.close()
    assert (running.returncode, "Traceback" in said) == (128 + number, False), said
