"""The browser, driven by its keys: what is on the screen, where a search leads, what a field means."""

from __future__ import annotations

import asyncio
import html
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_driver import kfuzz
from made_segments import bad
from textual.widgets import Static

from kfuzz import records
from kfuzz.annotate.killing import KillingField
from kfuzz.annotate.parts import Part
from kfuzz.browse import document as documents
from kfuzz.browse.app import Browser, Words
from kfuzz.browse.document import Batches, Document, Message, place_of
from kfuzz.browse.meanings import meaning_of
from kfuzz.errors import UsageError
from kfuzz.messages.catalogues import catalogue, newest
from kfuzz.records import CODECS, Record, RecordBatch
from kfuzz.vectors import find_vector, load_suite

WIDE = (180, 45)
# Enough where a test asks for the cursor: a large screen takes longer to draw.
SMALL = (80, 24)


def batch(offset: int, compression: str = "none") -> bytes:
    made = [Record(offset + i, 1_700_000_000_000, b"key-%d" % i, b"value", [(b"name", b"h")]) for i in range(3)]
    return records.encode_batch(RecordBatch(offset, offset + 2, made, compression=compression))


GOOD = batch(0)
SEGMENT = GOOD + batch(3, "gzip") + bad(batch(6)) + batch(9) + bad(batch(12))
BAD_ROWS = (2, 4)


@dataclass
class Seen:
    """The parts of the screen that a person sees."""

    row: int
    field: str
    meaning: str
    status: str
    screen: str
    page: str = ""


def browse(document: Document, keys: Sequence[str] = (), *, place: str = "", size: tuple[int, int] = WIDE) -> Seen:
    """Press the keys, and return what the browser shows. A key in quotes is a text to type."""
    app = Browser(document, place)

    async def drive() -> Seen:
        async with app.run_test(size=size) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            for key in keys:
                await pilot.press(*(key.strip("'") if key.startswith("'") else [key]))
                await pilot.pause()
            part = app.page.parts[app.fields.cursor] if app.page.parts else None
            page = app.screen.query_one(Static).render() if isinstance(app.screen, Words) else ""
            below = app.screen_stack[0]
            return Seen(
                app.batches.cursor,
                "" if part is None else part.field or part.path,
                str(below.query_one("#meaning", Static).render()),
                str(below.query_one("#status", Static).render()),
                html.unescape(re.sub(r"<[^>]*>", "", app.export_screenshot())).replace("\xa0", " "),
                str(page),
            )

    return asyncio.run(drive())


# ------------------------------------------------------------------------------------------------- what is shown


def test_batches_fields_bytes_and_the_meaning_stand_side_by_side() -> None:
    seen = browse(Batches("a.log", SEGMENT), ["tab", "down"])
    assert seen.status == f"a.log: {len(SEGMENT)} bytes, 5 batches, 2 refused"
    assert seen.field == "base_offset"
    assert "The offset of the first record." in seen.meaning
    assert "byte 0 (0x0), 8 bytes: 00 00 00 00 00 00 00 00" in seen.meaning
    for text in ("0 to 2", "gzip", "!       2", "batch_length: ", "key: 'key-0'", "00000010  "):
        assert text in seen.screen, text


def test_the_bytes_of_a_field_in_a_compressed_payload_are_those_of_the_payload() -> None:
    page = Batches("", SEGMENT)
    assert list(page.load()) == []
    opened = page.open(1)
    index = next(i for i, part in enumerate(opened.parts) if part.field == "key")
    inside, first = opened.bytes_around(index)
    part = opened.parts[index]
    assert first == 0
    assert bytes(inside)[part.at : part.at + len(part.data)] == b"key-0"
    outside, first = opened.bytes_around(1)
    assert (bytes(outside), first) == (SEGMENT[len(GOOD) : len(GOOD) + opened.data.nbytes], len(GOOD))


@pytest.mark.parametrize("codec", CODECS)
def test_a_payload_is_whole(codec: str) -> None:
    document = Batches("", find_vector(f"records/v2/codec/{codec}").data if codec != "none" else GOOD)
    assert list(document.load()) == []
    page = document.open(0)
    for index, part in enumerate(page.parts):
        data, first = page.bytes_around(index)
        assert bytes(data)[part.at - first : part.at - first + len(part.data)] == part.data


def test_a_batch_with_a_finding_opens_there_and_says_it() -> None:
    seen = browse(Batches("a.log", SEGMENT), ["down", "down"])
    assert seen.row == 2
    assert seen.field == "crc"
    assert seen.meaning.startswith("fatal: batch[2].crc")
    assert "[crc-mismatch]" in seen.meaning


