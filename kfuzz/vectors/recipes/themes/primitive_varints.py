"""Single varints: zigzag varints of 32 and 64 bits, and unsigned ones."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.primitive import Single, broken, of
from kfuzz.vectors.recipes.theme import Theme

VARINT = ["RB-VARINT-1"]
COMPACT = ["MSG-COMPACT-1"]
LONGEST = {"varint": 5, "varlong": 10, "unsigned-varint": 5}


def theme() -> Theme:
    """The recipes of ``vectors/primitives/varints.json``."""
    made = Theme("primitives/varints", "Zigzag varints and varlongs, and unsigned varints.", "primitive")
    for name, longest in LONGEST.items():
        _widths(made, name, longest)
        _faults(made, name, longest)
    return made


def _widths(made: Theme, name: str, longest: int) -> None:
    """The smallest and the largest encoding of each width."""
    bits = 64 if name == "varlong" else 32
    for width in range(1, longest + 1):
        most = min((1 << 7 * width) - 1, (1 << bits) - 1)
        least = 0 if width == 1 else 1 << 7 * (width - 1)
        for slug, raw in (("least", least), ("most", most)):
            # Java readers return an unsigned varint above INT32_MAX as a negative number.
            if name == "unsigned-varint" and raw > 2**31 - 1:
                raw = 2**31 - 1
            value = raw if name == "unsigned-varint" else (raw >> 1) ^ -(raw & 1)
            summary = f"{name}: {value:,}, in {width} byte{'s' * (width > 1)}"
            _add(made, f"{name}-{slug}-of-width-{_WORDS[width]}", summary, of(name, value))
    if name != "unsigned-varint":
        for slug, value in (
            ("one", 1),
            ("minus-one", -1),
            ("lowest", -(1 << (bits - 1))),
            ("highest", (1 << (bits - 1)) - 1),
        ):
            _add(made, f"{name}-{slug}", f"{name}: {value:,}", of(name, value))


def _faults(made: Theme, name: str, longest: int) -> None:
    one = 1 if name == "unsigned-varint" else -1
    short = broken(name, b"\x81\x00", "varint-overlong", one)
    _add(made, f"{name}-overlong", f"{name}: {one}, padded to two bytes", short)
    padded = b"\x81" + b"\x80" * (longest - 2) + b"\x00"
    _add(
        made,
        f"{name}-padded",
        f"{name}: {one}, padded to {longest} bytes",
        broken(name, padded, "varint-overlong", one),
    )
    excess = b"\x81" + b"\x80" * (longest - 2) + (b"\x02" if name == "varlong" else b"\x10")
    _add(
        made,
        f"{name}-excess-bit",
        f"{name}: {one}, plus a bit above the type's width",
        broken(name, excess, "varint-overlong", one),
    )
    _add(
        made,
        f"{name}-too-long",
        f"{name}: it has {longest + 1} bytes",
        broken(name, b"\x81" + b"\x80" * (longest - 1) + b"\x00", "varint-too-long"),
    )
    _add(made, f"{name}-endless", f"{name}: it has no end", broken(name, b"\xff" * 16, "varint-too-long"))
    _add(made, f"{name}-cut", f"{name}: it is truncated", broken(name, b"\x81", "message-cut"))
    _add(made, f"{name}-nothing", f"{name}: it has no bytes", broken(name, b"", "message-cut"))


_WORDS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _add(made: Theme, slug: str, summary: str, single: Single) -> None:
    requirements = COMPACT if single.primitive == "unsigned-varint" else VARINT
    made.primitive(slug, summary, single, requirements=requirements)
