"""Makes captures of packets, of which other tests know the connections."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import dpkt

from kfuzz.relay.recording import Recording

SYN = 0x02
ACK = 0x10
IPV4 = (b"\x0a\0\0\1", b"\x0a\0\0\2")
IPV6 = (bytes(15) + b"\1", bytes(15) + b"\2")
BROKER = 9092
# Smaller than most frames, so that many have a packet that only they have.
PART = 40
Packet = bytes


class Wire:
    """Makes the packets of connections."""

    def __init__(self, link: int = 1, hosts: tuple[bytes, bytes] = IPV4, start: int = 0xFFFFFF00) -> None:
        self.link, self.hosts = link, hosts
        # Sequence numbers begin again in the middle.
        self.next: dict[tuple[int, int], int] = {}
        self.start = start

    def packet(self, connection: int, side: int, data: bytes = b"", flags: int = 0x10, at: int | None = None) -> Packet:
        """A packet of the client (side 0) or the broker; ``at`` is its place, if not the next one."""
        known = self.next.setdefault((connection, side), self.start)
        if at is None:
            self.next[connection, side] = (known + len(data) + bool(flags & 2)) % (1 << 32)
        ports = [40_000 + connection, BROKER]
        tcp = dpkt.tcp.TCP(sport=ports[side], dport=ports[1 - side], seq=known if at is None else at, flags=flags)
        tcp.data = data
        if len(self.hosts[0]) == 4:
            ip: Any = dpkt.ip.IP(src=self.hosts[side], dst=self.hosts[1 - side], p=6, data=tcp, len=40 + len(data))
        else:
            ip = dpkt.ip6.IP6(src=self.hosts[side], dst=self.hosts[1 - side], nxt=6, data=tcp, plen=20 + len(data))
            ip.extension_hdrs, ip.all_extension_headers = {}, []
        kind = 0x0800 if len(self.hosts[0]) == 4 else 0x86DD
        fronts: dict[int, bytes] = {
            0: (2 if kind == 0x0800 else 30).to_bytes(4, "little"),
            1: bytes(12) + kind.to_bytes(2),
            101: b"",
            113: bytes(14) + kind.to_bytes(2),
            276: kind.to_bytes(2) + bytes(18),
        }
        # Ethernet fills short packets up.
        return fronts[self.link] + bytes(ip) + bytes(6 if self.link == 1 else 0)

    def talk(self, recording: Recording) -> list[Packet]:
        """The packets of all connections of a recording, with their handshakes."""
        made = []
        for event in recording.events:
            if event.event == "open":
                made += [self.packet(event.connection, side, flags=flags) for side, flags in ((0, 2), (1, 0x12))]
            elif event.size:
                side = int(event.event == "response")
                frame = recording.data(event.connection, event.event)[event.at : event.at + event.size]  # type: ignore[arg-type]
                made += [self.packet(event.connection, side, frame[i : i + PART]) for i in range(0, len(frame), PART)]
        return made


def pcap(packets: Iterable[Packet], link: int = 1, *, ng: bool = False, snaplen: int = 1 << 18) -> bytes:
    file = io.BytesIO()
    if ng:
        idb = dpkt.pcapng.InterfaceDescriptionBlockLE(linktype=link, snaplen=snaplen)
        writer: Any = dpkt.pcapng.Writer(file, idb=idb)
    else:
        writer = dpkt.pcap.Writer(file, linktype=link, snaplen=snaplen)
    for number, one in enumerate(packets):
        writer.writepkt(one[:snaplen], ts=number)
    return file.getvalue()
