"""Sequences of batches: partial tails, wrong lengths, mixed magics."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.making.builder import CREATED_MS, Field, Raw, Record, batch, message
from kfuzz.vectors.recipes.theme import SMALL, Theme, refuses
from kfuzz.vectors.recipes.themes.legacy import three, wrapper


def theme() -> Theme:
    """The recipes of ``vectors/records/framing.json``."""
    made = Theme("records/framing", "How batches of any magic follow one another in a fetch.")
    _several(made.having(requirements=["RB-SEVERAL-1"]))
    _mixed_wrappers(made.having(requirements=["RB-SEVERAL-1", "RB-MAGIC-1"]))
    _tails(made)
    _lengths(made)
    _magics(made)
    _after_good(made)
    return made


def nothing() -> Raw:
    """Empty bytes without a batch."""
    return Raw(b"", (), ())


def _several(made: Theme) -> None:
    made.valid("empty", "the fetch is empty: nothing new", nothing())
    made.valid("two-batches", "two batches, one after the other", batch(Record()), batch(Record(), base_offset=1))
    made.valid(
        "ten-batches",
        "ten batches of growing size",
        *(batch(*(Record(offset_delta=at) for at in range(n + 1)), base_offset=n * 20) for n in range(10)),
    )
    mixes = (
        ("magic-0-then-2", (0, 2)),
        ("magic-1-then-2", (1, 2)),
        ("magic-2-then-1", (2, 1)),
        ("magic-0-1-2-0", (0, 1, 2, 0)),
    )
    for slug, magics in mixes:
        made.flag("MixedMagic").valid(
            slug,
            f"batches of magic {', '.join(map(str, magics))}",
            *(
                batch(Record(), base_offset=offset) if magic == 2 else message(magic, offset=offset)
                for offset, magic in enumerate(magics)
            ),
            also=["RB-MAGIC-1"],
        )


def _mixed_wrappers(made: Theme) -> None:
    """Mixed magics where some batches are compressed or have no record."""
    mixed_magic = made.flag("MixedMagic")
    zero = wrapper(0, three(0, 10))
    one = wrapper(1, three(1), "snappy", first=20)
    two = batch(Record(), codec="zstd", base_offset=30)
    empty = batch(base_offset=31, last_offset_delta=8, max_timestamp=CREATED_MS)
    mixes = (
        ("wrappers-0-then-1", (zero, one), "a gzip wrapper of magic 0, then a snappy wrapper of magic 1"),
        ("wrapper-1-then-batch", (one, two), "a wrapper of magic 1, then a compressed batch of magic 2"),
        ("batch-then-wrapper", (two, one), "a compressed batch of magic 2, then a wrapper of magic 1"),
        ("every-magic-compressed", (zero, one, two), "each magic once, each with another codec"),
        ("empty-batch-then-message", (empty, message(1, offset=40)), "a batch without records, then a message"),
        (
            "batch-message-batch",
            (two, message(0, offset=31), batch(Record(), base_offset=32)),
            "a compressed batch, a message of magic 0, then a batch",
        ),
    )
    for slug, raws, summary in mixes:
        # The wrapper's offsets are below the first batch's offset, so they are outside the segment.
        before = refuses("offset-outside-segment") if slug == "batch-then-wrapper" else None
        mixed_magic.valid(f"magic-{slug}", summary, *raws, log=before)
    bad = (
        ("message-then-bad-batch", (message(1), batch(Record(), base_offset=1, crc=0)), "crc-mismatch", "a batch"),
        (
            "batch-then-bad-message",
            (batch(Record()), message(1, offset=1, raw={"crc": bytes(4)})),
            "crc-mismatch",
            "a message",
        ),
    )
    for slug, raws, finding, what in bad:
        mixed_magic.invalid(
            slug,
            f"mixed magics; the last entry is {what} with a wrong CRC",
            *raws,
            requirements=["RB-CRC-1", "RB-MAGIC-1"],
            finding=finding,
            level="recommended",
        )


def _tails(made: Theme) -> None:
    partial_tail = made.flag("PartialTail", requirements=["RB-SEVERAL-1"])
    second = batch(Record(), base_offset=1).data
    places = {
        1: "after one byte",
        8: "after the base offset",
        11: "within the length",
        12: "after the length",
        16: "before the magic",
        17: "after the magic",
        21: "after the CRC",
        60: "one byte before the records",
        61: "after the header",
        len(second) - 1: "one byte before its end",
    }
    for cut, where in places.items():
        partial_tail.valid(
            f"tail-cut-at-{cut}", f"a whole batch, then one that ends {where}", batch(Record()), tail=second[:cut]
        )
    for cut in (5, 30, len(second) - 1):
        partial_tail.valid(
            f"only-tail-{cut}", f"the fetch is only the first {cut} bytes of a batch", nothing(), tail=second[:cut]
        )
    for magic in (0, 1):
        partial_tail.valid(
            f"tail-magic-{magic}",
            f"a whole message of magic {magic}, then the first 20 bytes of another",
            message(magic),
            tail=message(magic, offset=1).data[:20],
            requirements=["RB-SEVERAL-1", "MS-FRAME-1"],
        )


def _lengths(made: Theme) -> None:
    batch_length_too_low = made.flag("BatchLengthTooLow", finding="batch-length-below-minimum")
    for slug, length in (
        ("negative-one", -1),
        ("negative-twelve", -12),
        ("smallest", -(2**31)),
        ("zero", 0),
        ("13", 13),
        ("14", 14),
        ("48", 48),
    ):
        batch_length_too_low.invalid(
            f"length-{slug}",
            f"the batch length is {length}; the smallest batch has 49",
            batch(Record(), batch_length=length),
            requirements=["RB-LENGTH-1", "RB-LENGTH-2"],
            budget=SMALL,
        )
    batch_length_too_low.invalid(
        "zeros-after-batch",
        "a batch, then 64 zero bytes, as in a preallocated file",
        batch(Record()),
        Raw(bytes(64), (Field("batch_length", 8, 4, True),), ()),
        requirements=["RB-LENGTH-1"],
    )
    batch_length_too_high = made.flag("BatchLengthTooHigh", budget=SMALL)
    whole = batch(Record())
    for slug, length in (("one-too-high", len(whole.data) - 12 + 1), ("largest-for-kafka", INT32_MAX - 12)):
        batch_length_too_high.valid(
            f"length-{slug}",
            f"the batch length is {length}; Kafka waits for the rest",
            nothing(),
            tail=batch(Record(), batch_length=length).data,
            requirements=["RB-LENGTH-1", "RB-SEVERAL-1"],
        )
    batch_length_too_high.acceptable(
        "length-largest",
        "the batch length is INT32_MAX; with the 12 bytes before it, the size overflows an int32, and Kafka fails",
        nothing(),
        tail=batch(Record(), batch_length=INT32_MAX).data,
        requirements=["RB-LENGTH-2", "RB-SEVERAL-1"],
        finding="batch-length-too-large",
        broker=refuses("batch-length-too-large"),
    )
    batch_length_off = made.flag(
        "BatchLengthOff", requirements=["RB-LENGTH-1", "RB-CRC-1"], finding="crc-mismatch", level="recommended"
    )
    batch_length_off.invalid(
        "length-one-too-low", "the batch length is one too low", batch(Record(), batch_length=len(whole.data) - 12 - 1)
    )
    batch_length_off.invalid(
        "length-into-next-batch",
        "the batch length includes one byte of the next batch",
        batch(Record(), batch_length=len(whole.data) - 12 + 1),
        batch(Record(), base_offset=1),
    )


def _magics(made: Theme) -> None:
    magic_unknown = made.flag("MagicUnknown", requirements=["RB-MAGIC-1", "MS-MAGIC-1"])
    for slug, magic in (("3", 3), ("127", 127), ("negative-one", -1), ("smallest", -128)):
        magic_unknown.invalid(
            f"magic-{slug}",
            f"the magic is {magic}",
            batch(Record(), magic=magic),
            requirements=["RB-MAGIC-1"],
            finding="magic-unknown",
        )
    magic_unknown.invalid(
        "magic-2-as-1",
        "a batch of magic 2 has the magic byte 1",
        batch(Record(), magic=1),
        finding="wrapper-value-null",
    )
    magic_unknown.invalid(
        "magic-1-as-2",
        "a message of magic 1, long enough for a batch, has the magic byte 2",
        message(1, value=bytes(60), raw={"magic": b"\x02"}),
        finding="crc-mismatch",
        level="recommended",
    )


def _after_good(made: Theme) -> None:
    bad_after_good = made.flag("BadAfterGood")
    bad = (
        ("crc", batch(Record(), base_offset=1, crc=0), "crc-mismatch", "RB-CRC-1"),
        ("magic", batch(Record(), base_offset=1, magic=9, hostile=["magic"]), "magic-unknown", "RB-MAGIC-1"),
        ("count", batch(Record(), base_offset=1, record_count=-1), "record-count-negative", "RB-COUNT-1"),
        ("length", batch(Record(), base_offset=1, batch_length=3), "batch-length-below-minimum", "RB-LENGTH-1"),
    )
    for slug, raw, finding, requirement in bad:
        bad_after_good.invalid(
            f"good-then-bad-{slug}",
            f"a good batch, then one with a bad {slug}",
            batch(Record()),
            raw,
            requirements=[requirement],
            finding=finding,
            level="recommended" if slug == "crc" else "required",
        )
    bad_after_good.invalid(
        "good-bad-good",
        "a batch with a wrong CRC is between two good ones",
        batch(Record()),
        batch(Record(), base_offset=1, crc=0),
        batch(Record(), base_offset=2),
        requirements=["RB-CRC-1"],
        finding="crc-mismatch",
        level="recommended",
    )
