"""A capture of packets shows the same frames as a recording of the same conversation, and says what it lacks."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from cli.cli_driver import kfuzz
from relay.capturing import IPV4, IPV6, PART, SYN, Wire, pcap

from kfuzz.errors import UsageError
from kfuzz.relay.captures import Capture
from kfuzz.relay.recording import Recording
from kfuzz.vectors import find_vector

# Ten connections to two brokers; most frames take more than one packet.
CONVERSATION = Recording.of(find_vector("conversation/groups/handed-over"))


def talk(recording: Recording) -> list[Any]:
    """The requests with their answers, without their places: connection, name, correlation id and both sizes."""
    found = [(number, one.to_json()) for number, one in recording.frames("kafka") if not one.is_stray]
    # Two packets may be in the other order.
    return sorted(
        [number, one["message"], one["correlation_id"], one["size"], (one.get("answer") or {}).get("size", 0)]
        for number, one in found
    )


WHOLE = talk(CONVERSATION)
PACKETS = Wire().talk(CONVERSATION)


@pytest.mark.parametrize(
    ("link", "hosts"), [(1, IPV4), (1, IPV6), (0, IPV4), (0, IPV6), (101, IPV4), (101, IPV6), (113, IPV4), (276, IPV6)]
)
def test_the_frames_are_those_of_the_recording_on_every_network(link: int, hosts: tuple[bytes, bytes]) -> None:
    ng = hosts == IPV6
    data = pcap(Wire(link, hosts).talk(CONVERSATION), link, ng=ng)
    capture = Capture("c", gzip.compress(data, 1) if ng else data)
    assert talk(capture) == WHOLE
    assert (capture.connections, capture.flaw) == (CONVERSATION.connections, "")
    assert str(capture.clients[0]).endswith(("10.0.0.2:9092", "[::2]:9092"))


def test_packets_may_be_out_of_order_repeated_and_overlap() -> None:
    rng = random.Random(1)
    wire, made = Wire(), []
    for one in wire.talk(CONVERSATION):
        made += [one] * rng.choice((1, 1, 2))
        if len(made) > 1 and rng.random() < 0.4:
            made[-2:] = made[:-3:-1]
    # One packet with the first bytes of the first request, and others after it.
    first = bytes(CONVERSATION.data(1, "request")[:70])
    late = Wire().packet(1, 0, first, at=(wire.start + 1) % (1 << 32))
    assert talk(Capture("c", pcap([*made[:9], late, *made[9:], late]))) == WHOLE


def test_frames_with_holes_are_left_out_and_the_place_is_said() -> None:
    # The second packet of the second request, and the packet with the start of another.
    large = next(i for i, one in enumerate(PACKETS) if i > 60 and len(one) > 90)
    capture = Capture("c", pcap(PACKETS[:large] + PACKETS[large + 1 :]))
    found = talk(capture)
    lost = [one for one in WHOLE if one not in found]
    assert len(lost) <= 2
    assert len(found) >= len(WHOLE) - 1
    assert re.search(
        rf"connection \d, (requests|responses): {PART} bytes are not in the capture, in 1 hole, the first at ",
        capture.flaw,
    )
    assert not any(one.error for _, one in capture.frames("kafka"))


@pytest.mark.parametrize("seed", range(4))
def test_no_frame_is_invented_where_packets_are_missing(seed: int) -> None:
    rng = random.Random(seed)
    packets = [one for one in PACKETS[rng.randrange(len(PACKETS)) :] if rng.random() > 0.05]
    known = {(name, number, size) for _, name, number, size, _ in WHOLE}
    assert {(name, number, size) for _, name, number, size, _ in talk(Capture("c", pcap(packets)))} <= known


def test_a_capture_may_begin_in_the_middle() -> None:
    capture = Capture("c", pcap(PACKETS[205:]))
    assert len(talk(capture)) > len(WHOLE) // 2
    assert capture.flaw == "2 connections began before the capture"


def test_a_last_request_without_an_id_does_no_harm() -> None:
    wire, first = Wire(), next(one for one in CONVERSATION.events if one.event == "request")
    asked, said = CONVERSATION.data(first.connection, "request"), CONVERSATION.data(first.connection, "response")
    packets = [wire.packet(1, 0, flags=SYN), wire.packet(1, 0, asked[: first.size] + b"\0\0\0\1\0")]
    capture = Capture("c", pcap([*packets, wire.packet(1, 1, said[:PART])]))
    assert [bool(one.error) for _, one in capture.frames("kafka")] == [False, True]


def test_what_is_not_kafka_is_counted(tmp_path: Path) -> None:
    wire = Wire()
    others = [wire.packet(20, side, flags=flags) for side, flags in ((0, 2), (1, 0x12))]
    others += [wire.packet(20, 0, b"\x16\x03\x01\0\x02ab"), wire.packet(21, 0, b"GET / HTTP/1.1\r\n\r\n")]
    file = tmp_path / "c.pcap"
    file.write_bytes(pcap([*PACKETS[:60], b"", b"junk", *others, *PACKETS[60:]]))
    assert talk(Capture("c", file.read_bytes())) == WHOLE
    out = kfuzz("show", "--frames", file).stdout.splitlines()
    assert out[0] == f"{file}: {CONVERSATION.connections} connections"
    assert out[1] == "connection 1: 10.0.0.1:40001 to 10.0.0.2:9092"
    assert out[-1] == "2 connections without a request of Kafka left out; 1 connection of them encrypted by TLS"
    shown = json.loads(kfuzz("show", "--frames", file, "--json").stdout)
    assert len(shown["frames"]) == len(WHOLE)
    assert shown["flaw"] == out[-1]
    assert "read: " in kfuzz("show", "--frame", "3", file).stdout


@pytest.mark.parametrize(("hosts", "snaplen"), [(IPV4, 90), (IPV6, 110), (IPV4, 60), (IPV4, 20)])
def test_packets_that_the_recording_cut_are_said_with_the_remedy(hosts: tuple[bytes, bytes], snaplen: int) -> None:
    packets = Wire(hosts=hosts).talk(CONVERSATION)
    # Ethernet fills up with six bytes.
    cut = [number for number, one in enumerate(packets, 1) if len(one) - 6 > snaplen]
    capture = Capture("c", pcap(packets, ng=hosts == IPV6, snaplen=snaplen))
    told = f"c has only the beginning of {len(cut)} packets, from packet {cut[0]} on; record again with `-s 0`"
    assert capture.flaw.splitlines()[-1] == told
    # It costs the frames that are in it.
    capture = Capture("c", pcap([*packets[: cut[-1] - 1], packets[cut[-1] - 1][:snaplen], *packets[cut[-1] :]]))
    assert len(talk(capture)) >= len(WHOLE) - 1


@pytest.mark.parametrize("ng", [False, True])
def test_a_capture_that_ends_inside_a_packet_is_read_up_to_there(ng: bool) -> None:
    data, size = pcap(PACKETS, ng=ng), len(PACKETS[-1])
    # In the last packet, before its bytes, and inside what is in front of it.
    for cut in (5, size, size + 12) if ng else (5, size, size + 4):
        capture = Capture("c", data[:-cut])
        assert len(talk(capture)) == len(WHOLE)
        assert f"c ends inside packet {len(PACKETS)}, or has a wrong length" in capture.flaw
    before = len(pcap(PACKETS[:-1], ng=ng))
    assert "c ends" not in Capture("c", data[:before]).flaw


@pytest.mark.parametrize("ng", [False, True])
@pytest.mark.parametrize("length", [b"\xff\xff\xff\x7f", b"\x09\0\0\0", b"\x00\x02\0\0"])
def test_a_wrong_length_costs_no_more_than_its_packet(ng: bool, length: bytes) -> None:
    data, middle = pcap(PACKETS, ng=ng), len(PACKETS) // 2
    # In front of the length are a packet's time, or a block's kind.
    at = len(pcap(PACKETS[:middle], ng=ng)) + (4 if ng else 8)
    for packed in (bytes, lambda one: gzip.compress(one, 1)):
        capture = Capture("c", packed(data[:at] + length + data[at + 4 :]))
        assert len(talk(capture)) >= len(WHOLE) - 1
        [near] = re.findall(r"c has wrong lengths in 1 place, the first near packet (\d+); ", capture.flaw)
        assert middle <= int(near) < middle + 9
        assert "ends inside" not in capture.flaw


def test_a_damaged_capture_is_read_up_to_the_damage() -> None:
    data = pcap(PACKETS)
    capture = Capture("c", data[:-200] + b"\xff" * 200)
    assert len(talk(capture)) > len(WHOLE) - 3
    assert "c is damaged in packet " in capture.flaw
    rng = random.Random(2)
    for _ in range(8):
        changed = bytearray(data)
        for _ in range(20):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        talk(Capture("c", bytes(changed)))
    with pytest.raises(UsageError, match="link type 127"):
        Capture("c", pcap([], 127))
