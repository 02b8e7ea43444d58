"""The files beside segments: their entries are shown, and wrong bytes are told with their place."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from made_corpora import once
from made_segments import batch, written

from kfuzz.corpora.workload import KIB, Producers, Topic, Transactions, Workload
from kfuzz.logs.snapshot import Producer, encode
from kfuzz.logs.stored import Stored, kind_by_content, kind_of, lines_of
from kfuzz.wire.io.checksum import crc32c

BASE = 100
NAME = f"{BASE:020d}"
LOW_AND_FALLING = {"index-last-offset-low": "fatal", "index-not-rising": "deviation"}
EARLY_AND_FALLING = {"last-timestamp-low": "fatal", "index-not-rising": "deviation"}
# One producer, and then nothing.
CUT_SNAPSHOT = b"\0\1" + struct.pack(">I", crc32c(b"\0\0\0\1")) + b"\0\0\0\1"


def judged(path: Path, data: bytes) -> Stored:
    kind = kind_of(path.name)
    assert kind is not None
    return kind.read(path, data, "kafka")


def codes(made: Stored) -> dict[str, str]:
    return {one.code: one.severity for one in made.findings}


TOPIC = Topic("t", producers=Producers(count=3, share=0.3), transactions=Transactions(share=0.3, abort_share=0.5))
corpus = once(Workload(topics=(TOPIC,), size=1024 * KIB, segment_bytes=256 * KIB, seed=3))


def test_every_file_of_a_generated_corpus_is_known_and_sound(corpus: Path) -> None:
    seen: dict[str, int] = {}
    for path in sorted((corpus / "t-0").iterdir()):
        kind = kind_of(path.name)
        if path.suffix == ".log":
            assert kind is None
            continue
        assert kind is not None, path
        made = kind.read(path, path.read_bytes(), "strict")
        assert made.findings == [], path
        assert len(list(made.entries())) == made.count > 0
        assert len(list(lines_of(made))) == len(made.facts) + 1 + made.count
        seen[kind.title] = seen.get(kind.title, 0) + 1
    assert set(seen) == {"offset index", "time index", "transaction index", "producer snapshot", "leader epochs"}


def test_entries_are_those_that_the_file_has(tmp_path: Path) -> None:
    index = judged(tmp_path / f"{NAME}.index", struct.pack(">4i", 4, 70, 9, 200))
    assert list(index.entries()) == [(0, (BASE + 4, 70)), (8, (BASE + 9, 200))]
    times = judged(tmp_path / f"{NAME}.timeindex", struct.pack(">qi", 1700000000001, 4))
    assert list(times.entries()) == [(0, (1700000000001, BASE + 4))]
    assert list(lines_of(times))[-1].split() == ["0", "0", "2023-11-14T22:13:20.001Z", "104"]
    aborted = judged(tmp_path / f"{NAME}.txnindex", struct.pack(">hqqqq", 0, 7, 90, 120, 90))
    assert list(aborted.entries()) == [(0, (0, 7, 90, 120, 90))]
    producer = Producer(7, 1, 30, 120, 2, 1700000000001, -1, -1)
    snapshot = judged(tmp_path / f"{NAME}.snapshot", encode([producer, producer]))
    ((at, row),) = snapshot.entries()
    assert (at, row) == (10, (7, 1, 30, 120, 2, 1700000000001, -1, -1))
    epochs = judged(tmp_path / "leader-epoch-checkpoint", b"0\n2\n0 0\n5 17\n")
    assert list(epochs.entries()) == [(4, (0, 0)), (8, (5, 17))]
    points = judged(tmp_path / "recovery-point-offset-checkpoint", b"0\n1\norders 3 4711\n")
    assert list(points.entries()) == [(4, ("orders", 3, 4711))]
    metadata = judged(tmp_path / "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert (metadata.facts, metadata.findings) == ({"version": 0, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, [])


@pytest.mark.parametrize(
    ("name", "data", "expected", "at"),
    [
        (f"{NAME}.index", struct.pack(">2i", 1, 70) + b"abc", {"index-size-uneven": "fatal"}, 8),
        (
            f"{NAME}.index",
            struct.pack(">4i", 4, 70, -1, 90),
            LOW_AND_FALLING,
            8,
        ),
        (f"{NAME}.index", struct.pack(">6i", 4, 70, 4, 90, 5, 95), {"index-not-rising": "deviation"}, 8),
        (f"{NAME}.index", struct.pack(">4i", 4, 70, 5, 70), {"index-not-rising": "deviation"}, 8),
        (
            f"{NAME}.timeindex",
            struct.pack(">qiqi", 9, 1, 8, 2),
            EARLY_AND_FALLING,
            12,
        ),
        (f"{NAME}.timeindex", struct.pack(">qiqi", 9, 2, 10, 1), {"index-not-rising": "deviation"}, 12),
        (f"{NAME}.timeindex", struct.pack(">qi", 9, -2), {"index-last-offset-low": "fatal"}, 0),
        (f"{NAME}.timeindex", b"a" * 11, {"index-size-uneven": "fatal"}, 0),
        (f"{NAME}.txnindex", struct.pack(">hqqqq", 1, 7, 90, 120, 90), {"aborted-entry-version-unknown": "fatal"}, 0),
        (f"{NAME}.txnindex", struct.pack(">hqqqq", 0, 7, 90, 99, 90), {"index-last-offset-low": "fatal"}, 0),
        (f"{NAME}.txnindex", struct.pack(">hqqqq", 0, 7, 121, 120, 90), {"index-not-rising": "deviation"}, 0),
        (f"{NAME}.txnindex", 2 * struct.pack(">hqqqq", 0, 7, 90, 120, 90), {"index-not-rising": "deviation"}, 34),
        (f"{NAME}.snapshot", b"\0\1", {"snapshot-cut": "fatal"}, 0),
        (f"{NAME}.snapshot", b"\0\2" + encode([])[2:], {"snapshot-version-unknown": "fatal"}, 0),
        (f"{NAME}.snapshot", encode([]) + b"x", {"snapshot-crc-mismatch": "fatal"}, 2),
        (
            f"{NAME}.snapshot",
            CUT_SNAPSHOT,
            {"snapshot-unreadable": "fatal"},
            6,
        ),
        ("leader-epoch-checkpoint", b"1\n0\n", {"checkpoint-version-unknown": "fatal"}, 0),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", {"checkpoint-count-mismatch": "fatal"}, 2),
        ("leader-epoch-checkpoint", b"0\n1\n0\n", {"checkpoint-line-malformed": "fatal"}, 4),
        ("leader-epoch-checkpoint", b"0\nx\n0 0\n", {"checkpoint-line-malformed": "fatal"}, 2),
        ("leader-epoch-checkpoint", b"0\n2\n3 0\n3 9\n", {"leader-epochs-not-rising": "deviation"}, 8),
        ("leader-epoch-checkpoint", b"0\n2\n3 9\n4 9\n", {"leader-epochs-not-rising": "deviation"}, 8),
        ("cleaner-offset-checkpoint", b"0\n1\norders 0 x\n", {"checkpoint-line-malformed": "fatal"}, 4),
        (
            "partition.metadata",
            b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
            {"checkpoint-version-unknown": "fatal"},
            0,
        ),
        ("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", {"topic-id-missing": "fatal"}, 44),
        ("partition.metadata", b"version 0\n", {"checkpoint-line-malformed": "fatal"}, 0),
    ],
)
def test_wrong_bytes_are_findings_with_their_place(
    name: str, data: bytes, expected: dict[str, str], at: int, tmp_path: Path
) -> None:
    made = judged(tmp_path / name, data)
    assert codes(made) == expected
    assert {one.at for one in made.findings} == {at}
    assert any(f"[{code}]" in line for line in lines_of(made) for code in expected)


def segment() -> list[bytes]:
    return [batch(at, 2) for at in range(BASE, BASE + 8, 2)]


def test_an_index_is_compared_with_the_segment_beside_it(tmp_path: Path) -> None:
    batches = segment()
    written(tmp_path, *batches, base=BASE)
    size = len(batches[0])
    index = tmp_path / f"{NAME}.index"
    right = struct.pack(">4i", 3, size, 7, 3 * size)
    index.write_bytes(right)
    assert judged(index, right).findings == []
    for wrong in ((2, size), (3, size + 1), (3, 9 * size), (3, -size)):
        made = judged(index, struct.pack(">2i", *wrong))
        assert codes(made) == {"index-entry-misplaced": "deviation"}, wrong
    times = tmp_path / f"{NAME}.timeindex"
    assert judged(times, struct.pack(">qi", 1, 7)).findings == []
    assert codes(judged(times, struct.pack(">qi", 1, 8))) == {"index-entry-beyond-log": "deviation"}
    # A wrong offset index does not hide the end of the segment.
    index.write_bytes(struct.pack(">2i", 7, size + 1))
    assert judged(times, struct.pack(">qi", 1, 7)).findings == []
    assert codes(judged(times, struct.pack(">qi", 1, 8))) == {"index-entry-beyond-log": "deviation"}
    assert codes(judged(times, struct.pack(">qi", 5, 7))) == {"index-timestamp-wrong": "deviation"}
    index.write_bytes(right)
    assert codes(judged(times, struct.pack(">qiqi", 0, 3, 1, 7))) == {"index-timestamp-wrong": "deviation"}
    # No sound batch says what is right.
    written(tmp_path, *batches[:3], batches[3][:-1] + b"!", base=BASE)
    assert judged(times, struct.pack(">qi", 5, 7)).findings == []


def test_zeros_after_the_entries_are_room_for_more(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.timeindex"
    made = judged(path, struct.pack(">qi", 5, 7) + bytes(1200))
    assert (made.count, made.room, made.findings) == (1, 1200, [])
    assert made.outcome == "time index, 1 entry, then 1200 bytes of zeros: room for more"
    assert judged(path, bytes(1200)).count == 0


def test_names_and_contents_tell_what_a_file_is(corpus: Path) -> None:
    assert kind_of(f"{NAME}.index.deleted") is kind_of(f"{NAME}.index")
    for name in (f"{NAME}.log", "my.index", "000.index", "meta.properties", "00000000000000000000.indexx"):
        assert kind_of(name) is None
    expected: list[tuple[Callable[[str], bool], str]] = [
        (lambda name: name.endswith(".snapshot"), "producer snapshot"),
        (lambda name: name == "leader-epoch-checkpoint", "leader epochs"),
    ]
    for fits, title in expected:
        found = [kind_by_content(path.read_bytes()) for path in (corpus / "t-0").iterdir() if fits(path.name)]
        assert found
        assert {kind.title for kind in found if kind} == {title}
    for other in (b"", b"0\n", b"hello\nworld\n", segment()[0]):
        assert kind_by_content(other) is None
    points = kind_by_content(b"0\n1\norders 3 4711\n")
    assert points is not None
    assert points.title == "offsets of partitions"
    assert kind_by_content(b"version: 0\ntopic_id: x\n") is not None
