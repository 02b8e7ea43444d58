"""Makes an input smaller while it still breaks something in the same way.

The shrinker knows the parts of record batches (``kfuzz.edit.tree``): it drops batches, records and headers, empties and
shortens fields, and makes numbers plain. Lengths, counts and CRCs stay right if they were. Then it drops and clears
bytes, which also serves anything else. Equal inputs and equal answers give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

from kfuzz.edit.tree import RIGHT, Changes, Message, Node, has_crc, tree_of
from kfuzz.mutate.engine import seal
from kfuzz.wire.io.layout import CODEC_MASK, HEADER_AT, MESSAGE_AT
from kfuzz.wire.records.framing import frames

# Takes inputs, the most promising first; returns the index of the first one that breaks in the same way, or None.
FindFirst = Callable[[Sequence[bytes]], int | None]

CANDIDATES_AT_ONCE: Final = 128
ROUNDS_MAX: Final = 400


def shrink(data: bytes, find_first: FindFirst, *, message: Message | None = None, rounds: int = ROUNDS_MAX) -> bytes:
    """The smallest input found that breaks in the same way as ``data``; ``data`` itself if there is none.

    ``data`` holds record batches, or the bytes of ``message``, without a header.
    Each round asks about at most ``CANDIDATES_AT_ONCE`` inputs. Each of them is smaller than the best so far, or
    plainer and as long.
    """
    best = data
    candidates_of = _candidates if message is None else partial(_smaller_messages, message)
    refused: set[bytes] = set()
    for _ in range(rounds):
        # An input without bytes says nothing.
        fresh = (one for one in candidates_of(best) if one and _size(one) < _size(best) and one not in refused)
        candidates = list(islice(dict.fromkeys(islice(fresh, 4 * CANDIDATES_AT_ONCE)), CANDIDATES_AT_ONCE))
        if not candidates:
            break
        found = find_first(candidates)
        refused.update(candidates[:found])
        if found is not None:
            best = candidates[found]
    return best


def _size(data: bytes) -> tuple[int, int, bytes]:
    """The measures to make smaller: the length, then the bytes that are not 0, then their values."""
    return len(data), len(data) - data.count(0), data


def _candidates(data: bytes) -> Iterator[bytes]:
    """Smaller or plainer inputs, the largest steps first."""
    spans = [(at, size, magic) for at, size, magic in frames(data, any_magic=True)]
    end = spans[-1][0] + spans[-1][1] if spans else 0
    if spans and end < len(data):
        yield data[:end]
    for start, stop in _chunks(len(spans)):
        yield b"".join(data[at : at + size] for at, size, _ in (*spans[:start], *spans[stop:])) + data[end:]
    for at, size, magic in spans:
        frame = data[at : at + size]
        for one in chain(_smaller_parts(tree_of(frame)), _fewer_bytes(frame, magic)):
            yield data[:at] + one + data[at + size :]
    yield from _cut(data, 0)


def _smaller_messages(message: Message, data: bytes) -> Iterator[bytes]:
    yield from _smaller_parts(tree_of(data, message))
    yield from _cut(data, 0)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    """Ranges of ``count`` things to drop: halves first, single ones last."""
    size = count
    while size:
        yield from ((at, min(at + size, count)) for at in range(0, count, size))
        size //= 2


def _cut(data: bytes, begin: int) -> Iterator[bytes]:
    """``data`` without some bytes from ``begin`` on, and with some of them 0."""
    for start, stop in _chunks(len(data) - begin):
        yield data[: begin + start] + data[begin + stop :]
        if data.count(0, begin + start, begin + stop) < stop - start:
            yield data[: begin + start] + bytes(stop - start) + data[begin + stop :]


def _fewer_bytes(frame: bytes, magic: int) -> Iterator[bytes]:
    """The frame without some of its bytes, with its length and its CRC repaired if they were right."""
    begin = 4 + (HEADER_AT["crc"] if magic == 2 else MESSAGE_AT[0]["crc"])
    yield from (seal(one, True, has_crc(frame)) for one in _cut(frame, begin) if len(one) > begin)


# --- parts ----------------------------------------------------------------------------------------------------------


def _smaller_parts(tree: Node) -> Iterator[bytes]:
    for group in tree.parts:
        yield from map(tree.written, _plainer(group))


def _plainer(group: Node) -> Iterator[Changes]:
    """Changes that leave out parts of a group or make them plain, the largest steps first."""
    yield from (_uncompressed(group, node) for node in group.parts if node.kind == "stream")
    yield from ({node: None} for node in group.parts if node.kind == "rest")
    # The messages of a wrapper are not counted.
    messages = [[node] for node in group.parts if node.is_frame]
    for items in (messages, *(node.items for node in group.parts if node.kind == "count")):
        for start, stop in _chunks(len(items)):
            yield dict.fromkeys(chain(*items[start:stop]), None)
    for node in group.parts:
        if node.kind == "number":
            yield {node: node.encoded(node.ordinary)}
        elif node.kind == "value":
            yield {node: bytes(len(node.data))}
        elif node.kind == "size":
            yield {node: RIGHT}
        elif node.kind == "contents":
            half = len(node.data) // 2
            kept = (b"", node.data[:half], node.data[half:], node.data[:-1], node.data[1:])
            yield from ({node: one} for one in (None, *kept))
    for node in group.parts:
        yield from _plainer(node)


def _uncompressed(group: Node, stream: Node) -> Changes:
    """The batch without compression; for a wrapper, the messages in it."""
    attributes = group.find("attributes")
    if stream.magic != 2 or attributes is None:
        return {group: stream.payload}
    return {attributes: attributes.encoded(attributes.number & ~CODEC_MASK), stream: stream.payload}
