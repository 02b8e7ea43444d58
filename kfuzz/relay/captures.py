"""Captures of packets (pcap and pcapng, perhaps packed by gzip) as recordings: the requests of their TCP connections.

Packets may be missing, out of order, repeated or cut. Each direction of a connection becomes a file with holes where
bytes are missing; only the places of packets and frames are in memory.
"""

from __future__ import annotations

import gzip
import heapq
import io
import re
import shutil
import struct
import tempfile
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz.annotate.frames import frames_of
from kfuzz.client.address import Address
from kfuzz.errors import UsageError, needs
from kfuzz.files import map_regular, writing
from kfuzz.logs.contents import GZIP
from kfuzz.relay.pipe import SIZE
from kfuzz.relay.recording import EVENTS_MAX, Recording, file_name
from kfuzz.units import counted

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Bounds on what a capture may claim, and on what is kept of it.
PACKET_BYTES_MAX: Final = 16 << 20
PACKETS_MAX: Final = 20_000_000
CONNECTIONS_MAX: Final = 100_000
KEPT_BYTES_MAX: Final = 64 << 30
HOLE_BYTES_MAX: Final = 1 << 30
STREAM_BYTES_MAX: Final = 1 << 40
FRAME_BYTES_MAX: Final = 1 << 28
# A larger request is not looked for, where the frames before it are not known.
SEARCHED_BYTES_MAX: Final = 1 << 20
NOTES_MAX: Final = 20
REMEDY: Final = "cut it into smaller captures, such as with editcap"
# TCP's sequence numbers begin again after so many.
SEQUENCES: Final = 1 << 32
SYN: Final = 0x02
ACK: Final = 0x10
# The headers that IP may follow: the link types of pcap, and the module and class of dpkt.
LINKS: Final = {
    **dict.fromkeys((0, 108), ("loopback", "Loopback")),
    1: ("ethernet", "Ethernet"),
    **dict.fromkeys((12, 14, 101, 228, 229), ("", "")),
    113: ("sll", "SLL"),
    276: ("sll2", "SLL2"),
}
# Where a frame may begin that is looked for. A response's correlation id begins with one of some bytes.
REQUEST_START: Final = re.compile(rb"(?=(?!\0{4})[\0-\x0f].{3}\0[\0-\x7f]\0[\0-\x1f].{4}[\0-\x7f\xff])", re.DOTALL)
RESPONSE_START: Final = rb"(?=(?!\0{4})[\0-\x0f].{3}[%b])"
ID_AT: Final = 8
# The header of a record of TLS, which is at the start, or not further from it than a record is long.
TLS: Final = re.compile(rb"[\x14-\x17]\x03[\0-\x04][\0-\x48]", re.DOTALL)
TLS_BYTES: Final = 4, 17 << 10
# The bytes in front of a block of pcapng, and of a packet of pcap: before them, a file may end.
FRONTS: Final = 8, 16

# After a wrong length, the next packet is looked for within so many bytes, and so often. It was sent within a day.
RESUMED_BYTES: Final = 1 << 18
RESUMED_MAX: Final = 20
DAY_S: Final = 86_400
# The first bytes of a little-endian order mark. The smallest block of pcapng with a packet, and its kind.
LITTLE: Final = (0xD4, 0x4D)
NG: Final = b"\x0a\x0d\x0d\x0a"
NG_BYTES, NG_PACKET = 32, 6

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
        self._requests: list[_Stream] = []
        with writing(self.folder):
            found, flaws = _connections(name, data, self.folder)
        notes: list[str] = []
        others = encrypted = 0
        for one in found:
            sides = (0, 1) if one.client is None else (one.client,)
            if not one.streams or any(self._take(one, side, notes) for side in sides):
                continue
            others += 1
            encrypted += any(TLS.search(side.view(), 0, TLS_BYTES[not side.is_whole]) for side in one.streams.values())
        if sum(len(both[0]) + len(both[1]) for both in self._starts.values()) > EVENTS_MAX:
            raise UsageError(f"{name} has more than {EVENTS_MAX} frames; {REMEDY}")
        if more := notes[NOTES_MAX:]:
            notes[NOTES_MAX:] = [f"… and {counted(len(more), 'more sentence')} about what is missing"]
        if late := sum(not one.is_whole for one in self._requests):
            notes.append(f"{counted(late, 'connection')} began before the capture")
        if others:
            tls = f"; {counted(encrypted, 'connection')} of them encrypted by TLS" if encrypted else ""
            notes.append(f"{counted(others, 'connection')} without a request of Kafka left out{tls}")
        self.flaw = "\n".join(notes + flaws)

    @property
    def connections(self) -> int:
        return len(self._requests)

    def _order(self) -> Iterator[int]:
        """The requests come in the order of the packets in which they begin."""

        def packets(number: int, stream: _Stream) -> Iterator[tuple[int, int]]:
            return ((stream.packet(at), number) for at in self._starts[number][0])

        return (number for _, number in heapq.merge(*(packets(*one) for one in enumerate(self._requests, 1))))

    def _take(self, talk: _Connection, client: int, notes: list[str]) -> bool:
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
            # A frame may be too short for an id.
            ids = ((place, view[at + ID_AT : at + ID_AT + SIZE.size]) for place, at in enumerate(asked))
            places = {SIZE.unpack(one)[0]: place for place, one in ids if len(one) == SIZE.size}
            first = {re.escape(one.to_bytes(4, signed=True)[:1]) for one in places}
            start = re.compile(RESPONSE_START % b"".join(first), re.DOTALL)
            answered, cut = _frames(responses.view(), responses, start, partial(_response, places=places))
            notes += _lost(number, "responses", responses, cut)
            responses.path.rename(self.folder / file_name(number, "response"))
        self._starts[number] = asked, answered
        return True


