"""Peers: other people's readers under the fuzzer. A planted one has a fault of each kind."""

from __future__ import annotations

import io
import os
import shutil
import signal
import tarfile
import tomllib
from pathlib import Path

import pytest
from cli_driver import refused
from conftest import missing
from fuzzer_stub import require_atheris, require_clang

from kfuzz.errors import UsageError
from kfuzz.fuzz import building, campaign, peer_building, peers
from kfuzz.fuzz import reproducing as once
from kfuzz.fuzz.causes import of_end
from kfuzz.fuzz.forked import Ahead, cpu_seconds
from kfuzz.fuzz.oracle import exact_bytes
from kfuzz.fuzz.peers import Peer
from kfuzz.fuzz.seeding import seeds

# The files of a library with planted faults, and of its testee.
PLANTED = tomllib.loads(Path(__file__).with_name("planted_peer.toml").read_text())
KIT = Path(__file__).resolve().parents[2] / "testees" / "python"


@pytest.fixture(scope="module")
def clang_here() -> None:
    require_atheris()
    require_clang()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Peer:
    """The planted peer: installed for this interpreter without its module, and its source distribution for pip."""
    write_source(tmp_path / "links", PLANTED["library"])
    folder = tmp_path / "testees" / "planted"
    folder.mkdir(parents=True)
    for name, text in PLANTED["testee"].items():
        (folder / name).write_text(text.replace("KIT", repr(str(KIT))))
    about = tmp_path / "site" / "planted-1.0.dist-info" / "METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    return peers.find("planted", root=tmp_path / "testees")


