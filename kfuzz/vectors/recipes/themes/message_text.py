"""Texts that are not UTF-8, and texts that are unusual UTF-8."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.message import Body, body
from kfuzz.vectors.recipes.theme import Theme

TEXT = ["MSG-STRING-1"]
GOOD = (
    ("null-character", "a null character", b"a\x00b"),
    ("two-bytes", "a letter of two bytes", "é".encode()),
    ("three-bytes", "a letter of three bytes", "漢".encode()),
    ("four-bytes", "a letter of four bytes", "\U0001f600".encode()),
    ("byte-order-mark", "a byte order mark, which is part of the text", "\ufeffa".encode()),
    ("combining", "a letter and a separate accent, which must stay separate", "e\u0301".encode()),
)
BAD = (
    ("continuation", "a continuation byte without a first byte", b"a\x80b"),
    ("cut-two", "a truncated letter of two bytes", b"a\xc3"),
    ("cut-three", "a truncated letter of three bytes", b"a\xe6\xbc"),
    ("cut-four", "a truncated letter of four bytes", b"a\xf0\x9f\x98"),
    ("overlong-two", "a slash encoded in two bytes", b"\xc0\xaf"),
    ("overlong-three", "a slash encoded in three bytes", b"\xe0\x80\xaf"),
    ("surrogate", "half of a surrogate pair", b"\xed\xa0\x80"),
    ("surrogate-pair", "a surrogate pair in six bytes, as in Java's modified UTF-8", b"\xed\xa0\xbd\xed\xb8\x80"),
    ("modified-null", "a null character in two bytes, as in Java's modified UTF-8", b"\xc0\x80"),
    ("beyond-unicode", "a number above the last Unicode code point", b"\xf4\x90\x80\x80"),
    ("never", "the byte ff, which never occurs in UTF-8", b"a\xffb"),
    ("latin-one", "a letter in Latin-1", b"caf\xe9"),
)


def theme() -> Theme:
    """The recipes of ``vectors/messages/text.json``."""
    made = Theme("messages/text", "Contents of texts. Kafka reads U+FFFD for bytes that are not UTF-8.", "message")
    for name, version, path in (("MetadataRequest", 1, "topics[0].name"), ("CreateTopicsRequest", 7, "topics[0].name")):
        whole = body(name, version)
        for slug, about, data in GOOD:
            _add(made, whole, path, slug, about, data, None)
        for slug, about, data in BAD:
            _add(made, whole, path, slug, about, data, "string-not-utf8")
    return made


def _add(made: Theme, whole: Body, path: str, slug: str, about: str, data: bytes, finding: str | None) -> None:
    length = whole.place("length", path)
    made.named(
        f"{slug}",
        f"the topic's name has {about}",
        whole.broken(length, whole.number(length, len(data)), finding, after=data + whole.after(length)),
        requirements=TEXT,
    )
