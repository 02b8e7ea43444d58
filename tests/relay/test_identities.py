"""Ids of a recorded conversation are those of a fresh one, and everything else is a difference."""

from __future__ import annotations

from typing import Any

import pytest
from relay.conversing import batch

from kfuzz import records
from kfuzz.client.address import Address
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.sample import filled
from kfuzz.relay.identities import MASKED, Identities

ID, OTHER = bytes([1] * 16), bytes([2] * 16)


def differing(made: Identities, old: Any, new: Any, asked: Any = None) -> list[tuple[str, Any, Any]]:
    return list(made.differences(old, new, made.scope(asked)))


def test_an_id_may_differ_once_and_then_stays() -> None:
    made = Identities()
    assert not differing(made, {"memberId": "a"}, {"memberId": "b"})
    assert not differing(made, {"members": [{"memberId": "a"}]}, {"members": [{"memberId": "b"}]})
    assert differing(made, {"memberId": "a"}, {"memberId": "c"}) == [("memberId", "a", "c")]
    # Later requests have the fresh id.
    assert made.translated({"memberId": "a"}, {}) == {"memberId": "c"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"producerId": 5}, {"producerId": -1}),
        ({"memberId": ""}, {"memberId": "a"}),
        ({"topicId": ID}, {"topicId": bytes(16)}),
        ({"sessionId": 7}, {"sessionId": 0}),
        ({"errorCode": 0}, {"errorCode": 3}),
        ({"throttleTimeMs": 1, "logAppendTimeMs": 5}, {"throttleTimeMs": 2, "logAppendTimeMs": -1}),
        ({"host": "a", "port": 1}, {"host": "", "port": 1}),
        ({"topics": [{"name": "a"}]}, {"topics": []}),
        ({"replicaNodes": [1, 2]}, {"replicaNodes": [1]}),
        ({"leader": None}, {"leader": {"leaderId": 1}}),
    ],
)
def test_what_is_missing_is_a_difference(old: Any, new: Any) -> None:
    assert len(differing(Identities(), old, new)) == 1


def test_times_and_addresses_may_differ() -> None:
    made = Identities()
    old = {"throttleTimeMs": 0, "nodes": [{"nodeId": 1, "host": "a", "port": 9}], "authBytes": b"1"}
    new = {"throttleTimeMs": 9, "nodes": [{"nodeId": 5, "host": "b", "port": 8}], "authBytes": b"2"}
    assert not differing(made, old, new)
    assert made.addresses == {"a:9": Address("b", 8)}
    assert made.translated({"leaderId": 1, "host": "a", "port": 9}, {}) == {"leaderId": 5, "host": "b", "port": 8}


def test_an_epoch_belongs_to_its_producer() -> None:
    made = Identities()
    assert not differing(made, {"producerId": 1, "producerEpoch": 4}, {"producerId": 8, "producerEpoch": 0})
    assert not differing(made, {"producerId": 2, "producerEpoch": 4}, {"producerId": 9, "producerEpoch": 7})
    assert made.translated({"producerId": 1, "producerEpoch": 4}, {}) == {"producerId": 8, "producerEpoch": 0}
    assert made.translated({"producerId": 2, "producerEpoch": 5}, {}) == {"producerId": 9, "producerEpoch": 8}
    assert made.translated({"producerId": 3, "producerEpoch": 4}, {}) == {"producerId": 3, "producerEpoch": 4}


def test_a_generation_belongs_to_the_member_that_the_request_named() -> None:
    made = Identities()
    asked = {"groupId": "g", "memberId": "a"}
    assert not differing(made, {"memberId": None, "memberEpoch": 3}, {"memberId": None, "memberEpoch": 1}, asked)
    assert made.translated({**asked, "memberEpoch": 4}, {})["memberEpoch"] == 2
    assert made.translated({**asked, "memberId": "b", "memberEpoch": 4}, {})["memberEpoch"] == 4


def of(topic: dict[str, Any], index: int, **fields: int) -> dict[str, Any]:
    return {"topics": [{**topic, "partitions": [{"partitionIndex": index, **fields}]}]}


