"""``kfuzz fuzz --sync``: machines that know nothing of each other share inputs and causes."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fuzzer_stub import CANARY_INPUT

from kfuzz.conformance.judge.causes import Cause
from kfuzz.errors import UsageError
from kfuzz.fuzz import campaign, syncing
from kfuzz.fuzz.causes import cause_of, document_text, load, loaded
from kfuzz.fuzz.kept import kept_at
from kfuzz.fuzz.recorder import Find
from kfuzz.fuzz.syncing import Shared, write_causes
from kfuzz.fuzz.targets import TARGETS
from kfuzz.storage import Target as Place

TARGET = TARGETS["compression"]


def name_of(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


class Machine:
    """A corpus, and what it shares at ``place``."""

    def __init__(self, place: str, corpus: Path, *seeds: bytes) -> None:
        self.corpus, self.said, self.causes = corpus, list[str](), list[Cause]()
        corpus.mkdir()
        self.find(*seeds)
        own = {name_of(seed) for seed in seeds}
        self.shared = Shared(Place.of(place), TARGET, corpus, own, lambda: self.causes, self.said.append)

    def find(self, *inputs: bytes) -> None:
        for data in inputs:
            (self.corpus / name_of(data)).write_bytes(data)

    def has(self) -> set[bytes]:
        return {path.read_bytes() for path in self.corpus.iterdir()}


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{tmp_path}/shared" if request.param == "folder" else f"memory://{tmp_path.name}/shared"


def test_each_machine_gets_what_the_others_found_and_nothing_twice(place: str, tmp_path: Path) -> None:
    one, two = (Machine(place, tmp_path / name, b"seed") for name in ("one", "two"))
    one.find(b"a", b"b")
    one.shared.exchange()
    two.find(b"c")
    two.shared.exchange()
    assert two.has() == {b"seed", b"a", b"b", b"c"}
    # The merge has dropped it here, and it does not come again.
    (one.corpus / name_of(b"b")).unlink()
    one.shared.exchange()
    assert one.has() == {b"seed", b"a", b"c"}
    assert set(Place.of(place).list("compression/corpus").files) == {name_of(data) for data in (b"a", b"b", b"c")}
    late = Machine(place, tmp_path / "late")
    late.shared.exchange()
    assert late.has() == {b"a", b"b", b"c"}


def test_an_input_that_is_half_written_is_given_when_it_is_whole(place: str, tmp_path: Path) -> None:
    machine = Machine(place, tmp_path / "one")
    file = machine.corpus / name_of(b"whole")
    file.write_bytes(b"who")
    machine.shared.exchange()
    assert Place.of(place).list("compression/corpus").files == {}
    file.write_bytes(b"whole")
    machine.shared.exchange()
    assert Place.of(place).read(f"compression/corpus/{file.name}") == b"whole"


def test_what_others_put_there_is_checked(place: str, tmp_path: Path) -> None:
    there = Place.of(place)
    there.write(f"compression/corpus/{name_of(b'a')}", b"another content")
    there.write("compression/corpus/..%2fescape", b"x")
    there.write(f"compression/corpus/{name_of(bytes(TARGET.length_max + 1))}", bytes(TARGET.length_max + 1))
    there.write(f"compression/corpus/{name_of(b'good')}", b"good")
    machine = Machine(place, tmp_path / "one")
    machine.shared.exchange()
    assert machine.has() == {b"good"}


def test_too_many_inputs_are_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "INPUTS_MAX", 2)
    for data in (b"a", b"b", b"c"):
        Place.of(place).write(f"compression/corpus/{name_of(data)}", data)
    with pytest.raises(UsageError, match="has more than 2 files; begin with another place"):
        Machine(place, tmp_path / "one").shared.start()


def find(data: bytes, **more: Any) -> Find:
    return Find("exception", "ValueError: no", "kfuzz/records/codecs.py:7", "", data, **more)


def test_causes_of_all_campaigns_become_one_folder_with_the_smallest_input(place: str, tmp_path: Path) -> None:
    one, two = (Machine(place, tmp_path / name) for name in ("one", "two"))
    [large, small] = [cause_of(TARGET, find(data)) for data in (b"large", b"s")]
    assert large.id == small.id
    one.causes = [large]
    one.shared.exchange()
    two.causes = [small]
    two.shared.finish()
    there = Place.of(place).child("compression")
    # Other people's files are checked.
    there.write("campaigns/other.json", b'[{"id": 7}]')
    there.write("campaigns/broken.json", b"{")
    huge = " " * syncing.CAMPAIGN_BYTES_MAX + document_text([small])
    there.write("campaigns/huge.json", huge)
    # Giving again counts nothing twice.
    one.shared.finish()
    [whole] = write_causes(there)
    assert (whole.id, whole.count, whole.smallest.data) == (small.id, 2, b"s")
    assert there.read(f"causes/panics-{small.id}") == b"s"
    assert [loaded(entry) for entry in json.loads(there.read("causes/causes.json") or b"")] == [whole]
    assert one.said == two.said == []
    if "://" not in place:
        kept = kept_at(f"{place}/compression/causes/panics-{small.id}")
        assert kept is not None
        assert (kept.target, kept.cause_id) == ("compression", small.id)


def test_a_place_that_goes_away_is_said_once_and_nothing_is_lost(tmp_path: Path) -> None:
    machine = Machine(str(tmp_path / "shared"), tmp_path / "one", b"seed")
    machine.find(b"a")
    machine.shared.exchange()
    shutil.rmtree(tmp_path / "shared")
    (tmp_path / "shared").write_bytes(b"")
    machine.find(b"b")
    for _ in range(3):
        machine.shared.try_to(machine.shared.exchange)
    machine.shared.finish()
    [said] = machine.said
    place = tmp_path / "shared/compression"
    assert said.startswith(f"compression: the campaign goes on alone, because {place} fails: ")
    assert machine.has() == {b"seed", b"a", b"b"}
    (tmp_path / "shared").unlink()
    machine.shared.try_to(machine.shared.exchange)
    assert {path.name for path in (tmp_path / "shared/compression/corpus").iterdir()} >= {name_of(b"b")}


@pytest.mark.full
@pytest.mark.clang
def test_a_second_campaign_begins_with_what_the_first_one_found(tmp_path: Path) -> None:
    there = Place.of(tmp_path / "shared")
    there.write(f"canary/corpus/{name_of(CANARY_INPUT)}", CANARY_INPUT)
    [first] = campaign.run(["canary"], 60, runs=3000, out=tmp_path / "one", sync=tmp_path / "shared")
    found = {path.name for path in (tmp_path / "shared/canary/corpus").iterdir()}
    assert len(found) > 3
    [second] = campaign.run(["canary"], 60, runs=1, seed=2, out=tmp_path / "two", sync=tmp_path / "shared")
    assert second.corpus_before == 1 + len(found)
    assert first.causes
    counts = {cause.id: cause.count for cause in load(tmp_path / "shared/canary/causes/causes.json")}
    assert counts.keys() >= {cause.id for cause in first.causes.values()}
    for result in (first, second):
        for cause in result.causes.values():
            counts[cause.id] -= cause.count
    assert set(counts.values()) == {0}
