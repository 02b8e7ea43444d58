"""`kfuzz.proxy` and `kfuzz.cluster`: a proxy and brokers in threads of their own, for the tests of a client."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serve.asking import SECONDS_MAX, request, response

import kfuzz
from kfuzz.client.address import Address
from kfuzz.errors import UsageError
from kfuzz.relay import local
from kfuzz.relay.frames import Exchange, Frame
from kfuzz.relay.local import LocalCluster, LocalProxy, Seen
from kfuzz.relay.pipe import framed


class Client:
    """A connection that sends a request and waits for its answer."""

    def __init__(self, bootstrap: str) -> None:
        place = Address.parse(bootstrap.split(",")[0])
        self.socket = socket.create_connection((place.host, place.port), timeout=SECONDS_MAX)
        self.stream = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()
        self.socket.close()

    def ask(self, api: str, version: int, values: dict[str, Any]) -> dict[str, Any]:
        self.socket.sendall(framed(request(api, version, values)))
        size = int.from_bytes(self.stream.read(4), "big")
        return response(api, version, self.stream.read(size))


def find_coordinator(bootstrap: str) -> dict[str, Any]:
    with Client(bootstrap) as client:
        return client.ask("FindCoordinator", 3, {"key": "g"})


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with kfuzz.cluster() as made:
        yield made


@pytest.fixture
def between(broker: LocalCluster) -> Iterator[LocalProxy]:
    with kfuzz.proxy(broker.bootstrap) as made:
        yield made


def test_a_client_stays_inside_and_a_rule_makes_one_error() -> None:
    with kfuzz.cluster(3) as brokers, kfuzz.proxy(brokers.bootstrap) as between:
        brokers.topic("orders", partitions=2)
        rule = between.error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION").once()
        with Client(between.bootstrap) as client:
            asked = {"topics": [{"name": "orders"}]}
            first, second = (client.ask("Metadata", 9, asked) for _ in range(2))
        named = {f"{one['host']}:{one['port']}" for one in first["brokers"]}
        assert named == set(between.bootstrap.split(","))
        assert not named & set(brokers.bootstrap.split(","))
        assert [one["topics"][0]["errorCode"] for one in (first, second)] == [3, 0]
        assert len(second["topics"][0]["partitions"]) == 2
        assert rule.matched == 1
    assert between.summary()["apis"]["Metadata"]["responses"] == 2


def test_rules_from_the_start_show_frames_before_and_after_them_and_say_if_they_never_match(
    broker: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    sentences: list[str] = []
    rules = [{"api": "FindCoordinator", "error": 15, "nth": 2}, {"api": "Fetch", "error": 1}]
    for more in ({"tell": sentences.append}, {}):
        with kfuzz.proxy(broker.bootstrap, rules=rules, **more) as between:
            for _ in range(2):
                find_coordinator(between.bootstrap)
        [one] = between.applied()
        assert one.rule == 1
        assert [seen.values()["errorCode"] for seen in (one.before, one.after)] == [0, 15]
        assert one.before.body() != one.after.body()
    assert sentences == caplog.messages == ["rule 2: Fetch error=1: no frame matched"]


def test_rules_are_added_counted_removed_and_cleared_while_a_client_is_connected(between: LocalProxy) -> None:
    with Client(between.bootstrap) as client:

        def found() -> dict[str, Any]:
            return client.ask("FindCoordinator", 3, {"key": "g"})

        assert found()["errorCode"] == 0
        twice = between.error("FindCoordinator", 15).times(2)
        assert ([found()["errorCode"] for _ in range(3)], twice.matched) == ([15, 15, 0], 2)
        twice.times(3)
        assert [found()["errorCode"] for _ in range(2)] == [15, 0]
        always = between.rule("FindCoordinator", set={"errorMessage": "no"})
        assert found()["errorMessage"] == "no"
        always.remove()
        assert found()["errorMessage"] != "no"
        with pytest.raises(UsageError, match=r"^rule \d+ does not exist: "):
            always.remove()
        between.error("FindCoordinator", 15)
        between.clear()
        assert found()["errorCode"] == 0


def test_the_last_frames_can_be_looked_at_as_they_came(broker: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "FRAMES_MAX", 3)
    with kfuzz.proxy(broker.bootstrap) as between:
        between.error("FindCoordinator", 15)
        find_coordinator(between.bootstrap)
        with Client(between.bootstrap) as client:
            client.ask("Metadata", 9, {"topics": [{"name": "none"}]})
            asked, said = between.frames("Metadata")
            of = (asked.api, asked.version, asked.direction, asked.connection, asked.number, asked.client_id)
            assert of == ("Metadata", 9, "request", 2, 1, "test")
            assert said.errors == {3: 1}
            # One frame more is kept, and the rule changed it after that.
            [found] = between.frames("FindCoordinator")
            assert (found.direction, found.values()["errorCode"]) == ("response", 0)
            assert between.frames(direction="request") == [asked]
            # Later frames do not change it.
            client.ask("Metadata", 9, {"topics": [{"name": "more"}]})
    assert asked.values()["topics"] == [{"name": "none"}]


def test_a_large_frame_is_not_kept() -> None:
    frame = Frame(Exchange(1, 1, 1, 3, 9, 0), "request", bytes(local.FRAME_BYTES_MAX + 1))
    with pytest.raises(UsageError, match=r"^the frame has 65537 bytes; only 65536 bytes of a frame are kept$"):
        Seen(frame).values()


def test_leaving_the_block_ends_everything() -> None:
    before = threading.active_count()
    with kfuzz.cluster() as broker, kfuzz.proxy(broker.bootstrap) as between:
        client = Client(between.bootstrap)
        client.ask("FindCoordinator", 3, {"key": "g"})
        place = between.bootstrap
    with client:
        assert client.stream.read() == b""
    with pytest.raises(ConnectionRefusedError):
        Client(place)
    assert threading.active_count() == before
    with pytest.raises(UsageError, match=r"^the proxy has ended; "):
        between.error("FindCoordinator", 15)


def test_blocks_can_be_in_each_other_and_follow_each_other(broker: LocalCluster) -> None:
    for _ in range(2):
        with kfuzz.proxy(broker.bootstrap) as outer, kfuzz.proxy(outer.bootstrap) as inner:
            inner.error("FindCoordinator", 15)
            assert find_coordinator(inner.bootstrap)["errorCode"] == 15
            assert find_coordinator(outer.bootstrap)["errorCode"] == 0
            assert len(outer.frames("FindCoordinator", "request")) == 2


class Broken(Exception):
    """A fault of the code in the thread."""


def fail(frame: Frame) -> None:
    raise Broken


def break_it(between: LocalProxy) -> None:
    """Send a frame to a proxy whose code fails on it."""
    between._call(lambda inner: setattr(inner, "on_frame", fail))
    with Client(between.bootstrap) as client:
        client.socket.sendall(framed(request("FindCoordinator", 3, {"key": "g"})))
        while between._fault is None:
            time.sleep(0.001)


@pytest.mark.parametrize("error", [Broken, ZeroDivisionError])
def test_a_fault_in_the_thread_is_raised_by_calls_and_at_the_end_but_after_an_error_in_the_block(
    broker: LocalCluster, error: type[Exception]
) -> None:
    def use() -> None:
        with kfuzz.proxy(broker.bootstrap) as between:
            break_it(between)
            with pytest.raises(Broken):
                between.summary()
            if error is not Broken:
                raise error

    with pytest.raises(error):
        use()


BROKER = "127.0.0.1:9"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (kfuzz.proxy, 'a proxy needs a broker; give its "host:port"'),
        (lambda: kfuzz.proxy("here"), "'here' is not the address of a broker; give HOST:PORT, such as "),
        (lambda: kfuzz.proxy([BROKER]), '["127.0.0.1:9"] is not the address of a broker'),
        (lambda: kfuzz.proxy(BROKER, rules="Fetch drop"), "rules is one rule; give a list"),
        (lambda: kfuzz.proxy(BROKER, rules=["Fetch drop"]), "rules[0] is "),
        (lambda: kfuzz.proxy(BROKER, seed=-1), "seed is -1; give a whole number"),
        (lambda: kfuzz.proxy(BROKER).bootstrap, "the proxy does not run yet; use it in a with block"),
        (lambda: kfuzz.cluster(0), "a cluster has 1 to 9 brokers, not 0"),
        (lambda: kfuzz.cluster("3"), "a cluster has 1 to 9 brokers"),
        (lambda: kfuzz.cluster().topic("t"), "the cluster does not run yet; use it in a with block"),
    ],
)
def test_wrong_use_is_a_sentence(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UsageError, match="^" + re.escape(sentence)):
        call()


def test_wrong_use_of_what_runs_is_a_sentence(broker: LocalCluster, between: LocalProxy) -> None:
    sentences: dict[str, Callable[[], object]] = {
        "EndTxx": lambda: between.error("EndTxx", "INVALID_TXN_STATE"),
        r"^there is no topic 't' with partition 0$": lambda: broker.line(topic="t"),
        r"^this proxy has been used already; make another$": between.__enter__,
        r'^"Metdata" is no API; did you mean Metadata\?$': lambda: between.frames("Metdata"),
        "times": lambda: between.error("EndTxn", "INVALID_TXN_STATE").times(0),
        "direction": lambda: between.frames("Fetch", "sideways"),  # type: ignore[arg-type]
        "1 to 100 partitions, not 0": lambda: broker.topic("t", partitions=0),
    }
    for sentence, call in sentences.items():
        with pytest.raises(UsageError, match=sentence):
            call()


def test_a_leader_moves() -> None:
    with kfuzz.cluster(2) as brokers:
        brokers.topic("t")
        brokers.move("t", to=2)
        with Client(brokers.bootstrap) as client:
            said = client.ask("Metadata", 9, {"topics": [{"name": "t"}]})
    assert said["topics"][0]["partitions"][0]["leaderId"] == 2


def test_the_fixtures_of_pytest_run_until_the_test_ends(
    kfuzz_cluster: Callable[..., LocalCluster], kfuzz_proxy: Callable[..., LocalProxy]
) -> None:
    broker = kfuzz_cluster()
    between = kfuzz_proxy(broker.bootstrap, seed=1)
    between.error("FindCoordinator", 15)
    assert find_coordinator(between.bootstrap)["errorCode"] == 15


def test_importing_the_package_and_the_plugin_imports_no_more() -> None:
    program = "import sys, kfuzz.pytest_plugin; print(*(one for one in sys.modules if one.startswith('kfuzz')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kfuzz", "kfuzz.pytest_plugin"]


TESTS = """
import socket

import pytest

@pytest.mark.parametrize("number", range(4))
def test_a_proxy_of_its_own(kfuzz_cluster, kfuzz_proxy, number):
    between = kfuzz_proxy(kfuzz_cluster(3).bootstrap)
    host, _, port = between.bootstrap.split(",")[0].rpartition(":")
    socket.create_connection((host, int(port))).close()
"""


@pytest.mark.full
def test_the_fixtures_work_in_the_processes_of_xdist(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=10 * SECONDS_MAX)
    assert "4 passed" in done.stdout, done.stdout
