"""Hostile requests in a conversation: cases are planned before it begins, and get their bytes when it is reached.

A case's bytes depend only on its id, the seed and the values of the conversation's context.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Literal, NamedTuple

from kfuzz.client.protocol import SIZE, frame
from kfuzz.errors import EncodeError
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.messages import encode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import Definition, Field, Versions, key_of
from kfuzz.messages.schemas import schema
from kfuzz.mutate import Mutator
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.message import MessageMutator
from kfuzz.probe.conversations import (
    BLOB_VERSION,
    CONVERSATIONS,
    NOBODY,
    Context,
    Conversation,
    assignment,
    subscription,
)
from kfuzz.vectors import Vector

Kind = Literal["vector", "mutant", "poison", "wrong", "order", "frame"]
# Larger vectors are bombs for decoders, and no broker takes such a frame.
BODY_BYTES_MAX: Final = 1 << 20
# The conversation in which vectors of APIs are asked that no conversation knows.
ANY: Final = "topic"
CUTS: Final = 3
# How many bytes of a split frame are sent one by one.
SINGLE_BYTES: Final = 64


class Shot(NamedTuple):
    """The bytes to send: pieces, each in a packet of its own if the network likes, and the numbers of the requests.

    Without ``waits``, the last frame is not whole: nobody answers it, and the connection is closed after it.
    """

    pieces: list[bytes]
    numbers: list[int]
    waits: bool = True


# The versions of each API.
Offered = Mapping[str, Versions]
Shape = Callable[[bytes, Callable[[], int]], Shot]
# Makes pieces of a whole frame.
Change = Callable[[bytes], list[bytes]]


@dataclass(frozen=True)
class Case:
    """A hostile request. ``make`` gives the bytes of its body for a context.

    ``shape`` makes a shot of the body, with as many correlation ids as it takes; None: one good frame.
    """

    conversation: str
    api: str
    version: int
    kind: Kind
    index: str
    make: Callable[[Context], bytes]
    shape: Shape | None = None

    @property
    def id(self) -> str:
        """The case's name, which stays the same for the same suite and version of kfuzz."""
        return f"{self.conversation}/{self.api}/{self.version}/{self.kind}/{self.index}"

    def shot(self, body: bytes, next_number: Callable[[], int]) -> Shot:
        """The bytes to send for a body."""
        if self.shape is not None:
            return self.shape(body, next_number)
        number = next_number()
        return Shot([frame(self.api, self.version, number, body)], [number])


def plan(
    offered: Offered,
    vectors: Sequence[Vector],
    *,
    seed: int,
    mutants: int,
    left_out: dict[str, str],
    controller: Offered | None = None,
) -> Iterator[Case]:
    """The cases for a broker that offers these APIs, and for its controller, conversation by conversation.

    ``mutants``: of each request at each version. ``left_out`` gets each conversation that cannot be had, with the
    reason.
    """
    of_requests = _by_message(vectors)
    used: set[tuple[str, str]] = set()
    for conversation in CONVERSATIONS.values():
        place = conversation.place
        apis = controller if place == "controller" else offered
        if apis is None:
            left_out[conversation.name] = "only a controller knows it; name its port with --controller"
            continue
        missing = [api for api in conversation.needs if not apis.get(api)]
        asks = [api for api in conversation.asks if apis.get(api)]
        if missing or not asks:
            who = "controller" if place == "controller" else "broker"
            left_out[conversation.name] = f"the {who} does not offer {', '.join(missing) or 'its requests'}"
            continue
        for api in asks:
            versions = apis[api]
            yield from _vectors(conversation.name, api, versions, of_requests)
            for version in sorted({versions.lowest, versions.highest}):
                # A broker takes a frame apart before it reads the request, so one conversation has the damaged frames.
                framed = version == versions.highest and (place, api) not in used
                others = [each.data for each in of_requests.get((api, version), ())]
                yield from _Asked(conversation, api, version, seed).cases(mutants, others, framed=framed)
            used.add((place, api))
    for name, apis in ((ANY, offered), ("management", controller or {})):
        place = CONVERSATIONS[name].place
        for api in sorted(apis):
            if (place, api) not in used and ("stranger", api) not in used:
                yield from _vectors(name, api, apis[api], of_requests)


