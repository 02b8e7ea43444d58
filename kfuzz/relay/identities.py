"""The values that mean the same in two runs of one conversation: ids, epochs, offsets and addresses.

The values of a recorded and of a fresh frame are walked side by side. So it is learned which fresh id a recorded one
became, and recorded frames can be sent to somebody who only knows the fresh ids. An id must keep its meaning: anything
else is a difference.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kfuzz import records
from kfuzz.client.address import Address
from kfuzz.kafka import INT64_MAX
from kfuzz.relay.addresses import HOST, PORT
from kfuzz.replay.batches import PRODUCER as PRODUCER_FIELDS
from kfuzz.replay.batches import PRODUCER_AT, set_header
from kfuzz.wire.records.framing import frames

# The recorded things that a value belongs to: "topic", "partition", "producer", "member", "group".
Scope = dict[str, Any]
Difference = tuple[str, Any, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that fields identify.

    - ``scope``: one id means different things in different scopes.
    - ``counts``: two values are as far from each other as in the record.
    - ``stays``: what was learned first is right. Otherwise a fresh value that nobody expects is a difference once.
    - ``unset``: means that there is none, as negative numbers and empty values always do.
    """

    name: str
    fields: Sequence[str]
    scope: Sequence[str] = ()
    counts: bool = False
    stays: bool = False
    unset: int = -1


_TABLES: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("identities.toml").read_text())
_KINDS: Final = [Kind(name, **one) for name, one in _TABLES["kinds"].items()]
KINDS: Final[Mapping[str, Kind]] = {field: kind for kind in _KINDS for field in kind.fields}
SCOPES: Final[Mapping[str, list[str]]] = _TABLES["scopes"]
MASKED: Final = frozenset(_TABLES["masked"])
KEYS: Final[list[str]] = _TABLES["keys"]
BATCH: Final[list[str]] = _TABLES["batch"]
MEMBER: Final = "member"
TOPIC_ID: Final = "topicId"
RECORDS: Final = "records"
EMPTY: Final = (None, "", b"", bytes(16))


