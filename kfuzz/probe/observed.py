"""A broker's reaction to the bytes of one vector: its answer, what it stored, and what a consumer makes of that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal

from kfuzz import records
from kfuzz.client.link import Lost
from kfuzz.errors import RecordsError
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE
from kfuzz.wire.records.framing import frames

# "gone": the broker ended.
Outcome = Lost | Literal["accepted", "rejected", "gone", "not judged"]
TOO_LARGE: Final = "decompressed-size-exceeded"
StoredAs = Literal["same", "edited", "recompressed", "changed", "nothing"]
# Longer bytes are not in a report.
SHOWN_BYTES_MAX: Final = 16 << 10

# No broker makes more of a vector than this, unless it serves the vector's own bytes.
SERVED_BATCHES_MAX: Final = 1000
SERVED_RECORDS_MAX: Final = 200_000
SERVED_LIMITS: Final = records.Limits(2 << 20)


@dataclass(frozen=True)
class Observed:
    """The observations about one vector.

    - ``error``: Kafka's name of the error in the response. ``text``: the broker's message, or another remark.
    - ``base_offset``: that of the response.
    - ``stored``: the bytes that a fetch from the start of the partition returns.
    - ``fetch``: how that fetch failed; empty if it did not.
    """

    outcome: Outcome
    error: str = ""
    text: str = ""
    base_offset: int = -1
    stored: bytes = b""
    fetch: str = ""

    @cached_property
    def refusal(self) -> str:
        """The code of the finding for which consumers refuse what the broker serves; empty if they read it.

        A batch that only exceeds kfuzz's limits does not count as refused: other consumers have other limits.
        """
        fatal = records.read(self.stored).fatal
        return "" if fatal is None or fatal.code == TOO_LARGE else fatal.code

    def batches(self) -> list[dict[str, Any]]:
        """The served batches in JSON, without their records if no consumer can read them.

        The leader epoch is left out: it belongs to the partition, and says nothing about the bytes.
        """
        try:
            found = records.to_json(records.decode(self.stored))
        except RecordsError:
            found = records.to_json(records.read(self.stored, role="log").batches)
        for batch in found:
            batch.pop("partition_leader_epoch", None)
        return found

    def to_json(self, sent: bytes) -> dict[str, Any]:
        """The observation for a report; ``sent`` are the vector's bytes."""
        told: dict[str, Any] = {"outcome": self.outcome}
        told |= {name: value for name in ("error", "text", "fetch") if (value := getattr(self, name))}
        if self.outcome != "accepted" and not self.stored:
            return told
        told |= {"base_offset": str(self.base_offset), "stored": stored_as(sent, self.stored)}
        if self.stored:
            told["consumer"] = "rejected" if self.refusal else "accepted"
            told |= {"finding": self.refusal} if self.refusal else {}
            if len(self.stored) <= SHOWN_BYTES_MAX:
                told["hex"] = self.stored.hex()
        return told


def stored_as(sent: bytes, stored: bytes, *, contents: bool = True) -> StoredAs:
    """How stored bytes differ from those that were sent.

    ``same``: only base offset and leader epoch differ, which a broker must set. ``edited``: headers differ, payloads do
    not. ``recompressed``: payloads differ, contents do not. Otherwise ``changed``, or ``nothing`` if there are none.
    ``contents``: whether to read the records for that; without it, ``changed`` includes ``recompressed``.
    """
    if not stored:
        return "nothing"
    if _placed_anew(sent) == _placed_anew(stored):
        return "same"
    if (payloads := _payloads(sent)) and payloads == _payloads(stored):
        return "edited"
    if not contents:
        return "changed"
    return "recompressed" if _contents(sent) == _contents(stored) is not None else "changed"


def is_excessive(sent: bytes, stored: bytes) -> bool:
    """Whether stored bytes that are not the vector's own would take much memory as records."""
    if sum(1 for _ in islice(frames(stored), SERVED_BATCHES_MAX + 1)) > SERVED_BATCHES_MAX:
        return True
    if stored_as(sent, stored, contents=False) in ("same", "edited"):
        return False
    verdict = records.check(stored, limits=SERVED_LIMITS)
    return (
        len(stored) > len(sent) + SERVED_LIMITS.decompressed_bytes
        or verdict.record_count > SERVED_RECORDS_MAX
        or any(finding.code == TOO_LARGE for finding in verdict.findings)
    )


def _payloads(data: bytes) -> list[bytes]:
    """The payloads of batches of magic 2; empty if another magic occurs."""
    found = list(frames(data))
    if any(magic != 2 for _, _, magic in found):
        return []
    return [data[at + BATCH_HEADER_SIZE : at + size] for at, size, _ in found]


def _placed_anew(data: bytes) -> list[bytes]:
    """The entries without base offset, and without the leader epoch in magic 2; the rest of the bytes after them."""
    found, end = [], 0
    for at, size, magic in frames(data):
        end = at + size
        found.append(data[at + 8 : at + 12] + data[at + (16 if magic == 2 else 12) : end])
    return [*found, data[end:]]


def _contents(data: bytes) -> list[Any] | None:
    """The records without their offsets; None if they cannot be read."""
    try:
        found = [record for batch in records.decode(data) for record in batch.records]
    except RecordsError:
        return None
    return [(record.timestamp, record.key, record.value, list(record.headers)) for record in found]