def not_asked(cases: Iterable[Case], offered: Offered, controller: Offered | None) -> dict[str, str]:
    """Each request of the catalogue that no case makes of a good one, with the reason."""
    asked = {case.api for case in cases if case.kind != "vector"}
    every = {api for one in CONVERSATIONS.values() for api in one.asks}
    found = {}
    for definition in catalogue().messages.values():
        api = definition.name.removesuffix("Request")
        if definition.kind != "request" or api in asked:
            continue
        if not definition.valid_versions:
            found[api] = "no release of Kafka that kfuzz knows has it any more"
        elif not (offered.get(api) or (controller or {}).get(api)):
            found[api] = "it is not offered"
            if controller is None and "controller" in definition.listeners:
                found[api] = "only a controller offers it, and --controller names none"
        elif api in every:
            found[api] = "its conversation is left out"
        else:
            found[api] = "only its vectors are asked"
    return found


# Vectors of requests by API and version.
ByMessage = Mapping[tuple[str, int], Sequence[Vector]]


def _by_message(vectors: Iterable[Vector]) -> ByMessage:
    found: dict[tuple[str, int], list[Vector]] = {}
    for one in vectors:
        name = one.options.get("message", "")
        if one.kind == "message" and name.endswith("Request") and one.size <= BODY_BYTES_MAX:
            found.setdefault((name.removesuffix("Request"), one.options["version"]), []).append(one)
    return found


def _vectors(conversation: str, api: str, versions: Versions, vectors: ByMessage) -> Iterator[Case]:
    for version in versions:
        for one in vectors.get((api, version), ()):
            yield Case(conversation, api, version, "vector", one.id.removeprefix("messages/"), partial(_data, one))


def _data(vector: Vector, context: Context) -> bytes:
    return vector.data


class _Asked:
    """A good request of a conversation at a version, and what is made of it."""

    def __init__(self, conversation: Conversation, api: str, version: int, seed: int) -> None:
        self.conversation = conversation
        self.api = api
        self.version = version
        self.seed = seed
        self.definition = catalogue().find(f"{api}Request")

    def cases(self, mutants: int, others: Sequence[bytes], *, framed: bool) -> Iterator[Case]:
        try:
            self.body(Context())
        except EncodeError:
            # The request says something for which this version has no place.
            return
        for index in range(mutants):
            yield self.case("mutant", f"{index}", partial(self.mutant, index, others))
        yield from self.poisoned()
        yield from self.wrong()
        yield self.case("order", "early", lambda context: self.body(context.stranger()))
        yield self.case("order", "twice", self.body, self.twice)
        if framed:
            yield from self.frames()

    def case(self, kind: Kind, index: str, make: Callable[[Context], bytes], shape: Shape | None = None) -> Case:
        return Case(self.conversation.name, self.api, self.version, kind, index, make, shape)

    def dice(self, kind: Kind, index: int) -> Dice:
        name = f"{self.conversation.name}/{self.api}/{self.version}/{kind}/{index}"
        return Dice(self.seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))

    def values(self, context: Context) -> Message:
        return self.conversation.good(context, self.api, self.version)

    def body(self, context: Context) -> bytes:
        return encode(self.definition, self.version, self.values(context))

    def mutant(self, index: int, others: Sequence[bytes], context: Context) -> bytes:
        dice = self.dice("mutant", index)
        other = dice.pick(others) if others else b""
        return _mutator(self.definition.name, self.version).mutate(self.body(context), dice, other=other)

    # -- single fields

    def changed(self, path: Path, value: Value, context: Context) -> bytes:
        """The request with another value at a path."""
        values = copy.deepcopy(self.values(context))
        *way, last = path
        struct: Any = values
        for step in way:
            struct = struct[step]
        struct[last] = value(context, struct[last])
        return encode(self.definition, self.version, values)

    def leaves(self) -> Iterator[tuple[Path, str, Field]]:
        for path, field in _leaves(self.definition, self.definition.fields, self.values(Context())):
            yield path, ".".join(map(str, path)), field

    def poisoned(self) -> Iterator[Case]:
        for path, name, field in self.leaves():
            if field.type.name in ("bytes", "records"):
                for number, (what, make) in enumerate(_poisons(path, field)):
                    value = partial(_poison, make, partial(self.dice, "poison", number))
                    yield self.case("poison", f"{name}-{what}", partial(self.changed, path, value))

    def wrong(self) -> Iterator[Case]:
        for path, name, field in self.leaves():
            for what, value in _wrong(field):
                make = partial(self.changed, path, value)
                try:
                    make(Context())
                except EncodeError:
                    continue
                yield self.case("wrong", f"{name}-{what}", make)

    # -- order and frames

    def twice(self, body: bytes, next_number: Callable[[], int]) -> Shot:
        """The same request two times, the second before the first is answered."""
        numbers = [next_number(), next_number()]
        return Shot([b"".join(frame(self.api, self.version, one, body) for one in numbers)], numbers)

    def frames(self) -> Iterator[Case]:
        changes: dict[str, Change] = {f"cut-{index}": partial(self.cut, index) for index in range(CUTS)}
        changes |= FRAMES
        if self.version in self.definition.flexible_versions:
            # After the client id, which is kfuzz.
            changes["header-tags-huge"] = _put(14 + len("kfuzz"), b"\x7f")
        for index, change in changes.items():
            yield self.case("frame", index, self.body, partial(self.framed, index, change))

    def framed(self, index: str, change: Change, body: bytes, next_number: Callable[[], int]) -> Shot:
        number = next_number()
        waits = not index.startswith("cut-") and index != "longer-size"
        return Shot(change(frame(self.api, self.version, number, body)), [number], waits)

    def cut(self, index: int, whole: bytes) -> list[bytes]:
        """The beginning of a frame."""
        return [whole[: self.dice("frame", index).below(len(whole))]]


