"""Sequence numbers of idempotent producers, as the appending broker sees them."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.stream import OTHER, Appends, data, plain

ORDER, DUPLICATE, WRAP, UNKNOWN = ["SEQ-ORDER-1"], ["SEQ-DUPLICATE-1"], ["SEQ-WRAP-1"], ["SEQ-UNKNOWN-1"]


def theme() -> Theme:
    """The recipes of ``vectors/stream/sequence.json``."""
    made = Theme("stream/sequence", "Sequence numbers of idempotent producers in successive appends.", kind="stream")
    _beginnings(made)
    _order(made)
    _gaps(made.having(requirements=ORDER))
    _overlaps(made)
    _duplicates(made.having(requirements=DUPLICATE))
    _forgotten(made)
    _wraps(made.having(requirements=[*WRAP, *ORDER]))
    _several(made.having(requirements=ORDER))
    return made


def _beginnings(made: Theme) -> None:
    made.stream(
        "starts-at-zero",
        "a producer's first batch has sequence 0",
        *Appends().accept(data(0)),
        requirements=ORDER,
    )
    for slug, sequence in (("seven", 7), ("int32-max", INT32_MAX)):
        made.stream(
            f"unknown-producer-at-{slug}",
            f"an unknown producer's batch has sequence {sequence}: older batches were deleted",
            *Appends().accept(data(sequence, 1), verdict="acceptable"),
            requirements=UNKNOWN,
        )
    made.stream(
        "unknown-producer-goes-on",
        "a producer that was unknown at sequence 7 continues at 9",
        *Appends().accept(data(7), verdict="acceptable").accept(data(9)),
        requirements=[*UNKNOWN, *ORDER],
    )
    made.stream(
        "unknown-producer-then-gap",
        "a producer that was unknown at sequence 7 skips sequence 9",
        *Appends().accept(data(7), verdict="acceptable").refuse(data(10), "sequence-gap"),
        requirements=[*UNKNOWN, *ORDER],
    )


def _order(made: Theme) -> None:
    made.stream(
        "goes-on",
        "three batches of three, two and one records, with consecutive sequences",
        *Appends().accept(data(0, 3)).accept(data(3, 2)).accept(data(5, 1)),
        requirements=ORDER,
    )
    made.stream(
        "not-idempotent",
        "two equal batches without a producer id are not duplicates",
        *Appends().accept(plain()).accept(plain()),
        requirements=["RB-PRODUCER-1"],
    )


def _gaps(made: Theme) -> None:
    for slug, sequence in (("one", 3), ("many", 1000), ("half-of-all", 1 + (1 << 30))):
        made.stream(
            f"gap-of-{slug}",
            f"sequences 0 and 1 are followed by {sequence}",
            *Appends().accept(data(0)).refuse(data(sequence), "sequence-gap"),
        )
    made.stream(
        "gap-then-missing-batch",
        "the missing batch arrives late, then the refused one again; the refusal changed nothing",
        *Appends().accept(data(0)).refuse(data(4), "sequence-gap").accept(data(2)).accept(data(4)),
    )
    made.stream(
        "gap-twice",
        "a refused batch is refused again",
        *Appends().accept(data(0)).refuse(data(4), "sequence-gap").refuse(data(4), "sequence-gap"),
    )
    made.stream(
        "gap-takes-no-offset",
        "another producer's batch gets the offset that the refused batch did not use",
        *Appends().accept(data(0)).refuse(data(4), "sequence-gap").accept(data(0, producer_id=OTHER)),
    )


def _overlaps(made: Theme) -> None:
    cases = (
        ("partial", "begins at the last sequence of the previous batch", 1, 2),
        ("longer", "begins at the same sequence as the previous batch, and is longer", 0, 3),
        ("shorter", "begins at the same sequence as the previous batch, and is shorter", 0, 1),
        ("tail", "repeats the end of the previous batch", 1, 1),
    )
    for slug, what, sequence, count in cases:
        made.stream(
            f"overlap-{slug}",
            f"a batch {what}; it is not a duplicate",
            *Appends().accept(data(0)).refuse(data(sequence, count), "sequence-overlap"),
            requirements=ORDER,
        )
    made.stream(
        "overlap-two-merged",
        "two appended batches are sent again as one batch",
        *Appends().accept(data(0)).accept(data(2)).refuse(data(0, 4), "sequence-overlap"),
        requirements=ORDER,
    )
    made.stream(
        "overlap-before-the-first-known",
        "a producer that was unknown at sequence 7 sends 3",
        *Appends().accept(data(7), verdict="acceptable").refuse(data(3), "sequence-overlap"),
        requirements=[*ORDER, *UNKNOWN],
    )


def _duplicates(made: Theme) -> None:
    first = Appends().accept(data(0))
    made.stream("duplicate-of-last", "the last batch is sent again, and keeps its offset", *first.drop(data(0), at=0))
    made.stream(
        "duplicate-then-next",
        "the producer continues after a duplicate",
        *Appends().accept(data(0)).drop(data(0), at=0).accept(data(2)),
        requirements=[*DUPLICATE, *ORDER],
    )
    made.stream(
        "duplicate-twice",
        "the last batch is sent a second and a third time",
        *Appends().accept(data(0)).drop(data(0), at=0).drop(data(0), at=0),
    )
    made.stream(
        "duplicate-of-one-before",
        "the batch before the last one is sent again",
        *Appends().accept(data(0)).accept(data(2, 3)).drop(data(0), at=0),
    )
    made.stream(
        "duplicate-with-other-records",
        "a different batch with the sequences of the last one is also a duplicate",
        *Appends().accept(data(0)).drop(data(0, text="other"), at=0),
    )
    made.stream(
        "duplicate-after-gap",
        "the broker still remembers the last batch after a refused one",
        *Appends().accept(data(0)).refuse(data(7), "sequence-gap").drop(data(0), at=0),
        requirements=[*DUPLICATE, *ORDER],
    )
    made.stream(
        "duplicate-of-unknown-producer",
        "a producer that was unknown at sequence 7 repeats that batch",
        *Appends().accept(data(7), verdict="acceptable").drop(data(7), at=0),
        requirements=[*DUPLICATE, *UNKNOWN],
    )
    made.stream(
        "duplicate-behind-others",
        "the broker still remembers the last batch after six batches of another producer",
        *_behind_others().drop(data(0), at=0),
    )


def _behind_others() -> Appends:
    appends = Appends().accept(data(0))
    for index in range(6):
        appends.accept(data(index, 1, producer_id=OTHER))
    return appends


def _forgotten(made: Theme) -> None:
    def six() -> Appends:
        appends = Appends()
        for index in range(6):
            appends.accept(data(index, 1))
        return appends

    made.stream(
        "duplicate-of-fifth-last",
        "the oldest of the last five batches is sent again",
        *six().drop(data(1, 1), at=1),
        requirements=DUPLICATE,
    )
    made.stream(
        "duplicate-of-sixth-last",
        "a batch before the last five is sent again; Kafka has forgotten it, but others may remember it",
        *six().refuse(data(0, 1), "sequence-overlap", verdict="acceptable"),
        requirements=[*DUPLICATE, *ORDER],
    )
    made.stream(
        "duplicates-are-not-counted",
        "four duplicates of the last batch do not displace the first of the last five",
        *_five_and_duplicates().drop(data(0, 1), at=0),
        requirements=DUPLICATE,
    )


def _five_and_duplicates() -> Appends:
    appends = Appends()
    for index in range(5):
        appends.accept(data(index, 1))
    for _ in range(4):
        appends.drop(data(4, 1), at=4)
    return appends


def _wraps(made: Theme) -> None:
    last = INT32_MAX
    made.stream(
        "wrap-between",
        "a batch ends at sequence INT32_MAX, and the next one begins at 0",
        *Appends().accept(data(last - 1), verdict="acceptable").accept(data(0), verdict="acceptable"),
        requirements=WRAP,
    )
    made.stream(
        "wrap-within",
        "a batch of three records begins at sequence INT32_MAX, and the next one at 2",
        *Appends().accept(data(last, 3), verdict="acceptable").accept(data(2), verdict="acceptable"),
        requirements=WRAP,
    )
    made.stream(
        "wrap-then-gap",
        "sequence INT32_MAX is followed by 1",
        *Appends().accept(data(last, 1), verdict="acceptable").refuse(data(1), "sequence-gap"),
    )
    made.stream(
        "wrap-within-then-gap",
        "a batch of three records begins at sequence INT32_MAX, and the next one at 3",
        *Appends().accept(data(last, 3), verdict="acceptable").refuse(data(3), "sequence-gap"),
    )
    made.stream(
        "wrap-within-then-zero",
        "a batch of three records begins at sequence INT32_MAX, and the next one at 0, which the first already used",
        *Appends().accept(data(last, 3), verdict="acceptable").refuse(data(0), "sequence-overlap"),
    )
    made.stream(
        "wrap-within-duplicate",
        "a batch whose sequences wrap is sent again",
        *Appends().accept(data(last, 3), verdict="acceptable").drop(data(last, 3), at=0),
        requirements=[*WRAP, *DUPLICATE],
    )
    made.stream(
        "wrap-duplicate-from-before",
        "the batch before the wrap is sent again after it",
        *Appends()
        .accept(data(last - 1), verdict="acceptable")
        .accept(data(0), verdict="acceptable")
        .drop(data(last - 1), at=0),
        requirements=[*WRAP, *DUPLICATE],
    )


def _several(made: Theme) -> None:
    made.stream(
        "two-producers",
        "two producers alternate, each with its own sequences",
        *Appends()
        .accept(data(0))
        .accept(data(0, producer_id=OTHER))
        .accept(data(2))
        .accept(data(2, producer_id=OTHER)),
    )
    made.stream(
        "two-producers-one-gap",
        "one producer leaves a gap, and the other continues",
        *Appends()
        .accept(data(0))
        .accept(data(0, producer_id=OTHER))
        .refuse(data(3), "sequence-gap")
        .accept(data(2, producer_id=OTHER)),
    )
    made.stream(
        "two-producers-are-not-duplicates",
        "the same batch from another producer is not a duplicate",
        *Appends().accept(data(0)).accept(data(0, producer_id=OTHER)),
        requirements=DUPLICATE,
    )
    made.stream(
        "others-between",
        "a batch without a producer id is between two batches of a producer",
        *Appends().accept(data(0)).accept(plain(3)).accept(data(2)),
    )
    made.stream(
        "producer-id-zero",
        "a producer with id 0 and epoch 0 is like any other: the broker detects its duplicate",
        *Appends()
        .accept(data(0, producer_id=0, producer_epoch=0))
        .drop(data(0, producer_id=0, producer_epoch=0), at=0),
        requirements=[*DUPLICATE, "RB-PRODUCER-1"],
    )
