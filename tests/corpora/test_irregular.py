"""Links, pipes, devices and sockets inside log directories and corpora: reported, passed over, and never opened."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from cli_driver import kfuzz, refused
from irregular import IRREGULAR, SECRET, kinds
from made_corpora import copy_of, digests, flip, once

from kfuzz import logs
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Topic, Workload, render
from kfuzz.errors import UsageError

FIRST = f"{0:020d}"
WORKLOAD = Workload(topics=(Topic("orders", partitions=2),), size=256 * KIB, segment_bytes=128 * KIB, seed=8)


pristine, corpus = once(WORKLOAD), copy_of("pristine")


def put(path: Path, kind: str) -> str:
    """Put such a thing in place of a file, and return what it is called."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make, called = IRREGULAR[kind]
    make(path)
    return called


@kinds
@pytest.mark.parametrize("name", [f"{FIRST}.log", f"{FIRST}.index", "leader-epoch-checkpoint"])
def test_check_skips_it_and_judges_the_rest(corpus: Path, kind: str, name: str) -> None:
    odd = corpus / "orders-0" / name
    called = put(odd, kind)
    damaged = corpus / "orders-1" / f"{FIRST}.log"
    flip(damaged, 200)
    done = kfuzz("check", corpus)
    assert f"{odd}: skipped: it is {called}" in done.stdout
    assert f"{damaged}: fatal: batch[0].crc" in done.stdout
    assert (done.returncode, done.stderr) == (1, "")
    assert ", 1 skipped\n" in done.stdout
    (document,) = json.loads(kfuzz("check", corpus, "--json").stdout)
    assert document["skipped_files"] == 1
    assert next(one for one in document["files"] if "skipped" in one)["file"] == str(odd)


@kinds
def test_cat_and_salvage_pass_it_over_and_say_so(corpus: Path, tmp_path: Path, kind: str) -> None:
    whole = kfuzz("cat", corpus).stdout.splitlines()
    odd = corpus / "orders-0" / f"{9:020d}.log"
    called = put(odd, kind)
    # An index and a snapshot are only hints.
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        put(corpus / "orders-0" / f"{FIRST}{suffix}", kind)
    put(corpus / "orders-0" / "partition.metadata", kind)
    for options in ([], ["--isolation", "read_committed"], ["--from", "5"]):
        done = kfuzz("cat", corpus, *options)
        assert (done.returncode, done.stderr) == (1, f"kfuzz: {odd} is skipped: it is {called}\n")
        assert options == ["--from", "5"] or done.stdout.splitlines() == whole
    done = kfuzz("salvage", corpus, "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (1, f"kfuzz: {odd} is skipped: it is {called}\n")
    assert kfuzz("cat", tmp_path / "out").stdout.splitlines() == whole
    assert SECRET not in "".join(path.read_text("latin-1") for path in (tmp_path / "out").rglob("*") if path.is_file())
    with pytest.raises(UsageError, match=f"{FIRST[:-1]}9.log is {called}"):
        logs.read(corpus)


def test_a_linked_partition_and_a_loop_of_folders_are_not_entered(corpus: Path, tmp_path: Path) -> None:
    whole = kfuzz("cat", corpus).stdout
    shutil.move(corpus / "orders-0", tmp_path / "elsewhere")
    (corpus / "orders-0").symlink_to(tmp_path / "elsewhere")
    (corpus / "loop").symlink_to(corpus)
    done = kfuzz("check", corpus, code=0)
    assert f"{corpus / 'orders-0'}: skipped: it is a link" in done.stdout
    assert ": ok, 1 partitions, 1 segments, " in done.stdout
    done = kfuzz("cat", corpus)
    assert (done.returncode, len(done.stdout) < len(whole)) == (1, True)
    # A link that the user names is followed.
    assert kfuzz("cat", corpus / "orders-0").returncode == 0
    (tmp_path / "link.log").symlink_to(tmp_path / "elsewhere" / f"{FIRST}.log")
    assert kfuzz("cat", tmp_path / "link.log").returncode == 0
    assert kfuzz("check", tmp_path / "link.log").returncode == 0


def test_a_directory_of_which_nothing_can_be_judged_is_not_ok(tmp_path: Path) -> None:
    put(tmp_path / "orders-0" / f"{FIRST}.log", "pipe")
    assert "none of its 1 files could be judged" in kfuzz("check", tmp_path, code=2).stderr


@kinds
@pytest.mark.parametrize(
    "name",
    [
        "_SUCCESS",
        "orders-0/leader-epoch-checkpoint",
        f"orders-0/{FIRST}.log",
        f"orders-0/{FIRST}.index",
        f"orders-0/{FIRST}.timeindex",
        "_manifest/more",
        "orders-0/more",
        "more",
    ],
)
def test_verify_reports_it(corpus: Path, kind: str, name: str) -> None:
    called = put(corpus / name, kind)
    problems = verify(corpus)
    assert (name, "file-irregular") in {(one.path, one.code) for one in problems}
    [own] = [one for one in problems if one.path == name]
    assert own.message.startswith(f"is {called}, ")
    assert SECRET not in "".join(map(str, problems))


@kinds
@pytest.mark.parametrize("name", ["_workload.toml", "_manifest/part-00000.parquet"])
def test_a_corpus_without_its_own_description_is_refused(corpus: Path, kind: str, name: str) -> None:
    put(corpus / name, kind)
    done = kfuzz("corpus", "verify", corpus)
    assert done.returncode in (1, 2)
    assert name in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("folder", ["orders-0", "_manifest", "_labels", "_rows"])
@pytest.mark.parametrize("option", ["--overwrite", "--resume"])
def test_generate_neither_writes_nor_deletes_through_a_linked_folder(
    corpus: Path, tmp_path: Path, folder: str, option: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("keep", f"{FIRST}.txnindex", f".{FIRST}.log.tmp"):
        (victim / name).write_text("mine")
    shutil.rmtree(corpus / folder, ignore_errors=True)
    (corpus / folder).symlink_to(victim)
    (tmp_path / "workload.toml").write_text(render(WORKLOAD))
    before = digests(tmp_path)
    said = refused("corpus", "generate", tmp_path / "workload.toml", "--out", corpus, option)
    assert f"{corpus}/{folder} is a link" in said
    assert digests(tmp_path) == before


def test_a_pipe_that_the_user_names_is_read(corpus: Path) -> None:
    log = corpus / "orders-0" / f"{FIRST}.log"
    for verb in ("check", "cat", "show"):
        read, write = os.pipe()
        size = log.stat().st_size
        os.set_blocking(write, False)
        # A pipe takes 64 KiB at a time; the first batches are enough.
        part = log.read_bytes()[: min(size, 60_000)]
        assert os.write(write, part) == len(part)
        os.close(write)
        try:
            done = kfuzz(verb, f"/dev/fd/{read}")
        finally:
            os.close(read)
        assert done.returncode in (0, 1)
        assert len(done.stdout) > 50
