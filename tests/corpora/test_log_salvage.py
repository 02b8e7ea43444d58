"""kfuzz salvage: keeps the sound batches byte for byte, makes Kafka's indexes, and says what was lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_corpora import BUSY, digests, once

from kfuzz import records
from kfuzz.corpora.workload import Workload
from kfuzz.errors import UsageError
from kfuzz.findings import Finding
from kfuzz.logs import salvaging
from kfuzz.logs.salvaging import Salvaged, salvage
from kfuzz.records import Record, RecordBatch
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


def written(folder: Path, *pieces: bytes, name: str = "00000000000000000000.log") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join(pieces))
    return path


def batch(offset: int, value: bytes = b"v") -> bytes:
    return records.encode([RecordBatch(offset, offset, [Record(offset, 1, b"k", value)])])


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
    bad = places[3:90:7]
    for at, size in bad:
        data[at + size // 2 + 20] ^= 0x40
    path = written(tmp_path / "busy-0", data)
    one = only(path, tmp_path / "copy")
    assert [(lost.at, lost.size) for lost in one.lost] == bad
    assert all("crc-mismatch" in lost.reason for lost in one.lost)
    wanted = b"".join(data[at : at + size] for at, size in places if (at, size) not in bad)
    assert one.copy.read_bytes() == wanted
    assert (one.batches, one.kept_bytes) == (len(places) - len(bad), len(wanted))


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x0c", b"\0\0\0\x60"])
def test_a_wrong_length_costs_only_its_batch(tmp_path: Path, length: bytes) -> None:
    bad = batch(1)
    path = written(tmp_path / "t-0", batch(0), bad[:8] + length + bad[12:], batch(2), batch(3))
    one = only(path, tmp_path / "copy")
    assert one.copy.read_bytes() == batch(0) + batch(2) + batch(3)
    assert [(lost.at, lost.size) for lost in one.lost] == [(len(batch(0)), len(bad))]
    assert (one.first_offset, one.next_offset) == (0, 4)


def test_a_batch_inside_a_value_of_a_bad_batch_is_not_taken_for_one_of_the_log(tmp_path: Path) -> None:
    bad = bytearray(batch(1, batch(7, b"inner")))
    bad[-1] ^= 1
    path = written(tmp_path / "t-0", batch(0), bytes(bad), batch(2))
    assert only(path, tmp_path / "copy").copy.read_bytes() == batch(0) + batch(2)


def test_a_cut_tail_is_lost(tmp_path: Path) -> None:
    one = only(written(tmp_path / "t-0", batch(0), batch(1)[:-5]), tmp_path / "copy")
    assert one.copy.read_bytes() == batch(0)
    assert one.lost[0].reason == f"the last {len(batch(1)) - 5} bytes are not a whole batch"


def test_a_batch_at_which_a_broker_would_stop_is_left_out(tmp_path: Path) -> None:
    vector = find_vector("records/v2/control/key-null")
    assert records.check(vector.data).fatal is None
    assert records.check(vector.data, role="log").fatal is not None
    one = only(written(tmp_path / "t-0", vector.data, batch(50)), tmp_path / "copy")
    assert one.copy.read_bytes() == batch(50)
    assert one.lost[0].reason.startswith("a broker that loads it stops:")


def test_a_file_of_nothing_but_damage_becomes_an_empty_segment(tmp_path: Path) -> None:
    one = only(written(tmp_path / "t-0", b"\x55" * 5000), tmp_path / "copy")
    assert one.copy.read_bytes() == b""
    assert one.lost_bytes == 5000
    assert (one.first_offset, one.batches) == (None, 0)


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
    path = written(tmp_path / "t-0", *(batch(offset, b"v" * 60) for offset in offsets))
    refused = salvaging._refused
    rounds: list[Path] = []

    def counted(copy: Path) -> tuple[int, Finding] | None:
        rounds.append(copy)
        return refused(copy)

    monkeypatch.setattr(salvaging, "_refused", counted)
    made = only(path.parent, tmp_path / "out")
    assert len(rounds) < 10
    kept = records.check(made.copy.read_bytes(), role="log")
    assert (kept.fatal, kept.batch_count) == (None, made.batches)
    assert made.kept_bytes + made.lost_bytes == path.stat().st_size
    assert made.batches > 0
