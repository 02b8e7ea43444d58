"""The control port: each line of JSON gets an answer, and a wrong one changes nothing and harms no other connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from cli.cli_driver import outcome
from relay.proxied import Ends
from serve.asking import NONE, SECONDS_MAX, Limits, Made, Scenario, as_test, started

from kfuzz.client.address import Address
from kfuzz.relay import control
from kfuzz.relay.control import Control
from kfuzz.relay.proxy import Proxy, Settings

RULE = {"api": "EndTxn", "error": "INVALID_TXN_STATE", "times": 1}
BROKER = Address("127.0.0.1", 9)


class Client(Ends):
    """A connection to the control port."""

    async def say(self, line: Any) -> Any:
        """The answer to a line, or to the JSON of a value; None if the connection is closed."""
        self.writer.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        said = await self.reader.readline()
        return json.loads(said) if said else None


def controlled(*, ends: int = 0, limits: Limits = NONE) -> Made:
    """Make a test of a scenario with a control port and a client of it, in which so many requests to end come.

    ``limits``: other values of constants.
    """

    async def bounded(scenario: Scenario) -> None:
        ended: list[bool] = []
        async with (
            asyncio.timeout(SECONDS_MAX),
            Proxy([BROKER], Settings()) as proxy,
            Control(proxy, 0, lambda: ended.append(True)) as port,
            Client(port.port) as client,
        ):
            await scenario(port, client)
        assert len(ended) == ends

    return lambda scenario: as_test(scenario, lambda one: asyncio.run(bounded(one)), limits, control)


@controlled()
async def test_each_request_is_done_and_answered_under_its_name(port: Control, client: Client) -> None:
    assert await client.say({"add": RULE}) == {"add": 1}
    assert await client.say({"add": RULE | {"api": "Heartbeat"}}) == {"add": 2}
    [first, second] = (await client.say({"list": True}))["list"]
    assert (first["number"], first["matched"], first["rule"]["api"]) == (1, 0, "EndTxn")
    assert await client.say({"remove": 1}) == {"remove": 1}
    assert await client.say({"list": True}) == {"list": [second]}
    assert await client.say({"clear": True}) == {"clear": 1}
    assert await client.say({"list": True}) == {"list": []}
    [place] = port._proxy.places.values()
    shown = {"broker": str(BROKER), "host": place.host, "port": place.port}
    assert await client.say({"places": True}) == {"places": [shown]}
    assert (await client.say({"summary": True}))["summary"] == port._proxy.to_json()


NO_REQUEST = 'give an object with one key, such as {"list": true}'
WRONG = {
    b"x": "the line is not JSON: line 1, column 1: expecting value; correct it",
    b"\xff": "the line is not JSON: byte 0 is not UTF-8; correct it",
    b"[" * 200 + b"]" * 200: "the line is nested deeper than 100 levels; correct it",
    b"[]": f"the line is []; {NO_REQUEST}",
    b"{}": f"the line is {{}}; {NO_REQUEST}",
    b'{"list": true, "clear": true}': f'the line is {{"list": true, "clear": true}}; {NO_REQUEST}',
    b'{"lst": true}': 'the line has "lst", which is no request; did you mean list?',
    b'{"rules": true}': (
        'the line has "rules", which is no request; '
        "the keys are add, remove, clear, list, summary, places, end, end_with_me"
    ),
    b'{"list": false}': "the line.list is false; give true",
    b'{"remove": true}': "the line.remove is true; give a whole number from 1 to 2147483647",
    b'{"add": {"api": "EndTxx", "drop": true}}': (
        'the line.add: api is "EndTxx", which is no API; did you mean EndTxn?'
    ),
    b'{"remove": 7}': "rule 7 does not exist: it was removed, or nobody added it",
}


@controlled()
async def test_a_wrong_line_gets_a_sentence_and_the_connection_stays(port: Control, client: Client) -> None:
    assert await client.say({"add": RULE}) == {"add": 1}
    for line, sentence in WRONG.items():
        assert await client.say(line) == {"error": sentence}
    assert len((await client.say({"list": True}))["list"]) == 1


@controlled(limits={"LINE_BYTES_MAX": 1000})
async def test_a_line_that_is_too_long_closes_its_connection_alone(port: Control, client: Client) -> None:
    async with Client(port.port) as other:
        assert await other.say(b" " * 980 + b'{"list": true}') == {"list": []}
        said = await other.say(b" " * 3000)
        assert said == {"error": "the line has more than 1000 bytes; send a shorter one"}
        assert await other.reader.read() == b""
    assert await client.say({"list": True}) == {"list": []}


@controlled(limits={"CONNECTIONS_MAX": 1})
async def test_there_are_only_so_many_connections_at_a_time(port: Control, client: Client) -> None:
    assert await client.say({"list": True}) == {"list": []}
    async with Client(port.port) as second:
        said = {"error": "there are 1 control connections already; close one"}
        assert json.loads(await second.reader.read()) == said
    client.writer.write_eof()
    assert await client.reader.read() == b""
    async with Client(port.port) as third:
        assert await third.say({"list": True}) == {"list": []}


@controlled()
async def test_a_page_in_a_browser_cannot_send_requests(port: Control, client: Client) -> None:
    said = await client.say(b'POST / HTTP/1.1\r\nHost: localhost\r\n\r\n{"add": {"api": "EndTxn", "drop": true}}')
    assert said == {"error": "this is no web server; send lines of JSON"}
    # The system reports the lines that were not read as an error.
    with contextlib.suppress(ConnectionResetError):
        assert await client.reader.read() == b""
    assert len(port._proxy.rules) == 0


@controlled()
async def test_the_last_line_needs_no_end_and_is_answered_before_the_connection_closes(
    port: Control, client: Client
) -> None:
    client.writer.write(b'\n\r\n{"list": true}')
    client.writer.write_eof()
    assert await client.reader.read() == b'{"list": []}\n'


@controlled(limits={"ANSWER_S_MAX": 0.01})
async def test_a_client_that_takes_no_answers_is_dropped(
    port: Control, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = 0

    def do(proxy: Proxy, value: bool) -> str:
        nonlocal handled
        handled += 1
        return "x" * (1 << 20)

    monkeypatch.setitem(control.VERBS, "summary", (control.ON, do))
    assert await client.say({"list": True}) == {"list": []}
    async with Client(port.port) as silent:
        silent.writer.write(b'{"summary": true}\n' * 100)
        while not handled or len(port._open) > 1:
            await asyncio.sleep(0.001)
        # The answers that wait for it are thrown away.
        assert not (await silent.reader.read()).endswith(b"\n")
    assert handled < 100
    assert await client.say({"list": True}) == {"list": []}


@controlled(ends=1)
async def test_the_end_is_answered_before_it_comes(port: Control, client: Client) -> None:
    assert await client.say({"end": True}) == {"end": True}
    assert await client.reader.read() == b""


@controlled(ends=1)
async def test_the_proxy_ends_with_the_connection_that_asks_for_it(port: Control, client: Client) -> None:
    assert await client.say({"end_with_me": True}) == {"end_with_me": True}
    async with Client(port.port) as other:
        assert await other.say({"places": True})
    client.writer.close()
    while port._open:
        await asyncio.sleep(0)


def test_a_control_port_that_is_taken_is_a_sentence_and_leaves_no_recording(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, said = outcome("proxy", "0", str(BROKER), "--control", f"{port}", "--record", tmp_path / "out")
    assert code == 2
    assert f"the control port {port} cannot be opened: another program uses it; " in said
    assert list(tmp_path.iterdir()) == []


def test_the_command_names_its_ports_and_ends_on_request() -> None:
    with started("proxy", "127.0.0.1:0", "127.0.0.1:9", "--control", "0", "--json") as (running, line):
        assert running.stdout
        first = json.loads(line)
        assert first["brokers"] == {"127.0.0.1:9": first["bootstrap"]}
        with socket.create_connection(("127.0.0.1", first["control_port"]), timeout=SECONDS_MAX) as client:
            client.sendall(b'{"end": true}\n')
            assert client.makefile().read() == '{"end": true}\n'
        assert json.loads(running.stdout.readline())["connections"] == 0
        assert running.wait(SECONDS_MAX) == 0