def _split(whole: bytes) -> list[bytes]:
    """Byte by byte at first, then the rest."""
    return [whole[at : at + 1] for at in range(min(SINGLE_BYTES, len(whole) - 1))] + [
        whole[SINGLE_BYTES:] or whole[-1:]
    ]


def _put(at: int, data: bytes) -> Change:
    """Other bytes in place of those at ``at``."""
    return lambda whole: [whole[:at] + data + whole[at + len(data) :]]


def _sized(more: int, after: bytes = b"") -> Change:
    """Bytes after the frame, and a size that is larger by ``more``."""
    return lambda whole: [SIZE.pack(len(whole) - SIZE.size + more) + whole[SIZE.size :] + after]


# After the size come the API, the version, the correlation id and the client id.
FRAMES: Final[Mapping[str, Change]] = {
    "longer-size": _sized(1),
    "shorter-size": _sized(-1),
    "size-0": _put(0, SIZE.pack(0)),
    "size-negative": _put(0, SIZE.pack(-1)),
    "size-max": _put(0, SIZE.pack(INT32_MAX)),
    "split": _split,
    "bytes-after": _sized(4, b"\xff" * 4),
    "unknown-api": _put(4, b"\x7f\xff"),
    "unknown-version": _put(6, b"\x7f\xff"),
    "negative-version": _put(6, b"\xff\xff"),
    "client-id-beyond": _put(12, b"\x7f\xff"),
    "client-id-negative": _put(12, b"\xff\xfe"),
    "client-id-not-utf8": _put(14, b"\xff\xfe"),
}


@cache
def _mutator(message: str, version: int) -> MessageMutator:
    return MessageMutator(schema(catalogue().find(message), version))


Path = tuple[str | int, ...]


def _leaves(
    definition: Definition, fields: Sequence[Field], values: Message, path: Path = ()
) -> Iterator[tuple[Path, Field]]:
    """All values that are no structs, by their paths, as far as the request gives them."""
    for one in fields:
        key = key_of(one.name)
        here, value = (*path, key), values.get(key)
        if value is None:
            continue
        for place, each in (
            [((*here, at), each) for at, each in enumerate(value)] if one.type.array else [(here, value)]
        ):
            if one.type.struct is None:
                yield place, one
            else:
                yield from _leaves(definition, definition.fields_of(one.type), each, place)


# -- poison inside bytes that the message's own form says nothing about

Poison = Callable[[bytes, Dice], bytes]
BLOBS: Final = {
    "metadata": ("ConsumerProtocolSubscription", subscription),
    "assignment": ("ConsumerProtocolAssignment", assignment),
}
MUTANTS_OF_BLOBS: Final = 8
MUTANTS_OF_RECORDS: Final = 24


def _poison(make: Poison, dice: Callable[[], Dice], context: Context, value: bytes) -> bytes:
    return make(bytes(value or b""), dice())


