"""Other fuzzers get seeds, dictionary and mutator. A libFuzzer of C loads the mutator, and Go reads the seeds."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzzer_stub import require_clang
from programs import run_program

from kfuzz import records
from kfuzz.cli.main import main
from kfuzz.errors import UsageError
from kfuzz.fuzz import exporting
from kfuzz.fuzz.building import NoNativeCoverage
from kfuzz.fuzz.exporting import export, go_literal
from kfuzz.fuzz.messages import choices
from kfuzz.fuzz.seeding import seeds
from kfuzz.fuzz.targets import TARGETS
from kfuzz.messages.codec import read
from kfuzz.records import Record, RecordBatch

HARNESS = """
#include <stddef.h>
#include <stdint.h>
static volatile int seen;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 20 && data[16] == 2)
        seen = data[17];
    return 0;
}
"""
EXPORTED = "-Wl,--export-dynamic-symbol=LLVMFuzzerMutate"
GO_TEST = """
package reads
import "testing"
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 { t.Fatal("an empty seed") }
		t.Logf("seed of %d bytes", len(data))
	})
}
"""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kit")
    made = export("libfuzzer", folder)
    assert made.seeds == len(seeds(TARGETS["record-batch"]))
    return folder


@pytest.mark.full
def test_the_kit_has_every_seed_the_dictionary_and_the_mutator(kit: Path) -> None:
    assert {path.read_bytes() for path in (kit / "seeds").iterdir()} == set(seeds(TARGETS["record-batch"]))
    assert (kit / "kfuzz.dict").read_text().count("=") > 20
    assert sorted(path.name for path in kit.iterdir()) == ["kfuzz.dict", "libkfuzz_mutator.so", "seeds"]


@pytest.mark.full
def test_the_mutator_has_the_hooks_of_afl_and_of_libfuzzer(kit: Path) -> None:
    library = ctypes.CDLL(str(kit / "libkfuzz_mutator.so"))
    assert library.LLVMFuzzerCustomMutator
    assert library.LLVMFuzzerCustomCrossOver
    library.afl_custom_init.restype = ctypes.c_void_p
    library.afl_custom_fuzz.restype = ctypes.c_size_t
    state = ctypes.c_void_p(library.afl_custom_init(None, 7))
    seed = records.encode([RecordBatch(0, 1, [Record(i, i, b"key", b"value") for i in range(2)])])
    made = set()
    for _ in range(50):
        data = ctypes.create_string_buffer(seed, len(seed))
        out = ctypes.c_void_p()
        size = library.afl_custom_fuzz(
            state, data, ctypes.c_size_t(len(seed)), ctypes.byref(out), None, ctypes.c_size_t(0), ctypes.c_size_t(4096)
        )
        # AFL++ takes 0 as "nothing was made": the batch was dropped.
        assert size <= 4096
        assert out.value
        made.add(ctypes.string_at(out, size))
    assert len(made) > 40
    library.afl_custom_deinit(state)


class Trimming:
    """AFL++'s part of making an input smaller, with the hooks of the exported library."""

    def __init__(self, kit: Path) -> None:
        self.library = ctypes.CDLL(str(kit / "libkfuzz_mutator.so"))
        self.library.afl_custom_trim.restype = ctypes.c_size_t

    def smallest(self, data: bytes, is_as_good: Callable[[bytes], bool]) -> bytes:
        steps = self.library.afl_custom_init_trim(None, data, ctypes.c_size_t(len(data)))
        step, best = 0, data
        for _ in range(steps + 1):
            if step >= steps:
                return best
            out = ctypes.c_void_p()
            size = self.library.afl_custom_trim(None, ctypes.byref(out))
            tried = ctypes.string_at(out, size)
            assert 0 < size < len(best)
            good = is_as_good(tried)
            best = tried if good else best
            step = self.library.afl_custom_post_trim(None, good)
        pytest.fail(f"after {steps} steps, step {step} follows")


