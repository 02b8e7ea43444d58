"""Single texts, bytes and arrays, each in its four forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.primitive import NOTHING, Single, broken, of
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.wire.io.cursor import uvarint

WIDTHS = {"string": 2, "bytes": 4, "array": 4}
REQUIREMENTS = {"string": "MSG-BYTES-1", "bytes": "MSG-BYTES-1", "array": "MSG-ARRAY-1"}
SAMPLES: dict[str, tuple[Any, Any]] = {
    "string": ("a", "äb\u6f22"),
    "bytes": (b"a", b"\x00\xff\x80"),
    "array": ([7], [1, -1, 2**31 - 1]),
}

NO_TEXT = (
    ("latin-one", b"caf\xe9", "caf\ufffd"),
    ("never", b"a\xffb", "a\ufffdb"),
    ("cut-letter", b"\xe6\xbc", "\ufffd"),
)


def theme() -> Theme:
    """The recipes of ``vectors/primitives/lengths.json``."""
    made = Theme("primitives/lengths", "Texts, bytes and arrays of int32, with fixed and compact lengths.", "primitive")
    for kind in WIDTHS:
        for compact in (False, True):
            for nullable in (False, True):
                _Form(made, kind, compact, nullable).add_all()
    return made


@dataclass(frozen=True)
class _Form:
    """One of the four forms (fixed or compact, nullable or not) of a text, bytes or an array."""

    made: Theme
    kind: str
    compact: bool
    nullable: bool

    @property
    def name(self) -> str:
        return ("compact-" if self.compact else "") + ("nullable-" if self.nullable else "") + self.kind

    @property
    def null(self) -> list[str]:
        return ["MSG-NULL-1"] if self.nullable else ["MSG-NULL-2"]

    def length(self, number: int) -> bytes:
        return uvarint(number + 1) if self.compact else number.to_bytes(WIDTHS[self.kind], "big", signed=True)

    def add(self, slug: str, summary: str, single: Single, requirements: Sequence[str] = (), **options: Any) -> None:
        self.made.primitive(
            f"{self.name}-{slug}",
            f"{self.name}: {summary}",
            single,
            requirements=requirements or [REQUIREMENTS[self.kind], *(["MSG-COMPACT-1"] if self.compact else [])],
            **options,
        )

    def wrong(self, data: bytes, finding: str, value: Any = NOTHING) -> Single:
        return broken(self.name, data, finding, value)

    def add_all(self) -> None:
        self.right_and_cut()
        self.too_long()
        self.nulls()
        if self.compact:
            self.varints()
        if self.kind == "string":
            self.texts()

    def right_and_cut(self) -> None:
        one, more = SAMPLES[self.kind]
        self.add("empty", "empty, which is not null", of(self.name, type(one)()))
        self.add("one", "has length 1", of(self.name, one))
        self.add("more", "has a length above 1", of(self.name, more))
        # A text's length reveals the missing byte at once; an array's count does not.
        short = "message-cut" if self.kind == "array" else "length-exceeds-message"
        self.add("cut", "the last byte is missing", self.wrong(of(self.name, one).data[:-1], short))
        cut = b"\x80" if self.compact else self.length(1)[:-1]
        self.add("length-cut", "the last byte of the length is missing", self.wrong(cut, "message-cut"))
        self.add("nothing", "there are no bytes", self.wrong(b"", "message-cut"))

    def too_long(self) -> None:
        beyond = "count-exceeds-message" if self.kind == "array" else "length-exceeds-message"
        single = self.wrong(self.length(9) + bytes(8), beyond)
        self.add("beyond", "claims the length 9, but only 8 bytes follow", single, budget=SMALL)
        huge = 0x7FFF if self.kind == "string" else INT32_MAX
        single = self.wrong(self.length(huge) + bytes(4), beyond)
        self.add("huge", f"claims length {huge:,}", single, flags=["LengthHuge"], budget=SMALL)
        if self.kind == "string" and self.compact:
            for slug, number in (("longer-than-int16", 0x8000), ("int32-max", INT32_MAX)):
                single = self.wrong(self.length(number), "string-too-long")
                self.add(
                    slug, f"claims length {number:,}", single, ["MSG-STRING-2"], flags=["LengthHuge"], budget=SMALL
                )

    def nulls(self) -> None:
        if self.nullable:
            self.add("null", "null", of(self.name, None), self.null)
        else:
            self.add("null", "null, which is not allowed", self.wrong(self.length(-1), "null-not-allowed"), self.null)
        for slug, number in (
            () if self.compact else (("minus-two", -2), ("lowest", -(1 << (8 * WIDTHS[self.kind] - 1))))
        ):
            finding = "length-below-minus-one" if self.nullable else "null-not-allowed"
            single = self.wrong(self.length(number), finding, None if self.nullable else NOTHING)
            self.add(slug, f"has the length {number:,}", single, self.null)

    def varints(self) -> None:
        one = SAMPLES[self.kind][0]
        whole = of(self.name, one).data
        padded = bytes([whole[0] | 0x80, 0]) + whole[1:]
        single = self.wrong(padded, "varint-overlong", one)
        self.add("length-overlong", "the length takes two bytes, but one is enough", single)
        single = self.wrong(b"\x82\x80\x80\x80\x80\x00a", "varint-too-long")
        self.add("length-of-six-bytes", "the length takes six bytes", single)

    def texts(self) -> None:
        for slug, data, text in NO_TEXT:
            single = self.wrong(self.length(len(data)) + data, "string-not-utf8", text)
            self.add(f"utf8-{slug}", f"has the bytes {data.hex()}, which are not UTF-8", single, ["MSG-STRING-1"])
        self.add("null-character", "has a null character", of(self.name, "a\x00b"), ["MSG-STRING-1"])