def test_one_batch_has_no_list() -> None:
    assert "Batches" not in browse(Batches("a.log", GOOD)).screen
    assert "Batches" in browse(Batches("a.log", SEGMENT)).screen


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (147, 40), (200, 50)])
def test_all_of_it_has_room_in_a_narrow_terminal(size: tuple[int, int]) -> None:
    screen = browse(Batches("a.log", SEGMENT), size=size).screen
    for text in ("Batches", "Fields", "Bytes", "0 to 2", "base_offset: 0", "00000010  "):
        assert text in screen, text


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_shows_how_many_records_a_batch_has(width: int) -> None:
    made = [Record(1_000_000 + i, 1, b"k", b"v") for i in range(4321)]
    data = GOOD + records.encode([RecordBatch(1_000_000, 1_004_320, made)])
    assert re.search(r" 1000000 (…|to 1004320) *4321\b", browse(Batches("a.log", data), size=(width, 24)).screen)


def test_a_payload_with_very_many_records_is_cut_and_its_bytes_are_whole() -> None:
    made = [Record(i, 1, b"k", b"v%d" % i) for i in range(5000)]
    document = Batches("a.log", records.encode([RecordBatch(0, 4999, made, compression="zstd")]))
    list(document.load())
    page = document.open(0)
    assert (page.parts[-1].left_out, page.is_cut) == (3000, False)
    data, _ = page.bytes_around(len(page.parts) - 1)
    assert b"v4999" in bytes(data)


def test_bytes_that_are_no_batch_are_one_line() -> None:
    seen = browse(Batches("a.log", GOOD + bytes(99) + GOOD + GOOD[:70]), ["down"])
    assert "cannot be read: 99 bytes" in seen.screen
    assert "a partial tail: 70 bytes" in seen.screen
    assert seen.meaning.startswith("fatal: batch[1].batch_length")
    assert browse(Batches("a.log", b"")).meaning == "There are no bytes."


def test_the_fields_of_a_message_say_their_type_and_versions() -> None:
    vector = find_vector("messages/counts/fetch-request-v18-huge")
    document = Message(vector.id, vector.data, newest("FetchRequest", 18), 18)
    seen = browse(document)
    # The wrong field comes first.
    assert seen.field == "rest"
    assert "count-exceeds-message" in seen.meaning
    seen = browse(document, ["home", "down"])
    assert seen.field == "maxWaitMs"
    assert "A field of type int32, in versions 0+" in seen.meaning


def test_the_field_that_kills_is_marked() -> None:
    document = Batches("a crash", GOOD)
    document.kills = [KillingField("batch[0].record_count", 57, 4)]
    seen = browse(document)
    assert seen.field == "record_count"
    assert "Without this field the input does no harm." in seen.meaning
    assert re.search(r"†\s+record_count: 3", seen.screen)


def test_long_documents_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCHES_MAX", 2)
    assert "the first 2 batches" in browse(Batches("a.log", SEGMENT)).status
    monkeypatch.setattr(documents, "PARTS_MAX", 5)
    document = Batches("a.log", SEGMENT)
    list(document.load())
    page = document.open(0)
    assert (len(page.parts), page.is_cut) == (5, True)


# ------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("typed", "row", "field"),
    [
        pytest.param("4", 1, "batch[1]", id="offset"),
        pytest.param(f"@{len(GOOD) + 8}", 1, "batch_length", id="byte"),
        pytest.param(f"{len(GOOD) + 8:#x}", 1, "batch_length", id="byte-hex", marks=pytest.mark.full),
        pytest.param("crc", BAD_ROWS[0], "crc", id="finding"),
    ],
)
def test_a_search_opens_the_batch(typed: str, row: int, field: str) -> None:
    seen = browse(Batches("a.log", SEGMENT), ["slash", f"'{typed}'", "enter"], size=SMALL)
    assert (seen.row, seen.field) == (row, field)
    begun = browse(Batches("a.log", SEGMENT), place=typed, size=SMALL)
    assert (begun.row, begun.field) == (row, field)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("99", "no batch holds offset 99"),
        ("@99999", f"byte 99999 is not in a batch; the data has {len(SEGMENT)} bytes"),
        ("nonsense", "no batch has a finding with 'nonsense' in its code"),
    ],
)
def test_a_search_that_leads_nowhere_is_a_sentence(typed: str, words: str) -> None:
    seen = browse(Batches("a.log", SEGMENT), ["slash", f"'{typed}'", "enter"], size=SMALL)
    assert (seen.row, seen.status) == (0, words)


def test_a_search_continues_after_the_row_and_then_from_the_first_one() -> None:
    document = Batches("a.log", SEGMENT)
    list(document.load())
    assert [place_of("crc", document, after).row for after in (-1, 2, 3, 4)] == [2, 4, 4, 2]


