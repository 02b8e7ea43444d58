"""The kit for whole clients: a program that drives one is started again after anything odd, and killed if it hangs."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "testees" / "python"))
import kfuzz_conversing
import kfuzz_serving
from kfuzz_serving import END, Driver, Hung, Kit, Stopped

RECORD = {"offset": "0", "timestamp": "1", "key": None, "value": "61", "headers": []}
# Does what the topic's name says, after each `open`. The topic is in the errors, as in those of real libraries.
TOY = """
import json, os, signal, subprocess, sys, time
print(json.dumps({"version": "7", "headers": "map"}), flush=True)
for line in sys.stdin:
    line = json.loads(line)
    topic = line.get("topic", globals().get("topic"))
    said = {}
    if line["do"] == "poll":
        said = {"records": []}
        if topic == "warm-up":
            said = {"end": True}
        elif topic == "rejects":
            said = {"outcome": "rejected", "error": f"{topic}-0 of {address}: bad", "short_at": "5"}
        elif topic == "reads":
            said = {"records": [RECORD, RECORD], "allocated_bytes": 9, "position": "1", "other": "2"}
        elif topic == "sleeps":
            time.sleep(60)
        elif topic == "loops":
            while True:
                pass
        elif topic == "ends":
            os._exit(3)
        elif topic == "prints":
            print("hello")
    elif line["do"] == "open":
        address = line["address"]
        if topic == "sleeps":
            subprocess.Popen(["sleep", "60"])
    elif line["do"] == "close" and topic == "stays":
        time.sleep(60)
    elif line["do"] == "produce":
        said = {"offsets": ["4"]} if line["compression"] == "none" else {"outcome": "fault", "error": "no"}
        if "sends" in line:
            said = {"sends": [{"outcome": name, "error": topic} if name else said for name in line["records"]]}
    print(json.dumps(said), flush=True)
