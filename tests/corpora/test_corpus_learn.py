"""``kfuzz corpus learn`` makes a workload like a log, and copies nothing of its contents."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from conftest import require_kafka_build
from made_corpora import run
from made_segments import bad, batch, written

from kfuzz import logs, records
from kfuzz.annotate.listing import Listing, codec_name
from kfuzz.conformance.broker.real import Broker
from kfuzz.corpora import workload as workloads
from kfuzz.corpora.generation import generate
from kfuzz.corpora.learned_fields import two_digits
from kfuzz.corpora.observed import KEYS_MAX, KeyCounts
from kfuzz.corpora.statistics import check_statistics
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import MIB, Keys, Range, Topic, Values, Workload
from kfuzz.logs.segments import find_segments
from kfuzz.records import Record, RecordBatch
from kfuzz.storage import Target
from kfuzz.wire.io.layout import CONTROL

HOUR_MS = 3_600_000
# Midnight.
FIRST_MS = 1_700_006_400_000
MARKER: dict[str, Any] = {"transactional": True, "control": True, "producer_id": 7, "producer_epoch": 0}
CITIES = ("Amsterdam", "Kuala Lumpur", "Reykjavik", "Ouagadougou", "Rome")


def orders(count: int) -> list[Record]:
    """JSON orders of customers, some of them hot; every tenth is a tombstone. They come more often in the morning."""
    dice = Random(5)
    made = []
    for at in range(count):
        key = b"customer-%04d" % min(int(dice.paretovariate(0.7)), 1500)
        order = {
            "id": at + 12345,
            "city": dice.choice(CITIES),
            "paid": dice.random() < 0.25,
            "sum": at % 977 / 100,
            "customer": key.decode(),
            "note": f"secret note {dice.randrange(10**6):06d} " * dice.choice((1, 1, 1, 2)),
            "lines": [{"article": f"article-{dice.randrange(999):03d}"}],
        }
        day, part = divmod(at * 2 / count, 1)
        ms = FIRST_MS + int((day + part * part) * 24 * HOUR_MS) - 600_000 * (at % 50 == 0)
        value = None if at % 10 == 0 else json.dumps(order, separators=(",", ":")).encode()
        made.append(Record(at, ms, key, value, ((b"trace-id", b"span-%07d" % at),) if at % 4 == 0 else ()))
    return made


def batches(made: list[Record]) -> list[bytes]:
    """Record batches of 1 to 9 records; every third has no codec, the others zstd."""
    dice = Random(6)
    found: list[bytes] = []
    while made:
        some, made = made[: (size := dice.randint(1, 9))], made[size:]
        codec: Any = "zstd" if len(found) % 3 else "none"
        found.append(records.encode([RecordBatch(some[0].offset, some[-1].offset, some, compression=codec)]))
    return found


def measured(path: Path, topics: str = "*") -> dict[str, Any]:
    """The numbers that a copy must have too. It uses nothing of the learner."""
    rows = list(logs.read(path, topics=topics, columns=["key", "value"], isolation="read_uncommitted"))
    keys = Counter(key for some in rows for key in some.column(0).to_pylist() if key is not None)
    values = [value for some in rows for value in some.column(1).to_pylist()]
    sizes = [len(value) for value in values if value is not None]
    listed = (one for segment in find_segments(path, topics=topics) for one in Listing(segment.path.read_bytes()))
    codecs = Counter(codec_name(one.attributes) for one in listed if not one.attributes & CONTROL)
    hot = {"top 10": sum(count for _, count in keys.most_common(10)) / max(1, keys.total())}
    quantiles = dict(zip(("p50", "p95", "p99"), np.percentile(sizes, (50, 95, 99)).tolist(), strict=True))
    shares = {f"codec {name}": count / codecs.total() for name, count in codecs.items()}
    tombstones = (len(values) - len(sizes)) / max(1, keys.total())
    return {"keys": len(keys), "tombstones": tombstones, **hot, **quantiles, **shares}


def learned(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The workload that is printed."""
    assert run("learn", *arguments) == 0
    return capsys.readouterr().out


def assert_alike(path: Path, text: str, out: Path, error: float = 0.05, topics: str = "*") -> None:
    """The corpus of a learned workload has right statistics.

    Its shares differ from those of the log by at most ``error``, and other numbers by this part of them.
    """
    generate(workloads.parse(text, "w.toml"), Target.of(str(out)))
    assert not check_statistics(Corpus.open(Target.of(str(out))))[1]
    assert measured(out) == pytest.approx(measured(path, topics), rel=error, abs=error)


