"""`kfuzz corpus install`: what it puts into a log directory, and what it refuses. A real broker is asked in
test_corpus_broker.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from irregular import IRREGULAR, kinds
from made_corpora import once, run
from replay.fake_broker import FakeBroker

from kfuzz import messages, records
from kfuzz.broker_errors import ERROR_CODES
from kfuzz.corpora import installation
from kfuzz.corpora.generation import generate
from kfuzz.corpora.installation import install, notes, open_finished, topic_settings
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import KIB, Batches, Range, Timestamps, Topic, Transactions, Values, Workload
from kfuzz.errors import UsageError
from kfuzz.storage import LocalTarget

TOPICS = (
    Topic("pay.s-1", partitions=2, transactions=Transactions(producers=1, share=0.5, records=50, abort_share=1.0)),
    Topic("t", timestamps=Timestamps(type="log-append")),
)
WORKLOAD = Workload(topics=TOPICS, size=640 * KIB, segment_bytes=128 * KIB)
PARTITIONS = ["pay.s-1-0", "pay.s-1-1", "t-0"]
METADATA = "version: 0\ntopic_id: AvlIm1ZYQkSYfLVQWPub1Q"


pristine = once(WORKLOAD)


@pytest.fixture
def corpus(pristine: Path) -> Corpus:
    return open_finished(pristine)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The files of a broker that made the topics and was stopped."""
    made = tmp_path / "broker"
    made.mkdir()
    (made / "meta.properties").write_text("version=1\n")
    (made / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":14}')
    for name in [*PARTITIONS, "other-0"]:
        (made / name).mkdir()
        for suffix in (".log", ".index", ".timeindex"):
            (made / name / f"{0:020d}{suffix}").write_bytes(b"")
        (made / name / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
        (made / name / "partition.metadata").write_text(METADATA)
    return made


def root_of(corpus: Corpus) -> Path:
    assert isinstance(corpus.out, LocalTarget)
    return corpus.out.root


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextlib.contextmanager
def refused(log_dir: Path, match: str | None = None) -> Iterator[None]:
    """The block is refused with this sentence, and changes nothing in the log directory."""
    before = contents(log_dir)
    with pytest.raises(UsageError, match=match):
        yield
    assert contents(log_dir) == before


def wanted(corpus: Corpus, log_dir: Path, partitions: list[str]) -> dict[str, bytes]:
    """The log directory after an installation of these partitions."""
    files = contents(log_dir)
    for name in partitions:
        files |= {f"{name}/{path.name}": path.read_bytes() for path in (root_of(corpus) / name).iterdir()}
    return files


@pytest.mark.parametrize("link", [False, True])
def test_every_partition_gets_the_files_of_the_corpus_and_keeps_its_topic_id(
    corpus: Corpus, log_dir: Path, link: bool
) -> None:
    expected = wanted(corpus, log_dir, PARTITIONS)
    done: list[int] = []
    result = install(corpus, log_dir, link=link, set_done=done.append)
    assert contents(log_dir) == expected
    assert (log_dir / "t-0/partition.metadata").read_text() == METADATA
    assert done == [1, 2, 3]
    assert (result.partitions, result.segments, result.absent, result.present) == (3, len(corpus.rows), [], [])
    sizes = [path.stat().st_size for name in PARTITIONS for path in (root_of(corpus) / name).iterdir()]
    assert result.copied_bytes + result.linked_bytes == sum(sizes)
    assert (result.linked_bytes > 0) == link


def test_only_the_logs_of_full_segments_are_linked_because_a_broker_writes_to_all_others(
    corpus: Corpus, log_dir: Path
) -> None:
    result = install(corpus, log_dir, link=True)
    linked = 0
    for name in PARTITIONS:
        last = max((root_of(corpus) / name).glob("*.log"))
        for path in (root_of(corpus) / name).iterdir():
            is_same = path.samefile(log_dir / name / path.name)
            assert is_same == (path.suffix == ".log" and path != last)
            linked += path.stat().st_size * is_same
    assert linked == result.linked_bytes


def test_a_second_installation_changes_nothing_and_one_that_was_cut_off_is_completed(
    corpus: Corpus, log_dir: Path
) -> None:
    expected = wanted(corpus, log_dir, PARTITIONS)
    install(corpus, log_dir)
    # As a broker leaves it after serving the corpus.
    (log_dir / "t-0/leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 77\n")
    result = install(corpus, log_dir)
    assert (result.partitions, result.copied_bytes, result.present) == (0, 0, PARTITIONS)
    assert (log_dir / "t-0/leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 77\n"
    # A killed run renamed the files of some partitions, and left others under their temporary names.
    for path in sorted((log_dir / "t-0").glob("*.log"))[1:]:
        path.rename(path.with_name(f".{path.name}.kfuzz-install"))
    assert install(corpus, log_dir).partitions == 1
    assert contents(log_dir) == expected


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("00000000000000000000.log", b"records"),
        ("00000000000000000500.log", b"records"),
        # Empty, but it follows records that were deleted.
        ("00000000000000000500.log", b""),
    ],
)
def test_a_partition_that_holds_or_held_other_records_is_refused(
    corpus: Corpus, log_dir: Path, name: str, data: bytes
) -> None:
    (log_dir / "t-0" / name).write_bytes(data)
    with refused(log_dir, rf"t-0 is not a new partition \({name} is there\); delete the topic"):
        install(corpus, log_dir)


def test_a_log_of_the_same_name_and_size_but_of_another_seed_is_refused(tmp_path: Path, log_dir: Path) -> None:
    topic = Topic("t", values=Values(size=Range(100, 100)), batches=Batches(records=Range(10, 10)))
    one = Workload(topics=(topic,), size=64 * KIB, segment_bytes=64 * KIB)
    for seed in (0, 1):
        generate(replace(one, seed=seed), tmp_path / f"seed{seed}")
    logs = [next((tmp_path / f"seed{seed}").glob("t-0/*.log")) for seed in (0, 1)]
    assert logs[0].stat().st_size == logs[1].stat().st_size
    install(open_finished(tmp_path / "seed0"), log_dir)
    with pytest.raises(UsageError, match="is not a new partition"):
        install(open_finished(tmp_path / "seed1"), log_dir)


def test_a_dry_run_checks_everything_and_changes_nothing(corpus: Corpus, log_dir: Path) -> None:
    before = contents(log_dir)
    result = install(corpus, log_dir, dry_run=True)
    assert contents(log_dir) == before
    assert result == install(corpus, log_dir)
    (log_dir / "t-0" / "00000000000000000000.log").write_bytes(b"records")
    with pytest.raises(UsageError, match="is not a new partition"):
        install(corpus, log_dir, dry_run=True)


@pytest.fixture
def locked(log_dir: Path) -> Iterator[None]:
    """Another process holds the lock, as a running broker does."""
    code = f"import fcntl; f = open({str(log_dir / '.lock')!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.communicate(b"\n", timeout=30)


@pytest.mark.usefixtures("locked")
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_log_directory_that_a_broker_uses_is_refused(corpus: Corpus, log_dir: Path, dry_run: bool) -> None:
    with refused(log_dir, r"a broker is using .*broker \(.lock is held\); stop it first"):
        install(corpus, log_dir, dry_run=dry_run)


def test_no_broker_can_start_while_the_files_are_put_there(
    corpus: Corpus, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"import fcntl; fcntl.lockf(open({str(log_dir / '.lock')!r}, 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    tried = []
    plain = installation._stage

    def trying(*arguments: object) -> None:
        if not tried:
            tried.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))
        plain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(installation, "_stage", trying)
    install(corpus, log_dir)
    assert "BlockingIOError" in tried[0].stderr
    # Afterwards one can, and finds no file of a lock, as after a clean stop.
    assert not (log_dir / ".lock").exists()
    (log_dir / ".lock").touch()
    with (log_dir / ".lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_directory_that_is_no_log_directory_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"meta.properties is missing\); name a directory of log.dirs"):
        install(corpus, tmp_path)


