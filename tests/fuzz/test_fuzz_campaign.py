"""Campaigns under libFuzzer: coverage of the compiled modules is real, the hook is called, and the canary is found."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import psutil
import pytest
from fuzzer_stub import CANARY_INPUT, require_atheris, require_clang, stub
from signals import interrupt_when, start

from kfuzz.conformance.judge.causes import Cause, Deviation
from kfuzz.errors import UsageError
from kfuzz.fuzz import building as build_module
from kfuzz.fuzz import campaign, kept, seeding
from kfuzz.fuzz import libfuzzer as running
from kfuzz.fuzz import reproducing as once
from kfuzz.fuzz.building import COMPILERS, Build, NoNativeCoverage, Sanitizer, build
from kfuzz.fuzz.seeding import inputs
from kfuzz.fuzz.targets import TARGETS
from kfuzz.vectors import load_suite
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

# Each of seeds 1 to 9 finds the canary within 1.8 million inputs; this one within 220,000.
CANARY_SEED = 6
CANARY_RUNS_MOST = 6_000_000
# Python code alone comes to less than 600: the compiled modules make the difference.
COVERAGE_LEAST = 1000


@pytest.fixture(scope="module")
def atheris_here() -> None:
    require_atheris()


@pytest.fixture(scope="module")
def clang_here(atheris_here: None) -> None:
    require_clang()


@pytest.fixture(scope="module")
def native_build(clang_here: None) -> Build:
    return build()


@pytest.fixture(scope="module")
def address_build(clang_here: None) -> Build:
    return build("address")


@pytest.fixture
def no_clang(atheris_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "COMPILERS", ("no-such-clang",))


@pytest.mark.full
@pytest.mark.clang
def test_record_batch_survives_a_short_run_with_native_coverage_and_a_hook_that_is_called(
    native_build: Build, tmp_path: Path
) -> None:
    [result] = campaign.run(["record-batch"], 60, runs=20_000, out=tmp_path)
    assert result.causes == {}
    assert result.no_native_coverage is None
    assert result.modules >= 6
    assert result.counters > 10_000
    assert result.coverage >= COVERAGE_LEAST
    assert result.features > result.coverage
    assert 0 < result.executions <= 20_000
    assert result.corpus_after > result.corpus_before > 0
    # The smallest inputs that reach as much.
    assert result.corpus_merged is not None
    assert 0.2 * result.corpus_after < result.corpus_merged < 0.9 * result.corpus_after
    assert campaign.count_files(tmp_path / "record-batch" / "corpus") == result.corpus_merged
    assert result.executions_per_cpu_second > 0
    # Every mutation but those of the seeds' own first runs goes through the hook, and most are structured.
    assert result.mutator_calls is not None
    assert result.structured is not None
    assert result.crossed is not None
    assert result.mutator_calls > 0.8 * (result.executions - result.corpus_before)
    assert result.structured > 0.5 * result.mutator_calls
    assert 0 < result.crossed < 0.3 * result.mutator_calls
    # All inputs meet the first tier; the second one gets those with new coverage and one in 128 of the others.
    assert result.judged is not None
    assert result.judged_twice is not None
    assert result.executions <= result.judged <= result.executions + result.corpus_before
    assert result.judged / 128 + result.corpus_after - result.corpus_before < result.judged_twice < result.judged / 4
    assert json.loads((tmp_path / "record-batch" / "result.json").read_text()) == result.to_json()
    assert "inline 8-bit counters" in (tmp_path / "record-batch" / "log.txt").read_text()


@pytest.mark.full
@pytest.mark.clang
def test_messages_survive_a_short_run_and_the_hook_changes_most_of_them_by_structure(
    native_build: Build, tmp_path: Path
) -> None:
    # Enough for the seeds, of which most are run a second time, to be a small part.
    [result] = campaign.run(["messages"], 60, runs=16_000, out=tmp_path)
    assert result.causes == {}
    assert result.coverage >= COVERAGE_LEAST
    assert result.mutator_calls is not None
    assert result.structured is not None
    assert result.mutator_calls > 0.8 * (result.executions - result.corpus_before)
    # Blind are one in four of the mutations that are not crossovers, and inputs that select no message.
    assert 0.75 < result.structured / result.mutator_calls < 0.95


@pytest.mark.clang
@pytest.mark.full
def test_the_canary_is_found_and_its_reproducer_is_whole(native_build: Build, tmp_path: Path) -> None:
    [result] = campaign.run(["canary"], 180, runs=CANARY_RUNS_MOST, seed=CANARY_SEED, stop_at_first=True, out=tmp_path)
    [(file, cause)] = result.causes.items()
    assert cause.harm == "panics"
    assert cause.smallest.error.startswith("kfuzz.fuzz.targets.PlantedBug: ")
    assert cause.at.startswith("kfuzz/fuzz/targets.py:")
    assert "fuzz_canary" in cause.smallest.details
    assert file.read_bytes() == cause.smallest.data
    assert cause.smallest.data.hex() in file.with_suffix(".txt").read_text()
    again = once.reproduce("canary", file)
    assert again is not None
    assert again.at == cause.at
    # Also a campaign that stops at its first find looks for the fields that kill.
    kills = cause.smallest.kills
    crash = kept.kept_at(file)
    assert crash is not None
    assert kept.with_killing_fields(crash).deviation.kills == kills
    # They are of the record; of one in a payload that is compressed, or said to be, too.
    assert kills
    assert all(field.field.startswith("batch[0].re") or field.at >= BATCH_HEADER_SIZE for field in kills)
    leftovers = [path.name for path in (tmp_path / "canary").iterdir() if path.name.startswith(".")]
    assert leftovers == []


TICKS_AT_THE_END = """
import ctypes, signal
from kfuzz.fuzz import harness

