"""Four wicked testees: each is one red cell, and the run goes on and judges the rest."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from referee_tools import SMALL_LIMITS, make_vector, toy_cases, wicked

from kfuzz.conformance.judge.compare import Case
from kfuzz.conformance.judge.runner import Outcome, run_cases
from kfuzz.conformance.protocol import peer
from kfuzz.conformance.protocol.session import MIB, NoHandshake, Session

RUBBISH = ["text", "binary", "array", "deep", "number", "other-id", "no-contents", "misspelt", "twice"]
TRAP = ("toy/trap", "consumer")


def outcome_of(argv: list[str], **of_trap: object) -> Outcome:
    cases = toy_cases(**of_trap)
    seen: list[None] = []
    outcome = run_cases(argv, cases, limits=SMALL_LIMITS, on_cell=lambda: seen.append(None))
    assert set(outcome.cells) == {case.key for case in cases}, "every case is judged"
    assert len(seen) == len(cases), "progress counts each case once"
    others = {cell.outcome for key, cell in outcome.cells.items() if key != TRAP}
    assert others == {"pass"}, "nobody else is blamed"
    return outcome


def test_an_honest_testee_has_no_red_cell() -> None:
    outcome = outcome_of(wicked("dies"), id="toy/calm")
    assert {cell.outcome for cell in outcome.cells.values()} == {"pass"}


def test_a_testee_that_dies_is_one_crash() -> None:
    cell = outcome_of(wicked("dies")).cells[TRAP]
    assert cell.outcome == "crash"
    assert cell.text == "died of SIGSEGV: wild pointer"


@pytest.mark.parametrize(
    "how", [pytest.param([], id="burning"), pytest.param(["sleep"], id="sleeping", marks=pytest.mark.full)]
)
def test_a_testee_that_hangs_is_one_timeout(how: list[str]) -> None:
    cell = outcome_of(wicked("hangs", *how)).cells[TRAP]
    assert cell.outcome == "timeout"
    assert cell.text == ("gave no answer within 3000 ms" if how else "took more than its 500 ms of CPU time")


def test_a_stall_counts_only_if_it_is_seen_again_alone(tmp_path: Path) -> None:
    cell = outcome_of(wicked("stalls")).cells[TRAP]
    assert (cell.outcome, cell.harm, cell.text) == ("stall", "hangs", "no progress")
    once = outcome_of(wicked("stalls", str(tmp_path / "seen"))).cells[TRAP]
    assert once.outcome == "pass"


def test_one_second_process_sees_all_stalls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Session] = []

    class Seen(Session):
        def __init__(self, *words: Any, **how: Any) -> None:
            super().__init__(*words, **how)
            started.append(self)

    monkeypatch.setattr(peer, "Session", Seen)
    cases = [Case(make_vector(f"toy/trap-{number}"), "consumer") for number in range(3)]
    outcome = run_cases(wicked("stalls"), cases, limits=SMALL_LIMITS)
    assert {cell.outcome for cell in outcome.cells.values()} == {"stall"}
    assert len(started) == 2
    assert all(session._process.returncode is not None for session in started)


def test_a_stall_that_happens_only_once_is_still_a_memory_fault(tmp_path: Path) -> None:
    cell = outcome_of(wicked("stalls", str(tmp_path / "seen"), "large"), budget={"memory_bytes": 1 << 28}).cells[TRAP]
    assert cell.outcome == "memory"


@pytest.mark.parametrize("kind", RUBBISH)
def test_a_testee_that_prints_rubbish_is_one_protocol_error(kind: str) -> None:
    cell = outcome_of(wicked("rubbish", kind)).cells[TRAP]
    assert cell.outcome == "protocol-error"
    assert cell.text, "a sentence says what was wrong"


def test_a_testee_that_allocates_without_end_is_one_memory_fault() -> None:
    cell = outcome_of(wicked("allocates")).cells[TRAP]
    assert (cell.outcome, cell.text) == ("memory", "took more than its 128 MiB of memory")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bound the address space of another process")
@pytest.mark.parametrize("how", ["once", "caught"])
def test_an_allocation_beyond_the_budget_is_a_memory_fault_even_if_it_is_never_touched(how: str) -> None:
    budget = {"memory_bytes": 16 * MIB, "cpu_ms": 2000}
    cell = outcome_of(wicked("allocates", how), budget=budget).cells[TRAP]
    assert (cell.outcome, cell.text) == ("memory", "took more than its 16 MiB of memory")
    # It says where when it dies of the limit, not when it survives.
    assert cell.answer.get("at") == {"once": "toy/reader.py:5", "caught": None}[how]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bound the address space of another process")
def test_the_outcome_with_enough_memory_counts_where_it_is_as_bad() -> None:
    budget = {"memory_bytes": 16 * MIB, "cpu_ms": 200}
    assert outcome_of(wicked("allocates", "burns"), budget=budget).cells[TRAP].outcome == "timeout"


def test_a_testee_that_reports_its_allocations_is_judged_by_them() -> None:
    small, large = ({"memory_bytes": size * MIB, "cpu_ms": 2000} for size in (16, 1100))
    cell = outcome_of(wicked("allocates", "reports"), budget=small).cells[TRAP]
    assert (cell.outcome, cell.answer["at"]) == ("memory", "toy/codec.py:7")
    assert outcome_of(wicked("allocates", "reports"), budget=large).cells[TRAP].outcome == "pass"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can bound the address space of another process")
def test_a_claim_beyond_any_machine_is_refused_on_every_machine() -> None:
    budget = {"memory_bytes": 1 << 50, "cpu_ms": 2000}
    assert outcome_of(wicked("allocates", "claims"), budget=budget).cells[TRAP].outcome == "crash"


def test_a_testee_that_limits_its_own_memory_is_judged_under_its_own_limit() -> None:
    command = f"ulimit -v {8 * MIB}; exec {shlex.join(wicked('allocates', 'claims'))}"
    assert outcome_of(["bash", "-c", command], budget={"memory_bytes": 1 << 50}).cells[TRAP].outcome == "crash"


def test_an_allocation_within_the_budget_is_nobodys_fault() -> None:
    budget = {"memory_bytes": 1100 * MIB, "cpu_ms": 2000}
    assert outcome_of(wicked("allocates", "once"), budget=budget).cells[TRAP].outcome == "pass"


def test_a_testee_that_dies_under_a_budget_is_a_crash_and_not_a_memory_fault() -> None:
    budget = {"memory_bytes": 16 * MIB, "cpu_ms": 2000}
    assert outcome_of(wicked("dies"), budget=budget).cells[TRAP].outcome == "crash"


def test_every_case_that_breaks_a_testee_is_found() -> None:
    cases = [Case(make_vector(f"toy/{i}-{'trap' if i % 3 == 0 else 'calm'}"), "consumer") for i in range(9)]
    outcome = run_cases(wicked("dies"), cases, limits=SMALL_LIMITS)
    crashed = [id for (id, _), cell in outcome.cells.items() if cell.outcome == "crash"]
    assert sorted(crashed) == ["toy/0-trap", "toy/3-trap", "toy/6-trap"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["/nonexistent/testee"], "/nonexistent/testee cannot be started: No such file or directory"),
        ([sys.executable, "-c", "print('hello')"], "the handshake is not a line of JSON: 'hello'"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "no handshake: the testee ended with status 3"),
        (
            [sys.executable, "-c", "import sys; sys.exit('one\\n  two\\x1b')"],
            "no handshake: the testee ended with status 1; its last words: one | two\x1b",
        ),
        (
            [sys.executable, "-c", "import sys; print('no config \\x1b' * 9999, file=sys.stderr); print('usage')"],
            "the handshake is not a line of JSON: 'usage'; print nothing else on standard output; its last words: ",
        ),
        (
            [sys.executable, "-c", "import sys; print('waits for a broker', file=sys.stderr, flush=True); input()"],
            "no handshake: the testee gave no answer within 1000 ms; it must print its handshake before it reads, and "
            "flush it; --start-timeout allows more time; its last words: waits for a broker",
        ),
        ([sys.executable, "-c", "print('{}')"], "the handshake lacks protocol"),
        ([sys.executable, "-c", "input()"], "no handshake: the testee gave no answer within 1000 ms"),
    ],
    ids=["missing", "rubbish", "ends", "words", "long words", "waits", "empty", "silent"],
)
def test_a_testee_that_never_shakes_hands_is_broken_with_a_sentence(argv: list[str], sentence: str) -> None:
    outcome = run_cases(argv, toy_cases(), limits=replace(SMALL_LIMITS, start_ms=1000))
    assert outcome.broken.startswith(sentence)
    assert len(outcome.broken) < 1000
    assert not outcome.cells


def test_waiting_for_a_handshake_prints_the_reason_and_the_time_limit() -> None:
    told: list[str] = []
    silent = [sys.executable, "-c", "input()"]
    outcome = run_cases(silent, toy_cases(), limits=replace(SMALL_LIMITS, start_ms=2500), on_notice=told.append)
    assert told == [f"waiting for the handshake of `{shlex.join(silent)}` (2.5 s at most)"]
    assert "it must print its handshake before it reads" in outcome.broken


def test_a_testee_that_dies_is_a_crash_though_a_child_holds_its_output() -> None:
    """The end of standard error must not look like news for ever, or the death goes unseen."""
    child = "import time; time.sleep(600)"
    program = (
        "import os, subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-S', '-c', {child!r}], stderr=subprocess.DEVNULL); "
        "os.close(2); os._exit(3)"
    )
    outcome = run_cases([sys.executable, "-c", program], toy_cases(), limits=SMALL_LIMITS)
    assert outcome.broken == "no handshake: the testee ended with status 3"


def test_javas_note_about_its_options_is_not_among_the_last_words_of_a_testee() -> None:
    said = "print('Picked up JAVA_TOOL_OPTIONS: -Xmx1g', 'wild pointer', '', sep=chr(10), file=sys.stderr)"
    with Session([sys.executable, "-c", f"import sys; {said}; sys.exit(1)"]) as session:
        with pytest.raises(NoHandshake):
            session.start(SMALL_LIMITS)
        assert session.last_words() == "wild pointer"


def test_no_process_of_a_testee_outlives_the_run() -> None:
    """Nor does a child that it started, nor an orphan that is only in its process group; both hold its pipes."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    # A length that no other run on this machine has.
    sleep = ["sleep", f"613.{os.getpid()}"]
    word = " ".join(sleep)
    shell = ["sh", "-c", f"({word} &) ; {word} & {sys.executable} -S {wicked('dies')[2]}; {word}"]
    outcome = run_cases(shell, toy_cases(id="toy/calm"), limits=SMALL_LIMITS)
    assert {cell.outcome for cell in outcome.cells.values()} == {"pass"}
    sleepers = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == sleep]
    # They are killed by then; how soon a killed process is gone is for the system to say.
    assert psutil.wait_procs(sleepers, timeout=10)[1] == []
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
@pytest.mark.parametrize("how", [[], ["clean"]], ids=["with its environment", "with another environment"])
def test_no_daemon_of_a_testee_outlives_the_run(tmp_path: Path, how: list[str]) -> None:
    told = tmp_path / "pid"
    outcome = run_cases(wicked("leaves", str(told), *how), toy_cases(), limits=SMALL_LIMITS)
    assert {cell.outcome for cell in outcome.cells.values()} == {"pass"}
    assert not psutil.pid_exists(int(told.read_text())), "it is killed, and reaped"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
