"""Compression ratios: what the real libraries reach, and what is fixed when a corpus is begun."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from made_corpora import batches_of, generate_segment

from kfuzz import kafka
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import (
    KIB,
    MIB,
    Batches,
    Headers,
    Keys,
    Legacy,
    Producers,
    Range,
    Topic,
    Transactions,
    Values,
    Workload,
    load,
    parse,
    render,
)
from kfuzz.errors import UsageError
from kfuzz.kafka import Codec
from kfuzz.records.codecs import decompress
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

HUNDRED = Range(100, 100)
CODECS = ("gzip", "snappy", "lz4", "zstd")
# Sizes of values, records in a batch, the highest ratio for which every codec has room beside keys and framing.
SHAPES: dict[str, tuple[Range, Range, float]] = {
    "small": (Range(100, 100), Range(100, 100), 3.5),
    "mixed": (Range(50, 3000, 2), Range(1, 400, 2), 6),
    "large": (Range(1000, 1000), Range(50, 50), 8),
    "huge": (Range(60_000, 60_000), Range(3, 3), 8),
}


def workload_of(values: Values, codecs: tuple[str, ...], count: Range = HUNDRED) -> Workload:
    topic = Topic("t", values=values, batches=Batches(count, tuple((codec, 1) for codec in codecs)))
    return Workload(topics=(topic,), size=8 * MIB, segment_bytes=2 * MIB, seed=42)


def payloads(workload: Workload) -> Iterator[tuple[Codec, int, int]]:
    """The codec of each batch, and its payload's size as it stands and decompressed."""
    plan = Plan(workload)
    for segment in (plan[0], plan[len(plan) - 1]):
        log = generate_segment(segment, workload).log
        at = 0
        while at < len(log):
            length, attributes = struct.unpack_from(">8xi9xh", log, at)
            payload = log[at + BATCH_HEADER_SIZE : at + 12 + length]
            codec = kafka.CODECS[attributes & 7]
            whole = decompress(codec, payload, 64 * MIB)
            assert whole.ended == "whole"
            yield codec, len(payload), len(whole.data)
            at += 12 + length


def ratios(workload: Workload) -> dict[str, float]:
    packed, plain = Counter[str](), Counter[str]()
    for codec, small, large in payloads(workload):
        packed[codec] += small
        plain[codec] += large
    return {codec: plain[codec] / packed[codec] for codec in packed}


@pytest.mark.parametrize("kind", ["random", "text"])
@pytest.mark.parametrize(
    ("shape", "ratio"),
    [
        pytest.param(name, ratio, marks=() if ratio in (1.2, highest) else pytest.mark.full)
        for name, (_, _, highest) in SHAPES.items()
        for ratio in (1.2, 2, 3.5, 6, 8)
        if ratio <= highest
    ],
)
def test_every_codec_meets_the_ratio_within_ten_percent(shape: str, kind: str, ratio: float) -> None:
    size, count, _ = SHAPES[shape]
    workload = resolve(workload_of(Values(kind=kind, size=size, ratio=ratio), CODECS, count))
    assert ratios(workload) == pytest.approx(dict.fromkeys(CODECS, ratio), rel=0.1)


@pytest.mark.parametrize(("ratio", "period"), [(1.9, 128), (2, 512), (2.9, 512)])
def test_what_repeats_nothing_is_in_short_runs_only_if_little_repeats(ratio: float, period: int) -> None:
    workload = resolve(workload_of(Values(size=Range(60_000, 60_000), ratio=ratio), ("gzip",), Range(3, 3)))
    value = batches_of(Plan(workload)[0], workload)[0].records[0].value
    assert value is not None
    repeats = [value[at : at + 16] == value[at + 8 : at + 24] for at in range(len(value) - 24)]
    begins = [at for at in range(1, len(repeats)) if repeats[at] and not repeats[at - 1]]
    distances = Counter(later - earlier for earlier, later in pairwise(begins))
    assert distances.most_common(1)[0][0] == period


def test_the_ratio_holds_beside_everything_else_that_a_topic_may_have() -> None:
    topic = Topic(
        "t",
        keys=Keys(kind="zipf", null_share=0.2),
        values=Values(size=Range(200, 900), ratio=2.5, null_share=0.1),
        headers=Headers(share=0.3),
        batches=Batches(Range(20, 200), (("none", 1), ("lz4", 2), ("zstd", 2))),
        producers=Producers(share=0.3),
        transactions=Transactions(share=0.3, records=200),
    )
    workload = resolve(Workload(topics=(topic,), size=8 * MIB, segment_bytes=4 * MIB))
    found = ratios(workload)
    assert found.pop("none") == 1
    assert found == pytest.approx({"lz4": 2.5, "zstd": 2.5}, rel=0.1)
    # Uncompressed batches are no special ones.
    assert dict(workload.topics[0].values.fresh_bytes).keys() == {"lz4", "zstd"}