def _frames(view: memoryview, stream: _Stream, start: re.Pattern[bytes], rank: Rank) -> tuple[array[int], int]:
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
            size = _size(part, at)
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
            after = place + _size(view, place)
            if after == len(view) or (after < len(view) and rank(view, after) >= found):
                return place
    return -1


def _request(view: memoryview, at: int) -> int:
    """The rank of a request that has no findings: all have the same one."""
    size = _size(view, at)
    if not SIZE.size < size <= min(len(view) - at, SEARCHED_BYTES_MAX):
        return -1
    found = next(frames_of(view[at : at + size]))
    return -1 if found.error or found.findings else 0


def _response(view: memoryview, at: int, places: dict[int, int]) -> int:
    """The place of the request that a response answers. ``places`` has it by the correlation id."""
    if len(view) - at < 2 * SIZE.size or not 2 * SIZE.size <= _size(view, at) <= FRAME_BYTES_MAX:
        return -1
    return places.get(SIZE.unpack_from(view, at + SIZE.size)[0], -1)


def _size(view: memoryview, at: int) -> int:
    """The size of a frame, with its length in front; 0 if that is not whole."""
    return SIZE.size + int(SIZE.unpack_from(view, at)[0]) if len(view) - at >= SIZE.size else 0


def _lost(number: int, what: str, stream: _Stream, cut: int) -> Iterator[str]:
    """A sentence about what the capture lacks after the first byte of a stream, if it lacks something."""
    lacks = []
    holes = [(start, end) for end, start in zip([0, *stream.ends], stream.starts, strict=False) if end < start]
    if holes:
        size = counted(sum(start - end for start, end in holes), "byte")
        where = f"the first at byte {holes[0][1]}, before packet {stream.packet(holes[0][1])}"
        lacks.append(f"{size} are not in the capture, in {counted(len(holes), 'hole')}, {where}")
    if cut:
        lacks.append(f"{counted(cut, 'frame')} left out that the capture has in part")
    if lacks:
        yield f"connection {number}, {what}: {'; '.join(lacks)}"


