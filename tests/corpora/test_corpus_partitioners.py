"""Each partition draws the keys that a producer's partitioner puts there; keys of int, long and uuid."""

from __future__ import annotations

import json
import random
import subprocess
import uuid
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import require_kafka_build
from test_corpus_keys import limit_of, share_of_blocks

import kfuzz
from kfuzz.conformance.broker.real import kafka_tool
from kfuzz.corpora import generated
from kfuzz.corpora.partition_keys import own_keys
from kfuzz.corpora.partitioners import key_bytes, partition_of
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import HASHING, KIB, Keys, Range, Topic, Values, Workload, parse, render
from kfuzz.corpora.zipf import PRECISION_BITS, SINGLE_RANKS, block_of, table_of_some

COUNTS = (1, 3, 7, 50, 1000)
LIBRDKAFKA = {"murmur2": "murmur2_random", "crc32": "consistent", "consistent-random": "consistent_random"}


def workload_of(keys: Keys, size: int = 256 * KIB) -> Workload:
    return Workload(topics=(Topic("t", partitions=3, keys=keys, values=Values(Range(8, 8))),), size=size)


def rows(workload: Workload) -> list[dict[str, Any]]:
    made = generated.read(workload, rows="records", columns=["partition", "key", "value"])
    return [row for batch in made for row in batch.to_pylist()]


def shown(type_: str, key: bytes) -> Any:
    return key.decode() if type_ == "uuid" else int.from_bytes(key, "big")


def test_the_hashes_are_those_of_kafka_and_of_librdkafka() -> None:
    # Facts about org.apache.kafka.common.utils.Utils.murmur2.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    for key, found in hashes.items():
        assert partition_of("murmur2", key, 1000) == (found & 0x7FFFFFFF) % 1000
    assert {partition_of(name, b"some key", 7) for name in HASHING[1:]} == {zlib.crc32(b"some key") % 7}
    assert [partition_of(name, b"", 7) for name in HASHING[1:]] == [0, None]


@pytest.mark.parametrize("partitioner", HASHING)
@pytest.mark.parametrize("kind", ["uniform", "zipf", "sequential"])
@pytest.mark.parametrize("type_", [None, "int", "long", "uuid"])
def test_a_partition_has_only_keys_of_its_own(type_: str | None, kind: str, partitioner: str) -> None:
    keys = Keys(kind, cardinality=900, type=type_, partitioner=partitioner)
    workload, drawn, count = workload_of(keys), dict[int, list[bytes]]({0: [], 1: [], 2: []}), 0
    seed = Plan(workload)[0].key_seed
    for row in rows(workload):
        drawn[row["partition"]].append(row["key"])
    for partition, found in drawn.items():
        assert {partition_of(partitioner, key, 3) for key in found} == {partition}
        numbers = memoryview(own_keys(keys, seed, 3, partition)).cast("I").tolist()
        own = key_bytes(keys, seed, numbers)
        assert set(found) <= set(own)
        assert kind != "sequential" or found == [own[at % len(own)] for at in range(len(found))]
        assert kind != "uniform" or len(set(found)) > 0.9 * len(own)
        assert type_ not in ("int", "long") or [shown(type_, key) for key in own] == numbers == sorted(numbers)
        count += len(own)
    assert count == 900


def test_empty_keys_may_be_anywhere_with_consistent_random_and_are_in_one_partition_with_murmur2() -> None:
    found = {}
    for partitioner in ("consistent-random", "murmur2"):
        keys = Keys(size=Range(0, 1), null_share=0.1, partitioner=partitioner)
        found[partitioner] = Counter((row["partition"], row["key"]) for row in rows(workload_of(keys)))
    assert all(found["consistent-random"][at, b""] and found["murmur2"][at, None] for at in range(3))
    assert [at for at in range(3) if found["murmur2"][at, b""]] == [partition_of("murmur2", b"", 3)]


def test_keys_of_round_robin_are_those_without_a_partitioner() -> None:
    keys = Keys("sequential", cardinality=900)
    assert rows(workload_of(keys)) == rows(workload_of(replace(keys, partitioner="round-robin")))
    assert "partitioner" not in render(workload_of(keys))


