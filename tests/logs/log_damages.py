"""Damages to a partition's folder, for the tests of logs as a whole: what is found, and what a broker does with it.

The folder has three segments and transactions, and other folders beside it are sound.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import KIB, Batches, Range, Topic, Transactions, Workload
from kfuzz.logs.snapshot import decode, encode

LOADS = "loads it"


@dataclass(frozen=True)
class Damage:
    """``codes``: what is found. ``unclean`` and ``clean``: how what a broker does at its next start begins."""

    make: Callable[[Path], object]
    codes: tuple[str, ...]
    unclean: str = LOADS
    clean: str = LOADS


def make_logs(out: Path) -> list[Path]:
    """A corpus of one partition; the files in it."""
    orders = Topic(
        "orders",
        batches=Batches(records=Range(8, 8)),
        transactions=Transactions(share=0.5, abort_share=0.5, records=40, cross_share=1.0),
    )
    generate(Workload(topics=(orders,), size=96 * KIB, segment_bytes=32 * KIB, seed=3), str(out))
    return sorted((out / "orders-0").iterdir())


def file_of(folder: Path, number: int, suffix: str) -> Path:
    """A file of segment ``number``."""
    log = sorted(folder.glob("*.log"))[number]
    return log.with_suffix(suffix)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def _rename(folder: Path, more: int) -> None:
    """Give the last segment another offset as its name."""
    stem = file_of(folder, -1, "").name
    for path in folder.glob(f"{stem}.[lit]*"):
        path.rename(folder / f"{int(stem) + more:020d}{path.suffix}")


def _without(folder: Path, number: int) -> None:
    for path in folder.glob(f"{file_of(folder, number, '').name}.[lits]*"):
        path.unlink()


def _without_index(folder: Path) -> None:
    _flip(file_of(folder, 0, ".log"), 5000)
    file_of(folder, 0, ".index").unlink()


def _other_producer(folder: Path) -> None:
    path = file_of(folder, 1, ".snapshot")
    producers = decode(path.read_bytes()) or []
    one = producers[0]
    object.__setattr__(one, "last_sequence", one.last_sequence + 1)
    path.write_bytes(encode(producers))


LAST, MIDDLE, FIRST = -1, 1, 0
CUT = "00000000000000000259.log"
DAMAGES = {
    "none": Damage(lambda folder: None, ()),
    "a bit of the last segment": Damage(
        lambda folder: _flip(file_of(folder, LAST, ".log"), 5000), ("crc-mismatch",), "truncates it to offset 556"
    ),
    "a bit of another segment": Damage(
        lambda folder: _flip(file_of(folder, MIDDLE, ".log"), 5000),
        ("crc-mismatch",),
        f"truncates it to offset 298, then deletes the segment after {CUT}",
    ),
    "a bit and no index": Damage(
        _without_index,
        ("crc-mismatch",),
        *2 * (f"rebuilds the indexes of {0:020d}.log, then truncates {0:020d}.log to offset 32",),
    ),
    "no index": Damage(
        lambda folder: file_of(folder, MIDDLE, ".index").unlink(), (), *2 * (f"rebuilds the indexes of {CUT}",)
    ),
    "a refused transaction index": Damage(
        lambda folder: file_of(folder, MIDDLE, ".txnindex").write_bytes(struct.pack(">hqqqq", 3, 1, 1, 2, 3)),
        ("aborted-entry-version-unknown", "aborted-missing", "aborted-unknown", "index-last-offset-low"),
        *2 * (f"rebuilds the indexes of {CUT}",),
    ),
    "no transaction index": Damage(lambda folder: file_of(folder, MIDDLE, ".txnindex").unlink(), ("aborted-missing",)),
    "an unknown aborted transaction": Damage(
        lambda folder: _append(file_of(folder, LAST, ".txnindex"), struct.pack(">hqqqq", 0, 1, 600, 776, 777)),
        ("aborted-unknown",),
    ),
    "a segment is missing": Damage(lambda folder: _without(folder, MIDDLE), ("segment-gap",)),
    "segments overlap": Damage(lambda folder: _rename(folder, -100), ("index-entry-misplaced", "segments-overlap")),
    "an index without a segment": Damage(
        lambda folder: (folder / f"{999:020d}.index").write_bytes(b""), ("segment-missing",)
    ),
    "a snapshot without a segment": Damage(
        lambda folder: (folder / f"{100:020d}.snapshot").write_bytes(file_of(folder, 1, ".snapshot").read_bytes()),
        ("segment-missing",),
    ),
    "an index of zeros": Damage(
        lambda folder: file_of(folder, MIDDLE, ".index").write_bytes(bytes(80)), ("index-of-zeros",)
    ),
    "another sequence in a snapshot": Damage(_other_producer, ("snapshot-mismatch",)),
    "another leader epoch": Damage(
        lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 300\n"), ("leader-epoch-mismatch",)
    ),
    "a partial tail": Damage(
        lambda folder: _append(file_of(folder, LAST, ".log"), bytes(7)),
        (),
        "cuts off the partial batch at the end of 00000000000000000518.log",
    ),
    "no partition.metadata": Damage(
        lambda folder: (folder / "partition.metadata").unlink(),
        ("partition-metadata-missing",),
        *2 * ("renames it to ",),
    ),
}
# With one of these, a broker does not start.
ENDING = {
    "a name above the first batch": Damage(
        lambda folder: _rename(folder, 50),
        (
            "index-entry-beyond-log",
            "index-entry-misplaced",
            "index-last-offset-low",
            "segment-missing",
            "segment-name-high",
        ),
        *2 * ("refuses to start",),
    ),
    "malformed leader epochs": Damage(
        lambda folder: (folder / "leader-epoch-checkpoint").write_text("0\n1\nx y\n"),
        ("checkpoint-line-malformed",),
        *2 * ("refuses to start",),
    ),
    "a malformed partition.metadata": Damage(
        lambda folder: (folder / "partition.metadata").write_text("hello\n"),
        ("checkpoint-line-malformed",),
        *2 * ("refuses to start",),
    ),
    "a folder of another name": Damage(
        lambda folder: (folder.parent / "lost+found").mkdir(), ("folder-unknown",), *2 * ("refuses to start",)
    ),
    "no meta.properties": Damage(
        lambda folder: (folder.parent / "meta.properties").unlink(),
        ("meta-properties-missing",),
        *2 * ("refuses to start",),
    ),
    "no node.id": Damage(
        lambda folder: (folder.parent / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n"),
        ("meta-properties-incomplete",),
        *2 * ("refuses to start",),
    ),
}