def _poisons(path: Path, field: Field) -> Iterator[tuple[str, Poison]]:
    yield "empty", lambda data, dice: b""
    yield "byte", lambda data, dice: b"\xff"
    yield "cut", lambda data, dice: data[: dice.below(len(data) + 1)]
    yield "random", lambda data, dice: dice.octets(64)
    yield "long", lambda data, dice: data + bytes(1 << 16)
    name = path[-1]
    if name in BLOBS:
        message, make = BLOBS[str(name)]
        yield "version", lambda data, dice: data[:2]
        # KAFKA-20570: a count of -1 made Kafka's coordinators throw what they did not catch.
        for version in (0, 1, BLOB_VERSION, 0x7FFF, 0xFFFF):
            for what, count in (("null", 0xFFFFFFFF), ("negative", 0x80000000), ("huge", 0x7FFFFFFF)):
                prefix = version.to_bytes(2, "big") + count.to_bytes(4, "big")
                yield f"v{version}-count-{what}", _fixed(prefix)
        yield "topic-null", lambda data, dice: b"\0\1\0\0\0\1\xff\xff"
        yield "topic-beyond", lambda data, dice: b"\0\1\0\0\0\1\x7f\xff"
        mutator, good = _mutator(message, BLOB_VERSION), make("kfuzz")
        for index in range(MUTANTS_OF_BLOBS):
            yield f"mutant-{index}", lambda data, dice: good[:2] + mutator.mutate(good[2:], dice)
    elif field.type.name == "records":
        for index in range(MUTANTS_OF_RECORDS):
            yield (
                f"mutant-{index}",
                lambda data, dice: Mutator(dice.below(1 << 32), role="broker", codecs=("none",)).input(),
            )
    elif name == "authBytes":
        yield "nuls", lambda data, dice: bytes(3)
        yield "words", lambda data, dice: b"\0" * 1000 + b"a" * 1000
        yield "scram", lambda data, dice: b"n,,n=\xff,r=" + dice.octets(24)
        yield "gs2", lambda data, dice: b"p=tls-unique,,n=a,r="
    elif name == "metrics":
        # Protobuf: a length beyond the end, a varint without an end, groups within groups, a field of number 0.
        yield "length-beyond", lambda data, dice: b"\x0a\xff\xff\xff\xff\x07"
        yield "varint-endless", lambda data, dice: b"\x08" + b"\xff" * 64
        yield "groups", lambda data, dice: b"\x0b" * 10_000
        yield "field-0", lambda data, dice: b"\x02\x00"


# -- single values of other states and other owners

Value = Callable[[Context, Any], Any]


def _fixed(value: Any) -> Callable[[Any, Any], Any]:
    return lambda one, other: value


WRONG: Final[Mapping[str, Mapping[str, Any]]] = {
    "string": {"empty": "", "nobody": NOBODY, "long": "a" * 32_767, "odd": "../\0\N{SNOWMAN}"},
    "uuid": {"zero": bytes(16), "one": bytes(15) + b"\1", "nobody": b"\xee" * 16},
    "float64": {"nan": float("nan"), "infinite": float("-inf")},
}


def _wrong(field: Field) -> Iterator[tuple[str, Value]]:
    name = key_of(field.name).lower()
    kind = field.type.name
    if kind.startswith("int"):
        largest = (1 << (int(kind.removeprefix("int")) - 1)) - 1
        if name.endswith(("epoch", "generationid", "subscriptionid", "sessionid", "producerid")):
            yield "stale", lambda context, old: old - 1
            yield "next", lambda context, old: old + 1 if old < largest else old
            yield "none", _fixed(-1)
        if name.endswith(("index", "indexes", "partition", "partitions", "offset", "timestamp")):
            yield "beyond", _fixed(min(1_000_000, largest))
        yield "negative", _fixed(-2)
        yield "min", _fixed(-largest - 1)
        # A broker may wait as long as a request allows.
        if not name.endswith("timeoutms") and name != "maxwaitms":
            yield "max", _fixed(min(largest, INT64_MAX))
    for what, value in WRONG.get(kind, {}).items():
        yield what, _fixed(value)
    if kind == "string" and name in ("groupid", "transactionalid"):
        yield "early", lambda context, old: context.stranger().group
    if kind == "string" and name in ("name", "topic", "topicname", "resourcename", "subscribedtopicnames"):
        yield "internal", _fixed("__consumer_offsets")
