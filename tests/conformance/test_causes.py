"""Which deviations are one cause, and where a crash was."""

from __future__ import annotations

from typing import Any

import pytest
from referee_tools import SMALL_LIMITS, toy_cases, wicked

from kfuzz.conformance.judge.causes import Cause, Deviation, causes_of, deviation, masked
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.harm import HARMS
from kfuzz.conformance.judge.producing import GAVE_UP
from kfuzz.conformance.judge.runner import run_cases
from kfuzz.conformance.protocol.stacks import headline, library_line
from kfuzz.vectors import load_suite

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


def test_a_bug_that_decoder_and_client_share_is_one_cause_with_two_rows_and_the_id_of_the_decoder() -> None:
    client = {"implementation": "toy-client@1", "library": "toy@1"}
    bug = {"at": "toy/read.py:7", "harm": "panics"}
    own = [one(**bug), one(**bug, input="b")]
    [cause] = causes_of([*own, one(**bug | client | {"harm": "kills"})])
    assert cause.implementations == ["toy@1", "toy-client@1"]
    assert (cause.count, cause.harm) == (2, "kills")
    assert [cause.harm_in(label) for label in cause.implementations] == ["panics", "kills"]
    [alone] = causes_of(own)
    assert cause.id == alone.id
    assert len(causes_of([*own, one(**bug | client | {"library": ""})])) == 2


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


def test_a_producer_that_gives_up_has_one_cause_whatever_the_error_is() -> None:
    gave_up = {"harm": "differs", "finding": "", "role": "produce"}
    [cause] = causes(
        gave_up | {"error": f"{GAVE_UP}: REQUEST_TIMED_OUT", "at": "a.go:1"},
        gave_up | {"error": f"{GAVE_UP}: CORRUPT_MESSAGE", "at": "a.go:7"},
    )
    assert (cause.count, cause.harm) == (2, "differs")
    assert len(causes(gave_up | {"error": "refused to send valid records: x"}, gave_up | {"error": GAVE_UP})) == 2


def test_a_missing_check_is_one_cause_for_each_finding() -> None:
    assert len(causes({}, {"finding": "trailing-bytes"})) == 2
    [cause] = causes({}, {"error": "read 12 records"})
    assert (cause.count, cause.finding, cause.text) == (2, "crc-mismatch", "read # records")


@pytest.mark.parametrize(
    ("shared", "kinds", "title"),
    [
        ({"error": "took more than its 16 MiB", "harm": "memory"}, {"x-y": 9}, "x-y: took more than its 16 MiB"),
        (
            {"error": "byte 0xff in position 9", "harm": "panics"},
            {"a-b": 9, "c-d": 3, "e-f": 5},
            "c-d and 2 other kinds of damage: byte 0xff in position 9",
        ),
        (
            {"error": "the next fetch is at 7 again", "harm": "hangs", "at": "a.go:1"},
            {"record-count-negative": 90, "": 70},
            "undamaged input and 1 kind of damage: the next fetch is at 7 again (a.go:1)",
        ),
        (
            {"error": "an\x1b[2J \u202e error\nof 2 lines", "harm": "refuses"},
            {"": 1},
            "an\\x1b[2J \\u202e error of 2 lines",
        ),
    ],
)
def test_a_title_is_the_smallest_input_s_own_sentence_and_damage(
    shared: dict[str, Any], kinds: dict[str, int], title: str
) -> None:
    [cause] = causes(*(shared | {"finding": finding, "size_bytes": size} for finding, size in kinds.items()))
    assert cause.what == title
    # Parts that differ from input to input are still masked where causes are told apart.
    assert cause.text == masked(cause.smallest.error)


def test_a_title_is_short_whatever_the_error_is() -> None:
    [cause] = causes({"error": "7\x00" * 2000, "harm": "refuses"})
    assert len(cause.what) < 200
    assert cause.what.isprintable()


def test_a_cause_has_one_id_in_all_versions_of_an_implementation_and_no_other_has_it() -> None:
    labels = ("toy@1", "toy@2", "toy@1.0+more", "toy", "toys@1", "@a/toy@1", "@b/toy@1")
    found = [cause for label in labels for cause in causes({"implementation": label})]
    assert [len({cause.id for cause in found[start:end]}) for start, end in ((0, 4), (3, 7))] == [1, 4]
    assert len({cause.id for cause in causes_of(one(implementation=label) for label in labels)}) == 4
    assert len(causes_of(one(implementation=label) for label in labels)) == len(labels)


