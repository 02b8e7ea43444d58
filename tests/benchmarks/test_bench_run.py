"""``python -m benchmarks``: a whole run on few records is well formed, and unequal work is never compared.

Nothing here asserts a speed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import require_kafka_build
from results import COLUMNS, rows_of

from benchmarks import kfuzz_work, peers
from benchmarks.__main__ import main
from benchmarks.contestant import ROOT, VENV_PYTHON
from benchmarks.measure import Contest, InProcess, Lap, NotTheSameWork, measure
from benchmarks.mixed import Census, Content, MixedSet
from benchmarks.paths import RECORD_PATHS
from benchmarks.report import to_markdown
from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.records import CODECS

SET = MixedSet(2)


# Nobody else does this; the row says what it costs beside something else that kfuzz does.
WITHOUT_PEERS = {
    **dict.fromkeys(["log-100", "log-1", "log-transactional", "broker-1", "broker-10", "broker-100"], "kfuzz-consumer"),
    **dict.fromkeys(["append", "append-lz4", "convert", "compact", "stream-isolation"], "kfuzz-eager-encode"),
    **dict.fromkeys(["verify-corpus", "verify-corpus-mixed", "diff"], "kfuzz-verdict"),
    **{f"check-directory{kind}": "kfuzz-verdict" for kind in ("", "-1", "-transactional")},
    "replay": "aiokafka-producer",
}

CONTEST = [Contest("kfuzz", "peer", ("peer",))]


# One of each kind: each path starts a process for each contestant.
SOME_PATHS = ("eager-records", "verify-corpus-mixed")


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(SOME_PATHS, marks=pytest.mark.full, id="some"),
        pytest.param(tuple(RECORD_PATHS), marks=pytest.mark.nightly, id="all"),
    ],
)
def test_a_quick_run_writes_paths_of_records_against_every_python_peer(tmp_path: Path, paths: tuple[str, ...]) -> None:
    arguments = ["--quick", "--path", *paths, "--peer", "aiokafka", "kafka-python"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    expected = []
    for path in paths:
        floor = ["bare-codec"] if path.startswith(("read-", "write-")) or path.endswith("-gzip") else []
        floor += ["marshal"] if path == "eager-records" else []
        against = [WITHOUT_PEERS[path]] if path in WITHOUT_PEERS else [*floor, "aiokafka", "kafka-python"]
        expected += [(path, "kfuzz", peer) for peer in against]
    assert [(row["path"], row["subject"], row["peer"]) for row in rows_of(tmp_path)] == expected
    chart = ElementTree.parse(tmp_path / "results.svg").getroot()
    labels = {element.text for element in chart.iter("{http://www.w3.org/2000/svg}text")}
    assert {f"{path} / {peer}" for path, _, peer in expected} <= labels


@pytest.mark.full
def test_kfuzz_is_compared_with_that_of_another_checkout(tmp_path: Path) -> None:
    other = tmp_path / "other"
    python = other / VENV_PYTHON
    python.parent.mkdir(parents=True)
    ran = tmp_path / "ran"
    python.write_text(f'#!/bin/sh\npwd >>{ran}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for name in ("benchmarks", "kfuzz"):
        (other / name).symlink_to(ROOT / name)
    arguments = ["--quick", "--path", "call-1", "decode-messages-small", "--old", str(other), "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert [(row["path"], row["peer"]) for row in rows_of(tmp_path)] == [
        (path, peer) for path in ("call-1", "decode-messages-small") for peer in ("old", "old against old")
    ]
    # Two contestants for each path run there.
    assert ran.read_text().split() == [str(other)] * 4


def test_another_checkout_that_was_not_built_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--path", "call-1", "--old", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "run `make build` there first" in capsys.readouterr().err


def test_results_become_a_table_with_a_line_for_each_path() -> None:
    results = f"""{",".join(COLUMNS)}
