"""Bombs: batches too large to commit; each vector names a recipe instead of bytes."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.bombs import MIB, RAWS, VALUE_BYTES, raw_of
from kfuzz.vectors.recipes.theme import Theme

# A reader with a limit stops at about 64 MiB. A client without one needs memory for the whole bomb and its copies.
REFUSAL = {"cpu_ms": 10_000, "memory_bytes": 256 * MIB}


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/bomb.json``."""
    made = Theme("records/v2/bomb", "Batches too large to commit as bytes. Most are small before decompression.")
    # No document limits a reader's memory, so a reader that takes more gets a warning, not a failure.
    bomb = made.flag("Bomb", level="recommended", budget=REFUSAL)
    for name in RAWS:
        raw = raw_of(name)
        if name.startswith("records-"):
            made.flag("ManyRecords").valid(
                name,
                "one batch holds 131,071 empty records, twice as many as a 16-bit number can count",
                raw,
                requirements=["RB-COUNT-2", "RB-CODEC-7"],
                budget={"cpu_ms": 20_000, "memory_bytes": 256 * MIB},
                bomb=name,
            )
        elif name.endswith("behind-record"):
            bomb.invalid(
                name,
                f"{len(raw.data) // 1024} KiB decompress to one small record and {_size(name)} of zeros",
                raw,
                requirements=["RB-CODEC-7", "RB-COUNT-2"],
                finding="record-count-too-low" if "snappy" in name else "decompressed-size-exceeded",
                bomb=name,
            )
        elif name.endswith("without-record"):
            bomb.acceptable(
                name,
                f"the record count is 0, but {_size(name)} of zeros are in the payload; Kafka does not read it",
                raw,
                requirements=["RB-CODEC-7", "RB-COUNT-3"],
                finding="payload-without-records",
                bomb=name,
            )
        else:
            bomb.acceptable(
                name,
                f"one well-formed {name.partition('-')[0]} record has a value of {_size(name)} of zeros",
                raw,
                requirements=["RB-CODEC-7"],
                finding="decompressed-size-exceeded",
                bomb=name,
                budget={"cpu_ms": 20_000, "memory_bytes": 8 * VALUE_BYTES},
            )
    return made


def _size(name: str) -> str:
    part = next(part for part in name.split("-") if part.endswith("ib"))
    return f"{part[:-3]} {part[-3].upper()}iB"