@pytest.mark.parametrize("type_", ["int", "long", "uuid"])
def test_a_key_in_json_is_a_number_or_a_text(type_: str) -> None:
    made = f'size = "64KiB"\n[[topics]]\nname = "t"\n[topics.keys]\ntype = "{type_}"\nnull_share = 0.2\n'
    workload = parse(made + '[topics.values]\nkind = "json"\nfields = [{ name = "k", type = "key" }]', "w")
    assert parse(render(workload), "w") == workload
    found = [(row["key"], json.loads(row["value"])["k"]) for row in rows(workload)]
    assert all(value == (None if key is None else shown(type_, key)) for key, value in found)
    assert type_ != "uuid" or {uuid.UUID(value).version for _, value in found if value} == {4}


@pytest.mark.parametrize(("exponent", "first", "step"), [(0.0, 0, 1), (1.0, 0, 1), (4.0, 3_000_000, 2000)])
def test_own_keys_keep_the_proportions_of_zipfs_law(exponent: float, first: int, step: int) -> None:
    numbers = [first + number * step for number in range(3000) if number % 7 == 3 or number > 2900]
    table, found = table_of_some(first + 3000 * step, exponent, numbers), list[float]()
    edges = memoryview(table.edges).cast("I").tolist()
    for block, share in enumerate(share_of_blocks(table)[: len(edges) - 1]):
        own = numbers[edges[block] : edges[block + 1]]
        assert own or not share
        for number in own:
            limit = limit_of(table, block_of(block)[0], number + 1) if block >= SINGLE_RANKS else 1 << PRECISION_BITS
            found.append(float(share) / len(own) * limit)
    weights = [(number + 1.0) ** -exponent for number in numbers]
    wanted = [weight / sum(weights) for weight in weights]
    assert [one / sum(found) for one in found] == pytest.approx(wanted, rel=2.0**-26)


def some_keys() -> list[tuple[str, bytes]]:
    """100,000 keys: random bytes, and numbers and UUIDs of a workload. Each with what Java makes it from."""
    found = [(f"b {key.hex()}", key) for key in (random.Random(at).randbytes(at % 41) for at in range(70_000))]
    for type_ in ("int", "long", "uuid"):
        keys = [row["key"] for row in rows(workload_of(Keys(type=type_), 2048 * KIB))]
        found += [(f"{type_[0]} {shown(type_, key)}", key) for key in keys[:10_000]]
    return found


@pytest.mark.full
@pytest.mark.java
def test_murmur2_and_the_types_agree_with_kafkas_own_classes() -> None:
    require_kafka_build()
    keys = some_keys()
    command = kafka_tool(str(Path(__file__).with_name("Partitions.java")), *map(str, COUNTS))
    text = "".join(f"{line}\n" for line, _ in keys)
    said = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=True).stdout
    wanted = [" ".join([key.hex(), *(str(partition_of("murmur2", key, one)) for one in COUNTS)]) for _, key in keys]
    assert len(wanted) == 100_000
    assert said.splitlines() == wanted


@pytest.mark.full
@pytest.mark.parametrize("partitioner", HASHING)
def test_the_partitioners_agree_with_those_of_librdkafka(partitioner: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    keys, found = [key for _, key in some_keys()], Counter[bool]()

    def delivered(error: object, message: Any) -> None:
        wanted = partition_of(partitioner, message.key() or b"", int(message.topic()))
        found[error is None and wanted in (None, message.partition())] += 1

    with kfuzz.cluster() as brokers:
        settings = {"bootstrap.servers": brokers.bootstrap, "partitioner": LIBRDKAFKA[partitioner], "linger.ms": 50}
        producer = confluent_kafka.Producer(settings)
        # A topic of such a cluster has at most 100 partitions.
        for at, count in enumerate(min(count, 100) for count in COUNTS):
            brokers.topic(str(count), partitions=count)
            for key in keys[at :: len(COUNTS)]:
                producer.produce(str(count), key=key, on_delivery=delivered)
            assert producer.flush(120) == 0
    assert found == {True: 100_000}
