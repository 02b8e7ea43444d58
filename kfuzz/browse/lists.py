"""Lists and bytes that draw only what is on the screen, so that their length does not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

if TYPE_CHECKING:
    from textual.events import Click
    from typing_extensions import Buffer

BYTES_PER_LINE: Final = 16
# Offset, two spaces, the bytes, two spaces, the bytes as text.
ADDRESS: Final = 8 + 2
HEX: Final = 3 * BYTES_PER_LINE
WIDTH: Final = ADDRESS + HEX + 1 + BYTES_PER_LINE


class Lines(ScrollView, can_focus=True):
    """Lines of text, one of which is under the cursor. ``line`` makes one when it is drawn."""

    BINDINGS: ClassVar = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home", "jump(0)", "first", show=False),
        Binding("end", "jump(-1)", "last", show=False),
    ]

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, lines: Lines, index: int) -> None:
            super().__init__()
            self.lines = lines
            self.index = index

        @property
        def control(self) -> Lines:
            return self.lines

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = title
        self.cursor = 0
        self._count = 0
        self._line: Callable[[int], Text] = lambda index: Text()

    def show(self, count: int, line: Callable[[int], Text], cursor: int = 0) -> None:
        """Show other lines, with the cursor on one of them."""
        self._line = line
        self.cursor = -1
        self.grow(count)
        self.scroll_to(0, 0, animate=False)
        self.move_to(cursor)

    def grow(self, count: int) -> None:
        """There are more lines."""
        self._count = count
        self.virtual_size = Size(1, count)
        self.refresh()

    def move_to(self, index: int) -> None:
        """Put the cursor on a line, and scroll to it."""
        index = max(0, min(index, self._count - 1))
        if index == self.cursor or not self._count:
            return
        self.cursor = index
        self.scroll_to_region(Region(0, index, 1, 1), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved(self, index))

    def action_move(self, by: int) -> None:
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        self.move_to(self.cursor + by * max(1, self.scrollable_content_region.height - 1))

    def action_jump(self, to: int) -> None:
        self.move_to(to if to >= 0 else self._count - 1)

    def on_click(self, event: Click) -> None:
        """Move the cursor to the line that was clicked."""
        place = event.get_content_offset(self)
        if place is not None:
            self.move_to(place.y + self.scroll_offset.y)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = self.scroll_offset.y + y
        if index >= self._count:
            return Strip.blank(width, self.rich_style)
        text = self._line(index)
        strip = Strip(list(text.render(self.app.console)), text.cell_len).crop(0, width)
        style = self.rich_style
        if index == self.cursor:
            style += Style(reverse=True) if self.has_focus else Style(bold=True, underline=True)
        return strip.extend_cell_length(width).apply_style(style)


class Bytes(ScrollView, can_focus=True):
    """Bytes, sixteen in a line, with the field under the cursor marked."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = "Bytes"
        self._data = memoryview(b"")
        self._at = 0
        self._marked = (0, 0)

    def show(self, data: Buffer, at: int, marked: tuple[int, int]) -> None:
        """Show ``data``, whose first byte is number ``at``; mark the bytes of a range of numbers, and scroll there."""
        self._data = memoryview(data)
        self._at = at
        self._marked = marked
        self.virtual_size = Size(WIDTH, -(-len(self._data) // BYTES_PER_LINE))
        line = (marked[0] - at) // BYTES_PER_LINE
        self.scroll_to_region(Region(0, line, 1, 1), animate=False, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        first = (self.scroll_offset.y + y) * BYTES_PER_LINE
        if first >= len(self._data):
            return Strip.blank(width, self.rich_style)
        piece = bytes(self._data[first : first + BYTES_PER_LINE])
        start, end = (place - self._at - first for place in self._marked)
        marks = [start <= i < end for i in range(len(piece))]
        segments = [Segment(f"{self._at + first:08x}  ")]
        segments += _marked([f"{byte:02x}" for byte in piece], marks, " ")
        segments.append(Segment(" " * (HEX - 3 * len(piece) + 1)))
        segments += _marked([chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in piece], marks, "")
        return Strip(segments).crop(0, width).extend_cell_length(width).apply_style(self.rich_style)


def _marked(texts: Sequence[str], marks: Sequence[bool], gap: str) -> list[Segment]:
    """The texts with gaps between them. Marked texts are shown in reverse, and so are the gaps between two of them."""
    style = Style(reverse=True, bold=True)
    segments = []
    for i, (text, is_marked) in enumerate(zip(texts, marks, strict=True)):
        segments.append(Segment(text, style if is_marked else None))
        goes_on = is_marked and i + 1 < len(marks) and marks[i + 1]
        segments.append(Segment(gap, style if goes_on else None))
    return segments