@pytest.mark.parametrize("harm", ["hangs", "loses"])
def test_an_error_that_is_dropped_is_one_cause_whatever_is_damaged(harm: str) -> None:
    [cause] = causes({"harm": harm}, {"harm": harm, "finding": "trailing-bytes"})
    assert (cause.count, cause.finding) == (2, "2 kinds of damage")


def test_each_format_has_a_reader_that_loses_data_but_one_consumer_stops_in_all_formats() -> None:
    assert len(causes({"harm": "loses", "form": "v2"}, {"harm": "loses", "form": "legacy"})) == 2
    assert len(causes({"harm": "hangs", "form": "v2"}, {"harm": "hangs", "form": "legacy"})) == 1


def test_a_good_input_that_hangs_is_another_cause_but_one_that_loses_data_is_not() -> None:
    assert len(causes({"harm": "hangs"}, {"harm": "hangs", "finding": ""})) == 2
    assert len(causes({"harm": "loses"}, {"harm": "loses", "finding": ""})) == 1


def test_a_computation_without_an_end_is_one_cause_for_good_and_damaged_inputs() -> None:
    computes = {"harm": "hangs", "error": "took more than its 2000 ms of CPU time"}
    assert len(causes(computes, computes | {"finding": ""})) == 1
    assert len(causes(computes | {"form": "v2"}, computes | {"form": "legacy"})) == 2


def test_a_codec_that_computes_without_an_end_is_one_cause_in_all_formats() -> None:
    computes = {"harm": "hangs", "error": "computes without an end", "finding": "decompression-failed", "form": "v2"}
    wrapper = {"form": "legacy", "holds": "a wrapper", "finding": "wrapper-value-null"}
    gzip = {"codec": "gzip"}
    assert len(causes(computes | gzip, computes | wrapper | gzip)) == 1
    assert len(causes(computes | gzip, computes | {"codec": "lz4"})) == 2
    # The code after the codec is in a reader of each format.
    late = computes | {"finding": "header-count-exceeds-record"}
    assert len(causes(late | gzip, late | {"codec": "lz4"})) == 1


def test_too_much_time_and_too_much_memory_for_one_claim_are_one_cause() -> None:
    memory = {"harm": "memory", "at": "a.go:1", "error": "took more than its 16 MiB of memory", "form": "v2"}
    time = {"harm": "hangs", "error": "took more than its 2000 ms of CPU time", "form": "v2"}
    [cause] = causes(memory, time)
    assert (cause.harm, cause.at) == ("hangs", "a.go:1")
    assert len(causes(memory, time | {"finding": "trailing-bytes"})) == 2
    assert len(causes(memory, time | {"form": "legacy"})) == 2
    # Two lines take memory for this claim, so nobody knows which of them takes the time.
    assert len(causes(memory, memory | {"at": "b.go:2"}, time)) == 3


def test_a_batch_without_records_stops_a_decoder_for_the_same_reason_as_a_good_one() -> None:
    good = {"harm": "hangs", "finding": "", "holds": "no records"}
    empty, damaged = good | {"finding": "record-count-negative"}, {"harm": "hangs", "finding": "crc-mismatch"}
    assert [cause.finding for cause in causes(good, empty, damaged)] == ["record-count-negative", "crc-mismatch"]
    # If good batches without records do not stop it, the damage does.
    assert [cause.count for cause in causes(empty, damaged)] == [2]


def test_findings_of_one_check_are_one_cause_in_each_format() -> None:
    lengths = [{"harm": "accepts", "finding": one} for one in ("record-length-mismatch", "record-length-negative")]
    [cause] = causes(*lengths)
    assert cause.count == 2
    assert len(causes(*lengths, {"harm": "accepts", "finding": "crc-mismatch"})) == 2
    assert len(causes({"harm": "accepts", "form": "v2"}, {"harm": "accepts", "form": "legacy"})) == 2
    # Where the documents allow both, the check that is missing is the same one.
    [cause] = causes({"harm": "accepts"}, {"harm": "differs"})
    assert cause.harm == "accepts"


