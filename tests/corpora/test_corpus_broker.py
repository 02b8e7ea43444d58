"""A real broker serves every clean ready workload as it is: the steps of docs/corpora.md, with one broker for all.

The broker has Kafka's default retention, and looks for old segments all the time.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import require_kafka_build
from made_corpora import run
from programs import run_program
from ready_workloads import clean

from kfuzz import logs
from kfuzz.conformance.broker.real import Broker
from kfuzz.corpora.generation import generate
from kfuzz.corpora.installation import install, notes, open_finished, topic_settings
from kfuzz.corpora.manifest import Manifest
from kfuzz.corpora.workload import KIB, Batches, Producers, Range, Timestamps, Topic, Transactions, Workload
from kfuzz.errors import UsageError
from kfuzz.logs.snapshot import decode
from kfuzz.wire.io.checksum import crc32c

pytestmark = [pytest.mark.java, pytest.mark.full]

# Kafka's defaults in place of those that suit other tests, and a retention check every 200 ms.
SETTINGS = {
    "log.retention.ms": str(7 * 24 * 3600 * 1000),
    "log.cleaner.enable": "true",
    "log.index.size.max.bytes": str(10 << 20),
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "200",
}
LOG_LEVELS = {"org.apache.kafka.storage.internals.log": "info", "kafka.log": "info"}
DUMP = "org.apache.kafka.tools.DumpLogSegments"
# A broker forgets producers whose last record is a day old when it reads its log, so those here write in 2100.
FUTURE = Workload(
    topics=(
        Topic(
            "future",
            partitions=2,
            timestamps=Timestamps(start=4_102_444_800_000, jitter_ms=500),
            batches=Batches(records=Range(1, 40), codecs=(("none", 3), ("zstd", 1))),
            producers=Producers(count=20, share=0.5),
            transactions=Transactions(producers=3, share=0.3, records=30, abort_share=0.5),
        ),
        Topic(
            "future-order",
            timestamps=Timestamps(type="log-append", start=4_102_444_800_000, jitter_ms=500),
            batches=Batches(records=Range(1, 40)),
            # Ids from 14 to 17. Java's hash map has 16 buckets for them, so 16 and 17 are first in its order.
            producers=Producers(count=13),
            transactions=Transactions(producers=4, share=1.0, records=30, abort_share=0.5),
        ),
    ),
    size=960 * KIB,
    segment_bytes=128 * KIB,
    seed=90,
)
# The control: its topic has no retention of its own, so the broker must delete its records.
DOOMED = Workload(topics=(Topic("doomed"),), size=64 * KIB, segment_bytes=64 * KIB)
DOOMED_LOG = "doomed-0/00000000000000000000.log"
DELETED_TIMEOUT_S = 60
# Everything that the broker says of a partition that it loads from its snapshot. Anything else is a repair.
LOADED = (
    r"Loading producer state till offset \d+$",
    r"Reloading from producer snapshot and rebuilding producer state from offset \d+$",
    r"Loading producer state from snapshot file ",
    r"Producer state recovery took \d+ms for snapshot load and \d+ms for segment recovery from offset \d+$",
    r"Completed load of Log\(.* in \d+ms ",
)
# A broker writes its own epoch into this file at each start.
REWRITTEN = "leader-epoch-checkpoint"


@dataclass
class Served:
    """A broker's work with the corpora."""

    corpora: dict[str, Path]
    broker: Broker
    notes: dict[str, list[str]]
    before: dict[str, bytes] = field(default_factory=dict)
    after: dict[str, bytes] = field(default_factory=dict)
    recovered: dict[str, bytes] = field(default_factory=dict)
    log: str = ""
    # By topic and isolation level: for each partition, its number of records, its end offset and the sum over contents.
    consumed: dict[tuple[str, str], list[dict[str, int]]] = field(default_factory=dict)

    def files(self, *suffixes: str) -> list[str]:
        """The files of all corpora with these suffixes, by their names in the broker's log directory."""
        paths = [path for out in self.corpora.values() for path in sorted(out.glob("*/*")) if path.suffix in suffixes]
        assert paths
        return [path.relative_to(path.parent.parent).as_posix() for path in paths]

    def dump(self, names: list[str], *options: str) -> list[str]:
        """The lines that Kafka's DumpLogSegments prints about these files of the corpora."""
        paths = [self.corpus_of(name) / name for name in names]
        argv = self.broker.tool(DUMP, *options, "--files", ",".join(map(str, paths)))
        done = run_program(*argv)
        for out in self.corpora.values():
            done.stdout = done.stdout.replace(f"{out}/", "")
        return done.stdout.splitlines()

    def corpus_of(self, name: str) -> Path:
        (out,) = (out for out in self.corpora.values() if (out / name).exists())
        return out

    def shown(self, name: str, *lines: str) -> list[str]:
        """The words of DumpLogSegments about a file: ``lines``, or that an offset index is empty."""
        is_empty = name.endswith(".index") and not self.before[name]
        return [f"Dumping {name}", *([f"{name} is empty."] if is_empty else lines)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """All corpora in one broker, which served them, was stopped, and then had to recover them."""
    require_kafka_build()
    folder = tmp_path_factory.mktemp("corpora")
    corpora = {}
    for name, workload in {**clean(), "future": FUTURE, "doomed": DOOMED}.items():
        corpora[name] = folder / name
        generate(workload, corpora[name])
    with Broker(SETTINGS, log_levels=LOG_LEVELS) as broker:
        assert run("install", corpora["mixed"], "--bootstrap", f"127.0.0.1:{broker.port}") == 0
        for name, out in corpora.items():
            if name != "mixed":
                create_topics(broker, out, with_config=name != "doomed")
        with pytest.raises(UsageError, match="a broker is using"):
            install(open_finished(corpora["demo"]), broker.data)
        broker.stop()
        for name, out in corpora.items():
            # Linked files must be as safe as copies.
            assert run("install", out, "--log-dir", broker.data, "--link" if name == "payments" else "--copy") == 0
        found_notes = {name: notes(open_finished(out), broker.data) for name, out in corpora.items()}
        del corpora["doomed"]
        found = Served(corpora, broker, found_notes, before=contents(broker.data, corpora))
        broker.start()
        for out in corpora.values():
            consume(broker, out, found)
        deadline = time.monotonic() + DELETED_TIMEOUT_S
        while (broker.data / DOOMED_LOG).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not (broker.data / DOOMED_LOG).exists(), "the broker did not look for old segments"
        broker.stop()
        found.log, found.after = broker.log.decode(), contents(broker.data, corpora)
        for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
            (broker.data / name).unlink(missing_ok=True)
        for name in found.files(".index", ".timeindex", ".txnindex", ".snapshot"):
            (broker.data / name).unlink(missing_ok=True)
        broker.start()
        broker.stop()
        found.recovered = contents(broker.data, corpora)
        yield found


def contents(data: Path, corpora: dict[str, Path]) -> dict[str, bytes]:
    """All files of the partitions of the corpora, by their names under ``data``."""
    partitions = [path.name for out in corpora.values() for path in out.iterdir() if not path.name.startswith("_")]
    paths = [path for name in partitions for path in (data / name).iterdir()]
    return {path.relative_to(data).as_posix(): path.read_bytes() for path in paths}


def create_topics(broker: Broker, out: Path, *, with_config: bool) -> None:
    """The same topics as those of `install --bootstrap`, also without their settings."""
    for topic in topic_settings(open_finished(out)):
        request = {"operation": "create-topic", "topic": topic.name, "partitions": topic.partitions}
        answer = broker.ask({**request, "config": topic.config if with_config else {}})
        assert "failure" not in answer, answer


def consume(broker: Broker, out: Path, found: Served) -> None:
    for topic in topic_settings(open_finished(out)):
        for isolation in ("read_uncommitted", "read_committed"):
            question = {"operation": "consume", "topic": topic.name, "partitions": topic.partitions}
            answer = broker.ask({**question, "isolation": isolation})
            assert "partitions" in answer, answer
            found.consumed[topic.name, isolation] = [
                {name: int(value) for name, value in one.items()} for one in answer["partitions"]
            ]


# --- what a consumer gets -------------------------------------------------------------------------------------------


def aborted_spans(partition: Path) -> dict[int, list[tuple[int, int]]]:
    """The first and the last offset of each aborted transaction, by producer id, from the transaction indexes."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for path in partition.glob("*.txnindex"):
        for _, producer_id, first, last, _ in struct.iter_unpack(">hqqqq", path.read_bytes()):
            spans.setdefault(producer_id, []).append((first, last))
    return spans


def field_of(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def expected(partition: Path) -> dict[str, dict[str, int]]:
    """The numbers that a consumer must get of the partition by isolation level, as kfuzz reads the corpus."""
    spans = aborted_spans(partition)
    counts, sums = dict.fromkeys(("read_uncommitted", "read_committed"), 0), {}
    sums = dict.fromkeys(counts, 0)
    end = 0
    for batch in logs.read(partition):
        for row in batch.to_pylist():
            end = row["offset"] + 1
            if row["control"]:
                continue
            moment = -1 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
            data = struct.pack(">qq", row["offset"], moment) + field_of(row["key"]) + field_of(row["value"])
            data += struct.pack(">i", len(row["headers"]))
            data += b"".join(field_of(header[name]) for header in row["headers"] for name in ("key", "value"))
            is_aborted = row["transactional"] and any(
                first <= row["offset"] <= last for first, last in spans.get(row["producer_id"], ())
            )
            for isolation in ("read_uncommitted", *(() if is_aborted else ("read_committed",))):
                counts[isolation] += 1
                sums[isolation] = crc32c(data, sums[isolation])
    return {isolation: {"records": counts[isolation], "end": end, "crc32c": sums[isolation]} for isolation in counts}


@pytest.mark.parametrize("name", [*clean(), "future"])
def test_each_record_is_served_and_the_counts_are_those_of_the_manifest(served: Served, name: str) -> None:
    out = served.corpora[name]
    rows = list(Manifest(out / "_manifest"))
    for topic in topic_settings(open_finished(out)):
        for partition in range(topic.partitions):
            directory = f"{topic.name}-{partition}"
            wanted = expected(out / directory)
            for isolation, right in wanted.items():
                assert served.consumed[topic.name, isolation][partition] == right, (directory, isolation)
            here = [row for row in rows if row.path.startswith(f"{directory}/")]
            data = sum(row.records - row.control_batches for row in here)
            assert wanted["read_uncommitted"]["records"] == data
            assert wanted["read_uncommitted"]["end"] == here[-1].last_offset + 1
            committed = data - sum(row.aborted_records for row in here)
            assert wanted["read_committed"]["records"] == committed


def test_some_transactions_were_aborted_and_some_committed(served: Served) -> None:
    for topic in ("ledger", "future", "future-order"):
        everything, committed = (
            sum(one["records"] for one in served.consumed[topic, isolation])
            for isolation in ("read_uncommitted", "read_committed")
        )
        assert 0 < committed < everything, topic


def test_a_note_warns_of_the_topic_whose_records_the_broker_deleted_and_of_no_other(served: Served) -> None:
    said = {name: [note for note in found if "in the future" not in note] for name, found in served.notes.items()}
    (warning,) = said.pop("doomed")
    assert warning.startswith("topic doomed: retention.ms is not set: the broker deletes older segments; ")
    assert said == {name: [] for name in served.corpora}


# --- what the broker did to the files -------------------------------------------------------------------------------


def test_no_file_was_changed_added_or_removed(served: Served) -> None:
    names = served.before.keys() | served.after.keys()
    changed = {name for name in names if served.before.get(name) != served.after.get(name)}
    assert {name for name in changed if not name.endswith(REWRITTEN)} == set()
    # With links, the broker had the files of the corpus itself.
    for name in served.files(".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        assert served.after[name] == (served.corpus_of(name) / name).read_bytes(), name


def test_each_partition_was_loaded_from_its_last_snapshot_without_repair(served: Served) -> None:
    ends = {}
    for out in served.corpora.values():
        ends |= {str(Path(row.path).parent): row.last_offset + 1 for row in list(Manifest(out / "_manifest"))}
    loaded = set()
    for line in served.log.splitlines():
        named = re.search(r"partition=([\w.-]+-\d+)[],]|Log\(dir=\S*/([\w.-]+-\d+),", line)
        if named is None or (name := named[1] or named[2]) not in ends:
            assert not any(f"{name}/" in line for name in ends), line
            continue
        assert any(re.search(pattern, line) for pattern in LOADED), line
        if "from snapshot file" in line:
            assert f"offset={ends[name]}, " in line
            loaded.add(name)
    assert loaded == set(ends)
    assert re.search(rf"Skipping recovery of {len(ends) + 1} logs", served.log)


def test_a_broker_that_recovers_the_logs_makes_the_same_indexes_and_snapshots(served: Served) -> None:
    for name in served.files(".log", ".index", ".timeindex", ".txnindex"):
        assert served.recovered.get(name) == served.before[name], name
    snapshots = served.files(".snapshot")
    firsts = {name.partition("/")[0]: name for name in reversed(snapshots)}
    for name in snapshots:
        # A broker drops producers whose last record is a day old when it reads a snapshot.
        if name.startswith("future") or name in firsts.values():
            assert served.recovered.get(name) == served.before[name], name


# --- Kafka's own check ----------------------------------------------------------------------------------------------


def test_the_sanity_check_of_dump_log_segments_passes_for_each_index(served: Served) -> None:
    names = served.files(".index", ".timeindex")
    wanted = [line for name in names for line in served.shown(name, f"{name} passed sanity check.")]
    assert served.dump(names, "--index-sanity-check") == wanted


def test_dump_log_segments_finds_each_index_entry_in_its_log(served: Served) -> None:
    names = served.files(".index", ".timeindex")
    assert served.dump(names, "--verify-index-only") == [line for name in names for line in served.shown(name)]


def test_dump_log_segments_shows_each_snapshot_and_transaction_index_as_kfuzz_reads_it(served: Served) -> None:
    wanted = []
    names = served.files(".snapshot", ".txnindex")
    for name in names:
        wanted.append(f"Dumping {name}")
        if name.endswith(".txnindex"):
            fields = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
            for entry in struct.iter_unpack(">hqqqq", served.before[name]):
                wanted.append(" ".join(f"{name}: {value}" for name, value in zip(fields, entry, strict=True)))
            continue
        for one in decode(served.before[name]) or []:
            first = (one.last_sequence - one.offset_delta) % (1 << 31)
            wanted.append(
                f"producerId: {one.producer_id} producerEpoch: {one.epoch} coordinatorEpoch: {one.coordinator_epoch} "
                f"currentTxnFirstOffset: OptionalLong.empty lastTimestamp: {one.timestamp} firstSequence: {first} "
                f"lastSequence: {one.last_sequence} lastOffset: {one.last_offset} offsetDelta: {one.offset_delta} "
                f"timestamp: {one.timestamp}"
            )
    assert served.dump(names) == wanted
