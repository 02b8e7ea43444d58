"""Other people's fuzzers, on the decoders of ``fuzzers/``, load what ``kfuzz export`` writes, and gain from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import click
import pytest
from click.testing import CliRunner
from conftest import require_tool
from programs import run_program

from benchmarks import foreign
from benchmarks.foreign import (
    DECODERS,
    KIT,
    ONE_BATCH,
    Cell,
    Decoder,
    FranzGo,
    KafkaClients,
    KafkaProtocol,
    Librdkafka,
    measure,
)
from kfuzz.fuzz.exporting import DICTIONARY

REMEDIES = {
    "cargo": "install Rust",
    "c++": "apt-get install g++",
    "go": "install Go 1.26 or newer",
    "npm": "install Node 20 or newer",
    "make": "apt-get install make",
    "java": "install a JDK of version 17 or newer",
    "mvn": "install Maven",
    "cargo-hfuzz": "apt-get install binutils-dev libunwind-dev; cargo install honggfuzz --version 0.5.62",
    "afl-fuzz": "apt-get install afl++",
    "afl-clang-fast": "apt-get install afl++",
}
# The mutator prints this when the fuzzer ends.
STATISTICS = re.compile(r"^mutator: (\d+) calls, (\d+) structured, (\d+) crossed$", re.MULTILINE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the decoders are built, each by the first test that needs it."""
    return tmp_path_factory.mktemp("built")


def prepared(kind: type[Decoder], built: Path) -> Decoder:
    for tool in kind.tools:
        require_tool(tool, REMEDIES[tool])
    decoder = kind(built)
    decoder.prepare()
    return decoder


def statistics_of(decoder: Decoder, place: Path, options: Sequence[str]) -> tuple[int, int, int]:
    """How often the mutator was called, changed an input by its structure, and made one from two."""
    decoder.export(place, ONE_BATCH)
    program, *arguments = decoder.command(place, ONE_BATCH, seed=1)
    variables = {**decoder.environment, **decoder.mutator(place), "KFUZZ_MUTATOR_STATS": "1"}
    command = (program, *options, *arguments)
    done = run_program(*command, code=None, cwd=place, variables=variables, errors="replace", timeout=None)
    found = STATISTICS.search(done.stderr + done.stdout)
    assert found is not None, (done.stderr + done.stdout)[-2000:]
    return int(found[1]), int(found[2]), int(found[3])


class Honggfuzz(KafkaProtocol):
    """The crate of Rust again, under honggfuzz. The harness calls the mutator."""

    tools = ("cargo", "cargo-hfuzz", "make", "c++")
    features = ("--features", "honggfuzz", "--bin", "under-honggfuzz")
    build = (("env", "-u", "CARGO_TARGET_DIR", "cargo", "hfuzz", "build", *features),)

    def command(self, place: Path, start: str, seed: int) -> list[str]:
        (place / "corpus").mkdir()
        [program] = self.folder.glob("hfuzz_target/*/release/under-honggfuzz")
        return [
            *(str(self.folder / "hfuzz_target" / "honggfuzz"), "-n", "1", "-v", "-Q", "--exit_upon_crash"),
            *("-i", str(place / "kit" / "seeds"), "-o", str(place / "corpus"), "-W", str(place)),
            *("-w", str(place / "kit" / DICTIONARY), "--", str(program)),
        ]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [KafkaProtocol, Honggfuzz, FranzGo, KafkaClients])
def test_a_fuzzer_finds_a_planted_bug_behind_the_crc(kind: type[Decoder], built: Path, tmp_path: Path) -> None:
    decoder = prepared(kind, built)
    decoder.export(tmp_path, ONE_BATCH)
    command = ["timeout", "--kill-after=5", "60", *decoder.command(tmp_path, ONE_BATCH, seed=1)]
    environment = {**os.environ, **decoder.environment, **decoder.mutator(tmp_path), "KFUZZ_PLANTED": "1"}
    environment["KEEP_GOING"] = "0" if kind is FranzGo else "1"
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    ) as fuzzing:
        assert fuzzing.stdout is not None
        is_found = any("planted" in line for line in fuzzing.stdout)
        fuzzing.terminate()
    assert is_found


@pytest.mark.nightly
def test_afl_finds_a_planted_bug_behind_the_crc(built: Path, tmp_path: Path) -> None:
    decoder = prepared(Librdkafka, built)
    decoder.export(tmp_path, ONE_BATCH)
    # AFL++ keeps an input that crashes, and shows nothing of its program's output.
    command = [*("timeout", "--kill-after=5", "120"), *decoder.command(tmp_path, ONE_BATCH, seed=1)]
    variables = {**decoder.environment, **decoder.mutator(tmp_path)}
    variables |= {"KFUZZ_PLANTED": "1", "AFL_BENCH_UNTIL_CRASH": "1"}
    run_program(*command, code=None, cwd=tmp_path, variables=variables, errors="replace", timeout=None)
    assert list((tmp_path / "out/default/crashes").glob("id:*"))


@pytest.mark.nightly
def test_libfuzzer_of_a_rust_crate_calls_the_mutator(built: Path, tmp_path: Path) -> None:
    calls, structured, crossed = statistics_of(prepared(KafkaProtocol, built), tmp_path, ["-runs=20000"])
    assert calls > 15_000
    # The mutator finds libFuzzer's own one in the program, and leaves some inputs to it.
    assert calls // 2 < structured < calls * 0.9
    assert crossed > 0


