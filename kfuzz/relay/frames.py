"""Frames on their way through the proxy: which API and version they have, how to read them, and what pairs them.

Nothing here knows sockets. A frame's data is what follows its size.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from kfuzz.annotate.parts import moved
from kfuzz.errors import MessageError, UsageError
from kfuzz.findings import Finding
from kfuzz.findings.messages import from_message_note
from kfuzz.kafka import RELEASES, Role
from kfuzz.messages import decode, encode
from kfuzz.messages.catalogues import catalogue, newest, requests_by_key
from kfuzz.messages.headers import request_header_version, response_header_version, written_version
from kfuzz.messages.model import Definition, Versions
from kfuzz.messages.schemas import schema
from kfuzz.records import check as check_records
from kfuzz.relay.addresses import has_addresses
from kfuzz.relay.paths import is_records, paths_of
from kfuzz.wire.io.cursor import uvarint_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.relay.pipe import Step
    from kfuzz.wire.messages.schema import Picked, Schema

Direction = Literal["request", "response"]

# The API key, the version and the correlation id of a request.
HEAD: Final = struct.Struct(">hhi")
KEYS: Final = struct.Struct(">hh")
CORRELATION: Final = struct.Struct(">i")
# The size of a client id, and the acks of Produce.
INT16: Final = struct.Struct(">h")
# Of Produce: the first version with a transactional id.
FIRST_WITH_ID: Final = 3
FLEXIBLE_HEADER: Final = 2
PRODUCE: Final = 0
SASL_HANDSHAKE: Final = 17
# The longest varint of a length, in bytes.
VARINT: Final = 5
API_VERSIONS: Final = "ApiVersions"
# The roles that read the batches in these messages. A snapshot of the metadata is cut anywhere, so it is not judged.
READERS: Final[Mapping[str, Role]] = {
    "FetchResponse": "consumer",
    "ShareFetchResponse": "consumer",
    "ProduceRequest": "broker",
}
# Elements of all arrays of a message together whose values are made.
ELEMENTS_MAX: Final = 200_000
# Requests of one connection that wait for their responses. Kafka's clients have at most a few.
WAITING_MAX: Final = 10_000
# Names of clients are shown and matched up to this length.
CLIENT_ID_BYTES_MAX: Final = 250
# An ApiVersions response that is kept, so that it need not be read again. Apache Kafka's has less than 1 KiB.
OFFERS_BYTES_MAX: Final = 16 << 10


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How the frames of one direction are read, for one API and version."""

    definition: Definition
    version: int
    header_name: str
    header_version: int
    header: Schema
    body: Schema
    has_records: bool

    def check(self, data: Buffer) -> tuple[int, list[Finding], Picked | None]:
        """Where the body begins (-1 if the header is refused), what a strict reader says, and what the body has.

        Offsets count from the start of ``data``. Record batches are not looked at.
        """
        found: list[Finding] = []
        at, notes = self.header.check(data)
        for one in notes:
            # The body follows the header.
            if one[0] != "bytes-after-message":
                found.append(from_message_note(self.header_name, one, "strict"))
        if at < 0:
            return -1, found, None
        _, notes, picked = self.body.pick(memoryview(data)[at:])
        for code, offset, seen, allowed, steps in notes:
            note = (code, offset + at, seen, allowed, steps)
            found.append(from_message_note(self.definition.name, note, "strict"))
        return at, found, picked

    def decode(self, body: Buffer) -> dict[str, Any]:
        """The values of a body. ``MessageError`` if Kafka refuses it."""
        return decode(self.definition, self.version, bytes(body), elements_max=ELEMENTS_MAX)

    def head(self, correlation_id: int) -> bytes:
        """The header of a response."""
        return encode("ResponseHeader", self.header_version, {"correlationId": correlation_id})

    def encode(self, header: Buffer, values: Mapping[str, Any]) -> bytes:
        """A frame of the bytes of a header, and the values of a body. ``EncodeError`` if a value does not fit."""
        return bytes(header) + encode(self.definition, self.version, values)


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """An API at one version: its name without "Request", and how to read both directions.

    ``is_inside``: the proxy changes responses to keep clients inside, because they name brokers or versions.
    """

    name: str
    key: int
    version: int
    request: Form
    response: Form
    is_inside: bool

    def form(self, direction: Direction) -> Form:
        """How to read the frames of a direction."""
        return self.request if direction == "request" else self.response