signal.signal(signal.SIGALRM, lambda number, frame: None)
signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.sleep, ctypes.c_void_p(1), None)
if STOP:
    harness.stop_timer_at_exit()
"""


@pytest.mark.parametrize(("stop", "code"), [(True, 0), (False, -signal.SIGALRM)])
def test_the_timer_does_not_kill_a_process_that_ends(atheris_here: None, stop: bool, code: int) -> None:
    """libFuzzer writes the input of a crash when the interpreter has ended: here a second passes there."""
    script = TICKS_AT_THE_END.replace("STOP", str(stop))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.full
@pytest.mark.clang
def test_equal_seeds_give_equal_campaigns(native_build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = []
    for name in ("a", "b"):
        # A longer environment moves everything in memory, and changes addresses and reference counts.
        monkeypatch.setenv("KFUZZ_MOVES_MEMORY", name * 100 * ord(name))
        results += campaign.run(["canary"], 60, runs=20_000, seed=7, out=tmp_path / name)
    assert results[0].coverage == results[1].coverage
    assert results[0].features == results[1].features
    corpora = [sorted(path.name for path in (tmp_path / name / "canary" / "corpus").iterdir()) for name in ("a", "b")]
    assert corpora[0] == corpora[1]


@pytest.mark.clang
@pytest.mark.parametrize(
    ("sanitizer", "summary", "at"),
    [
        pytest.param("address", "heap-buffer-overflow", "kfuzz.fuzz.canary.(climb|spring)", marks=pytest.mark.full),
        pytest.param("undefined", "signed integer overflow", "", marks=pytest.mark.nightly),
    ],
)
def test_a_read_beyond_the_end_and_a_sum_that_does_not_fit_are_seen_by_their_sanitizers(
    sanitizer: Sanitizer, summary: str, at: str, clang_here: None
) -> None:
    find = once.reproduce("canary", CANARY_INPUT, sanitizer=sanitizer)
    assert find is not None
    assert summary in find.summary
    assert re.match(at, find.at)
    assert sanitizer == "address" or "spring" in find.details


@pytest.mark.clang
@pytest.mark.parametrize(
    ("sanitizer", "step"),
    [
        pytest.param("address", 8, marks=pytest.mark.full),
        pytest.param("address", 1, marks=pytest.mark.nightly),
        pytest.param("undefined", 1, marks=pytest.mark.nightly),
    ],
)
def test_known_inputs_are_clean_under_the_sanitizers(
    sanitizer: Sanitizer, step: int, clang_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every input, or every eighth: the suite's inputs for a target come first, in the order of their ids."""
    monkeypatch.setattr(once, "inputs", lambda target: inputs(target)[::step])
    names = [name for name in TARGETS if name != "canary"]
    done = once.replay(names, sanitizer=sanitizer, out=tmp_path)
    assert [one.causes for one in done] == [{}] * len(names)
    executions = {one.target: one.executions for one in done}
    assert executions == {name: len(inputs(TARGETS[name])[::step]) for name in names}
    suite = {vector.data for vector in load_suite(kinds=("records", "stream"))}
    assert suite <= {data for _, data in inputs(TARGETS["record-batch"])}


@pytest.mark.full
@pytest.mark.clang
def test_a_replay_names_the_input_that_breaks_a_target(
    address_build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = [("harmless", CANARY_INPUT[:-1]), ("harmful", CANARY_INPUT), ("after it", CANARY_INPUT[:-2])]
    monkeypatch.setattr(once, "inputs", lambda target: known)
    [done] = once.replay(["canary"], sanitizer="address", out=tmp_path)
    assert done.executions == 3
    [(file, cause)] = done.causes.items()
    assert cause.known == ("harmful",)
    assert cause.harm == "kills"
    assert "heap-buffer-overflow" in cause.smallest.error
    assert file.read_bytes() == CANARY_INPUT


@pytest.mark.full
@pytest.mark.clang
def test_a_build_is_made_once_and_never_touches_the_modules_that_others_import(native_build: Build) -> None:
    modules = sorted((Path(build_module.PACKAGE) / "wire").rglob("*.so"))
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in modules]
    said: list[str] = []
    assert build(say=said.append) == native_build
    assert said == []
    assert modules
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in modules] == before


@pytest.mark.clang
def test_two_that_need_a_build_at_the_same_time_make_it_once(
    clang_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[Path] = []

    def compile_slowly(staging: Path, *_: object) -> None:
        made.append(staging)
        time.sleep(0.3)

    monkeypatch.setattr(build_module, "_compile", compile_slowly)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: build(root=tmp_path), range(2))
    assert first == second
    assert len(made) == 1


