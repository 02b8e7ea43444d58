"""A proxy and a cluster inside a Python program, for tests of clients. Each runs in a thread of its own.

``proxy(broker)``
    a proxy in front of brokers; its rules make errors, delays and other trouble
``cluster(count)``
    brokers in memory, as ``kfuzz serve --cluster`` has

Both are for ``with`` blocks, and ``kfuzz.proxy`` and ``kfuzz.cluster`` are the same functions.

>>> with cluster(3) as brokers, proxy(brokers.bootstrap) as between:
...     brokers.topic("orders")
...     rule = between.error("Produce", "NOT_LEADER_OR_FOLLOWER").once()
...     # … a client that connects to between.bootstrap …
...     rule.matched
0
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from kfuzz.client.address import PLAIN, Address, Security
from kfuzz.errors import UsageError
from kfuzz.forms import nearest, shown
from kfuzz.messages.jsonform import to_json
from kfuzz.relay.frames import Direction, Frame, api_names
from kfuzz.relay.loop import run
from kfuzz.relay.proxy import Proxy, Settings, Tell
from kfuzz.relay.rule import SEED, SEED_MAX, Rule
from kfuzz.relay.rules import Live
from kfuzz.serve.answers import Broker
from kfuzz.serve.cluster import NODES_MAX
from kfuzz.serve.feeding import done
from kfuzz.serve.server import Server
from kfuzz.serve.server import Settings as ServerSettings
from kfuzz.serve.topics import PARTITIONS_MAX, Topics

__all__ = ["AddedRule", "Applied", "LocalCluster", "LocalProxy", "NotingProxy", "Seen", "cluster", "proxy"]

T = TypeVar("T")
R = TypeVar("R")

# The last frames that LocalProxy.frames has, and the bytes that it keeps of one.
FRAMES_MAX: Final = 1000
FRAME_BYTES_MAX: Final = 64 << 10
# A loop that does not answer for so long is stuck.
CALL_S_MAX: Final = 30.0

log = logging.getLogger("kfuzz")


def _warn(sentence: str) -> None:
    log.warning("%s", sentence)


class _Local(Generic[T]):
    """Something asynchronous that runs in a thread of its own while a ``with`` block does."""

    def __init__(self, what: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._what = what
        self._make = make
        self._started: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._main, name=f"kfuzz {what}", daemon=True)
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        if self._thread.ident is not None:
            raise UsageError(f"this {self._what} has been used already; make another")
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stop()
        # The error of the block says more.
        if self._fault is not None and error is None:
            raise self._fault

    def _stop(self) -> None:
        # A start that was interrupted, for example by Ctrl-C, ends when it meets the cancelled future.
        if not self._started.cancel() and self._started.exception() is None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _main(self) -> None:
        try:
            run(self._run())
        except BaseException as error:
            self._fault = self._fault or error
            if not self._started.done():
                self._started.set_exception(error)

    async def _run(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(self._failed)
        async with self._make() as made:
            self._started.set_result(made)
            await self._ended.wait()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback has raised an error, which nobody awaits."""
        self._fault = self._fault or context.get("exception")
        loop.default_exception_handler(context)

    @property
    def _inner(self) -> T:
        if not self._started.done():
            raise UsageError(f"the {self._what} does not run yet; use it in a with block")
        return self._started.result()

    def _call(self, do: Callable[[T], R], *, after_end: bool = False) -> R:
        """Call ``do`` in the loop, and give what it gives. Raises the fault of the thread, if it had one."""
        inner = self._inner
        if self._fault is not None:
            raise self._fault
        if not self._thread.is_alive():
            if not after_end:
                raise UsageError(f"the {self._what} has ended; do this inside its with block")
            return do(inner)

        async def inside() -> R:
            return do(inner)

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(CALL_S_MAX)


# --- the proxy


class AddedRule:
    """A rule of a proxy that runs."""

    def __init__(self, proxy: LocalProxy, live: Live) -> None:
        self._proxy = proxy
        self._live = live
        self.number = live.number

    @property
    def matched(self) -> int:
        """How many frames met all of its conditions so far."""
        return self._live.matched

    @property
    def applied(self) -> int:
        """How many of these it has changed, held back or lost."""
        return self._live.applied

    def times(self, count: int) -> AddedRule:
        """Let it change at most ``count`` frames in all. Returns the same object."""
        if type(count) is not int or count < 1:
            raise UsageError(f"times is {shown(count)}; give a whole number from 1 on, or remove the rule")
        self._proxy._call(lambda inner: inner.rules.set_times(self.number, count))
        return self

    def once(self) -> AddedRule:
        """Let it change one frame. Returns the same object."""
        return self.times(1)

    def remove(self) -> None:
        """Remove it. ``UsageError`` if it is not there any more."""
        self._proxy._call(lambda inner: inner.rules.remove(self.number))