@pytest.mark.parametrize("finding", ["magic-unknown", "codec-unknown", "varint-too-long"])
def test_a_number_that_all_formats_share_is_checked_in_one_place(finding: str) -> None:
    assert len(causes({"finding": finding, "form": "v2"}, {"finding": finding, "form": "legacy"})) == 1


def test_a_wrapper_with_an_empty_value_lacks_the_check_of_a_wrapper_without_messages() -> None:
    empty = {"finding": "decompression-failed", "form": "legacy", "holds": "an empty wrapper"}
    nothing = {"finding": "wrapper-empty", "form": "legacy"}
    assert len(causes(empty, nothing)) == 1
    assert len(causes(empty | {"holds": ""}, nothing)) == 2


def test_a_wrapper_without_messages_stops_a_decoder_or_is_skipped_by_it() -> None:
    skipped = {"finding": "wrapper-empty", "form": "legacy"}
    stops = {"harm": "hangs", "finding": "wrapper-value-null", "form": "legacy"}
    [cause] = causes(skipped, stops)
    assert cause.harm == "hangs"


def test_records_that_are_skipped_are_one_cause_with_those_that_stop_a_decoder() -> None:
    skipped = {"finding": "record-count-too-high", "error": "skipped bytes that must be refused"}
    stops = {"harm": "hangs", "finding": "record-truncated"}
    [cause] = causes(skipped, stops)
    assert cause.harm == "hangs"
    # Of two ways to stop, it is the more frequent one.
    rare = stops | {"error": "goes back"}
    assert [cause.count for cause in causes(rare, skipped, stops, stops)] == [3, 1]
    assert len(causes(skipped | {"finding": "wrapper-empty"}, stops)) == 2
    assert len(causes(skipped | {"error": "accepted bytes"}, stops)) == 2


def test_inputs_accepted_only_in_wrappers_are_one_cause() -> None:
    cut = {"finding": "decompression-failed", "form": "legacy", "holds": "a wrapper", "codec": "gzip"}
    length = {"finding": "length-exceeds-record", "form": "legacy", "holds": "a wrapper"}
    assert len(causes(cut, length)) == 1
    # A decoder that accepts the same in a message that is in no wrapper lacks the check of the message.
    assert len(causes(cut, length, length | {"holds": ""})) == 2
    assert len(causes(cut, length | {"finding": "wrapper-nested"})) == 2


def test_a_message_that_is_too_short_lacks_one_check_whichever_field_is_cut() -> None:
    short = {"finding": "message-truncated", "form": "legacy"}
    assert len(causes(short, short | {"finding": "length-exceeds-record"})) == 1


def test_a_magic_that_is_not_checked_is_one_cause_whatever_follows_from_it() -> None:
    unknown = {"form": "legacy", "requirements": ("MS-WRAPPER-4", "MS-MAGIC-1")}
    short = unknown | {"finding": "message-truncated"}
    other = unknown | {"harm": "loses", "finding": "inner-magic-mismatch", "error": "too many records: 2; expected 1"}
    [cause] = causes(short, other)
    assert cause.harm == "loses"
    assert len(causes(short, short | {"requirements": ("MS-BYTES-1",)})) == 2


def test_an_exception_that_escapes_is_one_cause_whatever_is_damaged() -> None:
    escapes = {"harm": "panics", "error": "KeyError: 'tag 7'"}
    others = {"finding": "message-cut", "error": "KeyError: no such tag"}
    assert len(causes(escapes, escapes | others)) == 1
    assert len(causes(escapes, escapes | {"error": "IndexError: 7"})) == 2
    # A text without a type says which fault it is.
    assert len(causes(escapes | {"error": "index out of range"}, escapes | {"error": "nil map"})) == 2


def test_exhausted_memory_without_a_line_is_a_cause_for_each_finding() -> None:
    escapes = {"harm": "panics", "error": "OutOfMemoryError: Requested array size exceeds VM limit"}
    assert len(causes(escapes, escapes | {"finding": "message-cut"})) == 2
    # Another input with the same damage may show the line.
    negative = escapes | {"error": "NegativeArraySizeException: -1", "at": "A.java:1"}
    [cause] = causes(escapes, negative)
    assert cause.smallest.at == ""
    assert cause.what.endswith(" (A.java:1)")
    assert len(causes(escapes, negative | {"finding": "message-cut"})) == 2
    assert len(causes(escapes, negative, negative | {"at": "B.java:2"})) == 3