def test_missing_topics_are_refused_with_the_way_to_make_them(corpus: Corpus, log_dir: Path) -> None:
    shutil.rmtree(log_dir / "pay.s-1-1")
    said = r"lacks 1 of the corpus' 3 partitions \(first: pay.s-1-1\); start the broker, run `kfuzz"
    with refused(log_dir, f"{said}.*, or add --present-only if other directories hold the rest"):
        install(corpus, log_dir)
    expected = wanted(corpus, log_dir, ["pay.s-1-0", "t-0"])
    assert install(corpus, log_dir, present_only=True).absent == ["pay.s-1-1"]
    assert contents(log_dir) == expected
    # Without any partition, --present-only would do nothing.
    for name in ("pay.s-1-0", "t-0"):
        (log_dir / name / "partition.metadata").unlink()
    with pytest.raises(UsageError, match="lacks 3 of the corpus' 3 partitions"):
        install(corpus, log_dir, present_only=True)


@pytest.mark.parametrize("damage", ["unfinished", "missing", "short"])
def test_a_corpus_that_is_not_whole_is_refused(pristine: Path, tmp_path: Path, damage: str) -> None:
    out = Path(shutil.copytree(pristine, tmp_path / "out"))
    log = sorted(out.glob("t-0/*.log"))[0]
    if damage == "unfinished":
        (out / "_SUCCESS").unlink()
    elif damage == "missing":
        log.with_suffix(".timeindex").unlink()
    else:
        log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"is not a whole corpus \(.*\); generate it again"):
        open_finished(out)


