"""A buffer of record batches, or a message, as a tree of parts that can be changed.

:func:`tree_of` takes the bytes apart, as the dump does (``kfuzz.annotate``). A node is a field, or a group of nodes: a
batch, a record, a header, a message inside a wrapper, a struct. The node of a compressed payload has the parts of the
decompressed one. :meth:`Node.written` writes the bytes with other bytes in place of some nodes, and repairs what
depends on them: lengths, counts, CRCs and the compression. A number that was wrong stays wrong by as much.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, groupby, islice, pairwise, takewhile
from typing import TYPE_CHECKING, Final, Literal

from kfuzz.annotate.messages import Walk, walk
from kfuzz.annotate.parts import Bounds, Part
from kfuzz.annotate.records import annotate, codec_number, opened
from kfuzz.kafka import CODECS, Codec
from kfuzz.messages.model import Definition
from kfuzz.mutate.engine import seal
from kfuzz.records.codecs import compress
from kfuzz.records.read.limits import Limits
from kfuzz.wire.io.cursor import uvarint, uvarint_of
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, CODEC_MASK, MAGIC_AT
from kfuzz.wire.records.framing import next_frame

if TYPE_CHECKING:
    from kfuzz.wire.messages import Place

Message = tuple[Definition, int]

LIMITS: Final = Limits(decompressed_bytes=1 << 20)
# More records of a batch, and headers of a record, are one node together, because a node takes about 500 bytes.
BOUNDS: Final = Bounds(records=4000, headers=1000)
VARINT_BYTES_MAX: Final = 10

# The kinds of nodes. A "length" has the bytes of the next node, a "size" those of all that follow in its group or up to
# the next tag, a "count" the number of items that follow. "contents" have a length. A "value" is one of a message,
# whatever its type. A "stream" is a compressed payload, unless that is broken. A "rest" has no known meaning.
Kind = Literal[
    "group", "number", "value", "contents", "stream", "length", "size", "count", "tag", "crc", "magic", "presence",
    "rest",
]  # fmt: skip
# How a number is written: with a fixed width, as a zigzag varint, or as an unsigned one.
Form = Literal["fixed", "varint", "uvarint"]
KINDS: Final[Mapping[str, Kind]] = {
    # The fields of batches and records; all others are numbers. A field without a name is no batch.
    **dict.fromkeys(("rest", "payload", "message", ""), "rest"),
    **dict.fromkeys(("key", "value"), "contents"),
    **dict.fromkeys(("key_length", "value_length"), "length"),
    **dict.fromkeys(("record_count", "header_count"), "count"),
    **dict.fromkeys(("batch_length", "length"), "size"),
    "crc": "crc",
    "magic": "magic",
}
# Those of messages, by their places.
PLACES: Final[Mapping[str, Kind]] = {
    "value": "value",
    "presence": "presence",
    "length": "length",
    "count": "count",
    "tag": "tag",
    "tag-count": "count",
    "tag-size": "size",
}

# The numbers of an ordinary batch or record; all others are 0.
PLAIN: Final = dict.fromkeys(("producer_id", "producer_epoch", "base_sequence"), -1)

# In place of the bytes of a length, size, count or CRC: those that the other bytes imply.
RIGHT: Final = "right"
# New bytes, for the whole node or from some of its offsets on. None removes the node; the length of contents becomes
# null.
Change = bytes | Mapping[int, bytes] | Literal["right"] | None
Changes = Mapping["Node", Change]


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A part of an input. ``path``, ``field`` and ``at`` are as in a dump; a group has no field.

    ``data`` are its bytes, and ``parts`` what is inside it, in order. A stream has the compressed bytes, and the parts
    of ``payload``. ``items`` are what a length, size or count measures: lists of neighbouring nodes. ``magic`` is that
    of the batch around it; None outside of batches.
    """

    path: str
    field: str
    at: int
    data: bytes
    kind: Kind
    form: Form = "fixed"
    magic: int | None = None
    above: Node | None = dataclasses.field(default=None, repr=False)
    parts: list[Node] = dataclasses.field(default_factory=list)
    items: list[list[Node]] = dataclasses.field(default_factory=list)
    # As how many items it counts.
    amount: int = 1
    codec: Codec = "none"
    payload: bytes = b""

    @property
    def name(self) -> str:
        """The whole path, as a dump shows it."""
        return f"{self.path}.{self.field}" if self.path and self.field else self.path

    @property
    def label(self) -> str:
        """The last part of its name; of a length or count: of what it measures."""
        label = self.field or self.path.rpartition(".")[2]
        return {"record_count": "records", "header_count": "headers"}.get(
            label, label.removesuffix("length").rstrip(" _")
        )

    @property
    def is_broken(self) -> bool:
        """Whether it is a compressed payload that cannot be decompressed to its end."""
        return self.codec != "none" and self.kind == "rest"

    @property
    def is_frame(self) -> bool:
        """Whether it is a batch, or a message of magic 0 or 1."""
        return self.find("batch_length") is not None

    def find(self, field: str) -> Node | None:
        """The first of its parts with this field."""
        return next((node for node in self.parts if node.field == field), None)

    def owners(self) -> Iterator[Node]:
        """The groups and streams that it is in, the innermost first."""
        if self.above is not None:
            yield self.above
            yield from self.above.owners()

    def leaves(self) -> Iterator[Node]:
        """All nodes that are no groups, in order; those of a decompressed payload follow their stream."""
        for node in self.parts:
            if node.kind != "group":
                yield node
            yield from node.leaves()

    def add(self, node: Node) -> Node:
        """Put ``node`` after its parts."""
        node.above = self
        node.magic = self.magic if node.magic is None else node.magic
        self.parts.append(node)
        return node

    # ------------------------------------------------------------------------------------------ numbers

    @property
    def number(self) -> int:
        """The number that its bytes are."""
        if self.form == "fixed":
            return int.from_bytes(self.data, "big", signed=True)
        value, _ = uvarint_of(self.data, VARINT_BYTES_MAX)
        return value if self.form == "uvarint" else value >> 1 ^ -(value & 1)

    def encoded(self, number: int) -> bytes:
        """The bytes of another number, as few as possible."""
        if self.form == "fixed":
            return (number & ((1 << 8 * len(self.data)) - 1)).to_bytes(len(self.data), "big")
        raw = number if self.form == "uvarint" else number << 1 ^ number >> 63
        return uvarint(raw & 0xFFFFFFFF_FFFFFFFF)

    def padded(self, number: int) -> bytes | None:
        """The bytes of another number, as many as it has now, so that nothing moves; None if it needs more."""
        short = self.encoded(number)
        more = len(self.data) - len(short)
        if more <= 0:
            return short if more == 0 else None
        return bytes(byte | 0x80 for byte in short) + b"\x80" * (more - 1) + b"\0"

    @property
    def ordinary(self) -> int:
        """The number in an ordinary batch: what the other bytes imply, or else 0 or -1."""
        assert self.above is not None
        if self.field == "attributes" and self.above.is_frame:
            # The codec belongs to the payload, unless there is no such codec or no payload.
            codec = self.number & CODEC_MASK
            last = CODECS.index("zstd" if self.magic == 2 else "lz4")
            has_payload = self.magic != 2 or len(self.above.data) > BATCH_HEADER_SIZE
            return codec if codec <= last and has_payload else 0
        if self.field == "last_offset_delta":
            return max(sum(node.number for node in self.above.parts if node.kind == "count") - 1, 0)
        if self.field == "offset_delta":
            return int(self.path.rpartition("[")[2].rstrip("]"))
        return PLAIN.get(self.field, 0)

    @property
    def right(self) -> int:
        """The number that a length, size or count must be for what it measures."""
        return self._empty + self._measured(lambda node: node.data)

    @property
    def _empty(self) -> int:
        # A compact length or count is sent as one more, and 0 means null.
        return int(self.form == "uvarint" and self.kind in ("length", "count") and self.field != "tag count")

    def _measured(self, data_of: Callable[[Node], bytes | None]) -> int:
        if self.kind == "count":
            return sum(item[0].amount for item in self.items if data_of(item[0]) is not None)
        return sum(len(data_of(node) or b"") for item in self.items for node in item)

    # ------------------------------------------------------------------------------------------ changes

    def written(self, changes: Changes) -> bytes:
        """Its bytes with these changes. The measures of a changed node are repaired, unless they change too."""
        return self._written(changes, {owner for node in changes for owner in node.owners()})

    def _written(self, changes: Changes, touched: set[Node]) -> bytes:
        change = changes.get(self, RIGHT)
        if isinstance(change, Mapping):
            made = bytearray(self.data)
            for at, new in change.items():
                made[at : at + len(new)] = new
            return bytes(made)
        if not isinstance(change, str):
            return change or b""
        if self not in touched:
            return self.data
        written: dict[Node, bytes] = {}

        def data_of(node: Node) -> bytes | None:
            return None if changes.get(node, b"") is None else written.get(node, b"")

        # From the last to the first: a node measures only those that follow it.
        for node in reversed(self.parts):
            written[node] = node._written(changes, touched)
            if node.items and isinstance(changes.get(node, RIGHT), str):
                written[node] = node._repaired(node in changes, data_of)
        data = b"".join(reversed(written.values()))
        if self.kind == "stream":
            return compress(self.codec, data, magic=self.magic or 0)
        if not self.is_frame:
            return data
        crc = next((changes[node] for node in self.parts if node.kind == "crc" and node in changes), None)
        return seal(data, False, has_crc(self.data) if crc is None else crc == RIGHT)

    def _repaired(self, is_right: bool, data_of: Callable[[Node], bytes | None]) -> bytes:
        """The bytes of a length, size or count after a change of what it measures."""
        if self.kind == "length" and data_of(self.items[0][0]) is None:
            return self.encoded(self._empty - 1)
        now, before = self._measured(data_of), self._measured(lambda node: node.data)
        if is_right:
            return self.encoded(self._empty + now)
        return self.data if now == before else self.encoded(self.number + now - before)


