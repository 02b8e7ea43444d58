"""The state of a partition's producers, stated a second time: a tuple for each, and the rules in the order in which
Kafka asks. Nothing of it is shared with ``kfuzz.records.stream`` and ``kfuzz.logs``, which it judges.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from kfuzz.fuzz.oracle import OracleFailure
from kfuzz.kafka import INDEX_INTERVAL_BYTES
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.snapshot import decode, encode, follow
from kfuzz.records import Record, RecordBatch, encode_batch
from kfuzz.records.read.reader import check_with
from kfuzz.records.stream import check_stream
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.records.framing import frames

SEQUENCES, EPOCH_MAX, SENT_MAX = 1 << 31, (1 << 15) - 1, 5
# Where a batch has its CRC, the delta of its last offset, and its producer (id, epoch, base sequence).
CRC_AT, DELTA_AT, PRODUCER_AT, PRODUCER = 17, 23, 43, struct.Struct(">qhi")
# A marker, and where it has the type and the coordinator's epoch.
MARKER = encode_batch(RecordBatch(0, 0, [Record(0, 0, bytes(4), bytes(6))], control=True, transactional=True))
TYPE_AT, COORDINATOR_AT = len(MARKER) - 9, len(MARKER) - 2
# A snapshot file, after version, CRC and count; a transaction index.
ENTRIES_AT, ENTRY, ABORTED = 10, struct.Struct(">qhiqiqiq"), struct.Struct(">hqqqq")


class Known(NamedTuple):
    """One producer. ``sent``: first and last sequence, first and last offset of each batch that is remembered."""

    epoch: int = -1
    sent: tuple[tuple[int, int, int, int], ...] = ()
    time: int | None = -1
    coordinator: int = -1
    opened: int = -1


class Partition:
    """A partition's leader, which gets batches from clients and coordinators; or a follower, whose leader has accepted
    them. ``version`` is the coordinators' version of transactions.
    """

    def __init__(self, leads: bool, version: int = 0) -> None:
        self.leads, self.version, self.end, self.aborted = leads, version, 0, b""
        self.producers: dict[int, Known] = {}

    def stable(self, end: int, but: int = -1) -> int:
        """The last stable offset of a log that ends at ``end``, if the producer ``but`` had no transaction."""
        return min([one.opened for key, one in self.producers.items() if one.opened >= 0 and key != but], default=end)

    def append(self, batch: RecordBatch) -> tuple[str, str, int | None]:
        """Append a batch: what becomes of it, what is wrong with it, and the offset that its sender is told."""
        at, producer, epoch = self.end if self.leads else batch.base_offset, batch.producer_id, batch.producer_epoch
        last, wrong = at + batch.last_offset - batch.base_offset, [""]
        # Compaction leaves control batches that have lost their marker. They say nothing.
        if producer >= 0 and (batch.records or not batch.control):
            known, marker = self.producers.get(producer, Known()), _marker(batch)
            remembered = known.sent if epoch == known.epoch else ()
            first = batch.base_sequence
            sent = first, -1 if first == -1 else (first + last - at) % SEQUENCES, at, last
            if again := [one for one in remembered if self.leads and not batch.control and one[:2] == sent[:2]]:
                return "duplicate", "sequence-duplicate", again[0][2]
            wrong = [*self._wrong(batch, known, marker), ""]
            # A follower only warns of old epochs.
            if fatal := [code for code in wrong if code and (self.leads or not code.endswith("-stale"))]:
                return "rejected", fatal[0], None
            opened = -1 if marker else at if batch.transactional and known.opened < 0 else known.opened
            if marker and marker[0] == 0 and known.opened >= 0:
                self.aborted += ABORTED.pack(0, producer, known.opened, at, self.stable(at + 1, producer))
            sents, coordinator = (remembered, marker[1]) if marker else ((*remembered, sent), known.coordinator)
            time = batch.records[0].timestamp if marker else batch.max_timestamp
            self.producers[producer] = Known(epoch, sents[-SENT_MAX:], time, coordinator, opened)
        self.end = last + 1
        return "appended", wrong[0], at

    def _wrong(self, batch: RecordBatch, known: Known, marker: tuple[int, int] | None) -> Iterator[str]:
        # In version 2, a marker has an epoch of its own, until there is none any more.
        own = batch.control and self.version == 2 and known.opened >= 0 and known.epoch < EPOCH_MAX
        if batch.control and marker is None:
            yield "end-marker-invalid"
        elif batch.producer_epoch < known.epoch + own:
            yield "producer-epoch-stale"
        if marker and marker[1] < known.coordinator:
            yield "coordinator-epoch-stale"
        if batch.control:
            return
        wanted = (known.sent[-1][1] + 1 if known.sent else 0) % SEQUENCES
        if self.leads and known.epoch >= 0 and batch.producer_epoch != known.epoch and batch.base_sequence:
            yield "sequence-of-new-epoch"
        elif self.leads and known.epoch == batch.producer_epoch and batch.base_sequence != wanted:
            is_above = (batch.base_sequence - wanted) % SEQUENCES < SEQUENCES // 2
            yield "sequence-gap" if is_above else "sequence-overlap"
        if known.opened >= 0 and not batch.transactional:
            yield "transaction-not-ended"


def _marker(batch: RecordBatch) -> tuple[int, int] | None:
    """The type and the coordinator's epoch in a marker; None for any other batch."""
    key, value = (batch.records[0].key or b"", batch.records[0].value or b"") if batch.control else (b"", b"")
    is_marker = key[2:4] in (b"\0\0", b"\0\1") and key[0] < 128 and len(value) >= 6 and value[0] < 128
    return (key[3], int.from_bytes(value[2:6], "big", signed=True)) if is_marker else None


