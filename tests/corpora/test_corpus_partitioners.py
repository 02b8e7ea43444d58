"""Each partition draws the keys that a producer's partitioner puts there; keys of int, long and uuid."""

from __future__ import annotations

import json
import math
import random
import subprocess
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import require_tool
from made_corpora import run
from test_corpus_keys import limit_of, share_of_blocks

import kfuzz
from kfuzz.conformance.broker.real import kafka_tool
from kfuzz.corpora import generated
from kfuzz.corpora.distributions import key_bytes, own_numbers
from kfuzz.corpora.generation import generate
from kfuzz.corpora.partitioners import partition_of
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.statistics import check_statistics, examine
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import HASHING, KIB, Keys, Range, Topic, Values, Workload, parse, render
from kfuzz.corpora.zipf import PRECISION_BITS, SINGLE_RANKS, block_of, table_of_some
from kfuzz.errors import UsageError

COUNTS = (1, 3, 7, 50, 1000)
# A cluster in memory has topics of at most 100 partitions.
LIBRDKAFKA_COUNTS = (*COUNTS[:-1], 100)
LIBRDKAFKA = {"murmur2": "murmur2_random", "crc32": "consistent", "consistent-random": "consistent_random"}


def workload_of(keys: Keys, size: int = 256 * KIB, partitions: int = 3, **values: Any) -> Workload:
    topic = Topic("t", partitions, keys=keys, values=Values(**{"size": Range(8, 8), **values}))
    return Workload(topics=(topic,), size=size)


def rows(workload: Workload) -> Iterator[dict[str, Any]]:
    for batch in generated.read(workload, rows="records", columns=["partition", "offset", "key", "value"]):
        yield from batch.to_pylist()


def number_of(kind: str | None, key: bytes) -> int:
    return int(key) if kind is None else int.from_bytes(key, "big")


def test_murmur2_is_that_of_kafka() -> None:
    # Facts about org.apache.kafka.common.utils.Utils.murmur2.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    for key, found in hashes.items():
        assert partition_of("murmur2", key, 1000) == (found & 0x7FFFFFFF) % 1000


def test_librdkafkas_partitioners_differ_only_for_empty_keys() -> None:
    for name in ("crc32", "consistent-random"):
        assert partition_of(name, b"some key", 7) == zlib.crc32(b"some key") % 7
    assert (partition_of("crc32", b"", 7), partition_of("consistent-random", b"", 7)) == (0, None)


@pytest.mark.parametrize("partitioner", HASHING)
@pytest.mark.parametrize("kind", ["uniform", "zipf", "sequential"])
@pytest.mark.parametrize("type_", [None, "int", "long", "uuid"])
def test_a_partition_has_only_keys_of_its_own(type_: str | None, kind: str, partitioner: str) -> None:
    workload = workload_of(Keys(kind, cardinality=900, type=type_, partitioner=partitioner))
    drawn: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for row in rows(workload):
        drawn[row["partition"]].append(row["key"])
    [topic], seed = workload.topics, Plan(workload)[0].key_seed
    for partition, keys in drawn.items():
        assert {partition_of(partitioner, key, 3) for key in keys} == {partition}
        numbers = own_numbers(topic, seed, partition).tolist()
        assert sorted(numbers) == numbers
        if kind == "sequential" and type_ != "uuid":
            assert [number_of(type_, key) for key in keys] == [numbers[at % len(numbers)] for at in range(len(keys))]
        elif kind != "zipf":
            assert len(set(keys)) > 0.9 * len(numbers)
        if type_ is not None:
            assert set(keys) <= set(key_bytes(topic.keys, seed, own_numbers(topic, seed, partition)).to_pylist())
    assert sum(len(own_numbers(topic, seed, at)) for at in range(3)) == 900


def test_empty_keys_may_be_anywhere_with_consistent_random_and_are_in_one_partition_with_murmur2() -> None:
    found = {}
    for partitioner in ("consistent-random", "murmur2"):
        keys = Keys(size=Range(0, 1), null_share=0.1, partitioner=partitioner)
        found[partitioner] = Counter((row["partition"], row["key"]) for row in rows(workload_of(keys)))
    assert all(found["consistent-random"][at, b""] and found["murmur2"][at, None] for at in range(3))
    assert [at for at in range(3) if found["murmur2"][at, b""]] == [partition_of("murmur2", b"", 3)]


@pytest.mark.parametrize("type_", [None, "int", "long", "uuid"])
def test_keys_of_round_robin_are_those_without_a_partitioner(type_: str | None) -> None:
    keys = Keys("sequential", cardinality=900, type=type_)
    assert list(rows(workload_of(keys))) == list(rows(workload_of(replace(keys, partitioner="round-robin"))))


def test_a_key_in_json_is_a_number_or_a_text() -> None:
    for type_ in ("int", "long", "uuid"):
        shown = bytes.decode if type_ == "uuid" else partial(number_of, type_)
        topic = f'[[topics]]\nname = "t"\n[topics.keys]\ntype = "{type_}"\nnull_share = 0.2\n[topics.values]\n'
        workload = parse(f'size = "64KiB"\n{topic}kind = "json"\nfields = [{{ name = "k", type = "key" }}]\n', "w")
        found = list(rows(workload))
        assert [json.loads(row["value"])["k"] for row in found] == [row["key"] and shown(row["key"]) for row in found]
    assert uuid.UUID(found[-1]["key"].decode()).version == 4


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5])
def test_own_keys_keep_the_proportions_of_zipfs_law(exponent: float) -> None:
    numbers = [number for number in range(3000) if number % 7 == 3 or number > 2900]
    keys = Keys("zipf", cardinality=3000, exponent=exponent, size=Range(8, 8), partitioner="crc32")
    chance = table_chances(numbers, exponent)
    weights = [(number + 1.0) ** -exponent for number in numbers]
    total, kept = math.fsum(weights), math.fsum(chance)
    for weight, found in zip(weights, chance, strict=True):
        assert abs(found / kept / (weight / total) - 1) < 2.0**-26
    assert keys.form == "letters"


