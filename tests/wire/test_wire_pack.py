"""Streams that are compressed without Python have the bytes that the libraries' Python packages write."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from made_corpora import generate_segment

from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import KIB, Batches, Legacy, Range, Topic, Values, Workload
from kfuzz.kafka import CODECS, Codec
from kfuzz.records.codecs import LZ4_LIBRARY, ZSTD_LIBRARY, compress
from kfuzz.wire.io import pack

RNG = random.Random(7)
WORDS = [RNG.randbytes(RNG.randint(2, 9)) for _ in range(300)]
SIZES = (0, 1, 100, 12_000, 65_535, 65_536, 65_537, 300_000)
CONTENTS = [
    content
    for size in SIZES
    for content in (RNG.randbytes(size), b"".join(RNG.choices(WORDS, k=size // 2 + 1))[:size], bytes(size))
]
HERE: tuple[Codec, ...] = ("lz4", "zstd")


def test_the_libraries_are_found() -> None:
    assert [CODECS[found] for found in pack.codecs()] == list(HERE)


@pytest.mark.parametrize("codec", HERE)
def test_the_bytes_are_those_of_the_python_packages(codec: Codec) -> None:
    for content in CONTENTS:
        assert pack.packed(CODECS.index(codec), content) == compress(codec, content)


def test_other_codecs_are_left_to_python() -> None:
    for codec in set(CODECS) - set(HERE):
        assert pack.packed(CODECS.index(codec), b"x") is None


@pytest.fixture
def no_libraries() -> Iterator[None]:
    pack.use(None, None)
    yield
    pack.use(LZ4_LIBRARY, ZSTD_LIBRARY)
    assert [CODECS[found] for found in pack.codecs()] == list(HERE)


MIX = tuple((codec, 1) for codec in CODECS)
WORKLOADS = [
    Workload(topics=(Topic("t", values=Values(kind=kind), batches=batches, legacy=legacy),), size=400 * KIB)
    for kind in ("text", "random")
    for batches in (Batches(codecs=MIX), Batches(records=Range(1, 2000), codecs=MIX))
    for legacy in (Legacy(), Legacy(magic1=1.0, codecs=MIX), Legacy(magic0=1.0, codecs=MIX[1:4]))
]


def made() -> list[bytes]:
    return [generate_segment(Plan(workload)[0], workload).log for workload in WORKLOADS]


def test_a_corpus_is_the_same_without_them(request: pytest.FixtureRequest) -> None:
    native = made()
    assert all(native)
    request.getfixturevalue("no_libraries")
    assert pack.codecs() == []
    assert made() == native
