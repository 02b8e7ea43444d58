"""The mutator as a library for other fuzzers: no Python in it, hooks that they find, no byte out of bounds."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from programs import run_program

from kfuzz import records
from kfuzz.fuzz.building import ROOT, compile_mutator
from kfuzz.fuzz.seeding import seeds
from kfuzz.fuzz.targets import TARGETS
from kfuzz.records import CODECS, Record, RecordBatch
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, LOG_OVERHEAD

HOOKS = {
    *("LLVMFuzzerCustomMutator", "LLVMFuzzerCustomCrossOver"),
    *("afl_custom_init", "afl_custom_fuzz", "afl_custom_deinit"),
}
# After the first record's length, which takes one byte.
FIRST_RECORD = BATCH_HEADER_SIZE + 1
LIBRARY = "kfuzz/mutate/library.c"
MESSAGE_BYTES_MAX = 2_000
MESSAGES_STEP = 31
MESSAGES_MOST = 60
CALLS = 1_000_000


def compiled(out: Path, *arguments: str) -> Path:
    """Compile with the machine's compiler, which must be there: it has compiled kfuzz."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None
    subprocess.run([compiler, *arguments, "-o", str(out)], cwd=ROOT, check=True, capture_output=True, text=True)
    return out


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("inputs")
    for magic in (0, 1, 2):
        for codec in CODECS if magic == 2 else CODECS[:4]:
            count = 1 if magic < 2 and codec == "none" else 3
            headers = ((b"header", b"value"), (b"h", None)) if magic == 2 else ()
            batch = RecordBatch(
                5,
                4 + count,
                [Record(5 + i, 1_000 if magic else None, b"key", b"value" * 9, headers) for i in range(count)],
                magic=magic,
                compression=codec,
                timestamp_type="create" if magic else "none",
            )
            (folder / f"{magic}-{codec}").write_bytes(records.encode_batch(batch))
    (folder / "empty").write_bytes(b"")
    # Records whose last length is the largest varlong: a sum with it overflows.
    whole = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v", ((b"h", None),))]))
    assert whole[-2:] == b"h\1"
    longest = b"\xfe" + b"\xff" * 8 + b"\1"
    for name, record in (("key", whole[FIRST_RECORD:-3] + longest), ("value", whole[FIRST_RECORD:-1] + longest)):
        batch = whole[:BATCH_HEADER_SIZE] + bytes((2 * len(record),)) + record
        length = len(batch) - LOG_OVERHEAD
        (folder / f"longest-{name}").write_bytes(batch[:8] + length.to_bytes(4, "big") + batch[12:])
    return sorted(map(str, folder.iterdir()))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_mutator(tmp_path_factory.mktemp("library") / "mutator.so")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """chain.c, under AddressSanitizer and UndefinedBehaviorSanitizer, which end it at the first fault."""
    return compiled(
        tmp_path_factory.mktemp("program") / "chain",
        *("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
        *("-Ikfuzz/wire/io", "-Ikfuzz/wire/messages", "-Ikfuzz/mutate", LIBRARY, "tests/mutate/chain.c", "-ldl"),
    )


def test_the_library_has_the_hooks_and_no_python(library: Path) -> None:
    symbols = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout.split()
    assert set(symbols) >= HOOKS
    assert [symbol for symbol in symbols if symbol.startswith(("Py", "_Py"))] == []


def test_afl_gets_its_input_back_if_there_is_no_memory_for_a_mutant(library: Path) -> None:
    hooks = ctypes.CDLL(str(library))
    hooks.afl_custom_init.restype = ctypes.c_void_p
    hooks.afl_custom_fuzz.restype = ctypes.c_size_t
    state = ctypes.c_void_p(hooks.afl_custom_init(None, 1))
    data = ctypes.create_string_buffer(b"input", 5)
    out = ctypes.c_void_p()
    most = ctypes.c_size_t(1 << 62)
    made = hooks.afl_custom_fuzz(state, data, ctypes.c_size_t(5), ctypes.byref(out), None, ctypes.c_size_t(0), most)
    assert (made, out.value) == (5, ctypes.addressof(data))
    hooks.afl_custom_deinit(state)


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Inputs of the fuzz target ``messages``, and the schemas of their messages."""
    folder = tmp_path_factory.mktemp("messages")
    target = TARGETS["messages"]
    assert target.flat_schema_of is not None
    # Campaigns also keep inputs that name no message.
    known = [(data, schema) for data in seeds(target) if (schema := target.flat_schema_of(data[:3])) is not None]
    chosen = [one for one in known if len(one[0]) <= MESSAGE_BYTES_MAX][::MESSAGES_STEP][:MESSAGES_MOST]
    assert len(chosen) == MESSAGES_MOST
    for i, (data, schema) in enumerate(chosen):
        (folder / f"{i}").write_bytes(data)
        (folder / f"{i}.schema").write_bytes(data[:3] + bytes(5) + schema)
    return sorted(map(str, folder.iterdir()))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["inputs", "messages"])
def test_the_hooks_keep_within_their_bounds_and_repeat(
    program: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    inputs: list[str] = request.getfixturevalue(kind)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "KFUZZ_MUTATOR_STATS": "1"}
    first, again = (run_program(program, CALLS, *inputs, env=environment, timeout=None, code=None) for _ in range(2))
    assert (first.returncode, first.stderr[:2000]) == (0, again.stderr)
    assert first.stderr.startswith(f"mutator: {CALLS} calls, ")
    assert first.stdout == again.stdout