def test_processes_of_the_program_that_runs_a_testee_are_left_alone() -> None:
    """Its children, and the orphans of its children, which come to it while a testee runs."""
    sleep = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    orphans: list[psutil.Process] = []
    try:
        with Session(wicked("dies")) as session:
            session.start(SMALL_LIMITS)
            start = [sys.executable, "-S", "-c", sleep]
            done = subprocess.run(start, stdout=subprocess.PIPE, check=True, start_new_session=True, timeout=60)
            orphans.append(psutil.Process(int(done.stdout)))
            ended = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(7)"], start_new_session=True)
        assert child.poll() is None
        assert orphans[0].is_running()
        assert ended.wait(60) == 7, "nobody else has reaped it"
    finally:
        for one in (child, *orphans):
            one.kill()
        child.wait()


def test_two_testees_at_once_do_not_end_each_other(tmp_path: Path) -> None:
    with Session(wicked("dies")) as first:
        first.start(SMALL_LIMITS)
        with Session(wicked("dies")) as second:
            second.start(SMALL_LIMITS)
        first.send(b'{"id": "toy/calm", "hex": ""}\n')
        assert isinstance(first.next_line(SMALL_LIMITS.budget(None)), bytes)


def test_the_temporary_folder_of_a_testee_is_removed_with_its_files(tmp_path: Path) -> None:
    """It may be killed at any time, and then cannot tidy up by itself."""
    told = tmp_path / "told"
    program = f"import os, sys, tempfile; open({str(told)!r}, 'w').write(tempfile.mkdtemp()); sys.stdin.read()"
    with Session([sys.executable, "-c", program]) as session, pytest.raises(NoHandshake, match="handshake"):
        session.start(replace(SMALL_LIMITS, start_ms=2_000))
    left = Path(told.read_text())
    assert not left.exists()
    assert not left.parent.exists()
