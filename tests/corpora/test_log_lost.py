"""The offsets that damage costs, and the markers of transactions that are lost with it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from made_corpora import fates
from made_segments import bad, batch, written

from kfuzz.annotate.listing import Listing
from kfuzz.logs.checking import Counts, check_directory
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.log_facts import LogFacts
from kfuzz.logs.lost import LostOffsets, with_losses
from kfuzz.logs.meaning import Marker
from kfuzz.logs.salvaging import Salvaged, salvage
from kfuzz.logs.snapshot import Producer
from kfuzz.logs.snapshot import encode as encode_snapshot
from kfuzz.records import Record, RecordBatch, encode
from kfuzz.records.read.reader import BatchHeader, check_with

BASE = 100
SNAPSHOT = f"{110:020d}.snapshot"


def of(producer: int, offset: int, count: int = 5) -> bytes:
    """A batch of a transaction."""
    return batch(offset, count, transactional=True, producer_id=producer, producer_epoch=3, base_sequence=0)


def marker(offset: int, producer: int, is_abort: bool) -> bytes:
    gap = LostOffsets(0, 0, "", None, None, None)
    before = BatchHeader(0, 0, 0, 2, 1, 0, 0, 0, 1, 0, producer, 3, 0, -1, True, None)
    return Marker(0, gap, offset, producer, is_abort).encode(before)


def losses(path: Path, data: bytes, step_bytes: int = 0) -> list[LostOffsets]:
    """The lost offsets; with ``step_bytes``, by a walk that leaves out what is sound."""
    facts = LogFacts(step_bytes) if step_bytes else None
    if facts is not None:
        facts.begin_segment(BASE)
    both = with_losses(path, Listing(data, role="log", also=facts), facts)
    return [one for one in both if isinstance(one, LostOffsets)]


A, B, C, D, E = (batch(100 + 5 * i, 5) for i in range(5))


@pytest.mark.parametrize(
    ("pieces", "beside", "expected"),
    [
        ([A, bad(B), C], (), ["offsets 105 to 109 are lost; go on at 110"]),
        ([A, bad(B), bad(C), D], (), ["offsets 105 to 114 are lost; go on at 115"]),
        ([A, bad(B), C, bad(D), E], (), [f"offsets {i} to {i + 4} are lost; go on at {i + 5}" for i in (105, 115)]),
        ([bad(A), B], (), ["offsets 100 to 104 are lost; go on at 105"]),
        ([A, bad(B, 8, 0x7F), C], (), ["offsets 105 to 109 are lost; go on at 110"]),
        ([A, bad(bad(B), 6), C], (), ["offsets 105 to 109 are lost; go on at 110"]),
        ([A, bad(batch(105)), batch(106)], (), ["offset 105 is lost; go on at 106"]),
        ([A, b"\x55" * 90, B], (), ["no offset is lost; go on at 105"]),
        # A right CRC says nothing about the base offset: too high, too low, beside damage, and beyond the segment.
        ([A, bad(B, 6), C, D], (), ["offsets 105 to 109 are lost; go on at 110"]),
        ([A, bad(B, 2), C, D], (), ["offsets 105 to 109 are lost; go on at 110"]),
        ([A, B, batch(3, 5), D], (), ["offsets 110 to 114 are lost; go on at 115"]),
        ([A, bad(B, 6), bad(C), D], (), ["offsets 105 to 114 are lost; go on at 115"]),
        ([A, bad(B, 6)], ("00000000000000000110.log",), ["offsets 105 to 109 are lost; go on at 110"]),
        ([A, batch(350, 5)], ("00000000000000000300.log",), ["offsets 105 to 299 are lost; go on at 300"]),
        # If the batch after damage is overlapped, the offsets before it are not lost again.
        ([A, bad(B), C, batch(112, 5), E], (), ["offsets 105 to 109 are lost; go on at 110",
                                                "offsets 110 to 111 are lost; go on at 112"]),
        # At the end of a segment the next one's name says where to go on, at the end of the log nothing does.
        ([A, bad(B)], ("00000000000000000110.log",), ["offsets 105 to 109 are lost; go on at 110"]),
        ([A, bad(B)], (), ["the offsets from 105 on are lost; nothing follows them"]),
        ([A, bad(B)], (SNAPSHOT,), ["the offsets from 105 on are lost, at least to 109; nothing follows them"]),
        ([A, B[:-1]], (), []),
        # A cut-off batch is not lost alone if the files beside it show that there was more.
        ([A, B[:-1]], (SNAPSHOT,), ["the offsets from 105 on are lost, at least to 109; nothing follows them"]),
        ([A, B[:-1]], ("00000000000000000115.log",), ["offsets 105 to 114 are lost; go on at 115"]),
    ],
)  # fmt: skip
def test_damage_costs_the_offsets_between_what_is_sound(
    tmp_path: Path, pieces: list[bytes], beside: tuple[str, ...], expected: list[str]
) -> None:
    path = written(tmp_path / "orders-0", *pieces, base=BASE)
    for name in beside:
        (path.parent / name).touch()
    found = losses(path, path.read_bytes())
    assert found == losses(path, path.read_bytes(), 1 << 20)
    assert [str(one) for one in found] == expected
    to = ["--to-latest" if "nothing" in one else f"--to-offset {one.split()[-1]}" for one in expected]
    assert [(one.skip or "").split(" --reset-offsets ")[1] for one in found] == [f"{one} --execute" for one in to]


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([[A, bad(B)], [bad(C), D]], "offsets 105 to 114 are lost; go on at 115"),
        ([[A, bad(B)], [bad(C)], [bad(D), E]], "offsets 105 to 119 are lost; go on at 120"),
        ([[A, bad(B)], [bad(C), bad(D)]], "the offsets from 105 on are lost; nothing follows them"),
        ([[A, bad(B)], [C, D], [bad(E)]], "offsets 105 to 109 are lost; go on at 110"),
    ],
)
def test_damage_that_goes_on_in_the_next_segment_is_one_stretch(
    tmp_path: Path, segments: list[list[bytes]], expected: str
) -> None:
    for pieces in segments:
        written(tmp_path / "t-0", *pieces, base=int.from_bytes(pieces[0][:8], "big"))
    for found in (check_directory(tmp_path / "t-0", Counts()), check_directory(tmp_path / "t-0", Counts(), role="log")):
        files = list(found)
        assert [file.path.name for file in files if not file.whole] == sorted(
            path.name for path in tmp_path.glob("*/*")
        )
        assert [str(one) for file in files for one in file.lost][:1] == [expected]
    done = salvage(tmp_path / "t-0", tmp_path / "out")
    lost = [one for file in files for one in file.lost]
    assert [one for file in done for one in file.gaps] == lost
    assert len(lost) == (2 if "110" in expected else 1)


@pytest.mark.parametrize("seed", range(60))
def test_a_walk_that_leaves_out_what_is_sound_finds_the_same_losses(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pieces = []
    for i in range(40):
        one = batch(BASE + 5 * i, 5)
        if rng.random() < rng.choice((0.02, 0.3)):
            kinds = (
                bad(one),
                bad(one, 6),
                bad(one, 2),
                bad(one, 0, 0x80),
                bad(one, 8, 0x7F),
                batch(3, 5),
                batch(BASE + 5 * i + 300, 5),
                b"\x55" * 90,
            )
            one = rng.choice((*kinds, one + one, b""))
        pieces.append(one)
    pieces += rng.sample((batch(BASE + 350, 5), batch(BASE + 200, 5)[:-1]), rng.randrange(2))
    path = written(tmp_path / "orders-0", *pieces, base=BASE)
    for base in rng.sample((150, 300, 400), rng.randrange(2)):
        (path.parent / f"{base:020d}.log").touch()
    data = path.read_bytes()
    assert losses(path, data, rng.choice((100, 1000, 1 << 20))) == losses(path, data)


@pytest.mark.parametrize(
    ("pieces", "is_cleaned"),
    [
        ([A, B, C], False),
        ([A, C], True),
        ([A, encode([RecordBatch(105, 109, [Record(107, 1, b"k", b"v")])]), C], True),
        # The batches that damage costs were not removed by the cleaner.
        ([A, bad(B), C], False),
    ],
)
def test_only_the_cleaner_leaves_holes(pieces: list[bytes], is_cleaned: bool) -> None:
    facts = LogFacts(1 << 20)
    facts.begin_segment(BASE)
    list(Listing(b"".join(pieces), role="log", also=facts))
    assert facts.is_cleaned is is_cleaned


def test_a_batch_that_overlaps_the_one_before_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "orders-0", A, (107).to_bytes(8, "big") + B[8:], C, D, base=BASE)
    (whole, *_) = check_directory(path.parent, Counts(), role="log")
    assert [(code.code, places) for code, places in whole.findings] == [("offset-not-increasing", 1)]
    assert [str(one) for one in whole.lost] == ["offsets 105 to 109 are lost; go on at 110"]


def test_offsets_are_unknown_without_the_name_of_a_segment() -> None:
    (lost,) = losses(Path("-"), bad(A) + B)
    assert (str(lost), lost.skip) == ("offsets up to 104 are lost; go on at 105", None)


def salvaged(tmp_path: Path, pieces: list[bytes], lost: set[int], *left_out: str) -> tuple[Salvaged, list[Path]]:
    """The salvage of a log that lost some of its pieces, and its indexes before and after."""
    walk = IndexWalk(BASE, 4096)
    check_with(b"".join(pieces), walk)
    kept = (bad(one) if i in lost else one for i, one in enumerate(pieces))
    path = written(tmp_path / "orders-0", *kept, base=BASE)
    if ".txnindex" not in left_out and walk.transaction_index:
        path.with_suffix(".txnindex").write_bytes(walk.transaction_index)
    if ".snapshot" not in left_out:
        snapshot = encode_snapshot([Producer(*fields) for fields in walk.producers])
        path.with_name(f"{walk.next_offset:020d}.snapshot").write_bytes(snapshot)
    (made,) = salvage(path.parent, tmp_path / "out")
    return made, [one.with_suffix(".txnindex") for one in (path, made.copy)]


ABORTED = [of(7, 100), marker(105, 7, False), of(7, 106), marker(111, 7, True)]
COMMITTED = [of(7, 100), marker(105, 7, True), of(7, 106), marker(111, 7, False)]
TWO = [of(7, 100), of(8, 105), marker(110, 7, False), marker(111, 8, True)]


@pytest.mark.parametrize(
    ("pieces", "lost", "expected"),
    [
        (ABORTED, {1}, [(105, 7, False)]),
        (COMMITTED, {1}, [(105, 7, True)]),
        (ABORTED, {1, 3}, [(105, 7, False), (111, 7, True)]),
        (ABORTED[:2], {1}, [(105, 7, False)]),
        (TWO, {2, 3}, [(110, 7, False), (111, 8, True)]),
        # The transaction goes on after the damage, so no marker was lost.
        ([of(7, 100), batch(105, 5), of(7, 110), marker(115, 7, True)], {1}, []),
    ],
)
def test_a_lost_marker_is_written_again_if_the_index_or_the_snapshot_knows_it(
    tmp_path: Path, pieces: list[bytes], lost: set[int], expected: list[tuple[int, int, bool]]
) -> None:
    made, (before, after) = salvaged(tmp_path, pieces, lost)
    assert sorted((one.offset, one.producer_id, one.is_abort) for one in made.markers) == expected
    assert made.changes == []
    if expected:
        assert after.exists() == before.exists()
        assert not after.exists() or after.read_bytes() == before.read_bytes()
        assert made.copy.read_bytes().count(b"".join(pieces)) <= 1


@pytest.mark.parametrize(
    ("pieces", "left_out", "expected"),
    [
        (ABORTED, (".txnindex",), "producer 7, offsets 100 to 104: aborted now; how their transaction ended is lost"),
        (
            ABORTED[:2],
            (".snapshot",),
            "producer 7, offsets 100 to 104: open now; how their transaction ended is lost; a reader in read_committed "
            "stops at 100",
        ),
    ],
)
def test_a_marker_that_nothing_knows_changes_records_and_that_is_said(
    tmp_path: Path, pieces: list[bytes], left_out: tuple[str, ...], expected: str
) -> None:
    made, _ = salvaged(tmp_path, pieces, {1}, *left_out)
    assert (made.markers, [str(one) for one in made.changes]) == ([], [expected])


def test_a_lost_abort_is_known_by_its_bytes_where_the_index_is_missing(tmp_path: Path) -> None:
    made, _ = salvaged(tmp_path, COMMITTED, {1}, ".txnindex")
    assert [str(one) for one in made.markers] == ["the lost ABORT marker of producer 7 is written again, at offset 105"]
    assert [str(one) for one in made.changes] == [
        "producer 7, offsets 100 to 104: aborted now; how their transaction ended is lost"
    ]


def test_an_abort_marker_that_is_there_twice_is_not_written_again(tmp_path: Path) -> None:
    pieces = [*COMMITTED[:2], *COMMITTED[1:]]
    made, _ = salvaged(tmp_path, pieces, set(), ".txnindex")
    assert (made.markers, made.copy.read_bytes()) == ([], b"".join(COMMITTED))


def test_only_an_abort_marker_that_cannot_be_read_misses_its_index(tmp_path: Path) -> None:
    # An ABORT without a transaction has no entry in the index.
    for number, (pieces, codes) in enumerate(
        (((bad(A), marker(105, 7, True)), 0), ((A, bad(marker(105, 7, True))), 1))
    ):
        path = written(tmp_path / str(number) / "orders-0", *pieces, base=BASE)
        found = [code for one in check_directory(path.parent, Counts(), role="log") for code, _ in one.findings]
        assert sum(one.code == "aborted-missing" for one in found) == codes


def test_a_dry_run_finds_the_same_and_writes_nothing(tmp_path: Path) -> None:
    made, _ = salvaged(tmp_path, ABORTED, {1})
    before = sorted(tmp_path.rglob("*"))
    (again,) = salvage(tmp_path / "orders-0", tmp_path / "other", dry_run=True)
    assert (again.markers, again.gaps, again.kept_bytes) == (made.markers, made.gaps, made.kept_bytes)
    assert sorted(tmp_path.rglob("*")) == before


def test_only_the_batch_with_a_wrong_offset_is_left_out(tmp_path: Path) -> None:
    pieces = [batch(100 + 5 * i, 5) for i in range(200)]
    pieces[100] = bad(pieces[100], 5, 0x01)
    path = written(tmp_path / "orders-0", *pieces, base=BASE)
    (made,) = salvage(path.parent, tmp_path / "out")
    assert [str(one) for one in made.gaps] == ["offsets 600 to 604 are lost; go on at 605"]
    assert made.batches == 199


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100))
def test_no_kept_record_of_a_random_log_changes_unless_it_is_named(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    pieces: list[bytes] = []
    producers: dict[int, int] = {}
    offset = 100
    for _ in range(chance.randint(5, 40)):
        producer, count = chance.choice([7, 8, 9]), chance.randint(1, 4)
        if producer in producers and chance.random() < 0.4:
            pieces.append(marker(offset, producer, chance.random() < 0.5))
            offset += 1
            del producers[producer]
        else:
            pieces.append(of(producer, offset, count))
            producers.setdefault(producer, offset)
            offset += count
    (tmp_path / "whole").mkdir()
    salvaged(tmp_path / "whole", pieces, set())
    made, _ = salvaged(tmp_path, pieces, {i for i in range(len(pieces)) if chance.random() < 0.25})
    before, after = (fates(place / "out") for place in (tmp_path / "whole", tmp_path))
    changed = {one for change in made.changes for one in range(change.first_offset, change.last_offset + 1)}
    stops = min((change.first_offset for change in made.changes if change.now == "open"), default=offset)
    for one, (is_aborted, is_seen) in after.items():
        assert one in changed or is_aborted == before[one][0]
        assert one in changed or is_seen or not before[one][1] or one > stops
