"""Damages to a partition's folder, from damages.toml. The folder has three segments and transactions."""

from __future__ import annotations

import shutil
import struct
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from made_segments import bad

from kfuzz.corpora.workload import KIB, Batches, Range, Topic, Transactions, Workload
from kfuzz.logs.snapshot import decode, encode

Damage = dict[str, Any]
ALL: Final[dict[str, Damage]] = tomllib.loads(Path(__file__).with_name("damages.toml").read_text())


def ends(damage: Damage, *, is_clean: bool) -> bool:
    """Whether a broker does not start with it."""
    return damage.get("ends") in (True, "clean" if is_clean else "unclean")


TRANSACTIONS: Final = Transactions(share=0.5, abort_share=0.5, records=40, cross_share=1.0)
ORDERS: Final = Topic("orders", batches=Batches(records=Range(8, 8)), transactions=TRANSACTIONS)
# One partition.
LOGS: Final = Workload(topics=(ORDERS,), size=96 * KIB, segment_bytes=32 * KIB, seed=3)


def _content(value: Any) -> bytes:
    if isinstance(value, list):
        return struct.pack(">hqqqq", *value)
    return value.encode() if isinstance(value, str) else bytes(value)


def make(damage: Damage, folder: Path) -> None:
    """Damage the partition in ``folder``."""
    stems = [path.stem for path in sorted(folder.glob("*.log"))]

    def at(name: str) -> Path:
        return folder / name.format(*stems)

    if "flip" in damage:
        number, byte = damage["flip"]
        log = folder / f"{stems[number]}.log"
        log.write_bytes(bad(log.read_bytes(), byte))
    for name, (byte, value) in damage.get("set", {}).items():
        data = bytearray(at(name).read_bytes())
        data[byte : byte + len(value) // 2] = bytes.fromhex(value)
        at(name).write_bytes(data)
    for name, size in damage.get("keep", {}).items():
        at(name).write_bytes(at(name).read_bytes()[:size])
    for name in damage.get("remove", ()):
        at(name).unlink()
    for name, value in damage.get("write", {}).items():
        at(name).write_bytes(_content(value))
    for name, value in damage.get("append", {}).items():
        at(name).write_bytes(at(name).read_bytes() + _content(value))
    if "copy" in damage:
        shutil.copy(*map(at, damage["copy"]))
    for path in sorted(folder.glob(f"{stems[-1]}.[lit]*")) if "rename" in damage else ():
        path.rename(folder / f"{int(stems[-1]) + damage['rename']:020d}{path.suffix}")
    if "folder" in damage:
        at(damage["folder"]).mkdir()
    if "producer" in damage:
        first, *others = decode(at(damage["producer"]).read_bytes()) or []
        changed = replace(first, last_sequence=first.last_sequence + 1)
        at(damage["producer"]).write_bytes(encode([changed, *others]))
