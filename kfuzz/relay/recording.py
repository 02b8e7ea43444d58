"""A conversation in a folder: what clients sent and got, and in which order.

For each connection N there are ``N.requests`` and ``N.responses``, the bytes that its client sent and got. A line of
``conversation.jsonl`` says for each frame where it is. Everything is seen from the client: a response that the proxy
changed is there as it was changed, and brokers are where the proxy listens for them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import mmap
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from kfuzz.annotate import frames
from kfuzz.client.address import Address
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import cannot_write, map_regular, open_regular, require_empty, writing
from kfuzz.findings import Profile
from kfuzz.forms import BOOLEAN, TEXT, ListOf, Object, Wrong, choice, integer, number, optional, table_of
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.relay.frames import Direction, Exchange
from kfuzz.relay.pipe import SIZE
from kfuzz.units import show_size
from kfuzz.vectors.kinds import FRAMES

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.edit.redacting import Redactor
    from kfuzz.vectors.model import Vector

CONVERSATION: Final = "conversation.jsonl"
FORMAT: Final = "kfuzz-conversation/1"
RECORD_BYTES_MAX: Final = 1 << 30
# The bytes that wait in memory, and for how long at most.
WAITING_BYTES_MAX: Final = 4 << 20
FLUSH_S: Final = 1.0
# A larger frame is written at once, without a copy.
COPIED_BYTES_MAX: Final = 64 << 10
# A file takes at least a block of the disk.
BLOCK_BYTES: Final = 4096
NS_PER_MS: Final = 1_000_000

# Of a recording that is read.
LINE_BYTES_MAX: Final = 64 << 10
EVENTS_MAX: Final = 5_000_000
REMEDY: Final = "name a folder that `kfuzz proxy --record` made"


class Recorder:
    """Writes the recording of a proxy into ``folder``, which must be empty or not exist.

    ``tell`` gets a sentence if it stops: there are ``bytes_max`` bytes, or the disk takes no more. The proxy continues.
    Raises ``UsageError`` if the folder cannot be used. Needs a running event loop.
    """

    def __init__(
        self,
        folder: Path,
        bytes_max: int,
        brokers: Sequence[Address],
        places: Mapping[Address, Address],
        tell: Any,
    ) -> None:
        self.folder = require_empty(folder)
        self.bytes_max = bytes_max
        self.frames = 0
        self.failure: UsageError | None = None
        self._places = places
        self._tell = tell
        self._start_ns = time.monotonic_ns()
        self._written = self._waiting_bytes = 0
        self._waiting: dict[str, list[bytes]] = defaultdict(list)
        # How long the files of open connections are, by connection and direction.
        self._sizes: dict[tuple[int, Direction], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        known = [{"broker": str(one), "place": str(places[one])} for one in brokers]
        self._line({"format": FORMAT, "brokers": known})
        self._flush()
        if self.failure is not None:
            raise self.failure

    def opened(self, connection: int, broker: Address) -> None:
        self._event("open", connection, {"broker": str(broker), "place": str(self._places[broker])})
        self._sizes |= {(connection, "request"): 0, (connection, "response"): 0}

    def closed(self, connection: int) -> None:
        if self._sizes.pop((connection, "request"), None) is not None:
            self._event("close", connection, {})
        self._sizes.pop((connection, "response"), None)

    def frame(
        self,
        connection: int,
        broker: Address,
        direction: Direction,
        exchange: Exchange | None,
        pieces: Sequence[Buffer],
        *,
        changed: bool = False,
    ) -> None:
        """Record a frame, with its size in front. ``changed``: it is not as its sender sent it.

        ``exchange``: None if it is not known. Of bytes that were cut it is what they are of. Nothing is recorded of a
        connection that is closed: its client got no more.
        """
        at = self._sizes.get((connection, direction))
        views = [memoryview(one) for one in pieces]
        size = sum(map(len, views))
        taken = size + (0 if at else BLOCK_BYTES)
        if at is None or self._is_full(taken):
            return
        self._sizes[connection, direction] = at + size
        self._written += taken
        self.frames += 1
        of: dict[str, Any] = {"api": None, "version": None, "correlation": None}
        if exchange is not None:
            known = exchange.name if exchange.is_known else None
            of = {"api": known, "version": exchange.version, "correlation": exchange.correlation_id}
        where = {"at": at, "size": size, **of, "broker": str(broker)}
        self._event(direction, connection, where | ({"changed": True} if changed else {}))
        name = file_name(connection, direction)
        if size > COPIED_BYTES_MAX:
            self._append(name, views)
        elif size:
            self._waiting[name] += map(bytes, views)
            self._waiting_bytes += size
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._flush()

    def left_out(self, connection: int, direction: Direction, why: str) -> None:
        """A frame was passed on unread, or no frames of this direction are read any more."""
        self._event("left-out", connection, {"of": direction, "why": why})

    def end(self, why: str = "the proxy ended") -> None:
        """Write what is left, and that the recording ended."""
        if self._is_over:
            return
        self._event("end", 0, {"why": why, "frames": self.frames})
        self._flush()
        self._is_over = True

    # -- writing

    def _is_full(self, size: int) -> bool:
        """End the recording if ``size`` more bytes do not fit into ``bytes_max``. Returns whether it has ended."""
        if not self._is_over and self._written + size > self.bytes_max:
            what = f"{self.folder} has {show_size(self.bytes_max)}"
            self.end(what)
            self._tell(f"{what}, so nothing more is recorded; --record-max allows more")
        return self._is_over

    def _event(self, event: str, connection: int, more: Mapping[str, Any]) -> None:
        if event != "end" and self._is_full(0):
            return
        ms = round((time.monotonic_ns() - self._start_ns) / NS_PER_MS, 3)
        self._line({"event": event, "connection": connection, "ms": ms, **more})

    def _line(self, value: Mapping[str, Any]) -> None:
        if self._is_over:
            return
        line = json.dumps(value).encode() + b"\n"
        self._waiting[CONVERSATION].append(line)
        self._written += len(line)
        self._waiting_bytes += len(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A line comes after the bytes that it is about.
        for name in sorted(self._waiting, key=CONVERSATION.__eq__):
            self._append(name)

    def _append(self, name: str, data: Sequence[Buffer] = ()) -> None:
        """Append to a file, after what waits for it. No file stays open: there may be thousands."""
        waiting = self._waiting.pop(name, [])
        self._waiting_bytes -= sum(map(len, waiting))
        if self._is_over:
            return
        try:
            with open(self.folder / name, "ab", buffering=0) as file:
                for one in (b"".join(waiting), *data):
                    left = memoryview(one)
                    while left:
                        left = left[file.write(left) :]
        except OSError as error:
            self._is_over = True
            self.failure = cannot_write(self.folder, error)
            self._tell(f"nothing more is recorded: {self.failure}")


def file_name(connection: int, direction: Direction) -> str:
    """The name of the file with the bytes of one direction of a connection."""
    return f"{connection}.{direction}s"


# ---------------------------------------------------------------------------------------------------------- reading


BROKERS: Final = ListOf(Object({"broker": TEXT, "place": TEXT}, ("broker", "place")))
START: Final = Object({"format": choice(FORMAT), "brokers": BROKERS}, ("format", "brokers"))


@dataclass(frozen=True, slots=True)
class Event:
    """A line about a frame, or about a connection that opens or closes.

    - ``at``, ``size``: where the frame is in its file, in bytes, with its size in front.
    - ``place``: where the client connected; ``broker``: where the proxy connected.
    - ``ms``: time since the recording began.
    """

    event: Annotated[str, choice("open", "request", "response", "left-out", "close", "end")]
    connection: Annotated[int, integer(0, INT64_MAX)]
    ms: Annotated[float, number(0, INT64_MAX)]
    at: Annotated[int, integer(0, INT64_MAX)] = 0
    size: Annotated[int, integer(0, INT64_MAX)] = 0
    api: Annotated[str | None, optional(TEXT)] = None
    version: Annotated[int | None, optional(integer(-INT32_MAX, INT32_MAX))] = None
    correlation: Annotated[int | None, optional(integer(-INT32_MAX - 1, INT32_MAX))] = None
    broker: Annotated[str, TEXT] = ""
    place: Annotated[str, TEXT] = ""
    changed: Annotated[bool, BOOLEAN] = False
    # A rule has met it, so no broker says the same.
    met_rule: Annotated[bool, BOOLEAN] = False
    of: Annotated[str, choice("request", "response")] = "request"
    why: Annotated[str, TEXT] = ""
    frames: Annotated[int, integer(0, INT64_MAX)] = 0


EVENT: Final = table_of(Event)


class Recording:
    """A folder that a proxy has recorded into. ``UsageError`` if it is none, or cannot be read.

    - ``events``: in the order in which they were
    - ``places``: where the proxy listened for the first brokers
    - ``clients``: the addresses of connections, where they are known
    - ``flaw``: a sentence if the recording did not end as it should
    """

    clients: Sequence[str] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data: dict[tuple[int, Direction], bytes | mmap.mmap] = {}
        self._starts: dict[int, frames.Starts] = {}
        self.events: list[Event] = []
        self.places: list[str] = []
        with open_regular(folder / CONVERSATION) as file:
            for number in itertools.count(1):
                line = file.readline(LINE_BYTES_MAX)
                name = f"line {number} of {folder / CONVERSATION}"
                if len(line) == LINE_BYTES_MAX:
                    raise UsageError(f"{name} is longer than {LINE_BYTES_MAX} bytes; {REMEDY}")
                # The last line of a proxy that was killed may be a part.
                if not line.endswith(b"\n"):
                    break
                value = load_json(line, name, bytes_max=LINE_BYTES_MAX, remedy=REMEDY)
                try:
                    (START if number == 1 else EVENT).check(value)
                except Wrong as wrong:
                    raise UsageError(wrong.sentence(name)) from None
                if number == 1:
                    self.places += [one["place"] for one in value["brokers"]]
                    continue
                self.events.append(EVENT.make(value))
                if number > EVENTS_MAX:
                    raise UsageError(f"{folder} has more than {EVENTS_MAX} events; record for a shorter time")
        if number == 1:
            raise UsageError(f"{folder / CONVERSATION} is empty; {REMEDY}")
        has_end = self.events and self.events[-1].event == "end"
        self.flaw = "" if has_end else f"{folder} has no end: the proxy was killed, or it still runs"

    @classmethod
    def of(cls, vector: Vector) -> Recording:
        """The frames of a golden conversation."""
        made = cls.__new__(cls)
        made.folder, made.flaw, made.events, made.places, made._starts = Path(vector.id), "", [], [], {}
        data: defaultdict[tuple[int, Direction], bytes] = defaultdict(bytes)
        opened = set[int]()
        for one in vector.options.get(FRAMES, ()):
            connection, place, frame = one["connection"], one["place"], bytes.fromhex(one["hex"])
            if place not in made.places:
                made.places.append(place)
            if connection not in opened:
                opened.add(connection)
                made.events.append(Event("open", connection, 0, broker=place, place=place))
            direction: Direction = "request" if one["from"] == "client" else "response"
            at = len(data[connection, direction])
            data[connection, direction] += SIZE.pack(len(frame)) + frame
            met_rule = one.get("trouble", False)
            made.events.append(
                Event(direction, connection, 0, at, SIZE.size + len(frame), broker=place, met_rule=met_rule)
            )
        made.events += [Event("close", one, 0) for one in sorted(opened)]
        made._data = dict(data)
        return made

    @property
    def connections(self) -> int:
        return len({one.connection for one in self.events if one.connection})

    def data(self, connection: int, direction: Direction) -> bytes | mmap.mmap:
        """The bytes of one direction of a connection."""
        found = self._data.get((connection, direction))
        if found is None:
            path = self.folder / file_name(connection, direction)
            found = self._data[connection, direction] = map_regular(path) if path.exists() else b""
        return found

    def frame(self, event: Event) -> memoryview:
        """The bytes of a request or a response, without its size. Empty if the frame is not whole."""
        direction: Direction = "request" if event.event == "request" else "response"
        data = self.data(event.connection, direction)
        if event.at + event.size > len(data):
            name = self.folder / file_name(event.connection, direction)
            raise UsageError(
                f"{name} has {len(data)} bytes, but a frame ends at byte {event.at + event.size}; {REMEDY}"
            )
        whole = memoryview(data)[event.at : event.at + event.size]
        return whole[SIZE.size :] if int.from_bytes(whole[: SIZE.size]) == len(whole) - SIZE.size else whole[:0]

    def frames(self, profile: Profile) -> Iterator[tuple[int, frames.Frame]]:
        """The requests of all connections in their order, each with the number of its connection and its response.

        A frame's number is that in the recording. Responses without a request come last.
        """
        readers: dict[int, Iterator[frames.Frame]] = {}
        numbers = itertools.count()
        for one in self._order():
            if one not in readers:
                both = self.data(one, "request"), self.data(one, "response")
                readers[one] = frames.frames_of(*both, profile=profile, starts=self._starts.get(one))
            for frame in readers[one]:
                frame.number = next(numbers)
                yield one, frame
                if not frame.is_stray:
                    break
        for connection, reader in readers.items():
            for frame in reader:
                frame.number = next(numbers)
                yield connection, frame

    def _order(self) -> Iterator[int]:
        """The connection of each request, in the order of the requests."""
        return (one.connection for one in self.events if one.event == "request")


def redact_recording(recorded: Recording, folder: Path, redactor: Redactor) -> None:
    """Write ``recorded`` to ``folder``, which does not exist: frames, and the hosts in the list of frames."""
    folder.mkdir(parents=True)
    # Where frames are now, and their sizes.
    moved: dict[tuple[int, str, int], tuple[int, int]] = {}
    for connection in sorted({one.connection for one in recorded.events if one.connection}):
        data = [recorded.data(connection, direction) for direction in get_args(Direction)]
        for direction, made in zip(get_args(Direction), redactor.capture(*data), strict=True):
            with (folder / file_name(connection, direction)).open("wb") as file:
                for at, frame in made:
                    moved[connection, direction, at] = file.tell(), len(frame)
                    file.write(frame)
    with open_regular(recorded.folder / CONVERSATION) as source, (folder / CONVERSATION).open("w") as out:
        for line in source:
            if not line.endswith(b"\n"):
                break
            value = load_json(line, CONVERSATION, bytes_max=LINE_BYTES_MAX, remedy="record again")
            for place in value.get("brokers", (value,)):
                _hide_hosts(place, redactor)
            where = moved.get((value.get("connection", 0), value.get("event", ""), value.get("at", 0)))
            if where is not None:
                value["at"], value["size"] = where
            out.write(json.dumps(value) + "\n")


def _hide_hosts(value: dict[str, Any], redactor: Redactor) -> None:
    for name in ("broker", "place"):
        if name in value:
            host, colon, port = value[name].rpartition(":")
            value[name] = redactor.swap(host.strip("[]").encode()).decode() + colon + port
    # It may name a folder.
    if "why" in value:
        value["why"] = "redacted"