""".replace("RECORD", repr(RECORD))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    toy = tmp_path / "toy.py"
    toy.write_text(TOY)
    monkeypatch.setattr(kfuzz_serving, "LOOK_S", 0.01)
    driver = Driver([sys.executable, str(toy)])
    yield driver
    driver.stop()


def opened(driver: Driver, topic: str) -> Any:
    return driver.open("broker:1", topic, "read_committed", 5)


def pid_of(driver: Driver) -> int:
    assert driver.process
    return driver.process.pid


def test_a_driver_says_its_version_and_hands_out_records_one_by_one(driver: Driver) -> None:
    assert driver.hello == {"version": "7", "headers": "map"}
    client = opened(driver, "reads")
    assert [client.poll(0), client.poll(0)] == [RECORD, RECORD]
    assert client.allocated_bytes == 9
    assert client.offsets == {"position": "1"}
    client.close()


def test_one_process_serves_one_client_after_the_other_until_something_is_odd(driver: Driver) -> None:
    client = opened(driver, "reads")
    first = pid_of(driver)
    client.close()
    client = opened(driver, "rejects")
    assert client.poll(0) == Stopped("rejected", "the partition of the broker: bad", 5)
    client.close()
    client = opened(driver, "reads")
    assert pid_of(driver) == first
    client.is_odd = True
    client.close()
    assert not psutil.pid_exists(first)
    assert opened(driver, "reads").poll(0) == RECORD
    assert pid_of(driver) != first


def test_a_driver_that_sleeps_is_killed_with_all_that_it_started(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = opened(driver, "sleeps")
    [child] = psutil.Process(pid_of(driver)).children()
    monkeypatch.setattr(kfuzz_serving, "CALL_S_MAX", 0.1)
    assert client.poll(0) == Stopped("stalled", "does not return from poll")
    client.close()
    deadline = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert opened(driver, "reads").poll(0) == RECORD


def test_a_driver_that_computes_without_an_end_is_killed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    client = opened(driver, "loops")
    monkeypatch.setattr(kfuzz_serving, "CALL_CPU_S_MAX", 0.05)
    assert client.poll(0) == Stopped("stalled", "computes without an end")
    assert driver.process is None


def test_a_client_that_cannot_be_closed_is_noticed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    client = opened(driver, "stays")
    monkeypatch.setattr(kfuzz_serving, "CALL_S_MAX", 0.1)
    with pytest.raises(Hung):
        client.close()
    assert driver.process is None


def test_a_driver_that_ends_or_prints_something_else_ends_the_testee(driver: Driver) -> None:
    with pytest.raises(SystemExit) as ended:
        opened(driver, "ends").poll(0)
    assert ended.value.code == 3
    driver.process = None
    with pytest.raises(SystemExit, match="wrote another line than an object of JSON: b'hello"):
        opened(driver, "prints").poll(0)


def test_what_a_producer_did_is_told(driver: Driver) -> None:
    how = {"records": [], "idempotent": False, "transactional_id": None}
    assert driver.produce("broker:1", "t", compression="none", **how) == [["4"]]
    assert driver.produce("broker:1", "t", compression="gzip", **how) == Stopped("fault", "no")


class Quiet:
    """A broker that notes what it is asked, and always says the same."""

    address = "broker:1"

    def __init__(self, produced: list[str]) -> None:
        self.produced = produced
        self.asked: list[dict[str, Any]] = []

    def ask(self, **line: Any) -> dict[str, Any]:
        self.asked.append(line)
        return {"produced": self.produced}


@pytest.mark.parametrize(
    ("results", "at_once", "said"),
    [
        (
            ["", "rejected", ""],
            {},
            {
                "outcome": "accepted",
                "sends": ["accepted", "rejected", "accepted"],
                "offsets": ["4", None, None, None, "4", None],
            },
        ),
        (["", "rejected"], {}, {"outcome": "rejected", "sends": ["accepted", "rejected"], "error": "the topic"}),
        (["rejected", ""], {"at_once": True}, {"outcome": "rejected", "sends": ["rejected", "accepted"]}),
        (["stalled", ""], {}, {"outcome": "stalled"}),
    ],
)
def test_the_last_of_several_sends_counts_and_all_of_those_at_once(
    driver: Driver, results: list[str], at_once: dict[str, bool], said: dict[str, Any]
) -> None:
    driver.is_warm = True
    kit: Any = Kit(Quiet([]), driver.open, driver.produce)  # type: ignore[arg-type]
    request = {"operation": "produce-records", "records": results, "sends": [2] * len(results), **at_once}
    assert said.items() <= kit.answer(request, "t1").items()


class FakeBroker:
    """Says what fetches it has seen: the next one of ``asked`` each time, the last one again and again."""

    def __init__(self, *asked: tuple[int, ...]) -> None:
        self.answers = list(asked)

    def asked(self, topic: str) -> tuple[int, ...]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if len(answer) > 2 else (*answer, 1)


class FakeClient:
    is_odd = False

    def __init__(self, *polled: Any) -> None:
        self.polled = list(polled)

    def poll(self, timeout_s: float) -> Any:
        return self.polled.pop(0) if self.polled else None

    def cpu_s(self) -> float:
        return time.process_time()


@pytest.mark.parametrize(
    ("client", "asked", "records_said", "outcome"),
    [
        # Only control batches are left, or nothing at all: the client must ask for what comes next.
        (FakeClient(), [(3, 1), (3, 2)], 0, Stopped("accepted")),
        (FakeClient(RECORD), [(3, 2)], 1, Stopped("accepted")),
        (FakeClient(RECORD, END), [(0, 1)], 1, Stopped("accepted")),
        (FakeClient(), [(3, 2)], 1, Stopped("nothing", "hands out 0 records of 1")),
        (FakeClient(), [(2, 31)], 0, Stopped("stalled", "asks for offset 2 again and again")),
        (
            FakeClient(),
            [(offset % 2, 1) for offset in range(300)],
            0,
            Stopped("stalled", "asks for other offsets again and again"),
        ),
        (
            FakeClient(*[RECORD] * 200),
            [(0, 1)],
            1,
            Stopped("stalled", "hands out the same records again and again"),
        ),
    ],
)
def test_the_end_of_a_topic_is_no_stall_and_an_endless_loop_is_one(
    client: Any, asked: list[tuple[int, int]], records_said: int, outcome: Stopped
) -> None:
    broker: Any = FakeBroker(*asked)
    said = kfuzz_serving.Promised(records_said, 3, True)
    assert kfuzz_serving.consume(client, broker, "t", said, []) == outcome


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        ([(3, 2), (3, 49), (3, 50)], Stopped("accepted")),
        ([(3, 50, 11)], Stopped("rejected", "connects again and again: 11 times for one partition")),
        ([(3, 2)], Stopped("stalled", "asks for nothing more")),
        ([(3, times) for times in range(2, 40)] * 40, Stopped("accepted")),
    ],
)
def test_a_client_must_go_on_at_the_end_with_one_connection_but_may_be_slow(
    asked: list[tuple[int, ...]], outcome: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A millisecond passes from one look at the clock to the next.
    clock = itertools.count()
    monkeypatch.setattr(kfuzz_serving, "time", SimpleNamespace(monotonic=lambda: next(clock) / 1000))
    for name, value in (("AT_END_S_MAX", 0.01), ("JUST_NOW_S", 0.005), ("SILENCE_S_MAX", 0.02)):
        monkeypatch.setattr(kfuzz_serving, name, value)
    broker: Any = FakeBroker(*asked)
    # It says once that it is at the end.
    client: Any = FakeClient(END)
    said = kfuzz_serving.Promised(0, 3, True)
    assert kfuzz_serving.consume(client, broker, "t", said, [], 50) == outcome


@pytest.mark.parametrize(
    ("end", "noted", "outcome"),
    [
        (None, {"not_offered": "version 9 of Fetch"}, "rejected"),
        (Stopped("rejected", "no"), {"not_offered": "version 9 of Fetch"}, "rejected"),
        (Stopped("stalled", "no"), {"not_offered": "version 9 of Fetch"}, "stalled"),
        (None, {"unreadable": "version 1 of X"}, "rejected"),
    ],
)
def test_a_question_about_a_broker_gets_a_new_one_which_says_what_is_wrong(
    end: Stopped | None, noted: dict[str, str], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Other:
        address = "broker:2"

        def __init__(self, behaviour: dict[str, Any]) -> None:
            made.append(behaviour)

        def ask(self, **line: Any) -> dict[str, Any]:
            return {"produced": []} | noted

        def stop(self) -> None:
            made.append("stopped")

    monkeypatch.setattr(kfuzz_serving, "Broker", Other)
    kit: Any = Kit(None, lambda *_: None, lambda *_, **how: end)  # type: ignore[arg-type,return-value]
    request = {"operation": "produce-records", "records": [RECORD], "broker": {"versions": {"Fetch": 8}}}
    answer = kit.answer(request, "t1")
    text = "asks in version 9 of Fetch, which its broker does not offer"
    if "unreadable" in noted:
        text = "its group cannot read what it writes: version 1 of X"
    assert (answer["outcome"], answer["error"]) == (outcome, f"{text}; no" if end else text)
    assert made == [{"versions": {"Fetch": 8}}, "stopped"]


def test_sends_to_several_topics_name_the_one_with_each_error() -> None:
    sent: list[list[str]] = []

    quiet = Quiet(["00"])
    kit: Any = Kit(quiet, lambda *_: None, lambda *_, topics, **how: sent.append(topics))  # type: ignore[arg-type]
    errors = ["NONE", "INVALID_TOPIC_EXCEPTION", "NONE", "TOPIC_AUTHORIZATION_FAILED", "INVALID_TOPIC_EXCEPTION"]
    kit.answer({"operation": "produce-records", "records": [], "sends": [1] * 5, "topic_errors": errors}, "t1")
    assert sent == [["t1", "t1-1", "t1", "t1-2", "t1-1"]]
    made = {line["topic"]: line["metadata_error"] for line in quiet.asked if "metadata_error" in line}
    assert made == {"t1-1": errors[1], "t1-2": errors[3]}
    assert {line["topic"] for line in quiet.asked if line.get("hex", "") is None} == {"t1", "t1-1", "t1-2"}


def test_transactions_of_a_group_name_it_but_not_the_one_before() -> None:
    sent: list[Any] = []

    def produce(*_: Any, **how: Any) -> list[list[str]]:
        sent.append((how.get("group"), how.get("sends")))
        return [["0"]]

    kit: Any = Kit(Quiet(["00"]), lambda *_: None, produce)  # type: ignore[arg-type,return-value]
    request = {"operation": "produce-records", "records": [RECORD], "transactional_id": "x", "group": "g", "sends": [1]}
    kit.answer(request, "t1")
    assert sent == [(None, None), ("g", [1])]


@pytest.mark.parametrize(("name", "topics"), [("x", ["t1-before", "t1"]), (None, ["t1"])])
def test_a_transactional_id_has_been_used_before_whatever_was_asked(name: str | None, topics: list[str]) -> None:
    """So a producer that cannot take the place of another fails in each run, also if it is asked one vector only."""
    sent: list[tuple[str, Any]] = []

    def produce(address: str, topic: str, **how: Any) -> list[list[str]]:
        sent.append((topic, how["transactional_id"]))
        return [["0"]]

    kit: Any = Kit(Quiet(["00"]), lambda *_: None, produce)  # type: ignore[arg-type,return-value]
    request = {"operation": "produce-records", "records": [RECORD], "transactional_id": name}
    assert kit.answer(request, "t1") == {"outcome": "accepted", "produced": ["00"], "offsets": ["0"]}
    assert sent == [(topic, name) for topic in topics]


@pytest.mark.parametrize(
    ("until_error", "outcome", "offsets"), [(False, "accepted", ["0", "0"]), (True, "rejected", ["0"])]
)
def test_an_application_polls_again_after_an_error_unless_it_waits_for_one(
    until_error: bool, outcome: str, offsets: list[str]
) -> None:
    polls: Iterator[dict[str, Any]] = itertools.chain(
        [{"records": [RECORD]}, {"outcome": "rejected", "error": "no leader"}, {"records": [RECORD]}],
        itertools.repeat({"records": []}),
    )
    found = kfuzz_conversing.read(lambda **line: next(polls), 2, until_error=until_error)
    assert found["outcome"] == outcome
    assert [one["offset"] for one in found["records"]] == offsets


def test_a_reading_that_never_comes_out_of_its_error_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AFTER_ERROR_S_MAX", "PAUSE_S"):
        monkeypatch.setattr(kfuzz_conversing, name, 0)
    errors = ({"outcome": "rejected", "error": str(number)} for number in itertools.count())
    found = kfuzz_conversing.read(lambda **line: next(errors), 1)
    assert found == {"outcome": "rejected", "error": "0", "records": []}