DIFFERENCES = {
    "which field is null does not matter": ("message.a is null; expected empty", "message.b is null; expected empty"),
    "which word differs does not matter": ("batch[0].t is create; expected none", "batch[1].t is none; expected x"),
    "where a tag is unknown does not matter": (
        "message._unknownTaggedFields has 1 entries; expected 2",
        "message.topics[0]._unknownTaggedFields[1].hex is '61'; expected '62'",
    ),
    "how many records are missing does not matter": (
        "batch[0] has too few records: 1; expected 2",
        "handed out 1 of 2 records, without an error: batch 0 has 1",
    ),
}


@pytest.mark.parametrize("rule", DIFFERENCES)
def test_data_that_is_lost_in_one_way_is_one_cause(rule: str) -> None:
    one, other = ({"harm": "loses", "error": error} for error in DIFFERENCES[rule])
    assert len(causes(one, other)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("batch[0].t is 1; expected 2", "batch[0].u is 1; expected 2"),
        ("batch[0].t is 1; expected 2", "batch[0].t is null; expected 2"),
        ("batch[0].t is 1; expected 2", "encoded other contents: batch[0].t is 1; expected 2"),
        ("message._unknownTaggedFields has 1 entries; expected 2", "message._unknownTaggedFields is null; expected []"),
        ("too few records: 1; expected 2", "too many records: 2; expected 1"),
    ],
)
def test_data_that_is_lost_in_two_ways_is_two_causes(one: str, other: str) -> None:
    assert len(causes({"harm": "loses", "error": one}, {"harm": "loses", "error": other})) == 2


def test_null_for_empty_is_one_cause_in_records_and_another_in_messages() -> None:
    nullity = {"harm": "loses", "error": "records[0].key is null; expected empty"}
    assert len(causes(nullity | {"form": "v2"}, nullity | {"form": "legacy"})) == 1
    assert len(causes(nullity, nullity | {"message": "FetchRequest"}, nullity | {"message": "FetchResponse"})) == 2


def test_headers_that_are_dropped_are_one_cause_whether_they_are_damaged_or_not() -> None:
    lost = {"harm": "loses", "finding": "", "error": "records[0] has too few headers: 0; expected 1"}
    dropped = {"finding": "header-key-null", "lacks_headers": True}
    [cause] = causes(lost, dropped, dropped | {"finding": "varint-too-long"})
    assert (cause.harm, cause.count) == ("loses", 3)
    # One that hands out damaged headers lacks a check.
    assert len(causes(lost, dropped | {"lacks_headers": False})) == 2
    # A decoder that loses no good headers lacks a check for each finding.
    assert len(causes(dropped, dropped | {"finding": "varint-too-long"})) == 2
    # It reads the headers of a map, but loses one.
    assert len(causes(lost | {"error": "records[0] has too few headers: 1; expected 2"}, dropped)) == 2


@pytest.mark.parametrize(
    ("vector", "headers", "lacks"),
    [
        ("records/v2/headers/count-negative-before-three", [], True),
        ("records/v2/headers/count-negative-before-three", [["a", "31"]], False),
        ("records/v2/record/length-zero", [], False),
    ],
)
def test_a_record_without_its_damaged_headers_is_noticed(vector: str, headers: list[list[str]], lacks: bool) -> None:
    [one] = [one for one in load_suite() if one.id == vector]
    for answer in ({"records": [{"headers": headers}]}, {"batches": [{"records": [{"headers": headers}]}]}):
        cell = Cell("fail", "accepted", "accepts", answer=answer)
        found = deviation("toy@1", Case(one, "consumer"), cell, "unexpected")
        assert found is not None
        assert found.lacks_headers == lacks


def test_a_writer_has_one_function_for_a_value_of_all_formats() -> None:
    written = {"harm": "loses", "error": "encoded other contents: batch[0].t is 1; expected 2"}
    assert len(causes(written | {"form": "v2"}, written | {"form": "legacy"})) == 1


def test_missing_records_are_one_cause_for_all_formats() -> None:
    missing = {"harm": "loses", "error": "too few records: 1; expected 2"}
    assert len(causes(missing | {"form": "v2"}, missing | {"form": "legacy"})) == 1


