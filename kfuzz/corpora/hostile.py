"""Hostile batches: vectors of the golden suite that can be in the middle of a log.

Such a vector is one whole frame of magic 2, so that a reader which skips it by its length finds the next batch. The
suite says what a consumer does with it. Its base offset and leader epoch can be replaced: the CRC does not cover them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kfuzz import records
from kfuzz.corpora.workload import Adversarial, Topic
from kfuzz.errors import UsageError
from kfuzz.vectors import Vector, load_suite
from kfuzz.vectors.model import Bomb
from kfuzz.wire.io.layout import HEADER_AT
from kfuzz.wire.records.framing import frames

HOSTILE_BYTES_MAX = 64 << 10
# Only a last offset delta below this counts: a batch that claims more takes one offset of the log.
OFFSETS_MAX = 1000
# Where the length field ends: before it is only the base offset.
HEAD = struct.Struct(">qii")
LAST_OFFSET_DELTA = struct.Struct(">i")
# The fields of a batch and of a record that hold offsets, in the JSON of expectations.
BATCH_OFFSETS = ("base_offset", "last_offset", "next_offset")


@dataclass(frozen=True, slots=True)
class Hostile:
    """A vector that a corpus may hold. ``offsets`` is how many offsets of the log it takes, at least 1."""

    vector: Vector
    offsets: int

    @property
    def verdict(self) -> str:
        """The suite's verdict for a consumer: "valid", "acceptable" or "invalid"."""
        return str(self.vector.expect["consumer"]["verdict"])

    @property
    def finding(self) -> str | None:
        """The code of the finding that refuses it; None if it is not refused."""
        code = self.vector.expect["consumer"].get("finding")
        return None if code is None else str(code)


@cache
def hostile_vectors(pattern: str = "*") -> tuple[Hostile, ...]:
    """The usable vectors whose id matches the glob ``pattern``: those that take one offset first, then by their ids.

    Raises ``UsageError`` if the glob matches no vector, or if none of those that match takes one offset.
    """
    found = [Hostile(vector, _offsets(vector.data)) for vector in load_suite(pattern) if _fits(vector)]
    if not any(one.offsets == 1 for one in found):
        raise UsageError(
            f"no vector that matches {pattern} is one whole batch of magic 2 with one offset, as a log needs; choose "
            "more, such as records/v2/*"
        )
    return tuple(sorted(found, key=lambda one: (one.offsets > 1, one.vector.id)))


def hostile_of(adversarial: Adversarial) -> tuple[Hostile, ...]:
    """The vectors of a workload. Raises ``UsageError`` if a corpus was begun with others."""
    found = hostile_vectors(adversarial.vectors)
    if adversarial.digest and adversarial.digest != hostile_digest(found):
        raise UsageError(
            f"the vectors {adversarial.vectors} of this version of kfuzz are not those that the corpus was begun with; "
            "use the same version everywhere, or remove adversarial.digest and begin a corpus"
        )
    return found


def hostile_bytes_mean(topic: Topic) -> float:
    """The average bytes per offset of the topic's hostile batches."""
    found = hostile_vectors(topic.adversarial.vectors)
    return sum(one.vector.size for one in found) / sum(one.offsets for one in found)


def hostile_vector(name: str) -> Vector:
    """The usable vector with the id ``name``. Raises ``UsageError`` if this version of the suite has none."""
    found = _by_id().get(name)
    if found is None:
        raise UsageError(
            f"this version of kfuzz has no vector {name!r} for a log; use the version that made the corpus"
        )
    return found


@cache
def _by_id() -> dict[str, Vector]:
    return {one.vector.id: one.vector for one in hostile_vectors()}


def hostile_digest(chosen: Sequence[Hostile]) -> str:
    """SHA-256 of the ids and bytes of ``chosen``, in hex. Equal digests give equal batches in a corpus."""
    digest = hashlib.sha256()
    for one in chosen:
        digest.update(f"{one.vector.id} {one.vector.data.hex()}\n".encode())
    return digest.hexdigest()


def moved(data: bytes, base_offset: int, leader_epoch: int = 0) -> bytes:
    """The batch ``data`` with another base offset and leader epoch."""
    _, length, _ = HEAD.unpack_from(data)
    return HEAD.pack(base_offset, length, leader_epoch) + data[HEAD.size :]


def moved_expectation(vector: Vector, base_offset: int, leader_epoch: int = 0) -> dict[str, Any]:
    """The suite's expectation of a consumer that reads :func:`moved` of the vector's bytes."""
    before, _, _ = HEAD.unpack_from(vector.data)
    by = base_offset - before
    expect = dict(vector.expect["consumer"])
    if "batches" in expect:
        expect["batches"] = [_moved_batch(batch, by, leader_epoch) for batch in expect["batches"]]
    if "alternatives" in expect:
        expect["alternatives"] = [
            [_moved_batch(batch, by, leader_epoch) for batch in batches] for batches in expect["alternatives"]
        ]
    return expect


def _moved_batch(batch: Mapping[str, Any], by: int, leader_epoch: int) -> dict[str, Any]:
    result = dict(batch)
    for name in BATCH_OFFSETS:
        if name in result:
            result[name] = str(int(result[name]) + by)
    if "partition_leader_epoch" in result:
        result["partition_leader_epoch"] = leader_epoch
    if "records" in result:
        result["records"] = [{**record, "offset": str(int(record["offset"]) + by)} for record in result["records"]]
    return result


def _fits(vector: Vector) -> bool:
    # The cost of a batch can only be measured alone.
    if isinstance(vector.source, Bomb) or vector.size > HOSTILE_BYTES_MAX or vector.budget:
        return False
    data = vector.data
    if [(at, size, magic) for at, size, magic in frames(data)] != [(0, len(data), 2)]:
        return False
    # A few traps are in the offset itself: they would be gone.
    return _findings(data) == _findings(moved(data, OFFSETS_MAX)) and not _wraps(vector)


def _wraps(vector: Vector) -> bool:
    """Whether offsets of the vector pass the largest int64."""
    batches = vector.expect["consumer"].get("batches", ())
    return any(int(batch["next_offset"]) < int(batch["base_offset"]) for batch in batches)


def _findings(data: bytes) -> list[tuple[str, int]]:
    return [(finding.code, finding.at) for finding in records.check(data).findings]


def _offsets(data: bytes) -> int:
    (delta,) = LAST_OFFSET_DELTA.unpack_from(data, HEADER_AT["last_offset_delta"])
    return delta + 1 if 0 <= delta < OFFSETS_MAX else 1