def test_text_with_a_ratio_is_printable_and_its_repetitions_are_words() -> None:
    workload = resolve(workload_of(Values(kind="text", size=Range(600, 600), ratio=3), ("zstd",)))
    batch = batches_of(Plan(workload)[0], workload)[0]
    text = b"".join(record.value or b"" for record in batch.records)
    assert min(text) >= 32
    assert max(text) <= 126
    assert b"ancient" in text or b"brittle" in text


def test_batches_of_the_old_formats_have_the_ratio_of_their_codec() -> None:
    topic = Topic(
        "t", values=Values(size=Range(500, 500), ratio=4), legacy=Legacy(magic0=0.5, magic1=0.5, codecs=(("gzip", 1),))
    )
    workload = resolve(Workload(topics=(topic,), size=2 * MIB, segment_bytes=MIB))
    assert len(generate_segment(Plan(workload)[0], workload).log) == pytest.approx(MIB / 4, rel=0.1)


@pytest.mark.parametrize(
    ("values", "count", "words"),
    [
        (Values(size=Range(100, 100), ratio=8), 100, ["ratio is 8", "at most", "raise batches.records or values.size"]),
        (Values(size=Range(20, 20), ratio=1.2), 1, ["ratio is 1.2", "lz4 reaches at most", "lower ratio"]),
        (Values(size=Range(0, 0), ratio=4), 100, ["ratio is 4", "at most"]),
    ],
    ids=["no room beside keys", "batches of one", "empty values"],
)
def test_a_ratio_that_cannot_be_met_is_refused_with_what_can(values: Values, count: int, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(workload_of(values, ("lz4",), Range(count, count)), name="w.toml")
    sentence = str(caught.value)
    assert sentence.startswith("w.toml: topics[0].values.ratio")
    assert [word for word in words if word not in sentence] == []


def test_nothing_is_generated_before_the_ratio_is_resolved() -> None:
    workload = workload_of(Values(ratio=2), ("lz4",))
    with pytest.raises(UsageError, match=r"topic t: values\.ratio is not resolved"):
        generate_segment(Plan(workload)[0], workload)


def test_a_resolved_workload_is_returned_as_it_is_and_others_change_nothing_but_what_is_open() -> None:
    workload = workload_of(Values(ratio=2), ("gzip", "lz4"))
    resolved = resolve(workload)
    assert resolve(resolved) is not workload
    assert resolve(resolved) == resolved
    values = resolved.topics[0].values
    assert [codec for codec, _ in values.fresh_bytes] == ["gzip", "lz4"]
    assert replace(resolved, topics=(replace(resolved.topics[0], values=workload.topics[0].values),)) == workload
    assert parse(render(resolved), "again") == resolved
    plain = workload_of(Values(), ("lz4",))
    assert resolve(plain) == plain


def test_a_begun_corpus_keeps_its_numbers_whatever_the_libraries_become(tmp_path: Path) -> None:
    workload = replace(workload_of(Values(ratio=2), ("lz4",)), size=256 * KIB, segment_bytes=128 * KIB)
    rows = list(generate(workload, tmp_path / "out"))
    assert verify(tmp_path / "out") == []
    begun = load(tmp_path / "out" / "_workload.toml")
    [(codec, fresh)] = begun.topics[0].values.fresh_bytes
    assert codec == "lz4"
    # A corpus that was begun with another library may have another number.
    other = replace(begun.topics[0], values=replace(begun.topics[0].values, fresh_bytes=(("lz4", fresh + 5),)))
    (tmp_path / "out" / "_workload.toml").write_text(render(replace(begun, topics=(other,))))
    for name in ("_manifest", "t-0"):
        shutil.rmtree(tmp_path / "out" / name)
    (tmp_path / "out" / "_SUCCESS").unlink()
    again = generate(workload, tmp_path / "out", resume="sizes")
    assert dict(load(tmp_path / "out" / "_workload.toml").topics[0].values.fresh_bytes) == {"lz4": fresh + 5}
    assert [row.fingerprint for row in again] != [row.fingerprint for row in rows]
    assert verify(tmp_path / "out") == []
    # Another workload does not take them over.
    changed = replace(workload, topics=(replace(workload.topics[0], values=Values(size=Range(900, 900), ratio=2)),))
    generate(changed, tmp_path / "out", overwrite=True)
    assert load(tmp_path / "out" / "_workload.toml") == resolve(changed)
