"""Single numbers of a fixed width, flags, floats and uuids."""

from __future__ import annotations

import struct

from kfuzz.vectors.recipes.making.primitive import Single, broken, of
from kfuzz.vectors.recipes.theme import Theme

NUMBER, FLAG, END = ["MSG-NUMBER-1"], ["MSG-BOOL-1"], ["MSG-FIELDS-1"]
WIDTHS = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16, "bool": 1}


def theme() -> Theme:
    """The recipes of ``vectors/primitives/numbers.json``."""
    made = Theme(
        "primitives/numbers", "Numbers of a fixed width in big-endian order; flags, floats, uuids.", "primitive"
    )
    for name in ("int8", "int16", "int32", "int64"):
        half = 1 << (8 * WIDTHS[name] - 1)
        for slug, number in (("zero", 0), ("one", 1), ("minus-one", -1), ("least", -half), ("most", half - 1)):
            _add(made, f"{name}-{slug}", f"{name}: {number:,}", of(name, number))
    for name in ("int16", "uint16", "int32", "uint32", "int64"):
        number = int.from_bytes(bytes(range(1, WIDTHS[name] + 1)), "big")
        _add(made, f"{name}-byte-order", f"{name}: every byte is different", of(name, number))
    for name in ("uint16", "uint32"):
        most = (1 << 8 * WIDTHS[name]) - 1
        for slug, number in (("zero", 0), ("beyond-signed", most // 2 + 1), ("most", most)):
            _add(made, f"{name}-{slug}", f"{name}: {number:,}", of(name, number))
    for name, width in WIDTHS.items():
        _add(made, f"{name}-cut", f"{name}: one byte is missing", broken(name, bytes(width - 1), "message-cut"), END)
    _floats(made)
    _flags(made)
    for slug, data in (("zero", bytes(16)), ("every-byte", bytes(range(16))), ("ones", b"\xff" * 16)):
        _add(made, f"uuid-{slug}", f"a uuid with the bytes {data.hex()}", of("uuid", data))
    return made


def _floats(made: Theme) -> None:
    for slug, number in (
        ("zero", 0.0),
        ("minus-zero", -0.0),
        ("one-and-a-half", 1.5),
        ("least", 5e-324),
        ("most", 1.7976931348623157e308),
        ("infinity", float("inf")),
        ("minus-infinity", float("-inf")),
    ):
        _add(made, f"float64-{slug}", f"float64: {slug.replace('-', ' ')}", of("float64", number))
    for slug, bits in (
        ("quiet", 0x7FF8000000000000),
        ("negative", 0xFFF8000000000000),
        ("payload", 0x7FF8000000000001),
    ):
        data = struct.pack(">Q", bits)
        _add(made, f"float64-nan-{slug}", f"float64: not a number, {data.hex()}", Single("float64", data, "NaN", 8))


def _flags(made: Theme) -> None:
    _add(made, "bool-false", "a flag is 0", of("bool", False), FLAG)
    _add(made, "bool-true", "a flag is 1", of("bool", True), FLAG)
    for byte in (2, 127, 128, 255):
        single = broken("bool", bytes([byte]), "bool-not-0-or-1", True)
        _add(made, f"bool-of-{byte}", f"a flag is {byte}, which Kafka reads as true", single, FLAG)


def _add(made: Theme, slug: str, summary: str, single: Single, requirements: list[str] = NUMBER) -> None:
    # There are many NaN encodings, and no document says which one a writer must use.
    canonical = single.verdict == "valid" and single.value != "NaN"
    made.primitive(slug, summary, single, requirements=requirements, canonical=canonical)