@pytest.mark.full
def test_afl_makes_an_input_smaller_by_batches_and_records(kit: Path) -> None:
    trimming = Trimming(kit)
    batches = [
        RecordBatch(4 * n, 4 * n + 3, [Record(4 * n + i, i, b"%d" % i, b"value") for i in range(4)]) for n in range(3)
    ]

    def keys(data: bytes) -> list[bytes | None]:
        return [record.key for batch in records.decode(data) for record in batch.records]

    data = records.encode(batches)
    assert keys(trimming.smallest(data, lambda tried: b"2" in keys(tried))) == [b"2"]
    assert trimming.smallest(data, lambda tried: len(keys(tried)) == 12) == data
    left = trimming.smallest(data, lambda tried: keys(tried).count(b"1") >= 2 and b"3" in keys(tried))
    assert sorted(keys(left)) == [b"1", b"1", b"3"]
    assert records.check(left).findings == []
    packed = records.encode([RecordBatch(0, 3, batches[0].records, compression="gzip")]) * 2
    assert trimming.smallest(packed, lambda tried: True) == packed[: len(packed) // 2]
    for small in (b"", b"not a batch at all", data[:-1][-60:]):
        assert trimming.smallest(small, lambda tried: True) == small


@pytest.mark.full
def test_afl_gives_the_program_batches_with_crcs_that_fit(kit: Path) -> None:
    library = ctypes.CDLL(str(kit / "libkfuzz_mutator.so"))
    library.afl_custom_post_process.restype = ctypes.c_size_t
    seed = records.encode([RecordBatch(0, 1, [Record(0, 0, b"key", b"value")])])
    out, fit = ctypes.c_void_p(), 0
    for number in range(200):
        changed = seed[:-3] + number.to_bytes(2, "big") + seed[-1:]
        size = library.afl_custom_post_process(None, changed, ctypes.c_size_t(len(changed)), ctypes.byref(out))
        made = ctypes.string_at(out, size)
        assert made[:17] + made[21:] == changed[:17] + changed[21:]
        fit += records.check(made).fatal is None
    assert 150 < fit < 195


def run_libfuzzer(kit: Path, folder: Path, *link: str) -> tuple[int, int, int, str]:
    """How often a libFuzzer of C called the mutator, how often that changed structure or crossed, and all output."""
    clang = require_clang()
    (folder / "harness.c").write_text(HARNESS)
    subprocess.run([clang, "-fsanitize=fuzzer", *link, "-o", "fuzzer", "harness.c"], cwd=folder, check=True)
    (folder / "corpus").mkdir()
    command = ["./fuzzer", f"-dict={kit / 'kfuzz.dict'}", "corpus", kit / "seeds"]
    return counts_of(command, folder, LD_PRELOAD=str(kit / "libkfuzz_mutator.so"))


def counts_of(command: list[str | Path], folder: Path, **variables: str) -> tuple[int, int, int, str]:
    """The same of a fuzzer that runs 20,000 inputs."""
    variables["KFUZZ_MUTATOR_STATS"] = "1"
    done = run_program(*command, "-runs=20000", "-seed=1", cwd=folder, variables=variables, timeout=None)
    calls = re.search(r"^mutator: (\d+) calls, (\d+) structured, (\d+) crossed$", done.stderr, re.MULTILINE)
    assert calls is not None, done.stderr[-2000:]
    return int(calls[1]), int(calls[2]), int(calls[3]), done.stderr


@pytest.mark.full
@pytest.mark.clang
def test_a_libfuzzer_of_c_calls_the_mutator_which_leaves_some_inputs_to_it(kit: Path, tmp_path: Path) -> None:
    calls, structured, crossed, said = run_libfuzzer(kit, tmp_path, EXPORTED)
    assert calls > 15_000
    assert calls // 2 < structured < calls - crossed
    assert crossed > 0
    assert "LLVMFuzzerMutate" not in said


@pytest.mark.full
@pytest.mark.clang
def test_the_mutator_tells_how_to_link_a_libfuzzer_that_hides_its_own_mutations(kit: Path, tmp_path: Path) -> None:
    calls, structured, crossed, said = run_libfuzzer(kit, tmp_path)
    assert structured + crossed == calls
    assert f"link it with {EXPORTED}\n" in said


@pytest.mark.full
def test_go_reads_the_seeds_as_its_own_corpus(tmp_path: Path) -> None:
    if not shutil.which("go"):
        pytest.skip("go is not installed; install Go to run this")
    folder = tmp_path / "testdata" / "fuzz" / "FuzzDecode"
    made = export("go", folder)
    (tmp_path / "go.mod").write_text("module reads\n\ngo 1.20\n")
    (tmp_path / "reads_test.go").write_text(GO_TEST)
    done = run_program("go", "test", "-v", "-run", "FuzzDecode", cwd=tmp_path, timeout=None)
    sizes = sorted(int(size) for size in re.findall(r"seed of (\d+) bytes", done.stdout))
    assert sizes == sorted(len(data) for data in seeds(TARGETS["record-batch"]))
    assert len(sizes) == made.seeds


@pytest.mark.parametrize("folder", [".", "my kit"])
def test_the_command_for_the_mutator_can_be_pasted(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exporting, "_compiled", lambda library, schemas: library)
    with pytest.raises(SystemExit):
        main(["export", "libfuzzer", folder])
    load, _, words, _, seeds = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("run: "))
    # The loader looks in its own folders for a name without a slash.
    assert load.removeprefix("LD_PRELOAD=") in ("./libkfuzz_mutator.so", f"{folder}/libkfuzz_mutator.so")
    assert (tmp_path / words.removeprefix("-dict=")).is_file()
    assert (tmp_path / seeds).is_dir()


@pytest.mark.parametrize(
    ("data", "literal"),
    [(b"", '""'), (b'a"\\b', '"a\\"\\\\b"'), (b"\x00\x1f\x7f\xff ~", '"\\x00\\x1f\\x7f\\xff ~"')],
)
def test_bytes_are_literals_of_go(data: bytes, literal: str) -> None:
    assert go_literal(data) == literal


