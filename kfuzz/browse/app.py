"""The browser: batches on the left, the fields of one in the middle, its bytes on the right, and below them what the
field under the cursor means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.markup import escape
from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Container, Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from kfuzz.annotate.listing import Entry, codec_name, time_text
from kfuzz.annotate.parts import Part
from kfuzz.browse.document import PARTS_MAX, Document, Message, Page, place_of
from kfuzz.browse.lists import Bytes, Lines
from kfuzz.browse.meanings import meaning_of
from kfuzz.errors import UsageError
from kfuzz.findings import Finding
from kfuzz.text import printable
from kfuzz.units import counted
from kfuzz.vectors.explaining import Book, Line, page

# From so many columns on, a row of the list of batches has its codec.
WIDE: Final = 44
HELP: Final = """\
[b]Moving[/b]
  ↑ ↓ PgUp PgDn Home End   move in a list; j and k too
  Tab, Shift+Tab           next list, the list before
  n, p                     next finding, the finding before, in all batches

[b]Searching[/b]: / and then
  4711                     the batch with this offset
  0x88 or @136             the batch with this byte, and its field
  crc                      the next batch with a finding whose code has this in it

[b]Explaining[/b]
  e                        what the findings under the cursor are, what Apache Kafka does, and the vectors about them

  q                        leave

