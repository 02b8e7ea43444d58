"""Parts that tests of corpora share: topics, corpora that are made once, segments in memory, digests of files."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from kfuzz import logs, records
from kfuzz.cli.main import main
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Segment
from kfuzz.corpora.segment import synthesiser
from kfuzz.corpora.workload import Batches, Producers, Range, Topic, Transactions, Values, Workload
from kfuzz.records import RecordBatch

# The workload with a bit of everything: all codecs and magics, headers, producers and transactions.
MIXED = Path(__file__).parents[1] / "spark_jobs" / "workloads" / "mixed.toml"
BUSY = Topic(
    "busy",
    partitions=3,
    leader_epoch_offsets=700,
    values=Values(size=Range(0, 60)),
    batches=Batches(records=Range(1, 9)),
    producers=Producers(count=2, share=0.3, epoch_records=500, first_sequence=2**31 - 100),
    transactions=Transactions(
        producers=3,
        share=0.5,
        records=20,
        abort_share=0.4,
        partitions=2,
        cross_share=0.6,
        epoch_transactions=11,
        coordinator_epoch_transactions=17,
        first_sequence=2**31 - 50,
    ),
)

# Two partitions with transactions that all abort.
ABORTING = Topic("t", partitions=2, transactions=Transactions(producers=1, share=0.5, records=50, abort_share=1.0))


class SegmentBytes(NamedTuple):
    """The contents of a segment's files; ``transaction_index`` is empty if no transaction was aborted."""

    log: bytes
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes


def generate_segment(segment: Segment, workload: Workload) -> SegmentBytes:
    """The files of ``segment`` in memory."""
    making = synthesiser(segment, workload.index_interval_bytes)
    log = b"".join(bytes(making.view[:used]) for used in iter(making.fill, 0))
    return SegmentBytes(log, making.offset_index_bytes(), making.time_index_bytes(), making.transaction_index_bytes())


def batches_of(segment: Segment, workload: Workload) -> list[RecordBatch]:
    """The batches of ``segment``, which have no finding."""
    reading = records.read(generate_segment(segment, workload).log, profile="strict")
    assert reading.findings == []
    assert not reading.partial_tail
    return reading.batches


def once(workload: Workload, scope: Any = "module") -> Any:
    """A fixture: the folder of this corpus, which is made once."""

    @pytest.fixture(scope=scope)
    def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
        out = tmp_path_factory.mktemp("made") / "out"
        generate(workload, out)
        return out

    return made


def copy_of(name: str) -> Any:
    """A fixture: the folder of the fixture ``name``, copied for a test that changes it."""

    @pytest.fixture
    def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        return Path(shutil.copytree(request.getfixturevalue(name), tmp_path / "copy"))

    return copied


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of Arrow batches."""
    return [row for batch in batches for row in batch.to_pylist()]


def in_ms(found: Iterable[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """The rows with the timestamps of a column in milliseconds."""
    return [row | {column: row[column] and round(row[column].timestamp() * 1000)} for row in found]


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Change some bits of a byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def run(*arguments: object) -> int:
    """The exit code of ``kfuzz corpus ARGUMENTS…``."""
    with pytest.raises(SystemExit) as caught:
        main(["corpus", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def digests(out: Path) -> dict[str, str]:
    """The SHA-256 of each file below ``out``, by its path there. It uses nothing of kfuzz."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def fates(log: Path) -> dict[int, tuple[bool, bool]]:
    """For each record: whether it is aborted, and whether a reader in ``read_committed`` sees it."""
    rows = [row for part in logs.read(log, columns=["offset", "aborted", "control"]) for row in part.to_pylist()]
    seen = {row["offset"] for part in logs.read(log, isolation="read_committed") for row in part.to_pylist()}
    return {row["offset"]: (row["aborted"], row["offset"] in seen) for row in rows if not row["control"]}
