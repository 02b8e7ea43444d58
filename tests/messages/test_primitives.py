"""Single primitives: round trips, values that do not fit, and cases that vectors cannot express."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfuzz.errors import EncodeError, UsageError
from kfuzz.messages.primitives import PRIMITIVES, from_json_value, read, to_json_value, write

INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
# The least and the greatest.
INTEGERS = {
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": INT32,
    "uint32": (0, 2**32 - 1),
    "int64": INT64,
    "varint": INT32,
    "varlong": INT64,
    "unsigned-varint": (0, 2**32 - 1),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(*ends) for name, ends in INTEGERS.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(st.characters(codec="utf-8"), max_size=40),
    "bytes": st.binary(max_size=40),
    "array": st.lists(st.integers(*INT32), max_size=20),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_value_is_read_as_it_was_written(name: str) -> None:
    values = VALUES[name] if name in VALUES else VALUES[name.rpartition("-")[2]]

    @given(values | st.none() if "nullable" in name else values, st.binary(max_size=3))
    def check(value: Any, after: bytes) -> None:
        data = write(name, value)
        reading = read(name, data + after)
        assert reading.message == {"value": value}
        assert reading.consumed == len(data)
        assert [finding.code for finding in reading.findings] == (["bytes-after-message"] if after else [])
        assert from_json_value(name, to_json_value(name, value)) == value

    check()


@pytest.mark.parametrize(("name", "ends"), INTEGERS.items())
def test_an_integer_outside_of_its_range_is_refused(name: str, ends: tuple[int, int]) -> None:
    @given(st.integers(max_value=ends[0] - 1) | st.integers(min_value=ends[1] + 1))
    def check(value: int) -> None:
        with pytest.raises(EncodeError):
            write(name, value)

    check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("varint", "1"),
        ("varint", True),
        ("string", None),
        ("compact-bytes", None),
        ("string", "x" * 32_768),
        ("array", [1, "2"]),
        ("uuid", b"short"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, value: Any) -> None:
    with pytest.raises(EncodeError):
        write(name, value)


def test_an_unknown_primitive_is_named_with_those_that_there_are() -> None:
    for call in (lambda: read("int24", b""), lambda: write("int24", 1)):
        with pytest.raises(UsageError, match="no primitive 'int24'; take one of bool, int8"):
            call()


def test_an_unknown_profile_is_refused_for_good_bytes_too() -> None:
    for primitive in ("int8", "varint"):
        with pytest.raises(UsageError, match="profile 'loose' does not exist; take one of"):
            read(primitive, b"\1", profile="loose")  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "bits"), [("varint", 32), ("unsigned-varint", 32), ("varlong", 64)])
def test_a_varint_ends_after_its_bytes_and_surplus_bits_are_a_finding(name: str, bits: int) -> None:
    most = -(-bits // 7)

    @given(st.lists(st.sampled_from([0x80, 0xFF, 0x8F]), max_size=10), st.integers(0, 127))
    def check(first: list[int], last: int) -> None:
        reading = read(name, bytes([*first, last]))
        codes = [finding.code for finding in reading.findings]
        if len(first) >= most:
            assert (reading.message, codes) == (None, ["varint-too-long"])
            return
        number = sum((byte & 127) << 7 * at for at, byte in enumerate([*first, last]))
        is_overlong = number >> bits or (first and last == 0)
        assert codes == (["varint-overlong"] if is_overlong else [])
        number %= 1 << bits
        zigzag = number >> 1 ^ -(number & 1)
        assert reading.message == {"value": number if name.startswith("unsigned") else zigzag}
        assert [one.code for one in read(name, bytes(byte | 128 for byte in first)).findings] == ["message-cut"]

    check()
