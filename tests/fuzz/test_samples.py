"""The pipe that carries a sample of a campaign's inputs to another reader."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kfuzz.fuzz import sample_pipe
from kfuzz.fuzz.oracle import OracleFailure
from kfuzz.fuzz.sample_pipe import PIPE_BYTES, SIZE, WHOLE_BYTES, Sampler, Samples
from kfuzz.fuzz.tiers import First, Tiers

# One in so many inputs is a sample.
SAMPLED = 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples"


def everything(samples: Samples) -> list[bytes]:
    found: list[bytes] = []
    while some := samples.take(0):
        found += some
    return found


def test_inputs_of_two_writers_arrive_whole_and_each_writers_in_order(path: Path) -> None:
    samples = Samples(path)
    inputs = [[bytes([who]) * size for size in (1, 300, WHOLE_BYTES - SIZE.size, 7)] for who in (1, 2)]

    def write(mine: list[bytes]) -> None:
        sampler = Sampler(str(path), waits=True)
        for data in mine:
            sampler(data)

    writers = [threading.Thread(target=write, args=(mine,)) for mine in inputs]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = everything(samples)
    assert [[data for data in found if data[0] == who] for who in (1, 2)] == inputs
    samples.close()


def test_a_full_pipe_leaves_inputs_out_and_never_a_part_of_one(path: Path) -> None:
    samples = Samples(path)
    sampler = Sampler(str(path), waits=False)
    data = bytes(range(256)) * 11
    for _ in range(2 * PIPE_BYTES // len(data)):
        sampler(data)
    found = everything(samples)
    assert set(found) == {data}
    assert len(found) < 2 * PIPE_BYTES // len(data)
    # Then there is room again.
    sampler(b"next")
    assert samples.take(0) == [b"next"]
    samples.close()


def test_a_writer_that_waits_leaves_nothing_out(path: Path) -> None:
    samples = Samples(path)
    count = 2 * PIPE_BYTES // 1000
    sampler = Sampler(str(path), waits=True)
    writer = threading.Thread(target=lambda: [sampler(bytes(1000)) for _ in range(count)])
    writer.start()
    found: list[bytes] = []
    while len(found) < count:
        some = samples.take(10)
        assert some
        found += some
    writer.join()
    assert len(found) == count
    samples.close()


def test_a_writer_does_not_wait_for_a_reader_that_hangs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_pipe, "WAIT_S", 0.2)
    samples = Samples(path)
    sampler = Sampler(str(path), waits=True)
    for _ in range(2 * PIPE_BYTES // 1000):
        sampler(bytes(1000))
    assert PIPE_BYTES // 2 < 1000 * len(everything(samples)) < PIPE_BYTES
    samples.close()


def test_an_input_that_is_too_long_is_left_out(path: Path) -> None:
    samples = Samples(path)
    sampler = Sampler(str(path), waits=True)
    sampler(bytes(WHOLE_BYTES))
    sampler(b"short")
    assert everything(samples) == [b"short"]
    samples.close()


def test_a_writer_continues_when_the_reader_is_gone(path: Path) -> None:
    samples = Samples(path)
    sampler = Sampler(str(path), waits=True)
    samples.close()
    sampler(b"first")
    sampler(b"second")


@pytest.mark.parametrize("waits", [False, True])
def test_a_writer_that_begins_without_a_reader_does_not_wait_for_one(path: Path, waits: bool) -> None:
    Samples(path).close()
    Sampler(str(path), waits=waits)(b"left out")


def test_one_in_so_many_inputs_is_a_sample_unless_it_fails() -> None:
    got: list[bytes] = []

    def second(data: bytes) -> None:
        if data == b"32":
            raise OracleFailure("no")

    failed: list[bytes] = []
    tiers = Tiers(First(), second, True, lambda data, error: failed.append(data), got.append)
    for i in range(1, 100):
        tiers(b"%d" % i)
    assert got == [b"%d" % i for i in range(SAMPLED, 100, SAMPLED) if i != 32]
    assert failed == [b"32"]