@pytest.mark.parametrize(("count", "error"), [(3000, 0.15), pytest.param(40_000, 0.05, marks=pytest.mark.full)])
def test_a_copy_has_the_keys_sizes_codecs_and_tombstones_of_the_log(
    count: int, error: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "log" / "orders-0", *batches(orders(count)))
    text = learned(capsys, tmp_path / "log")
    assert_alike(tmp_path / "log", text, tmp_path / "copy", error)
    topic = workloads.parse(text, "w.toml").topics[0]
    assert topic.keys.kind == "zipf"
    assert topic.values.kind == "json"
    found: dict[str, Any] = {one.name: one for one in topic.values.fields}
    assert [one.type for one in topic.values.fields[:5]] == ["integer", "enum", "boolean", "decimal", "key"]
    assert (found["id"].min, found["id"].max) == (12000, two_digits(12345 + count, up=True))
    assert found["paid"].share == pytest.approx(0.25, abs=0.02)
    assert topic.headers.share == pytest.approx(0.25, abs=0.001)
    assert topic.headers.size == Range(12, 12)
    assert topic.timestamps.late_share == pytest.approx(0.02, abs=0.001)
    assert 600_000 <= topic.timestamps.late_ms <= 1_300_000
    assert max(topic.timestamps.hour_weights) >= 1.5 * min(topic.timestamps.hour_weights)