@pytest.mark.clang
@pytest.mark.nightly
def test_a_change_compiles_the_modules_that_depend_on_it_alone_and_each_state_once(
    clang_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    wire = checkout / "kfuzz" / "wire"
    (checkout / "kfuzz" / "fuzz").mkdir(parents=True)
    sources = [path for folder in ("wire", "mutate") for path in (build_module.PACKAGE / folder).rglob("*.[hc]")]
    for path in (build_module.ROOT / "setup.py", build_module.PACKAGE / "errors.py", *sources):
        copy = checkout / path.relative_to(build_module.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (wire / "one.pyx").write_text("cimport kfuzz.wire.two as two\nNUMBER = two.of(1)\n")
    (wire / "two.pxd").write_text("cdef int of(int number) noexcept\n")
    (wire / "two.pyx").write_text("cdef int of(int number) noexcept:\n    return number\n")
    (wire / "number.h").write_text("#define NUMBER 3\n")
    (wire / "three.pyx").write_text('cdef extern from "number.h":\n    const int NUMBER\nnumber = NUMBER\n')
    monkeypatch.setattr(build_module, "ROOT", checkout)
    monkeypatch.setattr(build_module, "PACKAGE", checkout / "kfuzz")
    monkeypatch.setattr(build_module, "INSTRUMENTED", ("wire", "mutate", "fuzz"))
    # A compiler that notes what it compiles.
    real = next(path for name in COMPILERS if (path := shutil.which(name)))
    compiler, calls = tmp_path / "compiler", tmp_path / "calls"
    compiler.write_text(f'#!/bin/sh\necho "$@" >>"{calls}"\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setattr(build_module, "COMPILERS", (str(compiler),))
    builds = tmp_path / "builds"

    def compiled() -> set[str]:
        calls.write_text("")
        made = build(root=builds)
        assert not (made.directory / "build").exists()
        modules = {path.name.partition(".")[0] for path in (made.directory / "kfuzz" / "wire").glob("*.so")}
        assert modules == {path.stem for path in wire.glob("*.pyx")}
        return {Path(name).stem for name in re.findall(r" -c (\S+)", calls.read_text())}

    assert compiled() == {"one", "two", "three"}
    before = (wire / "one.pyx").read_text()
    (wire / "one.pyx").write_text(before.replace("1", "2"))
    assert compiled() == {"one"}
    (wire / "number.h").write_text("#define NUMBER 4\n")
    assert compiled() == {"three"}
    (wire / "two.pxd").write_text("# Not in the C code.\ncdef int of(int number) noexcept\n")
    assert compiled() == set()
    (wire / "two.pxd").write_text("cdef long of(int number) noexcept\n")
    (wire / "two.pyx").write_text("cdef long of(int number) noexcept:\n    return number\n")
    assert compiled() == {"one", "two"}
    # Each module has been compiled like this before, but not all of them together.
    (wire / "two.pxd").write_text("cdef int of(int number) noexcept\n")
    (wire / "two.pyx").write_text("cdef int of(int number) noexcept:\n    return number\n")
    (wire / "one.pyx").write_text(before)
    assert compiled() == set()
    names = {path.name for path in builds.iterdir()}
    (wire / "number.h").write_text('#error "half"\n')
    with pytest.raises(NoNativeCoverage, match=r"do not build with .*half"):
        compiled()
    # Cython's C code, which is made again in a moment.
    assert {path.name for path in builds.iterdir()} == {name for name in names if not name.startswith(".work-")}
    (wire / "number.h").write_text("#define NUMBER 5\n")
    assert compiled() == {"three"}
    (wire / "one.pyx").unlink()
    assert compiled() == set()


@pytest.mark.full
@pytest.mark.clang
def test_a_merge_starts_the_executable_again(native_build: Build, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "into").mkdir()
    (tmp_path / "from" / "canary").write_bytes(CANARY_INPUT[:-1])
    executable = native_build.executable(TARGETS["canary"])
    subprocess.run([executable, "-merge=1", "into", "from"], cwd=tmp_path, check=True, capture_output=True)
    assert [path.read_bytes() for path in (tmp_path / "into").iterdir()] == [CANARY_INPUT[:-1]]


@pytest.mark.full
def test_without_clang_it_says_how_to_get_it_and_fuzzes_without_native_coverage(no_clang: None, tmp_path: Path) -> None:
    said: list[str] = []
    [result] = campaign.run(["record-batch"], 60, runs=4_000, out=tmp_path, say=said.append)
    assert said[0].startswith("no native coverage: clang is not installed; install clang (")
    assert result.no_native_coverage is not None
    assert result.counters == 0
    assert 0 < result.coverage < COVERAGE_LEAST
    assert result.executions == 4_000
    assert result.causes == {}


def test_a_replay_without_clang_is_refused(no_clang: None, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a replay needs the instrumented build: clang is not installed"):
        once.replay(["record-batch"], out=tmp_path)


def test_a_sanitizer_without_clang_is_refused_when_reproducing(no_clang: None) -> None:
    with pytest.raises(UsageError, match="--sanitize needs the instrumented build: clang is not installed"):
        once.reproduce("canary", CANARY_INPUT, sanitizer="address")


def test_a_compiler_that_fails_costs_native_coverage_and_leaves_no_build(
    atheris_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build_module, "COMPILERS", ("false",))
    with pytest.raises(NoNativeCoverage, match="do not build with"):
        build(root=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo no such runtime >&2\nexit 3", "the fuzzer of canary ended without a result: no such runtime"),
        ("exit 0", "libFuzzer watches no compiled code"),
        (
            "kill -9 $$",
            "killed by SIGKILL, as the system does when memory runs out; give it more.*it printed nothing; its",
        ),
        (
            "echo one; echo; echo ' two' >&2; kill -9 $$",
            "or use fewer --jobs; it printed last: one / two; its output is",
        ),
        ("echo aborting; kill -6 $$", "killed by SIGABRT; it printed last: aborting; its output is in"),
    ],
)
def test_a_fuzzer_that_dies_at_once_or_watches_nothing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, sentence: str
) -> None:
    stub(tmp_path, monkeypatch, script, native=True)
    with pytest.raises(UsageError, match=sentence):
        campaign.run(["canary"], 1, out=tmp_path / "out")
    # The sentence names it.
    assert (tmp_path / "out/canary/log.txt").is_file()


def test_a_corpus_that_takes_longer_than_the_campaign_is_said_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(tmp_path, monkeypatch, "echo '#4096\tpulse  cov: 3 ft: 4 corp: 1/1b'; sleep 600 & wait")
    monkeypatch.setattr(running, "GRACE_S", 0.5)
    said: list[str] = []
    [result] = campaign.run(["canary"], 1, out=tmp_path / "out", say=said.append)
    assert (result.executions, result.interrupted, result.corpus_after) == (4096, False, 1)
    assert said == [
        "canary: the time was over after 4,096 inputs of the corpus, before all had run once; give it more --seconds, "
        "or fewer inputs"
    ]


def test_a_fuzzer_that_hangs_before_its_first_input_is_not_said_to_lack_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(tmp_path, monkeypatch, "exec sleep 600")
    monkeypatch.setattr(running, "GRACE_S", 0.2)
    with pytest.raises(
        UsageError, match=r"the fuzzer of canary had run no input when its time was over; see .*log.txt"
    ):
        campaign.run(["canary"], 1, out=tmp_path / "out")


def test_a_fuzzer_that_does_not_end_in_time_costs_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub(tmp_path, monkeypatch, "echo '#4	INITED cov: 3 ft: 4 corp: 1/1b'; exec sleep 600")
    monkeypatch.setattr(running, "GRACE_S", 0.2)
    said: list[str] = []
    [result] = campaign.run(["canary"], 1, out=tmp_path / "out", say=said.append)
    assert result.executions == 4
    assert said == [f"canary: the fuzzer did not end when its time was over; see {tmp_path}/out/canary/log.txt"]


def test_a_log_keeps_its_first_and_its_last_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(running, "LOG_BYTES_MAX", 1000)
    stub(tmp_path, monkeypatch, "seq 100000 105000; echo the last; exit 3")
    with pytest.raises(UsageError, match="the last; its output is in"):
        campaign.run(["canary"], 1, out=tmp_path / "out")
    first, second = (tmp_path / "out/canary/log.txt").read_text().split("\n[kfuzz left out 33,022 bytes here]\n")
    assert first.splitlines() == [str(number) for number in range(100_000, 100_142)]
    assert second.splitlines()[-2:] == ["105000", "the last"]
    assert len(second) == 1000


def test_a_fuzzer_that_is_killed_costs_no_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = WRITES_A_CRASH + (
        'case "$*" in *alone-*) echo "x: runtime error: bad"; exit 77;; esac\n'
        "[ -f once ] && kill -9 $$; touch once; found found crash; echo 'x: runtime error: bad'; exit 77"
    )
    stub(tmp_path, monkeypatch, script, shell="bash")
    with pytest.raises(UsageError, match="killed by SIGKILL"):
        campaign.run(["canary"], 600, out=tmp_path / "out")
    [cause] = json.loads((tmp_path / "out/canary/result.json").read_text())["causes"]
    assert Path(cause["file"]).read_bytes() == b"found"


# `kfuzz` on a machine without clang: it fuzzes at once, with the coverage of Python code.
KFUZZ_WITHOUT_CLANG = [
    sys.executable,
    "-c",
    "import sys\n"
    "from kfuzz.cli.main import main\n"
    "from kfuzz.fuzz import building as build\n"
    "build.COMPILERS = ('no-such-clang',)\n"
    "main(sys.argv[1:])",
]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_campaign_leaves_its_summary_and_its_result_and_ends_its_fuzzer(
    atheris_here: None, tmp_path: Path, number: int
) -> None:
    said = tmp_path / "said"
    with said.open("w") as errors:
        argv = [*KFUZZ_WITHOUT_CLANG, "fuzz", "record-batch", "canary", "--seconds", "600", "--out", tmp_path / "out"]
        running = start(argv, stderr=errors)
        fuzzers: list[psutil.Process] = []

        seeded: list[int] = []
        folder = tmp_path / "out/record-batch"

        def is_fuzzing() -> bool:
            fuzzers[:] = psutil.Process(running.pid).children()
            if not seeded and list(folder.glob(".work.*/artifacts-*")):
                seeded.append(campaign.count_files(folder / "corpus"))
            # New inputs are kept once libFuzzer has run all seeds.
            return bool(seeded) and campaign.count_files(folder / "corpus") > seeded[0]

        told, _ = interrupt_when(running, is_fuzzing, within_s=120, number=number)
    assert running.returncode == 128 + number
    result = json.loads((tmp_path / "out/record-batch/result.json").read_text())
    assert result["interrupted"] is True
    assert result["causes"] == []
    assert result["executions"] > 0
    assert result["coverage"] > 0
    assert result["cpu_seconds"] > 0
    assert told.startswith(f"record-batch: {result['executions']:,} inputs in ")
    assert "  interrupted; nothing found so far\n" in told
    assert said.read_text().splitlines()[-1] == f"kfuzz: {'interrupted' if number == signal.SIGINT else 'terminated'}"
    assert "INITED" in (tmp_path / "out/record-batch/log.txt").read_text()
    # The target that was still to come was left out, and nothing runs on.
    assert not (tmp_path / "out/canary/result.json").exists()
    assert len(fuzzers) == 1
    assert psutil.wait_procs(fuzzers, timeout=30)[1] == []
    assert [path.name for path in (tmp_path / "out/record-batch").iterdir() if path.name.startswith(".")] == []


def test_a_second_campaign_in_the_same_folder_is_refused_and_touches_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(tmp_path, monkeypatch, "exit 0")
    out = tmp_path / "out"
    hold = (
        "import sys, time; from pathlib import Path; from kfuzz.fuzz.campaign import _locked\n"
        "with _locked(Path(sys.argv[1])):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", hold, out / "canary"], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(UsageError) as caught:
                campaign.run(["record-batch", "canary"], 1, out=out)
        finally:
            holder.kill()
    assert str(caught.value) == (
        f"another campaign (process {holder.pid}) is running in {out / 'canary'}; "
        "wait until it ends, or use another --out"
    )
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == ["lock", "lock"]
    # With its process the lock is gone.
    [result] = campaign.run(["canary"], 1, out=out)
    assert result.interrupted is False


def test_a_fuzzer_that_outlives_its_campaign_still_keeps_others_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(tmp_path, monkeypatch, "echo $$ > pid; exec sleep 600")
    out = tmp_path / "out"
    program = (
        "import sys; from pathlib import Path; from kfuzz.fuzz import campaign\n"
        "from kfuzz.fuzz.building import Build\n"
        "campaign.build = lambda sanitizer, say: Build(Path(sys.argv[1]), 'none', native=False)\n"
        "campaign.run(['canary'], 600, out=sys.argv[2])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, tmp_path, out])
    pid = out / "canary" / "pid"
    for _ in range(1200):
        if pid.exists() and pid.read_text():
            break
        time.sleep(0.05)
    fuzzer = psutil.Process(int(pid.read_text()))
    try:
        parent.kill()
        parent.wait()
        with pytest.raises(UsageError, match=rf"another campaign \(process {parent.pid}\) is running in"):
            campaign.run(["canary"], 1, out=out)
    finally:
        fuzzer.kill()
    psutil.wait_procs([fuzzer], timeout=30)
    with campaign._locked(out / "canary"):
        pass


def test_an_interrupt_that_the_fuzzer_does_not_heed_ends_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(tmp_path, monkeypatch, "trap '' USR1; echo '#7\tNEW    cov: 3 ft: 4 corp: 1/1b'; sleep 600 & wait")
    monkeypatch.setattr(running, "WIND_DOWN_S", 0.5)

    interrupt = interrupt_at(lambda row: row.coverage == 3)
    [result] = campaign.run(["canary", "compression"], 600, out=tmp_path / "out", watch=interrupt)
    assert result.interrupted
    assert (result.executions, result.coverage, result.features) == (7, 3, 4)
    assert result.seconds < 60
    assert json.loads((tmp_path / "out/canary/result.json").read_text()) == result.to_json()


def interrupt_at(is_time: Callable[[campaign.Row], bool]) -> Callable[[list[campaign.Row]], None]:
    """A watcher that interrupts the campaign when its first row says so."""
    done = []

    def watch(rows: list[campaign.Row]) -> None:
        if not done and is_time(rows[0]):
            done.append(True)
            raise KeyboardInterrupt

    return watch


WRITES_A_CRASH = (
    'for word in "$@"; do case $word in -artifact_prefix=*) place=${word#*=} ;; esac; done\n'
    'found() { printf %s "$1" > ${place}$2-1; echo "Test unit written to ${place}$2-1"; }\n'
)


def test_a_crash_that_was_found_before_the_interrupt_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub(
        tmp_path,
        monkeypatch,
        WRITES_A_CRASH + "found found crash; echo '#9\tNEW    cov: 3 ft: 4 corp: 1/1b'; sleep 600",
    )
    monkeypatch.setattr(running, "WIND_DOWN_S", 0.5)
    interrupt = interrupt_at(lambda row: row.executions == 9)
    [result] = campaign.run(["canary"], 600, out=tmp_path / "out", watch=interrupt)
    assert result.interrupted
    [file] = result.causes
    assert file.read_bytes() == b"found"


# This fuzzer dies three times, each time with another input, and ends well the fourth time. Run alone, the third input
# does no harm.
DIES_THREE_TIMES = (
    WRITES_A_CRASH
    + """
case "$*" in *alone-*) grep -q gone "${!#}" 2>/dev/null && exit 0; tail -1 ../../said; exit 77;; esac
n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count
echo "#100 NEW    cov: 3 ft: 4 corp: 1/1b"; echo "$*" >> seeds
case $n in
0) found one crash; echo '    #0 0x1 in f /b/kfuzz/wire/one.h:7:1' | tee said; exit 77;;
1) found two timeout; echo '    #0 0x1 in f /b/kfuzz/wire/two.h:8:1' | tee said; exit 70;;
2) found gone oom; exit 71;;
esac
echo "stat::number_of_executed_units: 50"
"""
)


def test_a_campaign_continues_when_its_fuzzer_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub(tmp_path, monkeypatch, DIES_THREE_TIMES, shell="bash")
    said: list[str] = []
    out = tmp_path / "out"
    [result] = campaign.run(["canary"], 600, runs=350, out=out, say=said.append)
    assert [(cause.harm, cause.at, cause.smallest.data, cause.count) for cause in result.causes.values()] == [
        ("kills", "kfuzz/wire/one.h:7", b"one", 1),
        ("hangs", "kfuzz/wire/two.h:8", b"two", 1),
    ]
    assert (result.restarts, result.unconfirmed, result.executions) == (3, 1, 350)
    assert any("oom that does not come again" in line for line in said)
    # Each process has a seed of its own, and only the runs that are left.
    starts = (out / "canary" / "seeds").read_text().splitlines()
    assert len({start.split("-seed=")[1].split()[0] for start in starts}) == 4
    assert [start.split("-runs=")[1].split()[0] for start in starts] == ["350", "250", "150", "50"]
    # The next campaign finds nothing, and the causes stay.
    [result] = campaign.run(["canary"], 600, runs=50, out=out)
    assert result.causes == {}
    assert len(json.loads((out / "canary" / "causes" / "causes.json").read_text())) == 2


def test_with_more_jobs_than_targets_a_target_has_several_processes_with_seeds_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(tmp_path, monkeypatch, 'echo "#7 DONE   cov: 3 ft: 4 corp: 1/1b"; echo "$*" >> seeds; sleep 0.2')
    rows: list[campaign.Row] = []
    [result] = campaign.run(["canary"], 600, jobs=3, out=tmp_path / "out", watch=rows.extend)
    assert (result.jobs, result.executions) == (3, 21)
    starts = (tmp_path / "out" / "canary" / "seeds").read_text().splitlines()
    assert len({start.split("-seed=")[1].split()[0] for start in starts}) == 3
    # They see what the others find.
    assert all("-reload=1" in start for start in starts)
    assert rows[-1].state == "done"
    assert rows[-1].executions == 21
    names = sorted(path.name for path in (tmp_path / "out" / "canary").glob("log*"))
    assert names == ["log-2.txt", "log-3.txt", "log.txt"]


@pytest.mark.full
@pytest.mark.clang
def test_a_seed_that_breaks_the_target_is_named_and_set_aside(
    native_build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(campaign, "seeds", lambda target, say: [CANARY_INPUT[:-1], CANARY_INPUT])
    monkeypatch.setattr(campaign, "inputs", lambda target: [("the seed", CANARY_INPUT)])
    [result] = campaign.run(["canary"], 60, runs=3_000, out=tmp_path)
    [(file, cause)] = result.causes.items()
    assert cause.known == ("the seed",)
    # It was made simpler, and does the same.
    assert cause.smallest.data.count(0) > CANARY_INPUT.count(0)
    again = once.reproduce("canary", file)
    assert again is not None
    assert again.at == cause.at
    # Without the record, or with another one, it does not do so.
    assert cause.smallest.kills
    assert all(field.field.startswith("batch[0].re") or field.at > 61 for field in cause.smallest.kills)
    crash = kept.kept_at(file)
    assert crash is not None
    assert crash.deviation.kills == cause.smallest.kills
    without = replace(crash, deviation=replace(crash.deviation, kills=()))
    assert kept.with_killing_fields(without).deviation.kills == cause.smallest.kills
    assert result.executions == 3_000
    assert result.corpus_merged is not None
    digest = hashlib.sha1(CANARY_INPUT).hexdigest()
    assert (tmp_path / "canary" / "aside" / digest).read_bytes() == CANARY_INPUT
    assert digest not in {path.name for path in (tmp_path / "canary" / "corpus").iterdir()}
    assert result.set_aside >= 1


ENTRY = Cause(("kfuzz", "panics", "a.py:1"), (Deviation("kfuzz", "panics", error="ValueError", at="a.py:1"),)).to_json()
# As an older kfuzz kept a cause.
OLDER = {"id": ENTRY["id"], "harm": "panics", "summary": "", "at": "", "details": "", "count": 1, "input_hex": ""}


@pytest.mark.parametrize(
    "entry",
    [
        1,
        OLDER,
        {**ENTRY, "id": "../../x"},
        {**ENTRY, "key": [1, 2]},
        {**ENTRY, "key": ["\ud800"]},
        {**ENTRY, "count": "1"},
        {**ENTRY, "deviations": []},
        {**ENTRY, "deviations": [*ENTRY["deviations"], *ENTRY["deviations"]]},
        {**ENTRY, "deviations": [{**ENTRY["deviations"][0], "harm": "../x"}]},
        {**ENTRY, "deviations": [{**ENTRY["deviations"][0], "role": "nobody"}]},
        {**ENTRY, "deviations": [{**ENTRY["deviations"][0], "data": "0g"}]},
        {**ENTRY, "deviations": [{**ENTRY["deviations"][0], "more": 1}]},
    ],
    ids=str,
)
def test_causes_that_are_no_causes_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: Any
) -> None:
    stub(tmp_path, monkeypatch, "exit 0")
    kept = tmp_path / "out" / "canary" / "causes" / "causes.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps([entry]))
    with pytest.raises(UsageError, match=r"causes.json is not what a campaign of this kfuzz writes; remove it"):
        campaign.run(["canary"], 1, out=tmp_path / "out")


@pytest.mark.parametrize(("peak_mib", "limit_mib"), [(100, 1024), (900, 1924), (3000, 4024)])
def test_memory_of_the_process_that_starts_the_fuzzer_is_not_blamed_on_the_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, peak_mib: int, limit_mib: int
) -> None:
    """On Linux a process inherits the peak of the process that starts it."""
    usage = SimpleNamespace(ru_maxrss=peak_mib * 1024)
    monkeypatch.setattr(running.resource, "getrusage", lambda who: usage)
    made = Build(tmp_path, "none", native=True)
    assert f"-rss_limit_mb={limit_mib}" in running.command_of(made, TARGETS["canary"], tmp_path)


def test_jobs_that_wait_for_their_turn_do_not_begin_after_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub(tmp_path, monkeypatch, "echo '#7\tNEW    cov: 3 ft: 4 corp: 1/1b'; exec sleep 600")
    monkeypatch.setattr(running, "WIND_DOWN_S", 0.3)
    # The second of three targets is running when the interrupt comes, the third one still waits.
    interrupt = interrupt_at(lambda row: row.executions == 7)
    for name in ("compression", "messages"):
        shutil.copy(tmp_path / "bin" / "canary", tmp_path / "bin" / name)
    results = campaign.run(["canary", "compression", "messages"], 600, jobs=2, out=tmp_path / "out", watch=interrupt)
    assert [result.target for result in results] == ["canary", "compression"]
    assert all(result.interrupted and result.corpus_after == result.corpus_before > 0 for result in results)
    assert list((tmp_path / "out").glob("*/.work*")) == []


# Each run finds something. A merge keeps all, by SHA-1, as libFuzzer does; one that is too long is cut. "seed" fails in
# the full oracle.
MERGES = """
case "$*" in
*-merge=1*)
    mkdir "$KFUZZ_FINDS"
    echo "$(printf seed | sha1sum | cut -d ' ' -f 1) 0123456789abcdef" > "$KFUZZ_FINDS/failing"
    for file in $(find "${@: -1}" -type f); do
        head -c 20 $file > cut
        mv cut "${@: -2:1}/$(sha1sum < cut | cut -d ' ' -f 1)"
    done;;
*) echo "more" > "${@: -1}/$(echo "more" | sha1sum | cut -d ' ' -f 1)";;
esac
"""


@pytest.mark.parametrize("is_on_another_disk", [False, True])
def test_a_merge_loses_no_input_with_a_name_or_a_length_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_on_another_disk: bool
) -> None:
    rename = os.rename

    def refuses(source: str | Path, target: str | Path) -> None:
        if is_on_another_disk and Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target)

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, refuses)
    stub(tmp_path, monkeypatch, MERGES, shell="bash")
    monkeypatch.setattr(campaign, "seeds", lambda target, say: [b"seed"])
    folder = tmp_path / "corpora" / "canary"
    (folder / "deeper").mkdir(parents=True)
    (folder / "mine.bin").write_bytes(b"mine")
    (folder / hashlib.sha1(b"long" * 9).hexdigest()).write_bytes(b"long" * 9)
    (folder / "deeper" / "inner").write_bytes(b"inner")
    [result] = campaign.run(["canary"], 5, out=tmp_path / "out", corpus=tmp_path / "corpora")
    left = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert set(left.values()) == {b"more\n", b"mine", b"long" * 5, b"inner"}
    assert (tmp_path / "out" / "canary" / "aside" / hashlib.sha1(b"seed").hexdigest()).read_bytes() == b"seed"
    assert all(name == hashlib.sha1(data).hexdigest() for name, data in left.items())
    assert (folder / "deeper" / "inner").read_bytes() == b"inner"
    assert (result.corpus_merged, result.set_aside) == (4, 1)