Marks: ! refused, ~ a deviation, † a field that kills.
Offsets inside a compressed batch count from its decompressed payload."""


class Words(ModalScreen[None]):
    """A page of text over the browser."""

    BINDINGS: ClassVar = [Binding("escape,q,enter,question_mark,e", "dismiss", "close")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="words") as scroll:
            scroll.border_subtitle = "Esc closes"
            yield Static(self._text)


class Browser(App[None]):
    """Browse ``document``. ``place`` is what to look for first, as a person would type it."""

    TITLE = "kfuzz browse"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "app.css"
    BINDINGS: ClassVar = [
        Binding("slash", "search", "search", key_display="/"),
        Binding("n", "finding(1)", "next finding"),
        Binding("p", "finding(-1)", "finding before"),
        Binding("e", "explain", "explain"),
        Binding("question_mark", "help", "keys", key_display="?"),
        Binding("q", "quit", "leave"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("escape", "close_search", "close", show=False),
    ]
    # The exit code that a shell takes for Ctrl-C.
    INTERRUPTED: Final = 130
    # Below this width, the bytes have no room beside the fields, and are shown under them.
    NARROW: Final = 150

    def __init__(self, document: Document, place: str = "") -> None:
        super().__init__()
        self.document = document
        self.page = Page((), {}, memoryview(b""), 0)
        self._place = place
        self._row = -1

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Lines("Batches", id="batches")
            with Container(id="opened"):
                yield Lines("Fields", id="fields")
                yield Bytes(id="bytes")
        with VerticalScroll(id="about", can_focus=False) as about:
            about.border_title = "Field"
            yield Static("", id="meaning")
        yield Static("", id="status")
        yield Input(placeholder="offset, 0x or @ and a byte, or a finding's code", id="search")
        yield Footer()

    def on_mount(self) -> None:
        self.batches.show(0, self._batch_line)
        self.on_resize()
        if isinstance(self.document, Message):
            self.add_class("single")
            self._loaded()
        else:
            self._load()

    def on_resize(self) -> None:
        self.set_class(self.size.width < self.NARROW, "narrow")

    @property
    def batches(self) -> Lines:
        """The list of batches."""
        return self.query_one("#batches", Lines)

    @property
    def fields(self) -> Lines:
        """The list of fields."""
        return self.query_one("#fields", Lines)

    # --------------------------------------------------------------------------------------------- loading

    @work(thread=True, exclusive=True)
    def _load(self) -> None:
        """List the batches. The first ones can be looked at meanwhile."""
        worker = get_current_worker()
        for size in self.document.load():
            if worker.is_cancelled:
                return
            self.call_from_thread(self._grow, size)
        self.call_from_thread(self._loaded)

    def _grow(self, size: int) -> None:
        self._list_grows()
        share = 100 * size // max(self.document.size, 1)
        self._say(f"{self.document.title}: {len(self.document.rows):,} batches, {share} % read")

    def _loaded(self) -> None:
        self._list_grows()
        count = len(self.document.rows)
        refused = sum(entry.is_refused for entry in self.document.rows)
        text = f"{self.document.title}: {counted(self.document.size, 'byte')}"
        if not isinstance(self.document, Message):
            left = self.document.bytes_left
            text += f", {'the first ' if left else ''}{counted(count, 'batch', 'batches')}, {refused:,} refused"
            text += f"; {left:,} bytes follow, kfuzz show lists them" if left else ""
            self.set_class(count == 1, "single")
        self._say(text)
        if not count:
            self.query_one("#meaning", Static).update("There are no bytes.")
        if self._place:
            self._find(self._place)
        (self.fields if self.has_class("single") else self.batches).focus()

    def _list_grows(self) -> None:
        self.batches.grow(len(self.document.rows))
        if self._row < 0 and self.document.rows:
            self.batches.move_to(0)

    def _say(self, text: str) -> None:
        self.query_one("#status", Static).update(escape(printable(text)))

    # --------------------------------------------------------------------------------------------- what is shown

    def _batch_line(self, index: int) -> Text:
        entry = self.document.rows[index]
        return Text(f"{_sign(entry.findings)} {_row_text(entry, self.batches.scrollable_content_region.width - 2)}")

    def _field_line(self, index: int) -> Text:
        part = self.page.parts[index]
        mark = "†" if index in self.page.killing else _sign(self.page.findings.get(index, ()))
        name = part.field or part.path.rpartition(".")[2]
        shown = f"… {part.value}" if part.left_out else printable(f"{name}: {part.value}")
        return Text(
            f"{mark} {'  ' * part.depth}{shown}",
            style="bold" if part.heading else "",
            no_wrap=True,
            end="",
        )

    @on(Lines.Moved, "#batches")
    def _open(self, event: Lines.Moved) -> None:
        # The cursor may be elsewhere by now: a search opens a batch at once, at a field of its own.
        if event.lines.cursor != self._row:
            self._open_row(event.lines.cursor)

    def _open_row(self, row: int, field: int = 0) -> None:
        if row == self._row:
            self.fields.move_to(field)
            return
        self._row = row
        self.page = self.document.open(row)
        if not field:
            # Findings come first.
            field = next(iter(sorted(self.page.killing) or sorted(self.page.findings)), 0)
        self.fields.border_subtitle = f"the first {PARTS_MAX:,} fields" if self.page.is_cut else ""
        self.fields.show(len(self.page.parts), self._field_line, field)

    @on(Lines.Moved, "#fields")
    def _show_field(self, event: Lines.Moved) -> None:
        if event.index >= len(self.page.parts):
            return
        part = self.page.parts[event.index]
        data, first = self.page.bytes_around(event.index)
        self.query_one("#bytes", Bytes).show(data, first, (part.at, part.at + part.size))
        self.query_one("#about", VerticalScroll).border_title = escape(printable(part.name))
        self.query_one("#meaning", Static).update(escape("\n".join(map(printable, self._about(event.index, part)))))

    def _about(self, index: int, part: Part) -> list[str]:
        size = part.size
        hexes = part.data[:24].hex(" ") + (" …" if size > 24 else "")
        place = f"byte {part.at:,} ({part.at:#x}), {counted(size, 'byte')}: {hexes}" if size else ""
        entry = self.document.rows[self._row]
        definition = self.document.definition if isinstance(self.document, Message) else None
        meaning = meaning_of(part, self.page.magic_of(index), definition)
        if not index and entry.max_timestamp != -1:
            meaning += f" {time_text(entry)}"
        kills = ["Without this field the input does no harm."] if index in self.page.killing else []
        found = [f"{one.severity}: {one}" for one in self.page.findings.get(index, ())]
        return [line for line in (*found, *kills, f"{part.value}", meaning, place) if line]

    # --------------------------------------------------------------------------------------------- actions

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.add_class("open")
        search.value = ""
        search.focus()

    def action_close_search(self) -> None:
        search = self.query_one("#search", Input)
        if search.has_class("open"):
            search.remove_class("open")
            (self.fields if self.has_class("single") else self.batches).focus()

    @on(Input.Submitted, "#search")
    def _searched(self, event: Input.Submitted) -> None:
        self.action_close_search()
        if event.value.strip():
            self._find(event.value)

    def _find(self, text: str) -> None:
        try:
            place = place_of(text, self.document, self._row)
        except UsageError as error:
            self._say(str(error))
            self.bell()
            return
        self._go_to(place.row, place.at, place.code)

    def _go_to(self, row: int, at: int | None = None, code: str | None = None) -> None:
        self.batches.move_to(row)
        self._open_row(row)
        field = self.fields.cursor
        if at is not None:
            field = self.page.part_at(at)
        elif code is not None:
            field = next((i for i, found in self.page.findings.items() if code in {one.code for one in found}), field)
        self._open_row(row, field)

    def action_finding(self, step: int) -> None:
        """Go to the next part with a finding: in this batch, or else in the next batch that has one."""
        here = sorted(self.page.findings)
        cursor = self.fields.cursor
        inside = [i for i in here if (i > cursor if step > 0 else i < cursor)]
        if inside:
            self.fields.move_to(inside[0] if step > 0 else inside[-1])
            return
        rows = range(self._row + 1, len(self.document.rows)) if step > 0 else range(self._row - 1, -1, -1)
        for row in rows:
            if self.document.rows[row].findings:
                self._go_to(row)
                marked = sorted(self.page.findings)
                if marked:
                    self.fields.move_to(marked[0] if step > 0 else marked[-1])
                return
        self._say(f"no finding {'after' if step > 0 else 'before'} this one")
        self.bell()

    def action_explain(self) -> None:
        """Explain the findings under the cursor as `kfuzz explain` does."""
        codes = dict.fromkeys(one.code for one in self.page.findings.get(self.fields.cursor, ()))
        if not codes:
            self._say("the field under the cursor has no finding; n goes to the next one")
            return
        book = Book()
        pages = [page(one) for code in codes for one in book.explain(code)]
        self.push_screen(Words("\n\n".join("\n".join(map(_markup, lines)) for lines in pages)))

    def action_interrupt(self) -> None:
        self.exit(return_code=self.INTERRUPTED)

    def action_help(self) -> None:
        self.push_screen(Words(HELP))


def _sign(findings: Sequence[Finding]) -> str:
    """The mark of a line: refused, a deviation, or nothing."""
    if not findings:
        return " "
    return "!" if any(one.severity == "fatal" for one in findings) else "~"


def _row_text(entry: Entry, width: int) -> str:
    """Number, offsets, count of records and codec. A row with fewer columns lacks the codec, then the last offset."""
    number = f"{entry.number:>7} " if width >= WIDE else f"{entry.number:>4}"
    if entry.kind != "batch":
        what = "cannot be read" if entry.kind == "unreadable" else "a partial tail"
        return f"{number} {what}: {entry.size:,} bytes"
    count = f" {entry.records:>7}" if width >= WIDE else f" {entry.records}"
    count += f"  {codec_name(entry.attributes):<6}" if width >= WIDE else ""
    offsets = f"{entry.base_offset} to {entry.last_offset}" if entry.records != 1 else str(entry.base_offset)
    room = width - len(number) - 1 - len(count)
    if len(offsets) > room:
        offsets = f"{entry.base_offset} …"
    return f"{number} {offsets:<{max(room, 0)}}{count}"


def _markup(line: Line) -> str:
    text = " " * line.columns + escape(line.text)
    return f"[b]{text}[/b]" if line.is_heading else text
