"""Frames are summed up by API. A remark is said once and counted."""

from __future__ import annotations

import random

import pytest
from relay.framing import exchange

from kfuzz.findings import Finding
from kfuzz.relay.frames import Exchange, Frame
from kfuzz.relay.watching import NS_PER_MS, REMARKS_MAX, Latencies, Watch


def test_quantiles_are_at_most_a_bucket_wrong() -> None:
    rng = random.Random(4)
    durations = sorted(round(rng.lognormvariate(14, 2)) for _ in range(1000))
    latencies = Latencies()
    assert latencies.quantile_ms(0.5) is None
    for one in durations:
        latencies.add(one)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact_ms = durations[round(share * 1000) - 1] / NS_PER_MS
        assert latencies.quantile_ms(share) == pytest.approx(exact_ms, rel=0.1)
    zero = Latencies()
    zero.add(0)
    assert zero.quantile_ms(1.0) == 0


def test_requests_and_responses_are_summed_by_api() -> None:
    watch = Watch(lambda sentence: None)
    for version, size in ((5, 100), (5, 50), (6, 1)):
        one = exchange("Metadata", version)
        one.sent_ns = 1
        watch.asked(Frame(one, "request", b""), size)
        watch.answered(Frame(one, "response", b"", errors={3: 2, 12345: 1}), 2 * size, 1 + NS_PER_MS)
    sums = watch.to_json()["apis"]["Metadata"]
    assert (sums["requests"], sums["responses"], sums["request_bytes"], sums["response_bytes"]) == (3, 3, 151, 302)
    assert sums["versions"] == {"5": 2, "6": 1}
    assert sums["errors"] == {"UNKNOWN_TOPIC_OR_PARTITION": 6, "ERROR_12345": 3}
    assert sums["latency_ms"]["median"] == pytest.approx(1, rel=0.1)
    [_, line] = watch.lines()
    assert line.split()[:5] == ["Metadata", "3", "3", "151", "302"]


def test_strange_keys_share_one_entry() -> None:
    watch = Watch(lambda sentence: None)
    for key in range(1000, 1100):
        watch.asked(Frame(Exchange(1, 1, 1, key, 5, 1), "request", b""), 10)
    assert [(name, sums.requests) for name, sums in watch.by_api.items()] == [("unknown", 100)]


def test_a_remark_is_said_once_and_counted() -> None:
    said: list[str] = []
    watch = Watch(said.append)
    for number in range(5):
        finding = Finding("bytes-after-message", "deviation", 5, "here", None, f"sentence {number}\x1b[31m")
        watch.found(Frame(exchange("Metadata", 5), "request", b""), [finding])
    [sentence] = said
    assert "sentence 0" in sentence
    assert "\x1b" not in sentence
    [remark] = watch.to_json()["remarks"]
    assert (remark["code"], remark["count"], remark["first"]) == ("bytes-after-message", 5, sentence)


def test_remarks_are_bounded_and_one_about_no_request_names_only_the_connection() -> None:
    said: list[str] = []
    watch = Watch(said.append)
    for number in range(REMARKS_MAX + 50):
        watch.note(f"code-{number}", "response", Exchange(3, 0, 0, -1, -1, -1), "cut")
    assert said[0] == "connection 3, responses: cut"
    assert len(watch.remarks) == len(said) == REMARKS_MAX + 1
    assert sum(one.count for one in watch.remarks.values()) == REMARKS_MAX + 50
