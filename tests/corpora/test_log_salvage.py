"""kfuzz salvage: keeps the sound batches byte for byte, makes Kafka's indexes, and says what was lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from made_corpora import BUSY, digests, fates, once
from made_segments import bad, batch, written

from kfuzz import logs, records
from kfuzz.corpora.workload import Workload
from kfuzz.errors import UsageError
from kfuzz.findings import Finding
from kfuzz.logs import salvaging
from kfuzz.logs.checking import Counts, check_directory
from kfuzz.logs.salvaging import Salvaged, salvage
from kfuzz.records.read.reader import headers
from kfuzz.vectors import find_vector
from kfuzz.wire.records.framing import frames

FILES = ("index", "timeindex", "txnindex", "log")


# Three partitions with transactions over several segments.
log = once(Workload(topics=(BUSY,), size=400_000, segment_bytes=60_000, seed=5))


def segment_files(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in digests(folder).items() if name.rpartition(".")[2] in FILES}


def only(path: Path, out: Path) -> Salvaged:
    [one] = salvage(path, out)
    return one


def test_a_sound_log_is_copied_with_the_same_indexes(log: Path, tmp_path: Path) -> None:
    done = salvage(log, tmp_path / "copy")
    assert not any(one.lost for one in done)
    assert segment_files(tmp_path / "copy") == segment_files(log)
    for folder in log.glob("*-[0-9]"):
        assert (tmp_path / "copy" / folder.name / "leader-epoch-checkpoint").read_text() == (
            folder / "leader-epoch-checkpoint"
        ).read_text()


def test_every_damaged_batch_and_no_other_is_lost(log: Path, tmp_path: Path) -> None:
    source = sorted(log.glob("busy-0/*.log"))[0]
    data = bytearray(source.read_bytes())
    places = [(at, size) for at, size, _ in frames(bytes(data))]
    damaged = places[3:90:7]
    for at, size in damaged:
        data[at + size // 2 + 20] ^= 0x40
    path = written(tmp_path / "busy-0", bytes(data))
    one = only(path, tmp_path / "copy")
    assert [(lost.at, lost.size) for lost in one.lost] == damaged
    assert all("crc-mismatch" in lost.reason for lost in one.lost)
    wanted = b"".join(data[at : at + size] for at, size in places if (at, size) not in damaged)
    assert one.copy.read_bytes() == wanted
    assert (one.batches, one.kept_bytes) == (len(places) - len(damaged), len(wanted))


def with_length(data: bytes, length: bytes) -> bytes:
    return data[:8] + length + data[12:]


@pytest.mark.parametrize(
    ("pieces", "lost", "reason"),
    [
        # A wrong length costs only its batch.
        *(
            ([batch(0), with_length(batch(1), length), batch(2), batch(3)], 1, "")
            for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x0c", b"\0\0\0\x60")
        ),
        # A batch inside a value of a bad batch is not taken for one of the log.
        ([batch(0), bad(batch(1, value=batch(7, value=b"inner"))), batch(2)], 1, ""),
        ([batch(0), batch(1)[:-5]], 1, f"the last {len(batch(1)) - 5} bytes are not a whole batch"),
        ([b"\x55" * 5000], 0, ""),
    ],
)
def test_damage_costs_its_own_batch_and_no_other(tmp_path: Path, pieces: list[bytes], lost: int, reason: str) -> None:
    one = only(written(tmp_path / "t-0", *pieces), tmp_path / "copy")
    kept = [*pieces[:lost], *pieces[lost + 1 :]]
    assert one.copy.read_bytes() == b"".join(kept)
    assert [(gone.at, gone.size) for gone in one.lost] == [(len(b"".join(pieces[:lost])), len(pieces[lost]))]
    assert one.lost[0].reason.startswith(reason)
    assert (one.first_offset, one.batches) == (0 if kept else None, len(kept))
    assert one.next_offset == (int.from_bytes(kept[-1][:8], "big") + 1 if kept else None)


def test_a_batch_at_which_a_broker_would_stop_is_left_out(tmp_path: Path) -> None:
    vector = find_vector("records/v2/control/key-null")
    assert records.check(vector.data).fatal is None
    assert records.check(vector.data, role="log").fatal is not None
    one = only(written(tmp_path / "t-0", vector.data, batch(50)), tmp_path / "copy")
    assert one.copy.read_bytes() == batch(50)
    assert one.lost[0].reason.startswith("a broker that loads it stops:")


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = written(tmp_path / "t-0", batch(0))
    with pytest.raises(UsageError, match="exists; name another folder"):
        salvage(path, tmp_path)
    assert path.read_bytes() == batch(0)


@pytest.mark.parametrize(
    "offsets",
    [
        [0] * 2000,
        [*range(1000, 2000), *range(1500)],
        list(range(2000, 0, -1)),
        [i * 7919 % 2000 for i in range(2000)],
    ],
    ids=["one", "restarted", "falling", "jumping"],
)
def test_many_batches_at_which_a_broker_stops_take_few_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offsets: list[int]
) -> None:
    path = written(tmp_path / "t-0", *(batch(offset, value=b"v" * 60) for offset in offsets))
    refused = salvaging._refused
    rounds: list[Path] = []

    def counted(copy: Path, low: int, high: int) -> tuple[int, Finding] | None:
        rounds.append(copy)
        return refused(copy, low, high)

    monkeypatch.setattr(salvaging, "_refused", counted)
    made = only(path.parent, tmp_path / "out")
    assert len(rounds) < 10
    kept = records.check(made.copy.read_bytes(), role="log")
    assert (kept.fatal, kept.batch_count) == (None, made.batches)
    assert made.kept_bytes + made.lost_bytes == path.stat().st_size
    assert made.batches > 0


def emptied(folder: Path, stem: str) -> None:
    (folder / f"{stem}.log").write_bytes(b"")


def deleted(folder: Path, stem: str) -> None:
    (folder / f"{stem}.log").unlink()


def deleted_with_all(folder: Path, stem: str) -> None:
    for path in folder.glob(f"{stem}.*"):
        path.unlink()


def cut_at_a_batch(folder: Path, stem: str) -> None:
    path = folder / f"{stem}.log"
    path.write_bytes(path.read_bytes()[: list(frames(path.read_bytes()))[3][0]])


@pytest.mark.parametrize(
    ("damage", "number", "keeps"),
    [
        (emptied, 1, True),
        (deleted, 1, True),
        (deleted_with_all, 1, False),
        (emptied, -1, True),
        (cut_at_a_batch, 1, True),
        (cut_at_a_batch, -1, True),
    ],
)
def test_offsets_that_are_in_no_segment_are_lost_and_transactions_end_as_they_did(
    log: Path, tmp_path: Path, damage: Callable[[Path, str], None], number: int, keeps: bool
) -> None:
    folder = Path(shutil.copytree(log / "busy-0", tmp_path / "busy-0"))
    stems = sorted(path.stem for path in folder.glob("*.log"))
    damage(folder, stems[number])
    done = salvage(folder, tmp_path / "copy")
    (gap,) = (gap for one in done for gap in one.gaps)
    kept = {row["offset"] for part in logs.read(folder, columns=["offset"]) for row in part.to_pylist()}
    assert gap.first == max(one for one in kept if one < (gap.next or one + 1)) + 1
    assert gap.next == (int(stems[2]) if number == 1 else None)
    assert keeps == (gap.seen is not None if number < 0 else bool(gap.last and [*done[0].markers, *done[1].markers]))
    before, after = (fates(place) for place in (log / "busy-0", tmp_path / "copy" / "busy-0"))
    named = {one for part in done for to in part.changes for one in range(to.first_offset, to.last_offset + 1)}
    assert bool(named) != keeps
    assert {one: after[one] for one in kept & after.keys() - named} == {
        one: before[one] for one in kept & after.keys() - named
    }


def test_offsets_that_the_cleaner_removed_are_not_lost(tmp_path: Path) -> None:
    for base, count in ((0, 5), (20, 5)):
        written(tmp_path / "t-0", batch(base, count), base=base)
    assert [bool(one.gaps) for one in salvage(tmp_path / "t-0", tmp_path / "out")] == [True, False]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    assert [bool(one.gaps) for one in salvage(tmp_path / "t-0", tmp_path / "again")] == [False, False]
    assert salvage(tmp_path / "t-0/00000000000000000020.log", tmp_path / "one")[0].gaps == []


def test_a_batch_whose_offset_leaps_into_the_next_segment_is_left_out(tmp_path: Path) -> None:
    written(tmp_path / "t-0", batch(0, 5), batch(90, 5), base=0)
    written(tmp_path / "t-0", batch(10, 5), base=10)
    first, _ = salvage(tmp_path / "t-0", tmp_path / "out")
    assert only(first.path, tmp_path / "alone").gaps == first.gaps
    assert (first.batches, [str(one) for one in first.gaps]) == (1, ["offsets 5 to 9 are lost; go on at 10"])


def at(offset: int) -> bytes:
    return batch(offset, 5)


# Ten offsets in each of three segments.
WHOLE = {base: [at(base), at(base + 5)] for base in (0, 10, 20)}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # One bit in a base offset, at the end and at the beginning of a segment.
        ({10: [at(10), bad(at(15), 7, 0x02)], 20: [at(20), at(25)]}, ["offsets 15 to 19 are lost; go on at 20"]),
        ({10: [at(10), at(14)]}, ["offsets 15 to 19 are lost; go on at 20"]),
        ({20: [bad(at(20), 7, 0x08), at(25)]}, ["offsets 20 to 24 are lost; go on at 25"]),
        ({10: [at(2), at(15)]}, ["offsets 10 to 14 are lost; go on at 15"]),
        # One bit in the middle: too high, too low.
        ({20: [at(20), at(27), at(30), at(35)]}, ["offsets 25 to 29 are lost; go on at 30"]),
        ({20: [at(20), at(25), at(29), at(35)]}, ["offsets 30 to 34 are lost; go on at 35"]),
        # Two batches are swapped, one is there twice.
        (
            {20: [at(20), at(30), at(25), at(35)]},
            ["offsets 25 to 29 are lost; go on at 30", "no offset is lost; go on at 35"],
        ),
        ({20: [at(20), at(25), at(25), at(30)]}, ["no offset is lost; go on at 30"]),
        # A whole segment is there twice, also with a hole, two are swapped, one has a higher or a lower name.
        ({20: WHOLE[10]}, ["the offsets from 20 on are lost; nothing follows them"]),
        ({15: WHOLE[10]}, []),
        ({15: [batch(10), batch(12), batch(16), batch(19)]}, []),
        ({10: WHOLE[0], 0: WHOLE[10]}, []),
        ({10: WHOLE[0], 0: WHOLE[10], 15: WHOLE[10]}, []),
        ({40: WHOLE[20], 20: None}, []),
        ({15: WHOLE[10], 10: None}, []),
        ({5: WHOLE[10], 10: None}, []),
        ({10: WHOLE[0], 0: [at(10), bad(at(15))]}, ["offsets 15 to 19 are lost; go on at 20"]),
        # With the right name of one segment, the name of the other one is wrong too.
        (
            {0: [at(0)], 5: WHOLE[20], 22: WHOLE[10], 10: None, 20: None},
            ["offsets 5 to 9 are lost; go on at 10"],
        ),
        # The offsets of one batch are not believed.
        (
            {10: WHOLE[0], 0: [at(10)]},
            ["offsets 0 to 19 are lost; go on at 20"],
        ),
        # Two would have one name.
        (
            {10: [at(25), at(30)], 30: WHOLE[10]},
            ["offsets 10 to 19 are lost; go on at 20", "the offsets from 30 on are lost; nothing follows them"],
        ),
        # An offset that leaps does not hide that two are swapped.
        ({0: [*WHOLE[0], at(90)], 10: WHOLE[20], 20: WHOLE[10]}, ["no offset is lost; go on at 10"]),
        ({15: [batch(15, 20)]}, ["offsets 15 to 19 are lost; go on at 20"]),
        # Damage goes on in the next segment.
        ({0: [at(0), bad(at(5))], 10: [bad(at(10)), at(15)]}, ["offsets 5 to 14 are lost; go on at 15"]),
        ({10: None, 20: [bad(at(20)), at(25)]}, ["offsets 10 to 24 are lost; go on at 25"]),
    ],
)  # fmt: skip
def test_batches_that_do_not_fit_are_left_out_and_their_offsets_are_lost(
    tmp_path: Path, changed: dict[int, list[bytes] | None], expected: list[str]
) -> None:
    for base, pieces in (WHOLE | changed).items():
        if pieces is not None:
            written(tmp_path / "t-0", *pieces, base=base)
    done = salvage(tmp_path / "t-0", tmp_path / "out")
    assert [str(gap) for one in done for gap in one.gaps] == expected
    assert any(one.lost or one.copy.name != one.path.name for one in done)
    kept = [head for one in done if one.batches for head in headers(one.copy.read_bytes()) if head.size]
    assert all(one.last_offset < two.base_offset for one, two in pairwise(kept))
    if not expected:
        assert [head.base_offset for head in kept] == list(range(0, 30, 5))
    codes = {found.code for one in check_directory(tmp_path / "out", Counts(), role="log") for found, _ in one.findings}
    assert codes <= {"segment-gap"}


def test_only_wrong_names_change(tmp_path: Path) -> None:
    for base, pieces in {0: WHOLE[0], 10: [batch(12, 3), at(15)], 30: WHOLE[20]}.items():
        written(tmp_path / "t-0", *pieces, base=base)
    assert [int(one.copy.stem) for one in salvage(tmp_path / "t-0", tmp_path / "out")] == [0, 10, 20]


def test_a_segment_that_is_named_alone_has_the_bounds_of_its_offsets(tmp_path: Path) -> None:
    for base, pieces in (WHOLE | {15: WHOLE[10], 18: [batch(16), batch(17)]}).items():
        written(tmp_path / "t-0", *pieces, base=base)
    for base in (10, 15):
        one = only(tmp_path / "t-0" / f"{base:020d}.log", tmp_path / f"{base}")
        assert (one.copy.name, one.next_offset, one.gaps) == (f"{10:020d}.log", 20, [])


@pytest.mark.parametrize("names", [{0: 1, 1: 0}, {1: 90_000}, {-1: 90_000}, {0: 1, 1: 2, 2: 0}])
def test_segments_with_wrong_names_are_copied_under_the_right_ones(
    log: Path, tmp_path: Path, names: dict[int, int]
) -> None:
    stems = sorted(path.stem for path in (log / "busy-0").glob("*.log"))
    wrong = {stems[number]: stems[to] if to < 9 else f"{to:020d}" for number, to in names.items()}
    folder = tmp_path / "log" / "busy-0"
    folder.mkdir(parents=True)
    for path in (log / "busy-0").iterdir():
        stem = wrong.get(path.stem, path.stem) if path.suffix[1:] in FILES else path.stem
        shutil.copy(path, folder / f"{stem}{path.suffix}")
    done = salvage(folder, tmp_path / "copy")
    assert segment_files(tmp_path / "copy" / "busy-0") == segment_files(log / "busy-0")
    assert [one.gaps + one.changes for one in done] == [[]] * len(stems)
    assert sum(one.copy.name != one.path.name for one in done) == len(names)
    assert not any(one.lost for one in done)


@pytest.mark.parametrize("seed", range(30))
def test_each_offset_of_batches_at_wrong_places_is_kept_once_or_named(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pieces = [at(5 * i) for i in range(40)]
    for _ in range(rng.randint(1, 4)):
        i, j = rng.randrange(40), rng.randrange(40)
        match rng.randrange(3):
            case 0:
                pieces[i], pieces[j] = pieces[j], pieces[i]
            case 1:
                pieces[i] += pieces[j]
            case _:
                pieces[i] = bad(pieces[i], 7, 1 << rng.randrange(8))
    for base in range(0, 200, 50):
        written(tmp_path / "t-0", *pieces[base // 5 : base // 5 + 10], base=base)
    done = salvage(tmp_path / "t-0", tmp_path / "out")
    found = [*(gap for one in done for gap in one.gaps)]
    lost = [offset for gap in found for offset in range(gap.first or 0, (199 if gap.last is None else gap.last) + 1)]
    kept = [head for one in done for head in headers(one.copy.read_bytes()) if head.size]
    named = lost + [offset for head in kept for offset in range(head.base_offset, head.last_offset + 1)]
    assert sorted(named) == list(range(200))