class Identities:
    """Finds the fresh ids for recorded ones.

    ``of_client``: only what a client chooses may differ, which is its member id and the times of records.
    ``masks_times``: the times of records may differ in any case.
    """

    def __init__(self, *, of_client: bool = False, masks_times: bool = False) -> None:
        self._masks_times = of_client or masks_times
        self._kinds = {name: kind for name, kind in KINDS.items() if kind.name == MEMBER or not of_client}
        # The fresh addresses of recorded ones, which are texts.
        self.addresses: dict[str, Address] = {}
        self._known: dict[tuple[Any, ...], dict[Any, Any]] = {}
        # The names of recorded topics, by their ids.
        self._topics: dict[bytes, str] = {}

    # -- one value

    def _learned(self, kind: Kind, scope: Scope) -> dict[Any, Any]:
        """The fresh values of recorded ones, as far as they are known."""
        return self._known.setdefault((kind.name, *map(scope.get, kind.scope)), {})

    def _fresh(self, kind: Kind, scope: Scope, old: Any) -> Any:
        """The fresh id that stands for a recorded one. None if there is none yet, or if the value is not an id."""
        if not _is_id(kind, old):
            return None
        known = self._learned(kind, scope)
        if old in known or not (kind.counts and known):
            return known.get(old)
        near = max((one for one in known if one < old), default=min(known))
        fresh = known[near] + old - near
        return fresh if fresh >= 0 else None

    def _is_same(self, kind: Kind, scope: Scope, old: Any, new: Any) -> bool:
        """Whether a fresh value is what the record makes one expect. It is learned."""
        if not (_is_id(kind, old) and _is_id(kind, new)):
            return bool(old == new)
        expected = self._fresh(kind, scope, old)
        if expected is None or (expected != new and not kind.stays):
            self._learned(kind, scope)[old] = new
        return expected is None or expected == new

    def _entered(self, scope: Scope, struct: Mapping[str, Any]) -> Scope:
        """The scope of the fields of a recorded struct."""
        inner = dict(scope)
        topic_id = struct.get(TOPIC_ID)
        if isinstance(topic_id, bytes) and any(topic_id):
            inner["topic"] = self._topics.get(topic_id, topic_id)
        for what, names in SCOPES.items():
            for value in map(struct.get, names):
                if isinstance(value, str | int) and value != "":
                    inner[what] = value
        if isinstance(topic_id, bytes) and isinstance(inner.get("topic"), str):
            self._topics[topic_id] = inner["topic"]
        return inner

    # -- recorded values become fresh ones

    def translated(self, values: Any, scope: Scope, kind: Kind | None = None) -> Any:
        """Recorded values with fresh ids. Equal to ``values`` if nothing differs."""
        if isinstance(values, list):
            return [self.translated(one, scope, kind) for one in values]
        if not isinstance(values, dict):
            fresh = None if kind is None else self._fresh(kind, scope, values)
            return values if fresh is None else fresh
        inner = self._entered(scope, values)
        made: dict[str, Any] = {
            name: self._with_producers(value)
            if name == RECORDS and isinstance(value, bytes)
            else self.translated(value, inner, self._kinds.get(name))
            for name, value in values.items()
        }
        if HOST in made and PORT in made and (found := self.addresses.get(_place(made))):
            made[HOST], made[PORT] = found.host, found.port
        return made

    def _with_producers(self, data: bytes) -> bytes:
        """Record batches with fresh producer ids and epochs."""
        made = bytearray(data)
        view = memoryview(made)
        for at, size, magic in frames(data):
            if magic == 2:
                producer_id, epoch, sequence = PRODUCER_FIELDS.unpack_from(view, at + PRODUCER_AT)
                old = {"producerId": producer_id, "producerEpoch": epoch}
                if (fresh := self.translated(old, {})) != old:
                    set_header(view[at : at + size], (fresh["producerId"], fresh["producerEpoch"], sequence))
        return bytes(made)

    # -- a recorded and a fresh message

    def scope(self, values: Any) -> Scope:
        """The scope of a response: what its recorded request was about."""
        return self._entered({}, values) if isinstance(values, dict) else {}

    def differences(
        self, old: Any, new: Any, scope: Scope, path: str = "", kind: Kind | None = None
    ) -> Iterator[Difference]:
        """Where a fresh message differs from a recorded one: the path, the recorded and the fresh value.

        Ids are learned on the way.
        """
        if isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new):
                yield f"{path} (its length)", len(old), len(new)
            for at, one, other in self._pairs(old, new, scope):
                yield from self.differences(one, other, scope, f"{path}[{at}]", kind)
            return
        if not (isinstance(old, dict) and isinstance(new, dict)):
            if not (old == new if kind is None else self._is_same(kind, scope, old, new)):
                yield path, old, new
            return
        scope = self._entered(scope, old)
        for name in old | new:
            one, other = old.get(name), new.get(name)
            if name in (HOST, PORT) and old.get(HOST) and new.get(HOST):
                self.addresses.setdefault(_place(old), Address.advertised(new[HOST], new.get(PORT, 0)))
            elif not (name in MASKED and _is_masked(one) and _is_masked(other)):
                if name == RECORDS and isinstance(one, bytes) and isinstance(other, bytes):
                    one, other = self._batches(one), self._batches(other)
                inner = f"{path}.{name}" if path else name
                yield from self.differences(one, other, scope, inner, self._kinds.get(name))

    def _pairs(self, old: list[Any], new: list[Any], scope: Scope) -> Iterator[tuple[int, Any, Any]]:
        """The elements of two lists that belong together: those with the same key, then the others in their order.

        The number is that of the fresh element.
        """
        there: dict[Any, deque[int]] = defaultdict(deque)
        for at, one in enumerate(new):
            there[_key(one)].append(at)
        left: list[Any] = []
        for one in old:
            if places := there.get(_key(self.translated(one, scope))):
                at = places.popleft()
                yield at, one, new[at]
            else:
                left.append(one)
        for at, one in zip(sorted(at for places in there.values() for at in places), left, strict=False):
            yield at, one, new[at]

    def _batches(self, data: bytes) -> Any:
        """Batches as values whose names are those of messages; the bytes if they cannot be read."""
        reading = records.read(data)
        if reading.fatal is not None:
            return data
        return [_batch(one, masks_time=self._masks_times) for one in reading.batches]


def _place(broker: Mapping[str, Any]) -> str:
    return str(Address.advertised(broker[HOST], broker.get(PORT, 0)))


def _is_id(kind: Kind, value: Any) -> bool:
    """Whether a value is an id. Negative numbers, the largest one, empty values and the kind's own one mean none."""
    if isinstance(value, int):
        return 0 <= value < INT64_MAX and value != kind.unset
    return isinstance(value, str | bytes) and not kind.counts and value not in EMPTY


def _is_masked(value: Any) -> bool:
    """Whether a time of the broker is one; -1 is none."""
    return not isinstance(value, int) or value >= 0


def _key(element: Any) -> Any:
    """The field by which an element of a list is found, and its value; None if it has none."""
    if not isinstance(element, dict):
        return None
    found = ((name, element[name]) for name in KEYS if element.get(name) not in EMPTY)
    return next((one for one in found if isinstance(one[1], str | int | bytes)), None)


def _batch(batch: records.RecordBatch, *, masks_time: bool) -> dict[str, Any]:
    # The broker sets the times of control records, and of batches with its own time. Markers name its coordinator.
    is_masked = masks_time or batch.control or batch.timestamp_type == "log-append"
    time = "timestamp" if is_masked else "create_time"
    made = {name: getattr(batch, name) for name in BATCH}
    made["records"] = [
        {
            "offset": one.offset,
            time: one.timestamp,
            "record_key": one.key,
            "value": None if batch.control else one.value,
            "headers": [[key, value] for key, value in one.headers],
        }
        for one in batch.records
    ]
    return made