def table_chances(numbers: list[int], exponent: float) -> list[float]:
    """The chance of each number in one draw, from the table and the rule that keeps a rank of a block."""
    table = table_of_some(3000, exponent, numbers)
    edges = memoryview(table.edges).cast("I").tolist()
    found = []
    for block, share in enumerate(share_of_blocks(table)[: len(edges) - 1]):
        own = numbers[edges[block] : edges[block + 1]]
        assert own or not share
        for number in own:
            limit = limit_of(table, block_of(block)[0], number + 1) if block >= SINGLE_RANKS else 1 << PRECISION_BITS
            found.append(float(share) / len(own) * limit / (1 << PRECISION_BITS))
    return found


TOPIC = '[[topics]]\nname = "t"\npartitions = 7\n[topics.keys]\n'


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ('partitioner = "murmur3"', "did you mean|choose murmur2"),
        ('partitioner = "murmur2"\ncardinality = 10_000_001', "at most 10000000 of together"),
        ('partitioner = "murmur2"\nsize = 2000', "at most 10000000 of together 1 GiB"),
        ('partitioner = "crc32"\nnull_share = 0.1', 'choose "consistent-random"'),
        ('partitioner = "crc32"\nsize = { min = 0, max = 9 }', 'choose "consistent-random"'),
        ('type = "int"\nsize = 5', "keys.size does not apply to keys of the type"),
        ('type = "int"\ncardinality = 2147483649', 'choose the type "long"'),
        ('type = "short"', "choose int, long or uuid"),
    ],
)
def test_keys_that_cannot_be_are_refused(keys: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse(TOPIC + keys, "w")


def test_a_partition_without_a_key_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.toml").write_text(TOPIC + 'partitioner = "murmur2"\ncardinality = 9\n')
    for command in (["describe"], ["generate", "--out", str(tmp_path / "out")]):
        assert run(command[0], str(tmp_path / "w.toml"), *command[1:]) == 2
        assert "topics[0] (t): the partitioner murmur2 puts none of the 9 keys into" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_workload_without_them_says_nothing_of_types_and_partitioners() -> None:
    assert "partitioner" not in render(parse(TOPIC, "w"))
    workload = parse(TOPIC + 'type = "uuid"\npartitioner = "crc32"\n', "w")
    assert parse(render(workload), "w") == workload
    assert workload.topics[0].keys.size == Range(36, 36)


@pytest.mark.parametrize("kind", ["uniform", "zipf", "sequential"])
def test_statistics_find_keys_in_wrong_partitions(tmp_path: Path, kind: str) -> None:
    workload = workload_of(Keys(kind, cardinality=20_000, type="long", partitioner="murmur2"), 512 * KIB)
    generate(workload, tmp_path / "out")
    corpus = Corpus.open(tmp_path / "out")
    checks, problems = check_statistics(corpus)
    assert problems == []
    assert {"keys.partitioner", {"zipf": "keys.exponent"}.get(kind, "keys.kind")} <= {one.name for one in checks}
    [topic] = workload.topics
    for keys in (
        replace(topic.keys, partitioner="crc32"),
        Keys(kind, cardinality=20_000, type="uuid", partitioner="murmur2"),
    ):
        other = replace(corpus, workload=replace(workload, topics=(replace(topic, keys=keys),)))
        wrong = {one.name for one in examine(other, 0, 1e-9) if not one.is_right}
        assert ("keys.partitioner" if keys.type == "long" else "keys.size") in wrong


def some_keys() -> list[tuple[str, bytes]]:
    """100,000 keys: numbers and UUIDs that a workload has, and random bytes. Each with what Java reads of it."""
    random_bytes = [random.Random(at).randbytes(at % 41) for at in range(1, 70_001)]
    found = [(f"b {key.hex()}", key) for key in random_bytes]
    for type_ in ("int", "long", "uuid"):
        for row in list(rows(workload_of(Keys(type=type_), 2048 * KIB)))[:10_000]:
            shown = row["key"].decode() if type_ == "uuid" else str(number_of(type_, row["key"]))
            found.append((f"{type_[0]} {shown}", row["key"]))
    return found


@pytest.mark.full
@pytest.mark.java
def test_murmur2_and_the_types_agree_with_kafkas_own_classes() -> None:
    for tool in ("java", "javac", "mvn"):
        require_tool(tool, "install a JDK of version 17 or newer and Maven")
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
    with kfuzz.cluster() as brokers:
        settings = {"partitioner": LIBRDKAFKA[partitioner], "linger.ms": 50}
        producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap, **settings})
        for at, count in enumerate(LIBRDKAFKA_COUNTS):
            brokers.topic(f"t{count}", partitions=count)
            for key in keys[at :: len(LIBRDKAFKA_COUNTS)]:
                wanted = partition_of(partitioner, key, count)
                producer.produce(
                    f"t{count}",
                    key=key,
                    on_delivery=lambda error, message, wanted=wanted: found.update(
                        [error is None and wanted in (None, message.partition())]
                    ),
                )
            assert producer.flush(120) == 0
    assert found == {True: 100_000}
