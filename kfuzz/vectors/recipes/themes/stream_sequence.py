"""Sequences of idempotent producers, as the broker that appends to a partition sees them."""

from __future__ import annotations

from kfuzz.kafka import INT32_MAX
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.stream import OTHER, Appends, data, plain

ORDER, DUPLICATE, WRAP, UNKNOWN = ["SEQ-ORDER-1"], ["SEQ-DUPLICATE-1"], ["SEQ-WRAP-1"], ["SEQ-UNKNOWN-1"]


def theme() -> Theme:
    """stream/sequence"""
    made = Theme("stream/sequence", "Sequences of idempotent producers, one append after another.", kind="stream")
    _beginnings(made)
    _order(made)
    _gaps(made)
    _overlaps(made)
    _duplicates(made)
    _forgotten(made)
    _wraps(made)
    _several(made)
    return made


def _beginnings(made: Theme) -> None:
    made.stream(
        "starts-at-zero", "a producer's first batch has sequence 0", *Appends().take(data(0)).steps, requirements=ORDER
    )
    for slug, sequence in (("seven", 7), ("int32-max", INT32_MAX)):
        made.stream(
            f"unknown-producer-at-{slug}",
            f"nothing is known of the producer, whose batch has sequence {sequence}: older ones were deleted",
            *Appends().take(data(sequence, 1), verdict="acceptable").steps,
            requirements=UNKNOWN,
        )
    made.stream(
        "unknown-producer-goes-on",
        "a producer that was unknown at sequence 7 goes on at 9",
        *Appends().take(data(7), verdict="acceptable").take(data(9)).steps,
        requirements=[*UNKNOWN, *ORDER],
    )
    made.stream(
        "unknown-producer-then-gap",
        "a producer that was unknown at sequence 7 leaves out 9",
        *Appends().take(data(7), verdict="acceptable").refuse(data(10), "sequence-gap").steps,
        requirements=[*UNKNOWN, *ORDER],
    )


def _order(made: Theme) -> None:
    made.stream(
        "goes-on",
        "three batches of three, two and one records, each at the sequence after the last",
        *Appends().take(data(0, 3)).take(data(3, 2)).take(data(5, 1)).steps,
        requirements=ORDER,
    )
    made.stream(
        "not-idempotent",
        "two equal batches without a producer id are two batches",
        *Appends().take(plain()).take(plain()).steps,
        requirements=["RB-PRODUCER-1"],
    )


def _gaps(made: Theme) -> None:
    for slug, sequence in (("one", 3), ("many", 1000), ("half-of-all", 1 + (1 << 30))):
        made.stream(
            f"gap-of-{slug}",
            f"after sequences 0 and 1 comes {sequence}",
            *Appends().take(data(0)).refuse(data(sequence), "sequence-gap").steps,
            requirements=ORDER,
        )
    made.stream(
        "gap-then-missing-batch",
        "the batch that was left out comes late, then the refused one again: the refusal has changed nothing",
        *Appends().take(data(0)).refuse(data(4), "sequence-gap").take(data(2)).take(data(4)).steps,
        requirements=ORDER,
    )
    made.stream(
        "gap-twice",
        "a refused batch is refused again",
        *Appends().take(data(0)).refuse(data(4), "sequence-gap").refuse(data(4), "sequence-gap").steps,
        requirements=ORDER,
    )
    made.stream(
        "gap-takes-no-offset",
        "another producer's batch gets the offset that the refused one did not",
        *Appends().take(data(0)).refuse(data(4), "sequence-gap").take(data(0, producer_id=OTHER)).steps,
        requirements=ORDER,
    )


def _overlaps(made: Theme) -> None:
    cases = (
        ("partial", "begins at the last sequence of the batch before", 1, 2),
        ("longer", "begins where the batch before does, and is longer", 0, 3),
        ("shorter", "begins where the batch before does, and is shorter", 0, 1),
        ("tail", "is the end of the batch before", 1, 1),
    )
    for slug, what, sequence, count in cases:
        made.stream(
            f"overlap-{slug}",
            f"a batch {what}: it is no duplicate",
            *Appends().take(data(0)).refuse(data(sequence, count), "sequence-overlap").steps,
            requirements=ORDER,
        )
    made.stream(
        "overlap-two-merged",
        "two batches that were appended come again as one",
        *Appends().take(data(0)).take(data(2)).refuse(data(0, 4), "sequence-overlap").steps,
        requirements=ORDER,
    )
    made.stream(
        "overlap-before-the-first-known",
        "a producer that was unknown at sequence 7 sends 3",
        *Appends().take(data(7), verdict="acceptable").refuse(data(3), "sequence-overlap").steps,
        requirements=[*ORDER, *UNKNOWN],
    )


def _duplicates(made: Theme) -> None:
    first = Appends().take(data(0))
    made.stream(
        "duplicate-of-last",
        "the last batch comes again, and gets the offset it had",
        *first.drop(data(0), at=0).steps,
        requirements=DUPLICATE,
    )
    made.stream(
        "duplicate-then-next",
        "after a duplicate the producer goes on",
        *Appends().take(data(0)).drop(data(0), at=0).take(data(2)).steps,
        requirements=[*DUPLICATE, *ORDER],
    )
    made.stream(
        "duplicate-twice",
        "the last batch comes a second and a third time",
        *Appends().take(data(0)).drop(data(0), at=0).drop(data(0), at=0).steps,
        requirements=DUPLICATE,
    )
    made.stream(
        "duplicate-of-one-before",
        "the batch before the last one comes again",
        *Appends().take(data(0)).take(data(2, 3)).drop(data(0), at=0).steps,
        requirements=DUPLICATE,
    )
    made.stream(
        "duplicate-with-other-records",
        "another batch with the sequences of the last one is a duplicate as well",
        *Appends().take(data(0)).drop(data(0, text="other"), at=0).steps,
        requirements=DUPLICATE,
    )
    made.stream(
        "duplicate-after-gap",
        "a refused batch does not make the last one forgotten",
        *Appends().take(data(0)).refuse(data(7), "sequence-gap").drop(data(0), at=0).steps,
        requirements=[*DUPLICATE, *ORDER],
    )
    made.stream(
        "duplicate-of-unknown-producer",
        "a producer that was unknown at sequence 7 repeats that batch",
        *Appends().take(data(7), verdict="acceptable").drop(data(7), at=0).steps,
        requirements=[*DUPLICATE, *UNKNOWN],
    )
    made.stream(
        "duplicate-behind-others",
        "six batches of another producer do not make the last one forgotten",
        *_behind_others().drop(data(0), at=0).steps,
        requirements=DUPLICATE,
    )


