"""Messages in ``python -m benchmarks``: the set is what the docs say, and unequal work is never compared.

Nothing here asserts a speed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import missing
from results import rows_of

from benchmarks import message_work
from benchmarks.__main__ import main
from benchmarks.measure import NotTheSameWork, confirm
from benchmarks.message_peers import MESSAGE_PEERS, KafkaPythonMessages, Kio, MessagePeer
from benchmarks.message_set import SIZES, VERSIONS, MessageSet, looking
from benchmarks.paths import MESSAGE_PATHS
from benchmarks.peers import PeerMissing
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import Definition, key_of

SET = MessageSet("medium")


def kio() -> Kio:
    if importlib.util.find_spec("kio") is None:
        missing("kio", "install the extra bench")
    return Kio()


PEERS = [kio, KafkaPythonMessages]


SMALL = ("dicts-messages-small",)


@pytest.mark.parametrize("paths", [SMALL, pytest.param(tuple(MESSAGE_PATHS), marks=pytest.mark.nightly)])
def test_a_quick_run_writes_every_path_against_every_peer(paths: tuple[str, ...], tmp_path: Path) -> None:
    kio()
    assert main(["--quick", "--path", *paths, "--out", str(tmp_path)]) == 0
    against = {path: ["marshal"] * path.startswith("dicts-") + ["kafka-python", "kio"] for path in paths}
    expected = [(path, "kfuzz", peer) for path in paths for peer in against[path]]
    assert [(row["path"], row["subject"], row["peer"]) for row in rows_of(tmp_path)] == expected


def names_of(definition: Definition, version: int) -> set[str]:
    fields = [*definition.fields, *(field for struct in definition.structs.values() for field in struct.fields)]
    return {field.type.name for field in fields if version in field.versions}


def test_versions_are_the_newest_that_name_topics() -> None:
    for name, version in VERSIONS.items():
        pair = [catalogue().find(name + kind) for kind in ("Request", "Response")]
        assert not any("uuid" in names_of(definition, version) for definition in pair)
        assert any("uuid" in names_of(definition, version + 1) for definition in pair)


def test_every_size_has_every_request_and_response_and_each_is_larger() -> None:
    means = []
    for size in SIZES:
        samples = MessageSet(size).samples
        expected = {f"{name}{kind}" for name in VERSIONS for kind in ("Request", "Response")}
        assert {sample.definition.name for sample in samples} == expected
        means.append(sum(len(sample.data) for sample in samples) / len(samples))
    assert means[0] < 300
    assert means[1] < 10_000 < means[2]
    assert means == sorted(means)


def test_every_field_of_a_version_is_set() -> None:
    for sample in SET.samples:
        assert codec.decode(sample.definition, sample.version, sample.data) == sample.values


def test_there_are_nulls_and_tagged_fields_but_not_everywhere() -> None:
    responses = [sample.values for sample in SET.samples if sample.definition.name == "FetchResponse"]
    partitions = [part for values in responses for topic in values["responses"] for part in topic["partitions"]]
    for given in (
        [part["records"] is None for part in partitions],
        [part["currentLeader"] != {"leaderId": -1, "leaderEpoch": -1} for part in partitions],
        [part["errorCode"] != 0 for part in partitions],
    ):
        assert 0 < sum(given) < len(given) / 2


def test_the_same_seed_makes_the_same_set() -> None:
    assert MessageSet("small").samples == MessageSet("small").samples
    assert MessageSet("small").samples != MessageSet("small", seed=6).samples


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("size", SIZES)
def test_a_peer_reads_and_writes_the_same(peer: Callable[[], MessagePeer], size: Any) -> None:
    library, messages = peer(), MessageSet(size)
    for work in (library.decode(messages), library.encode(messages)):
        confirm("path", {"peer": work}, messages.census)
        assert work.run() == len(messages.samples)


class Looked:
    """Values as an object that remembers what it was asked for."""

    def __init__(self, values: Message, asked: list[str]) -> None:
        self.values, self.asked = values, asked

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        found = self.values[name]
        if isinstance(found, list):
            return [Looked(one, self.asked) if isinstance(one, dict) else one for one in found]
        return Looked(found, self.asked) if isinstance(found, dict) else found


def names_in(value: Any) -> list[str]:
    """Every name of every struct."""
    if isinstance(value, list):
        return [name for element in value for name in names_in(element)]
    if not isinstance(value, dict):
        return []
    return [*value, *(name for one in value.values() for name in names_in(one))]


def test_a_look_reads_every_field_of_every_struct() -> None:
    for sample in SET.samples:
        asked: list[str] = []
        looking(sample, key_of)(Looked(sample.values, asked))
        assert sorted(asked) == sorted(names_in(sample.values))


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_can_be_looked_at(peer: Callable[[], MessagePeer]) -> None:
    contestants: list[Any] = [peer(), message_work]
    for contestant in contestants:
        assert contestant.look(SET).run() == len(SET.samples)


@pytest.mark.parametrize("peer", [None, *PEERS])
def test_a_peer_with_another_result_is_refused_with_the_message_that_differs(
    peer: Callable[[], MessagePeer] | None,
) -> None:
    messages = MessageSet("medium")
    at = [sample.definition.name for sample in messages.samples].index("FetchRequest")
    right = messages.samples[at]
    values = codec.decode(right.definition, right.version, right.data)
    values["topics"][0]["partitions"][0]["fetchOffset"] += 1
    messages.samples[at] = right._replace(data=codec.encode(right.definition, right.version, values))
    contestant: Any = message_work if peer is None else peer()
    works = [contestant.decode(messages), contestant.encode(messages)]
    if peer is None:
        works.append(message_work.dicts(messages))
    messages.samples[at] = right
    for work in works:
        with pytest.raises(NotTheSameWork, match="differing FetchRequest instead of none"):
            confirm("path", {"other": work}, SET.census)


def test_a_verdict_that_finds_anything_and_a_size_that_is_another_are_refused() -> None:
    messages = MessageSet("small")
    census = MessageSet("small").census
    last = messages.samples[-1]
    messages.samples[-1] = last._replace(data=last.data + b"!")
    with pytest.raises(NotTheSameWork, match=r"differing .*bytes-after-message"):
        confirm("path", {"kfuzz": message_work.verdict(messages)}, census)
    messages.samples[-1] = messages.samples[-2]
    with pytest.raises(NotTheSameWork, match=r"bytes .* instead of"):
        confirm("path", {"kfuzz": message_work.size(messages)}, census)


def test_a_peer_that_is_not_there_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody() -> MessagePeer:
        raise PeerMissing("No module named 'kio'; install the extra bench")

    monkeypatch.setitem(MESSAGE_PEERS, "kio", nobody)  # type: ignore[index]
    arguments = ["--quick", "--path", "verdict-messages-small", "--out", str(tmp_path), "--peer"]
    assert main([*arguments, "kio", "kafka-python"]) == 0
    assert "kio is not compared: No module named 'kio'; install the extra bench" in capsys.readouterr().out
    assert main([*arguments, "kio"]) == 2
    assert "there is no peer to compare with; peers for these paths: kio, kafka-python" in capsys.readouterr().err
    assert main([*arguments, "aiokafka"]) == 2
