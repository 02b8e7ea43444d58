"""One driver owns a target: a second one is refused, a dead one's leftovers are swept, a live one's never."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import psutil
import pytest
from s3_server import place, s3
from signals import KFUZZ, interrupt_when, start

from kfuzz.corpora import locks
from kfuzz.corpora.generation import claimed, generate, prepare
from kfuzz.corpora.locks import Owner, owned
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Topic, Workload, load
from kfuzz.errors import UsageError
from kfuzz.storage import Target

__all__ = ["place", "s3"]

WORKLOAD = Workload(topics=(Topic("t"),), size=256 * KIB, segment_bytes=128 * KIB)
TOML = 'size = "8GiB"\nsegment_bytes = "1MiB"\n[[topics]]\nname = "t"\n'


@pytest.fixture
def target(place: str) -> Target:
    return Target.of(place)


def lock_of(target: Target, host: str, pid: int, started: float) -> str:
    name = f"{locks.PREFIX}abc"
    target.write(name, json.dumps({"id": "abc", "host": host, "pid": pid, "started": started}))
    return name


def names(target: Target) -> list[str]:
    return sorted(name for name, _ in target.walk())


def test_a_second_driver_is_refused_with_the_name_of_the_first_and_changes_nothing(target: Target) -> None:
    plan = Plan(WORKLOAD)
    with claimed(target, plan) as lock:
        prepare(target, WORKLOAD)
        target.write("t-0/.x.tmp", "the first driver's")
        before = names(target)
        assert f"_lock-{lock.id}" in before
        with pytest.raises(
            UsageError,
            match=rf"belongs to process {os.getpid()} on {socket.gethostname()}, which began at 20.* UTC; "
            "wait until it ends, or add --break-lock if it is dead",
        ):
            generate(WORKLOAD, target, resume="sizes")
        assert names(target) == before
        target.remove("t-0/.x.tmp")
    assert names(target) == ["_workload.toml"]
    generate(WORKLOAD, target, resume="sizes")
    assert verify(target) == []


def test_of_drivers_that_begin_together_at_most_one_continues(tmp_path: Path) -> None:
    target = Target.of(tmp_path)
    ready, inside, most, lock = threading.Barrier(8), [0], [0], threading.Lock()

    def drive() -> None:
        for _ in range(10):
            ready.wait()
            try:
                with owned(target, []):
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    with lock:
                        inside[0] -= 1
            except UsageError:
                pass

    threads = [threading.Thread(target=drive) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 1
    assert names(target) == []


@pytest.mark.parametrize("what", ["gone", "another start", "no number of a process"])
def test_the_lock_of_a_dead_process_is_taken_over_and_its_leftovers_are_swept(target: Target, what: str) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    started = psutil.Process().create_time()
    pid = {"gone": ended.pid, "another start": os.getpid()}.get(what, -1)
    lock_of(target, socket.gethostname(), pid, started - 1000)
    prepare(target, WORKLOAD)
    target.write("t-0/.00000000000000000000.log.abc-local.7.tmp", "half")
    target.write("._workload.toml.whole-1.7.tmp", "half")
    rows = generate(WORKLOAD, target, resume="sizes")
    assert verify(target) == []
    assert len(names(target)) == 4 * len(rows) + 4


def test_a_process_that_has_ended_but_was_not_waited_for_is_dead(tmp_path: Path) -> None:
    target = Target.of(tmp_path)
    child = subprocess.Popen(["sleep", "60"])
    lock_of(target, socket.gethostname(), child.pid, psutil.Process(child.pid).create_time())
    with pytest.raises(UsageError, match=rf"belongs to process {child.pid} on"):
        generate(WORKLOAD, target)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with owned(target, []):
        pass
    child.wait()


def test_the_lock_of_another_machine_holds_while_its_heart_beats(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lock_of(target, "other-machine", 1, 0.0)
    with pytest.raises(UsageError, match="belongs to process 1 on other-machine, which began at 1970"):
        generate(WORKLOAD, target)
    assert names(target) == [name]
    monkeypatch.setattr(locks, "DEAD_S", 0.0)
    generate(WORKLOAD, target)
    assert name not in names(target)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", *(f'{{"host": "x", "pid": {one}}}' for one in ('[], "started": 0', '1, "started": 1e99'))]
)
def test_a_lock_that_cannot_be_read_is_another_machines(tmp_path: Path, text: str) -> None:
    target = Target.of(tmp_path)
    target.write(f"{locks.PREFIX}abc", text)
    with pytest.raises(UsageError, match="an unknown machine"), owned(target, []):
        pass


def test_break_lock_takes_over_and_the_first_driver_does_not_publish(target: Target) -> None:
    plan = Plan(WORKLOAD)
    with claimed(target, plan) as first:
        generate(WORKLOAD, target, break_lock=True)
        with pytest.raises(UsageError, match="another driver has taken over this corpus; let it finish"):
            first.check()
    assert verify(target) == []


def test_a_heart_beats_while_the_lock_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT_S", 0.01)
    target = Target.of(tmp_path)
    beaten = threading.Event()
    plain = locks.Lock.write
    count = []

    def write(lock: locks.Lock) -> None:
        plain(lock)
        count.append(1)
        if len(count) == 3:
            beaten.set()

    monkeypatch.setattr(locks.Lock, "write", write)
    with owned(target, []):
        assert beaten.wait(30)
    assert names(target) == []


def test_a_sweep_at_the_end_takes_only_the_drivers_own_files(tmp_path: Path) -> None:
    target = Target.of(tmp_path)
    with owned(target, ["t-0"]) as lock:
        target.write(f"t-0/.a.log.{lock.id}-task-1.7.tmp", "")
        target.write("t-0/.a.log.other-task-1.7.tmp", "")
    assert names(target) == ["t-0/.a.log.other-task-1.7.tmp"]


def test_a_directory_that_was_made_for_the_lock_does_not_stay_empty(tmp_path: Path) -> None:
    for name in ("made", "was-there", "with-a-file"):
        target = Target.of(tmp_path / name)
        if name == "was-there":
            (tmp_path / name).mkdir()
        with owned(target, []):
            assert (tmp_path / name).is_dir()
            if name == "with-a-file":
                target.write("kept", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["was-there", "with-a-file"]


def test_after_sigkill_a_new_run_leaves_no_temporary_file_and_no_lock(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(TOML)
    out = tmp_path / "out"
    running = start([*KFUZZ, "corpus", "generate", tmp_path / "w.toml", "--out", out])
    interrupt_when(running, lambda: bool(list(out.glob("t-0/.*.tmp"))), within_s=60, number=9)
    assert list(out.glob("_lock-*"))
    # As long as a segment is being written, there is a temporary file; the kill may come between two segments.
    (out / "t-0/.late.log.dead-local.1.tmp").write_text("half")
    generate(load(tmp_path / "w.toml").resized(4 << 20), out, overwrite=True)
    assert list(out.rglob("*.tmp")) == []
    assert list(out.glob("_lock-*")) == []
    assert verify(out) == []


def test_owners_differ_even_in_one_process() -> None:
    assert Owner.us().id != Owner.us().id
