"""The producers of a partition and their open transactions, from its log. ``kfuzz state`` prints it.

As a broker does at its start, the walk begins at the newest producer snapshot at the start of a segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from kfuzz.annotate.listing import Listing
from kfuzz.kafka import INDEX_INTERVAL_BYTES
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.indexes import ABORTED_ENTRY, Starts, entries
from kfuzz.logs.lost import LostOffsets, with_losses
from kfuzz.logs.segments import Segment, log_end, lost_between
from kfuzz.logs.snapshot import Producer, follow
from kfuzz.logs.transactions import snapshot_of
from kfuzz.mapped import mapped, require_whole
from kfuzz.units import counted
from kfuzz.wire.io.layout import CONTROL

FIRST: Final = "current_txn_first_offset"


class Notes(Counter[str]):
    """Sentences about what could not be used, and how often each is true."""

    is_damaged = False

    def damage(self, sentence: str, *, is_tail: bool) -> None:
        """Bytes are damaged. A cut batch at the end is none: a broker finishes it, or drops it at its start."""
        self.is_damaged |= not is_tail
        self[sentence] = 1

    def skip(self, path: Path, what: str) -> None:
        """A file is skipped, and what it is; for ``find_segments``."""
        self[f"{path} is skipped: it is {what}"] += 1

    def sentences(self) -> list[str]:
        """Each sentence once, with its count."""
        return [one if count == 1 else f"{one} ({count} times)" for one, count in self.items()]


@dataclass(slots=True)
class PartitionState:
    """The producers of a partition where its log ends.

    ``aborted`` has the transactions that were aborted after the place where the walk began, with the fields of an entry
    of a transaction index. ``differ`` names the transaction indexes that do not have the entries of their segments.
    """

    producers: dict[int, Producer] = field(default_factory=dict)
    aborted: list[dict[str, int]] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)

    def to_json(self, segment: Segment) -> list[dict[str, Any]]:
        """The producers as JSON objects, in the order of their ids. ``segment`` is one of the partition."""
        place = {"topic": segment.topic, "partition": segment.partition}
        return [place | asdict(one) for _, one in sorted(self.producers.items())]


def partition_state(partition: Sequence[Segment], notes: Notes, *, whole: bool = False) -> PartitionState:
    """The producers of a partition, of which these are all segments. ``whole``: read the log from its first segment on.

    ``UsageError`` if a file cannot be read. Bad bytes are passed over; ``notes`` says so.
    """
    made, start = PartitionState(), 0
    for at in (0,) if whole else reversed(range(len(partition))):
        if (found := snapshot_of(partition[at])) is not None:
            made.producers, start = {one.producer_id: one for one in found}, at
            break
    is_whole = True
    for segment in partition[start:]:
        began = [(one.producer_id, one.current_txn_first_offset) for one in made.producers.values()]
        walk = IndexWalk(segment.base_offset or 0, INDEX_INTERVAL_BYTES, [one for one in began if one[1] >= 0])
        bad, losses = [], list[LostOffsets]()
        if segment.size:
            with segment.open() as file:
                view = mapped(file, 0, segment.size)
                listing = Listing(view, role="log", also=walk)
                bad = [one for one in listing if one.size and (one.kind != "batch" or one.is_refused)]
                both = with_losses(segment.path, Listing(view, role="log")) if bad else ()
                losses = [one for one in both if isinstance(one, LostOffsets)]
                require_whole(view)
        follow(made.producers, walk.producers)
        rows = np.frombuffer(walk.transaction_index, ABORTED_ENTRY).tolist()
        made.aborted += [dict(zip(ABORTED_ENTRY.names or (), row, strict=True)) for row in rows]
        path = segment.path.with_suffix(".txnindex")
        # After damage, transactions seem to begin or end elsewhere.
        is_whole &= not bad
        if bad:
            more = f" and in {counted(len(bad) - 1, 'more place')}" if len(bad) > 1 else ""
            costs = f"; {losses[0]}" if losses else ""
            notes.damage(
                f"{segment.path} is damaged or cut at byte {bad[0].at}{more}{costs}; a transaction may have "
                "ended in these bytes",
                is_tail=bad[0].kind == "tail" and not losses,
            )
        elif is_whole and entries(path, ABORTED_ENTRY).tobytes() != walk.transaction_index:
            made.differ.append(str(path))
    if gaps := list(lost_between(partition[start:])):
        one, more = gaps[0], f" ({counted(len(gaps) - 1, 'more gap')})" if gaps[1:] else ""
        missing = f"{one.partition}: offsets {one.first} to {one.last} are in no segment{more}"
        notes[f"{missing}; `kfuzz check` says whether they are lost or were compacted"] = 1
    return made


def end_offset(partition: Sequence[Segment]) -> int:
    """The offset after the last batch of a partition, of which these are all segments."""
    ends = (log_end(segment) for segment in reversed(partition))
    return next((offset for offset, at in ends if at), partition[0].base_offset or 0)


def open_transactions(partition: Sequence[Segment], notes: Notes) -> list[dict[str, Any]]:
    """The producers of a partition with an open transaction, oldest first, as JSON objects.

    ``records`` counts those of the transaction, ``since`` is the time of the first one (ms); None if it is not there.
    """
    found = [one for one in partition_state(partition, notes).to_json(partition[0]) if one[FIRST] >= 0]
    found = [{"first_offset": one.pop(FIRST), "records": 0, "since": None} | one for one in found]
    found.sort(key=lambda one: one["first_offset"])
    of = {one["producer_id"]: one for one in found}
    for segment in partition:
        if found and segment.size and (segment.next_offset is None or segment.next_offset > found[0]["first_offset"]):
            with segment.open() as file:
                view = mapped(file, Starts(segment, file).before(found[0]["first_offset"]), segment.size)
                for batch in Listing(view):
                    one = of.get(batch.producer_id)
                    if one and batch.base_offset >= one["first_offset"] and not batch.attributes & CONTROL:
                        one["records"] += batch.records
                        one["since"] = batch.base_timestamp if one["since"] is None else one["since"]
                require_whole(view)
    return found


def judge(
    one: dict[str, Any], known: tuple[Mapping[int, Mapping[str, Any]], bool] | None, now_ms: int, timeout_ms: int
) -> None:
    """Add ``transactional_id``, ``hangs`` and ``reason`` to an open transaction, as KIP-664 defines a hanging one.

    ``known`` is the result of ``transactional_ids``; None if there is no ``__transaction_state``. Then, and if it does
    not know the producer but lacks partitions, a transaction hangs if its last batch is older than ``timeout_ms``, the
    cluster's ``transaction.max.timeout.ms``.
    """
    ids, is_whole = known or ({}, False)
    said = ids.get(one["producer_id"], {})
    if said:
        one["hangs"] = [one["topic"], one["partition"]] not in said["partitions"]
        reason = f"{said['state']} in __transaction_state{', without this partition' if one['hangs'] else ''}"
    elif is_whole:
        one["hangs"], reason = True, "__transaction_state does not know the producer"
    else:
        one["hangs"] = now_ms - one["timestamp"] > timeout_ms
        reason = f"its last batch is {'' if one['hangs'] else 'not '}older than transaction.max.timeout.ms; "
        reason += "partitions of __transaction_state are missing" if known else "there is no __transaction_state"
    one |= {"transactional_id": said.get("transactionalId"), "reason": reason}
