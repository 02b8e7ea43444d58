"""A capture of packets as a recording: the requests and responses of its connections."""

from __future__ import annotations

import heapq
import re
import shutil
import struct
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kfuzz.annotate.frames import is_readable
from kfuzz.errors import UsageError
from kfuzz.files import cannot_write
from kfuzz.messages.catalogues import requests_by_key
from kfuzz.relay.packets import REMEDY, Connection, Stream, connections
from kfuzz.relay.pipe import SIZE
from kfuzz.relay.recording import EVENTS_MAX, Recording, file_name
from kfuzz.units import counted

if TYPE_CHECKING:
    from typing_extensions import Buffer

NOTES_MAX: Final = 20
FRAME_BYTES_MAX: Final = 1 << 28
# Size, API key, version, correlation id and the length of the client's id; size and correlation id.
REQUEST: Final = struct.Struct(">ihhih")
RESPONSE: Final = struct.Struct(">ii")
# Where a frame may begin that is looked for. A response's correlation id begins with one of some bytes.
REQUEST_START: Final = re.compile(rb"(?=(?!\0{4})[\0-\x0f].{3}\0[\0-\x7f]\0[\0-\x1f].{4}[\0-\x7f\xff])", re.DOTALL)
RESPONSE_START: Final = rb"(?=(?!\0{4})[\0-\x0f].{3}[%b])"
# The header of a record of TLS: type, version and length.
TLS_START: Final = re.compile(rb"(?=[\x14-\x17]\x03[\0-\x04][\0-\x48])", re.DOTALL)
TLS_LENGTH_AT: Final = 3
TLS_SEARCHED_BYTES: Final = 64 << 10

# -1 if no frame can be at this byte, or else a number that is not smaller than that of the frame before it.
Rank = Callable[[memoryview, int], int]


class Capture(Recording):
    """The connections of a capture that have requests of Kafka. ``flaw`` has a line for each thing that it lacks.

    Raises ``UsageError`` if ``data`` cannot be read as a capture, or is too large. Its files are removed with it.
    """

    def __init__(self, name: str, data: Buffer) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kfuzz-capture."))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.events, self.places, self._data, self._starts = [], [], {}, {}
        self.clients: list[str] = []
        self._requests: list[Stream] = []
        try:
            found, end = connections(name, data, self.folder)
        except OSError as error:
            raise cannot_write(self.folder, error) from None
        notes: list[str] = []
        others = encrypted = 0
        for one in found:
            sides = (0, 1) if one.client is None else (one.client,)
            if not one.streams or any(self._take(one, side, notes) for side in sides):
                continue
            is_encrypted = any(map(_is_tls, one.streams.values()))
            encrypted, others = encrypted + is_encrypted, others + (not is_encrypted)
        if sum(len(both[0]) + len(both[1]) for both in self._starts.values()) > EVENTS_MAX:
            raise UsageError(f"{name} has more than {EVENTS_MAX} frames; {REMEDY}")
        if more := notes[NOTES_MAX:]:
            notes[NOTES_MAX:] = [f"… and {counted(len(more), 'more sentence')} about what is missing"]
        if encrypted:
            notes.append(
                f"{counted(encrypted, 'connection')} left out: TLS encrypts what is in it; capture without TLS"
            )
        if others:
            notes.append(f"{counted(others, 'connection')} left out, because no request of Kafka is in it")
        self.flaw = "\n".join(notes + [end] * bool(end))

    @property
    def connections(self) -> int:
        return len(self._requests)

    def _order(self) -> Iterator[int]:
        """The requests come in the order of the packets in which they begin."""

        def packets(number: int, stream: Stream) -> Iterator[tuple[int, int]]:
            return ((stream.packet(at), number) for at in self._starts[number][0])

        return (number for _, number in heapq.merge(*(packets(*one) for one in enumerate(self._requests, 1))))

    def _take(self, talk: Connection, client: int, notes: list[str]) -> bool:
        """Keep a connection, if this side of it sent requests."""
        requests, responses = talk.streams.get(client), talk.streams.get(1 - client)
        if requests is None:
            return False
        view = requests.view()
        asked, cut = _frames(view, requests, REQUEST_START, _request)
        # Where the start of a connection is known, a request is there.
        if not asked or (requests.is_whole and not requests.starts[0] and not REQUEST_START.match(view)):
            return False
        self._requests.append(requests)
        number = len(self._requests)
        self.clients.append(f"{talk.names[client]} to {talk.names[1 - client]}")
        notes += _lost(number, "requests", requests, cut)
        requests.path.rename(self.folder / file_name(number, "request"))
        answered = array("q")
        if responses is not None:
            places = {REQUEST.unpack_from(view, at)[3]: place for place, at in enumerate(asked)}
            first = {re.escape(one.to_bytes(4, signed=True)[:1]) for one in places}
            start = re.compile(RESPONSE_START % b"".join(first), re.DOTALL)
            answered, cut = _frames(responses.view(), responses, start, partial(_response, places=places))
            notes += _lost(number, "responses", responses, cut)
            responses.path.rename(self.folder / file_name(number, "response"))
        self._starts[number] = asked, answered
        return True