def test_inputs_of_a_campaign_are_seeds_too_and_the_same_ones_are_written_once(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "new").write_bytes(b"an input that is no seed")
    (corpus / "old").write_bytes(seeds(TARGETS["compression"])[0])
    (corpus / "empty").write_bytes(b"")
    (corpus / "huge").touch()
    # It cannot be read into memory.
    os.truncate(corpus / "huge", 1 << 43)
    said: list[str] = []
    made = export("afl", tmp_path / "kit", target="compression", corpora=[corpus], say=said.append)
    assert said == [f"{corpus}: 2 files left out, empty or longer than 1 MiB"]
    assert made.seeds == len(seeds(TARGETS["compression"])) + 1
    # The mutator changes record batches, and this target reads compressed streams.
    assert made.mutator is None


@pytest.mark.full
def test_the_mutator_for_messages_knows_those_that_were_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(
            [
                *("export", "libfuzzer", str(tmp_path), "--json", "--target", "messages"),
                *("--messages", "FetchResponse", "--messages", "Heartbeat*"),
            ]
        )
    assert stop.value.code == 0
    document = json.loads(capsys.readouterr().out)
    found = [path.read_bytes() for path in Path(document["folder"]).iterdir()]
    chosen = {(1, 1), (0, 12), (1, 12)}
    assert {tuple(data[:2]) for data in found} == chosen
    assert document["seeds"] == len(found) > 50
    library = ctypes.CDLL(document["mutator"])
    library.afl_custom_fuzz.restype = ctypes.c_size_t
    assert not hasattr(library, "afl_custom_trim")
    sound = changed = 0
    for data in found:
        buffer, out = ctypes.create_string_buffer(data, len(data)), ctypes.c_void_p()
        size = library.afl_custom_fuzz(
            None, buffer, ctypes.c_size_t(len(data)), ctypes.byref(out), None, ctypes.c_size_t(0), ctypes.c_size_t(9999)
        )
        made = ctypes.string_at(out, size)
        assert tuple(made[:2]) in chosen
        changed += made != data
        definition, version = choices()[made[:3]]
        sound += read(definition, version, made[3:]).message is not None
    assert changed > len(found) / 2
    assert sound > len(found) / 4


def test_a_project_of_an_installed_kfuzz_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exporting, "mutator_sources", lambda: [])
    with pytest.raises(UsageError, match="the mutator's sources are not in an installed kfuzz"):
        export("oss-fuzz", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_project_has_nothing_of_the_target_that_was_exported_before(tmp_path: Path) -> None:
    export("oss-fuzz", tmp_path, target="messages", messages=["Heartbeat*"])
    (tmp_path / "mutator/mine.c").write_text("")
    export("oss-fuzz", tmp_path, target="canary")
    assert not (tmp_path / "mutator/schemas.c").exists()
    assert export("oss-fuzz", tmp_path, target="compression").mutator is None
    # build.sh takes the mutator if this file is there.
    assert not (tmp_path / "mutator/library.c").exists()
    assert (tmp_path / "mutator/mine.c").exists()


@pytest.mark.full
@pytest.mark.clang
@pytest.mark.parametrize("target", ["record-batch", "messages"])
def test_a_project_of_oss_fuzz_builds_a_program_with_the_mutator_inside(tmp_path: Path, target: str) -> None:
    project, out = tmp_path / "project", tmp_path / "out"
    out.mkdir()
    export("oss-fuzz", project, target=target, messages=["FetchResponse"] if target == "messages" else [])
    (project / "fuzz_decoder.c").write_text(HARNESS)
    export("oss-fuzz", project, target=target, messages=["FetchResponse"] if target == "messages" else [])
    assert (project / "fuzz_decoder.c").read_text() == HARNESS
    clang = require_clang()
    flags = "-O1 -g -fsanitize=address,fuzzer-no-link"
    environment = {"CC": clang, "CXX": clang, "CFLAGS": flags, "CXXFLAGS": flags, "OUT": str(out)}
    subprocess.run(
        ["./build.sh"],
        cwd=project,
        env=os.environ | environment | {"LIB_FUZZING_ENGINE": "-fsanitize=fuzzer"},
        check=True,
    )
    names = ["fuzz_decoder", "fuzz_decoder.dict", "fuzz_decoder.options", "fuzz_decoder_seed_corpus.zip"]
    assert sorted(path.name for path in out.iterdir()) == names
    shutil.unpack_archive(out / names[3], tmp_path / "corpus")
    calls, structured, _, _ = counts_of([out / names[0], f"-dict={out / names[1]}", tmp_path / "corpus"], tmp_path)
    assert calls > 10_000
    assert calls // 2 < structured


@pytest.mark.full
def test_without_a_compiler_there_is_a_sentence_and_no_half_of_a_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exporting.shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="there is no C compiler; install gcc or clang"):
        export("afl", tmp_path)
    monkeypatch.undo()

    def fail(out: Path, compiler: str, *, schemas: Path | None) -> Path:
        out.write_bytes(b"half")
        raise NoNativeCoverage("no header files")

    monkeypatch.setattr(exporting, "compile_mutator", fail)
    with pytest.raises(UsageError, match="the mutator does not compile: no header files"):
        export("afl", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kfuzz.dict", "seeds"]