def _behind_others() -> Appends:
    appends = Appends().take(data(0))
    for index in range(6):
        appends.take(data(index, 1, producer_id=OTHER))
    return appends


def _forgotten(made: Theme) -> None:
    def six() -> Appends:
        appends = Appends()
        for index in range(6):
            appends.take(data(index, 1))
        return appends

    made.stream(
        "duplicate-of-fifth-last",
        "the oldest of the last five batches comes again",
        *six().drop(data(1, 1), at=1).steps,
        requirements=DUPLICATE,
    )
    made.stream(
        "duplicate-of-sixth-last",
        "a batch before the last five comes again: Kafka has forgotten it, and others may remember",
        *six().refuse(data(0, 1), "sequence-overlap", verdict="acceptable").steps,
        requirements=[*DUPLICATE, *ORDER],
    )
    made.stream(
        "duplicates-are-not-counted",
        "four duplicates of the last batch do not push out the first of five",
        *_five_and_duplicates().drop(data(0, 1), at=0).steps,
        requirements=DUPLICATE,
    )


def _five_and_duplicates() -> Appends:
    appends = Appends()
    for index in range(5):
        appends.take(data(index, 1))
    for _ in range(4):
        appends.drop(data(4, 1), at=4)
    return appends


def _wraps(made: Theme) -> None:
    last = INT32_MAX
    made.stream(
        "wrap-between",
        "a batch ends at sequence INT32_MAX, and the next begins at 0",
        *Appends().take(data(last - 1), verdict="acceptable").take(data(0), verdict="acceptable").steps,
        requirements=WRAP,
    )
    made.stream(
        "wrap-within",
        "a batch of three begins at sequence INT32_MAX, and the next at 2",
        *Appends().take(data(last, 3), verdict="acceptable").take(data(2), verdict="acceptable").steps,
        requirements=WRAP,
    )
    made.stream(
        "wrap-then-gap",
        "after INT32_MAX comes 1",
        *Appends().take(data(last, 1), verdict="acceptable").refuse(data(1), "sequence-gap").steps,
        requirements=[*WRAP, *ORDER],
    )
    made.stream(
        "wrap-within-then-gap",
        "a batch of three begins at INT32_MAX, and the next at 3",
        *Appends().take(data(last, 3), verdict="acceptable").refuse(data(3), "sequence-gap").steps,
        requirements=[*WRAP, *ORDER],
    )
    made.stream(
        "wrap-within-then-zero",
        "a batch of three begins at INT32_MAX, and the next at 0, which it had already",
        *Appends().take(data(last, 3), verdict="acceptable").refuse(data(0), "sequence-overlap").steps,
        requirements=[*WRAP, *ORDER],
    )
    made.stream(
        "wrap-within-duplicate",
        "a batch whose sequences wrap comes again",
        *Appends().take(data(last, 3), verdict="acceptable").drop(data(last, 3), at=0).steps,
        requirements=[*WRAP, *DUPLICATE],
    )
    made.stream(
        "wrap-duplicate-from-before",
        "after the wrap the batch before it comes again",
        *Appends()
        .take(data(last - 1), verdict="acceptable")
        .take(data(0), verdict="acceptable")
        .drop(data(last - 1), at=0)
        .steps,
        requirements=[*WRAP, *DUPLICATE],
    )


def _several(made: Theme) -> None:
    made.stream(
        "two-producers",
        "two producers take turns, each with sequences of its own",
        *Appends().take(data(0)).take(data(0, producer_id=OTHER)).take(data(2)).take(data(2, producer_id=OTHER)).steps,
        requirements=ORDER,
    )
    made.stream(
        "two-producers-one-gap",
        "one producer leaves a gap, and the other goes on",
        *Appends()
        .take(data(0))
        .take(data(0, producer_id=OTHER))
        .refuse(data(3), "sequence-gap")
        .take(data(2, producer_id=OTHER))
        .steps,
        requirements=ORDER,
    )
    made.stream(
        "two-producers-are-not-duplicates",
        "the same batch from another producer is no duplicate",
        *Appends().take(data(0)).take(data(0, producer_id=OTHER)).steps,
        requirements=DUPLICATE,
    )
    made.stream(
        "others-between",
        "a batch without a producer id stands between two of a producer",
        *Appends().take(data(0)).take(plain(3)).take(data(2)).steps,
        requirements=ORDER,
    )
    made.stream(
        "producer-id-zero",
        "producer id 0 and epoch 0 are a producer as any other: its duplicate is found",
        *Appends()
        .take(data(0, producer_id=0, producer_epoch=0))
        .drop(data(0, producer_id=0, producer_epoch=0), at=0)
        .steps,
        requirements=[*DUPLICATE, "RB-PRODUCER-1"],
    )
