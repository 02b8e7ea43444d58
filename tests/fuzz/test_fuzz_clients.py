"""`kfuzz fuzz --client`: conversations by seed, their judge, and campaigns against a toy with planted faults."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_driver import outcome
from docs.pages import ROOT

from kfuzz import records
from kfuzz.conformance.judge.harm import HANGS, KILLS, LOSES, Harm
from kfuzz.errors import UsageError
from kfuzz.fuzz.clients import Campaign
from kfuzz.fuzz.conversations import OWN, READS, Conversation, Held, Topic, conversation, hold, load, plain, writes
from kfuzz.fuzz.driver import Bounds, Driver, Ended, named_client
from kfuzz.fuzz.jobs import Failed, Jobs
from kfuzz.fuzz.smaller import broken, fewer
from kfuzz.records import Record, RecordBatch
from kfuzz.relay.local import cluster
from kfuzz.relay.rule import Rule

SERVING = ROOT / "testees" / "python" / "kfuzz_serving.py"
TOY = shlex.join((sys.executable, str(Path(__file__).with_name("toy_client.py"))))
# The words of a campaign about each planted fault.
FAULTS = {
    "dies": "died of SIGABRT",
    "loops": "computes without an end in poll",
    "stops": "hands out nothing more",
    "drops": "hands out 12 of 15 records, without an error",
}
FAULTY = f"{TOY} {' '.join(FAULTS)}"
APIS = {READS: {"ApiVersions": 3, "Metadata": 8, "ListOffsets": 5, "Fetch": 11}}
QUICK = Bounds(cpu_ms=300, recover_ms=400)
IDEMPOTENT = "sends-idempotent"
BATCH = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")])).hex()
COUNT = 250
FETCH: dict[str, object] = {"api": "Fetch", "nth": 2}
ODD = FETCH | {"set": {"responses[*].partitions[*].logStartOffset": 1}}
LOST = FETCH | {"nth": "2-1000", "times": 3, "set": {"responses[*].partitions[*].partitionIndex": 7}}
PRODUCE: dict[str, object] = {"api": "Produce", "nth": 3}
METADATA: dict[str, object] = {"api": "Metadata", "nth": 2, "mutate": True}
FUZZING = (ROOT / "docs" / "fuzzing.md").read_text()


def says(hello: str, answer: str = "{}") -> str:
    """The command of a driver that answers everything in the same way."""
    return shlex.join(("sh", "-c", f"echo {shlex.quote(hello)}; while read line; do echo {shlex.quote(answer)}; done"))


def test_equal_seeds_give_equal_conversations_and_others_differ() -> None:
    first, again, other = ([conversation(seed, k, APIS) for k in range(50)] for seed in (1, 1, 2))
    assert first == again
    assert not {json.dumps(one.rules) for one in first} & {json.dumps(one.rules) for one in other if len(one.rules) > 1}


def test_version_negotiation_and_most_first_metadata_are_left_alone() -> None:
    made = [conversation(1, k, APIS) for k in range(1000)]
    rules = [rule for one in made for rule in one.rules]
    assert {rule["api"] for rule in rules} == set(APIS[READS]) - {"ApiVersions"}
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
    assert load(file) == (Conversation(3, 4, made.isolation, tuple(Rule(one).to_json() for one in made.rules)), {})
    file.write_text(json.dumps(made.to_json() | {"rules": [{"api": "Fetch", "error": "NONSENSE"}]}))
    with pytest.raises(UsageError, match=r"made.json: rules\[0\]: error"):
        load(file)


@pytest.fixture(scope="module")
def mended() -> Iterator[Driver]:
    with Driver(named_client(TOY), QUICK) as driver:
        yield driver


def held(driver: Driver, *rules: dict[str, object], kind: str = READS) -> Held:
    return hold(driver, Conversation(1, 1, rules=rules, kind=kind), QUICK)


@pytest.mark.parametrize(
    ("rules", "error", "applied", "reads_all"),
    [
        pytest.param([ODD], "", 1, True, id="right-reading"),
        pytest.param([FETCH | {"error": 1}], "error 1", 1, False, id="reported-error"),
        # It may hand out other records if the proxy sent them.
        pytest.param([FETCH | {"nth": 1, "vector": "records/v2/header/minimal"}], "", 1, False, id="other-records"),
        pytest.param([LOST], "", 3, True, id="comes-back"),
        pytest.param([FETCH | {"disconnect": "before"}, METADATA], "", 2, True, id="connects-anew"),
    ],
)
def test_a_client_that_does_as_it_should_is_no_find(
    mended: Driver, rules: list[dict[str, object]], error: str, applied: int, reads_all: bool
) -> None:
    found = held(mended, *rules)
    assert found.ended == ("", error, "", "")
    assert len(found.applied) == applied
    assert (frozenset(found.handed) == OWN.records) is reads_all
    assert mended.starts == 1


@pytest.mark.parametrize(
    ("rule", "harm", "fault"),
    [
        (ODD, LOSES, "drops"),
        (FETCH | {"error": 6}, HANGS, "stops"),
        (FETCH | {"error": 9}, HANGS, "loops"),
        (FETCH | {"hex": "00000000000000000000ffffff80"}, KILLS, "dies"),
    ],
)
def test_planted_faults_are_finds(rule: dict[str, object], harm: Harm, fault: str) -> None:
    with Driver(named_client(FAULTY), QUICK) as faulty:
        assert held(faulty, rule).ended == (harm.name, FAULTS[fault], "", "Fetch")
        # The next one gets a new process.
        assert not faulty.runs


def test_a_mutated_frame_becomes_set_fields_or_bytes_and_each_step_leaves_something_out(mended: Driver) -> None:
    rules = (FETCH | {"mutate": True}, METADATA)
    made = Conversation(1, 100, rules=rules)
    one = broken(made, hold(mended, made, QUICK))
    assert (one.applied, one.reads_all) == ({0}, True)
    in_fields, in_bytes = one.instead[0]
    start = "responses[0].partitions[0].logStartOffset"
    assert in_fields["set"] == {"errorCode": -1, start: "2980462554088721007"}
    assert (in_bytes["versions"], in_bytes["keep_bytes"], in_bytes["hex"][:4]) == (11, 4, "ffff")
    # Without a rule that did nothing, then without either rule, then with another rule in place of the mutation.
    ways = [[rules[0]], [METADATA], [rules[0]], [in_fields, METADATA], [in_bytes, METADATA]]
    assert [list(each.rules) for each in fewer(one)] == ways
    less = fewer(replace(one, made=replace(made, rules=(in_fields,)), applied=frozenset({0}), instead={}))
    assert [each.rules[0]["set"] for each in less] == [{start: in_fields["set"][start]}, {"errorCode": -1}]
    for other in (in_fields, in_bytes):
        [same] = hold(mended, Conversation(9, 9, rules=(other,)), QUICK).applied
        assert same.after.body()[4:].hex() == in_bytes["hex"]


def test_work_that_fails_and_a_process_that_ends_are_results() -> None:
    got: list[object] = []
    with Jobs(named_client(TOY), QUICK) as jobs:
        for work in (Driver.start, Driver.ask, _ends, _starts):
            jobs.do(got.append, work)
            jobs.wait(30)
        assert (len(jobs), jobs.starts) == (0, 1)
    assert got[0] is None
    assert all(isinstance(one, Failed) and one.why for one in got[1:3])
    assert got[3] == 0


def _ends(driver: Driver) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _starts(driver: Driver) -> int:
    return driver.starts


@pytest.mark.parametrize("kind", ["sends", IDEMPOTENT])
def test_a_producer_that_sends_again_or_reports_an_error_is_no_find(mended: Driver, kind: str) -> None:
    rules = [PRODUCE | {"disconnect": "before"}, PRODUCE | {"nth": 4, "error": 6}, PRODUCE | {"nth": 6, "mutate": True}]
    assert held(mended, *rules, kind=kind).ended == Ended()
    assert (held(mended, PRODUCE | {"error": 87}, kind=kind).ended, mended.starts) == (Ended("", "error 87"), 1)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("forgets", "reports 12 records as sent, and the broker has 3 of them"),
        ("doubles", "sends a record twice, although it is idempotent"),
        ("swaps", "sends records in another order"),
    ],
)
def test_what_a_broker_holds_is_judged(fault: str, words: str) -> None:
    with Driver(named_client(f"{TOY} {fault}"), QUICK) as faulty:
        assert held(faulty, kind=IDEMPOTENT).ended == Ended()
        ended = held(faulty, PRODUCE | {"disconnect": "before"}, kind=IDEMPOTENT).ended
    assert ended == (LOSES.name, words, "", "Produce")


def test_a_process_must_be_well_after_an_error() -> None:
    with Driver(named_client(f"{TOY} spoils"), QUICK) as faulty:
        ended = held(faulty, FETCH | {"error": 1}).ended
    assert (ended.harm, ended.error) == (
        HANGS.name,
        "another consumer of the process does not read a topic after error 1",
    )


def test_the_records_of_another_broker_are_those_that_the_client_reads_without_a_change(mended: Driver) -> None:
    assert plain(mended, QUICK) == ({"ApiVersions": 3, "Metadata": 8, "Fetch": 11}, OWN)
    assert {kind: "Produce" in apis for kind, apis in writes(mended, QUICK, OWN).items()} == {
        "sends": True,
        IDEMPOTENT: True,
    }
    with cluster() as brokers:
        brokers.line(topic="orders", hex=BATCH)
        _, topic = plain(mended, QUICK, Topic("orders", brokers.bootstrap))
        assert list(topic.records or ()) == [(0, "6b", "76")]
        with pytest.raises(UsageError, match="does not read topic empty of 127"):
            plain(mended, QUICK, Topic("empty", brokers.bootstrap))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--client", "no-such-program"), "--client: 'no-such-program' is not a program on this machine"),
        (("--client", "kafka-python"), "kafka-python cannot be driven, because it is not a whole client; take one of"),
        (("--client", "kcat"), "kcat cannot be driven, because it is not a whole client"),
        (("--client", "echo hello"), "--client echo: the driver's line is not JSON"),
        (("--client", says('{"produces": 5}')), "--client sh: the driver's line has no list of words in produces"),
        (("--client", says("{}", '{"records": 5}')), "the driver hands out a record that is none"),
        (("--client", "echo {}", "record-batch"), "--client takes --bootstrap"),
        (("--bootstrap", "127.0.0.1:9092"), "--bootstrap is about --client"),
        (("--client", "kafka-consumer", "--bootstrap", "127.0.0.1:1"), "127.0.0.1:1 cannot be reached"),
        (("--against-broker", "127.0.0.1:1"), "127.0.0.1:1 cannot be reached"),
        (("--against-broker", "127.0.0.1:1", "--client", "x"), "--against-broker takes --seconds"),
    ],
)
def test_a_driver_that_is_none_and_a_decoder_are_refused(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    code, _, error = outcome("fuzz", *words, "--out", tmp_path / "out")
    assert (code, sentence in error) == (2, True), error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("place", "id", "sentence"),
    [
        ("mine", "records/mine/a", "is not the id of a conversation; begin it with conversation/"),
        ("mine", "conversation/pipe/a", "pipe.json is not a file; remove it, or choose another id"),
        ("mine/conversation/file", "conversation/mine/a", "file is not a folder; name one"),
    ],
)
def test_a_cause_is_kept_only_as_a_conversation_in_a_folder(tmp_path: Path, place: str, id: str, sentence: str) -> None:
    cause = tmp_path / "causes" / "loses-01234567.json"
    (tmp_path / "mine" / "conversation").mkdir(parents=True)
    cause.parent.mkdir()
    broke = {"harm": "loses", "error": "hands out nothing more", "reads_all": True}
    made = Conversation(1, 1, rules=(FETCH | {"error": 1},)).to_json()
    cause.write_text(json.dumps(made | {"broke": broke}))
    os.mkfifo(tmp_path / "mine" / "conversation" / "pipe.json")
    (tmp_path / "mine" / "conversation" / "file").touch()
    code, _, error = outcome("keep", cause, "--id", id, "--vectors", tmp_path / place)
    assert (code, sentence in error) == (2, True), error
    assert (tmp_path / "mine" / "conversation" / "pipe.json").is_fifo()


@pytest.mark.full
def test_a_campaign_finds_the_planted_faults_by_cause_and_shows_each_again(tmp_path: Path) -> None:
    campaign = Campaign(named_client(FAULTY), 7, tmp_path, QUICK)
    campaign.run(120, COUNT, jobs=3)
    found = list(campaign.found.values())
    assert {one.deviation.error.partition(", after")[0] for one in found} == set(FAULTS.values())
    assert (campaign.conversations, campaign.unconfirmed) == (COUNT, 0)
    assert sum(one.count for one in found) == sum(campaign.ends[harm.name] for harm in (KILLS, HANGS, LOSES))
    # One response is changed: in one field, or into one that kfuzz does not read.
    [rules] = zip(*(one.conversation.rules for one in found), strict=True)
    assert all({"error", "hex"} & one.keys() or len(one["set"]) == 1 for one in rules), rules
    file = next(path for path, one in campaign.found.items() if one.deviation.harm == LOSES.name)
    code, text, _ = outcome("fuzz", "--client", FAULTY, "--reproduce", file)
    assert (code, "loses or changes data: hands out" in text) == (1, True)
    assert outcome("fuzz", "--client", TOY, "--reproduce", file)[0] == 0
    # Any client can be asked about it.
    suite = tmp_path / "mine"
    for path in campaign.found:
        assert outcome("keep", path, "--id", f"conversation/mine/{path.stem}", "--vectors", suite)[0] == 0
    for toy, failed in ((FAULTY, len(found)), (TOY, 0)):
        command = shlex.join((sys.executable, str(SERVING), "toy", "python", *shlex.split(toy)))
        asked = ("conform", "--vectors", suite, "--command", command, "--json", "-", "conversation/*")
        code, text, _ = outcome(*asked)
        [said] = json.loads(text)["testees"]
        assert (code, said["totals"].get("pass", 0)) == (int(failed > 0), len(found) - failed), text


@pytest.mark.full
def test_a_campaign_finds_nothing_in_the_mended_toy(tmp_path: Path) -> None:
    code, text, _ = outcome("fuzz", "--client", TOY, "--count", str(COUNT), "--jobs", "3", "--out", tmp_path, "--json")
    said = json.loads(text)
    assert (code, said["conversations"], said["causes"]) == (0, COUNT, [])
    assert said["changed"] > 100
    assert set(said["ends"]) == {"read", "rejected"}


@pytest.mark.full
def test_the_driver_of_the_page_drives_a_client(tmp_path: Path) -> None:
    file = tmp_path / "driver.py"
    [program] = re.findall(r"^```python\n(import json\n.*?)^```$", FUZZING, re.MULTILINE | re.DOTALL)
    file.write_text(program)
    with Driver(named_client(shlex.join((sys.executable, str(file)))), Bounds()) as driver:
        apis, _ = plain(driver, Bounds())
        assert {"Fetch", "Metadata"} <= apis.keys()
        refused = held(driver, {"api": "Fetch", "nth": 2, "error": "TOPIC_AUTHORIZATION_FAILED"})
    assert refused.ended.harm == ""
    assert refused.ended.error.startswith("TopicAuthorizationFailedError")
