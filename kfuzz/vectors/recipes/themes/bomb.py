"""Bombs: batches too large to be committed, each named by a recipe."""

from __future__ import annotations

from typing import Any

from kfuzz.vectors.recipes.making.bombs import MIB, RAWS, VALUE_BYTES, raw_of
from kfuzz.vectors.recipes.theme import Theme

# Bounded readers stop at 64 MiB or so; a client that takes the bomb whole needs all of this and its copies.
REFUSAL = {"cpu_ms": 10_000, "memory_bytes": 256 * MIB}


def theme() -> Theme:
    """records/v2/bomb"""
    made = Theme("records/v2/bomb", "Batches too large to be committed, most of them small before decompression.")
    made.flag(
        "Bomb",
        "allocation",
        "A small payload decompresses to hundreds of megabytes or more.",
        "A reader that decompresses before it looks runs out of memory, and so does the next one.",
        links=["KAFKA-14063", "kafkajs #1795", "sarama #3604"],
    )
    # No document bounds what a reader may take, so one that takes more is told and not failed.
    options: dict[str, Any] = {"flags": ["Bomb"], "level": "recommended", "budget": REFUSAL}
    made.flag(
        "ManyRecords",
        "strictness",
        "A batch holds more records than some readers think there can be.",
        "A reader with a limit of its own, below that of the bytes, stops at a batch that every broker serves.",
        links=["sarama #3120", "sarama #3119", "sarama #1225"],
    )
    for name in RAWS:
        raw = raw_of(name)
        if name.startswith("records-"):
            made.valid(
                name,
                "131,071 records of nothing in one batch, more than twice what 16 bits count",
                raw,
                requirements=["RB-COUNT-2", "RB-CODEC-7"],
                flags=["ManyRecords"],
                budget={"cpu_ms": 20_000, "memory_bytes": 256 * MIB},
                bomb=name,
            )
        elif name.endswith("behind-record"):
            made.invalid(
                name,
                f"one small record, then zeros without end: {_size(name)} of them for {len(raw.data) // 1024} KiB",
                raw,
                requirements=["RB-CODEC-7", "RB-COUNT-2"],
                finding="record-count-too-low" if "snappy" in name else "decompressed-size-exceeded",
                bomb=name,
                **options,
            )
        elif name.endswith("without-record"):
            made.acceptable(
                name,
                f"the record count is 0, and {_size(name)} of zeros are compressed behind it; Kafka does not look",
                raw,
                requirements=["RB-CODEC-7", "RB-COUNT-3"],
                finding="payload-without-records",
                bomb=name,
                **options,
            )
        else:
            made.acceptable(
                name,
                f"one well-formed record with a value of {_size(name)} of zeros, under {name.partition('-')[0]}",
                raw,
                requirements=["RB-CODEC-7"],
                finding="decompressed-size-exceeded",
                bomb=name,
                **options | {"budget": {"cpu_ms": 20_000, "memory_bytes": 8 * VALUE_BYTES}},
            )
    return made


def _size(name: str) -> str:
    part = next(part for part in name.split("-") if part.endswith("ib"))
    return f"{part[:-3]} {part[-3].upper()}iB"
