"""Which deviations are one cause, and where a crash was."""

from __future__ import annotations

from typing import Any

import pytest
from referee_tools import SMALL_LIMITS, toy_cases, wicked

from kfuzz.conformance.judge.causes import Cause, Deviation, causes_of, deviation, masked
from kfuzz.conformance.judge.harm import HARMS
from kfuzz.conformance.judge.runner import run_cases
from kfuzz.conformance.protocol.stacks import headline, library_line

GO_CRASH = """runtime: out of memory: cannot allocate 4194304-byte block
fatal error: out of memory

goroutine 18 gp=0x1 m=3 mp=0x2 [running]:
runtime.throw({0x5d, 0xd})
\t/usr/local/go/src/runtime/panic.go:1101 +0x48
example.org/!acme/kafka/protocol.(*reader).grow(...)
\t/home/user/go/pkg/mod/example.org/!acme/kafka@v1.2.3-0.2026/protocol/reader.go:214
example.org/!acme/kafka.(*Conn).read(0xc0)
\t/home/user/go/pkg/mod/example.org/!acme/kafka@v1.2.3-0.2026/conn.go:12 +0x7
"""
RUST_PANIC = """thread 'main' panicked at /home/user/.cargo/registry/src/index-1949cf8c/kafka-1.2.3/src/batch.rs:41:9:
range end out of bounds
"""
NODE_CRASH = """/app/node_modules/@acme/kafka/dist/reader.mjs:88
    throw new RangeError('out of range')
"""
PYTHON_CRASH = """Fatal Python error: Segmentation fault

Current thread 0x1 (most recent call first):
  File "/venv/lib/python3.11/site-packages/kafka/record.py", line 30 in read
"""


def one(**changes: Any) -> Deviation:
    fields: dict[str, Any] = {
        "implementation": "toy@1", "harm": "accepts", "finding": "crc-mismatch", "error": "read 3 records", "at": "",
        "input": "a", "role": "consumer", "size_bytes": 9,
    }  # fmt: skip
    return Deviation(**(fields | changes))


def causes(*changes: dict[str, Any]) -> list[Cause]:
    return causes_of(one(input=str(i), **change) for i, change in enumerate(changes))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GO_CRASH, "example.org/Acme/kafka/protocol/reader.go:214"),
        (RUST_PANIC, "kafka-1.2.3/src/batch.rs:41"),
        (NODE_CRASH, "@acme/kafka/dist/reader.mjs:88"),
        (PYTHON_CRASH, "kafka/record.py:30"),
        ("main.main()\n\t/app/main.go:7 +0x1d", ""),
        ("", ""),
    ],
)
def test_the_innermost_line_of_a_library_is_found(text: str, line: str) -> None:
    assert library_line(text) == line


def test_a_line_of_the_library_itself_comes_before_those_of_the_packages_that_it_uses() -> None:
    stack = "at /registry/src/index/table-0.9/src/raw.rs:45\nat /registry/src/index/kafka-1.2.3/src/batch.rs:41"
    assert library_line(stack) == "table-0.9/src/raw.rs:45"
    assert library_line(stack, "kafka") == "kafka-1.2.3/src/batch.rs:41"
    assert library_line(stack, "other") == "table-0.9/src/raw.rs:45"


def test_the_headline_says_why_a_runtime_ends() -> None:
    assert headline(GO_CRASH) == "fatal error: out of memory"
    assert headline(RUST_PANIC).startswith("thread 'main' panicked at ")
    assert headline(PYTHON_CRASH) == "Fatal Python error: Segmentation fault"
    assert (
        headline("memory allocation of 77 bytes failed\nstack backtrace:\n") == "memory allocation of 77 bytes failed"
    )
    assert headline(NODE_CRASH) == ""


def test_a_crash_is_told_by_its_headline_and_its_line() -> None:
    noise = ("x" * 100 + "\\n") * 50
    cases = toy_cases()
    outcome = run_cases(wicked("ends", noise + GO_CRASH + noise), cases, limits=SMALL_LIMITS)
    [trap] = [case for case in cases if case.vector.id == "toy/trap"]
    cell = outcome.cells[trap.key]
    assert (cell.outcome, cell.text) == ("crash", "ended with status 2: fatal error: out of memory")
    found = deviation("toy@1", trap, cell, "unexpected")
    assert found is not None
    assert (found.harm, found.at) == ("kills", "example.org/Acme/kafka/protocol/reader.go:214")


def test_a_missing_check_is_one_cause_for_each_finding() -> None:
    assert len(causes({}, {"finding": "trailing-bytes"})) == 2
    [cause] = causes({}, {"error": "read 12 records"})
    assert (cause.count, cause.finding, cause.text) == (2, "crc-mismatch", "read # records")


@pytest.mark.parametrize("harm", ["hangs", "loses"])
def test_an_error_that_is_dropped_is_one_cause_whatever_is_damaged(harm: str) -> None:
    [cause] = causes({"harm": harm}, {"harm": harm, "finding": "trailing-bytes"})
    assert (cause.count, cause.finding) == (2, "2 kinds of damage")
    # Libraries have a reader for each format.
    assert len(causes({"harm": harm, "form": "v2"}, {"harm": harm, "form": "legacy"})) == 2


def test_a_good_input_that_hangs_is_another_cause_but_one_that_loses_data_is_not() -> None:
    assert len(causes({"harm": "hangs"}, {"harm": "hangs", "finding": ""})) == 2
    assert len(causes({"harm": "loses"}, {"harm": "loses", "finding": ""})) == 1


def test_findings_of_one_check_are_one_cause_in_each_format() -> None:
    lengths = [{"harm": "accepts", "finding": one} for one in ("record-length-mismatch", "record-length-negative")]
    [cause] = causes(*lengths)
    assert cause.count == 2
    assert len(causes(*lengths, {"harm": "accepts", "finding": "crc-mismatch"})) == 2
    assert len(causes({"harm": "accepts", "form": "v2"}, {"harm": "accepts", "form": "legacy"})) == 2
    # Where the documents allow both, the check that is missing is the same one.
    [cause] = causes({"harm": "accepts"}, {"harm": "differs"})
    assert cause.harm == "accepts"


def test_too_much_memory_and_a_death_at_one_line_are_one_cause() -> None:
    [cause] = causes({"harm": "memory", "at": "a.go:1"}, {"harm": "kills", "at": "a.go:1"})
    assert cause.harm == "kills"


def test_a_line_of_source_is_one_cause_whatever_the_error_says() -> None:
    [cause] = causes({"at": "a.go:1"}, {"at": "a.go:1", "finding": "", "error": "other"})
    assert cause.what == "crc-mismatch: read # records (a.go:1)"


def test_numbers_are_masked_with_their_sign() -> None:
    assert masked("offset -1") == masked("offset 7") == masked("offset -9223372036854775808") == "offset #"


def test_a_class_of_harm_says_what_it_means_for_brokers_in_words_of_their_own() -> None:
    for harm in HARMS:
        assert harm.why("broker") != harm.why("consumer") == harm.why("reader")