def test_a_merge_that_takes_too_long_is_ended_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Its finds so far count.
    find = json.dumps({"kind": "exception", "summary": "E", "at": "a.py:1", "details": "", "data": "00", "count": 0})
    found = f"printf '\\001\\0\\0\\0\\0\\0\\0\\0' > $KFUZZ_FINDS/counts; echo '{find}' > $KFUZZ_FINDS/one.json"
    script = MERGES.replace("for file", f"{found}; sleep 600; for file")
    stub(tmp_path, monkeypatch, script, shell="bash")
    monkeypatch.setattr(running, "GRACE_S", 0.5)
    monkeypatch.setattr(campaign, "MERGE_S", 0)
    said: list[str] = []
    [result] = campaign.run(["canary"], 5, out=tmp_path / "out", say=said.append)
    assert [line.rpartition(" ")[0].rpartition(" ")[0] for line in said] == [
        "canary: the corpus was not merged (that takes longer than"
    ]
    assert (result.corpus_merged, result.corpus_after) == (None, 2)
    assert [(cause.smallest.error, cause.count) for cause in result.causes.values()] == [("E", 1)]


# Two inputs end a process of a merge. One of them also ends any other process.
ENDS_A_MERGE = """
#include <stdlib.h>
#include <string.h>
static int merges, fuzzes;
static volatile unsigned turns;
int LLVMFuzzerInitialize(int *count, char ***words)
{
    for (int i = 0; i < *count; i++) {
        merges |= !strncmp((*words)[i], "-merge", 6);
        fuzzes |= !strncmp((*words)[i], "-max_total_time", 15);
    }
    return 0;
}
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    while (size == 5 && !memcmp(data, "hangs", 5) && !fuzzes)
        turns++;
    if (size == 4 && !memcmp(data, "dies", 4) && merges)
        _Exit(1);
    return 0;
}
"""


