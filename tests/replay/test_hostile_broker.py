"""A broker that means harm: whatever it answers, a replay ends in bounded time, with a sentence or its report."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz, refused
from hypothesis import example, given
from hypothesis import strategies as st
from replay.fake_broker import SILENCE, FakeBroker
from replay.hand_made import batch, write_log
from signals import KFUZZ, interrupt_when, start

from kfuzz.client.cluster import BROKERS_MAX
from kfuzz.client.link import Link, connected
from kfuzz.client.protocol import ANSWER_ELEMENTS_MAX, THROTTLE_MS_MAX
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.replay import Address, Report, Security, Settings, find_parts, replay

# A test that hangs takes much longer than this.
SECONDS_MAX = 60
NOT_LEADER = 6
ELSEWHERE = "192.0.2.1"
HOSTILE = "gone\x1b[2J\n\u202e\x9b\0" + "A" * 20_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path, "t-0", [batch(10 * i) for i in range(3)])
    return tmp_path


def play(log: Path, broker: FakeBroker, **settings: Any) -> Report:
    """The report of a replay to a broker; ``KfuzzError`` if it could not begin."""
    bounded = {"timeout_ms": 300, "retries": 1, "reconnects": 2, **settings}
    began = time.monotonic()
    with broker:
        try:
            return replay(find_parts(log), Settings(Address("127.0.0.1", broker.port), **bounded))
        finally:
            assert time.monotonic() - began < SECONDS_MAX


def failed(log: Path, broker: FakeBroker, **settings: Any) -> str:
    """The sentence with which a replay that could begin ended early."""
    done = play(log, broker, **settings)
    assert done.failure is not None
    return done.failure


def answering(api: str, change: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    return lambda asked, values: change(values) if asked == api else values


def at(host: str, port: int | None = None) -> Callable[[Any], Any]:
    def moved(values: Any) -> Any:
        values["brokers"][0] |= {"host": host} | ({} if port is None else {"port": port})
        return values

    return moved


def more_topics(count: int, **topic: Any) -> Callable[[Any], Any]:
    return lambda values: values | {"topics": [*values["topics"], *([topic] * count)]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (at("a" * 64), "this is not the name of a host"),
        (at("a..b"), "this is not the name of a host"),
        (at(""), "this is not the name of a host"),
        (at("a\0b"), "this is not the name of a host"),
        (at("http://a"), "this is not the name of a host"),
        (at("a:1;b"), "this is not the name of a host"),
        (at("a/b"), "this is not the name of a host"),
        (at(HOSTILE), "this is not the name of a host"),
        (at("127.0.0.1", 0), "there is no port 0"),
        (at("127.0.0.1", -1), "there is no port -1"),
        (at("127.0.0.1", 70_000), "there is no port 70000"),
        (lambda values: values | {"brokers": []}, "has no leader that can be reached"),
        (lambda values: {**values, "brokers": [{"nodeId": -1, "host": ELSEWHERE, "port": 9}]}, "has no leader"),
        (
            lambda values: {**values, "brokers": [{"nodeId": i, "host": "h", "port": 9} for i in range(BROKERS_MAX)]},
            f"names more than {BROKERS_MAX} brokers",
        ),
        (more_topics(ANSWER_ELEMENTS_MAX, errorCode=0, name="x", partitions=[]), "elements together; at most"),
        (lambda values: b"\x7f\xff\xff\xff" + bytes(100), "an answer of 2147483647 bytes"),
        (lambda values: b"\xff\xff\xff\xff", "an answer of -1 bytes"),
        (lambda values: b"\0\0\0\x08" + b"\x63" * 8, "an answer to no request"),
        (lambda values: b"\0\0\0\x40\0\0", "no answer within 0.3 s"),
    ],
)
def test_nonsense_about_the_cluster_ends_the_replay_with_one_sentence(
    log: Path, change: Callable[[Any], Any], sentence: str
) -> None:
    broker = FakeBroker({"t": 1}, rewrite=answering("Metadata", change))
    try:
        said = failed(log, broker, timeout_ms=300 if sentence.startswith("no answer") else 10_000)
    except KfuzzError as error:
        said = str(error)
    assert sentence in said
    assert len(said) < 1000
    assert said.isprintable()


def test_topics_that_nobody_asked_for_or_that_come_twice_change_nothing(log: Path) -> None:
    other = more_topics(1000, errorCode=29, name="other", partitions=[])
    twice = more_topics(1000, errorCode=29, name="t", partitions=[])
    done = play(log, FakeBroker({"t": 1}, rewrite=answering("Metadata", lambda values: twice(other(values)))))
    assert done.is_clean


def test_a_broker_that_names_another_host_each_time_ends_the_replay(log: Path) -> None:
    hosts = iter(range(1, 200))
    moving = answering("Metadata", lambda values: at(f"127.0.0.{next(hosts)}")(values))
    done = play(log, FakeBroker({"t": 1}, rewrite=moving, trouble=lambda *_: NOT_LEADER))
    assert done.failure
    assert next(hosts) < 20


@pytest.mark.parametrize("versions", [(-32768, 32767), (0, 32767), (32767, -32768), (-5, -1)])
def test_ranges_of_versions_may_be_anything(log: Path, versions: tuple[int, int]) -> None:
    most = dict(zip(("minVersion", "maxVersion"), versions, strict=True))
    offered = answering("ApiVersions", lambda said: said | {"apiKeys": [one | most for one in said["apiKeys"]]})
    broker = FakeBroker({"t": 1}, rewrite=offered)
    if versions[0] <= 0 < versions[1]:
        play(log, broker)
    else:
        with pytest.raises(KfuzzError, match="offers no version of"):
            play(log, broker)


@pytest.mark.parametrize("answer", [{"responses": []}, {"responses": [{"name": "t", "partitionResponses": []}]}])
def test_an_answer_without_the_partition_loses_the_connection(log: Path, answer: Any) -> None:
    assert "the answer to Produce has no partition" in failed(
        log, FakeBroker({"t": 1}, rewrite=answering("Produce", lambda values: values | answer))
    )


def test_an_answer_must_be_whole_in_time_however_many_bytes_come(log: Path) -> None:
    with pytest.raises(KfuzzError, match="cannot be reached: no answer in time"):
        play(log, FakeBroker({"t": 1}, pause_s=0.02))


# --- the end of a replay


def test_throttling_is_bounded_and_never_outlasts_the_duration(log: Path) -> None:
    done = play(log, FakeBroker({"t": 1}, throttle_ms=2**31 - 1), duration_s=0.5)
    assert (done.sent.batches, done.throttled_ms, done.is_clean) == (1, THROTTLE_MS_MAX, True)
    done = play(log, FakeBroker({"t": 1}, throttle_ms=-(2**31)))
    assert (done.sent.batches, done.throttled_ms) == (3, 0)


def test_a_broker_that_is_not_ready_does_not_outlast_the_duration(log: Path) -> None:
    with pytest.raises(KfuzzError, match=r"^no broker was ready within 0\.3 s, so nothing was sent$"):
        play(log, FakeBroker({"t": 1}, pause_s=0.05), duration_s=0.3, timeout_ms=3_600_000)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_ends_a_throttled_replay(log: Path, number: int) -> None:
    with FakeBroker({"t": 1}, throttle_ms=2**31 - 1) as broker:
        words = ["corpus", "replay", log, "--bootstrap", f"127.0.0.1:{broker.port}", "--json"]
        process = start([*KFUZZ, *words])
        out, errors = interrupt_when(process, lambda: bool(broker.batches["t", 0]), within_s=60, number=number)
    assert process.returncode == 128 + number, errors
    report = json.loads(out)
    assert (report["sent"]["batches"], report["failure"]) == (1, None)


def test_answers_that_do_not_come_are_waited_for_a_moment_after_the_end(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.replay.running.DRAIN_S", 0.1)
    assert "have not answered 0.1 s after the end" in failed(
        log, FakeBroker({"t": 1}, trouble=lambda *_: SILENCE), duration_s=0.3, timeout_ms=3_600_000
    )


def test_without_acknowledgements_the_last_answer_is_not_waited_for_for_ever(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.replay.running.DRAIN_S", 0.1)
    # The two connections each ask for the versions once before anything is sent.
    asked = iter(range(10))
    quiet = answering("ApiVersions", lambda values: values if next(asked) < 2 else b"")
    assert "after the end" in failed(
        log, FakeBroker({"t": 1}, rewrite=quiet), acks=0, duration_s=0.3, timeout_ms=3_600_000
    )


# --- addresses and passwords


NAMES = st.text("az.-[]:%", max_size=70) | st.integers(60, 70).map("a".__mul__)
HOSTS = NAMES | st.text(max_size=300)
PORTS = st.integers(-1, 70_000).map(str) | st.text(max_size=6)


@given(st.builds("{}:{}".format, HOSTS, PORTS) | HOSTS)
@example("h:\u0663")
@example("h:" + "9" * 5000)
@example("x" * 100_000 + ":9")
@example("[::1]:65535")
@example("münchen.example:9092")
def test_an_address_is_printed_as_it_is_given_or_refused_in_one_short_sentence(text: str) -> None:
    try:
        address = Address.parse(text)
    except UsageError as error:
        refusal = str(error)
    else:
        assert 0 < address.port < 1 << 16
        assert all(len(part) < 64 for part in address.host.split("."))
        assert Address.parse(str(address)) == address
        assert str(address).isprintable()
        return
    assert "is not the address of a broker; give HOST:PORT" in refusal
    assert len(refusal) < 700
    assert refusal.isprintable()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "is a pipe"),
        (lambda path: path.write_bytes(b"\xff\0"), "is not a file of certificates: it has none in PEM form"),
        (
            lambda path: path.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
            "is not a file of certificates",
        ),
    ],
)
def test_a_file_of_certificates_has_some_and_is_no_pipe(
    log: Path, tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    given = tmp_path / "ca.pem"
    make(given)
    with pytest.raises(KfuzzError, match=reason):
        play(log, FakeBroker({"t": 1}), security=Security(tls=True, ca=str(given)))


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    answers = iter(["127.0.0.1", ELSEWHERE, ELSEWHERE])
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda host, *rest, **more: real(next(answers) if host == "moving.example" else host, *rest, **more),
    )
    seen: list[str] = []

    async def connect(port: int) -> str:
        async with asyncio.timeout(SECONDS_MAX):
            one = await connected(Address("moving.example", port), lambda address, hosts: seen.extend(hosts))
        with one:
            return str(one.getpeername()[0])

    with socket.create_server(("127.0.0.1", 0)) as server:
        assert asyncio.run(connect(server.getsockname()[1])) == "127.0.0.1"
    assert seen == ["127.0.0.1"]


def test_a_password_is_not_sent_in_clear_to_a_host_that_the_broker_names(log: Path) -> None:
    security = Security(user="me", password="right")
    broker = FakeBroker({"t": 1}, login=("me", "right"), rewrite=answering("Metadata", at(ELSEWHERE)))
    said = failed(log, broker, security=security)
    assert f"the password of me would go to {ELSEWHERE}:{broker.port} without encryption" in said


@pytest.mark.parametrize(
    ("name", "hosts", "security", "may"),
    [
        ("broker", ["127.0.0.1"], Security(user="me"), True),
        ("broker", ["127.0.0.1", "::1"], Security(user="me"), True),
        ("broker", ["127.0.0.1", ELSEWHERE], Security(user="me"), False),
        ("localhost", [ELSEWHERE], Security(user="me"), False),
        ("broker", [ELSEWHERE], Security(user="me", tls=True), True),
        ("broker", [ELSEWHERE], Security(), True),
        ("Broker", [ELSEWHERE], Security(user="me", plain_hosts=("other", "bROKER")), True),
        ("broker.evil", [ELSEWHERE], Security(user="me", plain_hosts=("broker",)), False),
    ],
)
def test_where_a_password_may_go_without_encryption(name: str, hosts: list[str], security: Security, may: bool) -> None:
    async def asked() -> None:
        Link(Address(name, 9), security, in_flight=1, timeout_ms=1)._permitted(Address(name, 9), hosts)

    if may:
        asyncio.run(asked())
    else:
        with pytest.raises(UsageError, match=f"add --tls, or --allow-plain {name}"):
            asyncio.run(asked())


def test_the_command_refuses_to_send_a_password_in_clear_before_it_connects(log: Path) -> None:
    said = refused("corpus", "replay", log, "--bootstrap", f"{ELSEWHERE}:9", "--user", "me")
    assert said.startswith(f"kfuzz: the password of me would go to {ELSEWHERE}:9 without encryption; add --tls")


# --- text


def test_the_words_of_a_broker_are_printed_as_one_short_line(log: Path) -> None:
    def denied(values: Any) -> Any:
        return {"topics": [one | {"errorCode": 29, "errorMessage": HOSTILE} for one in values["topics"]]}

    refused = answering("CreateTopics", denied)
    unknown = answering("SaslAuthenticate", lambda values: values | {"errorCode": 58, "errorMessage": HOSTILE})
    offers = answering("SaslHandshake", lambda values: values | {"errorCode": 33, "mechanisms": [HOSTILE] * 1000})
    for rewrite, words in ((refused, ["--create"]), (unknown, ["--user", "me"]), (offers, ["--user", "me"])):
        with FakeBroker(login=("me", "right"), rewrite=rewrite) as broker:
            done = kfuzz("corpus", "replay", log, "--bootstrap", f"127.0.0.1:{broker.port}", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "gone\\x1b[2J" in done.stderr
        assert done.stderr.rstrip("\n").isprintable()
        assert len(done.stderr) < 5000
