"""The TCP connections of a capture of packets (pcap and pcapng, perhaps packed by gzip), each direction in a file.

Packets may be missing, out of order, repeated or cut. Only their places are in memory.
"""

from __future__ import annotations

import gzip
import io
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz.client.address import Address
from kfuzz.errors import UsageError
from kfuzz.files import map_regular
from kfuzz.logs.contents import GZIP

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Bounds on what a capture may claim, and on what is kept of it.
PACKET_BYTES_MAX: Final = 16 << 20
PACKETS_MAX: Final = 20_000_000
CONNECTIONS_MAX: Final = 100_000
KEPT_BYTES_MAX: Final = 64 << 30
HOLE_BYTES_MAX: Final = 1 << 30
STREAM_BYTES_MAX: Final = 1 << 40
# TCP's sequence numbers begin again after so many.
SEQUENCES: Final = 1 << 32
SYN: Final = 0x02
ACK: Final = 0x10
REMEDY: Final = "cut it into smaller captures, such as with editcap"
# What may be in front of IP: the link types of pcap, and the module and class of dpkt.
LINKS: Final = {
    **dict.fromkeys((0, 108), ("loopback", "Loopback")),
    1: ("ethernet", "Ethernet"),
    **dict.fromkeys((12, 14, 101, 228, 229), ("", "")),
    113: ("sll", "SLL"),
    276: ("sll2", "SLL2"),
}


class Stream:
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
        """The bytes."""
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
class Connection:
    """A TCP connection. ``streams`` are what its sides sent, of which ``names`` are the addresses.

    ``client`` is the side that opened it; None if the capture begins later.
    """

    names: tuple[str, str]
    client: int | None = None
    streams: dict[int, Stream] = field(default_factory=dict)


def connections(name: str, data: Buffer, folder: Path) -> tuple[list[Connection], str]:
    """The connections of a capture, their bytes in files in ``folder``, and why its end was not read, or an empty text.

    ``UsageError`` for a capture that is too large or of another kind of network, or without dpkt. ``OSError`` if
    ``folder`` takes no more.
    """
    found: list[Connection] = []
    latest: dict[tuple[Any, Any], Connection] = {}
    packet = kept = 0
    packets = _packets(name, data)
    while True:
        packet += 1
        try:
            ip, tcp = next(packets)
        except StopIteration:
            return found, ""
        except UsageError:
            raise
        # Any of many kinds, from dpkt and from zlib.
        except Exception as error:
            return found, f"{name} ends in packet {packet}, or is damaged there; what follows is not read: {error}"
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
            talk = latest[both] = Connection((_address(*both[0]), _address(*both[1])))
            found.append(talk)
        if is_start:
            talk.client = 1 - side if tcp.flags & ACK else side
        if (is_start or tcp.data) and side not in talk.streams:
            talk.streams[side] = Stream(folder / f"{packet}.stream", base, is_start)
        if tcp.data:
            talk.streams[side].add(base, tcp.data, packet)
            kept += len(tcp.data)
        if packet > PACKETS_MAX or len(found) > CONNECTIONS_MAX or kept > KEPT_BYTES_MAX:
            raise UsageError(f"{name} is too large, or has too many connections; {REMEDY}")


def _address(host: bytes, port: int) -> str:
    return str(Address(str(ip_address(host)), port))


class _Source(io.BytesIO):
    """What dpkt reads from. It believes every size, so a size is checked here."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= PACKET_BYTES_MAX:
            raise ValueError(f"a size is {size} bytes")
        found: bytes = self._file.read(size)
        return found

    def seek(self, place: int, whence: int = 0, /) -> int:
        return int(self._file.seek(place, whence) or 0)


def _packets(name: str, data: Buffer) -> Iterator[tuple[Any, Any]]:
    """IP and TCP of each packet; the second is None for other packets."""
    try:
        import dpkt
    except ImportError:
        raise UsageError(f"{name} is a capture, which needs dpkt; pip install 'kfuzz[pcap]'") from None
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
    for _, packet in reader:
        try:
            # Without a link layer, the first four bits are IP's version.
            made = getattr(getattr(dpkt, module), link)(packet) if link else ip[packet[0] >> 4 == 6](packet)
            while not isinstance(made, ip):
                made = made.data
            yield made, made.data if isinstance(made.data, dpkt.tcp.TCP) else None
        # dpkt raises errors of many kinds for packets that are none.
        except Exception:
            yield None, None