def retold(data: bytes) -> Iterator[bytes]:
    """Logs of an input's batches, if any has a producer: one after the other; up to the highest epoch with a second
    producer between them, then with the old epochs; twice, with sequences that wrap. The last two have more markers.
    """
    whole = [data[at : at + size] for at, size, magic in frames(data) if magic == 2]
    sent = [(one, *PRODUCER.unpack_from(one, PRODUCER_AT)) for one in whole]
    # The epochs that are left above the highest one.
    left = EPOCH_MAX - max([0, *(epoch for *_, epoch, _ in sent)])
    ways = ((1, (0,), 0), (2, (left, 0), 0), (1, (0, 0), SEQUENCES - 2))
    for producers, rounds, further in ways if any(producer >= 0 for _, producer, *_ in sent) else ():
        log, end = b"", 0
        for i, (higher, (one, producer, epoch, sequence), other) in enumerate(product(rounds, sent, range(producers))):
            for piece in (one, MARKER) if producer >= 0 and len(rounds) > 1 and i % 2 else (one,):
                made = bytearray(piece)
                made[:8] = end.to_bytes(8, "big")
                if producer >= 0:
                    moved = max(0, epoch) + higher, -1 if sequence < 0 else (sequence + further) % SEQUENCES
                    PRODUCER.pack_into(made, PRODUCER_AT, producer ^ other, *moved)
                if piece is MARKER:
                    made[TYPE_AT] = made[COORDINATOR_AT] = 1 - i // 2 % 2
                made[CRC_AT : CRC_AT + 4] = crc32c(made[CRC_AT + 4 :]).to_bytes(4, "big")
                end += int.from_bytes(made[DELTA_AT : DELTA_AT + 4], "big") + 1
                log += made
        yield log


def check_producers(log: bytes, batches: list[RecordBatch]) -> None:
    """kfuzz says of a log's producers the same as a :class:`Partition`, of each batch and at the end."""
    for leads, version in ((True, 0), (True, 2), (False, 0)):
        partition = Partition(leads, version)
        wanted = [partition.append(batch) for batch in batches]
        reading = check_stream(log, role="broker" if leads else "log", transaction_version=version)
        found = [(one.outcome, one.finding.code if one.finding else "", one.base_offset) for one in reading.appends]
        how = f"a {'leader' if leads else 'follower'}, transaction version {version}"
        for i, (said, right) in enumerate(zip(found, wanted, strict=True)):
            if said != right:
                # The first words tell causes apart.
                what = f"{said[1] or said[0]} instead of {right[1] or right[0]}"
                raise OracleFailure(f"{what}: batch {i} of {how}, {said}, by the rules {right}")
        if reading.last_stable_offset != (stable := partition.stable(partition.end)):
            raise OracleFailure(f"the last stable offset is {reading.last_stable_offset}, by the rules {stable}: {how}")
    # A broker does not start with a refused log.
    if any("rejected" in one for one in wanted):
        return
    # The second part begins with the snapshot of the first, which does not show that an old epoch comes back.
    starts = [at for at, *_ in frames(log)]
    cut = 0 if any(code for _, code, _ in wanted) else starts[len(starts) // 2]
    walk, snapshot, index = IndexWalk(0, INDEX_INTERVAL_BYTES), encode([]), b""
    for part in (log[:cut], log[cut:]):
        walk = IndexWalk(0, INDEX_INTERVAL_BYTES, walk.open_transactions)
        check_with(part, walk)
        known = {one.producer_id: one for one in decode(snapshot) or ()}
        follow(known, walk.producers)
        snapshot, index = encode(known.values()), index + walk.transaction_index
    entries = []
    for key, state in sorted(partition.producers.items()):
        _, sequence, first, last = state.sent[-1] if state.sent else (-1, -1, -1, -1)
        entries.append((key, state.epoch, sequence, last, last - first, state.time, state.coordinator, state.opened))
    if (written := sorted(ENTRY.iter_unpack(snapshot[ENTRIES_AT:]))) != entries:
        raise OracleFailure(f"the snapshot has {written}, by the rules {entries}")
    if index != partition.aborted:
        raise OracleFailure(f"the transaction index is {index.hex()}, by the rules {partition.aborted.hex()}")
