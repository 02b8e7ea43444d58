"""Changes of frames by rules, without sockets: what is changed in which version, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
from relay.framing import Values, exchange, frame

from kfuzz import records
from kfuzz.messages.sample import filled
from kfuzz.mutate.dice import Dice
from kfuzz.relay.changes import (
    AT_THE_TOP,
    MUTATED_THROTTLE_MS_MAX,
    NOWHERE,
    error_change,
    has_errors,
    mutated,
    number_paths,
    records_change,
    set_change,
    throttle_change,
)
from kfuzz.relay.frames import Frame, api_key, api_names, api_of, versions_of
from kfuzz.relay.rule import parse_rule
from kfuzz.vectors import find_vector

BATCH = find_vector("records/v2/header/minimal").data
DICE = Dice(1)
REPLICAS = ["topics", 0, "partitions", 0, "replicaNodes"]


def changed(text: str, one: Frame) -> Values | None:
    change = parse_rule(text).change
    assert change is not None
    found = change(one, DICE)
    if found is None:
        return None
    found.check()
    return found.values()


def fetched(version: int, *counts: int) -> Frame:
    """A Fetch response with topics that have so many partitions."""
    partition = {"partitionIndex": 0, "highWatermark": 9, "records": BATCH}
    named = {} if version >= 13 else {"topic": "t"}
    topics = [{**named, "partitions": [{**partition, "partitionIndex": at} for at in range(count)]} for count in counts]
    return frame(exchange("Fetch", version), "response", {"responses": topics})


def marks(values: Values) -> list[list[int]]:
    return [[one["highWatermark"] for one in topic["partitions"]] for topic in values["responses"]]


@pytest.mark.parametrize("version", [0, 4, 12, 18])
@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("responses[0].partitions[0].highWatermark", [[5, 9], [9]]),
        ("responses[*].partitions[0].highWatermark", [[5, 9], [5]]),
        ("responses[*].partitions[1].highWatermark", [[9, 5], [9]]),
        ("responses[1].partitions[*].highWatermark", [[9, 9], [5]]),
        ("responses[*].partitions[*].highWatermark", [[5, 5], [5]]),
        ("responses[2].partitions[*].highWatermark", None),
    ],
)
def test_paths_lead_to_one_or_all_elements(version: int, path: str, wanted: list[list[int]] | None) -> None:
    found = changed(f"Fetch set={path}=5", fetched(version, 2, 1))
    assert (found and marks(found)) == wanted


def test_a_version_without_the_field_stays_as_it_is() -> None:
    text = "Fetch set=responses[*].partitions[*].preferredReadReplica=5"
    assert changed(text, fetched(10, 1)) is None
    found = changed(text, fetched(11, 1))
    assert found is not None
    assert found["responses"][0]["partitions"][0]["preferredReadReplica"] == 5


@pytest.mark.parametrize(
    ("text", "api", "direction", "path", "wanted"),
    [
        ("set=clusterId=null", "Metadata", "response", ["clusterId"], None),
        ("set=clusterId=\"a b\"", "Metadata", "response", ["clusterId"], "a b"),
        ("set=topics[0].topicId=" + "A" * 22, "Metadata", "response", ["topics", 0, "topicId"], bytes(16)),
        ("set=topics=null direction=request", "Metadata", "request", ["topics"], None),
        ("set=brokers[0]={\"nodeId\":3,\"host\":\"h\"}", "Metadata", "response", ["brokers", 0, "host"], "h"),
        ("set=topics[0].partitions[0].replicaNodes[1]=8", "Metadata", "response", REPLICAS, [1, 8]),
    ],
)  # fmt: skip
def test_values_of_all_types_can_be_set(text: str, api: str, direction: Any, path: list[Any], wanted: Any) -> None:
    partition = {"partitionIndex": 0, "replicaNodes": [1, 2]}
    topic = {"name": "t"} if direction == "request" else {"name": "t", "topicId": b"i" * 16, "partitions": [partition]}
    values: Values = {"topics": [topic]}
    if direction == "response":
        values |= {"brokers": [{"nodeId": 1, "host": "a", "port": 1}], "clusterId": "c"}
    found: Any = changed(f"{api} {text}", frame(exchange(api, 12), direction, values))
    for step in path:
        found = found[step]
    assert found == wanted


def test_a_field_that_has_the_value_already_is_no_change() -> None:
    assert changed("Fetch set=responses[*].partitions[*].highWatermark=9", fetched(12, 1)) is None


@pytest.mark.parametrize(
    ("version", "error", "top", "below"),
    [
        (4, "NOT_LEADER_OR_FOLLOWER", None, 6),
        (12, "NOT_LEADER_OR_FOLLOWER", 0, 6),
        (12, "FETCH_SESSION_ID_NOT_FOUND", 70, 0),
        (18, "OFFSET_OUT_OF_RANGE", 0, 1),
    ],
)
def test_an_error_of_a_fetch_is_where_brokers_have_it(version: int, error: str, top: int | None, below: int) -> None:
    found = changed(f"Fetch error={error}", fetched(version, 2))
    assert found is not None
    assert found.get("errorCode") == top
    assert [(one["errorCode"], one["records"]) for one in found["responses"][0]["partitions"]] == [(below, b"")] * 2


def test_a_fetch_without_partitions_has_no_place_for_the_error_of_one() -> None:
    assert changed("Fetch error=NOT_LEADER_OR_FOLLOWER", fetched(12)) is None
    assert changed("Fetch error=INVALID_FETCH_SESSION_EPOCH", fetched(12)) is not None


def test_no_error_leaves_the_records() -> None:
    found = changed("Fetch error=NONE", fetched(12, 1))
    assert found is not None
    assert found["responses"][0]["partitions"][0]["records"] == BATCH


def test_every_response_with_an_error_can_get_one_in_each_version() -> None:
    change, seen = error_change(-1), 0
    for api in api_names():
        for version in versions_of(api_key(api)) or ():
            one = exchange(api, version)
            if one.api is None or not has_errors(one.api.response):
                continue
            # One of these seeds fills all arrays on the way to an error.
            for seed in range(40):
                found = change(frame(one, "response", filled(one.api.response.definition, version, seed)), DICE)
                if found is not None:
                    break
            assert found is not None, (api, version)
            found.check()
            assert found.is_read
            assert found.errors.get(-1), (api, version)
            seen += 1
    assert seen > 300
    assert all(api_of(api_key(name.removesuffix("Response")), 0) for name in AT_THE_TOP)


def test_a_vector_replaces_the_records_only_where_there_are_some() -> None:
    one = fetched(12, 2)
    values = one.values()
    values["responses"][0]["partitions"][1]["records"] = b""
    found = records_change(b"other")(one.with_values(values), DICE)
    assert found is not None
    assert [part["records"] for part in found.values()["responses"][0]["partitions"]] == [b"other", b""]
    assert records_change(b"other")(fetched(12), DICE) is None


def test_a_throttle_time_is_set_in_the_versions_that_have_it() -> None:
    assert throttle_change(9)(fetched(0, 1), DICE) is None
    found = throttle_change(9)(fetched(1, 1), DICE)
    assert found is not None
    assert found.values()["throttleTimeMs"] == 9


def test_a_message_vector_and_hex_are_whole_bodies() -> None:
    name = "messages/claims/api-versions-response-v2-apikeys-as-many-as-bytes"
    one = frame(exchange("ApiVersions", 2), "response", {})
    for text, body in ((f"ApiVersions vector={name}", find_vector(name).data), ("ApiVersions hex=0102", b"\1\2")):
        change = parse_rule(text).change
        assert change is not None
        found = change(one, DICE)
        assert found is not None
        # The correlation id comes first.
        assert found.data == bytes(one.data)[:4] + body
    assert not parse_rule(f"ApiVersions vector={name}").may_match(exchange("ApiVersions", 1))


def test_mutation_changes_batches_in_half_of_the_frames_that_have_some_and_repairs_them() -> None:
    one = fetched(12, 1)
    changed_batches = whole = 0
    for seed in range(400):
        found = mutated(one, Dice(seed))
        if found is None:
            continue
        assert bytes(found.data)[:5] == bytes(one.data)[:5]
        assert mutated(one, Dice(seed)).data == found.data  # type: ignore[union-attr]
        found.check()
        if found.is_read and found.records:
            [(at, size), *_] = found.records
            data = bytes(found.data)[at : at + size]
            changed_batches += data != BATCH
            # The checksum is mostly right.
            whole += data != BATCH and "crc-mismatch" not in [one.code for one in records.check(data).findings]
    assert 120 < changed_batches < 300
    assert whole > changed_batches / 2


@pytest.mark.parametrize(("api", "version"), [("Metadata", 1), ("Metadata", 12), ("FindCoordinator", 4)])
def test_mutation_leads_clients_only_to_known_brokers_or_to_nobody(api: str, version: int) -> None:
    address = {"nodeId": 1, "host": "127.0.0.1", "port": 9092}
    one = frame(
        exchange(api, version), "response", {"brokers" if api == "Metadata" else "coordinators": [address, address]}
    )
    readable = unreadable = 0
    before = bytes(one.data)
    end = before.rfind(b"127.0.0.1") + len("127.0.0.1") + 4
    for seed in range(300):
        found = mutated(one, Dice(seed))
        if found is None:
            continue
        found.check()
        if found.is_read:
            readable += 1
            values = found.values()
            for told in values.get("brokers") or values.get("coordinators") or ():
                if told["host"] and told["port"] > 0:
                    assert (told["host"], told["port"]) in (("127.0.0.1", 9092), NOWHERE)
        else:
            unreadable += 1
            assert bytes(found.data)[:end] == before[:end]
    assert readable > 100
    assert unreadable > 10


def test_mutation_never_lets_a_client_wait_for_long() -> None:
    one = frame(exchange("Fetch", 12), "response", {"responses": []})
    waits = []
    for seed in range(300):
        found = mutated(one, Dice(seed))
        assert found is not None
        found.check()
        if found.is_read:
            waits.append(found.values()["throttleTimeMs"])
    assert max(waits) == MUTATED_THROTTLE_MS_MAX


def test_number_paths_can_be_set_and_have_neither_ports_nor_throttle_times() -> None:
    paths = [path for path, _ in number_paths("FetchResponse", 12)]
    assert "responses[*].partitions[*].highWatermark" in paths
    assert "responses[*].partitions[*].divergingEpoch.epoch" in paths
    assert "throttleTimeMs" not in paths
    assert "brokers[*].port" not in [path for path, _ in number_paths("MetadataResponse", 9)]
    for path in paths:
        parse_rule(f"Fetch versions=12 set={path}=1")


def test_set_change_takes_no_path_from_elsewhere() -> None:
    api = api_of(api_key("Fetch"), 12)
    assert api is not None
    change = set_change([api.response], {"throttleTimeMs": 3})
    # Another version than those that the change was made for.
    assert change(fetched(11, 1), DICE) is None
