"""Producer epochs, as the appending broker sees them."""

from __future__ import annotations

from typing import Any

from kfuzz.vectors.recipes.making.builder import Raw
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.stream import ABORT, COMMIT, OTHER, Appends, data, marker

EPOCHS, MARKERS = ["SEQ-EPOCH-1"], ["SEQ-EPOCH-1", "TXN-MARKER-1"]
INT16_MAX = 2**15 - 1


def theme() -> Theme:
    """The recipes of ``vectors/stream/epoch.json``."""
    made = Theme("stream/epoch", "Producer epochs: new ones, stale ones, and those set by markers.", kind="stream")
    _new(made.having(requirements=EPOCHS))
    _stale(made)
    _markers(made.having(requirements=MARKERS))
    _own_epoch_each(made)
    return made


def _new(made: Theme) -> None:
    for slug, epoch in (("next", 4), ("later", 90), ("largest", INT16_MAX)):
        made.stream(
            f"new-{slug}-at-zero",
            f"epoch {epoch} follows epoch 3 and begins at sequence 0",
            *Appends().accept(data(0)).accept(data(0, producer_epoch=epoch)),
        )
    for slug, sequence in (("one", 1), ("next-sequence", 2)):
        made.stream(
            f"new-at-{slug}",
            f"a new epoch begins at sequence {sequence}; the documents are silent",
            *Appends()
            .accept(data(0))
            .refuse(data(sequence, producer_epoch=4), "sequence-of-new-epoch", verdict="acceptable"),
        )
    made.stream(
        "new-refused-then-old",
        "a refused batch does not change the epoch",
        *Appends()
        .accept(data(0))
        .refuse(data(7, producer_epoch=4), "sequence-of-new-epoch", verdict="acceptable")
        .accept(data(2)),
    )
    made.stream(
        "new-then-gap",
        "in a new epoch, sequences must be consecutive again",
        *Appends().accept(data(0)).accept(data(0, producer_epoch=4)).refuse(data(3, producer_epoch=4), "sequence-gap"),
        requirements=[*EPOCHS, "SEQ-ORDER-1"],
    )
    made.stream(
        "new-is-no-duplicate",
        "a repeated sequence in a new epoch is a new batch, which then may be sent again",
        *Appends().accept(data(0)).accept(data(0, producer_epoch=4)).drop(data(0, producer_epoch=4), at=2),
        requirements=[*EPOCHS, "SEQ-DUPLICATE-1"],
    )
    made.stream(
        "first-is-not-zero",
        "an unknown producer begins at epoch 90",
        *Appends().accept(data(0, producer_epoch=90)),
    )


def _stale(made: Theme) -> None:
    zombie_producer = made.flag("ZombieProducer", requirements=EPOCHS)
    cases: tuple[tuple[str, str, Raw], ...] = (
        ("next", "continues its sequences", data(2)),
        ("at-zero", "restarts at sequence 0", data(0, 3)),
        ("duplicate", "repeats its last batch, which is no longer a duplicate", data(0)),
    )
    for slug, what, zombie in cases:
        zombie_producer.stream(
            f"stale-{slug}",
            f"after epoch 4, a producer with epoch 3 {what}",
            *Appends()
            .accept(data(0))
            .accept(data(0, producer_epoch=4))
            .refuse(zombie, "producer-epoch-stale")
            .accept(data(2, producer_epoch=4)),
        )
    made.stream(
        "stale-of-one-producer",
        "a new epoch of one producer does not affect another",
        *Appends()
        .accept(data(0))
        .accept(data(0, producer_id=OTHER))
        .accept(data(0, producer_epoch=4))
        .accept(data(2, producer_id=OTHER)),
        requirements=EPOCHS,
    )
    zombie_producer.stream(
        "stale-after-largest",
        "after epoch 32767, epoch 0 is stale: epochs do not wrap",
        *Appends().accept(data(0, producer_epoch=INT16_MAX)).refuse(data(0, producer_epoch=0), "producer-epoch-stale"),
    )


def _open(**fields: Any) -> Appends:
    return Appends().accept(data(0, transactional=True, **fields), begins=True)


def _markers(made: Theme) -> None:
    made.stream(
        "marker-of-same-epoch",
        "a marker of the same epoch does not change the sequences",
        *_open().accept(marker(COMMIT), ends=True).accept(data(2, transactional=True), begins=True),
    )
    made.stream(
        "marker-of-same-epoch-then-zero",
        "after a marker of the same epoch, sequence 0 is an overlap",
        *_open().accept(marker(COMMIT), ends=True).refuse(data(0, 1, transactional=True), "sequence-overlap"),
        requirements=[*MARKERS, "SEQ-ORDER-1"],
    )
    bumped = marker(ABORT, producer_epoch=4)
    made.stream(
        "marker-brings-epoch",
        "an abort marker of epoch 4 fences epoch 3, so that its next batch is stale",
        *_open().accept(bumped, ends=True).refuse(data(2, transactional=True), "producer-epoch-stale"),
        flags=["ZombieProducer"],
    )
    made.stream(
        "marker-brings-epoch-then-zero",
        "after a marker of epoch 4, the producer begins at sequence 0 with epoch 4",
        *_open().accept(bumped, ends=True).accept(data(0, transactional=True, producer_epoch=4), begins=True),
    )
    made.stream(
        "marker-brings-epoch-then-next",
        "after a marker of epoch 4, the producer continues at sequence 2 with epoch 4",
        *_open()
        .accept(bumped, ends=True)
        .refuse(data(2, transactional=True, producer_epoch=4), "sequence-gap", verdict="acceptable"),
    )
    made.stream(
        "marker-stale",
        "a marker of epoch 2 is stale after a batch of epoch 3, so the transaction stays open",
        *_open().refuse(marker(COMMIT, producer_epoch=2), "producer-epoch-stale"),
    )
    made.stream(
        "marker-of-unknown-producer-then-seven",
        "the broker knows only a marker of a producer, which then must begin at sequence 0",
        *Appends()
        .accept(marker(ABORT), verdict="acceptable")
        .refuse(data(7, transactional=True), "sequence-gap", verdict="acceptable"),
        requirements=[*MARKERS, "SEQ-UNKNOWN-1"],
    )


def _own_epoch_each(made: Theme) -> None:
    version_two = made.having(requirements=MARKERS, transaction_version=2)
    version_two.stream(
        "version-two-marker-of-next-epoch",
        "with transaction version 2, a marker has the next epoch after its transaction's",
        *_open().accept(marker(COMMIT, producer_epoch=4), ends=True),
    )
    version_two.stream(
        "version-two-marker-of-same-epoch",
        "with transaction version 2, a marker of the transaction's own epoch is stale",
        *_open().refuse(marker(COMMIT), "producer-epoch-stale", verdict="acceptable"),
    )
    version_two.stream(
        "version-two-marker-twice",
        "a marker that is repeated after the end of its transaction has no effect",
        *_open()
        .accept(marker(COMMIT, producer_epoch=4), ends=True)
        .accept(marker(COMMIT, producer_epoch=4), verdict="acceptable"),
    )
    version_two.stream(
        "version-two-marker-of-largest-epoch",
        "there is no epoch after 32767, so a marker of epoch 32767 ends a transaction of that epoch",
        *_open(producer_epoch=INT16_MAX).accept(marker(COMMIT, producer_epoch=INT16_MAX), ends=True),
    )
    version_two.stream(
        "version-two-marker-of-older-epoch",
        "with transaction version 2, a marker of an epoch before the transaction's is stale",
        *_open().refuse(marker(COMMIT, producer_epoch=2), "producer-epoch-stale"),
    )
