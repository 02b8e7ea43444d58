"""Kafka's producer snapshot (``<offset>.snapshot``): what a broker knows of each producer before that offset.

Kafka writes one when a segment ends and one at a clean shutdown (``ProducerStateManager``). With the last of them, a
broker need not read the log to know its producers.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Final

from kfuzz import messages
from kfuzz.errors import MessageError, UsageError
from kfuzz.files import read_small
from kfuzz.java import hash_map_order
from kfuzz.wire.io.checksum import crc32c

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
VERSION: Final = 1
# The version is before the message, the CRC-32C is its first field and covers what follows.
PREFIX: Final = struct.Struct(">hI")
CRC_BYTES: Final = 4
# No larger snapshot or checkpoint is read. So many bytes have 400,000 producers, or about 200,000 partitions.
OTHER_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Producer:
    """One producer in a snapshot, with the fields of Kafka's ``ProducerEntry``.

    ``last_sequence``, ``last_offset`` and ``offset_delta`` (its last offset less its first) are those of the last batch
    with data in this epoch: -1, -1 and 0 if there is none. ``timestamp`` (ms) is the max timestamp of the last batch,
    or that of the last marker. ``coordinator_epoch`` is that of the last marker, or -1. ``current_txn_first_offset`` is
    -1 if no transaction is open.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    def followed_by(self, later: Producer | None) -> Producer:
        """This producer's state after a later part of the log, whose own state is ``later`` (None: it has none)."""
        if later is None:
            return self
        if later.last_offset < 0 and later.epoch == self.epoch:
            later = replace(
                later, last_sequence=self.last_sequence, last_offset=self.last_offset, offset_delta=self.offset_delta
            )
        return later if later.coordinator_epoch >= 0 else replace(later, coordinator_epoch=self.coordinator_epoch)


def checkpoint_text(rows: Sequence[tuple[object, ...]]) -> str:
    """The content of Kafka's ``CheckpointFile``, version 0: pairs of a leader epoch and its first offset, or topics,
    partitions and offsets.
    """
    return "".join([f"0\n{len(rows)}\n", *(" ".join(map(str, row)) + "\n" for row in rows)])


def follow(producers: dict[int, Producer], walked: Iterable[tuple[int, ...]]) -> None:
    """Bring ``producers``, by their ids, to the end of a later part of the log; ``walked`` has the fields of those that
    a walk over it found.
    """
    for one in (Producer(*found) for found in walked):
        known = producers.get(one.producer_id)
        producers[one.producer_id] = known.followed_by(one) if known else one


def opened_of(producers: Iterable[Producer]) -> dict[int, int]:
    """By producer, the first offset of its open transaction."""
    return {one.producer_id: one.current_txn_first_offset for one in producers if one.current_txn_first_offset >= 0}


def snapshot_name(last_offset: int) -> str:
    """The name of the snapshot at the end of a segment whose last offset is ``last_offset``."""
    return f"{last_offset + 1:020d}.snapshot"


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


# By the names of kfuzz.messages.
NAMES: Final = {field.name: _camel_case(field.name) for field in fields(Producer)}


def encode(producers: Iterable[Producer]) -> bytes:
    """The snapshot file of ``producers``. It has them in the order of Kafka's hash map, so it is Kafka's file."""
    by_id = {producer.producer_id: producer for producer in producers}
    entries = [
        {NAMES[name]: value for name, value in asdict(by_id[producer_id]).items()}
        for producer_id in hash_map_order(by_id)
    ]
    body = messages.encode("ProducerSnapshot", VERSION, {"crc": 0, "producerEntries": entries})[CRC_BYTES:]
    return PREFIX.pack(VERSION, crc32c(body)) + body


def is_sound(data: bytes | mmap.mmap) -> bool:
    """Whether the version and the CRC of a snapshot file are right."""
    return len(data) >= PREFIX.size and PREFIX.unpack_from(data) == (VERSION, crc32c(data[PREFIX.size :]))


def read_snapshot(path: Path) -> list[Producer] | None:
    """The producers in the snapshot file at ``path``; None if it cannot be read, or if Kafka refuses it."""
    try:
        return decode(read_small(path, bytes_max=OTHER_BYTES_MAX))
    except UsageError:
        return None


def decode(data: bytes) -> list[Producer] | None:
    """The producers in a snapshot file, in its order; None if Kafka refuses it (version or CRC)."""
    if not is_sound(data):
        return None
    try:
        found = messages.decode("ProducerSnapshot", VERSION, data[PREFIX.size - CRC_BYTES :])
    except MessageError:
        return None
    return [Producer(**{name: entry[key] for name, key in NAMES.items()}) for entry in found["producerEntries"]]