def test_deviations_of_one_message_alone_are_one_cause() -> None:
    read = {"harm": "loses", "error": "message.type is null; expected 0", "message": "StopReplicaRequest"}
    write = {"harm": "refuses", "error": "no field type", "message": "StopReplicaRequest"}
    [cause] = causes(read, write)
    assert cause.harm == "loses"
    # The same with other messages is a fault of what all messages share.
    assert len(causes(read, write, write | {"message": "FetchRequest"})) == 2
    assert len(causes(read, write | {"message": "FetchRequest"})) == 2
    # A check that is missing has its finding.
    assert len(causes(read, {"message": "StopReplicaRequest"})) == 2


def test_too_much_memory_and_a_death_at_one_line_are_one_cause() -> None:
    death = {"harm": "kills", "at": "a.go:1", "error": "ended with status 2: fatal error: out of memory"}
    [cause] = causes({"harm": "memory", "at": "a.go:1"}, death)
    assert cause.harm == "kills"


def test_too_much_memory_without_a_line_is_one_cause_in_each_format() -> None:
    death = {"harm": "kills", "error": "died of SIGABRT: memory allocation of 7 bytes failed"}
    memory = {"harm": "memory", "error": "took more than its 16 MiB of memory", "finding": "trailing-bytes"}
    assert len(causes(death, memory)) == 1
    assert len(causes(death, memory | {"form": "v2"})) == 2
    assert len(causes(death, death | {"error": "died of SIGABRT: assertion failed"})) == 2
    assert len(causes(memory, memory | {"error": "sent lz4 in blocks of 4194304 bytes"})) == 2


def test_a_line_of_source_is_one_cause_whatever_the_error_says() -> None:
    [cause] = causes({"at": "a.go:1"}, {"at": "a.go:1", "finding": "", "error": "other"})
    assert cause.what == "crc-mismatch: read 3 records (a.go:1)"


def test_an_error_of_one_line_is_one_cause_whether_it_escapes_or_not() -> None:
    [cause] = causes(*({"harm": harm, "at": "a.go:1"} for harm in ("refuses", "panics", "kills", "differs")))
    assert (cause.harm, cause.count) == ("kills", 4)
    # A line that takes much memory may raise errors for other reasons.
    assert len(causes({"harm": "panics", "at": "a.go:1"}, {"harm": "memory", "at": "a.go:1"})) == 2


DAMAGED_BATCHES = {
    "records/framing/good-then-bad-magic": ("", "", ""),
    "records/framing/magic-3": ("", "", ""),
    "records/framing/good-then-bad-count": ("v2", "no records", ""),
    "records/v2/compaction/empty": ("v2", "no records", ""),
    "records/v2/codec/lz4-no-records": ("v2", "no records", "lz4"),
    "records/v2/header/codec-5": ("v2", "", ""),
    "records/v0/message/gzip-wrapper-value-empty": ("legacy", "an empty wrapper", "gzip"),
    "records/v1/wrapper/gzip-empty-key-and-value": ("legacy", "an empty wrapper", "gzip"),
    "records/v0/message/wrapper-value-null": ("legacy", "a wrapper", "gzip"),
    "records/v0/message/empty-key-and-value": ("legacy", "", ""),
    "records/framing/only-tail-5": ("", "", ""),
}


def test_the_damaged_batch_gives_a_deviation_its_format_contents_and_codec() -> None:
    found = {}
    for vector in load_suite():
        if vector.id in DAMAGED_BATCHES:
            one = deviation("toy@1", Case(vector, "consumer"), Cell("fail", "read 3 records", "accepts"), "unexpected")
            assert one is not None
            found[vector.id] = (one.form, one.holds, one.codec)
    assert found == DAMAGED_BATCHES


def test_a_refusal_is_one_cause_for_required_and_recommended_inputs() -> None:
    refusal = {"finding": "", "error": "refused bytes that must be accepted: no such year"}
    [cause] = causes(refusal | {"harm": "refuses"}, refusal | {"harm": "differs"})
    assert cause.harm == "refuses"
    assert len(causes({"finding": "", "harm": "refuses"}, {"finding": "", "harm": "differs"})) == 2


def test_numbers_are_masked_with_their_sign() -> None:
    assert masked("offset -1") == masked("offset 7") == masked("offset -9223372036854775808") == "offset #"


def test_a_class_of_harm_says_what_it_means_for_brokers_in_words_of_their_own() -> None:
    for harm in HARMS:
        assert harm.why("broker") != harm.why("consumer") == harm.why("reader")
