"""Campaigns under libFuzzer: coverage of the compiled modules is real, the hook is called, and the canary is found."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import missing
from signals import interrupt_when, start

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.fuzz import building as build_module
from kfuzz.fuzz import campaign
from kfuzz.fuzz.building import COMPILERS, Build, NoNativeCoverage, Sanitizer, build
from kfuzz.fuzz.seeding import inputs, seeds
from kfuzz.fuzz.targets import TARGETS
from kfuzz.records import Record, RecordBatch
from kfuzz.vectors import load_suite

# Each of seeds 1 to 9 finds the canary within 1.8 million inputs; this one within 220,000.
CANARY_SEED = 6
CANARY_RUNS_MOST = 6_000_000
# Python code alone comes to less than 600: the compiled modules make the difference.
COVERAGE_LEAST = 1000

CANARY_INPUT = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"0\x80000000", b"v" * 16)]))


@pytest.fixture(scope="module")
def atheris_here() -> None:
    if importlib.util.find_spec("atheris") is None:
        missing("atheris", "pip install 'kfuzz[fuzz]'")


@pytest.fixture(scope="module")
def clang_here(atheris_here: None) -> None:
    if not any(shutil.which(name) for name in COMPILERS):
        missing("clang", "apt-get install clang-16")


@pytest.fixture(scope="module")
def native_build(clang_here: None) -> Build:
    return build()


@pytest.fixture(scope="module")
def address_build(clang_here: None) -> Build:
    return build("address")


@pytest.fixture(scope="module")
def undefined_build(clang_here: None) -> Build:
    return build("undefined")


@pytest.fixture
def no_clang(atheris_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "COMPILERS", ("no-such-clang",))


@pytest.mark.clang
def test_record_batch_survives_a_short_run_with_native_coverage_and_a_hook_that_is_called(
    native_build: Build, tmp_path: Path
) -> None:
    [result] = campaign.run(["record-batch"], 60, runs=20_000, out=tmp_path)
    assert result.crashes == []
    assert result.no_native_coverage is None
    assert result.modules >= 6
    assert result.counters > 10_000
    assert result.coverage >= COVERAGE_LEAST
    assert result.features > result.coverage
    assert 0 < result.executions <= 20_000
    assert result.corpus_after > result.corpus_before > 0
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


@pytest.mark.clang
@pytest.mark.parametrize("step", [pytest.param(8), pytest.param(1, marks=pytest.mark.full)])
def test_messages_survive_a_short_run_and_the_hook_changes_most_of_them_by_structure(
    native_build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: int
) -> None:
    monkeypatch.setattr(campaign, "seeds", lambda target, say: seeds(target, say=say)[::step])
    # Enough for the seeds, of which most are run a second time, to be a small part.
    [result] = campaign.run(["messages"], 60, runs=16_000 // step, out=tmp_path)
    assert result.crashes == []
    assert result.coverage >= COVERAGE_LEAST
    assert result.mutator_calls is not None
    assert result.structured is not None
    assert result.mutator_calls > 0.8 * (result.executions - result.corpus_before)
    # Blind are one in four of the mutations that are not crossovers, and inputs that select no message.
    assert 0.75 < result.structured / result.mutator_calls < 0.95


@pytest.mark.clang
@pytest.mark.full
def test_the_canary_is_found_and_its_reproducer_is_whole(native_build: Build, tmp_path: Path) -> None:
    [result] = campaign.run(["canary"], 180, runs=CANARY_RUNS_MOST, seed=CANARY_SEED, out=tmp_path)
    [crash] = result.crashes
    assert crash.kind == "crash"
    assert crash.summary.startswith("PlantedBug: ")
    assert "fuzz_canary" in crash.details
    assert Path(crash.file).read_bytes().hex() == crash.input_hex
    assert crash.input_hex in Path(crash.file).with_suffix(".txt").read_text()
    again = campaign.reproduce("canary", crash.file)
    assert again is not None
    assert again.summary == crash.summary
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


@pytest.mark.full
@pytest.mark.clang
def test_an_over_read_by_one_byte_is_seen_by_the_address_sanitizer(address_build: Build, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(CANARY_INPUT)
    crash = campaign.reproduce("canary", file, sanitizer="address")
    assert crash is not None
    assert "heap-buffer-overflow" in crash.summary
    assert "climb" in crash.details or "spring" in crash.details


@pytest.mark.full
@pytest.mark.clang
def test_a_sum_that_does_not_fit_is_seen_by_the_undefined_behaviour_sanitizer(
    undefined_build: Build, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    file.write_bytes(CANARY_INPUT)
    crash = campaign.reproduce("canary", file, sanitizer="undefined")
    assert crash is not None
    assert "signed integer overflow" in crash.summary
    assert "spring" in crash.details


@pytest.mark.full
@pytest.mark.clang
@pytest.mark.parametrize("sanitizer", ["address", "undefined"])
def test_every_known_input_is_clean_under_the_sanitizers(
    sanitizer: Sanitizer, address_build: Build, undefined_build: Build, tmp_path: Path
) -> None:
    names = [name for name in TARGETS if name != "canary"]
    done = campaign.replay(names, sanitizer=sanitizer, out=tmp_path)
    assert [(one.input, one.crash) for one in done] == [(None, None)] * len(names)
    executions = {one.target: one.executions for one in done}
    assert executions == {name: len(inputs(TARGETS[name])) for name in names}
    suite = {vector.data for vector in load_suite(kinds=("records", "stream"))}
    assert suite <= {data for _, data in inputs(TARGETS["record-batch"])}


@pytest.mark.full
@pytest.mark.clang
def test_a_replay_names_the_input_that_breaks_a_target(
    address_build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = [("harmless", CANARY_INPUT[:-1]), ("harmful", CANARY_INPUT), ("not reached", CANARY_INPUT[:-2])]
    monkeypatch.setattr(campaign, "inputs", lambda target: known)
    [done] = campaign.replay(["canary"], sanitizer="address", out=tmp_path)
    assert (done.input, done.executions) == ("harmful", 2)
    assert done.crash is not None
    assert "heap-buffer-overflow" in done.crash.summary
    assert Path(done.crash.file).read_bytes() == CANARY_INPUT


@pytest.mark.clang
def test_a_build_is_made_once_and_never_touches_the_modules_that_others_import(native_build: Build) -> None:
    modules = sorted((Path(build_module.PACKAGE) / "wire").glob("*.so"))
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
@pytest.mark.full
def test_a_change_in_one_source_compiles_the_modules_that_depend_on_it_alone(
    clang_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    wire = checkout / "kfuzz" / "wire"
    for folder in ("wire", "mutate", "fuzz"):
        (checkout / "kfuzz" / folder).mkdir(parents=True)
    sources = [path for folder in ("wire", "mutate") for path in (build_module.PACKAGE / folder).glob("*.[hc]")]
    for path in (build_module.ROOT / "setup.py", build_module.PACKAGE / "errors.py", *sources):
        shutil.copy(path, checkout / path.relative_to(build_module.ROOT))
    (wire / "one.pyx").write_text("cimport kfuzz.wire.two as two\nNUMBER = two.of(1)\n")
    (wire / "two.pxd").write_text("cdef int of(int number) noexcept\n")
    (wire / "two.pyx").write_text("cdef int of(int number) noexcept:\n    return number\n")
    monkeypatch.setattr(build_module, "ROOT", checkout)
    monkeypatch.setattr(build_module, "PACKAGE", checkout / "kfuzz")
    monkeypatch.setattr(build_module, "INSTRUMENTED", ("wire", "mutate", "fuzz"))

    def compiled() -> dict[str, int]:
        made = build(root=tmp_path / "builds")
        assert not (made.directory / "build").exists()
        [work] = (tmp_path / "builds").glob(".work-*")
        assert len(list((made.directory / "kfuzz" / "wire").glob("*.so"))) == len(list(wire.glob("*.pyx")))
        return {path.stem: path.stat().st_mtime_ns for path in (work / "build").rglob("*.o")}

    first = compiled()
    assert set(first) == {"one", "two"}
    (wire / "one.pyx").write_text("cimport kfuzz.wire.two as two\nNUMBER = two.of(2)\n")
    second = compiled()
    assert second["two"] == first["two"]
    assert second["one"] > first["one"]
    (wire / "two.pxd").write_text("# Everyone who cimports it.\ncdef int of(int number) noexcept\n")
    third = compiled()
    assert third["one"] > second["one"]
    assert third["two"] > second["two"]
    (wire / "one.pyx").unlink()
    compiled()


@pytest.mark.clang
def test_a_merge_starts_the_executable_again(native_build: Build, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "into").mkdir()
    (tmp_path / "from" / "canary").write_bytes(CANARY_INPUT[:-1])
    executable = native_build.executable(TARGETS["canary"])
    subprocess.run([executable, "-merge=1", "into", "from"], cwd=tmp_path, check=True, capture_output=True)
    assert [path.read_bytes() for path in (tmp_path / "into").iterdir()] == [CANARY_INPUT[:-1]]


def test_without_clang_it_says_how_to_get_it_and_fuzzes_without_native_coverage(no_clang: None, tmp_path: Path) -> None:
    said: list[str] = []
    [result] = campaign.run(["record-batch"], 60, runs=2_000, out=tmp_path, say=said.append)
    assert said[0].startswith("no native coverage: clang is not installed; install clang (")
    assert result.no_native_coverage is not None
    assert result.counters == 0
    assert 0 < result.coverage < COVERAGE_LEAST
    assert result.executions == 2_000
    assert result.crashes == []


def test_a_replay_without_clang_is_refused(no_clang: None, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a replay needs the instrumented build: clang is not installed"):
        campaign.replay(["record-batch"], out=tmp_path)


def test_a_sanitizer_without_clang_is_refused_when_reproducing(no_clang: None, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(CANARY_INPUT)
    with pytest.raises(UsageError, match="--sanitize needs the instrumented build: clang is not installed"):
        campaign.reproduce("canary", file, sanitizer="address")


def test_a_compiler_that_fails_costs_native_coverage_and_leaves_no_build(
    atheris_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build_module, "COMPILERS", ("false",))
    with pytest.raises(NoNativeCoverage, match="do not build with"):
        build(root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_fuzzer_that_dies_at_once_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, atheris_here: None, tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "canary"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such runtime >&2\nexit 3\n")
    broken.chmod(0o755)
    made: Any = Build(tmp_path, "none", native=True)
    monkeypatch.setattr(campaign, "build", lambda sanitizer, say: made)
    with pytest.raises(UsageError, match="the fuzzer of canary ended without a result: no such runtime"):
        campaign.run(["canary"], 1, out=tmp_path / "out")


def test_a_build_whose_coverage_is_not_seen_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    silent = tmp_path / "bin" / "canary"
    silent.parent.mkdir()
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    made: Any = Build(tmp_path, "none", native=True)
    monkeypatch.setattr(campaign, "build", lambda sanitizer, say: made)
    with pytest.raises(UsageError, match="libFuzzer watches no compiled code"):
        campaign.run(["canary"], 1, out=tmp_path / "out")


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


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
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
            if not seeded and list(folder.glob(".artifacts.*")):
                seeded.append(campaign.count_files(folder / "corpus"))
            # New inputs are kept once libFuzzer has run all seeds.
            return bool(seeded) and campaign.count_files(folder / "corpus") > seeded[0]

        told, _ = interrupt_when(running, is_fuzzing, within_s=120, number=number)
    assert running.returncode == 128 + number
    result = json.loads((tmp_path / "out/record-batch/result.json").read_text())
    assert result["interrupted"] is True
    assert result["crashes"] == []
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


def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A build whose canary is ``script``."""
    executable = tmp_path / "bin" / "canary"
    executable.parent.mkdir()
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    made: Any = Build(tmp_path, "none", native=False)
    monkeypatch.setattr(campaign, "build", lambda sanitizer, say: made)


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
    monkeypatch.setattr(campaign, "WIND_DOWN_S", 0.5)

    def interrupt(target: str, done_s: int) -> None:
        raise KeyboardInterrupt

    [result] = campaign.run(["canary", "compression"], 600, out=tmp_path / "out", progress=interrupt)
    assert result.interrupted
    assert (result.executions, result.coverage, result.features) == (7, 3, 4)
    assert result.seconds < 60
    assert json.loads((tmp_path / "out/canary/result.json").read_text()) == result.to_json()


def test_a_crash_that_was_found_before_the_interrupt_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = (
        'for word in "$@"; do case $word in -artifact_prefix=*) place=${word#*=} ;; esac; done\n'
        'printf found > ${place}crash-1; echo "Test unit written to ${place}crash-1"; exec sleep 600'
    )
    stub(tmp_path, monkeypatch, script)

    def interrupt(target: str, done_s: int) -> None:
        raise KeyboardInterrupt

    [result] = campaign.run(["canary"], 600, out=tmp_path / "out", progress=interrupt)
    assert result.interrupted
    [crash] = result.crashes
    assert Path(crash.file).read_bytes() == b"found"
