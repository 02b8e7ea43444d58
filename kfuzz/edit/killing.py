"""Finds the fields that kill: those whose bytes an input needs to break something in the way that it does.

:func:`killing_fields` replaces one field at a time by an ordinary value, repairs lengths and CRCs as far as they were
right, and asks whether the changed input still breaks in the same way. Equal inputs and equal answers give equal
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final, Literal

from kfuzz.annotate.killing import KillingField
from kfuzz.annotate.messages import walk
from kfuzz.annotate.parts import uvarint_size
from kfuzz.edit.tree import RIGHT, Change, Changes, Form, Message, Node, tree_of
from kfuzz.kafka import INT32_MAX
from kfuzz.messages.model import Definition
from kfuzz.records.codecs import compress
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, CODEC_MASK, HEADER_AT, LOG_OVERHEAD, MAGIC_AT
from kfuzz.wire.records.message_set import encode_message, parse_message
from kfuzz.wire.records.record_batch import parse_header, parse_places

# A part without a meaning (a broken payload, bytes that are no record) is searched byte by byte up to this length.
OPAQUE_BYTES_MAX: Final = 256
FORMS: Final[tuple[Form, ...]] = ("uvarint", "fixed")
TRIES_MAX: Final = 1500
# Lengths and counts at which the reader stops; another value of any other field would not make it go on.
STOPS: Final = frozenset({"batch_length", "magic", "key_length", "value_length", "header_count", "length"})
# The order in which fields are named: what contradicts the other bytes, then unusual numbers, then contents. Only if
# none of them is found: bytes without a known meaning, one by one, and then a whole payload.
LIE, NUMBER, CONTENT, BYTES, WHOLE = range(5)
STAGES: Final = ((LIE, NUMBER, CONTENT), (BYTES,), (WHOLE,))
# A field at which a reader stops: its name, where it is, and other bytes for it.
_Stop = tuple[str, int, list[bytes]]


@dataclass(frozen=True, slots=True)
class _Edit:
    """One change of one field. ``is_plain``: the new value is an ordinary one, and the old one is not."""

    field: KillingField
    tier: int
    is_plain: bool
    changes: Changes


def killing_fields(
    data: bytes, breaks: Callable[[bytes], bool], message: Message | None = None
) -> tuple[KillingField, ...]:
    """The fields without which ``data`` does not break in the same way, the most telling one first; empty if there are
    none.

    ``breaks`` tells whether an input breaks in that way; it must be true for ``data``. ``data`` holds record batches,
    or the bytes of ``message``, without a header.

    Each field alone is enough to make it go away. If no single one is, the result is a smallest set of fields that
    does so together. A field that is as in an ordinary batch is named only if no other field is.
    """
    tree = tree_of(data, message)
    asked = 0
    answers: dict[bytes, bool] = {}

    def goes_away(edits: Sequence[_Edit]) -> bool:
        nonlocal asked
        changes: dict[Node, Change] = {}
        for node, change in (one for edit in edits for one in edit.changes.items()):
            patches = changes.get(node)
            changes[node] = patches | change if isinstance(patches, dict) and isinstance(change, dict) else change
        changed = tree.written(changes)
        if changed == data:
            return False
        if changed not in answers:
            if asked >= TRIES_MAX:
                return False
            asked += 1
            answers[changed] = not breaks(changed)
        return answers[changed]

    edits = list(_edits(tree, [] if message is None else list(_stops_of_message(*message, data))))
    for is_plain in (True, False):
        chosen = [edit for edit in edits if edit.is_plain is is_plain]
        for tiers in STAGES:
            of_tiers = [edit for edit in chosen if edit.tier in tiers]
            found = {edit.field: edit for edit in reversed(of_tiers) if goes_away([edit])}
            if found:
                return tuple(_ordered(found.values()))
            together = _together(of_tiers, goes_away) if is_plain else []
            if together:
                return tuple(_ordered(together))
    return ()


def _together(edits: Sequence[_Edit], goes_away: Callable[[Sequence[_Edit]], bool]) -> list[_Edit]:
    """A smallest set of edits of different fields that make it go away together; empty if even all do not."""
    needed = list({edit.field: edit for edit in reversed(edits)}.values())
    if not goes_away(needed):
        return []
    for edit in list(needed):
        fewer = [one for one in needed if one is not edit]
        if goes_away(fewer):
            needed = fewer
    return needed


def _ordered(edits: Iterable[_Edit]) -> Iterator[KillingField]:
    """The fields, the most telling one first. Neighbouring bytes of one opaque part become one field."""

    def rank(edit: _Edit) -> tuple[int, int, int, int]:
        inside = edit.field.field.count(".")
        return edit.tier, -inside, edit.field.size, edit.field.at

    fields: list[KillingField] = []
    for field in (edit.field for edit in sorted(edits, key=rank)):
        last = fields[-1] if fields else None
        if last is not None and last.field == field.field and last.at + last.size == field.at:
            fields[-1] = replace(last, size=last.size + field.size)
        else:
            fields.append(field)
    yield from fields


# --- changes of single fields ---------------------------------------------------------------------------------------


def _edits(tree: Node, stops: Sequence[_Stop]) -> Iterator[_Edit]:
    """All changes of single fields, in the order of the fields. ``stops`` are those of a message."""
    leaves = list(tree.leaves())
    of_message = [node for node in leaves if node.magic is None]
    last = {node for node, following in pairwise(of_message) if following.field == "rest"}
    for node in leaves:
        if node.kind == "rest":
            yield from _of_rest(node, stops)
        elif node.magic is None:
            yield from _of_message(node, node in last)
        else:
            yield from _of_batch(node)
        for one in chain(*node.items):
            if node.kind == "length" and one.kind == "contents":
                # The length, with the last byte of the contents left out.
                yield replace(_edit(node, LIE, False, RIGHT), changes={one: one.data[:-1]})


def _edit(node: Node, tier: int, is_plain: bool, new: bytes | Literal["right"]) -> _Edit:
    return _Edit(KillingField(node.name, node.at, len(node.data)), tier, is_plain, {node: new})


def _numbers(node: Node, tier: int, is_plain: bool, *numbers: int) -> Iterator[_Edit]:
    """Other numbers, written in as many bytes, so that nothing moves."""
    made = (node.padded(number) for number in numbers)
    yield from (_edit(node, tier, is_plain, new) for new in made if new is not None)


def _of_batch(node: Node) -> Iterator[_Edit]:
    """A field of a batch, of a record, or of a message of magic 0 or 1."""
    match node.kind:
        case "stream":
            yield _emptied(node)
        case "crc":
            yield _edit(node, LIE, True, RIGHT)
        case "size" if node.number != node.right:
            yield _edit(node, LIE, True, RIGHT)
        case "magic" if node.number != node.magic:
            yield _edit(node, LIE, True, bytes([node.magic or 0]))
        case "count":
            right = _readable(node) if node.field == "record_count" else max(node.number, 0)
            if node.number != right:
                yield from _numbers(node, LIE, True, right)
        case "contents":
            is_plain = node.data.strip(b"x\0") != b""
            yield from (_edit(node, CONTENT, is_plain, letter * len(node.data)) for letter in (b"x", b"\0", b"y"))
        case "length":
            # Null in place of empty and of other negative lengths, empty in place of null.
            if node.number <= 0:
                yield from _numbers(node, LIE, node.number < -1, 0 if node.number == -1 else -1)
        case "number":
            plain = node.ordinary
            if node.number != plain:
                # A batch without a payload, or whose codec does not exist, cannot have a codec.
                is_lie = node.field == "attributes" and (node.number ^ plain) & CODEC_MASK
                yield from _numbers(node, LIE if is_lie else NUMBER, True, plain)
            elif node.field != "attributes":
                yield from _numbers(node, NUMBER, False, plain + 1, plain - 1)


def _readable(count: Node) -> int:
    """How many records the batch holds, whatever it says; what it says if that cannot be known."""
    assert count.above is not None
    most = tree_of(count.above.written({count: count.encoded(INT32_MAX)}))
    found = most.parts[0].find("record_count")
    return count.number if found is None or any(one.kind == "rest" for one in most.leaves()) else found.right


def _emptied(stream: Node) -> _Edit:
    """A compressed payload that holds nothing but what its batch needs."""
    magic = stream.magic or 0
    plain = b"" if magic == 2 else encode_message(magic, 0, 0, 0, None, b"")
    return _edit(stream, WHOLE, True, compress(stream.codec, plain, magic=magic))


def _of_message(node: Node, is_last: bool) -> Iterator[_Edit]:
    """A part of a message outside of its record batches: zeros, and another value of as many bytes."""
    stepped = node.data[:-1] + bytes([node.data[-1] ^ 1])
    if node.kind in ("value", "contents"):
        if any(node.data):
            yield _edit(node, NUMBER, True, bytes(len(node.data)))
        yield _edit(node, NUMBER, False, stepped)
    # The message cannot be read beyond the last of its fields, so its value moves nothing.
    elif is_last or node.kind == "tag":
        yield _edit(node, LIE, is_last, bytes(len(node.data)))
        yield _edit(node, LIE, False, stepped)


# --- bytes without a known meaning ----------------------------------------------------------------------------------


def _of_rest(node: Node, of_message: Sequence[_Stop]) -> Iterator[_Edit]:
    """Bytes without a known meaning: the fields in them at which the reader stops, then one byte at a time."""
    stops: Iterable[_Stop] = ()
    if node.magic is not None:
        # The readable part of a broken payload would be whole again after any change.
        stops = () if node.is_broken else _stops_in_batch(node)
        yield _emptied(node) if node.is_broken else _edit(node, WHOLE, True, b"")
    else:
        stops = of_message if node.field else _stops_without_batch(node)
    for name, at, others in stops:
        for new in others:
            if 0 <= at - node.at <= len(node.data) - len(new):
                yield _Edit(KillingField(name, at, len(new)), LIE, True, {node: {at - node.at: new}})
    for i, byte in enumerate(node.data[:OPAQUE_BYTES_MAX]):
        tier = LIE if node.is_broken else BYTES
        yield _Edit(KillingField(node.name, node.at + i, 1), tier, True, {node: {i: bytes([byte == 0])}})


def _stops_of_message(definition: Definition, version: int, data: bytes) -> Iterator[_Stop]:
    """The length or count at which the walk of a message stops. Whether that is compact is not asked."""
    for name, at, size in walk(definition, version, data).stops:
        yield name, at, [new for number in (0, 1) for form in FORMS for new in _as_number(form, size, number)]


def _stops_without_batch(node: Node) -> Iterator[_Stop]:
    """The length and the magic of bytes that are no whole batch, or no whole message in a wrapper."""
    right = len(node.data) - LOG_OVERHEAD
    yield f"{node.path}.batch_length", node.at + HEADER_AT["batch_length"], _as_number("fixed", 4, right)
    most = 2 if node.magic is None else node.magic
    if len(node.data) > MAGIC_AT and node.data[MAGIC_AT] > most:
        yield f"{node.path}.magic", node.at + MAGIC_AT, _as_number("fixed", 1, most)


def _stops_in_batch(node: Node) -> Iterator[_Stop]:
    """The field at which the reader of records or of a message stops."""
    group = node.above
    assert group is not None
    batch, buffer, at, start = group, group.data, group.at, BATCH_HEADER_SIZE
    if group.kind == "stream" and group.above is not None:
        batch, buffer, at, start = group.above, group.payload, 0, 0
    if not batch.label.startswith("batch["):
        return
    if node.magic == 2:
        notes = parse_places(buffer, start, parse_header(batch.data, 0))[2]
    elif batch is group:
        notes = parse_message(buffer, 0, len(buffer))[1]
    else:
        notes = []
        yield from _stops_without_batch(node)
    for _, field, field_at, record, header, _, allowed, _ in notes:
        if field in STOPS:
            path = f"{node.path}.records[{record}]" if record >= 0 else node.path
            path += f".headers[{header}]" if header >= 0 else ""
            is_varint = node.magic == 2
            form: Form = "varint" if is_varint else "fixed"
            size = uvarint_size(buffer[field_at : field_at + 5]) if is_varint else 4
            numbers = dict.fromkeys((max(allowed, 0), 0, 1))
            yield f"{path}.{field}", at + field_at, [new for one in numbers for new in _as_number(form, size, one)]


def _as_number(form: Form, size: int, number: int) -> list[bytes]:
    """The number in exactly so many bytes; empty if it needs more."""
    made = Node("", "", 0, bytes(size), "number", form).padded(number)
    return [] if made is None else [made]
