"""Changes of frames by rules, without sockets: what is changed in which version, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
from relay.framing import Values, exchange, frame
from serve.asking import INVALID, MINIMAL

from kfuzz import records
from kfuzz.messages.sample import filled
from kfuzz.mutate.dice import Dice
from kfuzz.relay.changes import (
    AT_THE_TOP,
    MUTATED_THROTTLE_MS_MAX,
    NOWHERE,
    has_errors,
    mutated,
    number_paths,
    set_change,
)
from kfuzz.relay.frames import Direction, Frame, api_key, api_names, api_of, versions_of
from kfuzz.relay.rule import parse_rule
from kfuzz.vectors import find_vector

BATCH = find_vector(MINIMAL).data
DICE = Dice(1)
TOPIC: Values = {"name": "t", "topicId": b"i" * 16, "partitions": [{"replicaNodes": [1, 2]}]}


def changed(text: str, one: Frame) -> Frame | None:
    """The frame as a rule has changed it; None if the rule changes nothing."""
    change = parse_rule(text).change
    assert change is not None
    found = change(one, DICE)
    if found is not None:
        found.check()
    return found


def values_of(found: Frame | None) -> Values:
    assert found is not None
    return found.values()


def fetched(version: int, *counts: int) -> Frame:
    """A Fetch response with topics that have so many partitions."""
    partition = {"partitionIndex": 0, "highWatermark": 9, "records": BATCH}
    named = {} if version >= 13 else {"topic": "t"}
    topics = [{**named, "partitions": [{**partition, "partitionIndex": at} for at in range(count)]} for count in counts]
    return frame(exchange("Fetch", version), "response", {"responses": topics})


def of_partitions(found: Frame | None, *names: str) -> list[list[Any]]:
    """Fields of all partitions of a Fetch response, topic by topic."""
    topics = values_of(found)["responses"]
    return [[one[name] for name in names] for topic in topics for one in topic["partitions"]]


@pytest.mark.parametrize("version", [0, 4, 12, 18])
@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("responses[0].partitions[0]", [5, 9, 9]),
        ("responses[*].partitions[0]", [5, 9, 5]),
        ("responses[*].partitions[1]", [9, 5, 9]),
        ("responses[1].partitions[*]", [9, 9, 5]),
        ("responses[*].partitions[*]", [5, 5, 5]),
    ],
)
def test_paths_lead_to_one_or_all_elements(version: int, path: str, wanted: list[int]) -> None:
    found = changed(f"Fetch set={path}.highWatermark=5", fetched(version, 2, 1))
    assert of_partitions(found, "highWatermark") == [[one] for one in wanted]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("clusterId=null", {"clusterId": None}),
        ("clusterId=\"a b\"", {"clusterId": "a b"}),
        ("topics[0].topicId=" + "A" * 22, {"topics": [{**TOPIC, "topicId": bytes(16)}]}),
        ("topics=null direction=request", {"topics": None}),
        ("brokers[0]={\"nodeId\":3,\"host\":\"h\"}", {"brokers": [{"nodeId": 3, "host": "h"}]}),
        ("topics[0].partitions[0].replicaNodes[1]=8", {"topics": [TOPIC | {"partitions": [{"replicaNodes": [1, 8]}]}]}),
    ],
)  # fmt: skip
def test_values_of_all_types_can_be_set(rule: str, wanted: Values) -> None:
    def made(values: Values) -> Frame:
        return frame(exchange("Metadata", 12), direction, values)

    direction: Direction = "request" if rule.endswith("request") else "response"
    response = {"topics": [TOPIC], "brokers": [{"nodeId": 1, "host": "a", "port": 1}], "clusterId": "c"}
    before: Values = {"topics": [{"name": "t"}]} if direction == "request" else response
    assert values_of(changed(f"Metadata set={rule}", made(before))) == made(before | wanted).values()


@pytest.mark.parametrize(
    ("text", "one"),
    [
        pytest.param("set=responses[2].partitions[*].highWatermark=5", fetched(12, 2, 1), id="no such element"),
        pytest.param("set=responses[*].partitions[*].highWatermark=9", fetched(12, 1), id="the same value"),
        pytest.param("set=responses[*].partitions[*].preferredReadReplica=5", fetched(10, 1), id="no such field"),
        pytest.param("throttle_ms=9", fetched(0, 1), id="no throttle time"),
        pytest.param("error=NOT_LEADER_OR_FOLLOWER", fetched(12), id="no partition for the error of one"),
        pytest.param(f"vector={INVALID}", fetched(12), id="no records"),
    ],
)
def test_what_a_rule_changes_nothing_in_stays_as_it_is(text: str, one: Frame) -> None:
    assert changed(f"Fetch {text}", one) is None


def test_fields_are_set_from_the_first_version_that_has_them() -> None:
    found = changed("Fetch set=responses[*].partitions[*].preferredReadReplica=5", fetched(11, 1))
    assert of_partitions(found, "preferredReadReplica") == [[5]]
    assert values_of(changed("Fetch throttle_ms=9", fetched(1, 1)))["throttleTimeMs"] == 9
    # The header of its responses stays that of version 0.
    for version in (0, 4):
        one = frame(exchange("ApiVersions", version), "response", {"apiKeys": [{"maxVersion": 1}]})
        assert values_of(changed("ApiVersions set=apiKeys[0].maxVersion=3", one))["apiKeys"][0]["maxVersion"] == 3


@pytest.mark.parametrize(
    ("version", "error", "top", "below"),
    [
        (4, "NOT_LEADER_OR_FOLLOWER", None, [[6, b""]] * 2),
        (12, "NOT_LEADER_OR_FOLLOWER", 0, [[6, b""]] * 2),
        (12, "FETCH_SESSION_ID_NOT_FOUND", 70, [[0, b""]]),
        (12, "INVALID_FETCH_SESSION_EPOCH", 71, []),
        (18, "OFFSET_OUT_OF_RANGE", 0, [[1, b""]]),
        (12, "NONE", 0, [[0, BATCH]]),
    ],
)
def test_an_error_of_a_fetch_is_where_brokers_have_it(version: int, error: str, top: Any, below: list[Any]) -> None:
    found = changed(f"Fetch error={error}", fetched(version, len(below)))
    assert values_of(found).get("errorCode") == top
    assert of_partitions(found, "errorCode", "records") == below


def test_every_response_with_an_error_can_get_one_in_each_version() -> None:
    change, seen = parse_rule("* error=UNKNOWN_SERVER_ERROR").change, 0
    assert change is not None
    for api in api_names():
        for version in versions_of(api_key(api)) or ():
            one = exchange(api, version)
            if one.api is None or not has_errors(one.api.response):
                continue
            # One of these seeds fills all arrays on the way to an error.
            for seed in range(40):
                made = frame(one, "response", filled(one.api.response.definition, version, seed))
                if (found := change(made, DICE)) is not None:
                    break
            assert found is not None, (api, version)
            found.check()
            assert found.is_read
            assert found.errors.get(-1), (api, version)
            seen += 1
    assert seen > 300
    assert all(api_of(api_key(name.removesuffix("Response")), 0) for name in AT_THE_TOP)


def test_a_vector_replaces_the_records_only_where_there_are_some() -> None:
    other = find_vector(INVALID).data
    values = fetched(12, 2).values()
    values["responses"][0]["partitions"][1]["records"] = b""
    found = changed(f"Fetch vector={INVALID}", fetched(12, 2).with_values(values))
    assert of_partitions(found, "records") == [[other], [b""]]
    topics = [{"name": "t", "partitionData": [{"index": 0, "records": BATCH}]}]
    produced = frame(exchange("Produce", 11), "request", {"acks": 1, "topicData": topics})
    found = changed(f"Produce direction=request vector={INVALID}", produced)
    assert values_of(found)["topicData"][0]["partitionData"][0]["records"] == other


def test_a_message_vector_and_hex_are_whole_bodies() -> None:
    name = "messages/claims/api-versions-response-v2-apikeys-as-many-as-bytes"
    one = frame(exchange("ApiVersions", 2), "response", {})
    for text, body in ((f"vector={name}", find_vector(name).data), ("hex=0102", b"\1\2")):
        found = changed(f"ApiVersions {text}", one)
        # The correlation id comes first.
        assert found is not None
        assert found.data == one.data[:4] + body
    assert not parse_rule(f"ApiVersions vector={name}").may_match(exchange("ApiVersions", 1))


def mutants(one: Frame, count: int = 200) -> list[Frame]:
    """The frame after a mutation."""
    made = [found for seed in range(count) if (found := mutated(one, Dice(seed))) is not None]
    for found in made:
        found.check()
    return made


def test_mutation_changes_batches_in_half_of_the_frames_that_have_some_and_repairs_them() -> None:
    one = fetched(12, 1)
    changed_batches = whole = 0
    made = mutants(one, 400)
    assert [found.data for found in made] == [found.data for found in mutants(one, 400)]
    for found in made:
        assert found.data[:5] == one.data[:5]
        if found.is_read and found.records:
            [(at, size), *_] = found.records
            data = found.data[at : at + size]
            changed_batches += data != BATCH
            # The checksum is mostly right.
            whole += data != BATCH and "crc-mismatch" not in [one.code for one in records.check(data).findings]
    assert 120 < changed_batches < 300
    assert whole > changed_batches / 2


@pytest.mark.parametrize(
    ("api", "version", "place"),
    [("Metadata", 1, "brokers"), ("Metadata", 12, "brokers"), ("FindCoordinator", 4, "coordinators")],
)
def test_mutation_leads_clients_only_to_known_brokers_or_to_nobody(api: str, version: int, place: str) -> None:
    address = {"nodeId": 1, "host": "127.0.0.1", "port": 9092}
    one = frame(exchange(api, version), "response", {place: [address, address]})
    end = one.data.rfind(b"127.0.0.1") + len("127.0.0.1") + 4
    readable = 0
    for found in mutants(one):
        readable += found.is_read
        if found.is_read:
            hosts = {(to["host"], to["port"]) for to in found.values()[place] or () if to["host"] and to["port"] > 0}
            assert hosts <= {("127.0.0.1", 9092), NOWHERE}
        else:
            assert found.data[:end] == one.data[:end]
    assert 60 < readable < 195


def test_mutation_never_lets_a_client_wait_for_long() -> None:
    made = mutants(frame(exchange("Fetch", 12), "response", {"responses": []}))
    assert max(one.values()["throttleTimeMs"] for one in made if one.is_read) == MUTATED_THROTTLE_MS_MAX


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
