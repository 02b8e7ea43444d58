"""The native mutator: containers that other readers read, repairs that a reader accepts, changes that reach inside."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from kfuzz import records
from kfuzz.kafka import Codec
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.engine import KINDS, Engine, seal
from kfuzz.records import CODECS, Record, RecordBatch
from kfuzz.records.codecs import compress, decompress
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

BATCH = records.encode_batch(
    RecordBatch(5, 6, [Record(5, 9, b"key", None, ((b"h", b"x"), (b"i", None))), Record(6, 10, None, b"value")])
)
MESSAGE = records.encode_batch(RecordBatch(1, 1, [Record(1, 9, b"k", b"v")], magic=1))
SIZE_MAX = 1 << 16
RNG = random.Random(1)
PAYLOADS = {
    "one-byte": b"a",
    "run": b"a" * 5_000,
    "random": RNG.randbytes(1_000),
    "words": b"".join(RNG.choice((b"alpha", b"beta", b"gamma ")) for _ in range(30_000)),
    "two-letters": bytes(RNG.choice(b"ab") for _ in range(70_000)),
    "runs-apart": bytes(140_000) + b"x" + bytes(40),
}
PACKED: tuple[Codec, ...] = ("gzip", "snappy", "lz4", "zstd")
# After these, the payload of a batch was opened, changed and written back.
INSIDE = {kind for kind in KINDS if kind.startswith("record-")} | {"payload-scramble", "batch-codec"}


def test_dice_draw_in_range_and_all_of_it() -> None:
    dice = Dice(1, 2)
    assert {dice.below(7) for _ in range(500)} == set(range(7))
    assert 400 < sum(dice.chance(0.5) for _ in range(1_000)) < 600
    assert not any(dice.chance(0) for _ in range(100))
    assert all(dice.chance(1) for _ in range(100))
    assert len(dice.octets(33)) == 33
    with pytest.raises(ValueError, match="n is 0"):
        dice.below(0)


def test_every_codec_of_kafka_is_tried() -> None:
    assert set(get_args(Codec)) == {"none", *PACKED}


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", PACKED)
def test_other_readers_read_what_is_written_back(codec: Codec, magic: int) -> None:
    for name, payload in PAYLOADS.items():
        sizes = set()
        for stream in range(12):
            packed = Engine().packed(CODECS.index(codec), magic, payload, Dice(1, stream))
            reading = decompress(codec, packed, 1 << 20, magic=magic)
            assert (reading.ended, bytes(reading.data)) == ("whole", payload), (name, stream)
            sizes.add(len(packed))
        assert max(sizes) >= len(payload), f"{name} in stored blocks"
        if name == "run":
            assert min(sizes) < len(payload) // 10, "compressed"


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", PACKED)
def test_payloads_of_ordinary_writers_are_opened(codec: Codec, magic: int) -> None:
    if codec == "zstd" and magic < 2:
        pytest.skip("messages have no zstd")
    for name, payload in PAYLOADS.items():
        packed = compress(codec, payload, magic=magic)
        assert Engine().opened(CODECS.index(codec), magic, packed) == payload, name


@pytest.mark.parametrize("codec", PACKED)
def test_broken_payloads_are_not_opened(codec: Codec) -> None:
    packed = compress(codec, PAYLOADS["words"])
    engine = Engine()
    assert engine.opened(CODECS.index(codec), 2, packed[: len(packed) // 2]) is None
    assert engine.opened(CODECS.index(codec), 2, b"") is None
    for stream in range(2_000):
        # Nothing is promised but that it ends, without a fault.
        dice = Dice(2, stream)
        at = dice.below(min(len(packed), 300))
        engine.opened(CODECS.index(codec), 2, packed[:at] + dice.octets(3) + packed[at + 3 :])


@pytest.mark.parametrize("codec", PACKED)
def test_nine_tenths_of_the_changes_inside_a_payload_still_decompress(codec: Codec) -> None:
    seed = records.encode_batch(
        RecordBatch(0, 2, [Record(i, 1_000, b"key", b"value" * 9) for i in range(3)], compression=codec)
    )
    payload = decompress(codec, seed[BATCH_HEADER_SIZE:], SIZE_MAX).data
    inside = whole = changed = 0
    for stream in range(6_000):
        engine = Engine(repair=0.95)
        made = engine.mutate(seed, seed, Dice(1, stream), SIZE_MAX)
        if not set(engine.kinds) <= INSIDE:
            continue
        inside += 1
        number = made[22] & 7
        if not 0 < number < len(CODECS):
            whole += number == 0
            continue
        reading = decompress(CODECS[number], made[BATCH_HEADER_SIZE:], SIZE_MAX)
        whole += reading.ended == "whole"
        changed += reading.ended == "whole" and reading.data != payload
    assert inside > 2_000
    assert whole >= 0.9 * inside, (whole, inside)
    assert changed >= 0.7 * inside, (changed, inside)


def test_equal_arguments_give_equal_bytes_whatever_the_engine_did_before() -> None:
    seeds = [BATCH, MESSAGE, BATCH * 30, b"", compress("gzip", BATCH)]
    fresh = [Engine().mutate(seed, BATCH, Dice(7, i), 4096) for i in range(300) for seed in seeds]
    engine = Engine()
    engine.mutate(b"x" * SIZE_MAX, BATCH, Dice(1), 2 * SIZE_MAX)
    assert [engine.mutate(seed, BATCH, Dice(7, i), 4096) for i in range(300) for seed in seeds] == fresh


@pytest.mark.parametrize("size_max", [0, 1, 100, len(BATCH), 200])
def test_a_mutant_stays_within_its_bound(size_max: int) -> None:
    engine = Engine()
    sizes = {len(engine.mutate(BATCH, BATCH * 9, Dice(3, i), size_max)) for i in range(5_000)}
    assert max(sizes) <= max(size_max, len(BATCH))
    assert len(sizes) > 20


def test_parts_come_from_the_other_input() -> None:
    mark = b"a mark of the other input"
    other = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, mark, None)], compression="lz4"))
    engine = Engine()
    made = [engine.mutate(BATCH, other, Dice(4, i), SIZE_MAX) for i in range(2_000)]
    taken = sum(any(one.key == mark for batch in records.read(data).batches for one in batch.records) for data in made)
    assert taken > 20


@pytest.mark.parametrize("frame", [BATCH, MESSAGE], ids=["batch", "message"])
def test_a_sealed_frame_has_the_length_and_crc_that_belong_to_it(frame: bytes) -> None:
    broken = frame[:8] + b"\x7f\xff\xff\xff" + (frame[12:17] + bytes(4) if frame[16] == 2 else bytes(4) + frame[16:17])
    broken += frame[len(broken) :]
    assert seal(broken, True, True) == frame
    assert seal(broken, True, False) != frame
    assert seal(broken, False, True)[8:12] == b"\x7f\xff\xff\xff"
    assert seal(frame[:20], True, True) == frame[:20]
