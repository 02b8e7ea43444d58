"""`kfuzz proxy --record` writes exactly what clients sent and got, and recordings are read with bounds."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.cli_driver import kfuzz, outcome
from relay.conversing import joins, reads, recorded, recorded_client, writes
from relay.proxied import asking
from serve.asking import Client, request

from kfuzz.client.address import Address
from kfuzz.errors import UsageError
from kfuzz.relay.pipe import framed
from kfuzz.relay.proxy import Proxy
from kfuzz.relay.recording import CONVERSATION, COPIED_BYTES_MAX, Recorder, Recording
from kfuzz.relay.rule import parse_rule
from kfuzz.vectors import find_vector

FIRST = {"format": "kfuzz-conversation/1", "brokers": []}
OPEN = {"event": "open", "connection": 1, "ms": 1.5, "broker": "b:1", "place": "p:1"}
# Without a recording, the proxy would not read the batches of such a frame.
LARGE = 600_000


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "out"
    recorded(folder)
    return folder


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / CONVERSATION).read_text().splitlines()]


def test_the_files_have_the_bytes_that_each_client_sent_and_got(tmp_path: Path) -> None:
    seen: dict[int, list[bytes]] = {1: [], 2: []}

    async def twice(proxy: Proxy) -> None:
        async with asking(proxy) as first, asking(proxy) as second:
            for number, client in ((2, second), (1, first), (2, second)):
                frame = request("Metadata", 9, {"topics": None}, number=len(seen[number]) + 1)
                seen[number] += [frame, await client.exchange(frame)]

    recorded(tmp_path / "out", twice)
    for number, frames in seen.items():
        for at_frame, name in ((0, "requests"), (1, "responses")):
            assert (tmp_path / "out" / f"{number}.{name}").read_bytes() == b"".join(map(framed, frames[at_frame::2]))
    first, *rest = lines(tmp_path / "out")
    assert first["format"] == "kfuzz-conversation/1"
    [place] = first["brokers"]
    shown = [(one["event"], one["connection"]) for one in rest]
    talk = [(event, number) for number in (2, 1, 2) for event in ("request", "response")]
    others = [("close", 1), ("close", 2), ("end", 0), ("open", 1), ("open", 2)]
    assert [one for one in shown if one not in others] == talk
    assert sorted(one for one in shown if one in others) == others
    request_line, response_line = [one for one in rest if one["event"] in ("request", "response")][:2]
    size = len(seen[2][0]) + 4
    wanted = {"event": "request", "connection": 2, "ms": 0, "at": 0, "size": size, "broker": place["broker"]}
    assert request_line | {"ms": 0} == wanted | {"api": "Metadata", "version": 9, "correlation": 1}
    # The client sees where the proxy listens.
    assert response_line["changed"] is True
    assert place["broker"].encode() not in seen[2][1]
    assert rest[-1] | {"ms": 0} == {"event": "end", "connection": 0, "ms": 0, "why": "the proxy ended", "frames": 6}


def test_show_opens_all_connections_in_their_order_and_a_strict_reader_says_nothing(conversation: Path) -> None:
    shown = kfuzz("show", "--frames", conversation, "--profile", "strict").stdout.splitlines()
    assert shown[0] == f"{conversation}: 2 connections"
    apis = [line.split()[4] for line in shown[2:-1]]
    assert apis[-9:] == [
        *("LeaveGroup", "ApiVersions", "Metadata", "FindCoordinator", "InitProducerId", "AddPartitionsToTxn"),
        *("Produce", "EndTxn", "Fetch"),
    ]
    assert shown[-1] == f"{len(apis)} requests, {len(apis)} with a response, 0 frames cannot be read"
    made = json.loads(kfuzz("show", "--frames", conversation, "--frame", f"{len(apis) - 1}", "--json").stdout)
    assert made["answer"]["frame"]["message"] == "FetchResponse"
    made = json.loads(kfuzz("show", "--frames", conversation, "--json").stdout)
    assert (made["connections"], made["requests"]) == (2, len(apis))
    assert [one["connection"] for one in made["frames"]] == [int(line.split()[0]) for line in shown[2:-1]]


def test_a_large_frame_is_written_after_the_small_ones_before_it(tmp_path: Path) -> None:
    async def large(client: Client) -> None:
        await writes(client, b"1" * 10)
        await writes(client, b"2" * LARGE)
        assert await reads(client, 2) == [b"2" * LARGE]

    recorded_client(tmp_path / "out", large)
    recording = Recording(tmp_path / "out")
    ends = {"request": 0, "response": 0}
    for event in recording.events:
        if event.event in ends:
            assert event.at == ends[event.event]
            ends[event.event] += event.size
            assert len(recording.frame(event)) == event.size - 4
    assert [(tmp_path / "out" / f"1.{name}s").stat().st_size for name in ends] == list(ends.values())


def test_a_full_recording_ends_and_the_proxy_continues(tmp_path: Path) -> None:
    sentences = recorded(tmp_path / "out", record_bytes_max=12_000)
    [sentence] = [one for one in sentences if "recorded" in one]
    assert sentence == f"{tmp_path / 'out'} has 12000 B, so nothing more is recorded; --record-max allows more"
    assert lines(tmp_path / "out")[-1]["why"] == f"{tmp_path / 'out'} has 12000 B"
    # Each file counts as a block of the disk.
    assert sum(one.stat().st_size for one in (tmp_path / "out").iterdir()) < 12_000
    assert not Recording(tmp_path / "out").flaw


def test_connections_without_a_frame_fill_a_recording_too(tmp_path: Path) -> None:
    said: list[str] = []

    async def many() -> None:
        broker = Address("b", 1)
        recorder = Recorder(tmp_path / "out", 2000, [broker], {broker: Address("p", 1)}, said.append)
        for number in range(1, 100):
            recorder.opened(number, broker)
            recorder.closed(number)

    asyncio.run(many())
    assert said == [f"{tmp_path / 'out'} has 2000 B, so nothing more is recorded; --record-max allows more"]
    assert (tmp_path / "out" / CONVERSATION).stat().st_size < 2500
    assert not Recording(tmp_path / "out").flaw


def test_a_folder_that_is_gone_ends_the_recording_and_the_proxy_continues(tmp_path: Path) -> None:
    async def removed(client: Client) -> None:
        await joins(client)
        shutil.rmtree(tmp_path / "out")
        await writes(client, b"v" * (COPIED_BYTES_MAX + 1))
        await writes(client, b"v" * (COPIED_BYTES_MAX + 1))

    [sentence] = [one for one in recorded_client(tmp_path / "out", removed) if "recorded" in one]
    assert sentence.startswith(f"nothing more is recorded: {tmp_path / 'out'} cannot be written")


def test_what_comes_after_a_connection_has_closed_is_not_recorded(tmp_path: Path) -> None:
    async def late() -> None:
        broker = Address("b", 1)
        recorder = Recorder(tmp_path / "out", 1 << 20, [broker], {broker: Address("p", 1)}, print)
        recorder.opened(1, broker)
        recorder.closed(1)
        recorder.frame(1, broker, "response", None, [framed(b"late")])
        recorder.end()

    asyncio.run(late())
    assert [one.event for one in Recording(tmp_path / "out").events] == ["open", "close", "end"]


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note").touch()
    with pytest.raises(UsageError, match="is not empty"):
        recorded(tmp_path)


def test_a_killed_proxy_leaves_a_recording_that_says_so(conversation: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(conversation, tmp_path / "out")
    whole = (folder / CONVERSATION).read_bytes()
    (folder / CONVERSATION).write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 20])
    assert Recording(folder).flaw == f"{folder} has no end: the proxy was killed, or it still runs"
    assert kfuzz("show", "--frames", folder).stdout.splitlines()[-1].endswith("or it still runs")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "is empty"),
        (["nothing"], "line 1 of {} is not JSON"),
        ([{**FIRST, "format": "kfuzz-conversation/2"}], "line 1 of {}.format is"),
        ([FIRST, {**OPEN, "event": "opened"}], "line 2 of {}.event is"),
        ([FIRST, {**OPEN, "connection": "../1"}], "line 2 of {}.connection is"),
        ([FIRST, {**OPEN, "broker": "b" * 70_000}], "line 2 of {} is longer than"),
        ([FIRST, OPEN, {"event": "request", "connection": 1, "ms": 0, "size": 9}], "has 0 bytes, but a frame ends at"),
    ],
)
def test_a_wrong_recording_is_one_sentence(tmp_path: Path, given: list[Any], sentence: str) -> None:
    text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in given)
    (tmp_path / CONVERSATION).write_text(text)
    said = kfuzz("play", tmp_path, "--bootstrap", "127.0.0.1:1", code=2).stderr
    assert sentence.format(tmp_path / CONVERSATION) in said


def test_a_recording_may_not_lead_out_of_its_folder(conversation: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = shutil.copytree(conversation, tmp_path / "out")
    (folder / "1.requests").unlink()
    (folder / "1.requests").symlink_to(tmp_path / "secret")
    code, _, said = outcome("show", "--frames", folder)
    assert (code, "is a link, which kfuzz does not follow" in said) == (2, True)


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("Metadata error=LEADER_NOT_AVAILABLE", 1),
        ('Metadata direction=request answer={"controllerId":7}', 1),
        ("Metadata duplicate=true", 2),
        ("Metadata cut=9", 1),
        ("Metadata hex=00", 1),
        # A line without bytes.
        ("Metadata drop", 1),
    ],
)
def test_what_a_rule_changed_is_recorded_as_the_client_got_it(tmp_path: Path, rule: str, count: int) -> None:
    got = b""

    async def asks(client: Client) -> None:
        nonlocal got
        client.writer.write(framed(request("Metadata", 9, {"topics": None})))
        client.writer.write_eof()
        got = await client.reader.read()

    recorded_client(tmp_path / "out", asks, rules=(parse_rule(rule),))
    written = tmp_path / "out" / "1.responses"
    assert (written.read_bytes() if written.exists() else b"") == got
    responses = [one for one in lines(tmp_path / "out") if one.get("event") == "response"]
    assert [one["changed"] for one in responses] == [True] * count
    assert sum(one["size"] for one in responses) == len(got)
    is_dropped = rule.endswith("drop")
    assert (got == b"") == is_dropped
    if is_dropped:
        assert responses[0]["api"] == "Metadata"
        shown = kfuzz("show", "--frames", tmp_path / "out").stdout
        assert shown.endswith("1 requests, 0 with a response, 0 frames cannot be read\n")


def test_a_golden_conversation_opens_as_a_recording() -> None:
    name = "conversation/reading/lost"
    vector = find_vector(name)
    recording, frames = Recording.of(vector), vector.options["frames"]
    of_frames = [one for one in recording.events if one.event in ("request", "response")]
    assert [bytes(recording.frame(one)).hex() for one in of_frames] == [one["hex"] for one in frames]
    shown = kfuzz("show", name, "--profile", "strict").stdout
    assert "then follows" in shown
    assert "0 frames cannot be read" in shown


def test_what_is_neither_a_folder_nor_a_conversation_is_no_recording() -> None:
    code, _, error = outcome("play", "records/v2/count/negative-one", "--listen", "127.0.0.1:0")
    assert (code, "count" in error) == (2, True), error
