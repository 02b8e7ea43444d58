"""`kfuzz probe --apis`: each API gets hostile requests in a conversation, and what a broker does with them is judged.

The broker is `kfuzz serve` in the same process, with faults that a test gives it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import require_tool

from kfuzz.cli.main import cli
from kfuzz.conformance.broker.real import Broker
from kfuzz.errors import KfuzzError
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import Versions
from kfuzz.probe import Address, Settings
from kfuzz.probe.conversations import CONVERSATIONS, Context
from kfuzz.probe.conversing import Hostility, probe_apis
from kfuzz.probe.hostile import KINDS, Case, plan
from kfuzz.probe.reactions import Report, answered
from kfuzz.serve import Server, Topics, feeding
from kfuzz.serve import Settings as ServeSettings
from kfuzz.serve.cluster import Answered, Caller, Held, Refused
from kfuzz.vectors import Vector, load_suite

POISON = "classic-group-known/JoinGroup/9/poison/protocols.0.metadata-v1-count-null"
# KAFKA-20570 was mended in 4.4.0.
BEFORE = "4.3.1"
ONE_OF_EACH = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}

Handler = Callable[[Any], Any]


@cache
def vectors() -> Sequence[Vector]:
    return load_suite("*", kinds=("message",))


@cache
def offered() -> dict[str, Versions]:
    """Everything that Kafka has."""
    requests = [one for one in catalogue().messages.values() if one.kind == "request" and one.valid_versions]
    return {one.name.removesuffix("Request"): one.valid_versions for one in requests}


def planned(seed: int = 1) -> list[Case]:
    return list(plan(offered(), vectors(), seed=seed, mutants=2, left_out={}))


def some(seed: int = 1) -> list[Case]:
    """A case in seven; vectors are the same for every seed."""
    return [case for case in planned(seed) if case.kind != "vector"][::7]


def digests(cases: Sequence[Case], context: Context) -> dict[str, str]:
    numbers = count(1)
    made = {}
    for case in cases:
        sent = b"|".join(case.shot(context, numbers.__next__).pieces)
        assert case.id not in made
        made[case.id] = hashlib.sha256(sent).hexdigest()
    return made


def test_equal_seeds_give_equal_bytes_and_other_seeds_other_mutants() -> None:
    cases = some()
    once = digests(cases, Context())
    assert digests(some(), Context()) == once
    # The bytes of a case do not depend on the cases before it.
    few = cases[-50:]
    assert digests(few, Context()).keys() < once.keys()
    other = digests(some(seed=2), Context())
    assert other.keys() == once.keys()
    changed = {id.split("/")[3] for id in once if other[id] != once[id]}
    assert changed == {"mutant", "poison", "frame"}
    # The values of the conversation are in the bytes.
    stranger = digests(cases, Context("another", member_id="somebody", producer_id=5))
    assert sum(stranger[id] != once[id] for id in once) > len(once) / 3


def test_every_conversation_and_kind_is_planned_and_every_vector_of_an_offered_request() -> None:
    cases = planned()
    assert {case.conversation for case in cases} == set(CONVERSATIONS)
    assert {case.kind for case in cases} == set(KINDS)
    asked = {case.index for case in cases if case.kind == "vector"}
    wanted = {
        one.id.removeprefix("messages/")
        for one in vectors()
        if (name := one.options["message"]).endswith("Request")
        and one.options["version"] in offered().get(name.removesuffix("Request"), ())
        and one.size <= 1 << 20
    }
    assert asked == wanted
    assert len(wanted) > 500


def test_a_conversation_that_the_broker_does_not_offer_is_left_out_with_the_reason() -> None:
    few = {api: versions for api, versions in offered().items() if "Group" not in api}
    left_out: dict[str, str] = {}
    names = {case.conversation for case in plan(few, (), seed=1, mutants=0, left_out=left_out)}
    assert names == set(CONVERSATIONS) - left_out.keys()
    assert left_out["classic-group-known"] == "the broker does not offer JoinGroup"


def probed(
    *globs: str, change: Callable[[Server], None] = lambda server: None, timeout_ms: int = 2000, **more: Any
) -> Report:
    """The probe of ``kfuzz serve``, after a change of it."""
    hostility = Hostility(globs=globs, topic="t", **more)

    def ask(port: int) -> Report:
        return probe_apis(vectors(), Settings(Address("127.0.0.1", port), timeout_ms=timeout_ms), hostility)

    report: Report = asyncio.run(_with_server(change, ask))
    return report


async def _with_server(change: Callable[[Server], None], ask: Callable[[int], Any]) -> Any:
    async with Server(Topics(), ServeSettings()) as server:
        feeding.done(server.broker.cluster, b'{"topic": "t", "produce": true}')
        change(server)
        return await asyncio.to_thread(ask, server.port)


def replaced(server: Server, api: str, odd: Callable[[Any, Handler], Any]) -> None:
    handlers = server.broker._handlers
    usual = handlers[api]
    handlers[api] = lambda asked: odd(asked, usual)


def with_bytes_after(server: Server) -> None:
    """A byte follows each answer to OffsetForLeaderEpoch."""
    usual = server.broker.answer

    def answer(frame: bytes, caller: Caller) -> Answered:
        made = usual(frame, caller)
        return made._replace(data=made.data + b"\0") if made.data and frame[:2] == b"\0\x17" else made

    vars(server.broker)["answer"] = answer


def found(report: Report) -> list[tuple[str, str, str]]:
    return [(one.api, one.kind, one.harm) for one in report.causes]


@pytest.mark.parametrize("glob", ["*/1[0-9]/[mw]*", pytest.param("*", marks=pytest.mark.full)])
def test_kfuzz_serve_survives_and_answers_in_good_form(glob: str) -> None:
    report = probed(glob)
    assert found(report) == []
    assert report.health == ("produce and fetch", "join a group", "commit a transaction")
    assert report.total > 100
    assert report.outcomes["answered"] > report.total / 2
    assert not report.failed


def test_a_request_that_is_never_answered_is_a_cause_and_is_asked_again_alone() -> None:
    def keeps_silent(asked: Any, usual: Handler) -> Any:
        data = [one["metadata"][:6] for one in asked.values["protocols"]]
        return (Held(lambda: None), 0) if b"\0\1\xff\xff\xff\xff" in data else usual(asked)

    report = probed(POISON, change=lambda server: replaced(server, "JoinGroup", keeps_silent), timeout_ms=200)
    assert found(report) == [("JoinGroup", "poison", "silent")]
    [cause] = report.causes
    assert cause.smallest.case.id == POISON
    assert cause.alone is True
    assert report.failed


def test_answers_that_cannot_be_read_and_connections_that_are_closed_are_causes() -> None:
    def closes(asked: Any, usual: Handler) -> Any:
        raise Refused("test", "as asked for")

    def forgets(asked: Any, usual: Handler) -> Any:
        return {"errorCode": -1}, 0

    def change(server: Server) -> None:
        replaced(server, "ListOffsets", closes)
        replaced(server, "Heartbeat", forgets)
        with_bytes_after(server)

    globs = ("topic/ListOffsets/1/order/early", "topic/OffsetForLeaderEpoch/4/order/early")
    report = probed(*globs, "classic-group/Heartbeat/4/order/early", change=change)
    assert found(report) == [
        ("OffsetForLeaderEpoch", "order", "malformed"),
        ("Heartbeat", "order", "unforeseen"),
        ("ListOffsets", "order", "hung up"),
    ]
    assert "1 bytes follow the message" in report.causes[0].smallest.reaction.text


def test_the_request_after_which_the_broker_is_not_well_is_named() -> None:
    left = 0

    def sick(asked: Any, usual: Handler) -> Any:
        nonlocal left
        if asked.values["committed"] is True and left:
            left -= 1
            return {"errorCode": 48}, 0
        return usual(asked)

    def poisoned(asked: Any, usual: Handler) -> Any:
        nonlocal left
        if asked.values["groupId"] == "":
            left = 2
        return usual(asked)

    def change(server: Server) -> None:
        replaced(server, "EndTxn", sick)
        replaced(server, "Heartbeat", poisoned)

    report = probed("classic-group/Heartbeat/4/wrong/groupId-*", change=change, health_every=50)
    [cause] = report.causes
    assert (cause.harm, cause.smallest.case.index, cause.alone) == ("unhealthy", "groupId-empty", True)
    assert "commit a transaction: EndTxn: INVALID_TXN_STATE" in cause.smallest.reaction.text


def test_a_broker_that_ends_is_gone_and_the_probe_says_since_when() -> None:
    def ends(asked: Any, usual: Handler) -> Any:
        for one in server.broker.cluster.ports:
            server._end(one)
        raise Refused("test", "as asked for")

    server: Any = None

    def change(it: Server) -> None:
        nonlocal server
        server = it
        replaced(it, "OffsetForLeaderEpoch", ends)

    report = probed("topic/OffsetForLeaderEpoch/4/order/early", change=change, timeout_ms=300)
    assert [one.harm for one in report.causes] == ["gone"]
    assert "since topic/OffsetForLeaderEpoch/4/order/early" in report.ended


def test_an_answer_is_malformed_if_a_strict_reader_refuses_it() -> None:
    assert answered(12, 0, bytes(4) + b"\0\x19").errors == ("UNKNOWN_MEMBER_ID",)
    assert answered(12, 0, bytes(4) + b"\0\0").harm == ""
    assert answered(12, 0, bytes(4) + b"\xff\xff").harm == "unforeseen"
    assert answered(12, 0, bytes(4) + b"\0").harm == "malformed"
    assert answered(12, 0, bytes(7)).harm == "malformed"
    assert answered(999, 0, bytes(6)).harm == "malformed"


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["probe", *arguments])
    if isinstance(done.exception, KfuzzError):
        return 2, str(done.exception)
    return done.exit_code, done.stdout


def test_the_command_prints_causes_and_json_and_refuses_options_of_the_other_kind() -> None:
    def ask(port: int) -> None:
        begin = f"127.0.0.1:{port}", "--apis", "topic/OffsetForLeaderEpoch/4/order/*"
        code, text = run(*begin, "--write-to", "t")
        assert code == 1
        assert "! OffsetForLeaderEpoch order: 2 cases; again when asked alone" in text
        code, text = run(*begin, "--write-to", "t", "--json", "-")
        said = json.loads(text)
        assert (code, said["format"], said["cases"], said["outcomes"]) == (1, "kfuzz-probe-apis/1", 2, {"answered": 2})
        [cause] = said["causes"]
        assert (cause["harm"], cause["alone"]) == ("malformed", True)
        frame = bytes.fromhex(cause["smallest"]["hex"])
        assert (len(frame), frame[4:8]) == (cause["smallest"]["size"], b"\0\x17\0\4")
        assert run(*begin, "--only-failures") == (
            2,
            "--apis compares with no expected outcomes; leave out the options about them",
        )
        assert "leave out GLOB to ask all" in run(*begin[:2], "nothing")[1]
        # Without a topic that can be written to, nothing is reached.
        code, text = run(*begin)
        assert code == 2
        assert "no hostile request was sent" in text
        code, text = run(*begin, "--write-to", "no such topic", "--timeout", "200ms")
        assert (code, text) == (
            2,
            "the topic 'no such topic' cannot be used: Metadata: UNKNOWN_TOPIC_OR_PARTITION; "
            "create it, or name another",
        )

    asyncio.run(_with_server(with_bytes_after, ask))
    assert run("127.0.0.1:1", "--apis")[0] == 2
    assert run("127.0.0.1:1", "--health-every", "9")[1] == "--health-every is for --apis; add --apis, or leave it out"


@pytest.mark.java
@pytest.mark.full
@pytest.mark.parametrize(("release", "harms"), [(BEFORE, {"silent"}), (BROKER_RELEASE, set())])
def test_poison_in_a_subscription_silences_the_coordinators_of_one_release(release: str, harms: set[str]) -> None:
    """KAFKA-20570: the exception escapes, so the members of the group never get an answer to JoinGroup."""
    require_tool("java", "the broker needs it")
    require_tool("mvn", "the broker comes from Maven")
    with Broker(ONE_OF_EACH, release=release) as broker:
        settings = Settings(Address("127.0.0.1", broker.port), timeout_ms=5000)
        report = probe_apis(vectors(), settings, Hostility(globs=(POISON,)))
        assert broker.is_alive()
    assert report.health == ("produce and fetch", "join a group", "commit a transaction")
    assert {one.harm for one in report.causes} == harms
    assert {one.alone for one in report.causes} <= {True}
    assert report.ended == ""
