"""kfuzz diff: what it says of two logs is what all their records say, however they are stored."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from made_corpora import BUSY, once

from kfuzz import records
from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker, encode_control
from kfuzz.corpora.workload import Workload
from kfuzz.kafka import CODECS
from kfuzz.logs import comparing, latest
from kfuzz.logs.comparing import Compared, compare
from kfuzz.logs.salvaging import salvage
from kfuzz.records import Record, RecordBatch
from kfuzz.records.compaction import compact

# Three partitions with transactions over several segments.
log = once(Workload(topics=(BUSY,), size=200_000, segment_bytes=40_000, seed=5))


def made_batch(of: list[Record], **fields: Any) -> bytes:
    return bytes(records.encode([RecordBatch(of[0].offset, of[-1].offset, of, **fields)]))


def record(offset: int, value: bytes | None = b"v") -> Record:
    return Record(offset, 1000 + offset, b"k%d" % (offset % 7), value, ((b"h", b"%d" % offset),))


def written(folder: Path, *segments: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for data in segments:
        base = int.from_bytes(data[:8], "big")
        (folder / f"{base:020}.log").write_bytes(data)
    return folder


def only(a: Path, b: Path) -> Compared:
    [one] = compare(a, b)
    return one


def batches_of(rows: list[Record], draw: random.Random, **fields: Any) -> list[bytes]:
    """The records in batches of any sizes."""
    made = []
    while rows:
        size = draw.randint(1, 9)
        made.append(made_batch(rows[:size], **fields))
        rows = rows[size:]
    return made


def of_ranges(ranges: Iterable[list[int]], among: list[int]) -> list[int]:
    return [offset for first, last, _ in ranges for offset in among if first <= offset <= last]


@pytest.mark.parametrize("seed", range(20))
def test_it_finds_what_all_records_say(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(comparing, "WINDOW_BYTES", draw.choice((100, 1000, 1 << 20)))
    monkeypatch.setattr(comparing, "KEPT_MOST", 1000)
    rows = [record(offset) for offset in range(200)]
    sides, kept = [], []
    for name in "ab":
        mine = [one for one in rows if draw.random() > draw.choice((0, 0, 0.1))]
        mine = [record(one.offset, b"other") if draw.random() < 0.02 else one for one in mine]
        made = batches_of(mine, draw, compression=draw.choice(CODECS), partition_leader_epoch=draw.randint(0, 1))
        cuts = sorted(draw.sample(range(1, len(made)), 2))
        parts = made[: cuts[0]], made[cuts[0] : cuts[1]], made[cuts[1] :]
        sides.append(written(tmp_path / name / "t-0", *(b"".join(part) for part in parts)))
        kept.append({one.offset: one for one in mine})
    one = only(sides[0], sides[1])
    different = [at for at in kept[0] if at in kept[1] and kept[0][at] != kept[1][at]]
    assert one.records == len(different)
    assert (one.record or {"offset": None})["offset"] == next(iter(different), None)
    for number, side in enumerate(one.sides):
        alone = [at for at in kept[number] if at not in kept[1 - number]]
        assert of_ranges(side.ranges, list(kept[number])) == alone
        assert (side.records, sum(count for *_, count in side.ranges), side.damage) == (len(alone), len(alone), [])
    assert (one.verdict == "different") == (kept[0] != kept[1])


def test_a_log_is_equal_to_its_copy_and_a_changed_batch_is_named(log: Path, tmp_path: Path) -> None:
    salvage(log, tmp_path / "copy")
    assert {one.verdict for one in compare(log, tmp_path / "copy")} == {"equal"}
    last = sorted((tmp_path / "copy" / "busy-1").glob("*.log"))[-1]
    data = last.read_bytes()
    last.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = {one.name: one for one in compare(log, tmp_path / "copy")}
    assert [one.verdict for one in found.values()] == ["equal", "different", "equal"]
    a, b = found["busy-1"].sides
    [damage], [missing] = b.damage, a.ranges
    assert (damage["file"], damage["at"] + damage["size"]) == (str(last), len(data))
    assert "[crc-mismatch]" in damage["reason"]
    assert missing[:2] == [int.from_bytes(data[damage["at"] :][:8], "big"), missing[1]]


def test_bad_bytes_that_both_sides_have_are_equal(tmp_path: Path) -> None:
    data = made_batch([record(0)]) + b"\xff" * 50 + made_batch([record(1)]) + made_batch([record(2)])[:-3]
    assert only(written(tmp_path / "a", data), written(tmp_path / "b", data)).verdict == "equal"
    other = only(written(tmp_path / "a", data), written(tmp_path / "c", data[:-1]))
    assert (other.verdict, other.sides[0].damage[0]["reason"]) == ("different", "not a whole batch")


def test_a_batch_that_is_stored_otherwise_has_equal_records(tmp_path: Path) -> None:
    rows = [record(i) for i in range(4)]
    a = written(tmp_path / "a", made_batch(rows, producer_id=5, producer_epoch=0, base_sequence=0))
    for fields, name in (({"compression": "zstd"}, "attributes"), ({}, "producer_id")):
        kept = {} if name == "producer_id" else {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        one = only(a, written(tmp_path / name, made_batch(rows, **kept, **fields)))
        assert (one.verdict, one.batch and one.batch["field"]) == ("records are equal, batches differ", name)
    marked = written(
        tmp_path / "m", made_batch(rows, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    )
    one = only(a, marked)
    assert (one.verdict, one.records, one.record and one.record["field"]) == ("different", 4, "kind")
    assert one.to_json()["record"]["b"]["value"] == "record in a transaction of producer 5, epoch 0"


def marker(kind: ControlRecordType) -> bytes:
    key, value = encode_control(ControlRecord(ControlRecordKey(kind), EndTransactionMarker(7)))
    return made_batch([Record(0, 0, key, value)], producer_id=5, producer_epoch=0, transactional=True, control=True)


def valued(value: bytes | None, *headers: tuple[bytes, bytes]) -> bytes:
    return made_batch([Record(0, 0, b"k", value, headers)])


@pytest.mark.parametrize(
    ("a", "b", "texts"),
    [
        (marker(ControlRecordType.COMMIT), marker(ControlRecordType.ABORT), ("COMMIT marker in", "ABORT marker in")),
        (valued(b"a" * 50 + b"\0\1"), valued(b"a" * 50 + b"\0\2"), (f"{'61' * 7}0001", f"{'61' * 7}0002")),
        (valued(b"x" * 9000), valued(None), ("9000 bytes, from byte 0 on 'xxxx", "null")),
        (valued(b"", (b"h" * 900, b"1")), valued(b"", (b"h" * 900, b"2")), ("', b'1'),)…", "', b'2'),)…")),
    ],
)
def test_values_that_differ_have_short_texts_that_differ(
    tmp_path: Path, a: bytes, b: bytes, texts: tuple[str, str]
) -> None:
    found = only(written(tmp_path / "a", a), written(tmp_path / "b", b)).to_json()["record"]
    for side, text in zip("ab", texts, strict=True):
        assert text in found[side]["value"]
        assert len(found[side]["value"]) < 200


def test_a_compacted_log_has_the_last_values_of_its_source(tmp_path: Path) -> None:
    draw = random.Random(3)
    rows = [Record(i, i, b"k%d" % draw.randrange(40), draw.choice((b"x", b"y", None))) for i in range(300)]
    data = b"".join(batches_of(rows, draw))
    newest = {one.key: one.offset for one in rows}
    cleaned = compact(data, lambda batch, one: newest[one.key] == one.offset and one.value is not None, now_ms=0).data
    sides = written(tmp_path / "a", data), written(tmp_path / "b", cleaned)
    assert only(*sides).verdict == "different"
    [one] = compare(*sides, compacted=True)
    assert one.verdict == "equal"
    lost = max(offset for offset in newest.values() if rows[offset].value is not None)
    written(tmp_path / "b", compact(cleaned, lambda batch, one: one.offset != lost, now_ms=0).data)
    [one] = compare(*sides, compacted=True)
    assert (one.verdict, one.records, one.record and one.record["offset"]) == ("different", 1, lost)
    [one] = compare(
        written(tmp_path / "c", valued(b"v" * 99 + b"1")),
        written(tmp_path / "d", valued(b"v" * 99 + b"2")),
        compacted=True,
    )
    assert one.to_json()["record"]["a"]["value"] != one.to_json()["record"]["b"]["value"]


def test_damage_after_the_last_stable_offset_counts_for_compacted_logs_too(tmp_path: Path) -> None:
    opened = made_batch([record(0)], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    later = made_batch([record(1)])
    sides = written(tmp_path / "a", opened, later), written(tmp_path / "b", opened)
    (sides[1] / f"{1:020}.log").write_bytes(later[:-1] + b"!")
    [one] = compare(*sides, compacted=True)
    assert [len(side.damage) for side in one.sides] == [0, 1]


def test_the_last_record_of_each_key_is_found_with_keys_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "MEMORY_KIB", 1)
    rows = [(b"%d" % (i % 900), i, b"%d" % i) for i in range(9000)]
    # In a damaged log, offsets may go back: the last record that was read counts.
    assert list(latest.Latest([*rows, rows[0]]).by("row")) == [rows[0], *rows[-899:]]


def test_what_it_prints_and_its_exit_codes(tmp_path: Path) -> None:
    rows = [record(i) for i in range(6)]
    a = written(tmp_path / "a" / "t-0", made_batch(rows[:3]), made_batch(rows[3:])).parent
    b = written(tmp_path / "b" / "t-0", made_batch(rows[:3], compression="lz4")).parent
    written(tmp_path / "b" / "u-0", made_batch(rows))
    shown = kfuzz("diff", a, b)
    assert (shown.returncode, shown.stderr) == (1, "")
    assert shown.stdout.splitlines() == [
        "t-0: different",
        "  equal records in batches with another attributes (1), first at offset 0: attributes",
        f"    A: 0x0000 (none) (leader epoch -1, batch at byte 0 of {a / 't-0' / ('0' * 20 + '.log')})",
        f"    B: 0x0003 (lz4) (leader epoch -1, batch at byte 0 of {b / 't-0' / ('0' * 20 + '.log')})",
        "  only in A: offsets 3 to 5, 3 records",
        "u-0: only in B",
        f"2 partitions of 2 differ; A is {a}, B is {b}",
    ]
    (a / "t-0" / f"{3:020}.log").unlink()
    assert kfuzz("diff", a, b, "--topics", "t").returncode == 1
    assert kfuzz("diff", a, b, "--topics", "t", "--contents").returncode == 0
    told = json.loads(kfuzz("diff", a, b, "--topics", "t", "--compacted", "--json").stdout)
    assert (told["equal"], told["partitions"][0]["verdict"]) == (True, "equal")
    assert kfuzz("diff", a, tmp_path / "none").returncode == 2


@pytest.mark.parametrize("window_bytes", [100, 1 << 20])
@pytest.mark.parametrize("cut", [4, 5, 8], ids=["first of a segment", "last of a segment", "inside"])
@pytest.mark.parametrize("offset", [1 << 40, 17, 3, 14 - (1 << 63)])
def test_one_wrong_base_offset_is_one_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int, cut: int, offset: int
) -> None:
    monkeypatch.setattr(comparing, "WINDOW_BYTES", window_bytes)
    batches = [made_batch([record(10 + i)]) for i in range(10)]
    moved = [*batches[:4], offset.to_bytes(8, "big", signed=True) + batches[4][8:], *batches[5:]]
    a, b = (written(tmp_path / name, b"".join(made[:cut])) for name, made in (("a-0", batches), ("b-0", moved)))
    for folder, made in ((a, batches), (b, moved)):
        (folder / f"{10 + cut:020}.log").write_bytes(b"".join(made[cut:]))
    one = only(a, b)
    assert (one.batches, one.sides[0].ranges) == (9, [[14, 14, 1]])
    why = " is below 0" if offset < 0 else ", and the next batch begins at 15"
    reason = "its offsets go back: 3 to 3, after 13" if offset == 3 else f"its offsets do not fit: {offset}{why}"
    assert (one.sides[1].ranges, [bad["reason"] for bad in one.sides[1].damage]) == ([], [reason])


def of(first: int, last: int, step: int = 2, codec: str = "none") -> bytes:
    """Batches with these offsets."""
    starts = range(first, last + 1, step)
    rows = [[record(at) for at in range(low, min(low + step, last + 1))] for low in starts]
    return b"".join(made_batch(one, compression=codec) for one in rows)


WHOLE = {0: of(0, 9), 10: of(10, 19), 20: of(20, 29)}
NAME = "its name does not fit its first offset, "


@pytest.mark.parametrize("window_bytes", [100, 1 << 20])
@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        # Batches are there again: a whole segment under a higher and under a lower name, a part of one, in one file.
        ({15: of(10, 19)}, ["its offsets go back: 10 to 19, after 19"]),
        ({40: of(0, 9)}, ["its offsets go back: 0 to 9, after 29"]),
        ({5: of(20, 29)}, ["its offsets go back: 20 to 29, after 29"]),
        ({14: of(14, 19)}, ["its offsets go back: 14 to 19, after 19"]),
        ({10: of(10, 15) + of(12, 15) + of(16, 19)}, ["its offsets go back: 12 to 15, after 15"]),
        # They are divided or compressed in another way, or a part of them was cleaned.
        ({15: of(10, 19, 5, "lz4")}, ["its offsets go back: 10 to 19, after 19"]),
        ({15: of(10, 11) + of(14, 15)}, ["its offsets go back: 10 to 15, after 19"]),
        ({0: of(0, 9, 3), 8: of(8, 12, 5), 10: None, 13: of(13, 19)}, ["its offsets go back: 8 to 9, after 9"]),
        # Segments are swapped, or have a higher name.
        ({0: of(10, 19), 10: of(0, 9)}, [f"{NAME}0", f"{NAME}10"]),
        ({20: None, 45: of(20, 29)}, [f"{NAME}20"]),
        # None is moved over another that is not: one batch is not believed.
        ({3: of(10, 19), 7: of(20, 29, 10), 10: None, 20: None}, []),
    ],
)  # fmt: skip
def test_batches_that_are_there_again_are_one_statement(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    window_bytes: int,
    changed: dict[int, bytes | None],
    reasons: list[str],
) -> None:
    monkeypatch.setattr(comparing, "WINDOW_BYTES", window_bytes)
    for name, segments in (("a", WHOLE), ("b", WHOLE | changed), ("c", WHOLE | changed | {30: of(30, 39)})):
        for base, data in segments.items():
            (tmp_path / name / "t-0").mkdir(parents=True, exist_ok=True)
            if data is not None:
                (tmp_path / name / "t-0" / f"{base:020}.log").write_bytes(data)
    for a, b in (("a", "b"), ("b", "a")):
        one = only(tmp_path / a, tmp_path / b)
        assert (one.records, [side.ranges for side in one.sides]) == (0, [[], []])
        found = [[bad["reason"] for bad in side.damage] for side in one.sides]
        assert sorted(found) == [[], reasons]
        if reasons and reasons[0].startswith(NAME):
            [one] = compare(tmp_path / a, tmp_path / b, compacted=True)
            assert (one.records, sorted(len(side.damage) for side in one.sides)) == (0, [0, len(reasons)])
    # Bytes that both sides have are equal.
    assert only(tmp_path / "b", tmp_path / "b").verdict == "equal"
    one = only(tmp_path / "b", tmp_path / "c")
    assert (one.records, [side.ranges for side in one.sides]) == (0, [[], [[30, 39, 10]]])


def test_a_wrong_offset_that_both_sides_have_hides_nothing(tmp_path: Path) -> None:
    high = (1 << 40).to_bytes(8, "big") + of(4, 5)[8:]
    a, b = (
        written(tmp_path / name, of(0, 3) + high + made_batch([record(6, value)]) + of(7, 20))
        for name in ("a", "b")
        for value in (name.encode(),)
    )
    one = only(a, b)
    assert (one.records, one.record and one.record["offset"], one.sides[0].damage) == (1, 6, [])


def test_no_range_ends_before_it_begins(tmp_path: Path) -> None:
    both = [[0, 1, 100, 2, 3], [0, 1, 50, 20, 60]]
    a, b = (
        written(tmp_path / f"{name}-0", b"".join(made_batch([record(offset)]) for offset in offsets))
        for name, offsets in zip("ab", both, strict=True)
    )
    one = only(a, b)
    for side, offsets in zip(one.sides, both, strict=True):
        assert all(first <= last for first, last, _ in side.ranges)
        found = sum(count for _, _, count in side.ranges) + len(side.damage)
        assert found == len(offsets) - 2
