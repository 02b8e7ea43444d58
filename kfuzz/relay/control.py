"""The control port of a proxy: lines of JSON over TCP, an answer for each (docs/client-tests.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from typing import Any, Final

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.forms import Form, Wrong, integer, nearest, shown
from kfuzz.kafka import INT32_MAX
from kfuzz.relay.proxy import Proxy
from kfuzz.relay.rule import Rule
from kfuzz.serve.server import cannot_open
from kfuzz.text import foreign_text

HOST: Final = "127.0.0.1"
# A rule may hold the bytes of a message.
LINE_BYTES_MAX: Final = 4 << 20
CONNECTIONS_MAX: Final = 100
# How long a client may take for an answer.
ANSWER_S_MAX: Final = 10.0
# A page in a browser can send such lines to this machine, and JSON after them.
HTTP: Final = re.compile(rb"[A-Za-z]+ \S* HTTP/")

NUMBER: Final = integer(1, INT32_MAX)
# The rule checks what is in it.
TABLE: Final = Form({"type": "object"}, "give a rule, a JSON object", lambda value: type(value) is dict)
ON: Final = Form({"const": True}, "give true", lambda value: value is True)


# For each request: the form of its value, and a function that does it and gives the value of its answer.
VERBS: Final[dict[str, tuple[Form, Callable[[Proxy, Any], Any]]]] = {
    "add": (TABLE, lambda proxy, rule: proxy.rules.add(Rule(rule, "the line.add"))),
    "remove": (NUMBER, lambda proxy, number: proxy.rules.remove(number)),
    "clear": (ON, lambda proxy, _: proxy.rules.clear()),
    "list": (ON, lambda proxy, _: proxy.rules.to_json()),
    "summary": (ON, lambda proxy, _: proxy.to_json()),
    "places": (ON, lambda proxy, _: proxy.to_json()["brokers"]),
    "end": (ON, lambda proxy, value: value),
    "end_with_me": (ON, lambda proxy, value: value),
}


def answer(proxy: Proxy, line: bytes) -> dict[str, Any]:
    """Do what a line asks for. Its answer has the same key; ``UsageError`` if the line is wrong: nothing was done."""
    asked = load_json(line, "the line", remedy="correct it", bytes_max=LINE_BYTES_MAX)
    if not isinstance(asked, dict) or len(asked) != 1:
        raise UsageError(f'the line is {shown(asked)}; give an object with one key, such as {{"list": true}}')
    [(verb, value)] = asked.items()
    if verb not in VERBS:
        remedy = nearest(verb, VERBS) or f"the keys are {', '.join(VERBS)}"
        raise UsageError(f"the line has {shown(verb)}, which is no request; {remedy}")
    form, do = VERBS[verb]
    try:
        form.check(value)
    except Wrong as wrong:
        raise UsageError(wrong.inside(f".{verb}").sentence("the line")) from None
    return {verb: do(proxy, value)}


class Control:
    """The control port of ``proxy``. Use it in an ``async with`` block in the proxy's loop; :attr:`port` is its number.

    ``end`` is called for the request ``end``, and when a connection ends that asked for ``end_with_me``. Entering the
    block raises ``UsageError`` if ``port`` cannot be opened.
    """

    def __init__(self, proxy: Proxy, port: int, end: Callable[[], None]) -> None:
        self.port = port
        self._proxy = proxy
        self._end = end
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Control:
        try:
            self._server = await asyncio.start_server(self._connected, HOST, self.port, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise cannot_open(f"the control port {self.port}", error) from None
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        # A client may close its connection at any time. The block's end cancels the task.
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
            if len(self._open) >= CONNECTIONS_MAX:
                await _say(writer, {"error": f"there are {CONNECTIONS_MAX} control connections already; close one"})
                return
            self._open.add(task)
            seen: set[str] = set()
            try:
                await self._answer_all(reader, writer, seen)
            finally:
                self._open.discard(task)
                if seen & {"end", "end_with_me"}:
                    self._end()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: set[str]) -> None:
        while "end" not in seen:
            try:
                line = await reader.readline()
            except ValueError:
                await _say(writer, {"error": f"the line has more than {LINE_BYTES_MAX} bytes; send a shorter one"})
                return
            if not line:
                return
            if HTTP.match(line):
                await _say(writer, {"error": "this is no web server; send lines of JSON"})
                return
            if not line.strip():
                continue
            try:
                said = answer(self._proxy, line)
            except UsageError as error:
                said = {"error": foreign_text(error)}
            await _say(writer, said)
            seen.update(said)


async def _say(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    writer.write(json.dumps(value).encode() + b"\n")
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            await writer.drain()
    except TimeoutError:
        # Closing it would wait until the client takes the answers.
        writer.transport.abort()
        raise
