"""Small well-formed batches of every magic and codec, with values that often reveal errors."""

from __future__ import annotations

from collections.abc import Sequence

from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, Codec, codecs_of
from kfuzz.mutate.dice import Dice
from kfuzz.records.model import Record, RecordBatch

MAGICS = (2, 2, 2, 2, 1, 0)
BASE_OFFSETS = (0, 0, 5, 5, 1 << 40, 1 << 40, -1, (1 << 63) - 2)
COUNTS = (0, 1, 1, 2, 3, 5, 20)
WRAPPED_COUNTS = (1, 2, 3)
TIMESTAMP = 1_700_000_000_000
HEADER_KEYS = (b"h", b"key", b"\xff\xc0", b"", "\u20ac".encode(), b"\x00")
# Keys of control records: version, then type. Kafka knows the types 0 to 6.
CONTROL_KEYS = tuple(bytes([0, 0, 0, kind]) for kind in (*range(7), 9))


def batch(dice: Dice, codecs: Sequence[Codec] = CODECS) -> RecordBatch:
    """A batch of magic 2, or a message or wrapper of magic 0 or 1, compressed with one of ``codecs``."""
    magic = dice.pick(MAGICS)
    base = dice.pick(BASE_OFFSETS)
    v2 = magic == 2
    compression = dice.pick([codec for codec in codecs if codec in codecs_of(magic)])
    # Uncompressed messages of magic 0 and 1 are batches of one record.
    count = dice.pick(COUNTS) if v2 else 1 if compression == "none" else dice.pick(WRAPPED_COUNTS)
    control = v2 and dice.chance(0.1)
    gap = dice.pick((0, 0, 0, 1, 7)) if v2 else 0
    return RecordBatch(
        base_offset=base,
        last_offset=wrap64(base + max(count - 1, 0) + gap),
        records=[_record(dice, wrap64(base + i), magic, control) for i in range(count)],
        magic=magic,
        compression=compression,
        timestamp_type="none" if magic == 0 else dice.pick(("create", "create", "log-append")),
        transactional=v2 and dice.chance(0.1),
        control=control,
        producer_id=dice.pick((-1, 7)) if v2 else -1,
        producer_epoch=dice.pick((-1, 0, 3)) if v2 else -1,
        base_sequence=dice.pick((-1, 0, (1 << 31) - 2)) if v2 else -1,
        partition_leader_epoch=dice.pick((-1, 0, 9)) if v2 else -1,
        delete_horizon=dice.pick((None, None, 5)) if v2 else None,
    )


def produced(dice: Dice, codecs: Sequence[Codec] = CODECS) -> RecordBatch:
    """A batch as a producer sends it, nearly always of magic 2; one in five breaks one of a broker's rules."""
    if dice.chance(0.02):
        return batch(dice, codecs)
    odd = dice.below(30)
    count = dice.pick(COUNTS[1:]) if odd else 0
    control = odd == 1
    idempotent = dice.chance(0.4)
    log_append = odd in (2, 3)
    records = [_record(dice, i, 2, control) for i in range(count)]
    if odd in (3, 4) and records:
        # No timestamp: a producer may leave it out, but not with LogAppendTime.
        dice.pick(records).timestamp = -1
    return RecordBatch(
        base_offset=0,
        last_offset=max(count - 1, 0) + (odd == 5),
        records=records,
        compression=dice.pick(codecs),
        timestamp_type="log-append" if log_append else "create",
        transactional=idempotent and dice.chance(0.3),
        control=control,
        producer_id=7 if idempotent else -1,
        producer_epoch=dice.pick((0, 3)) if idempotent else -1,
        base_sequence=dice.pick((0, 5, (1 << 31) - 2) if odd != 6 else (-1,)) if idempotent else -1,
        partition_leader_epoch=dice.pick((-1, 0, 9)),
        delete_horizon=5 if odd == 7 else None,
        max_timestamp=dice.pick((-1, 0, TIMESTAMP)) if odd in (2, 8) else None,
    )


def _record(dice: Dice, offset: int, magic: int, control: bool) -> Record:
    key = dice.pick((None, b"", dice.octets(3), dice.octets(10)))
    return Record(
        offset,
        TIMESTAMP + dice.below(2000) - 1000 if magic else None,
        dice.pick(CONTROL_KEYS) if control else key,
        dice.pick((None, b"", dice.octets(5), b"a" * dice.below(300))),
        tuple(_header(dice) for _ in range(dice.pick((0, 0, 1, 3)))) if magic == 2 else (),
    )


def _header(dice: Dice) -> tuple[bytes, bytes | None]:
    return dice.pick(HEADER_KEYS), dice.pick((None, b"", b"x"))
