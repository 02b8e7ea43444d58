"""`kfuzz fuzz --client`: conversations by seed, their judge, and campaigns against a toy with planted faults."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.pages import ROOT

from kfuzz import records
from kfuzz.cli.main import main
from kfuzz.conformance.judge.harm import HANGS, KILLS, LOSES
from kfuzz.errors import UsageError
from kfuzz.fuzz.clients import Campaign
from kfuzz.fuzz.conversations import OWN, Conversation, Held, Topic, conversation, hold, load, plain
from kfuzz.fuzz.driver import Bounds, Driver, named_client
from kfuzz.records import Record, RecordBatch
from kfuzz.relay.local import cluster
from kfuzz.relay.rule import Rule

TOY = shlex.join((sys.executable, str(Path(__file__).with_name("toy_client.py"))))
# The words of a campaign about each planted fault.
FAULTS = {
    "dies": "died of SIGABRT",
    "loops": "computes without an end in poll",
    "stops": "hands out nothing more",
    "drops": "hands out 12 of 15 records, without an error",
}
APIS = {"ApiVersions": 3, "Metadata": 8, "ListOffsets": 5, "Fetch": 11}
QUICK = Bounds(cpu_ms=300, recover_ms=400)
PARTITION = "responses[*].partitions[*]"
BATCH = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")])).hex()
COUNT = 250
ODD = {"api": "Fetch", "nth": 2, "set": {f"{PARTITION}.logStartOffset": 1}}


def kfuzz(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["fuzz", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


# --- what is changed --------------------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_conversations_and_others_differ() -> None:
    first, again, other = ([conversation(seed, k, APIS) for k in range(50)] for seed in (1, 1, 2))
    assert first == again
    assert not {json.dumps(one.rules) for one in first} & {json.dumps(one.rules) for one in other if len(one.rules) > 1}


def test_version_negotiation_and_most_first_metadata_are_left_alone() -> None:
    made = [conversation(1, k, APIS) for k in range(1000)]
    rules = [rule for one in made for rule in one.rules]
    assert {rule["api"] for rule in rules} == set(APIS) - {"ApiVersions"}
    firsts = sum(any(rule["api"] == "Metadata" and rule["nth"] == 1 for rule in one.rules) for one in made)
    assert 0 < firsts < 100
    kinds = Counter(next(iter(rule.keys() - {"api", "nth"})) for rule in rules)
    assert set(kinds) == {"mutate", "set", "error", "disconnect", "duplicate"}
    # Each change can be left out on its own.
    assert all(len({(rule["api"], rule["nth"]) for rule in one.rules}) == len(one.rules) for one in made)


def test_a_file_gives_the_conversation_back_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    made = conversation(3, 4, APIS)
    file = tmp_path / "made.json"
    file.write_text(json.dumps(made.to_json()))
    assert load(file) == Conversation(3, 4, made.isolation, tuple(Rule(one).to_json() for one in made.rules))
    file.write_text(json.dumps(made.to_json() | {"rules": [{"api": "Fetch", "error": "NONSENSE"}]}))
    with pytest.raises(UsageError, match=r"made.json: rules\[0\]: error"):
        load(file)


# --- how it is judged -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mended() -> Iterator[Driver]:
    with Driver(named_client(TOY), QUICK) as driver:
        yield driver


@pytest.fixture(scope="module")
def faulty() -> Iterator[Driver]:
    with Driver(named_client(f"{TOY} {' '.join(FAULTS)}"), QUICK) as driver:
        yield driver


def held(driver: Driver, *rules: dict[str, object]) -> Held:
    return hold(driver, Conversation(1, 1, rules=rules), QUICK)


def test_a_right_reading_and_a_reported_error_are_no_finds(mended: Driver) -> None:
    apis, topic = plain(mended, QUICK)
    assert apis == {"ApiVersions": 3, "Metadata": 8, "Fetch": 11}
    assert topic == OWN
    read = held(mended, ODD)
    assert not any(read.ended)
    assert frozenset(read.told) == OWN.records
    assert [one.after.api for one in read.applied] == ["Fetch"]
    refused = held(mended, {"api": "Fetch", "nth": 2, "error": 1})
    assert refused.ended == ("", "error 1", "", "")
    assert mended.starts == 1


def test_a_client_may_hand_out_other_records_only_if_the_proxy_sent_them(mended: Driver) -> None:
    other = held(mended, {"api": "Fetch", "nth": 1, "vector": "records/v2/header/minimal"})
    assert not any(other.ended)
    assert not frozenset(other.told) <= (OWN.records or frozenset())


def test_a_client_that_comes_back_is_no_find(mended: Driver) -> None:
    lost = held(mended, {"api": "Fetch", "nth": "2-1000", "times": 3, "set": {f"{PARTITION}.partitionIndex": 7}})
    assert not any(lost.ended)
    assert len(lost.applied) == 3
    cut = held(
        mended, {"api": "Fetch", "nth": 2, "disconnect": "before"}, {"api": "Metadata", "nth": 2, "mutate": True}
    )
    assert not any(cut.ended)


@pytest.mark.parametrize(
    ("rule", "harm", "error"),
    [
        (ODD, LOSES.name, "hands out 12 of 15 records, without an error"),
        ({"api": "Fetch", "nth": 2, "error": 6}, HANGS.name, "hands out nothing more"),
        ({"api": "Fetch", "nth": 2, "error": 9}, HANGS.name, "computes without an end in poll"),
        ({"api": "Fetch", "nth": 2, "hex": "00000000000000000000ffffff80"}, KILLS.name, "died of SIGABRT"),
    ],
)
def test_planted_faults_are_finds(faulty: Driver, rule: dict[str, object], harm: str, error: str) -> None:
    ended = held(faulty, rule).ended
    assert ended == (harm, error, "", "Fetch")
    # The next one gets a new process.
    assert not faulty.runs


def test_the_records_of_another_broker_are_those_that_the_client_reads_without_a_change(mended: Driver) -> None:
    with cluster() as brokers:
        brokers.line(topic="orders", hex=BATCH)
        _, topic = plain(mended, QUICK, Topic("orders", brokers.bootstrap))
        assert list(topic.records or ()) == [(0, "6b", "76")]
        with pytest.raises(UsageError, match="does not read topic empty of 127"):
            plain(mended, QUICK, Topic("empty", brokers.bootstrap))


def test_a_driver_that_is_none_and_a_decoder_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "out"))
    for arguments, sentence in (
        (("--client", "no-such-program"), "--client: 'no-such-program' is not a program on this machine"),
        (("--client", "kafka-python"), "kafka-python is no client that can be driven; take one of"),
        (("--client", "kcat"), "kcat is no client that can be driven"),
        (("--client", "echo hello"), "--client echo: the driver's line is not JSON"),
        (("--client", "echo {}", "record-batch"), "--client takes --bootstrap"),
        (("--bootstrap", "127.0.0.1:9092"), "--bootstrap is about --client"),
    ):
        assert kfuzz(*arguments, *out) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- campaigns --------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_campaign_finds_the_planted_faults_by_cause_and_shows_each_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    toy = f"{TOY} {' '.join(FAULTS)}"
    campaign = Campaign(named_client(toy), 1, tmp_path, QUICK)
    campaign.run(120, COUNT)
    found = list(campaign.found.values())
    assert {one.deviation.error.partition(", after")[0] for one in found} == set(FAULTS.values())
    assert campaign.conversations == COUNT
    assert campaign.unconfirmed == 0
    assert sum(one.count for one in found) == sum(campaign.ends[harm] for harm in (KILLS.name, HANGS.name, LOSES.name))
    assert max(len(one.conversation.rules) for one in found) == 1
    file = next(path for path, one in campaign.found.items() if one.deviation.harm == LOSES.name)
    assert kfuzz("--client", toy, "--reproduce", str(file)) == 1
    assert "loses or changes data: hands out" in capsys.readouterr().out
    assert kfuzz("--client", TOY, "--reproduce", str(file)) == 0


@pytest.mark.full
def test_a_campaign_finds_nothing_in_the_mended_toy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert kfuzz("--client", TOY, "--count", str(COUNT), "--out", str(tmp_path), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["conversations"] == COUNT
    assert said["changed"] > 100
    assert said["causes"] == []
    assert set(said["ends"]) == {"read", "rejected"}


PAGE = (ROOT / "docs" / "fuzzing.md").read_text().partition("## Whole clients\n")[2]


@pytest.mark.full
def test_the_campaign_of_the_page_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toy = "tests/fuzz/toy_client.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    Path(toy).parent.mkdir(parents=True)
    Path(toy).write_text((ROOT / toy).read_text())
    assert kfuzz("--client", f"python {toy} drops", "--count", "250") == 1
    command, *shown = PAGE.partition("```\n")[2].partition("```")[0].splitlines()
    assert command == f'$ kfuzz fuzz --client "python {toy} drops" --count 250'
    _, *rest = capsys.readouterr().out.splitlines()
    # The first line has times.
    assert rest == shown[1:]


@pytest.mark.full
def test_the_driver_of_the_page_drives_a_client(tmp_path: Path) -> None:
    file = tmp_path / "driver.py"
    file.write_text(PAGE.partition("```python\n")[2].partition("```")[0])
    with Driver(named_client(shlex.join((sys.executable, str(file)))), Bounds()) as driver:
        apis, _ = plain(driver, Bounds())
        assert {"Fetch", "Metadata"} <= apis.keys()
        refused = held(driver, {"api": "Fetch", "nth": 2, "error": "TOPIC_AUTHORIZATION_FAILED"})
    assert refused.ended.harm == ""
    assert refused.ended.error.startswith("TopicAuthorizationFailedError")