@pytest.mark.full
@pytest.mark.clang
def test_an_input_that_ends_only_a_merge_is_a_cause_or_stays_in_the_corpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clang_here: None
) -> None:
    stub(tmp_path, monkeypatch, "")
    (tmp_path / "fuzzer.c").write_text(ENDS_A_MERGE)
    program = tmp_path / "bin" / "canary"
    subprocess.run([require_clang(), "-fsanitize=fuzzer", "-o", program, tmp_path / "fuzzer.c"], check=True)
    for module in (running, once):
        monkeypatch.setattr(module, "INPUT_TIMEOUT_S", 1)
    monkeypatch.setattr(campaign, "seeds", lambda target, say: [b"hangs", b"dies", b"other"])
    # It would ask again and again whether a smaller input hangs.
    monkeypatch.setattr(campaign, "shrink_causes", lambda *arguments: None)
    said: list[str] = []
    [result] = campaign.run(["canary"], 60, runs=10, out=tmp_path / "out", say=said.append)
    [cause] = result.causes.values()
    assert (cause.harm, cause.smallest.data) == ("hangs", b"hangs")
    assert [path.read_bytes() for path in (tmp_path / "out/canary/aside").iterdir()] == [b"hangs"]
    assert b"dies" in {path.read_bytes() for path in (tmp_path / "out/canary/corpus").iterdir()}
    assert said == [f"canary: crash that does not come again, for input {hashlib.sha1(b'dies').hexdigest()}"]
    assert (result.restarts, result.unconfirmed, result.set_aside) == (2, 1, 1)
    assert "the timeout value is 1 " in (tmp_path / "out/canary/merge.txt").read_text()