@pytest.mark.nightly
def test_afl_calls_the_mutator(built: Path, tmp_path: Path) -> None:
    calls, structured, _ = statistics_of(prepared(Librdkafka, built), tmp_path, ["-E", "20000"])
    assert structured == calls > 1000


@pytest.mark.nightly
def test_go_begins_with_the_exported_seeds(built: Path, tmp_path: Path) -> None:
    decoder = prepared(FranzGo, built)
    decoder.export(tmp_path, KIT)
    seeds = {path.name for path in decoder.seeds_to(tmp_path).iterdir()}
    assert len(seeds) > 1000
    environment = {**os.environ, **decoder.environment}

    def said(*words: str) -> str:
        done = run_program(*words, cwd=tmp_path, env=environment, timeout=None)
        return done.stdout + done.stderr

    program, *options = decoder.command(tmp_path, KIT, seed=1)
    replayed = said(program, f"-test.run={FranzGo.function}", "-test.v")
    assert set(re.findall(rf"--- PASS: {FranzGo.function}/([0-9a-f]+)", replayed)) == seeds
    # The inputs of the baseline count too.
    fuzzed = said(program, *options, f"-test.fuzztime={len(seeds) + 500}x")
    assert f"gathering baseline coverage: 0/{len(seeds)} completed" in fuzzed
    assert "now fuzzing with 1 workers" in fuzzed


@pytest.mark.nightly
@pytest.mark.parametrize("kind", DECODERS)
def test_the_kit_reaches_more_than_one_batch(kind: type[Decoder], built: Path, tmp_path: Path) -> None:
    decoder = prepared(kind, built)
    reached = {}
    for start in (ONE_BATCH, KIT):
        reached[start] = measure(decoder, start, [1], 5, tmp_path, lambda: None).coverage[0]
    assert reached[KIT] > reached[ONE_BATCH] * 1.3


class Stub(Decoder):
    """A fuzzer that stops as long as it finds the seed ``bad``, and then takes CPU time."""

    name = "franz-go"
    form = "go"
    tools: ClassVar[tuple[str, ...]] = ()
    build = ()

    def export(self, place: Path, start: str) -> None:
        (place / "bad").write_text("")

    def command(self, place: Path, start: str, seed: int) -> list[str]:
        return [
            sys.executable,
            "-c",
            f"from pathlib import Path\nprint({seed}, flush=True)\nwhile not Path('bad').exists(): pass",
        ]

    def set_aside(self, place: Path, log: str) -> bool:
        found = (place / "bad").exists()
        (place / "bad").unlink(missing_ok=True)
        return found

    def coverage(self, place: Path, start: str) -> int:
        # Python's traceback of the interrupt follows.
        return int((place / "log").read_text().split()[0])


@pytest.mark.nightly
def test_a_fuzzer_that_stops_at_a_find_is_started_again_with_another_seed(tmp_path: Path) -> None:
    cell = measure(Stub(tmp_path), ONE_BATCH, [7, 3], 0.5, tmp_path, lambda: None)
    assert cell == Cell("franz-go", ONE_BATCH, (1007, 1003), 2)


def test_a_fuzzer_that_stops_without_a_find_is_an_error_that_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stub, "set_aside", lambda *_: False)
    with pytest.raises(click.ClickException, match=r"the fuzzer of franz-go has stopped, and \S+log says why"):
        measure(Stub(tmp_path), ONE_BATCH, [7], 0.5, tmp_path, lambda: None)


def test_a_cell_is_a_median_with_its_range() -> None:
    assert str(Cell("franz-go", KIT, (1500, 900, 1000), 0)) == "1,000 (900 to 1,500)"


@pytest.mark.nightly
def test_the_table_has_a_dash_where_a_fuzzer_has_no_such_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "DECODERS", (Stub,))
    monkeypatch.setattr(Stub, "starts", (ONE_BATCH,))
    monkeypatch.setattr(Stub, "fuzzer", "stub", raising=False)
    monkeypatch.setattr(Stub, "counts", "seeds", raising=False)
    said = CliRunner().invoke(
        foreign.main, ["--seeds", "1", "--cpu-seconds", "1", "--folder", str(tmp_path)], catch_exceptions=False
    )
    assert said.exit_code == 0, said.output
    [row] = [line for line in said.output.splitlines() if "stub" in line]
    assert re.findall(r"[\w,–][^│]*", row) == [
        "franz-go ",
        "stub   ",
        "seeds   ",
        "1,001 (1,001 to 1,001) ",
        "–     ",
        "–   ",
    ]


def test_a_missing_tool_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign.shutil, "which", lambda name: None)
    said = CliRunner().invoke(foreign.main, ["franz-go", "--folder", str(tmp_path)])
    assert said.exit_code == 1
    assert "franz-go is built with go, which is not installed; install it" in said.output


def test_an_unknown_decoder_is_wrong_use(tmp_path: Path) -> None:
    said = CliRunner().invoke(foreign.main, ["franz", "--folder", str(tmp_path)])
    assert said.exit_code == 2
    assert "there is no decoder franz; take kafka-protocol, franz-go, librdkafka, kafka-clients" in said.output
