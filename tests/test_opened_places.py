"""Logs in archives, in stores and in tiered storage, and live topics, are read as the log directory itself."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard
from cli_driver import kfuzz, outcome
from corpora.s3_server import s3
from made_corpora import ABORTING, once, rows_of
from made_segments import bad

from kfuzz import cluster, files, logs, places, records, storage, text
from kfuzz.corpora.workload import KIB, Workload
from kfuzz.replay import Address, Settings, find_parts, replay

__all__ = ["s3"]

log = once(Workload(topics=(ABORTING,), size=200 * KIB, segment_bytes=60 * KIB))
ID = "AAECAwQFBgcICQoLDA0ODw"
OTHER_ID = "-" + ID[1:]
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (made := tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(made))
    yield
    assert (list(made.iterdir()), text.ELSEWHERE, files.ELSEWHERE) == ([], {}, {})


def tar(*entries: tuple[str, bytes] | tarfile.TarInfo, folder: Path | None = None, **more: Any) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", **more) as archive:
        if folder is not None:
            archive.add(folder, "broker-1/data")
        for entry in entries:
            member, data = (entry, b"") if isinstance(entry, tarfile.TarInfo) else (tarfile.TarInfo(entry[0]), entry[1])
            member.size = member.size or len(data)
            archive.addfile(member, io.BytesIO(data) if data else None)
    return made.getvalue()


def in_local_tiered_storage(log: Path, out: Path) -> None:
    for path in log.glob("t-*/*.*"):
        (out / f"{path.parent.name}-{ID}").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / f"{path.parent.name}-{ID}" / f"{path.stem}-{OTHER_ID}{path.suffix}")


def in_aivens_storage(log: Path, out: Path, **more: Any) -> None:
    for path in log.glob("t-*/*.log"):
        base = out / "prefix" / f"t-{ID}" / path.parent.name[2:] / f"{path.stem}-{OTHER_ID}"
        base.parent.mkdir(parents=True, exist_ok=True)
        found, indexes = {}, b"before"
        for suffix, name in places.INDEX_NAMES.items():
            data = path.with_suffix(suffix).read_bytes() if path.with_suffix(suffix).exists() else b""
            found[name] = {"position": len(indexes), "size": len(data)} if data else None
            indexes += data
        base.with_name(f"{base.name}.indexes").write_bytes(indexes)
        content = path.read_bytes()
        # Each chunk is packed by itself.
        chunks = [zstandard.compress(content[at : at + 9999]) for at in range(0, len(content), 9999)]
        base.with_name(f"{base.name}.log").write_bytes(b"".join(chunks))
        manifest = {"chunkIndex": {"originalFileSize": len(content)}, "segmentIndexes": found, "compression": True}
        base.with_name(f"{base.name}.rsm-manifest").write_text(json.dumps(manifest | more))


def in_memory(folder: Path, name: str, pattern: str = "t-*/*") -> str:
    target = storage.Target.of(f"memory://{name}/data")
    for path in folder.glob(pattern):
        target.write(path.relative_to(folder).as_posix(), path.read_bytes())
    return str(target)


def in_packed_files(log: Path, out: Path) -> None:
    for number, path in enumerate(log.glob("t-*/0*.*")):
        (out / path.parent.name).mkdir(parents=True, exist_ok=True)
        pack = (".gz", ".zst")[number % 2]
        (out / path.parent.name / f"{path.name}{pack}").write_bytes(PACK[pack](path.read_bytes()))


LAYOUTS = {"local": in_local_tiered_storage, "aiven": in_aivens_storage, "packed": in_packed_files}
KINDS = (
    *("log.tar", "log.tar.gz", "log.tar.zst", "local", "aiven", "aiven.tar.gz", "memory", "memory.tgz"),
    *("packed", "packed.tar"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_the_same_wherever_it_is(log: Path, tmp_path: Path, kind: str) -> None:
    layout, is_archive, pack = kind.replace(".tgz", ".tar.gz").partition(".tar")
    place: str | Path = tmp_path / kind
    if layout in LAYOUTS:
        LAYOUTS[layout](log, tmp_path / layout)
    if is_archive:
        (tmp_path / kind).write_bytes(PACK[pack](tar(folder=tmp_path / layout if layout in LAYOUTS else log)))
    if layout == "memory":
        place = f"{in_memory(tmp_path, tmp_path.name, kind)}/{kind}" if is_archive else in_memory(log, tmp_path.name)
    columns = [name for name in logs.COLUMNS if name != "segment"] if kind == "local" else None
    # Without indexes, reading in read_committed would be the same: so these are compared too.
    with places.opened(place) as here:
        for segment in logs.find_segments(here):
            for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                original = log / f"{segment.topic}-{segment.partition}" / f"{segment.base_offset:020d}{suffix}"
                if original.exists() and original.stat().st_size:
                    assert bytes(files.map_regular(segment.path.with_suffix(suffix))) == original.read_bytes()
    rows = rows_of(logs.read(place, columns=columns, isolation="read_committed"))
    assert rows == rows_of(logs.read(log, columns=columns, isolation="read_committed")) != []
    assert outcome("cat", str(place)) == outcome("cat", log)
    code, out, said = outcome("check", str(place), "--json")
    [found], [expected] = json.loads(out), json.loads(outcome("check", log, "--json")[1])
    assert (code, said, found["batches"], found["segments"]) == (0, "", expected["batches"], expected["segments"])
    assert found["directory"].startswith(str(place))


def test_files_are_copied_when_they_are_opened_and_few_are_kept(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "KEPT_BYTES", 0)
    with places.opened(in_memory(log, tmp_path.name)) as here:
        segments = logs.find_segments(here)
        assert list(tmp_path.glob("temporary/kfuzz-copies*/*")) == []
        views = [files.map_regular(segment.path) for segment in segments]
        assert len(list(tmp_path.glob("temporary/kfuzz-copies*/*"))) == 1 < len(segments)
    assert [bytes(view) for view in views] == [path.read_bytes() for path in sorted(log.glob("t-*/*.log"))]


def test_threads_that_fetch_at_the_same_time_do_not_lose_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "KEPT_BYTES", 1000)
    contents = {f"t-{number}/leader-epoch-checkpoint": b"%d\n" % number * 30 for number in range(300)}
    for name, content in contents.items():
        (tmp_path / "log" / name).parent.mkdir(parents=True)
        (tmp_path / "log" / name).write_bytes(content)
    (archive := tmp_path / "log.tar").write_bytes(tar(folder=tmp_path / "log"))
    with places.opened(archive) as here:
        paths = [here / name for name in 4 * [*contents]]
        # Each file is asked for four times in a row, so that threads ask for the same one.
        read = storage.in_parallel(partial(files.read_small, bytes_max=1000), sorted(paths), jobs=16)
        for path, content in read:
            assert content == contents[f"{path.parent.name}/{path.name}"]
        kept = sum(path.stat().st_size for path in tmp_path.glob("temporary/kfuzz-copies*/*"))
    assert kept <= 1000 + 16 * 120


def test_damage_is_named_by_its_real_place(log: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(log, tmp_path / "data")
    first = damaged / "t-0" / f"{0:020d}.log"
    first.write_bytes(bad(bad(first.read_bytes(), 30)))
    (archive := tmp_path / "backup.tar").write_bytes(tar(folder=damaged))
    name = f"{archive}/broker-1/data/t-0/{first.name}"
    assert f"{name}: fatal: " in outcome("check", archive)[1]
    for form in ((), ("--json",), ("--finding",)):
        # The offsets that the end of the segment costs are known by the name of the next one.
        assert outcome("show", name, *form)[1] == outcome("show", first, *form)[1].replace(str(first), name) != ""
    assert name in outcome("cat", archive)[2]
    with pytest.raises(records.RecordsError, match=r"backup\.tar/broker-1/data/t-0"):
        list(logs.read(archive))
    code, out, _ = outcome("salvage", archive, "--out", tmp_path / "out", "--json")
    assert (code, json.loads(out)[0]["path"]) == (1, name)


@pytest.mark.parametrize("pack", [".gz", ".zst"])
def test_a_packed_file_is_read_and_a_damaged_one_up_to_the_damage(log: Path, tmp_path: Path, pack: str) -> None:
    data = (plain := log / "t-0" / f"{0:020d}.log").read_bytes()
    packed = tmp_path / "t-0" / f"{0:020d}.log{pack}"
    packed.parent.mkdir()
    packed.write_bytes(PACK[pack](data[:30_000]) + PACK[pack](data[30_000:]))
    assert outcome("cat", packed) == outcome("cat", plain)
    assert outcome("show", packed)[1].replace(str(packed), "") == outcome("show", plain)[1].replace(str(plain), "")
    for wrong, what in ((packed.read_bytes()[:-9], "is cut off"), (packed.read_bytes() + b"rest", "is damaged")):
        packed.write_bytes(wrong)
        for words in (["check", packed], ["show", packed], ["cat", packed, "--keep-going"], ["check", packed.parent]):
            done = kfuzz(*words)
            assert (done.returncode, done.stdout != "", f"{packed} {what}" in done.stderr) == (2, True, True)


@pytest.mark.parametrize(("pack", "at"), [("", 0.3), ("", 0.9), (".gz", 0.5), (".zst", 0.9)])
def test_a_cut_archive_is_read_up_to_the_cut(log: Path, tmp_path: Path, pack: str, at: float) -> None:
    plain = [*map(json.loads, outcome("cat", log, "--columns", "partition,offset")[1].splitlines())]
    whole = tar(folder=log)
    (archive := tmp_path / f"backup.tar{pack}").write_bytes(PACK[pack](whole)[: int(len(PACK[pack](whole)) * at)])
    code, out, said = outcome("cat", archive, "--columns", "partition,offset", "--keep-going")
    found = [*map(json.loads, out.splitlines())]
    assert code == 2
    assert 0 < len(found) < len(plain)
    assert found == [one for one in plain if one in found]
    [sentence] = [line for line in said.splitlines() if "get another copy" in line]
    assert sentence.startswith(f"kfuzz: {archive} is ")
    assert "files of it were read, the last one broker-1/data/t-" in sentence


def test_a_tar_file_without_its_last_files_is_cut(log: Path, tmp_path: Path) -> None:
    whole = tar(("t-0/" + "0" * 20 + ".log", (log / "t-0" / f"{0:020d}.log").read_bytes()))
    for end in (whole.rstrip(b"\0"), whole[:1024] + b"x" * 512):
        (archive := tmp_path / "a.tar").write_bytes(end + bytes(-len(end) % 512))
        code, _, said = outcome("cat", archive, "--keep-going")
        assert (code, "1 file of it was read" in said) == (2, True)


def test_hostile_archives_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tarfile.TarInfo("t-0/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    one = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
    (file := tmp_path / "a.tar").write_bytes(tar(("../out", one), ("/t-0/" + "0" * 20 + ".log", one), link))
    code, out, said = outcome("check", file)
    assert (code, "1 segments" in out, said.count("is left out: it is no regular file")) == (0, True, 2)
    assert not (tmp_path / "out").exists()
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, places.HEADER_BYTES_MAX + 1
    for content, what in (
        (tar(header) + bytes(places.HEADER_BYTES_MAX), "a header that is too large"),
        (tar(("t-0/x", one * 99))[:3000], "is damaged or cut off"),
        (gzip.compress(bytes(1 << 20)), "holds more than half of the free disk"),
    ):
        monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 1 << 20))
        file.write_bytes(content)
        done = kfuzz("check", file)
        assert (done.returncode, done.stdout, what in done.stderr) == (2, "", True), done.stderr


def test_tiered_segments_that_cannot_be_read_are_named(log: Path, tmp_path: Path) -> None:
    in_aivens_storage(log, tmp_path / "closed", encryption={"dataKey": "x"})
    done = kfuzz("cat", tmp_path / "closed")
    assert (done.returncode, "is encrypted by tiered storage" in done.stderr) == (2, True)
    in_local_tiered_storage(log, tmp_path / "two")
    [first, *_] = (tmp_path / "two" / f"t-0-{ID}").glob("*.log")
    first.with_name(f"{0:020d}-{ID[::-1]}.log").write_bytes(b"")
    code, out, said = outcome("cat", tmp_path / "two")
    assert (code, out, "has the same offsets" in said) == (0, outcome("cat", log)[1], True)
    for index in tmp_path.glob("two/*/*.index"):
        index.unlink()
    assert "a broker rebuilds" not in outcome("check", tmp_path / "two")[1]


def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setattr(storage, "ANSWER_S_MAX", 0.01)
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda *what, **how: threading.Event().wait())
    assert outcome("cat", "memory://x/data") == (
        2,
        "",
        "kfuzz: memory://x/data cannot be read: no answer within 0.01 s; check the address, the bucket, the "
        "credentials and their rights\n",
    )


@pytest.mark.full
def test_s3_is_read_and_a_missing_bucket_or_key_is_a_sentence(log: Path, s3: Any, monkeypatch: Any) -> None:
    s3.put(str(log), "corpora/data", recursive=True)
    assert outcome("cat", "s3://corpora/data") == outcome("cat", log)
    assert outcome("check", f"s3://corpora/data/t-0/{0:020d}.log")[0] == 0
    assert outcome("check", "s3://nobody/data")[::2] == (
        2,
        "kfuzz: s3://nobody/data has no files; check the name, and that the bucket exists\n",
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nowhere")
    s3.clear_instance_cache()
    assert "s3://corpora/data cannot be read: Unable to locate credentials; " in outcome("cat", "s3://corpora/data")[2]


READ_COMMITTED = ("--isolation", "read_committed", "--columns", "partition,key,value")


def compare_live(bootstrap: str, log: Path, topic: str) -> None:
    """Send the log to a cluster, and read it there as in its directory."""
    names = {"t": topic}
    assert replay(find_parts(log), Settings(Address.parse(bootstrap), create=True, names=names)).is_clean
    topics = ("--bootstrap", bootstrap, "--topics", topic)
    assert outcome("cat", *topics, *READ_COMMITTED) == outcome("cat", log, *READ_COMMITTED)
    code, out, said = outcome("check", *topics)
    assert (code, said, out.startswith(f"{bootstrap}: ok, 2 partitions, 2 segments")) == (0, "", True)
    code, out, said = outcome("cat", *topics, "--bytes", "1", "--columns", "offset")
    assert (code, out != "", said.count("were read; give more --bytes, or --from")) == (0, True, 2)
    out = outcome("cat", *topics, "--from", "700", "--bytes", "1", "--columns", "offset", "-n", "1")[1]
    assert json.loads(out)["offset"] in range(700, 720)


def test_a_live_topic_is_read_as_its_log(log: Path, tmp_path: Path) -> None:
    with cluster() as brokers:
        brokers.topic("orders", partitions=2)
        compare_live(brokers.bootstrap, log, "orders")
        for number in range(2):
            shutil.copytree(log / f"t-{number}", tmp_path / f"orders-{number}")
        assert outcome("diff", tmp_path, "--compacted", "--bootstrap", brokers.bootstrap, "--topics", "orders")[0] == 0
        shutil.rmtree(tmp_path / "orders-1")
        assert outcome("diff", tmp_path, "--compacted", "--bootstrap", brokers.bootstrap, "--topics", "orders")[0] == 1
        code, _, said = outcome("cat", "--bootstrap", brokers.bootstrap, "--topics", "other")
        assert (code, said) == (2, f"kfuzz: no topic of {brokers.bootstrap} matches 'other'; there are orders\n")


@pytest.mark.full
@pytest.mark.java
def test_a_topic_of_apache_kafka_is_read_as_its_log(broker: Any, log: Path) -> None:
    compare_live(f"127.0.0.1:{broker.port}", log, "places")