def has_crc(frame: bytes) -> bool:
    """Whether the CRC of a batch or message is right."""
    return seal(frame, False, True) == frame


def tree_of(data: bytes, message: Message | None = None) -> Node:
    """The tree of record batches, or of a message without its header; never raises on bad bytes.

    A payload that is larger than ``LIMITS`` counts as broken.
    """
    if message is None:
        found = Walk(list(annotate(data, limits=LIMITS, bounds=BOUNDS)), {}, [])
    else:
        found = walk(*message, data, bounds=BOUNDS)
    groups = {"": Node("", "", 0, b"", "group")}
    for part in found.parts:
        group = _group(groups, data, part, part.path.rpartition(".")[0] if part.left_out else part.path)
        if part.left_out:
            within = data if group.kind == "group" else group.payload
            rest = within[part.at : part.at + part.size]
            group.add(Node(part.path, "", part.at, rest, "rest", amount=part.left_out))
        elif part.data or not part.heading:
            group.add(_leaf(group, data, part, found.places.get(part.at)))
    _link(groups[""])
    return groups[""]


def _group(groups: dict[str, Node], data: bytes, part: Part, path: str) -> Node:
    """The group at ``path``, in which ``part`` is; a new one begins with it."""
    if path not in groups:
        owner, _, name = path.rpartition(".")
        above = _group(groups, data, part, owner)
        stream = next((node for node in above.parts if name == "payload" and node.codec != "none"), None)
        # Bytes that are no batch have no magic.
        magic = data[part.at + MAGIC_AT] if name.startswith("batch[") and not part.data else above.magic
        groups[path] = stream or above.add(Node(path, "", part.at, b"", "group", magic=magic))
    return groups[path]


