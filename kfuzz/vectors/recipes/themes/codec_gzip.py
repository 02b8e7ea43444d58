"""Gzip members in every part: header flags, fields, deflate, trailers."""

from __future__ import annotations

import struct
import zlib

from kfuzz.vectors.recipes.making.builder import Raw
from kfuzz.vectors.recipes.making.containers import Bits, gzip_member
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.vectors.recipes.themes.codec import HALF, JUNK, PLAIN, holding

TEXT, HEADER_CRC, EXTRA, NAME, COMMENT = 0x01, 0x02, 0x04, 0x08, 0x10
HEADER_BYTES, TRAILER_BYTES = 10, 8
MEMBER = gzip_member(PLAIN)


def theme() -> Theme:
    """records/v2/gzip"""
    made = Theme("records/v2/gzip", "The gzip container (RFC 1952) and the deflate blocks in it (RFC 1951).")
    _headers(made)
    _bad_headers(made)
    _deflate(made)
    _bad_deflate(made)
    _members(made)
    _cuts(made)
    return made


def _holding(stream: bytes, *, hostile: bool = True) -> Raw:
    return holding("gzip", stream, hostile=hostile)


def _with_header_crc(flags: int, fields: bytes) -> bytes:
    """A member whose header carries its own right CRC."""
    member = gzip_member(PLAIN, flags=flags | HEADER_CRC, fields=fields)
    end = HEADER_BYTES + len(fields)
    return member[:end] + struct.pack("<H", zlib.crc32(member[:end]) & 0xFFFF) + member[end:]


def _patched(at: int, data: bytes) -> bytes:
    return MEMBER[:at] + data + MEMBER[at + len(data) :]


def _headers(made: Theme) -> None:
    extra = struct.pack("<H", 6) + b"KF\x02\x00ab"
    cases = (
        ("text", "the header says that the content is text, which binds nobody", gzip_member(PLAIN, flags=TEXT)),
        ("header-crc", "the header carries its own CRC", _with_header_crc(0, b"")),
        (
            "header-crc-and-fields",
            "the header carries an extra field, a name, a comment and its own CRC",
            _with_header_crc(EXTRA | NAME | COMMENT, extra + b"n\x00c\x00"),
        ),
        ("extra-empty", "the extra field has no byte", gzip_member(PLAIN, flags=EXTRA, fields=b"\x00\x00")),
        (
            "extra-thousand",
            "the extra field has a thousand bytes",
            gzip_member(PLAIN, flags=EXTRA, fields=struct.pack("<H", 1000) + bytes(1000)),
        ),
        ("name-empty", "the file name is empty", gzip_member(PLAIN, flags=NAME, fields=b"\x00")),
        ("name-latin-1", "the file name is not ASCII", gzip_member(PLAIN, flags=NAME, fields=b"\xfcn\xefc\xf6de\x00")),
        ("time", "the header tells a time", _patched(4, struct.pack("<I", 1_700_000_000))),
        ("time-largest", "the header's time is the largest there is", _patched(4, b"\xff\xff\xff\xff")),
        ("best-compression", "the header says that the slowest algorithm was used", _patched(8, b"\x02")),
        ("fat", "the header names the FAT file system, as a value 0 does", _patched(9, b"\x00")),
        ("unix", "the header names Unix", _patched(9, b"\x03")),
    )
    for slug, summary, stream in cases:
        made.valid(slug, summary, _holding(stream, hostile=False), requirements=["RB-GZIP-1"])
    made.flag(
        "GzipReservedFlag",
        "strictness",
        "A reserved flag of the gzip header is set, which RFC 1952 tells a decoder to refuse.",
        "Java's decoder, and so Kafka, does not look; zlib refuses what a broker has stored.",
    )
    for bit in (5, 6, 7):
        made.acceptable(
            f"reserved-flag-{bit}",
            f"flag bit {bit} of the header is reserved, and set",
            _holding(gzip_member(PLAIN, flags=1 << bit)),
            requirements=["RB-GZIP-1"],
            flags=["GzipReservedFlag"],
        )