@cache
def _names_by_key() -> Mapping[int, str]:
    """The names of all APIs, without "Request", by their keys."""
    return {key: one.name.removesuffix("Request") for key, one in requests_by_key().items()}


@cache
def api_names() -> tuple[str, ...]:
    """The names of all APIs, sorted, without "Request"."""
    return tuple(sorted(_names_by_key().values()))


@cache
def api_key(name: str) -> int:
    """The key of an API of :func:`api_names`."""
    return next(key for key, known in _names_by_key().items() if known == name)


@cache
def versions_of(key: int) -> Versions | None:
    """The versions of an API that kfuzz can read, from all releases that it knows; None for an unknown API."""
    if key not in _names_by_key():
        return None
    name = f"{_names_by_key()[key]}Request"
    known = [
        catalogue(release).messages[name].valid_versions for release in RELEASES if name in catalogue(release).messages
    ]
    return Versions(min(one.lowest for one in known), max(one.highest for one in known))


# Versions come from strangers.
@lru_cache(maxsize=2048)
def api_of(key: int, version: int) -> Api | None:
    """The API with this key at this version; None if no release has it."""
    name = _names_by_key().get(key)
    if name is None:
        return None
    try:
        asked, said = newest(f"{name}Request", version), newest(f"{name}Response", version)
    except UsageError:
        return None
    return Api(
        name,
        key,
        version,
        _form(asked, version, "RequestHeader", request_header_version(asked, version)),
        _form(said, version, "ResponseHeader", response_header_version(said, version)),
        name == API_VERSIONS or has_addresses(said.name, version),
    )


@lru_cache(maxsize=2048)
def is_inside(keys: bytes) -> bool | None:
    """Whether the proxy changes responses of the API whose key and version these are.

    None if no release has it, if its requests may have no response, or if bytes that are no requests may follow.
    """
    key, version = KEYS.unpack(keys)
    api = api_of(key, version)
    return None if api is None or key in (PRODUCE, SASL_HANDSHAKE) else api.is_inside


