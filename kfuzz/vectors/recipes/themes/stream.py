"""Shared code of the stream recipes: batches of producers, and the expected outcomes.

``Appends`` describes a partition to which a broker appends one batch per step. ``Stream.reading`` describes a fetch or
a log, and the records that a reader returns. The recipes state every outcome; this module only counts offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import Any

from kfuzz.vectors.recipes.making.builder import Raw, Record, batch
from kfuzz.vectors.recipes.theme import Step, Theme, adding

Json = dict[str, Any]

ABORT, COMMIT = 0, 1
PRODUCER, OTHER = 4000, 5000
EPOCH = 3

# Kafka's error in a broker's answer, by finding.
ERRORS = {
    "sequence-gap": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "sequence-overlap": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "sequence-of-new-epoch": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "producer-epoch-stale": "INVALID_PRODUCER_EPOCH",
    "coordinator-epoch-stale": "TRANSACTION_COORDINATOR_FENCED",
    "transaction-not-ended": "INVALID_TXN_STATE",
}


def data(base_sequence: int, count: int = 2, *, producer_id: int = PRODUCER, text: str = "v", **fields: Any) -> Raw:
    """A batch of ``count`` records of a producer; not transactional unless ``fields`` sets it."""
    made = (Record(offset_delta=index, value=f"{text}{index}".encode()) for index in range(count))
    fields = {"producer_epoch": EPOCH} | fields
    return batch(*made, base_sequence=base_sequence, producer_id=producer_id, **fields)


def plain(count: int = 1, **fields: Any) -> Raw:
    """A batch of ``count`` records without a producer id."""
    return batch(*(Record(offset_delta=index, value=b"plain") for index in range(count)), **fields)


def marker(
    kind: int,
    *,
    coordinator_epoch: int = 0,
    key: bytes | EllipsisType | None = ...,
    value: bytes | EllipsisType | None = ...,
    producer_id: int = PRODUCER,
    **fields: Any,
) -> Raw:
    """The control batch that ends a producer's transaction; ``key`` and ``value`` replace the right ones."""
    record = Record(
        key=struct.pack(">hh", 0, kind) if isinstance(key, EllipsisType) else key,
        value=struct.pack(">hi", 0, coordinator_epoch) if isinstance(value, EllipsisType) else value,
    )
    fields = {"producer_epoch": EPOCH, "transactional": True} | fields
    return batch(record, control=True, producer_id=producer_id, **fields)


@dataclass(slots=True)
class Appends:
    """The steps of a stream: batches sent to a partition, and the broker's answer to each. They have base offset 0."""

    steps: list[Step] = field(default_factory=list)
    end: int = 0
    # The first offset of each open transaction, by producer id.
    begun: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def accept(self, raw: Raw, *, begins: bool = False, ends: bool = False, verdict: str = "valid") -> Appends:
        """The broker appends the batch, which may begin or end its producer's transaction."""
        contents = raw.batches[0]
        base_offset = self.end
        self.end += int(contents["next_offset"]) - int(contents["base_offset"])
        if begins:
            self.begun[contents["producer_id"]] = base_offset
        if ends:
            del self.begun[contents["producer_id"]]
        return self._add(raw, {"outcome": "appended", "base_offset": str(base_offset), "verdict": verdict})

    def drop(self, raw: Raw, *, at: int) -> Appends:
        """The broker treats the batch as a duplicate of the one appended at offset ``at``."""
        finding = "sequence-duplicate"
        return self._add(raw, {"outcome": "duplicate", "base_offset": str(at), "finding": finding, "verdict": "valid"})

    def refuse(self, raw: Raw, finding: str, *, error: str | None = None, verdict: str = "invalid") -> Appends:
        """The broker refuses the batch for ``finding``. If the documents are silent, pass the verdict "acceptable"."""
        answer = {"outcome": "rejected", "finding": finding, "error": error or ERRORS[finding], "verdict": verdict}
        return self._add(raw, answer)

    def _add(self, raw: Raw, answer: Json) -> Appends:
        stable = min(self.begun.values(), default=self.end)
        self.steps.append(Step(raw, {"broker": answer | {"last_stable_offset": str(stable)}}))
        return self