class Seen:
    """A frame that came to the proxy, before any rule has changed it.

    - ``api``: the name of the API, or its number; ``version``; ``direction``: ``"request"`` or ``"response"``
    - ``connection``: the number of its connection, from 1; ``number``: that of its request in the connection, from 1
    - ``client_id``: None if there is none
    - ``size``: its bytes, without the four bytes of its size
    - ``errors``: how often the response has each of Kafka's errors, by its number
    """

    def __init__(self, frame: Frame) -> None:
        exchange = frame.exchange
        self.api = exchange.name
        self.version = exchange.version
        self.direction = frame.direction
        self.connection = exchange.connection
        self.number = exchange.number
        self.client_id = exchange.client_id
        self.size = len(memoryview(frame.data))
        self.errors = dict(frame.errors)
        # The bytes of ``frame`` will be overwritten.
        is_kept = self.size <= FRAME_BYTES_MAX
        self._frame = Frame(exchange, frame.direction, bytes(frame.data), frame.body_at) if is_kept else None

    def values(self) -> dict[str, Any]:
        """The values of its body, by the names of the fields, as :mod:`kfuzz.messages` has them.

        ``UsageError`` if it has more than 64 KiB, which are not kept; ``DecodeError`` if it cannot be read.
        """
        return self._kept().values()

    def to_json(self) -> dict[str, Any]:
        """The same in the JSON form of messages, which rules have. Raises as :meth:`values`."""
        frame = self._kept()
        values, form = frame.values(), frame.form
        assert form is not None
        return to_json(form.definition, form.version, values)

    def body(self) -> bytes:
        """The bytes of its body. ``UsageError`` and ``DecodeError`` as for :meth:`values`."""
        frame = self._kept()
        return bytes(memoryview(frame.data)[frame.header_end() :])

    def _kept(self) -> Frame:
        if self._frame is None:
            raise UsageError(f"the frame has {self.size} bytes; only {FRAME_BYTES_MAX} bytes of a frame are kept")
        return self._frame

    def __repr__(self) -> str:
        return f"<{self.api} {self.version} {self.direction} {self.number} of connection {self.connection}>"


class Applied(NamedTuple):
    """A rule has done something to a frame: the rule's number, the frame as it came, and as it is now."""

    rule: int
    before: Seen
    after: Seen


class NotingProxy(Proxy):
    """A proxy that keeps what rules did to its last frames, in :attr:`applied`."""

    def __init__(self, brokers: Sequence[Address], settings: Settings, **more: Any) -> None:
        super().__init__(brokers, settings, **more)
        self.applied: deque[Applied] = deque(maxlen=FRAMES_MAX)
        self.rules.on_applied = self._note

    def _note(self, live: Live, before: Frame, after: Frame) -> None:
        self.applied.append(Applied(live.number, Seen(before), Seen(after)))


class LocalProxy(_Local[NotingProxy]):
    """A proxy in a thread of its own; :func:`proxy` makes it. Use it in a ``with`` block."""

    def __init__(self, brokers: Sequence[Address], settings: Settings, tell: Tell) -> None:
        def make() -> NotingProxy:
            made = NotingProxy(brokers, settings, tell=tell)
            made.on_frame = lambda frame: self._seen.append(Seen(frame))
            return made

        super().__init__("proxy", make)
        self._tell = tell
        self._seen: deque[Seen] = deque(maxlen=FRAMES_MAX)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            for live in self._inner.rules:
                if not live.matched:
                    self._tell(str(live))

    @property
    def bootstrap(self) -> str:
        """Where clients connect to, as ``host:port``; with several brokers, all of these with commas between."""
        return self._inner.bootstrap

    def rule(self, api: str, /, **fields: Any) -> AddedRule:
        """Add a rule for an API. ``fields`` are its other conditions and its action, as in docs/proxy.md.

        ``UsageError`` if it is wrong. ``rule("Fetch", delay_ms=200, connection=1)`` delays the fetches of a connection.
        """
        made = Rule({"api": api, **fields})
        return AddedRule(self, self._call(lambda inner: inner.rules[inner.rules.add(made)]))

    def error(self, api: str, error: str | int, /, **fields: Any) -> AddedRule:
        """Add a rule that gives the responses of an API an error, such as ``"INVALID_TXN_STATE"``, or its number."""
        return self.rule(api, error=error, **fields)

    def clear(self) -> None:
        """Remove all rules."""
        self._call(lambda inner: inner.rules.clear())

    def summary(self) -> dict[str, Any]:
        """The proxy's sums so far, as ``kfuzz proxy --json`` prints them in the end. Also works after the block."""
        return self._call(lambda inner: inner.to_json(), after_end=True)

    def applied(self) -> list[Applied]:
        """The last 1,000 times that a rule did something to a frame. Also works after the block."""
        return self._call(lambda inner: list(inner.applied), after_end=True)

    def frames(self, api: str | None = None, direction: Direction | None = None) -> list[Seen]:
        """The last frames that came, of all APIs or of one; of the last 1,000 of all. Also works after the block.

        ``UsageError`` for an unknown API or direction.
        """
        if api is not None and api not in api_names():
            raise UsageError(f"{shown(api)} is no API; {nearest(api, api_names()) or 'give a name such as Fetch'}")
        if direction not in (None, "request", "response"):
            raise UsageError(f"the direction is {shown(direction)}; give request or response, or leave it out")
        seen = self._call(lambda _: list(self._seen), after_end=True)
        return [one for one in seen if api in (None, one.api) and direction in (None, one.direction)]