@pytest.mark.parametrize("anonymous", [False, True])
def test_no_text_of_the_log_is_copied(anonymous: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = orders(1000)
    path = written(tmp_path / "private-topic-0", *batches(made), bad(batch(1000)))
    written(tmp_path / "empty-topic-0")
    (tmp_path / "linked-topic-0").symlink_to(path.parent)
    text = learned(capsys, tmp_path, *["--anonymous"] * anonymous)
    contents = {one.key or b"" for one in made} | {value or b"" for one in made for _, value in one.headers}
    contents |= {text for one in made for text in re.findall(b':"([^"]+)"', one.value or b"")} | {b"trace-id"}
    assert not [one for one in contents if len(one) >= 6 and one.decode() in text]
    assert "1 place of damage left out; the first:" in text
    names = ("private-topic", "customer", "Rome", "empty-topic has no data records", "linked-topic-0 is a link")
    assert [name in text for name in names] == [not anonymous] * len(names)
    assert not anonymous or not re.findall("empty-topic|linked-topic", text)


def test_transactions_idempotent_producers_and_old_formats_are_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces: list[bytes] = []
    offset = 0
    for number in range(40):
        producer: dict[str, Any] = {"producer_id": 7 + number % 2, "producer_epoch": 0, "base_sequence": 10 * number}
        pieces += [
            batch(offset, 10, transactional=number % 2 == 0, **producer),
            *(batch(offset + at, 1, magic=number % 2) for at in range(10, 14)),
        ]
        offset += 14
        if number % 2 == 0:
            end = Record(offset, 5, b"\0\0\0" + bytes([number % 8 != 0]), b"\0\0\0\0\0\0")
            pieces.append(records.encode([RecordBatch(offset, offset, [end], **MARKER)]))
            offset += 1
    topic = workloads.parse(learned(capsys, written(tmp_path / "t-0", *pieces)), "w.toml").topics[0]
    assert topic.producers.share == pytest.approx(200 / offset, abs=1e-5)
    assert topic.producers.count == 1
    assert topic.transactions.share == pytest.approx(220 / offset, abs=1e-5)
    assert (topic.transactions.records, topic.transactions.abort_share) == (10, 0.25)
    assert topic.legacy.magic0 == topic.legacy.magic1 == pytest.approx(80 / offset, abs=1e-5)


def test_damage_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "t-0", batch(0, 50), bad(batch(50, 50)), batch(100, 50))
    text = learned(capsys, path)
    assert "# 100 records" in text
    assert "# 1 place of damage left out; the first:" in text
    assert "crc" in text
    assert "33.3% of the offsets are gone" in text
    assert run("learn", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["topics"][0]["partitions"] == 1


def test_what_a_workload_cannot_say_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = [Record(at, 1 << 62 if at % 2 else 5, bytes([at]), b'{"a":NaN}') for at in range(200)]
    written(tmp_path / "far-0", records.encode([RecordBatch(0, 199, far)]))
    late = [Record(at, (2 - at) << 60, b"k" * 2_000_000, b"") for at in range(2)]
    written(tmp_path / "late-0", records.encode([RecordBatch(0, 1, late)]), batch(100, 1), batch(99, 1))
    after = [Record(0, 1 << 62, None, b"")]
    written(tmp_path / "after-0", records.encode([RecordBatch(0, 0, after)]))
    written(tmp_path / "my topic-200000", batch(0))
    # It would be called by its number, and that is the name of another one.
    written(tmp_path / "topic-4-0", batch(0))
    text = learned(capsys, tmp_path)
    names = [topic.name for topic in workloads.parse(text, "w.toml").topics]
    assert names == ["after", "far", "late", "topic-4-renamed", "topic-4"]
    for sentence in (
        "its name in the log is my topic, which Kafka refuses",
        "partitions have numbers up to 200000; here they are numbered without gaps",
        "keys are so short that 16 are different here, in the log 200",
        "keys.size is at most 1048576, in the log up to 2000000",
        "late records are up to",
        "timestamps begin at 4611686018427387904 ms, too late for a workload; they are not learned",
        "field a has arrays, maps, NaN or several types",
    ):
        assert sentence in text, sentence


def test_values_without_a_schema_are_learned_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1.avsc").write_text('"long"')
    for name, value in (("json-0", b'{"a":1}'), ("random-0", b"\xff\xfe")):
        written(tmp_path / name, batch(0, 50, value))
    text = learned(capsys, tmp_path, "--schema", tmp_path)
    assert re.findall(r'\[topics.values\]\nkind = "(\w+)"', text) == ["json", "random"]
    assert "by their schemas" not in text


@pytest.mark.parametrize(
    ("folder", "pieces", "words"),
    [
        ("t-0", (), "no data records"),
        ("t-0", (batch(0, 1, **MARKER),), "no data records"),
        ("__consumer_offsets-0", (batch(0),), "by its kind and things"),
    ],
)
def test_a_log_without_data_of_users_is_refused_in_a_sentence(
    folder: str, pieces: tuple[bytes, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / folder, *pieces)
    assert run("learn", tmp_path / folder) == 2
    assert words in capsys.readouterr().err


def test_many_keys_are_counted_by_a_sample_of_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.corpora.observed.KEYS_MAX", 4096)
    monkeypatch.setattr("kfuzz.corpora.observed.PENDING_MIN", 1000)
    assert KEYS_MAX == 1 << 20
    pa = pytest.importorskip("pyarrow")
    counts = KeyCounts()
    for first in range(0, 40_000, 1000):
        counts.see(pa.array([b"%d" % at for at in range(first, first + 1000)] + [b"hot"] * 500))
    assert counts.cardinality == pytest.approx(40_001, rel=0.05)
    assert len(counts.merged()[0]) <= 4096
    assert counts.merged()[1].max() == 20_000


def test_weighted_numbers_are_drawn_exactly_and_verified(tmp_path: Path) -> None:
    sizes = Range(0, 300, 0, ((0, 1), (7, 90), (40, 3), (41, 2), (300, 4)))
    topic = Topic("t", keys=Keys(size=Range(20, 31, 0, ((20, 1), (31, 3)))), values=Values(sizes))
    workload = Workload((topic,), size=MIB)
    generate(workload, Target.of(str(tmp_path)))
    corpus = Corpus.open(Target.of(str(tmp_path)))
    checks, problems = check_statistics(corpus)
    assert not problems
    assert {"values.size", "keys.size"} <= {one.name for one in checks}
    assert workloads.parse(workloads.render(workload), "w.toml") == workload
    shorter = replace(sizes, weights=((0, 1), (7, 80), (300, 4)))
    other = replace(topic, keys=Keys(size=Range(20, 31, 0, ((20, 2), (31, 3)))), values=Values(shorter))
    wrong = check_statistics(replace(corpus, workload=replace(corpus.workload, topics=(other,))))[1]
    assert all(any(name in one.message for one in wrong) for name in ("values.size", "keys.size"))


@pytest.mark.parametrize(("number", "down", "up"), [(0, 0, 0), (12345, 12000, 13000), (-129, -130, -120), (9.5, 9, 10)])
def test_bounds_have_two_digits(number: float, down: int, up: int) -> None:
    assert (two_digits(number, up=False), two_digits(number, up=True)) == (down, up)


@pytest.mark.java
@pytest.mark.full
def test_logs_of_a_real_broker_and_librdkafka_have_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    require_kafka_build()
    dice = Random(1)
    with Broker() as broker:
        for codec, partitions in (("none", 1), ("lz4", 3), ("zstd", 2)):
            topic = broker.create_topic(partitions, {})
            address = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "linger.ms": 5, "batch.num.messages": 20}
            sender = kafka.Producer(address | {"compression.type": codec, "enable.idempotence": codec == "lz4"})
            for number in range(20_000):
                hot, any_key = b"%05d" % (int(dice.paretovariate(1)) % 200), b"%07d" % dice.randrange(3000)
                key = hot if codec == "zstd" else any_key
                bits = dice.randbytes(int(dice.lognormvariate(5, 1)) + 1)
                value = b'{"amount": %d}' % number if codec == "lz4" else bits
                sender.produce(topic, value if number % 7 else None, key)
                sender.poll(0)
            assert sender.flush(60) == 0
        broker.stop()
        topics = {segment.topic for segment in find_segments(broker.data)}
        assert len(topics) == 3
        for topic in sorted(map(str, topics)):
            text = learned(capsys, broker.data, "--topics", topic)
            assert_alike(broker.data, text, tmp_path / topic, topics=topic)