@dataclass(frozen=True, slots=True)
class Part:
    """One step of a stream that is read.

    ``shown``: whether a reader returns its records, or the list of those that it returns. ``beyond``: the last stable
    offset is before this step, so none of it is sent.
    """

    raw: Raw
    shown: bool | Sequence[Json] = True
    beyond: bool = False
    finding: str | None = None

    @property
    def records(self) -> list[Json]:
        """The records that a reader returns."""
        if isinstance(self.shown, bool):
            return [record for contents in self.raw.batches for record in contents["records"] if self.shown]
        return list(self.shown)


def txn(base_offset: int, base_sequence: int = 0, count: int = 2, **fields: Any) -> Raw:
    """A batch of ``count`` records in a producer's transaction."""
    return data(base_sequence, count, base_offset=base_offset, **{"transactional": True, **fields})


def dropped(raw: Raw) -> Part:
    """A step whose records a reader does not return."""
    return Part(raw, shown=False)


def ending(kind: int, base_offset: int, **fields: Any) -> Part:
    """The marker of a producer's transaction as a step."""
    return dropped(marker(kind, base_offset=base_offset, **fields))


def ended(kind: int, base_offset: int, base_sequence: int = 0, **fields: Any) -> tuple[Part, Part]:
    """A producer's transaction of two records, and its marker."""
    records = Part(txn(base_offset, base_sequence, **fields), shown=kind == COMMIT)
    return records, ending(kind, base_offset + 2, **fields)


def _aborted(parts: Iterable[Part]) -> Iterator[tuple[int, int]]:
    """The transactions whose records are dropped: their producers and their first offsets."""
    begun: set[str] = set()
    for part in parts:
        contents = part.raw.batches[0]
        producer = contents["producer_id"]
        if contents["control"]:
            begun.discard(producer)
        elif contents["transactional"] and contents["records"] and not part.shown and producer not in begun:
            begun.add(producer)
            yield int(producer), int(contents["base_offset"])


@dataclass(slots=True)
class Stream(Theme):
    """A theme of streams."""

    kind: str = "stream"

    @adding
    def reading(
        self,
        slug: str,
        summary: str,
        *parts: Part,
        roles: Sequence[str] = ("consumer", "log"),
        isolation: str = "read_committed",
        requirements: Sequence[str] = ("TXN-FILTER-1",),
        fetch_offset: int | None = None,
        **options: Any,
    ) -> None:
        """Add a vector with the records that ``roles`` return.

        A consumer learns the aborted transactions from ``aborted``, by default those whose records are dropped; a
        reader of the log learns them from its markers. A reader may refuse a part that has a ``finding``, because the
        documents are silent.
        """
        steps, position = [], fetch_offset or 0
        for part in parts:
            if not part.beyond:
                position = int(part.raw.batches[-1]["next_offset"])
            answer: Json = {"records": part.records, "next_offset": str(position), "verdict": "valid"}
            if part.finding:
                answer |= {"finding": part.finding, "verdict": "acceptable"}
            steps.append(Step(part.raw, dict.fromkeys(roles, answer)))
        # Readers never return control records; a stream that has one tests this.
        control = any(contents["control"] for part in parts for contents in part.raw.batches)
        cited = [*requirements, *(["RB-CONTROL-5"] if control else [])]
        if "consumer" in roles and (aborted := list(_aborted(parts))):
            options = {"aborted": aborted} | options
        options |= {"isolation": isolation, "requirements": cited, "fetch_offset": fetch_offset}
        # ``options`` has those of the theme already.
        replace(self, options={}).stream(slug, summary, *steps, **options)
