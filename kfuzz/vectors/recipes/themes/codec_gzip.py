"""All parts of gzip members: header flags, fields, deflate blocks, trailers."""

from __future__ import annotations

import struct
import zlib

from kfuzz.vectors.recipes.making.containers import Bits, gzip_member
from kfuzz.vectors.recipes.theme import SMALL, Theme
from kfuzz.vectors.recipes.themes.codec import HALF, JUNK, PLAIN, Streams

TEXT, HEADER_CRC, EXTRA, NAME, COMMENT = 0x01, 0x02, 0x04, 0x08, 0x10
HEADER_BYTES, TRAILER_BYTES = 10, 8
MEMBER = gzip_member(PLAIN)


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/gzip.json``."""
    made = Streams(
        "records/v2/gzip", "The gzip container (RFC 1952) and the deflate blocks in it (RFC 1951).", codec="gzip"
    )
    _headers(made)
    _bad_headers(made)
    _deflate(made)
    _bad_deflate(made)
    _members(made)
    _cuts(made)
    return made


def _with_header_crc(flags: int, fields: bytes) -> bytes:
    """A member whose header has a correct CRC of its own."""
    member = gzip_member(PLAIN, flags=flags | HEADER_CRC, fields=fields)
    end = HEADER_BYTES + len(fields)
    return member[:end] + struct.pack("<H", zlib.crc32(member[:end]) & 0xFFFF) + member[end:]


def _patched(at: int, data: bytes) -> bytes:
    return MEMBER[:at] + data + MEMBER[at + len(data) :]


def _headers(made: Streams) -> None:
    extra = struct.pack("<H", 6) + b"KF\x02\x00ab"
    cases = (
        ("text", "the header flags the content as text, which has no effect", gzip_member(PLAIN, flags=TEXT)),
        ("header-crc", "the header has its own CRC", _with_header_crc(0, b"")),
        (
            "header-crc-and-fields",
            "the header has an extra field, a name, a comment and its own CRC",
            _with_header_crc(EXTRA | NAME | COMMENT, extra + b"n\x00c\x00"),
        ),
        ("extra-empty", "the extra field is empty", gzip_member(PLAIN, flags=EXTRA, fields=b"\x00\x00")),
        (
            "extra-thousand",
            "the extra field has a thousand bytes",
            gzip_member(PLAIN, flags=EXTRA, fields=struct.pack("<H", 1000) + bytes(1000)),
        ),
        ("name-empty", "the file name is empty", gzip_member(PLAIN, flags=NAME, fields=b"\x00")),
        ("name-latin-1", "the file name is not ASCII", gzip_member(PLAIN, flags=NAME, fields=b"\xfcn\xefc\xf6de\x00")),
        ("time", "the header has a modification time", _patched(4, struct.pack("<I", 1_700_000_000))),
        ("time-largest", "the header's modification time is the largest possible", _patched(4, b"\xff\xff\xff\xff")),
        ("best-compression", "the header claims that the slowest algorithm was used", _patched(8, b"\x02")),
        ("fat", "the header names the FAT file system (value 0)", _patched(9, b"\x00")),
        ("unix", "the header names Unix", _patched(9, b"\x03")),
    )
    for slug, summary, stream in cases:
        made.valid(slug, summary, stream)
    for bit in (5, 6, 7):
        made.flag("GzipReservedFlag").acceptable(
            f"reserved-flag-{bit}", f"reserved flag bit {bit} of the header is set", gzip_member(PLAIN, flags=1 << bit)
        )


def _bad_headers(made: Streams) -> None:
    endless = b"x" * 30
    cases = (
        ("first-byte", "the first byte is 1e", _patched(0, b"\x1e")),
        ("second-byte", "the second byte is 8a", _patched(1, b"\x8a")),
        ("compress-magic", "the magic is 1f 9d, that of Unix compress", _patched(1, b"\x9d")),
        ("zlib-stream", "the payload is a zlib stream, which has another header and trailer", zlib_stored(PLAIN)),
        ("raw-deflate", "the payload is a deflate stream without a gzip header", MEMBER[HEADER_BYTES:-TRAILER_BYTES]),
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
        made.flag("GzipHeaderBroken").invalid(slug, summary, stream, budget=SMALL)


def zlib_stored(data: bytes) -> bytes:
    """A zlib stream (RFC 1950) of one stored block."""
    return b"\x78\x01" + MEMBER[HEADER_BYTES:-TRAILER_BYTES] + struct.pack(">I", zlib.adler32(data))


def _header_crc_off() -> bytes:
    right = _with_header_crc(0, b"")
    crc = int.from_bytes(right[10:12], "little")
    return right[:10] + struct.pack("<H", crc + 1 & 0xFFFF) + right[12:]


# --- deflate --------------------------------------------------------------------------------------------------------


def _fixed(data: bytes, *, then: tuple[tuple[int, int], ...] = ()) -> bytes:
    """One final block of fixed Huffman codes: ``data`` as literals, the pairs (code, bits) of ``then``, and the end."""
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


def _deflate(made: Streams) -> None:
    cases = (
        ("fixed-codes", "the deflate block has fixed Huffman codes", _fixed(PLAIN)),
        (
            "blocks-of-a-byte",
            "each stored block holds a single byte",
            _stored_blocks(*(PLAIN[i : i + 1] for i in range(len(PLAIN)))),
        ),
        ("empty-block-first", "an empty stored block precedes the one with the records", _stored_blocks(b"", PLAIN)),
        ("empty-block-last", "an empty stored block follows the one with the records", _stored_blocks(PLAIN, b"")),
        (
            "stored-then-fixed",
            "a stored block, then a block with fixed codes",
            _stored_blocks(PLAIN[:HALF], b"")[: -len(_stored_blocks(b""))] + _fixed(PLAIN[HALF:]),
        ),
    )
    for slug, summary, deflate in cases:
        made.valid(slug, summary, gzip_member(PLAIN, deflate=deflate))


def _bad_deflate(made: Streams) -> None:
    cases = (
        ("copy-before-start", "copies from before the start", _fixed(PLAIN[:1], then=((1, 7), (4, 5)))),
        ("length-code-286", "uses length code 286, which does not exist", _fixed(PLAIN, then=((0b11000110, 8),))),
        ("distance-code-30", "uses distance code 30, which does not exist", _fixed(PLAIN, then=((1, 7), (30, 5)))),
        ("no-end-of-block", "has no end-of-block code", _fixed(PLAIN)[:-2]),
        ("not-last", "is not marked as the last, but no block follows", b"\x00" + _stored_blocks(PLAIN)[1:]),
        ("stored-beyond", "is a stored block longer than the payload", b"\x01\xff\xff\x00\x00" + PLAIN),
        ("too-many-codes", "claims more length codes than exist", _dynamic(hlit=31)),
        ("code-lengths-oversubscribed", "has code lengths that form no valid tree", _dynamic(lengths=(1, 1, 1, 1))),
        ("no-code-lengths", "defines no code at all", _dynamic(lengths=(0, 0, 0, 0))),
    )
    for slug, what, deflate in cases:
        made.flag("DeflateBroken").invalid(
            f"deflate-{slug}", f"the deflate block {what}", gzip_member(PLAIN, deflate=deflate), budget=SMALL
        )


def _dynamic(*, hlit: int = 0, lengths: tuple[int, ...] = (1, 1, 0, 0)) -> bytes:
    """The start of a block with dynamic Huffman codes; ``lengths`` is for the code length codes 16, 17, 18 and 0."""
    bits = Bits()
    bits.write(0b101, 3)
    bits.write(hlit, 5)
    bits.write(0, 5)
    bits.write(0, 4)
    for length in lengths:
        bits.write(length, 3)
    return bits.done() + bytes(20)


# --- members --------------------------------------------------------------------------------------------------------


def _members(made: Streams) -> None:
    gzip_members = made.flag("GzipMembers")
    thirds = [PLAIN[: HALF // 2], PLAIN[HALF // 2 : HALF], PLAIN[HALF:]]
    cases = (
        ("three-members", "three members, each with a part of the records", b"".join(map(gzip_member, thirds))),
        ("empty-member-last", "an empty member follows the one with the records", MEMBER + gzip_member(b"")),
        ("empty-member-between", "an empty member between two others", _around(gzip_member(b""))),
        (
            "members-of-several-headers",
            "two members; the second one has a name and a comment",
            gzip_member(PLAIN[:HALF]) + gzip_member(PLAIN[HALF:], flags=NAME | COMMENT, fields=b"n\x00c\x00"),
        ),
    )
    for slug, summary, stream in cases:
        gzip_members.valid(slug, summary, stream)
    second = gzip_member(PLAIN[HALF:])
    broken = (
        ("second-member-cut", "the second member ends within its deflate stream", second[:-20]),
        ("second-member-crc-wrong", "the second member's CRC is wrong", gzip_member(PLAIN[HALF:], crc=1)),
        ("second-member-size-wrong", "the second member's size is wrong", gzip_member(PLAIN[HALF:], size=1)),
    )
    for slug, summary, rest in broken:
        gzip_members.invalid(slug, f"two members; {summary}", gzip_member(PLAIN[:HALF]) + rest)
    # Java's GZIPInputStream ends the stream at a tail that is not a valid member header.
    tails = (
        ("magic", "are only the magic of another member", b"\x1f\x8b", True),
        ("header-cut", "are another member's header without its last byte", second[:9], True),
        ("method-wrong", "are another member with compression method 7", gzip_member(PLAIN, method=7), True),
        ("magic-wrong", "are another member with a wrong first byte", b"\x1e" + second[1:], True),
        ("junk-long", "are 40 times the same four bytes", JUNK * 40, True),
    )
    for slug, what, tail, accepted in tails:
        add = made.acceptable if accepted else made.invalid
        add(
            f"tail-{slug}",
            f"the bytes after the last member {what}",
            MEMBER + tail,
            requirements=["RB-GZIP-1", "RB-CODEC-2"],
            flags=["GzipTail"],
            finding="bytes-after-compressed-stream" if accepted else "decompression-failed",
        )


def _around(middle: bytes) -> bytes:
    return gzip_member(PLAIN[:HALF]) + middle + gzip_member(PLAIN[HALF:])


def _cuts(made: Streams) -> None:
    cases = (
        ("behind-magic", "after the magic", 2),
        ("behind-flags", "after the flags", 4),
        ("behind-header", "after the header", HEADER_BYTES),
        ("in-block-header", "within the stored block's header", HEADER_BYTES + 3),
        ("behind-block-header", "after the stored block's header", HEADER_BYTES + 5),
        ("behind-first-record", "after the first record", HEADER_BYTES + 5 + PLAIN[0] // 2 + 1),
        ("behind-crc", "after the trailer's CRC", len(MEMBER) - 4),
    )
    for slug, where, size in cases:
        made.flag("GzipCut").invalid(f"cut-{slug}", f"the stream ends {where}", MEMBER[:size])