@pytest.mark.full
def test_n_and_p_go_from_finding_to_finding() -> None:
    document = Batches("a.log", SEGMENT)
    assert browse(document, ["n"]).row == 2
    assert browse(Batches("a.log", SEGMENT), ["n", "n"]).row == 4
    assert browse(Batches("a.log", SEGMENT), ["n", "n", "p"]).row == 2
    last = browse(Batches("a.log", SEGMENT), ["n", "n", "n"])
    assert (last.row, last.status) == (4, "no finding after this one")
    assert browse(Batches("a.log", SEGMENT), ["p"]).status == "no finding before this one"


@pytest.mark.full
def test_e_explains_the_finding() -> None:
    seen = browse(Batches("a.log", SEGMENT), ["n", "e"])
    assert "crc-mismatch: a finding of record batches" in seen.page
    assert "What Apache Kafka does" in seen.page
    assert "n goes to the next one" in browse(Batches("a.log", SEGMENT), ["e"]).status
    assert browse(Batches("a.log", SEGMENT), ["n", "e", "escape"]).page == ""


@pytest.mark.full
def test_the_keys_are_explained_and_escape_ends_a_search() -> None:
    assert "the batch with this offset" in browse(Batches("a.log", SEGMENT), ["question_mark"]).page
    seen = browse(Batches("a.log", SEGMENT), ["slash", "'9'", "escape", "down"])
    assert seen.row == 1


@pytest.mark.parametrize("before", [[], ["slash"], ["question_mark"]], ids=["lists", "search", "help"])
def test_ctrl_c_ends_with_130(before: list[str]) -> None:
    app = Browser(Batches("a.log", SEGMENT))

    async def drive() -> None:
        async with app.run_test() as pilot:
            await app.workers.wait_for_complete()
            await pilot.press(*before, "ctrl+c")

    asyncio.run(drive())
    assert app.return_code == 130


def test_lists_move_by_lines_and_pages() -> None:
    many = Batches("a.log", b"".join(batch(3 * i) for i in range(200)))
    assert browse(many, ["end"]).row == 199
    many = Batches("a.log", b"".join(batch(3 * i) for i in range(200)))
    seen = browse(many, ["pagedown", "pagedown", "pageup", "down", "k", "j"])
    assert 20 < seen.row < 60
    assert f"{seen.row * 3} to {seen.row * 3 + 2}" in seen.screen


# ------------------------------------------------------------------------------------------------- meanings


@pytest.mark.full
def test_every_field_of_every_batch_vector_has_a_meaning() -> None:
    without = set()
    for vector in load_suite("records/*", kinds=("records",)):
        document = Batches("", vector.data)
        list(document.load())
        for row in range(len(document.rows)):
            page = document.open(row)
            # Records are many, and alike.
            kinds = {(re.sub(r"\d+", "", part.path), part.field): i for i, part in enumerate(page.parts)}
            for index in kinds.values():
                part = page.parts[index]
                if not meaning_of(part, page.magic_of(index)):
                    without.add((vector.id, part.field or part.path))
    assert without == set()


def test_every_field_of_a_message_has_a_meaning() -> None:
    for vector in load_suite("messages/*", kinds=("message",)):
        definition = newest(vector.options["message"], vector.options["version"])
        page = Message("", vector.data, definition, vector.options["version"]).open(0)
        for part in page.parts:
            if not part.heading and "unknown" not in part.path.casefold() + part.field.casefold():
                assert meaning_of(part, 2, definition), (vector.id, part.path, part.field)


def test_a_field_that_may_be_null_or_is_tagged_says_so() -> None:
    definition = catalogue().find("FetchRequest")
    document = Message("", b"", definition, 17)
    [part] = [part for part in document.open(0).parts if part.field]
    assert part.field == "rest"
    text = meaning_of(Part("FetchRequest", "clusterId", 0, b"", ""), 2, definition)
    assert "may be null" in text
    assert "tag 0" in text
    assert meaning_of(Part("FetchRequest", "noSuchField", 0, b"", ""), 2, definition) == ""


# ------------------------------------------------------------------------------------------------- the verb


def test_a_file_without_batches_is_named(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(bytes(8))
    assert "has no record batches; `kfuzz show" in kfuzz("browse", index, code=2).stderr


def test_without_textual_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    for name in [name for name in sys.modules if name.startswith(("textual.", "kfuzz.browse."))]:
        monkeypatch.delitem(sys.modules, name)
    assert "pip install 'kfuzz[browse]'" in kfuzz("browse", "records/v2/codec/gzip", code=2).stderr


def test_an_unknown_place_is_reported_in_the_browser() -> None:
    with pytest.raises(UsageError, match="no batch has a finding"):
        place_of("zzz", Batches("", GOOD))