def _bad_headers(made: Theme) -> None:
    made.flag(
        "GzipHeaderBroken",
        "corruption",
        "The gzip header is not one, or a field of it has no end.",
        "A reader that searches for the end of a field searches beyond the buffer.",
    )
    endless = b"x" * 30
    cases = (
        ("first-byte", "the first byte is 1e", _patched(0, b"\x1e")),
        ("second-byte", "the second byte is 8a", _patched(1, b"\x8a")),
        ("compress-magic", "the magic is that of Unix compress, 1f 9d", _patched(1, b"\x9d")),
        ("zlib-stream", "a zlib stream, which has another header and trailer", zlib_stored(PLAIN)),
        ("raw-deflate", "a deflate stream without the gzip header", MEMBER[HEADER_BYTES:-TRAILER_BYTES]),
        ("method-zero", "the compression method is 0", gzip_member(PLAIN, method=0)),
        ("method-nine", "the compression method is 9", gzip_member(PLAIN, method=9)),
        (
            "extra-beyond",
            "the extra field reaches beyond the payload",
            gzip_member(b"", flags=EXTRA, fields=b"\xff\xff"),
        ),
        (
            "extra-cut",
            "the payload ends within the extra field's length",
            MEMBER[:3] + b"\x04" + MEMBER[4:10] + b"\x05",
        ),
        ("name-endless", "the file name has no end", MEMBER[:3] + b"\x08" + MEMBER[4:10] + endless),
        ("comment-endless", "the comment has no end", MEMBER[:3] + b"\x10" + MEMBER[4:10] + endless),
        ("header-crc-cut", "the payload ends within the header's CRC", MEMBER[:3] + b"\x02" + MEMBER[4:10] + b"\x00"),
        ("header-crc-off", "the header's CRC is one too high", _header_crc_off()),
    )
    for slug, summary, stream in cases:
        made.invalid(
            slug,
            summary,
            _holding(stream),
            requirements=["RB-GZIP-1", "RB-CODEC-2"],
            flags=["GzipHeaderBroken"],
            finding="decompression-failed",
            budget=SMALL,
        )


def zlib_stored(data: bytes) -> bytes:
    """A zlib stream (RFC 1950) of one stored block."""
    return b"\x78\x01" + MEMBER[HEADER_BYTES:-TRAILER_BYTES] + struct.pack(">I", zlib.adler32(data))


def _header_crc_off() -> bytes:
    right = _with_header_crc(0, b"")
    crc = int.from_bytes(right[10:12], "little")
    return right[:10] + struct.pack("<H", crc + 1 & 0xFFFF) + right[12:]


# --- deflate --------------------------------------------------------------------------------------------------------


def _fixed(data: bytes, *, then: tuple[tuple[int, int], ...] = ()) -> bytes:
    """One last block of fixed Huffman codes: ``data`` as literals, then ``then`` as (code, bits), then the end."""
    bits = Bits()
    bits.write(0b011, 3)
    for byte in data:
        bits.code(0x30 + byte, 8) if byte < 144 else bits.code(0x190 + byte - 144, 9)
    for code, size in then:
        bits.code(code, size)
    bits.code(0, 7)
    return bits.done()


def _stored_blocks(*chunks: bytes) -> bytes:
    blocks = [struct.pack("<BHH", 0, len(chunk), len(chunk) ^ 0xFFFF) + chunk for chunk in chunks]
    return b"".join([*blocks[:-1], b"\x01" + blocks[-1][1:]])


def _deflate(made: Theme) -> None:
    # The record's value "second" repeats nothing, so the copy reaches for the byte before: a run of the last one.
    cases = (
        ("fixed-codes", "the deflate block has fixed Huffman codes", _fixed(PLAIN)),
        (
            "blocks-of-a-byte",
            "a stored block for every byte",
            _stored_blocks(*(PLAIN[i : i + 1] for i in range(len(PLAIN)))),
        ),
        ("empty-block-first", "an empty stored block before the one with the records", _stored_blocks(b"", PLAIN)),
        ("empty-block-last", "an empty stored block behind the one with the records", _stored_blocks(PLAIN, b"")),
        (
            "stored-then-fixed",
            "a stored block, then one of fixed codes",
            _stored_blocks(PLAIN[:HALF], b"")[: -len(_stored_blocks(b""))] + _fixed(PLAIN[HALF:]),
        ),
    )
    for slug, summary, deflate in cases:
        made.valid(
            slug, summary, _holding(gzip_member(PLAIN, deflate=deflate), hostile=False), requirements=["RB-GZIP-1"]
        )


def _bad_deflate(made: Theme) -> None:
    made.flag(
        "DeflateBroken",
        "bounds",
        "A deflate block does not follow its format.",
        "A decoder that trusts it copies from before its output or indexes past its tables.",
    )
    cases = (
        ("copy-before-start", "copies from before the start", _fixed(PLAIN[:1], then=((1, 7), (4, 5)))),
        ("length-code-286", "uses length code 286, which does not exist", _fixed(PLAIN, then=((0b11000110, 8),))),
        ("distance-code-30", "uses distance code 30, which does not exist", _fixed(PLAIN, then=((1, 7), (30, 5)))),
        ("no-end-of-block", "has no end", _fixed(PLAIN)[:-2]),
        ("not-last", "is not marked as the last, and none follows", b"\x00" + _stored_blocks(PLAIN)[1:]),
        ("stored-beyond", "is stored and longer than the payload", b"\x01\xff\xff\x00\x00" + PLAIN),
        ("too-many-codes", "has more length codes than there are", _dynamic(hlit=31)),
        ("code-lengths-oversubscribed", "has code lengths that no tree can have", _dynamic(lengths=(1, 1, 1, 1))),
        ("no-code-lengths", "has no code at all", _dynamic(lengths=(0, 0, 0, 0))),
    )
    for slug, what, deflate in cases:
        made.invalid(
            f"deflate-{slug}",
            f"the deflate block {what}",
            _holding(gzip_member(PLAIN, deflate=deflate)),
            requirements=["RB-GZIP-1", "RB-CODEC-2"],
            flags=["DeflateBroken"],
            finding="decompression-failed",
            budget=SMALL,
        )