def write_source(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / "planted-1.0.tar.gz", "w:gz") as archive:
        about = "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n"
        for name, text in {**files, "PKG-INFO": about}.items():
            member = tarfile.TarInfo(f"planted-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


# --------------------------------------------------------------------------------------------------- the children


@pytest.fixture
def ahead(tmp_path: Path) -> Ahead:
    def run(data: bytes) -> None:
        if data == b"signal":
            os.kill(os.getpid(), signal.SIGKILL)
        if data == b"exit":
            os._exit(3)
        if data == b"raise":
            raise ValueError
        if b"slow" in data:
            sum(range(10_000_000))
        if data == b"slow":
            raise ValueError("slow")
        while data == b"loop":
            pass
        if data.startswith(b"prints"):
            os.write(2, bytes(600_000))

    return Ahead(run, "no_such_package", tmp_path)


@pytest.mark.parametrize(
    ("data", "kind", "summary"),
    [
        (b"signal", "crash", "killed by SIGKILL"),
        (b"exit", "crash", "exit code 3 and no output"),
        pytest.param(b"loop", "timeout", "no end after 2 s", marks=pytest.mark.full),
    ],
)
def test_an_input_that_ends_or_hangs_a_child_is_found_and_the_next_has_another_child(
    ahead: Ahead, tmp_path: Path, data: bytes, kind: str, summary: str
) -> None:
    assert ahead(b"good") == (None, True)
    find, goes_on = ahead(data)
    assert find is not None
    assert (find.kind, find.summary, find.data, goes_on) == (kind, summary, data, False)
    assert ahead(b"good") == (None, True)
    assert ahead(b"") == (None, True)
    assert cpu_seconds(tmp_path) > 0


def test_an_exception_does_not_end_a_child(ahead: Ahead) -> None:
    assert ahead(b"raise") == (None, True)
    assert ahead(b"good") == (None, True)


def test_an_input_that_is_slow_stays_out_of_the_fuzzer_and_its_exception_is_found(
    ahead: Ahead,
) -> None:
    find, goes_on = ahead(b"slow")
    assert find is not None
    assert (find.kind, find.summary, find.data, goes_on) == ("exception", "ValueError: slow", b"slow", False)
    assert ahead(b"only slow") == (None, False)
    assert ahead(b"good") == (None, True)


def test_what_a_library_prints_takes_little_memory(ahead: Ahead) -> None:
    for _ in range(20):
        assert ahead(b"prints") == (None, True)
        assert ahead._printed() < 2 << 20
    find, _ = ahead(b"exit")
    assert find is not None


def test_exact_bytes_are_a_copy() -> None:
    data = b"some bytes"
    assert exact_bytes(data) == data
    assert exact_bytes(data) is not data
    assert exact_bytes(b"") == b""


def test_a_hang_is_placed_by_its_outermost_function_a_crash_by_its_innermost_line() -> None:
    stack = [
        "Current thread 0x00007f (most recent call first):",
        '  File "/a/site-packages/lib/inner.py", line 7 in step',
        '  File "/a/site-packages/lib/outer.py", line 8 in read',
        '  File "/b/testees/lib/testee.py", line 9 in read',
    ]
    assert of_end("timeout", stack, -9, b"", "lib").at == "lib/outer.py:read"
    assert of_end("crash", stack, -11, b"", "lib").at == "lib/inner.py:7 < lib/outer.py:8"
    nameless = ["    #0 0x7f01  (/libc.so.6+0x1)", "    #1 0x7f02  (/build/lib/native.so+0x2a) (BuildId: 0)"]
    assert of_end("crash", nameless, 1, b"", "lib").at == "lib/native.so:0x2a"


def test_the_callers_tell_faults_of_a_small_function_apart() -> None:
    def at(*callers: str) -> str:
        frames = [f"    #{number} 0x1 in f /b/kfuzz/wire/{name}:{number}:1" for number, name in enumerate(callers)]
        freed = ["freed by thread T0 here:", "    #0 0x2 in g /b/kfuzz/wire/elsewhere.h:9:1"]
        return of_end("crash", ["==1==ERROR: AddressSanitizer: heap-use-after-free", *frames, *freed], 1, b"").at

    assert (
        at("utf8.h", "key.h", "batch.h", "read.h") == "kfuzz/wire/utf8.h:0 < kfuzz/wire/key.h:1 < kfuzz/wire/batch.h:2"
    )
    assert at("utf8.h", "name.h") == "kfuzz/wire/utf8.h:0 < kfuzz/wire/name.h:1"
    assert at("utf8.h", "c.c") == "kfuzz/wire/utf8.h:0 < f"


# --------------------------------------------------------------------------------------------------- campaigns


@pytest.mark.clang
@pytest.mark.nightly
def test_each_kind_of_fault_in_a_planted_peer_is_found(
    clang_here: None, planted: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    builds = tmp_path / "builds"
    monkeypatch.setattr(campaign, "build_peer", lambda *a, **k: peer_building.build_peer(*a, root=builds, **k))
    monkeypatch.setattr(once, "build_peer", lambda *a, **k: peer_building.build_peer(*a, root=builds, **k))
    faults = [b"over-read", b"crash", b"loop", b"undeclared"]
    monkeypatch.setattr(campaign, "seeds", lambda target, say: [b"documented", b"good", *faults])
    said: list[str] = []
    [result] = campaign.run([], 60, runs=2000, peer=planted, out=tmp_path / "out", say=said.append)
    assert result.no_native_coverage is None
    assert result.modules == 1
    assert result.counters > 0
    assert result.mutator_calls is not None
    assert result.mutator_calls > 0
    assert result.restarts == 0
    assert [(cause.harm, cause.smallest.data) for cause in result.causes.values() if cause.at != "last"] == [
        ("hangs", b"loop"),
        ("panics", b"undeclared"),
    ]
    # Both are at the same place, and so one cause.
    [kills] = [cause for cause in result.causes.values() if cause.at == "last"]
    assert (kills.harm, kills.smallest.data) == ("kills", b"crash")
    assert kills.count >= 2
    # The next campaign uses the same build.
    assert [line.split()[0] for line in said] == ["downloading", "compiling"]
    assert sorted(path.name.split("-")[0] for path in builds.iterdir()) == ["planted", "sources"]
    for data, summary in ((b"over-read", "use-after-poison"), (b"crash", "SEGV"), (b"loop", "no end after")):
        file = tmp_path / "input"
        file.write_bytes(data)
        find = once.reproduce_peer(planted, file, say=said.append)
        assert find is not None
        assert summary in find.summary
    assert len(said) == 2


@pytest.mark.clang
@pytest.mark.nightly
@pytest.mark.parametrize(("name", "modules"), [("aiokafka", 4), ("kafka-python", 0)])
def test_the_peers_are_built_and_fuzzed_with_coverage_and_the_mutator(
    clang_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, modules: int
) -> None:
    """The finds are not for the repository."""
    # So that the seeds are a small part of the runs, whatever a campaign adds to them.
    monkeypatch.setattr(campaign, "seeds", lambda target, say: seeds(target, say=say)[:500])
    peer = peers.find(name)
    try:
        [result] = campaign.run([], 300, runs=3000, peer=peer, stop_at_first=False, out=tmp_path)
    except UsageError as error:
        if "is not available" not in str(error):
            raise
        missing(f"the source of {name}", "connect to a package registry")
    assert result.implementation == peer.label
    assert result.modules == modules
    assert result.executions > 1500
    # Without instrumentation it stays below 20.
    assert result.coverage > 200
    assert result.corpus_after > result.corpus_before > 100
    assert result.mutator_calls is not None
    assert result.mutator_calls > 0.5 * (result.executions - result.corpus_before)


# --------------------------------------------------------------------------------------------------- wrong use


def test_a_peer_without_compiled_code_needs_no_sanitizer(tmp_path: Path) -> None:
    said = refused("fuzz", "--peer", "kafka-python", "--sanitize", "address", "--out", tmp_path)
    assert "kafka-python has no compiled code" in said
    assert list(tmp_path.iterdir()) == []


def test_a_peer_that_is_not_installed_is_refused(planted: Peer, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "site")
    with pytest.raises(UsageError, match=r"planted is not installed; pip install"):
        peers.find("planted", root=tmp_path / "testees")


def test_without_testees_there_are_no_peers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run this in a checkout"):
        peers.find("aiokafka", root=tmp_path)


def test_without_clang_a_peer_is_refused(planted: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "COMPILERS", ("no-such-clang",))
    with pytest.raises(UsageError, match="--peer planted: clang is not installed; install clang"):
        peer_building.build_peer(planted, root=tmp_path / "builds")


def test_a_source_that_is_not_available_is_one_sentence_and_leaves_nothing(
    planted: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(building, "COMPILERS", ("true",))
    shutil.rmtree(tmp_path / "links")
    builds = tmp_path / "builds"
    with pytest.raises(
        UsageError, match=r"source distribution of planted@1\.0 is not available: .*; check the network"
    ):
        peer_building.build_peer(planted, root=builds)
    assert [path.name for path in builds.rglob("*")] == ["sources"]


@pytest.mark.clang
@pytest.mark.full
def test_a_build_that_fails_is_one_sentence_and_leaves_nothing(clang_here: None, planted: Peer, tmp_path: Path) -> None:
    write_source(tmp_path / "links", PLANTED["library"] | {"planted/native.c": "no C"})
    builds = tmp_path / "builds"
    with pytest.raises(UsageError, match=r"the modules of planted@1\.0 do not build with .*: .*error.*; check"):
        peer_building.build_peer(planted, root=builds)
    assert sorted(path.name for path in builds.rglob("*")) == ["planted-1.0.tar.gz", "sources"]