class _Stream:
    """One direction of a connection; its byte 0 has the sequence number ``base``.

    ``starts`` and ``ends`` are those of the parts that the capture has, in order; the file has zeros between them.
    ``is_whole``: byte 0 is the first one of the connection.
    """

    def __init__(self, path: Path, base: int, is_whole: bool) -> None:
        self.path, self.base, self.is_whole = path, base, is_whole
        self.starts, self.ends = array("q"), array("q")
        # How far it reached, and with which packet.
        self._reached, self._packets = array("q"), array("q")
        path.touch()

    def view(self) -> memoryview:
        return memoryview(map_regular(self.path))

    def packet(self, at: int) -> int:
        """The number of the first packet, from 1 on, that has this byte or a later one."""
        return self._packets[min(bisect_right(self._reached, at), len(self._packets) - 1)]

    def add(self, sequence: int, data: bytes, packet: int) -> None:
        """Add the bytes of a packet, without those that are there already, and those before byte 0."""
        end = self.ends[-1] if self.ends else 0
        at = end + (sequence - self.base - end + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2
        stop = at + len(data)
        at, data = max(at, 0), data[max(-at, 0) :]
        if at >= stop or at - end > HOLE_BYTES_MAX or stop > STREAM_BYTES_MAX:
            return
        # The known parts that it overlaps or touches.
        first, last = bisect_left(self.ends, at), bisect_right(self.starts, stop)
        known = [*zip(self.starts[first:last], self.ends[first:last], strict=True)]
        place = at
        with self.path.open("r+b") as file:
            for known_start, known_end in (*known, (stop, stop)):
                if place < known_start:
                    file.seek(place)
                    file.write(data[place - at : known_start - at])
                place = max(place, known_end)
        self.starts[first:last] = array("q", [min(at, *known[0]) if known else at])
        self.ends[first:last] = array("q", [place])
        if not self._reached or stop > self._reached[-1]:
            self._reached.append(stop)
            self._packets.append(packet)


@dataclass(slots=True)
class _Connection:
    """A TCP connection. ``streams`` are what its sides sent, of which ``names`` are the addresses.

    ``client`` is the side that opened it; None if the capture begins later.
    """

    names: tuple[str, str]
    client: int | None = None
    streams: dict[int, _Stream] = field(default_factory=dict)


def _connections(name: str, data: Buffer, folder: Path) -> tuple[list[_Connection], list[str]]:
    """The connections of a capture, their bytes in files in ``folder``, and sentences about packets that are cut, and
    about an end that was not read.

    ``UsageError`` for a capture that is too large or of another kind of network, or without dpkt. ``OSError`` if
    ``folder`` takes no more.
    """
    found: list[_Connection] = []
    latest: dict[tuple[Any, Any], _Connection] = {}
    packet = kept = cut = first_cut = 0
    end = ""
    damaged: list[int] = []
    packets = _packets(name, data, damaged)
    while True:
        packet += 1
        try:
            ip, tcp, is_cut = next(packets)
        except StopIteration:
            break
        except UsageError:
            raise
        except EOFError:
            end = f"{name} ends inside packet {packet}, or has a wrong length there, so nothing from there on is read; "
            end += "copy the whole file, or record again"
            break
        # Any of many kinds, from dpkt and from zlib.
        except Exception as error:
            why = f": {error}" if str(error) else ""
            end = f"{name} is damaged in packet {packet}; what follows is not read{why}"
            break
        cut += is_cut
        first_cut = first_cut or packet * is_cut
        if tcp is None:
            continue
        sender, receiver = (ip.src, tcp.sport), (ip.dst, tcp.dport)
        both = min(sender, receiver), max(sender, receiver)
        side = both.index(sender)
        is_start = bool(tcp.flags & SYN)
        base = (tcp.seq + is_start) % SEQUENCES
        talk = latest.get(both)
        known = None if talk is None else talk.streams.get(side)
        # A port may be used again.
        if talk is None or (is_start and known is not None and known.base != base):
            talk = latest[both] = _Connection((_address(*both[0]), _address(*both[1])))
            found.append(talk)
        if is_start:
            talk.client = 1 - side if tcp.flags & ACK else side
        if (is_start or tcp.data) and side not in talk.streams:
            talk.streams[side] = _Stream(folder / f"{packet}.stream", base, is_start)
        if tcp.data:
            talk.streams[side].add(base, tcp.data, packet)
            kept += len(tcp.data)
        if packet > PACKETS_MAX or len(found) > CONNECTIONS_MAX or kept > KEPT_BYTES_MAX:
            raise UsageError(f"{name} is too large, or has too many connections; {REMEDY}")
    flaws = [end] if end else []
    if damaged:
        places = f"{counted(len(damaged), 'place')}, the first near packet {damaged[0]}"
        flaws.insert(0, f"{name} has wrong lengths in {places}; packets there may be missing")
    if cut:
        short = f"{name} has only the beginning of {counted(cut, 'packet')}, from packet {first_cut} on"
        flaws.insert(0, f"{short}; record again with `-s 0`")
    return found, flaws


def _address(host: bytes, port: int) -> str:
    return str(Address(str(ip_address(host)), port))


class _Source:
    """A file for dpkt, which believes every size, and takes a packet that the file has in part for a whole one."""

    def __init__(self, file: Any) -> None:
        self._file, self.seek = file, file.seek

    def read(self, size: int) -> bytes:
        if not 0 <= size <= PACKET_BYTES_MAX:
            raise ValueError(f"a size is {size} bytes")
        made = bytes(self._file.read(size))
        if len(made) < size and (made or size not in FRONTS):
            raise EOFError
        return made


def _size_of_record(window: bytes, at: int, order: str, seconds: int | None) -> int:
    """The size of the record at byte ``at``; 0 if none with a packet can be there, sent at about ``seconds``.

    ``seconds`` is None for a block of pcapng.
    """
    if len(window) - at < FRONTS[1]:
        return 0
    fields = struct.unpack_from(f"{order}4I", window, at)
    if seconds is None:
        kind, size = fields[:2]
        is_whole = kind == NG_PACKET and NG_BYTES <= size <= len(window) - at
        return size if is_whole and window[at + 4 : at + 8] == window[at + size - 4 : at + size] else 0
    sent, part, kept, size = fields
    return FRONTS[1] + kept if abs(sent - seconds) <= DAY_S and part < 10**9 and 0 < kept <= size < 1 << 24 else 0


def _resumed(file: Any, before: int, bad: int, seconds: int) -> int | None:
    """Where reading continues after a record at byte ``before`` or ``bad`` with a wrong length; None if no two records
    are found near it. A packet was sent at about ``seconds``.
    """
    file.seek(0)
    head = file.read(12)
    is_ng = head.startswith(NG)
    order = "<" if head[8 if is_ng else 0] in LITTLE else ">"
    size = partial(_size_of_record, order=order, seconds=None if is_ng else seconds)
    file.seek(before + 1)
    window = file.read(4 * RESUMED_BYTES)
    for at in range(min(RESUMED_BYTES, len(window))):
        if (first := size(window, at)) and size(window, at + first) and before + 1 + at != bad:
            return before + 1 + at
    return None


def _records(reader: Any, file: Any, damaged: list[int]) -> Iterator[bytes]:
    """The packets of a capture. After a wrong length, they continue at the next record; then the number of the packet
    before it is added to ``damaged``.
    """
    records, number, seconds = iter(reader), 0, 0
    before = at = file.tell()
    while True:
        before, at = at, file.tell()
        try:
            time, packet = next(records)
        except StopIteration:
            return
        # Any of many kinds, from dpkt and from zlib.
        except Exception:
            place = _resumed(file, before, at, seconds) if number and len(damaged) < RESUMED_MAX else None
            if place is None:
                raise
            damaged.append(number)
            file.seek(place)
            at, records = place, iter(reader)
            continue
        # Bytes after a wrong length may be taken for records of any time.
        seconds = int(time) if not number or abs(int(time) - seconds) <= DAY_S else seconds
        number += 1
        yield packet


def _packets(name: str, data: Buffer, damaged: list[int]) -> Iterator[tuple[Any, Any, bool]]:
    """IP and TCP of each packet, and whether the recording cut it; TCP is None for other packets. ``damaged`` is that
    of :func:`_records`.
    """
    with needs(f"{name} is a capture, which needs dpkt; pip install 'kfuzz[pcap]'"):
        import dpkt
    file: Any = data if hasattr(data, "read") else io.BytesIO(data)
    if bytes(memoryview(data)[: len(GZIP)]) == GZIP:
        file = gzip.GzipFile(fileobj=file)
    reader = dpkt.pcap.UniversalReader(_Source(file))
    kind = reader.datalink()
    if kind not in LINKS:
        raise UsageError(
            f"{name} has packets of link type {kind}, which kfuzz does not read; capture with tcpdump -i any"
        )
    module, link = LINKS[kind]
    ip = (dpkt.ip.IP, dpkt.ip6.IP6)
    for packet in _records(reader, file, damaged):
        tcp = None
        # Without IP's header, only the bound on packets says whether this one is cut.
        is_cut = len(packet) >= reader.snaplen > 0
        try:
            # Without a link layer, the first four bits are IP's version.
            made = getattr(getattr(dpkt, module), link)(packet) if link else ip[packet[0] >> 4 == 6](packet)
            while not isinstance(made, ip):
                made = made.data
            # A length of 0 is not known yet: the network card fills it in.
            if isinstance(made, dpkt.ip.IP):
                is_cut = made.len > len(made)
            else:
                is_cut = made.plen > len(made.data) + sum(one.length for one in made.all_extension_headers)
            tcp = made.data if isinstance(made.data, dpkt.tcp.TCP) else None
        # dpkt raises errors of many kinds for packets that are none.
        except Exception:
            made = None
        yield made, tcp, is_cut
