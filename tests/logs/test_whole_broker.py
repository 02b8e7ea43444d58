"""A real broker does at its start what ``kfuzz check DIR`` says.

Damages with which it starts share one start after a clean shutdown, and one without; the others have one each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from conftest import require_kafka_build
from logs.log_damages import ALL, LOGS, Damage, ends, make
from made_corpora import once

from kfuzz import records
from kfuzz.annotate.listing import Listing
from kfuzz.conformance.broker.real import Broker, BrokerFailed
from kfuzz.logs.checking import Counts, check_directory
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.stored import CLEAN_SHUTDOWN, LOG_START, RECOVERY_POINT, REPLICATION
from kfuzz.logs.whole import LOADS, Start, leaving_starts

pytestmark = [pytest.mark.java, pytest.mark.full]

RELEASE = "4.3.1"
# One partition has an offset in the file of log starts that its log does not reach.
HIGH_START, SET_ASIDE = 1_000_000, "set-aside"


logs = once(LOGS)


class Prepared:
    """A stopped broker with a partition for each damage, and one more with a high log start."""

    def __init__(self, broker: Broker, files: list[Path]) -> None:
        self.broker, self.files = broker, files
        self.partitions = [*ALL, "a high log start"]
        self.topic = broker.create_topic(len(self.partitions))
        broker.stop()
        self.kept = Path(shutil.copytree(broker.data, broker.data.parent / SET_ASIDE))

    def folder(self, name: str) -> Path:
        return self.broker.data / f"{self.topic}-{self.partitions.index(name)}"

    def prepare(self, damages: Mapping[str, Damage], *, is_clean: bool) -> dict[str, Start]:
        """Fill all partitions anew, and damage some. Returns the starts that ``check`` gives, by folder."""
        data = self.broker.data
        shutil.rmtree(data)
        shutil.copytree(self.kept, data)
        for name in self.partitions:
            for path in self.files:
                shutil.copy(path, self.folder(name))
        for checkpoint in (RECOVERY_POINT, LOG_START, REPLICATION):
            (data / checkpoint).write_text("0\n0\n")
        (data / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        if is_clean:
            (data / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":1}')
        for name, damage in damages.items():
            make(damage, self.folder(name))
        return {one.path.name: one.start for one in check_directory(data, Counts(), role="log") if one.start}


@pytest.fixture(scope="module")
def prepared(logs: Path) -> Iterator[Prepared]:
    require_kafka_build()
    with Broker(release=RELEASE) as broker:
        yield Prepared(broker, sorted((logs / "orders-0").iterdir()))


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("*") if path.suffix in (".log", ".index")}


def seen(folder: Path, before: dict[str, int], said: str) -> str:
    """The actions of a broker on a folder, in the words of ``check``. A damaged index, that the next batch follows
    damage, and what consumers do show only in ``said``.
    """
    after = sizes(folder)
    if any(folder.parent.glob(f"{folder.name}.*-stray")):
        return "renames it to -stray and begins an empty one"
    logs = [name for name in sorted(after) if name.endswith(".log")]
    if [int(logs[0][:-4]), after[logs[0]]] == [HIGH_START, 0]:
        return f"deletes its segments and begins an empty log at offset {HIGH_START}"
    acts = []
    made = [name for name in logs if name.replace(".log", ".index") not in before]
    if made or said.startswith("rebuilds"):
        acts.append(f"rebuilds the indexes of {made[0] if made else said.split()[4].rstrip(',')}")
    old = [name for name in sorted(before) if name.endswith(".log")]
    for name in logs:
        if name not in before:
            return f"splits {old[-1]}, whose offsets are too far apart"
        if after[name] < before[name] and said.startswith("cuts off"):
            acts.append(f"cuts off the partial batch at the end of {name}")
        elif after[name] < before[name]:
            ends = [batch.next_offset for batch in records.decode((folder / name).read_bytes())]
            acts.append(
                f"truncates {name if made and name != old[-1] else 'it'} to offset {max([int(name[:-4]), *ends])}"
            )
    if len(old) - len(logs):
        acts.append(f"deletes the segment after {logs[-1]}")
    # The broker has written a snapshot at the end of the log, unless a segment begins there.
    end = max(int(path.stem) for path in folder.glob("*.snapshot"))
    if end != whole_end(folder / logs[-1]) and not acts:
        acts.append(f"takes offset {end} for its end")
    return ", then ".join(acts) or (said if said.startswith(("keeps ", f"{LOADS}, and ")) else LOADS)


def whole_end(log: Path) -> int:
    """The offset after the last sound batch."""
    walk = IndexWalk(int(log.stem), 4096)
    for _ in Listing(log.read_bytes(), role="log", also=walk):
        pass
    return walk.next_offset


@pytest.mark.parametrize("is_clean", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_broker_does_with_each_partition_what_check_says(is_clean: bool, prepared: Prepared) -> None:
    number = prepared.partitions.index("a high log start")
    high = {"write": {f"../{LOG_START}": f"0\n1\n{prepared.topic} {number} {HIGH_START}\n"}}
    damages = {name: damage for name, damage in ALL.items() if not ends(damage, is_clean=is_clean)}
    starts = prepared.prepare({**damages, "a high log start": high}, is_clean=is_clean)
    said = {}
    for name in prepared.partitions:
        start = starts[prepared.folder(name).name]
        assert start.was_clean == is_clean
        said[name] = start.clean if is_clean else start.unclean
    before = {name: sizes(prepared.folder(name)) for name in prepared.partitions}
    prepared.broker.start()
    log = prepared.broker.log.decode()
    prepared.broker.stop()
    assert {name: seen(prepared.folder(name), before[name], said[name]) for name in prepared.partitions} == said
    refused = prepared.folder("a refused transaction index")
    assert any("corrupted index file" in line and refused.name in line for line in log.splitlines())
    assert {text.partition(" ")[0] for text in said.values()} >= {"loads", "rebuilds", "renames", "deletes"}


@pytest.mark.nightly
@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("name", [name for name in ALL if "ends" in ALL[name]])
def test_a_broker_refuses_to_start_where_check_says_so(name: str, is_clean: bool, prepared: Prepared) -> None:
    if not ends(ALL[name], is_clean=is_clean):
        pytest.skip("it starts")
    starts = prepared.prepare({"none": ALL[name]}, is_clean=is_clean)
    whole = starts[prepared.broker.data.name]
    assert (whole.clean if is_clean else whole.unclean).startswith("refuses to start, because of ")
    with pytest.raises(BrokerFailed):
        prepared.broker.start()
    prepared.broker.stop()


@pytest.mark.nightly
def test_a_broker_does_with_folders_that_are_passed_over_what_check_says(prepared: Prepared) -> None:
    prepared.prepare({}, is_clean=True)
    own, other = prepared.folder("none"), prepared.folder("no index")
    stray, future = (own.with_name(f"{one.name}.{'0f' * 16}-{why}") for one, why in ((own, "stray"), (other, "future")))
    shutil.copytree(own, stray)
    other.rename(future)
    assert [act for _, act in leaving_starts([stray, future])] == [
        "loads it, and leaves it alone",
        f"puts it in the place of {other.name}, if that is assigned to this directory",
    ]
    prepared.broker.start()
    prepared.broker.stop()
    assert [stray.is_dir(), future.is_dir(), other.is_dir()] == [True, False, True]
    shutil.copytree(other, future)
    assert next(leaving_starts([future]))[1].startswith(f"refuses to start if {other.name}, which is here too")
    with pytest.raises(BrokerFailed):
        prepared.broker.start()
    prepared.broker.stop()


@pytest.mark.nightly
def test_a_broker_refuses_to_start_with_two_folders_of_a_partition(prepared: Prepared) -> None:
    prepared.prepare({}, is_clean=True)
    again = Path(shutil.copytree(prepared.folder("none"), prepared.broker.data / f"{prepared.topic}-00"))
    found = check_directory(prepared.broker.data, Counts(), role="log")
    [start] = [one.start for one in found if one.path == prepared.broker.data]
    assert start is not None
    assert start.clean == f"refuses to start, because of {again.name}"
    with pytest.raises(BrokerFailed):
        prepared.broker.start()
    prepared.broker.stop()
