"""`kfuzz probe --apis`: each API gets hostile requests in a conversation, and what a broker does with them is judged.

The broker is `kfuzz serve` in the same process, with faults that a test gives it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from cli_driver import outcome
from conformance.conversation import SETTINGS
from conftest import require_tool

from kfuzz.conformance.broker.real import Broker
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.messages import encode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import Versions
from kfuzz.probe import Address, Settings
from kfuzz.probe.comparing import Own, difference
from kfuzz.probe.conversations import CONVERSATIONS, Context
from kfuzz.probe.conversing import Hostility, probe_apis
from kfuzz.probe.hostile import Case, Kind, not_asked, plan
from kfuzz.probe.machine import STEPS, Machine
from kfuzz.probe.reactions import Reaction, Report, answered
from kfuzz.relay.local import LocalCluster, cluster
from kfuzz.serve import Server
from kfuzz.serve.cluster import Answered, Caller, Held, Refused
from kfuzz.vectors import Vector, load_suite

POISON = "classic-group-known/JoinGroup/9/poison/protocols.0.metadata-v1-count-null"
# KAFKA-20570 was mended in 4.4.0.
BEFORE = "4.3.1"
LEADER = "topic/OffsetForLeaderEpoch/4/order/early"
WRONG = "classic-group/Heartbeat/4/wrong/groupId-"
# Refused uses, each with its reason.
REFUSED = {
    "--apis --only-failures": "--apis compares with no expected outcomes; leave out the options about them",
    "--health-every 9": "--health-every is for --apis; add --apis, or leave it out",
    "--apis --log nowhere": "nowhere is not a file; name the one",
    "--apis --log /": "/ is not a file; name the one",
    "--apis --pid 2147483647": "cannot be watched",
    "--apis nothing": "leave out GLOB to ask all",
    # Without a topic that can be written to, nothing is reached.
    f"--apis {LEADER}": "no hostile request was sent",
    f"--apis {LEADER} --write-to none --timeout 200ms": "Metadata: UNKNOWN_TOPIC_OR_PARTITION; create it, or name",
}
HEALTHY = ("produce and fetch", "join a group", "commit a transaction")


@cache
def vectors() -> Sequence[Vector]:
    return load_suite("*", kinds=("message",))


@cache
def offered() -> dict[str, Versions]:
    """Everything that Kafka has."""
    requests = [one for one in catalogue().messages.values() if one.kind == "request" and one.valid_versions]
    return {one.name.removesuffix("Request"): one.valid_versions for one in requests}


def planned(seed: int = 1) -> list[Case]:
    return list(plan(offered(), vectors(), seed=seed, mutants=2, left_out={}, controller=offered()))


def sent(cases: Sequence[Case], context: Context) -> dict[str, int]:
    """Hashes of the bytes of each case."""
    made = {case.id: hash(b"|".join(case.shot(case.make(context), lambda: 7).pieces)) for case in cases}
    assert len(made) == len(cases)
    return made


def test_equal_seeds_give_equal_bytes_and_other_seeds_other_mutants() -> None:
    # Vectors are the same for every seed.
    cases, others = ([case for case in planned(seed) if case.kind != "vector"][::7] for seed in (1, 2))
    once, other = sent(cases, Context()), sent(others, Context())
    # The bytes of a case do not depend on the cases before it.
    assert sent(cases[-50:], Context()).items() <= once.items()
    assert other.keys() == once.keys()
    assert {id.split("/")[3] for id in once if other[id] != once[id]} == {"mutant", "poison", "frame"}
    # The values of the conversation are in the bytes.
    stranger = sent(cases, Context("another", member_id="somebody", producer_id=5))
    assert sum(stranger[id] != once[id] for id in once) > len(once) / 3


def test_every_conversation_and_kind_is_planned_and_every_vector_of_an_offered_request() -> None:
    cases = planned()
    assert {case.conversation for case in cases} == set(CONVERSATIONS)
    assert {case.kind for case in cases} == set(get_args(Kind))
    requests = {f"{api}Request": versions for api, versions in offered().items()}
    wanted = {
        one.id.removeprefix("messages/")
        for one in vectors()
        if one.options["version"] in requests.get(one.options["message"], ()) and one.size <= 1 << 20
    }
    assert {case.index for case in cases if case.kind == "vector"} == wanted
    assert len(wanted) > 500


def test_every_request_of_the_catalogue_is_made_hostile_or_named_with_the_reason() -> None:
    requests = {name.removesuffix("Request") for name, one in catalogue().messages.items() if one.kind == "request"}
    gone = requests - offered().keys()
    whole = not_asked(planned(), offered(), offered())
    assert (set(whole), len(set(whole.values()))) == (gone, 1)
    few = {api: versions for api, versions in offered().items() if api not in ("Vote", "Produce")}
    cases = list(plan(few, (), seed=1, mutants=0, left_out={}))
    left = not_asked(cases, few, None)
    assert left.keys() | {case.api for case in cases} == requests
    assert left["Produce"] == "it is not offered"
    assert "--controller" in left["Vote"]


def test_a_conversation_that_the_broker_does_not_offer_is_left_out_with_the_reason() -> None:
    few = {api: versions for api, versions in offered().items() if "Group" not in api}
    left_out: dict[str, str] = {}
    names = {case.conversation for case in plan(few, (), seed=1, mutants=0, left_out=left_out)}
    assert names == set(CONVERSATIONS) - left_out.keys()
    assert left_out["classic-group-known"] == "the broker does not offer JoinGroup"


Change = Callable[[Server], None]


@contextmanager
def served(change: Change) -> Iterator[LocalCluster]:
    """A broker with one topic, after a change of it."""
    with cluster() as brokers:
        brokers.topic("t")
        brokers._call(change)
        yield brokers


def probed(glob: str, change: Change = lambda server: None, timeout_ms: int = 2000, **more: Any) -> Report:
    with served(change) as brokers:
        settings = Settings(Address.parse(brokers.bootstrap), timeout_ms=timeout_ms)
        return probe_apis(vectors(), settings, Hostility(globs=(glob,), topic="t", **more))


@pytest.mark.parametrize("glob", ["*/1[0-9]/[mw]*", pytest.param("*", marks=pytest.mark.full)])
def test_kfuzz_serve_survives_and_answers_in_good_form(glob: str) -> None:
    # Nothing may be silent here, so patience costs nothing, and a busy computer does not count as silence.
    report = probed(glob, timeout_ms=10_000)
    assert report.causes == []
    assert report.health == HEALTHY
    assert report.outcomes["answered"] > report.total / 2 > 50
    assert not report.failed


def odd(server: Server, api: str, answer: Callable[[], Any], when: Callable[[Any], Any] = lambda values: True) -> None:
    """Let ``answer`` make the answers to the requests of an API whose values are such."""
    handlers = server.broker._handlers
    usual = handlers[api]
    handlers[api] = lambda asked: answer() if when(asked.values) else usual(asked)


def closes() -> None:
    raise Refused("test", "as asked for")


def keeps_silent(server: Server) -> None:
    begin = b"\0\1\xff\xff\xff\xff"
    silence = Held(lambda: None), 0
    odd(server, "JoinGroup", lambda: silence, lambda values: values["protocols"][0]["metadata"].startswith(begin))


def falls_ill(server: Server) -> None:
    """After a Heartbeat of the group without a name, two transactions fail."""
    errors: list[int] = []

    def poisoned() -> Any:
        errors[:] = 48, 48
        return {"errorCode": 24}, 0

    odd(server, "Heartbeat", poisoned, lambda values: not values["groupId"])
    odd(server, "EndTxn", lambda: ({"errorCode": errors.pop()}, 0), lambda values: errors)


def ends(server: Server) -> None:
    def end() -> None:
        server._end(1)
        closes()

    odd(server, "OffsetForLeaderEpoch", end)


def has_faults(server: Server) -> None:
    """A byte follows each answer to OffsetForLeaderEpoch, Heartbeat has an odd error, ListOffsets is refused."""
    usual = server.broker.answer

    def answer(frame: bytes, caller: Caller) -> Answered:
        made = usual(frame, caller)
        return made._replace(data=made.data + b"\0") if made.data and frame[:2] == b"\0\x17" else made

    vars(server.broker)["answer"] = answer
    odd(server, "Heartbeat", lambda: ({"errorCode": -1}, 0))
    odd(server, "ListOffsets", closes)


def fences_nobody(server: Server) -> None:
    odd(server, "Heartbeat", lambda: ({"errorCode": 82}, 0), lambda values: values["groupId"] == "kfuzz-nobody")


@pytest.mark.parametrize(
    ("change", "glob", "timeout_ms", "harm", "smallest", "alone", "text"),
    [
        (keeps_silent, POISON, 200, "silent", POISON, True, "no answer within"),
        (falls_ill, f"{WRONG}*", 2000, "unhealthy", f"{WRONG}empty", True, "commit a transaction: EndTxn: INVALID_TXN"),
        (ends, LEADER, 300, "gone", LEADER, None, "cannot be reached"),
    ],
    ids=["silent", "unhealthy", "gone"],
)
def test_the_harm_of_a_broker_is_a_cause_with_the_request_that_did_it(
    change: Change, glob: str, timeout_ms: int, harm: str, smallest: str, alone: bool | None, text: str
) -> None:
    report = probed(glob, change, timeout_ms)
    [cause] = report.causes
    assert (cause.harm, cause.smallest.case.id, cause.alone) == (harm, smallest, alone)
    assert text in cause.smallest.reaction.text
    assert report.failed
    assert (f"since {smallest}" in report.ended) == (harm == "gone")


def test_ids_and_addresses_and_topics_of_others_make_no_difference() -> None:
    def met(number: int, *topics: str, error: int = 0) -> Reaction:
        brokers = [{"nodeId": number, "host": f"h{number}", "port": number}]
        found = [{"name": one, "topicId": bytes([number]) * 16, "errorCode": error, "partitions": []} for one in topics]
        values = {"brokers": brokers, "clusterId": f"{number}", "controllerId": number, "topics": found}
        return answered(sent, bytes(5) + encode("MetadataResponse", 12, values))

    sent = bytes([0, 0, 0, 9, 0, 3, 0, 12])
    own = Own("token", "p-token-1", "t")
    assert difference(sent, met(1, "t"), met(2, "t", "p-token-2-x", "__internal"), own) is None
    assert difference(sent, met(1, "t"), met(2, "t", "p-token-1-x"), own) is not None
    assert difference(sent, met(1, "t"), met(2, "t", error=3), own) is not None


def test_only_what_a_reference_does_in_another_way_is_a_difference() -> None:
    with served(lambda server: None) as good:
        reference = Address.parse(good.bootstrap)
        same = probed("classic-group/Heartbeat/4/order/*", reference=reference)
        other = probed(f"{WRONG}*", fences_nobody, reference=reference)
    assert (same.causes, same.compared) == ([], same.total)
    [cause] = other.causes
    smallest = cause.to_json()["smallest"]
    assert (cause.harm, smallest["text"]) == ("differs", "FENCED_INSTANCE_ID; the reference: UNKNOWN_MEMBER_ID")
    assert [smallest[who]["errors"] for who in ("answer", "reference")] == [
        ["FENCED_INSTANCE_ID"],
        ["UNKNOWN_MEMBER_ID"],
    ]
    assert other.failed


def test_errors_in_the_log_and_more_threads_are_seen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, "threads", 1)
    log = tmp_path / "log"
    log.write_text("[t] ERROR before\n")
    watched = Machine(os.getpid(), log)
    assert watched.look() == []
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with log.open("a") as file:
        file.write(
            f"[t] WARN x\n[t] ERROR a.B - {'request' * 1000}\njava.lang.IllegalStateException: 1\n"
            "[t] ERROR C - [C id=1] No group: R(id='a')\n[u] ERROR C - [C id=2] No group: R(id='\n"
            f"[t] ERROR c {'A' * 22}:0\n[t] ERROR c x1:2\n[t] ERROR d"
        )
    seen = {(one.harm, one.about) for one in watched.look()} - {("memory", "")}
    done.set()
    thread.join()
    lines = {"java.lang.IllegalStateException", "[] ERROR C - [] No group: R", "[] ERROR c …:…"}
    assert seen == {("threads", ""), *(("logged", line) for line in lines)}
    # A new file, and more of it than is read.
    log.write_text("panic: 1\n" + "x\n" * (1 << 20) + "panic: 2\n")
    assert [one.text for one in watched.look()] == ["panic: 2"]


def test_so_many_cases_are_asked_as_are_wanted() -> None:
    assert 150 <= probed("topic/Metadata/13/*", cases=150).outcomes.total() < 155


def test_an_answer_is_malformed_if_a_strict_reader_refuses_it() -> None:
    def judged(api: int, data: bytes) -> Reaction:
        return answered(bytes([0, 0, 0, 9, api >> 8, api & 255, 0, 0]), data)

    assert judged(12, bytes(4) + b"\0\x19").errors == ("UNKNOWN_MEMBER_ID",)
    assert judged(12, bytes(6)).harm == ""
    assert judged(12, bytes(4) + b"\xff\xff").harm == "unforeseen"
    assert {judged(*asked).harm for asked in ((12, bytes(5)), (12, bytes(7)), (999, bytes(6)))} == {"malformed"}


def test_the_command_prints_causes_the_worst_first_and_refuses_what_cannot_be_asked(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    with served(has_faults) as brokers:
        begin = ("probe", brokers.bootstrap)
        globs = (LEADER, "topic/ListOffsets/1/order/early", "classic-group/Heartbeat/4/order/early")
        code, text, _ = outcome(*begin, "--apis", *globs, "--write-to", "t", "--json", file)
        for options, sentence in REFUSED.items():
            refused, _, errors = outcome(*begin, *options.split())
            assert (refused, sentence in errors) == (2, True), errors
    assert code == 1
    assert "! OffsetForLeaderEpoch order: 1 case; again when asked alone" in text
    said = json.loads(file.read_text())
    assert (said["format"], said["cases"]) == ("kfuzz-probe-apis/1", 3)
    assert said["outcomes"] == {"answered": 2, "closed": 1}
    assert [cause["harm"] for cause in said["causes"]] == ["malformed", "unforeseen", "hung up"]
    smallest = said["causes"][0]["smallest"]
    frame = bytes.fromhex(smallest["hex"])
    assert (len(frame), frame[4:8]) == (smallest["size"], b"\0\x17\0\4")
    assert "1 bytes follow the message" in smallest["text"]


def test_a_campaign_against_a_broker_is_a_probe_with_the_settings_of_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Settings, Hostility]] = []

    def instead(_: object, settings: Settings, hostility: Hostility, **others: object) -> Report:
        asked.append((settings, hostility))
        return Report(hostility.seed)

    monkeypatch.setattr("kfuzz.cli.probe.probe_apis", instead)
    outcome("fuzz", "--against-broker", "127.0.0.1:1", "--seconds", 60, "--count", 9, "--seed", 3)
    outcome("probe", "127.0.0.1:1", "--apis", "--duration", "1m", "--cases", 9, "--seed", 3)
    assert asked[0] == asked[1]


@pytest.mark.java
@pytest.mark.full
@pytest.mark.parametrize(("release", "harms"), [(BEFORE, {"silent"}), (BROKER_RELEASE, set())])
def test_poison_in_a_subscription_silences_the_coordinators_of_one_release(release: str, harms: set[str]) -> None:
    """KAFKA-20570: the exception escapes, so the members of the group never get an answer to JoinGroup."""
    require_tool("java", "the broker needs it")
    require_tool("mvn", "the broker comes from Maven")
    with Broker({**SETTINGS, "group.initial.rebalance.delay.ms": "0"}, release=release) as broker:
        settings = Settings(Address("127.0.0.1", broker.port), timeout_ms=5000)
        report = probe_apis(vectors(), settings, Hostility(globs=(POISON,)))
        assert broker.is_alive()
    assert report.health == HEALTHY
    assert {one.harm for one in report.causes} == harms
    assert {one.alone for one in report.causes} <= {True}
    assert report.ended == ""
