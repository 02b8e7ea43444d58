"""The mutator: the same inputs for ever, every kind, magic and codec among them, and repair that repairs."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import islice

import pytest

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.kafka import Codec
from kfuzz.mutate import KINDS, Mutator
from kfuzz.records import CODECS, Record, RecordBatch
from kfuzz.records.codecs import decompress
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

INPUTS = 20_000
BATCH = records.encode_batch(RecordBatch(5, 7, [Record(5 + i, 1_000, b"key", b"value") for i in range(3)]))


def test_the_first_inputs_of_a_seed_never_change() -> None:
    # Without a codec: compressed bytes change with the libraries' versions.
    digest = hashlib.sha256()
    for data in islice(Mutator(seed=1, codecs=("none",)), 50_000):
        digest.update(len(data).to_bytes(4, "big") + data)
    assert digest.hexdigest() == "c555be33d38e115f00a906c03858b76841b8f90c638075755963b8c025d01855"


def test_the_same_seed_gives_the_same_inputs_and_another_seed_others() -> None:
    first, again, other = (list(islice(Mutator(seed), 1_000)) for seed in (1, 1, 2))
    assert first == again
    assert sum(a == b for a, b in zip(first, other, strict=True)) < 10


def test_an_input_is_had_by_its_number_whatever_was_drawn_before() -> None:
    mutator = Mutator(3, seeds=[BATCH])
    inputs = list(islice(mutator, 100))
    assert [Mutator(3, seeds=[BATCH]).input_at(index) for index in (99, 0, 42)] == [inputs[i] for i in (99, 0, 42)]


def test_every_kind_of_change_and_every_magic_and_codec_occurs() -> None:
    mutator = Mutator(1)
    formats: Counter[tuple[int, str]] = Counter()
    for data in islice(mutator, INPUTS):
        formats.update({(batch.magic, batch.compression) for batch in records.read(data).batches})
    assert set(mutator.kinds) == set(KINDS)
    assert min(mutator.kinds.values()) >= INPUTS // 1000, mutator.kinds
    wanted = {(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"}
    assert set(formats) == wanted
    assert min(formats.values()) >= INPUTS // 200, formats


def test_a_fifth_at_least_is_accepted_and_a_fifth_rejected_for_many_reasons() -> None:
    outcomes = Counter(
        "accepted" if (fatal := records.check(data).fatal) is None else fatal.code
        for data in islice(Mutator(1), INPUTS)
    )
    assert INPUTS // 5 < outcomes["accepted"] < INPUTS * 4 // 5
    assert len(outcomes) > 15, outcomes


def test_repair_is_a_probability() -> None:
    with_mended = [records.check(data).fatal for data in islice(Mutator(1, repair=1), 3_000)]
    without = [records.check(data).fatal for data in islice(Mutator(1, repair=0), 3_000)]
    crc_failures = [sum(f is not None and f.code == "crc-mismatch" for f in run) for run in (with_mended, without)]
    assert crc_failures[0] * 4 < crc_failures[1]


def test_changes_reach_the_records_inside_a_compressed_payload() -> None:
    """Bytes that still decompress, to something else: the change was made before compression."""
    seed = records.encode_batch(
        RecordBatch(0, 2, [Record(i, 1_000, b"key", b"value" * 9) for i in range(3)], compression="lz4")
    )
    payload = decompress("lz4", seed[BATCH_HEADER_SIZE:], 1 << 20).data
    mutator = Mutator(5, repair=1)
    reached = 0
    for _ in range(500):
        out = decompress("lz4", mutator.mutate(seed)[BATCH_HEADER_SIZE:], 1 << 20)
        reached += out.ended == "whole" and out.data != payload
    assert reached > 100


@pytest.mark.parametrize("data", [b"", b"\0", bytes(12), bytes(61), b"\xff" * 100, BATCH[:40]])
def test_bytes_that_are_no_batch_are_mutated_all_the_same(data: bytes) -> None:
    mutator = Mutator(1)
    assert len({mutator.mutate(data) for _ in range(300)}) > 20


def test_a_seed_is_begun_at() -> None:
    marked = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"a mark that no batch has by chance", None)]))
    inputs = list(islice(Mutator(1, seeds=[marked]), 1_000))
    assert 200 < sum(b"a mark that no batch" in data for data in inputs) < 600


def test_wrong_arguments_are_reported() -> None:
    with pytest.raises(UsageError, match=r"repair is 1\.5; give a probability"):
        Mutator(1, repair=1.5)
    with pytest.raises(UsageError, match='and always "none"'):
        Mutator(1, codecs=("gzip",))


def test_mutants_of_mutants_stay_mutable_and_small() -> None:
    """Whatever a mutation makes, the next one takes: the promise is that nothing is raised."""
    mutator = Mutator(9)
    data = BATCH
    for step in range(60_000):
        data = mutator.mutate(data) if step % 12 else mutator.input()
        assert len(data) < 1 << 20


@pytest.mark.parametrize(
    ("codec", "parts"),
    [
        # An empty member, and a stored block of no bytes after the header.
        ("gzip", ["1f8b08000000000000ff0300" + "00" * 8, "1f8b08000000000000ff000000ffff"]),
        # A chunk of no bytes, one with an empty block, and another header.
        ("snappy", ["0000000100000001" + part for part in ("00000000", "0000000100", "82534e4150505900")]),
        # An empty frame, a stored block of no bytes, and a frame to skip.
        ("lz4", ["04224d1860408200000000", "04224d1860408200000080", "502a4d1800000000"]),
        ("zstd", ["28b52ffd2000010000", "28b52ffd0038000000", "502a4d1800000000"]),
    ],
)
def test_payloads_get_parts_that_hold_nothing(codec: Codec, parts: list[str]) -> None:
    seed = records.encode_batch(RecordBatch(0, 1, [Record(i, 1, b"k", b"value") for i in range(2)], compression=codec))
    mutator = Mutator(1, seeds=[seed])
    made = [mutator.input_at(i) for i in range(2 * INPUTS)]
    for part in parts:
        assert any(bytes.fromhex(part) in data for data in made), part