def _dynamic(*, hlit: int = 0, lengths: tuple[int, ...] = (1, 1, 0, 0)) -> bytes:
    """The head of a block with dynamic Huffman codes; ``lengths`` are those of the code length codes 16, 17, 18, 0."""
    bits = Bits()
    bits.write(0b101, 3)
    bits.write(hlit, 5)
    bits.write(0, 5)
    bits.write(0, 4)
    for length in lengths:
        bits.write(length, 3)
    return bits.done() + bytes(20)


# --- members --------------------------------------------------------------------------------------------------------


def _members(made: Theme) -> None:
    made.flag(
        "GzipMembers",
        "interoperability",
        "The payload is more than one gzip member.",
        "A reader that stops behind the first loses the records of the others.",
    )
    thirds = [PLAIN[: HALF // 2], PLAIN[HALF // 2 : HALF], PLAIN[HALF:]]
    cases = (
        ("three-members", "three members, each with a part of the records", b"".join(map(gzip_member, thirds))),
        ("empty-member-last", "an empty member behind the one with the records", MEMBER + gzip_member(b"")),
        ("empty-member-between", "an empty member between two", _around(gzip_member(b""))),
        (
            "members-of-several-headers",
            "two members, the second with a name and a comment",
            gzip_member(PLAIN[:HALF]) + gzip_member(PLAIN[HALF:], flags=NAME | COMMENT, fields=b"n\x00c\x00"),
        ),
    )
    for slug, summary, stream in cases:
        made.valid(slug, summary, _holding(stream, hostile=False), requirements=["RB-GZIP-1"], flags=["GzipMembers"])
    second = gzip_member(PLAIN[HALF:])
    broken = (
        ("second-member-cut", "the second member ends within its deflate stream", second[:-20]),
        ("second-member-crc-wrong", "the second member's CRC is wrong", gzip_member(PLAIN[HALF:], crc=1)),
        ("second-member-size-wrong", "the second member's size is wrong", gzip_member(PLAIN[HALF:], size=1)),
    )
    for slug, summary, rest in broken:
        made.invalid(
            slug,
            f"two members; {summary}",
            _holding(gzip_member(PLAIN[:HALF]) + rest),
            requirements=["RB-GZIP-1", "RB-CODEC-2"],
            flags=["GzipMembers"],
            finding="decompression-failed",
        )
    made.flag(
        "GzipTail",
        "leniency",
        "Bytes follow the last gzip member that are not quite another.",
        "Kafka takes them for nothing; others refuse the payload, or the bytes behind it.",
    )
    # A tail that is short enough ends the stream; a longer one that begins like a member must be one.
    tails = (
        ("magic", "begin like a member and end there", b"\x1f\x8b", True),
        ("header-cut", "are a member's header without its last byte", second[:9], True),
        ("method-wrong", "are a member with compression method 7", gzip_member(PLAIN, method=7), True),
        ("magic-wrong", "are a member with another first byte", b"\x1e" + second[1:], True),
        ("junk-long", "are forty times the same four", JUNK * 40, True),
    )
    for slug, what, tail, accepted in tails:
        add = made.acceptable if accepted else made.invalid
        add(
            f"tail-{slug}",
            f"the bytes behind the last member {what}",
            _holding(MEMBER + tail),
            requirements=["RB-GZIP-1", "RB-CODEC-2"],
            flags=["GzipTail"],
            finding="bytes-after-compressed-stream" if accepted else "decompression-failed",
        )


def _around(middle: bytes) -> bytes:
    return gzip_member(PLAIN[:HALF]) + middle + gzip_member(PLAIN[HALF:])


def _cuts(made: Theme) -> None:
    made.flag(
        "GzipCut",
        "corruption",
        "The gzip stream ends before its time.",
        "A reader that takes what it has got so far for all there is loses records, or trusts unchecked bytes.",
    )
    cases = (
        ("behind-magic", "behind the magic", 2),
        ("behind-flags", "behind the flags", 4),
        ("behind-header", "behind the header", HEADER_BYTES),
        ("in-block-header", "within the stored block's header", HEADER_BYTES + 3),
        ("behind-block-header", "behind the stored block's header", HEADER_BYTES + 5),
        ("behind-first-record", "behind the first record", HEADER_BYTES + 5 + PLAIN[0] // 2 + 1),
        ("behind-crc", "behind the trailer's CRC", len(MEMBER) - 4),
    )
    for slug, where, size in cases:
        made.invalid(
            f"cut-{slug}",
            f"the stream ends {where}",
            _holding(MEMBER[:size]),
            requirements=["RB-GZIP-1", "RB-CODEC-2"],
            flags=["GzipCut"],
            finding="decompression-failed",
        )