def _form(definition: Definition, version: int, header_name: str, header_version: int) -> Form:
    header = schema(newest(header_name, header_version), header_version)
    has_records = bool(paths_of(definition.name, version, is_records))
    return Form(definition, version, header_name, header_version, header, schema(definition, version), has_records)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request, and the response that it gets.

    - ``connection``: the number of its connection; ``number``: that of the request in it; ``nth``: that of the request
      among those of its API there. All count from 1.
    - ``api``: None if no release has the API at this version.
    - ``has_answer``: a broker does not answer Produce with acks 0.
    - ``is_copy``: the request was sent by the proxy a second time, so no client waits for its response.
    - ``reply``: what the proxy sends instead of a broker's response.
    - ``sent_ns``: when the request was whole; 0 before, and if nobody asks.
    """

    connection: int
    number: int
    nth: int
    key: int
    version: int
    correlation_id: int
    client_id: str | None = None
    api: Api | None = None
    has_answer: bool = True
    is_copy: bool = False
    reply: Sequence[Step] | None = None
    sent_ns: int = 0

    @property
    def is_known(self) -> bool:
        """Whether a release has the API, at any version."""
        return self.key in _names_by_key()

    @property
    def name(self) -> str:
        """The name of the API, or its number."""
        return self.api.name if self.api is not None else _names_by_key().get(self.key, f"API {self.key}")


@dataclass(slots=True, eq=False)
class Frame:
    """A frame on its way, without its size in front.

    :meth:`check` fills what is below ``data``: where the body begins (-1: it cannot be read), what a strict reader
    says, where the body's record batches are (offsets from the start of ``data``), how often it has each of Kafka's
    errors, and whether it names hosts.
    """

    exchange: Exchange
    direction: Direction
    data: Buffer
    body_at: int = -1
    findings: list[Finding] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)
    errors: Mapping[int, int] = field(default_factory=dict)
    has_hosts: bool = False

    @property
    def form(self) -> Form | None:
        """How to read it; None if no release has this API and version."""
        api = self.exchange.api
        if api is not None and self.direction == "response":
            version = written_version(api.response.definition, api.version, self.data)
            api = api if version == api.version else api_of(api.key, version)
        return None if api is None else api.form(self.direction)

    @property
    def name(self) -> str:
        return f"{self.exchange.name}{self.direction.capitalize()}"

    def check(self) -> Frame:
        """Check it, without its record batches. Returns the same object."""
        if (form := self.form) is not None:
            at, self.findings, picked = form.check(self.data)
            if picked is not None:
                self.body_at = at
                records, self.errors, self.has_hosts = picked
                self.records = [(at + offset, size) for offset, size in records]
        return self

    def check_batches(self) -> None:
        """Check its record batches too, with the rules of who reads them. Deviations from Kafka's writer are found."""
        form = self.form
        role = READERS.get(self.name)
        if not self.records or form is None or role is None:
            return
        view = memoryview(self.data)
        paths: dict[int, str] = {}
        for at, size in self.records:
            found = check_records(view[at : at + size], role=role).findings
            if found and not paths:
                _, _, places = form.body.places(bytes(view[self.body_at :]))
                # Where a field begins, after its length.
                paths = {self.body_at + start + n: path for start, n, path, kind, _ in places if kind == "length"}
            self.findings += [moved(one, at, f"{paths[at]}.{one.path}") for one in found]

    @property
    def is_read(self) -> bool:
        """Whether Kafka reads it."""
        return self.body_at >= 0

    def values(self) -> dict[str, Any]:
        """The values of its body. ``MessageError`` if it cannot be read."""
        if (form := self.form) is None or self.body_at < 0:
            raise unreadable(self, "body")
        return form.decode(memoryview(self.data)[self.body_at :])

    def with_values(self, values: Mapping[str, Any]) -> Frame:
        """A frame that is read with another body. ``EncodeError`` if a value does not fit."""
        form = self.form
        assert form is not None
        data = form.encode(memoryview(self.data)[: self.body_at], values)
        return Frame(self.exchange, self.direction, data, self.body_at)

    def with_body(self, body: Buffer) -> Frame:
        """The same header with these bytes as the body. ``MessageError`` if the header cannot be read."""
        return Frame(self.exchange, self.direction, bytes(memoryview(self.data)[: self.header_end()]) + body)

    def header_end(self) -> int:
        """Where the body begins, even if Kafka refuses it. ``MessageError`` if the header cannot be read."""
        if self.body_at >= 0:
            return self.body_at
        form = self.form
        at = -1 if form is None else form.header.check(self.data)[0]
        if at < 0:
            raise unreadable(self, "header")
        return at


def unreadable(frame: Frame, what: str) -> MessageError:
    """The error for a frame whose header or body cannot be read."""
    fatal = next((one for one in frame.findings if one.severity == "fatal"), None)
    sentence = f"the {what} of version {frame.exchange.version} cannot be read"
    return MessageError(fatal or Finding("unreadable", "fatal", 0, frame.name, None, sentence))


def offers(frame: Frame) -> tuple[Mapping[int, Versions], bytes | None]:
    """The versions in an ApiVersions response that is read, by API key, and its body without those that kfuzz lacks.

    The body is None if kfuzz has them all: addresses in the others could not be replaced. ``MessageError`` if it has
    too many elements.
    """
    form = frame.form
    assert form is not None
    body = bytes(memoryview(frame.data)[frame.body_at :])
    # A broker says the same to everybody.
    return (_offers if len(body) <= OFFERS_BYTES_MAX else _offers.__wrapped__)(form, body)


@lru_cache(maxsize=64)
def _offers(form: Form, body: bytes) -> tuple[Mapping[int, Versions], bytes | None]:
    values = form.decode(body)
    offered = (
        {}
        if values["errorCode"]
        else {one["apiKey"]: Versions(one["minVersion"], one["maxVersion"]) for one in values["apiKeys"]}
    )
    changed = False
    for one in values["apiKeys"]:
        known = versions_of(one["apiKey"])
        if known is not None and one["maxVersion"] > known.highest >= one["minVersion"]:
            one["maxVersion"] = known.highest
            changed = True
    return offered, encode(form.definition, form.version, values) if changed else None


