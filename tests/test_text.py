"""Text from others: taken in, printed, and used in names of files."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfuzz.text import FOREIGN_BYTES_MAX, file_name, foreign_text, json_printable, printable, shell_word

# Every character, also lone surrogates.
ANY_TEXT = st.text(st.characters())


@given(st.one_of(ANY_TEXT, st.binary(), st.integers(1, 3000).map("é\ud800".__mul__), st.none()))
def test_foreign_text_is_valid_unicode_of_bounded_size(value: object) -> None:
    assert len(foreign_text(value).encode()) <= FOREIGN_BYTES_MAX
    assert len(foreign_text(value, bytes_max=100).encode()) <= 100


def test_a_short_valid_text_stays_as_it_is() -> None:
    assert foreign_text("größer: 漢字\n\x1b") == "größer: 漢字\n\x1b"


@pytest.mark.parametrize("value", ["A" * 5000, "é" * 5000, "\ud800" * 5000])
def test_a_cut_text_says_how_long_it_was(value: str) -> None:
    assert foreign_text(value).endswith("… (cut from 5000 characters)")


def test_bytes_that_are_not_utf_8_become_escapes() -> None:
    assert foreign_text(b"a\xff\x80") == "a\\xff\\x80"
    assert foreign_text(b"\xff" * 5000).endswith("… (cut from 5000 bytes)")


@given(ANY_TEXT)
def test_a_printable_text_is_one_line_that_any_output_takes(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode()
    if text.isprintable():
        assert shown == text


def test_a_byte_of_a_file_name_that_is_not_utf_8_is_shown_as_a_byte() -> None:
    assert printable(b"bad\xff-0".decode("utf-8", "surrogateescape")) == "bad\\xff-0"


@pytest.mark.parametrize("name", [b"bad\xff0", b"it's\n\x1b[2J\\", "é\u202e b".encode(), b"my causes", b"plain"])
def test_a_word_of_a_command_can_be_pasted_from_a_terminal(name: bytes) -> None:
    word = shell_word(os.fsdecode(name))
    assert printable(word) == word
    assert subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True).stdout == name


@given(st.dictionaries(ANY_TEXT, ANY_TEXT))
def test_a_printable_document_has_the_same_contents(value: dict[str, str]) -> None:
    shown = json_printable(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(shown) == value
    assert shown.replace("\n", "").isprintable()


@given(ANY_TEXT)
def test_a_file_name_is_one_component_in_its_folder(text: str) -> None:
    name = file_name(text)
    assert name.isascii()
    assert name.isprintable()
    assert name[0] != "."
    assert "/" not in name
    assert len(name) <= 100