@pytest.mark.parametrize("place", ["stage", "rename"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_after_an_error_every_partition_is_as_it_was(
    corpus: Corpus, log_dir: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    before = contents(log_dir)
    calls = []

    def failing(*arguments: object, **more: object) -> object:
        calls.append(arguments)
        if len(calls) == 13:
            raise error
        return plain(*arguments, **more)

    module, name = (installation.os, "fsync") if place == "stage" else (installation.os, "replace")
    plain = getattr(module, name)
    monkeypatch.setattr(module, name, failing)
    with pytest.raises((UsageError, KeyboardInterrupt)) as caught:
        install(corpus, log_dir)
    if isinstance(error, OSError):
        assert "cannot be written: No space left on device; free space there" in str(caught.value)
    monkeypatch.undo()
    assert len(calls) >= 13
    assert contents(log_dir) == before
    expected = wanted(corpus, log_dir, PARTITIONS)
    install(corpus, log_dir)
    assert contents(log_dir) == expected


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("way", ["changed", "linked"])
def test_files_that_the_manifest_lacks_are_not_copied(
    corpus: Corpus, log_dir: Path, tmp_path: Path, suffix: str, way: str
) -> None:
    before = contents(log_dir)
    path = sorted((root_of(corpus) / "t-0").glob(f"*{suffix}"))[-1]
    data = path.read_bytes()
    if way == "changed":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        # Of the same size, as somebody who hides another file would make it.
        (tmp_path / "other").write_bytes(bytes(len(data)))
        path.unlink()
        path.symlink_to(tmp_path / "other")
    try:
        with pytest.raises(UsageError, match=path.name):
            install(open_finished(corpus.out.uri), log_dir)
    finally:
        path.unlink()
        path.write_bytes(data)
    assert contents(log_dir) == before


@kinds
@pytest.mark.parametrize("name", ["t-0", f"t-0/{0:020d}.log", f"t-0/{0:020d}.index", ".lock"])
def test_nothing_is_written_through_what_is_no_regular_file_in_the_log_directory(
    corpus: Corpus, log_dir: Path, kind: str, name: str
) -> None:
    path = log_dir / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    IRREGULAR[kind][0](path)
    with refused(log_dir):
        install(corpus, log_dir)


def test_a_corpus_that_the_disk_cannot_hold_is_refused_before_anything_is_written(
    corpus: Corpus, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(log_dir)
    monkeypatch.setattr(installation.shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    with refused(log_dir, "but 100000 B are free there; free space there, or add --link"):
        install(corpus, log_dir)


def test_links_between_file_systems_or_users_are_refused(
    pristine: Path, corpus: Corpus, log_dir: Path, tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        for path in log_dir.rglob("*"):
            os.chown(path, 12345, 12345)
        with pytest.raises(UsageError, match=r"belongs to another user than .*; leave out --link"):
            install(corpus, log_dir, link=True)
        # Copies belong to the broker's user.
        install(corpus, log_dir)
        assert {(path.stat().st_uid, path.stat().st_gid) for path in (log_dir / "t-0").iterdir()} == {(12345, 12345)}
    memory = Path("/dev/shm")
    if memory.is_dir() and memory.stat().st_dev != tmp_path.stat().st_dev:
        out = memory / f"kfuzz-{os.getpid()}"
        try:
            shutil.copytree(pristine, out)
            shutil.rmtree(log_dir / "t-0")
            shutil.copytree(log_dir / "other-0", log_dir / "t-0")
            with pytest.raises(UsageError, match="are on different file systems; leave out --link"):
                install(open_finished(out), log_dir, link=True)
        finally:
            shutil.rmtree(out)


def test_the_settings_keep_the_records_and_the_indexes(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = topic_settings(corpus)
    assert (first.name, first.partitions, second.name) == ("pay.s-1", 2, "t")
    assert first.config == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": str(1 << 20),
        "index.interval.bytes": "4096",
        "message.timestamp.type": "CreateTime",
    }
    assert second.config["message.timestamp.type"] == "LogAppendTime"
    # A broker would cut larger indexes.
    largest = max(path.stat().st_size for path in root_of(corpus).glob("t-0/*index"))
    monkeypatch.setattr(installation, "INDEX_BYTES_DEFAULT", largest - 1)
    assert topic_settings(corpus)[1].config["segment.index.bytes"] == str(largest)


def test_all_topics_are_created_by_one_request_with_their_settings(
    corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    class Broker(FakeBroker):
        def _CreateTopics(self, values: Any, version: int) -> Any:
            asked.append(values["topics"])
            answer = super()._CreateTopics(values, version)
            answer["topics"][1]["errorCode"] = ERROR_CODES["TOPIC_ALREADY_EXISTS"]
            return answer

    with Broker({}) as broker:
        assert run("install", corpus.out, "--bootstrap", f"127.0.0.1:{broker.port}", "--dry-run") == 0
        assert asked == []
        assert run("install", corpus.out, "--bootstrap", f"127.0.0.1:{broker.port}") == 0
        address = f"127.0.0.1:{broker.port}"
    [topics] = asked
    for topic, one in zip(topic_settings(corpus), topics, strict=True):
        assert (topic.name, topic.partitions, 1) == (one["name"], one["numPartitions"], one["replicationFactor"])
        assert topic.config == {pair["name"]: pair["value"] for pair in one["configs"]}
    assert capsys.readouterr().out.splitlines() == [
        f"{address}: would create 2 topics",
        f"{address}: created 1 topic",
        "note: topic t existed already, and keeps its settings",
    ]
    assert run("install", corpus.out, "--bootstrap", address) == 2
    assert "is a broker running there" in capsys.readouterr().err


def test_notes_say_what_may_surprise(corpus: Corpus, log_dir: Path) -> None:
    now_ms = 1_800_000_000_000
    (retention,) = notes(corpus, log_dir, now_ms=now_ms)
    assert retention.startswith("timestamps run from 2023-11-14 22:13:20 UTC to ")
    assert "the topics need retention.ms=-1" in retention
    _, future = notes(corpus, log_dir, now_ms=1_600_000_000_000)
    assert "which is in the future" in future
    assert "message.timestamp.after.max.ms" in future
    (log_dir / ".kafka_cleanshutdown").unlink()
    _, unclean = notes(corpus, log_dir, now_ms=now_ms)
    assert "the broker was not stopped cleanly, so its next start reads the whole corpus" in unclean


def metadata(*found: tuple[int, str, dict[str, object]]) -> bytes:
    """Batches of one metadata record each: key, name and values; version 0."""
    batches = []
    for at, (key, name, values) in enumerate(found):
        value = bytes([1, key, 0]) + messages.encode(name, 0, values)
        batches.append(records.RecordBatch(at, 0, [records.Record(at, 1000, None, value)]))
    return records.encode(batches)


def made_topic(name: str, number: int) -> tuple[int, str, dict[str, object]]:
    return 2, "TopicRecord", {"name": name, "topicId": number.to_bytes(16)}


def configured(topic: str, name: str, value: str | None) -> tuple[int, str, dict[str, object]]:
    return 4, "ConfigRecord", {"resourceType": 2, "resourceName": topic, "name": name, "value": value}


def test_notes_compare_the_topics_with_the_brokers_metadata(corpus: Corpus, log_dir: Path) -> None:
    folder = log_dir / "__cluster_metadata-0"
    folder.mkdir()
    log = folder / f"{0:020d}.log"
    old = [made_topic("t", 1), configured("t", "retention.ms", "-1")]
    log.write_bytes(
        metadata(
            *old,
            made_topic("pay.s-1", 2),
            configured("pay.s-1", "retention.ms", "5"),
            configured("pay.s-1", "cleanup.policy", "compact,delete"),
            # A broker's own settings and other records change nothing, also those of a newer release.
            (4, "ConfigRecord", {"resourceType": 4, "resourceName": "", "name": "retention.ms", "value": "7"}),
            (20, "NoOpRecord", {}),
            (99, "NoOpRecord", {}),
            (8, "UnfenceBrokerRecord", {"id": 9}),
        )
    )
    assert notes(corpus, log_dir) == [
        "topic pay.s-1: retention.ms is 5: the broker deletes older segments, and cleanup.policy is compact,delete: "
        "the log cleaner changes the log; set it within 30 s of the start with `kafka-configs.sh --alter "
        "--entity-type topics --entity-name pay.s-1 --add-config retention.ms=-1,cleanup.policy=delete`"
    ]
    # The topic was deleted and made again, and one setting was removed.
    again = [(9, "RemoveTopicRecord", {"topicId": (1).to_bytes(16)}), made_topic("t", 3)]
    right = [made_topic("pay.s-1", 2), configured("pay.s-1", "retention.ms", "-1")]
    log.write_bytes(metadata(*old, *again, *right, configured("pay.s-1", "retention.ms", None)))
    first, second = notes(corpus, log_dir)
    assert first.startswith("topic pay.s-1: retention.ms is not set: ")
    assert second.startswith("topic t: retention.ms is not set: ")
    # A snapshot stands for the records of the log before its offset.
    log.write_bytes(metadata(*again, *right, *right)[:-3])
    (folder / f"{2:020d}-0000000001.checkpoint").write_bytes(metadata(made_topic("t", 4), *old[1:]))
    assert notes(corpus, log_dir) == []
    (folder / f"{4:020d}-0000000001.checkpoint").write_bytes(metadata(*right))
    (missing,) = notes(corpus, log_dir)
    assert missing.startswith(
        "the broker's metadata has no topic t, so it sets the directories of its partitions aside"
    )
    # Bytes that cannot be read say nothing of the topics.
    log.write_bytes(log.read_bytes()[:-1] + b"\x7f" + b"records" * 20)
    assert notes(corpus, log_dir)[0].startswith("timestamps run from")


def test_the_verb_says_what_it_did_as_text_and_as_json(
    corpus: Corpus, log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("install", corpus.out, "--log-dir", log_dir, "--dry-run") == 0
    assert "would install 3 partitions with" in capsys.readouterr().out
    shutil.rmtree(log_dir / "t-0")
    assert run("install", corpus.out, "--log-dir", log_dir, "--json", "--link", "--present-only") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["partitions"], said["absent"], said["dry_run"]) == (2, ["t-0"], False)
    assert said["linked_bytes"] > 0
    assert len(said["notes"]) == 1
    assert run("install", corpus.out, "--log-dir", log_dir, "--present-only") == 0
    first, present, absent, note = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{corpus.out}: installed 0 partitions with 0 segments in {log_dir}, 0 MB copied")
    assert present == "2 partitions were there already: pay.s-1-0, pay.s-1-1"
    assert absent == f"1 partitions are not in {log_dir}: t-0"
    assert note.startswith("note: timestamps run from")
    assert run("install", corpus.out, "--bootstrap", "127.0.0.1:1", "--dry-run", "--json") == 0
    assert [topic["name"] for topic in json.loads(capsys.readouterr().out)["topics"]] == ["pay.s-1", "t"]


@pytest.mark.parametrize("arguments", [[], ["--bootstrap", "127.0.0.1:1", "--log-dir", "x"], ["--log-dir", "absent"]])
def test_a_mistake_is_one_sentence_and_exit_code_2(
    corpus: Corpus, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("install", corpus.out, *arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("kfuzz: ")
    assert len(told.splitlines()) == 1