class Pairing:
    """The requests of one connection that wait for their responses, in their order."""

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self._waiting: deque[Exchange] = deque()
        self._counts: dict[int, int] = {}
        self._number = 0
        # How many of those that wait have a reply of the proxy.
        self._reply_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, head: Buffer) -> Exchange:
        """The exchange of a request whose first eight bytes are these."""
        key, version, correlation_id = HEAD.unpack_from(head)
        self._number += 1
        # Keys come from strangers: all that no release has share one count.
        counted = key if key in _names_by_key() else -1
        self._counts[counted] = nth = self._counts.get(counted, 0) + 1
        return Exchange(self.connection, self._number, nth, key, version, correlation_id, api=api_of(key, version))

    def exchange(self, direction: Direction, data: Buffer) -> Exchange | None:
        """The exchange of the next frame; None if the frame is too short, or no request waits for this response."""
        size = memoryview(data).nbytes
        if direction == "response":
            return self.answered(data)[0] if size >= CORRELATION.size else None
        if size < HEAD.size:
            return None
        begun = self.begin(data)
        self.asked(begun, data)
        return begun

    def asked(self, exchange: Exchange, data: Buffer, now_ns: int = 0) -> None:
        """A request was whole then: read from it what is not in its first bytes, and wait for its response."""
        view = memoryview(data)
        exchange.client_id = _client_id(view, exchange)
        if exchange.key == PRODUCE and exchange.api is not None:
            exchange.has_answer = _acks(view, exchange.api) != 0
        exchange.sent_ns = now_ns
        self.wait(exchange)

    def wait(self, exchange: Exchange) -> None:
        """A request waits for its response, after all that wait already."""
        if exchange.has_answer and len(self._waiting) < WAITING_MAX:
            self._waiting.append(exchange)

    def answered(self, head: Buffer) -> tuple[Exchange | None, list[Exchange]]:
        """The exchange of a response with these first four bytes, and the earlier ones that it leaves without one.

        None if no request of those that a broker answers waits with this correlation id.
        """
        [number] = CORRELATION.unpack_from(head)
        waiting = self._waiting
        for at, one in enumerate(waiting):
            if one.correlation_id == number and one.reply is None:
                skipped = [waiting.popleft() for _ in range(at)]
                waiting.popleft()
                self._reply_count -= sum(other.reply is not None for other in skipped)
                return one, skipped
        return None, []

    def forget(self, exchange: Exchange) -> None:
        """A request was not passed on, so nobody answers it."""
        if exchange in self._waiting:
            self._waiting.remove(exchange)

    def reply(self, exchange: Exchange, steps: Sequence[Step]) -> None:
        """The proxy answers a waiting request itself, once :meth:`replies` has its steps."""
        exchange.reply = steps
        # One above the bound does not wait.
        self._reply_count += exchange in self._waiting

    def replies(self) -> list[Step]:
        """The proxy's own answers to the requests that wait first. Other answers follow brokers' responses."""
        made: list[Step] = []
        while self._reply_count and self._waiting and (steps := self._waiting[0].reply) is not None:
            made += steps
            self._waiting.popleft()
            self._reply_count -= 1
        return made

    @property
    def has_replies(self) -> bool:
        """Whether an answer of the proxy waits for the responses before it."""
        return self._reply_count > 0


def _client_id(view: memoryview, exchange: Exchange) -> str | None:
    at = HEAD.size
    if exchange.api is None or exchange.api.request.header_version == 0 or len(view) < at + INT16.size:
        return None
    [size] = INT16.unpack_from(view, at)
    at += INT16.size
    if size < 0 or size > len(view) - at:
        return None
    return str(view[at : at + min(size, CLIENT_ID_BYTES_MAX)], "utf-8", "replace")


def _acks(view: memoryview, api: Api) -> int:
    """The acks of a Produce request; -1 if they cannot be read. Only its first bytes are looked at."""
    at, _ = api.request.header.check(view)
    if at < 0:
        return -1
    if api.version >= FIRST_WITH_ID:
        # The transactional id, which may be null.
        if api.request.header_version >= FLEXIBLE_HEADER:
            length, size = uvarint_of(view[at : at + VARINT], VARINT) if at < len(view) else (0, -1)
            if size < 0:
                return -1
            at += size + max(length - 1, 0)
        else:
            at += INT16.size + max(int.from_bytes(view[at : at + INT16.size], "big", signed=True), 0)
    return int(INT16.unpack_from(view, at)[0]) if at <= len(view) - INT16.size else -1
