"""Wrong arguments of compiled functions are refused in a sentence, and rare ones have the usual answer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest

from kfuzz import records
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.engine import Engine
from kfuzz.records import Record, RecordBatch
from kfuzz.records.writer import header_fields
from kfuzz.wire.columns.writer import ColumnWriter, ends_of_runs
from kfuzz.wire.io.cursor import uvarint, uvarint_of
from kfuzz.wire.io.output import Full, Output
from kfuzz.wire.walk.record_list import survey

RECORD = Record(0, 1, b"k", b"v")
FIELDS = header_fields(RecordBatch(0, 0, []))


def writer(**changed: Any) -> ColumnWriter:
    columns = dict.fromkeys(("keys", "values", "timestamps", "offsets", "header_ends", "header_keys", "header_values"))
    return ColumnWriter(2, **columns | changed)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: uvarint_of(b"\1", 0), "longest is 0; a varint has 1 to 10 bytes"),
        (lambda: uvarint_of(b"\1", 11), "longest is 11; a varint has 1 to 10 bytes"),
        (lambda: Dice(1).octets(-1), "n is -1; it must not be negative"),
        (lambda: Engine().packed(0, 2, b"", Dice(1)), "codec is 0; it must be from 1 to 4"),
        (lambda: Engine().packed(5, 2, b"", Dice(1)), "codec is 5; it must be from 1 to 4"),
        (
            lambda: Output(9).fill(lambda block, space: 0, b"", -1, 0),
            "most is -1 and rest is 0; neither may be negative",
        ),
        (
            lambda: Output(9).fill(lambda block, space: 0, b"", 0, -1),
            "most is 0 and rest is -1; neither may be negative",
        ),
        (lambda: Output(9).fill(lambda block, space: 5, b"", 4, 0), "write returned 5; the space has 4 bytes"),
        (lambda: Output(9).fill(lambda block, space: -1, b"", 4, 0), "write returned -1; the space has 4 bytes"),
        (lambda: Output(9).tail(1), "size is 1; the blocks have 0 bytes"),
        (lambda: Output(9).tail(-1), "size is -1; the blocks have 0 bytes"),
        (lambda: writer(timestamps=pa.array([1], pa.int64())), "column timestamp does not have 2 rows"),
        (
            lambda: writer(header_ends=pa.array([[], []], pa.list_(pa.int32()))),
            "header keys and header values must be equal in number",
        ),
        (lambda: writer().batches([3], FIELDS), "a batch would have the rows from 0 to 3 of 2"),
        (lambda: writer().batches([1, 1], FIELDS), "a batch would have the rows from 1 to 1 of 2"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        call()


@pytest.mark.parametrize("number", [0, 127, 128, 2**32 - 1, 2**35, 2**64 - 1])
def test_a_varint_is_cut_off_before_its_last_byte_and_too_long_after_its_limit(number: int) -> None:
    made = uvarint(number)
    assert uvarint_of(made + b"\xff", 10) == (number, len(made))
    assert uvarint_of(made[:-1], 10)[1] == -1
    if len(made) > 1:
        assert uvarint_of(made, len(made) - 1)[1] == -2


def test_an_output_keeps_what_fits_and_is_empty_afterwards() -> None:
    def write(block: bytes, space: memoryview) -> int:
        space[: len(block)] = block
        return len(block)

    output = Output(5)
    assert output.fill(write, b"abc", 8, 3) == 3
    with output.tail(2) as tail:
        assert bytes(tail) == b"bc"
    with pytest.raises(Full):
        output.fill(write, b"defg", 8, 0)
    assert (output.close(), output.close()) == (b"abcde", b"")


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("numbers", [[], [1], [1, 1], [1, 2], [0, 0, -1, -1, -1, 0, 5, 5, 100, 100]])
def test_runs_of_numbers_of_every_width_end_where_the_number_changes(width: int, numbers: list[int]) -> None:
    sizes = [len(list(run)) for _, run in itertools.groupby(numbers)]
    array = pa.array([7, *numbers], getattr(pa, f"int{width}")())[1:]
    assert ends_of_runs(array) == list(itertools.accumulate(sizes))


@pytest.mark.parametrize(
    ("headers", "plain"),
    [
        (((b"h", b"x"), (b"", None)), True),
        ([(b"h", b"x")], False),
        (([b"h", b"x"],), False),
        (((b"h", b"x", b"y"),), False),
        ((("h", b"x"),), False),
        (((b"\xff", b"x"),), False),
    ],
)
def test_only_ordinary_headers_let_a_builder_write_a_record_unchanged(headers: Any, plain: bool) -> None:
    assert survey([Record(0, 1, b"k", b"v", headers)]).is_plain is plain


def test_a_record_equals_no_other_type_unless_that_says_so() -> None:
    assert Record(0, 1, b"k", b"v") == RECORD
    assert RECORD != (0, 1, b"k", b"v", (), 0)
    assert RECORD == ANY


def test_a_record_that_is_read_lazily_has_its_fields_under_any_equal_name() -> None:
    whole = Record(0, 1, b"k", b"v", ((b"h", None),))
    for record in records.read(records.encode_batch(RecordBatch(0, 0, [whole]))).batches[0].records:
        # No constants: the interpreter has one object for equal ones, and the record looks for that object first.
        names = [" key".strip(), " value".strip(), " headers".strip(), " offset".strip()]
        assert [getattr(record, name) for name in names] == [b"k", b"v", ((b"h", None),), 0]
