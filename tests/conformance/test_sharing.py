"""A differential in parts has the result of a whole one, whatever the parts are."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from referee_tools import refusing

from kfuzz.conformance.differential import Differential, differ
from kfuzz.conformance.differential.records import seeds_of
from kfuzz.conformance.differential.sharing import Shared, from_text, merged, to_text
from kfuzz.conformance.protocol.testees import Testee, own
from kfuzz.mutate import Mutator
from kfuzz.vectors import load_suite


def in_parts(shared: Shared, testee: Testee) -> Differential:
    # In any order, and as text in between, as Spark sends them.
    parts = [shared.run(part, testee) for part in reversed(range(shared.parts(testee)))]
    return merged(from_text(to_text(part)) for part in parts)


def test_records_in_parts_have_the_result_of_a_whole_run(tmp_path: Path) -> None:
    mutator = Mutator(3, seeds=seeds_of(load_suite()))
    whole = differ(refusing(tmp_path), islice(mutator, 230))
    one = in_parts(Shared("records", 3, 230), refusing(tmp_path))
    many = in_parts(Shared("records", 3, 230, part_inputs=50), refusing(tmp_path))
    assert one == many
    assert (one.inputs, one.agreements, one.rules) == (whole.inputs, whole.agreements, whole.rules)
    assert one.differing == len(whole.deviations) > 10
    # One input is kept for each cause: the smallest, with its number in the whole run.
    assert len(one.deviations) == len(whole.causes)
    assert [(cause.id, cause.count, cause.smallest.number, cause.smallest.data) for cause in one.causes] == [
        (cause.id, cause.count, cause.smallest.number, cause.smallest.data) for cause in whole.causes
    ]
    assert all(item.data == mutator.input_at(item.number) for item in one.deviations)


def test_streams_and_messages_in_parts_are_asked_whole() -> None:
    streams = Shared("streams", 3, 30, part_inputs=12)
    assert streams.parts(own()) == 3
    found = in_parts(streams, own())
    assert (found.inputs, found.agreed) == (30, 30)
    messages = Shared("messages", 3, 1, part_inputs=200)
    assert messages.parts(own()) > 2
    found = messages.run(messages.parts(own()) - 1, own())
    assert found.inputs > 100
    assert found.agreed + found.unsupported == found.inputs


def test_a_result_is_the_same_after_it_was_text(tmp_path: Path) -> None:
    found = Shared("records", 1, 40).run(0, refusing(tmp_path))
    assert from_text(to_text(found)) == found
    assert "\n" not in to_text(found)