def test_a_corpus_of_another_campaign_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub(tmp_path, monkeypatch, "exit 0")
    with (
        campaign._locked(tmp_path / "corpora" / "canary", "--corpus"),
        pytest.raises(UsageError, match=r"another campaign uses .*/corpora/canary; wait until it ends"),
    ):
        campaign.run(["canary"], 1, out=tmp_path / "out", corpus=tmp_path / "corpora")
    [result] = campaign.run(["canary"], 1, out=tmp_path / "out", corpus=tmp_path / "corpora")
    assert result.corpus_before == campaign.count_files(tmp_path / "corpora" / "canary") == 1
    assert not (tmp_path / "out" / "canary" / "corpus").exists()


def test_a_suite_that_does_not_load_costs_a_campaign_its_seeds_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(**options: object) -> NoReturn:
        raise UsageError("no suite here")

    monkeypatch.setattr(seeding, "load_suite", broken)
    stub(tmp_path, monkeypatch, WRITES_A_CRASH + "found one crash; exit 77", target="record-batch")
    said: list[str] = []
    [result] = campaign.run(["record-batch"], 1, stop_at_first=True, out=tmp_path / "out", say=said.append)
    assert said == ["no seeds from the vectors: no suite here"]
    [cause] = result.causes.values()
    assert (cause.smallest.data, cause.known) == (b"one", ())
