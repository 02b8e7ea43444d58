"""All parts of snappy: xerial framing, preambles, literals and copies."""

from __future__ import annotations

import struct

from kfuzz.vectors.recipes.making.builder import Record
from kfuzz.vectors.recipes.making.containers import XERIAL_MAGIC, XERIAL_VERSIONS, raw_snappy, xerial
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.vectors.recipes.themes.codec import HALF, JUNK, PLAIN, Streams
from kfuzz.wire.io.cursor import uvarint

# The value repeats two bytes, so that a block can encode it with copies.
RUN = Record(value=b"ab" * 40)
ENCODED = RUN.encode()
# The bytes before the repeated pairs, and the header count after them.
AHEAD, BEHIND = ENCODED[: -(80 + 1)], ENCODED[-1:]


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/snappy.json``."""
    made = Streams("records/v2/snappy", "The xerial framing of snappy, and the blocks inside it.", codec="snappy")
    _elements(made)
    _framing(made)
    _bad_framing(made)
    _bad_blocks(made)
    return made


# --- the elements of a block ----------------------------------------------------------------------------------------


def literal(data: bytes, form: int = 0) -> bytes:
    """A literal whose length is in the tag (form 0) or in ``form`` bytes after it."""
    if form == 0:
        return bytes([(len(data) - 1) << 2]) + data
    return bytes([(59 + form) << 2]) + (len(data) - 1).to_bytes(form, "little") + data


def copy(offset: int, length: int, form: int) -> bytes:
    """A copy with an offset of 11 bits (form 1), 2 bytes (form 2) or 4 bytes (form 3)."""
    if form == 1:
        return bytes([1 | (length - 4) << 2 | offset >> 8 << 5, offset & 0xFF])
    return bytes([form | (length - 1) << 2]) + offset.to_bytes(2 * form - 2, "little")


def block(*elements: bytes, size: int = len(ENCODED)) -> bytes:
    """A block that claims ``size`` bytes of content."""
    return uvarint(size) + b"".join(elements)


def _run(*copies: bytes) -> bytes:
    """A block with the record ``RUN``: a literal up to the first pair, then copies, then the last byte."""
    return block(literal(AHEAD + b"ab"), *copies, literal(BEHIND))


def _elements(made: Streams) -> None:
    cases = (
        ("literal-length-in-one-byte", "a literal has its length in one byte after the tag", literal(ENCODED, 1)),
        ("literal-length-in-two-bytes", "a literal has its length in two bytes", literal(ENCODED, 2)),
        ("literal-length-in-three-bytes", "a literal has its length in three bytes", literal(ENCODED, 3)),
        ("literal-length-in-four-bytes", "a literal has its length in four bytes", literal(ENCODED, 4)),
        (
            "literals-of-one-byte",
            "each literal holds a single byte",
            b"".join(literal(ENCODED[i : i + 1]) for i in range(len(ENCODED))),
        ),
    )
    for slug, summary, elements in cases:
        made.valid(slug, summary, xerial(block(elements)), records=(RUN,))
    copies = (
        (
            "copy-one-byte-offset",
            "copies with an offset of 11 bits overlap their own output",
            [copy(2, 11, 1)] * 7 + [literal(b"b")],
        ),
        (
            "copy-two-byte-offset",
            "copies with an offset of two bytes overlap their own output",
            [copy(2, 64, 2), copy(2, 14, 2)],
        ),
        (
            "copy-four-byte-offset",
            "copies with an offset of four bytes overlap their own output",
            [copy(2, 64, 3), copy(2, 14, 3)],
        ),
    )
    for slug, summary, parts in copies:
        made.valid(slug, summary, xerial(_run(*parts)), records=(RUN,))
    made.valid(
        "raw-copies",
        "a raw block has copies, and no xerial framing",
        _run(copy(2, 64, 2), copy(2, 14, 2)),
        records=(RUN,),
    )
    for size, start, value_bytes in ((130, "82 01", 121), (10_626, "82 53", 10_615)):
        record = Record(key=None, value=bytes(value_bytes))
        made.flag("RawSnappyBeginsLikeXerial").valid(
            f"raw-of-{size}-bytes",
            f"a raw block of {size:,} bytes begins with {start}; the xerial framing begins with 82 53 4e",
            _literals(record.encode()),
            records=(record,),
        )


def _framing(made: Streams) -> None:
    snappy_framing_odd = made.flag("SnappyFramingOdd")
    value = bytes(index * 7 % 251 for index in range(70_000))
    large = Record(value=value)
    encoded = large.encode()
    snappy_framing_odd.valid(
        "blocks-of-32-kib",
        "a record of 70,000 bytes is split into blocks of 32 KiB, as Kafka's own writer does",
        xerial(*(_literals(encoded[i : i + 32768]) for i in range(0, len(encoded), 32768))),
        records=(large,),
    )
    cases = (
        (
            "only-empty-blocks-first",
            "three empty blocks precede the one with the records",
            xerial(*[raw_snappy(b"")] * 3, raw_snappy(PLAIN)),
        ),
        (
            "empty-block-last",
            "an empty block follows the one with the records",
            xerial(raw_snappy(PLAIN), raw_snappy(b"")),
        ),
    )
    for slug, summary, stream in cases:
        snappy_framing_odd.valid(slug, summary, stream)
    for slug, versions, what in (
        ("version-largest", struct.pack(">ii", 2**31 - 1, 1), "the version is INT32_MAX"),
        ("compatible-version-later", struct.pack(">ii", 1, 2), "the lowest compatible version is 2"),
        ("versions-zero", struct.pack(">ii", 0, 0), "both versions are 0"),
        ("compatible-version-negative", struct.pack(">ii", 1, -1), "the lowest compatible version is -1"),
    ):
        snappy_framing_odd.acceptable(
            f"xerial-{slug}", f"{what}; Kafka does not check it", xerial(raw_snappy(PLAIN), versions=versions)
        )
    snappy_framing_odd.acceptable(
        "xerial-three-times",
        "three xerial streams, of which the second is empty; Kafka reads all three",
        xerial(raw_snappy(PLAIN[:HALF])) + xerial() + xerial(raw_snappy(PLAIN[HALF:])),
    )
    snappy_framing_odd.acceptable(
        "preamble-padded",
        "the block's length takes five bytes, but one is enough",
        xerial(bytes([len(PLAIN) | 0x80]) + b"\x80\x80\x80\x00" + raw_snappy(PLAIN)[1:]),
    )


def _literals(data: bytes) -> bytes:
    """A block of ``data`` as one literal."""
    return uvarint(len(data)) + literal(data, 2)


def _bad_framing(made: Streams) -> None:
    snappy_framing_broken = made.flag("SnappyFramingBroken", budget=SMALL)
    stream = xerial(raw_snappy(PLAIN))
    first = xerial(raw_snappy(PLAIN[:HALF]))
    cases = (
        ("magic-only", "the payload is only the xerial magic", XERIAL_MAGIC),
        ("magic-cut", "the payload is the first seven bytes of the xerial magic", XERIAL_MAGIC[:7]),
        ("versions-cut", "the payload ends within the xerial versions", stream[:13]),
        ("magic-first-byte", "the first byte of the xerial magic is 83", b"\x83" + stream[1:]),
        ("magic-last-byte", "the last byte of the xerial magic is 01", stream[:7] + b"\x01" + stream[8:]),
        ("magic-lower-case", "the xerial magic is written in lower case", stream[:1] + b"snappy" + stream[7:]),
        ("chunk-length-zero", "a chunk's length is 0, so it lacks even a preamble", first + struct.pack(">i", 0)),
        ("chunk-length-smallest", "a chunk's length is INT32_MIN", first + struct.pack(">i", -(2**31))),
        (
            "chunk-length-one-too-high",
            "the chunk's length is one too high",
            stream[:16] + struct.pack(">i", len(stream) - 19) + stream[20:],
        ),
        (
            "chunk-length-one-too-low",
            "the chunk's length is one too low",
            stream[:16] + struct.pack(">i", len(stream) - 21) + stream[20:],
        ),
        (
            "chunk-length-little-endian",
            "the chunk's length is little-endian",
            stream[:16] + struct.pack("<i", len(stream) - 20) + stream[20:],
        ),
        ("chunk-missing", "the payload ends after a chunk's length", first + struct.pack(">i", 20)),
        ("raw-behind-xerial", "a raw block without a length follows a xerial stream", first + raw_snappy(PLAIN[HALF:])),
        ("second-block-broken", "the second block is garbage", xerial(raw_snappy(PLAIN[:HALF]), JUNK)),
    )
    for slug, summary, data in cases:
        snappy_framing_broken.invalid(slug, summary, data)
    snappy_framing_broken.invalid(
        "header-only",
        "the payload is only the xerial header",
        XERIAL_MAGIC + XERIAL_VERSIONS,
        finding="record-count-too-high",
    )
    snappy_framing_broken.invalid(
        "second-chunk-length-cut",
        "the payload ends within the second chunk's length; Kafka ends the stream there, and records are missing",
        first + b"\x00\x00",
        finding="record-length-exceeds-payload",
    )


def _bad_blocks(made: Streams) -> None:
    snappy_block_broken = made.flag("SnappyBlockBroken", budget=SMALL)
    head = literal(AHEAD + b"ab")
    cases = (
        ("copy-offset-zero", "a copy has offset 0", _run(copy(0, 64, 2), copy(2, 14, 2))),
        ("copy-offset-beyond", "a copy reaches before the output's start", _run(copy(1000, 64, 2), copy(2, 14, 2))),
        (
            "copy-offset-four-gib",
            "a copy has the largest four-byte offset",
            _run(copy(2**32 - 1, 64, 3), copy(2, 14, 3)),
        ),
        ("copy-beyond-output", "a copy writes more than the block claims", _run(copy(2, 64, 2), copy(2, 64, 2))),
        ("copy-first", "a copy comes before any literal", block(copy(1, 64, 2), size=64)),
        ("copy-cut", "the block ends within a copy's offset", block(head, copy(2, 64, 2)[:-1])),
        ("literal-beyond-input", "a literal is longer than the block", block(literal(ENCODED, 1)[:-10])),
        ("literal-beyond-output", "a literal is longer than the block claims", block(literal(ENCODED, 1), size=10)),
        ("literal-length-cut", "the block ends within a literal's length", block(b"\xf4\x10")),
        ("literal-length-four-gib", "a literal claims 4 GiB", block(b"\xfc\xff\xff\xff\xff" + ENCODED)),
        ("too-short", "the block's content is shorter than it claims", block(head)),
        (
            "elements-behind-end",
            "elements follow the end of the claimed content",
            _run(copy(2, 64, 2), copy(2, 14, 2)) + literal(b"x"),
        ),
        ("preamble-cut", "the block is a single byte of an incomplete length", b"\x80"),
        ("preamble-six-bytes", "the block's length takes six bytes", b"\x80\x80\x80\x80\x80\x00" + literal(ENCODED, 1)),
        (
            "preamble-beyond-32-bits",
            "the block's length has more than 32 bits",
            b"\xff\xff\xff\xff\x7f" + literal(ENCODED, 1),
        ),
        ("preamble-zero-with-content", "the block claims no content, but has some", block(literal(ENCODED, 1), size=0)),
    )
    for slug, what, data in cases:
        snappy_block_broken.invalid(f"block-{slug}", what, xerial(data), records=(RUN,))
    for slug, what, data in cases:
        if slug not in ("copy-first", "literal-beyond-input", "too-short"):
            continue
        snappy_block_broken.invalid(
            f"raw-block-{slug}", f"{what} (raw block without the xerial framing)", data, records=(RUN,)
        )