def _leaf(group: Node, data: bytes, part: Part, place: Place | None) -> Node:
    """The node of a field in a group."""
    node = Node(part.path, part.field, part.at, part.data, "rest")
    is_batch = group.label.startswith("batch[")
    if group.magic is None:
        if place is not None:
            _, _, _, what, number = place
            node.kind = PLACES[what]
            is_fixed = what in ("length", "count") and int.from_bytes(part.data, "big", signed=True) == number
            node.form = "fixed" if is_fixed and part.size > 1 else "uvarint"
        return node
    node.kind = KINDS.get(part.field, "number")
    if group.magic == 2 and not is_batch and part.field != "attributes":
        node.form = "varint"
    elif is_batch and part.field in ("payload", "value"):
        frame = data[group.at : group.at + next_frame(data, group.at)[0]]
        stream = opened(frame, LIMITS)
        if stream is not None:
            node.codec, node.payload = CODECS[codec_number(frame)], stream.data
            node.kind = "stream" if stream.ended == "whole" else "rest"
    return node


def _link(group: Node) -> None:
    """Give lengths, sizes and counts what they measure, and groups their bytes."""
    if group.is_broken:
        group.parts = []
    for node in group.parts:
        _link(node)
    for i, node in enumerate(group.parts):
        following = (group.parts[k] for k in range(i + 1, len(group.parts)))
        if node.kind == "length":
            node.items = [[one] for one in islice(following, 1) if one.label == node.label]
            for one in chain(*node.items):
                one.kind = "contents" if one.kind == "value" else one.kind
        elif node.kind == "size":
            node.items = [list(takewhile(lambda one: one.kind != "tag", following))]
        elif node.field == "tag count":
            tags = list(following)
            begins = [k for k, one in enumerate(tags) if one.kind == "tag"]
            node.items = [tags[k:end] for k, end in pairwise([*begins, len(tags)])]
        elif node.kind == "count":
            within = chain(following, *(one.parts for one in group.parts if one.kind == "stream"))
            counted = (one for one in within if one.label.startswith(f"{node.label}["))
            node.items = [list(item) for _, item in groupby(counted, key=lambda one: one.label)]
    if group.kind == "group":
        group.data = b"".join(node.data for node in group.parts)
