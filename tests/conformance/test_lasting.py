"""`kfuzz kafka`: a broker that stays after the command, and a process that is not ours is never ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cli_driver import kfuzz, kfuzz_process, refused
from conftest import require_kafka_build

from kfuzz.conformance.broker import lasting

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's broker."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lasting.home()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEP)
    # For a moment, a process that has just begun has no command yet.
    while not psutil.Process(process.pid).cmdline():
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


def write_state(home: Path, text: str) -> None:
    home.mkdir(parents=True)
    (home / lasting.STATE).write_text(text)


@pytest.mark.parametrize("command", [[*SLEEP, "more"], ["java", "x"], []])
def test_a_process_that_is_not_ours_is_never_ended(
    home: Path, sleeper: subprocess.Popen[bytes], command: list[str]
) -> None:
    write_state(home, json.dumps({"pid": sleeper.pid, "port": 9092, "command": command}))
    done = kfuzz("kafka", "stop")
    assert (done.returncode, done.stdout) == (0, "no broker of `kfuzz kafka start` runs\n")
    assert sleeper.poll() is None


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"pid": true}', '{"pid": 0, "port": 1, "command": []}'])
def test_a_damaged_state_is_no_broker(home: Path, state: str) -> None:
    write_state(home, state)
    assert lasting.running() is None
    assert kfuzz("kafka", "stop", "--json").stdout == '{\n  "deleted": false,\n  "stopped": null\n}\n'


def test_exactly_the_process_that_was_started_is_ended(home: Path, sleeper: subprocess.Popen[bytes]) -> None:
    write_state(home, json.dumps({"pid": sleeper.pid, "port": 9092, "command": SLEEP}))
    done = kfuzz("kafka", "start", "--port", "9093")
    assert "the broker already runs at 127.0.0.1:9092; end it first" in done.stderr
    assert "already runs at 127.0.0.1:9092" in kfuzz("kafka", "start").stdout
    assert kfuzz("kafka", "stop", "--delete").stdout == f"process {sleeper.pid} has ended\n"
    assert not home.exists()


def test_without_a_home_directory_one_sentence_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    for verb in ("start", "stop"):
        assert "this user has no home directory; set XDG_CACHE_HOME to a folder" in refused("kafka", verb)


def test_without_java_one_sentence_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "it needs java and javac and mvn" in refused("kafka", "start")
    assert not (home / lasting.STATE).exists()


@pytest.mark.full
def test_a_broker_stays_and_keeps_its_topics_until_it_is_deleted(home: Path) -> None:
    require_kafka_build()
    try:
        first = json.loads(kfuzz_process("kafka", "start", "--json").stdout)
        address = first["address"]
        script = Path(first["scripts"], "kafka-topics.sh")
        made = [script, "--bootstrap-server", address, "--create", "--topic", "kept", "--partitions", "2"]
        subprocess.run(made, check=True, timeout=60)
        again = json.loads(kfuzz_process("kafka", "start", "--json").stdout)
        assert again == {**first, "started": False}
        assert kfuzz_process("kafka", "stop").stdout == f"process {first['pid']} has ended\n"
        assert not psutil.pid_exists(first["pid"]) or psutil.Process(first["pid"]).status() == psutil.STATUS_ZOMBIE
        assert Path(first["log_dir"], "kept-1").is_dir()
        port = address.rpartition(":")[2]
        assert json.loads(kfuzz_process("kafka", "start", "--port", port, "--json").stdout)["address"] == address
        with socket.create_connection(("127.0.0.1", int(port))):
            assert Path(first["log_dir"], "kept-1").is_dir()
    finally:
        kfuzz_process("kafka", "stop", "--delete")
    assert not home.exists()