def test_offsets_belong_to_a_partition_by_the_topic_s_name_or_id() -> None:
    made = Identities()
    named = {"name": "t", "topicId": ID}
    assert not differing(made, {"topics": [named]}, {"topics": [{"name": "t", "topicId": OTHER}]})
    assert not differing(made, of({"name": "t"}, 0, baseOffset=100), of({"name": "t"}, 0, baseOffset=3))
    asked = made.translated(of({"topicId": ID}, 0, fetchOffset=101), {})
    assert asked == of({"topicId": OTHER}, 0, fetchOffset=4)
    assert made.translated(of({"topicId": ID}, 1, fetchOffset=101), {}) == of({"topicId": OTHER}, 1, fetchOffset=101)
    # An offset that is not as far from the first as in the record is a difference, and what follows is after it.
    [(path, old, new)] = differing(
        made, of(named, 0, highWatermark=102), of({"name": "t", "topicId": OTHER}, 0, highWatermark=4)
    )
    assert (path, old, new) == ("topics[0].partitions[0].highWatermark", 102, 4)
    assert made.translated(of({"name": "t"}, 0, fetchOffset=103), {}) == of({"name": "t"}, 0, fetchOffset=5)


def test_a_part_of_the_log_that_the_fresh_broker_never_had_is_no_difference() -> None:
    made = Identities()
    assert not differing(made, {"offset": 100}, {"offset": 0})
    assert not differing(made, {"offset": 0}, {"offset": 0})
    assert differing(made, {"offset": 1}, {"offset": 0})
    # That is no offset.
    assert made.translated({"highWatermark": (1 << 63) - 1}, {}) == {"highWatermark": (1 << 63) - 1}


def test_elements_of_lists_are_compared_by_their_names_in_any_order() -> None:
    made = Identities()
    old = {"configs": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}
    assert not differing(made, old, {"configs": old["configs"][::-1]})
    changed = {"configs": [{"name": "b", "value": "2"}, {"name": "a", "value": "3"}]}
    assert differing(made, old, changed) == [("configs[1].value", "1", "3")]


def test_batches_get_the_fresh_producer_and_a_right_crc() -> None:
    made = Identities()
    differing(made, {"producerId": 4, "producerEpoch": 1}, {"producerId": 1 << 40, "producerEpoch": 7})
    data = batch(b"a", 4, 1, 0) + batch(b"b", 5, 1, 3)
    first, second = records.decode(made.translated({"records": data}, {})["records"])
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (1 << 40, 7, 0)
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (5, 1, 3)
    assert [first.records[0].value, second.records[0].value] == [b"a", b"b"]
    wrong = data[:-1] + b"?"
    assert made.translated({"records": wrong}, {})["records"][-70:] == wrong[-70:]


def test_batches_are_compared_with_ids_and_offsets_of_their_own() -> None:
    made = Identities()
    assert not differing(made, {"records": batch(b"a", 4, 1, 0)}, {"records": batch(b"a", 9, 0, 0)})
    found = differing(made, {"records": batch(b"a", 4, 1, 0)}, {"records": batch(b"b", 9, 0, 0)})
    assert found == [("records[0].records[0].value", b"a", b"b")]
    assert [path for path, *_ in differing(made, {"records": b"x" * 70}, {"records": b"y" * 70})] == ["records"]


def test_a_fresh_client_may_only_choose_its_own_ids() -> None:
    made = Identities(of_client=True)
    assert differing(made, {"memberId": "a", "producerId": 1}, {"memberId": "b", "producerId": 2})[0][0] == "producerId"
    assert made.translated({"memberId": "a", "producerId": 1}, {}) == {"memberId": "b", "producerId": 1}


def test_equal_messages_never_differ_and_others_make_nothing_stumble() -> None:
    for definition in catalogue().messages.values():
        if definition.kind in ("request", "response") and definition.valid_versions:
            version = definition.valid_versions.highest
            one, other = (filled(definition, version, seed) for seed in (1, 2))
            made = Identities()
            assert not differing(made, one, one), definition.name
            assert made.translated(one, {}) == one
            assert differing(made, one, other) or one == other or one.keys() <= MASKED, definition.name
            made.translated(one, {})
