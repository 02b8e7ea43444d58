"""Plays one side of a recorded conversation: its clients to a fresh broker, or its brokers to a fresh client.

The other side is compared with the record; ``identities`` knows what may differ.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.client.address import Access, Address
from kfuzz.client.link import Link, are_of_this_machine
from kfuzz.client.protocol import ConnectionLost
from kfuzz.errors import EncodeError, MessageError, UsageError
from kfuzz.forms import shown
from kfuzz.messages import decode
from kfuzz.relay.addresses import replace_addresses
from kfuzz.relay.frames import CORRELATION, HEAD, Direction, Exchange, Frame, Pairing, api_of
from kfuzz.relay.identities import RECORDS, Difference, Identities, Scope
from kfuzz.relay.pipe import framed
from kfuzz.relay.recording import Event, Recording
from kfuzz.serve import Broker, Topics
from kfuzz.serve.cluster import NODES_MAX, Answered, Caller, Refused
from kfuzz.text import printable
from kfuzz.units import counted

# All are counted; so many are kept, and so many of one frame.
FOUND_MAX: Final = 1000
FOUND_OF_FRAME_MAX: Final = 20
# For a request, so many recorded ones are looked at.
CANDIDATES_MAX: Final = 500
# A broker that was slower in the record answers after this time.
WAIT_MS_MAX: Final = 10_000
MAX_WAIT: Final = "maxWaitMs"
HEARTBEAT: Final = "Heartbeat"

# Errors that end by themselves. Every client sends such a request again.
PASSING: Final = {
    ERROR_CODES[name]
    for name in (
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
    )
}
AGAIN_MS: Final = 100

# Kinds of refusals.
NOT_RECORDED: Final = "requests that the record cannot answer"


@dataclass(slots=True)
class Found:
    """Something that is not as in the record: a sentence, and if it is about a field, its path and both values.

    ``exchange`` is that of the first such frame of ``count``.
    """

    exchange: Exchange
    direction: Direction
    what: str
    path: str = ""
    recorded: Any = None
    fresh: Any = None
    count: int = 1

    def __str__(self) -> str:
        of = self.exchange
        where = f"connection {of.connection}, {self.direction} {of.number}, {of.name} {of.version}"
        times = f" ({self.count} times)" if self.count > 1 else ""
        return printable(f"{where}: {self.what}{times}")

    def to_json(self) -> dict[str, Any]:
        """The difference as a JSON object. Long values are cut."""
        of = self.exchange
        first = {"connection": of.connection, "number": of.number, "api": of.name, "version": of.version}
        made = {**first, "direction": self.direction, "what": self.what, "count": self.count}
        values = {"path": self.path, "recorded": shown(self.recorded), "fresh": shown(self.fresh)}
        return made | (values if self.path else {})


@dataclass(slots=True)
class Outcome:
    """The result of a play. ``total``: how many differences there were. ``found`` has those that are not alike.

    ``left_out``: recorded requests that were not sent, because the client itself sent them again. ``unread``: recorded
    frames that are none, or belong to no request.
    """

    requests: int = 0
    left_out: int = 0
    unread: int = 0
    compared: int = 0
    total: int = 0
    found: dict[tuple[Any, ...], Found] = field(default_factory=dict)
    # Recorded requests that no client sent, by their API.
    missing: Counter[str] = field(default_factory=Counter)

    @property
    def is_same(self) -> bool:
        return not self.total and not self.missing

    def say(
        self, exchange: Exchange, direction: Direction, what: str, difference: Difference = ("", None, None)
    ) -> None:
        """Note something about a frame."""
        self.total += 1
        key = (exchange.name, exchange.version, direction, what)
        if (known := self.found.get(key)) is not None:
            known.count += 1
        elif len(self.found) < FOUND_MAX:
            self.found[key] = Found(exchange, direction, what, *difference)

    def compare(self, identities: Identities, old: Frame, new: Frame, scope: Scope) -> None:
        """Note where a fresh frame differs from a recorded one, and learn ids from both."""
        self.compared += 1
        one, other = _values(old), _values(new)
        if old.form is not new.form or one is None or other is None:
            if old.form is not new.form or bytes(old.data)[CORRELATION.size :] != bytes(new.data)[CORRELATION.size :]:
                self.say(new.exchange, new.direction, "it is of another version than in the record, or cannot be read")
            return
        found = list(identities.differences(one, other, scope))
        for path, recorded, fresh in found[:FOUND_OF_FRAME_MAX]:
            what = f"{path} is {shown(fresh)}; in the record it is {shown(recorded)}"
            if recorded == fresh:
                # An id or an offset, which must go with the others.
                what = f"{path} is {shown(fresh)}, as in the record; but an earlier response had another value for it"
            self.say(new.exchange, new.direction, what, (path, recorded, fresh))
        if (more := len(found) - FOUND_OF_FRAME_MAX) > 0:
            self.say(new.exchange, new.direction, counted(more, "more difference"))

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("requests", "left_out", "unread", "compared")}
        found = [one.to_json() for one in self.found.values()]
        return {**counts, "differences": self.total, "found": found, "missing": dict(sorted(self.missing.items()))}

    def lines(self) -> Iterator[str]:
        yield from map(str, self.found.values())
        if more := self.total - sum(one.count for one in self.found.values()):
            yield f"{counted(more, 'more difference')}"
        for api, count in sorted(self.missing.items()):
            yield f"{counted(count, 'recorded request')} of {api} did not come"
        if self.left_out:
            what = counted(self.left_out, "recorded request")
            yield f"{what} left out: they got an error that ends by itself, and were sent again"
        same = "nothing differs" if self.is_same else counted(self.total + len(self.missing), "difference")
        if self.unread:
            yield f"{counted(self.unread, 'recorded frame')} left out: no frame, or a response without a request"
        yield f"{counted(self.requests, 'request')}, {counted(self.compared, 'frame')} compared: {same}"


def _values(frame: Frame) -> dict[str, Any] | None:
    """The values of a frame; None if it cannot be read."""
    try:
        return frame.values() if frame.is_read else None
    except MessageError:
        return None


def _conversation(recording: Recording) -> Iterator[tuple[Event, Frame | None]]:
    """The events of a recording, each with its frame.

    None if it has none: it is no whole frame, no request waits for this response, or the event is another.
    """
    pairings: dict[int, Pairing] = {}
    for event in recording.events:
        frame = None
        if event.event in ("request", "response"):
            direction: Direction = "request" if event.event == "request" else "response"
            data = recording.frame(event)
            exchange = pairings.setdefault(event.connection, Pairing(event.connection)).exchange(direction, data)
            frame = None if exchange is None else Frame(exchange, direction, data).check()
        yield event, frame


# ------------------------------------------------------------------------------------- the clients, to a fresh broker


async def play_clients(recording: Recording, access: Access, *, open_to_others: bool = False) -> Outcome:
    """Send the recorded requests to a fresh broker, in their order, each after the responses that came before it.

    A request is sent again while it gets an error that ends by itself. Recorded requests that got one are left out,
    because their client sent them again.

    The bootstrap broker of ``access`` is used for connections to brokers of which no response has said where they are.
    ``open_to_others``: whether it may connect to other machines.

    ``UsageError`` if the broker cannot be used at all, or the recording has no response.
    """
    player = _Clients(recording, access, open_to_others)
    try:
        for event, frame in _conversation(recording):
            await player.do(event, frame)
    finally:
        for link in player.links.values():
            link.close()
    return player.outcome


@dataclass(slots=True)
class _Sent:
    """A request that was sent. ``scope``: what its recorded one was about."""

    link: Link
    pieces: list[bytes]
    scope: Scope
    answer: asyncio.Future[bytes | None]


class _Clients:
    def __init__(self, recording: Recording, access: Access, open_to_others: bool) -> None:
        self.outcome = Outcome()
        self.links: dict[int, Link] = {}
        self._access = access
        self._open_to_others = open_to_others
        self._identities = Identities()
        self._places: dict[int, str] = {}
        # Requests that wait for their responses.
        self._sent: dict[Exchange, _Sent] = {}
        # Connections with which something went wrong. That is said once.
        self._lost: set[int] = set()
        # Whether a request got an error that ends by itself, by connection and number.
        self._passes = {
            (one.exchange.connection, one.exchange.number): not PASSING.isdisjoint(one.errors)
            for _, one in _conversation(recording)
            if one is not None and one.direction == "response"
        }
        if not self._passes:
            raise UsageError(f"{recording.folder} has no response to a request, so there is nothing to compare")

    async def do(self, event: Event, frame: Frame | None) -> None:
        """Do what a line of the record says."""
        if event.event == "open":
            self._places[event.connection] = event.place
        elif event.event == "close" and event.connection in self.links:
            self.links[event.connection].close()
        elif frame is not None:
            if frame.direction == "request":
                await self._send(frame)
            else:
                await self._compare(frame, met_rule=event.met_rule)
        else:
            # A rule may have dropped a response.
            self.outcome.unread += event.event == "request" or (event.event == "response" and event.size > 0)

    async def _send(self, request: Frame) -> None:
        exchange = request.exchange
        if self._passes.get((exchange.connection, exchange.number)):
            self.outcome.left_out += 1
            return
        link = await self._link(exchange)
        if link is None:
            return
        data = request.data
        values = _values(request)
        if values is not None:
            fresh = self._identities.translated(values, {})
            try:
                data = data if fresh == values else request.with_values(fresh).data
            except EncodeError as error:
                self.outcome.say(exchange, "request", f"it is sent as it was: {error}")
        self.outcome.requests += 1
        pieces, scope = [framed(data)], self._identities.scope(values)
        if exchange.has_answer:
            answer = link.later(exchange.correlation_id, pieces)
            self._sent[exchange] = _Sent(link, pieces, scope, answer)
        else:
            link.send(exchange.correlation_id, pieces, None)

    async def _link(self, exchange: Exchange) -> Link | None:
        """The connection for a request; None if there is none any more."""
        number = exchange.connection
        if number not in self.links and number not in self._lost:
            access = self._access
            link = Link(
                # The fresh broker that stands for the recorded one.
                self._identities.addresses.get(self._places.get(number, ""), access.bootstrap),
                access.security,
                timeout_ms=access.timeout_ms,
                permit=self._permit,
            )
            try:
                await link.open(asks=access.security.user is not None)
            except ConnectionLost as error:
                if not self.links:
                    raise UsageError(f"{error}; start a broker there") from None
                self._lose(exchange, "request", str(error))
            else:
                self.links[number] = link
        return None if number in self._lost else self.links[number]

    def _permit(self, address: Address, hosts: Sequence[str]) -> None:
        if not self._open_to_others and not are_of_this_machine(hosts):
            raise UsageError(f"{address} is not on this machine; add --yes if the conversation may be played to it")

    def _lose(self, exchange: Exchange, direction: Direction, why: str) -> None:
        self._lost.add(exchange.connection)
        self.outcome.say(exchange, direction, f"{why}; what follows on this connection is left out")

    async def _compare(self, recorded: Frame, *, met_rule: bool) -> None:
        exchange = recorded.exchange
        sent = self._sent.pop(exchange, None)
        if sent is None or exchange.connection in self._lost:
            return
        timeout_s = self._access.timeout_ms / 1000
        response = None
        try:
            async with asyncio.timeout(timeout_s):
                while (data := await sent.answer) is not None:
                    response = Frame(exchange, "response", data).check()
                    if PASSING.isdisjoint(response.errors):
                        break
                    await asyncio.sleep(AGAIN_MS / 1000)
                    sent.answer = sent.link.later(exchange.correlation_id, sent.pieces)
                else:
                    self._lose(exchange, "response", f"none came: {sent.link.lost}")
                    return
        except TimeoutError:
            if response is None:
                self._lose(exchange, "response", f"none came within {timeout_s:g} s")
                return
        assert response is not None
        if not met_rule:
            self.outcome.compare(self._identities, recorded, response, sent.scope)


# ------------------------------------------------------------------------------------- the brokers, to a fresh client


@dataclass(slots=True, eq=False)
class _Taken:
    """A recorded request, and its response if it has one. ``times``: how often that was given."""

    request: Frame
    place: str
    asked_ms: float
    names: frozenset[Any]
    response: Frame | None = None
    wait_ms: int = 0
    times: int = 0


class RecordedBroker(Broker):
    """Answers the requests of a fresh client with the responses of a recording. For ``kfuzz.serve.Server``.

    A request gets the first response that is left of its API; of several, the first whose request asked most alike. If
    none is left, or a given one fits better, that is given again.
    ``done`` is set once all are given and no client is connected. ``UsageError`` if there is nothing to give.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(Topics())
        self.outcome = Outcome()
        self.done = asyncio.Event()
        self._identities = Identities(of_client=True)
        # Where the recorded brokers were for clients. Here they are the brokers 1, 2, ….
        self.places = list(recording.places)
        self._left: dict[int, list[_Taken]] = defaultdict(list)
        self._given: dict[int, list[_Taken]] = defaultdict(list)
        self._repeated: set[int] = set()
        numbers = itertools.count(1)
        self._pairings: defaultdict[Caller, Pairing] = defaultdict(lambda: Pairing(next(numbers)))
        self._collect(recording)

    def _collect(self, recording: Recording) -> None:
        places: dict[int, str] = {}
        asked: dict[Exchange, _Taken] = {}
        for event, frame in _conversation(recording):
            if event.event == "open":
                places[event.connection] = event.place
                if event.place not in self.places:
                    self.places.append(event.place)
            elif frame is None:
                continue
            elif frame.direction == "request":
                asked[frame.exchange] = _Taken(frame, places.get(event.connection, ""), event.ms, _names(frame))
            else:
                taken = asked[frame.exchange]
                taken.response = frame
                taken.wait_ms = min(int(event.ms - taken.asked_ms), WAIT_MS_MAX)
        for exchange, taken in asked.items():
            if taken.response is not None or not exchange.has_answer:
                self._left[exchange.key].append(taken)
        if not any(self._left.values()):
            raise UsageError(f"{recording.folder} has no response, so there is nothing to play")
        if len(self.places) > NODES_MAX:
            raise UsageError(f"{recording.folder} has {len(self.places)} brokers; at most {NODES_MAX} are played")

    def answer(self, frame: bytes, caller: Caller) -> Answered:
        """The recorded response for a request, as an answer to this one. ``Refused`` if there is none."""
        if len(frame) < HEAD.size:
            raise Refused(NOT_RECORDED, f"a request of {len(frame)} bytes")
        pairing = self._pairings[caller]
        exchange = pairing.begin(frame)
        pairing.asked(exchange, frame)
        pairing.forget(exchange)
        self.outcome.requests += 1
        self.report.requests[exchange.name] += 1
        if exchange.api is None:
            self.outcome.say(exchange, "request", "no release that kfuzz knows has this API at this version")
            raise Refused(NOT_RECORDED, f"no release that kfuzz knows has {exchange.name} {exchange.version}")
        request = Frame(exchange, "request", frame).check()
        taken = self._take(request, caller)
        if taken is None:
            if exchange.name == HEARTBEAT:
                # They come by time, so a record of a fast client has none.
                form = exchange.api.response
                return Answered(form.encode(form.head(exchange.correlation_id), {}))
            self.outcome.say(exchange, "request", "the record has no request of this API")
            raise Refused(NOT_RECORDED, f"{exchange.name} is not in the record")
        if taken.response is None:
            return Answered(None)
        try:
            data = self._translated(taken, exchange, caller)
        except (EncodeError, MessageError) as error:
            self.outcome.say(exchange, "response", f"the recorded one does not fit: {error}")
            raise Refused(NOT_RECORDED, f"the recorded response does not fit: {error}") from None
        # A client that polls must not do so without a pause.
        least_ms = (_values(request) or {}).get(MAX_WAIT, AGAIN_MS) if taken.times > 1 else 0
        return Answered(data, min(max(taken.wait_ms, least_ms), WAIT_MS_MAX))

    def gone(self, caller: Caller) -> None:
        """Say that a connection is closed."""
        self._pairings.pop(caller, None)
        if not self._pairings and not any(self._left.values()):
            self.done.set()

    def end(self) -> Outcome:
        """The outcome, with the requests that did not come."""
        self.outcome.missing.update(one.request.exchange.name for left in self._left.values() for one in left)
        return self.outcome

    def _take(self, request: Frame, caller: Caller) -> _Taken | None:
        """The recorded request that a fresh one is like; None if there is none."""
        exchange = request.exchange
        names = _names(request)
        place = self.places[caller.node_id - 1]
        left, given = self._left[exchange.key], self._given[exchange.key]

        def likeness(one: _Taken) -> tuple[Any, ...]:
            is_same_client = one.request.exchange.client_id == exchange.client_id
            # A client may ask for one thing more often than in the record, and for others not yet.
            return names <= one.names, not one.times, -len(one.names ^ names), is_same_client, one.place == place

        taken = max(left[:CANDIDATES_MAX] + given[: -CANDIDATES_MAX - 1 : -1], key=likeness, default=None)
        if taken is None:
            return None
        taken.times += 1
        if taken.times == 1:
            left.remove(taken)
            given.append(taken)
            if taken.request.exchange.version == exchange.version:
                self.outcome.compare(self._identities, taken.request, request, {})
        elif exchange.key not in self._repeated:
            self._repeated.add(exchange.key)
            self.outcome.say(exchange, "request", "the record has fewer of these; a response is given again")
        return taken

    def _translated(self, taken: _Taken, exchange: Exchange, caller: Caller) -> bytes:
        """A recorded response as one to this exchange: its number, its version, the client's ids, and our addresses."""
        recorded = taken.response
        assert recorded is not None
        form = recorded.form
        number = CORRELATION.pack(exchange.correlation_id)
        if form is None or not recorded.is_read:
            return number + bytes(recorded.data)[CORRELATION.size :]
        # A response that is older than its recorded request says that a version is not supported.
        version = exchange.version if form.version == taken.request.exchange.version else form.version
        scope = self._identities.scope(_values(taken.request))
        body = bytes(recorded.data)[recorded.body_at :]
        values = self._identities.translated(decode(form.definition, form.version, body, defaults=True), scope)
        replace_addresses(form.definition.name, version, values, lambda host, port: self._place(host, port, caller))
        fresh = api_of(exchange.key, version)
        assert fresh is not None
        return fresh.response.encode(fresh.response.head(exchange.correlation_id), values)

    def _place(self, host: str, port: int, caller: Caller) -> tuple[str, int]:
        place = str(Address.advertised(host, port))
        node = self.places.index(place) + 1 if place in self.places else 1
        return caller.host, self.cluster.ports.get(node, caller.port)


def _names(request: Frame) -> frozenset[Any]:
    """All names and ids that a request has, and what is opaque to brokers, such as the assignments of a group."""
    return frozenset(_leaves(_values(request)))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        # The times of records differ each time.
        value = [one for name, one in value.items() if name != RECORDS]
    if isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, str | bytes):
        yield value