verdict,kfuzz,aiokafka,8.6612,7.4400,9.1300
verdict,kfuzz,kafka-python,122.6400,104.3400,140.7500
log-1,kfuzz,kfuzz-consumer,0.8512,0.7800,12.6600
"""
    assert to_markdown(results).splitlines()[2:] == [
        "| `verdict` | aiokafka **8.66** (7.44 to 9.13), kafka-python **123** (104 to 141) |",
        "| `log-1` | kfuzz-consumer **0.85** (0.78 to 12.7) |",
    ]


def test_every_codec_has_a_path_for_each_way() -> None:
    assert {f"{way}-{codec}" for codec in CODECS if codec != "none" for way in ("read", "write")} <= set(RECORD_PATHS)


@pytest.mark.java
@pytest.mark.nightly
def test_kafka_clients_does_the_same_work_on_every_path(tmp_path: Path) -> None:
    require_kafka_build()
    assert main(["--quick", "--peer", "kafka-clients", "--out", str(tmp_path)]) == 0
    left_out = {*WITHOUT_PEERS, "encode-v0", "encode-v1"}
    paths = [path for path in RECORD_PATHS if path not in left_out and "call-" not in path]
    assert [row["path"] for row in rows_of(tmp_path) if row["peer"] == "kafka-clients"] == paths


def test_the_set_is_the_mixed_one() -> None:
    contents = MixedSet(60).contents
    sizes = [len(batch) for batch in contents]
    assert min(sizes) < 100
    assert max(sizes) > 900
    assert max(sizes) <= 1000
    rows = [row for batch in contents for row in batch]
    with_headers = sum(bool(row.headers) for row in rows) / len(rows)
    assert 0.18 < with_headers < 0.22
    assert any(row.key is None for row in rows)
    assert any(row.value is None for row in rows)
    assert len({len(row.value) for row in rows if row.value is not None}) > 100


def test_the_same_seed_makes_the_same_set() -> None:
    assert MixedSet(3).fetches() == MixedSet(3).fetches()
    assert MixedSet(3).fetches() != MixedSet(3, seed=5).fetches()


def test_the_same_batches_share_a_buffer_whatever_the_codec() -> None:
    mixed = MixedSet(30)
    plain = [records.check(fetch).batch_count for fetch in mixed.fetches()]
    assert len(plain) > 1
    assert sum(plain) == 30
    for codec in CODECS[1:]:
        assert [records.check(fetch).batch_count for fetch in mixed.fetches(codec)] == plain


def drop_the_last(mixed: MixedSet) -> list[list[Content]]:
    return [*mixed.contents[:-1], mixed.contents[-1][:-1]]


def lengthen_a_value(mixed: MixedSet) -> list[list[Content]]:
    first = mixed.contents[0][0]
    return [[first._replace(value=(first.value or b"") + b"x"), *mixed.contents[0][1:]], *mixed.contents[1:]]


def lose_the_headers(mixed: MixedSet) -> list[list[Content]]:
    return [[row._replace(headers=[]) for row in batch] for batch in mixed.contents]


@pytest.mark.parametrize("change", [drop_the_last, lengthen_a_value, lose_the_headers])
def test_a_peer_that_reads_something_else_is_refused(change: Callable[[MixedSet], list[list[Content]]]) -> None:
    other = MixedSet(2)
    other.__dict__["contents"] = change(SET)
    works = {"kfuzz": kfuzz_work.verdict(SET), "peer": peers.AioKafka().verdict(other)}
    with pytest.raises(NotTheSameWork, match="peer does not do the same work"):
        measure("verdict", works, CONTEST, SET.census, rounds=1)


@pytest.mark.full
def test_a_peer_that_skips_records_while_it_is_timed_is_refused() -> None:
    honest = kfuzz_work.verdict(SET)
    lazy = InProcess(lambda: SET.census.records - 1, honest.census)
    with pytest.raises(NotTheSameWork, match=f"met {SET.census.records - 1} records"):
        measure("verdict", {"kfuzz": honest, "peer": lazy}, CONTEST, SET.census, rounds=1)


def test_a_contestant_that_writes_something_else_is_refused_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A process gets the seed alone and makes the whole set; another census is expected here.
    monkeypatch.setattr("benchmarks.mixed.MixedSet.census", Census(*[1] * 7))
    arguments = ["--quick", "--path", "encode-records", "--peer", "aiokafka", "--out", str(tmp_path)]
    assert main(arguments) == 2
    assert "encode-records: kfuzz does not do the same work" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


class _Scripted:
    """Laps of given lengths, and the order in which they were asked for."""

    def __init__(self, name: str, laps_ns: list[int], order: list[str]) -> None:
        self.name, self.laps_ns, self.order = name, iter(laps_ns), order

    def census(self) -> Census:
        return SET.census

    def warm_up(self) -> None:
        self.order.append(f"{self.name} warms up")

    def lap(self, lap_ms: int) -> Lap:
        self.order.append(self.name)
        return Lap(next(self.laps_ns), SET.census.records)

    def close(self) -> None:
        self.order.append(f"{self.name} ends")


def test_contestants_take_turns_to_begin_and_ratios_are_taken_within_a_round() -> None:
    order: list[str] = []
    works = {
        "kfuzz": _Scripted("kfuzz", [100, 200, 400], order),
        "a": _Scripted("a", [300, 600, 800], order),
        "b": _Scripted("b", [100, 200, 400], order),
    }
    contests = [Contest("kfuzz", "a", ("a",)), Contest("kfuzz", "both", ("a", "b"))]
    alone, both = measure("verdict", works, contests, SET.census, rounds=3)
    turns = ["kfuzz", "a", "b", "a", "b", "kfuzz", "b", "kfuzz", "a"]
    assert order == ["kfuzz warms up", "a warms up", "b warms up", *turns]
    assert (alone.median, alone.least, alone.most) == (3.0, 2.0, 3.0)
    assert (both.median, both.least, both.most) == (4.0, 3.0, 4.0)


def test_a_peer_that_is_not_there_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_java() -> peers.Peer:
        raise peers.PeerMissing("java is missing; install a JDK")

    monkeypatch.setitem(peers.PEERS, "kafka-clients", no_java)  # type: ignore[arg-type]
    assert main(["--quick", "--path", "verdict", "--peer", "aiokafka", "kafka-clients", "--out", str(tmp_path)]) == 0
    assert "kafka-clients is not compared: java is missing" in capsys.readouterr().out
    assert [row["peer"] for row in rows_of(tmp_path)] == ["aiokafka"]


def test_an_interpreted_aiokafka_is_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    module = peers.library("aiokafka.record.default_records")
    monkeypatch.setattr(module, "DefaultRecordBatchBuilder", module._DefaultRecordBatchBuilderPy)
    with pytest.raises(UsageError, match="not the compiled one"):
        peers.AioKafka()


def test_kafka_clients_without_a_compiler_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(peers.PeerMissing, match="java is missing; install a JDK"):
        peers.PEERS["kafka-clients"]()


def test_kfuzz_at_a_peers_level_writes_the_same_records() -> None:
    for codec, level in peers.AioKafka.levels.items():
        assert kfuzz_work.encode(SET, codec, level).census() == SET.census