def proxy(
    *brokers: str,
    rules: Sequence[Mapping[str, Any]] = (),
    seed: int = SEED,
    strict: bool = False,
    batches: bool = False,
    open_to_others: bool = False,
    record: str | Path | None = None,
    security: Security = PLAIN,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    tell: Tell = _warn,
) -> LocalProxy:
    """A proxy in front of ``brokers``, each ``"host:port"``, or several of these with commas between.

    It listens on a free port of this machine.

    - ``rules``: rules from the start, as in JSON; ``seed``: for their decisions by chance
    - ``strict``: close a connection instead of passing on a frame that is not as it should be
    - ``batches``: check the record batches too
    - ``open_to_others``: it may connect to brokers on other machines
    - ``record``: an empty folder, or one to make, for a recording of what clients send and get
    - ``security``: how it connects to brokers: ``Security(tls=True, ca="ca.pem", user="me", password="…")`` of
      ``kfuzz.client.address``
    - ``cert``, ``key``: files of a certificate and its key. With these, clients connect by TLS.
    - ``tell``: gets the proxy's remarks, which are sentences; otherwise they go to the logger ``kfuzz``

    ``UsageError`` if an address or a rule is wrong.
    """
    for broker in brokers:
        if not isinstance(broker, str):
            raise UsageError(f"{shown(broker)} is not the address of a broker; give a text such as 127.0.0.1:9092")
    addresses = [Address.parse(one.strip()) for broker in brokers for one in broker.split(",")]
    if not addresses:
        raise UsageError('a proxy needs a broker; give its "host:port"')
    if type(seed) is not int or not 0 <= seed <= SEED_MAX:
        raise UsageError(f"seed is {shown(seed)}; give a whole number from 0 to {SEED_MAX}")
    if isinstance(rules, str | Mapping):
        raise UsageError('rules is one rule; give a list of rules, such as [{"api": "Fetch", "drop": True}]')
    made = tuple(Rule(one, f"rules[{at}]") for at, one in enumerate(rules))
    settings = Settings(
        strict=strict,
        batches=batches,
        open_to_others=open_to_others,
        record=None if record is None else Path(record),
        security=security,
        cert=None if cert is None else Path(cert),
        key=None if key is None else Path(key),
        rules=made,
        seed=seed,
    )
    return LocalProxy(addresses, settings, tell)


# --- the cluster


class LocalCluster(_Local[Server]):
    """Brokers in a thread of their own; :func:`cluster` makes them. Use it in a ``with`` block."""

    def __init__(self, settings: ServerSettings, broker: Broker | None = None) -> None:
        def make() -> Server:
            return Server(Topics(), settings, tell=_warn, broker=broker)

        super().__init__("cluster", make)

    @property
    def bootstrap(self) -> str:
        """Where clients connect to: ``host:port`` of each broker, with commas between."""
        return ",".join(map(str, self._inner.places))

    def topic(self, name: str, *, partitions: int = 1) -> None:
        """Make a topic that clients write to and read from, or empty it. Broker 1 leads it."""
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise UsageError(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
        for partition in range(partitions):
            self.line(topic=name, partition=partition, produce=True)

    def move(self, topic: str, *, to: int, partition: int = 0) -> None:
        """Let another broker lead a partition, in a new epoch. ``to`` is its number, from 1."""
        self.line(move=topic, partition=partition, to=to)

    def line(self, **fields: Any) -> dict[str, Any]:
        """Do what such a line does for ``kfuzz serve --from-stdin`` (docs/serve.md). Returns its answer.

        ``line(topic="orders")`` has the records that clients have written. ``UsageError`` if the line is wrong.
        """
        text = json.dumps(fields).encode()
        return self._call(lambda server: done(server.broker.cluster, text))


def cluster(count: int = 1) -> LocalCluster:
    """``count`` brokers in memory, up to 9, without topics at first. They listen on free ports of this machine."""
    if type(count) is not int or not 1 <= count <= NODES_MAX:
        raise UsageError(f"a cluster has 1 to {NODES_MAX} brokers, not {shown(count)}")
    return LocalCluster(ServerSettings(brokers=count))