def _frames(view: memoryview, stream: Stream, start: re.Pattern[bytes], rank: Rank) -> tuple[array[int], int]:
    """Where the whole frames of a stream begin, and how many others there are.

    A hole inside a frame does no more harm. After one in which a frame begins, the next frame is looked for.
    """
    found, cut = array("q"), 0
    at = 0 if stream.is_whole else -1
    for first, end in zip(stream.starts, stream.ends, strict=True):
        part = view[:end]
        if at < first:
            at = _search(part, first, start, rank)
        while 0 <= at < end:
            size = SIZE.size + SIZE.unpack_from(part, at)[0] if end - at >= SIZE.size else 0
            if SIZE.size < size <= FRAME_BYTES_MAX:
                found.append(at) if at + size <= end else None
                cut += at + size > end
                at += size
            else:
                cut += 1
                at = _search(part, at + 1, start, rank)
    return found, cut


def _search(view: memoryview, at: int, start: re.Pattern[bytes], rank: Rank) -> int:
    """The first place from ``at`` on where a frame may be that the end of the bytes or another frame follows, or -1."""
    for match in start.finditer(view, at):
        place = match.start()
        if (found := rank(view, place)) >= 0:
            after = place + SIZE.size + SIZE.unpack_from(view, place)[0]
            if after == len(view) or (after < len(view) and rank(view, after) >= found):
                return place
    return -1


def _request(view: memoryview, at: int) -> int:
    """The rank of a request: all have the same one."""
    if len(view) - at < REQUEST.size:
        return -1
    size, key, version, _, length = REQUEST.unpack_from(view, at)
    known = requests_by_key().get(key)
    if known is None or not 0 <= version <= known.valid_versions.highest:
        return -1
    try:
        client = str(view[at + REQUEST.size : at + REQUEST.size + max(length, 0)], "utf-8")
    except UnicodeDecodeError:
        return -1
    is_inside = REQUEST.size + max(length, 0) <= SIZE.size + size <= FRAME_BYTES_MAX
    is_request = length >= -1 and is_inside and client.isprintable()
    # Other bytes, such as those of a response, may look like the header of a request.
    is_request = is_request and (at + SIZE.size + size > len(view) or is_readable(view, at))
    return 0 if is_request else -1


def _response(view: memoryview, at: int, places: dict[int, int]) -> int:
    """The rank of a response: the place of its request, of which ``places`` has the correlation id."""
    if len(view) - at < RESPONSE.size:
        return -1
    size, correlation_id = RESPONSE.unpack_from(view, at)
    is_size = RESPONSE.size - SIZE.size <= size <= FRAME_BYTES_MAX
    return places.get(correlation_id, -1) if is_size else -1


def _lost(number: int, what: str, stream: Stream, cut: int) -> Iterator[str]:
    """A sentence about what the capture lacks of a stream, if it lacks something."""
    lacks = [] if stream.is_whole else ["their start is not in the capture"]
    holes = [(start, end) for end, start in zip([0, *stream.ends], stream.starts, strict=False) if end < start]
    if holes:
        size = counted(sum(start - end for start, end in holes), "byte")
        where = f"the first at byte {holes[0][1]}, before packet {stream.packet(holes[0][1])}"
        lacks.append(f"{size} are not in the capture, in {counted(len(holes), 'hole')}, {where}")
    if cut:
        lacks.append(f"{counted(cut, 'frame')} left out that the capture has in part")
    if lacks:
        yield f"connection {number}, {what}: {'; '.join(lacks)}"


def _is_tls(stream: Stream) -> bool:
    """Whether records of TLS are at the start, or near it if the start is not known."""
    view = stream.view()
    for match in TLS_START.finditer(view, 0, TLS_SEARCHED_BYTES):
        if stream.is_whole and match.start():
            return False
        at = match.start() + TLS_LENGTH_AT
        after = at + 2 + int.from_bytes(view[at : at + 2])
        if after >= len(view) or TLS_START.match(view, after):
            return True
    return False
