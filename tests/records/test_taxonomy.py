"""Whatever the bytes: nothing but the exceptions of ``kfuzz.errors`` leaves the public functions."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from conftest import counts

from kfuzz import records
from kfuzz.annotate.records import annotate
from kfuzz.errors import EncodeError, KfuzzError, RecordsError, UsageError
from kfuzz.mutate import Mutator
from kfuzz.mutate.dice import Dice
from kfuzz.records import Limits, Profile, Role
from kfuzz.records.appending import append, recompress
from kfuzz.records.compaction import compact
from kfuzz.records.conversion import convert
from kfuzz.records.read.topic import Topic
from kfuzz.records.stream import check_stream
from kfuzz.vectors import load_suite

SEED_BYTES_MOST = 4096
# Small, so that bombs are cheap and the bound itself is met.
LIMITS = Limits(64 * 1024)
# Values that stand in a JSON document where something else should.
WRONG_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 31, 1 << 63, 1 << 70, 1.5, float("nan"), "", "x", "-", "zz", "0", "9" * 30, "9" * 5000,
    "\ud800", [], [None], [[]], [["h"]], [["h", "00", "00"]], {}, {"hex": 7}, {"hex": "0"}, {"sha256": "00"},
    b"raw",
)  # fmt: skip


def inputs(mutants: int) -> Iterator[tuple[str, bytes]]:
    vectors = load_suite()
    for vector in vectors:
        yield vector.id, vector.data
    mutator = Mutator(seed=11, repair=0.9, seeds=[v.data for v in vectors if len(v.data) <= SEED_BYTES_MOST])
    for i in range(mutants):
        yield f"mutant {i}", mutator.input()


@pytest.fixture(scope="module", params=counts(250, 3000))
def every_input(request: pytest.FixtureRequest) -> list[tuple[str, bytes]]:
    return list(inputs(request.param))


def outcome(function: Callable[[], object], allowed: type[Exception] | tuple[type[Exception], ...]) -> str:
    """ "ok" or the name of an allowed exception; another one fails the test where it is raised."""
    try:
        function()
    except allowed as error:
        # Each is of the taxonomy, and says something.
        return type(error).__name__ if isinstance(error, KfuzzError) and str(error) else f"mute {type(error)}"
    return "ok"


def test_read_and_check_raise_nothing_and_decode_raises_what_was_refused(every_input: list[tuple[str, bytes]]) -> None:
    seen: Counter[str] = Counter()
    for name, data in every_input:
        for profile in get_args(Profile):
            for role in get_args(Role):
                reading = records.read(data, profile=profile, role=role, limits=LIMITS)
                verdict = records.check(data, profile=profile, role=role, limits=LIMITS)
                assert reading.fatal == verdict.fatal, name
                said = outcome(
                    lambda profile=profile, role=role, data=data: records.decode(  # type: ignore[misc]
                        data, profile=profile, role=role, limits=LIMITS
                    ),
                    RecordsError,
                )
                assert said == ("RecordsError" if reading.fatal else "ok"), name
                seen[said] += 1
    assert min(seen["ok"], seen["RecordsError"]) > len(every_input) / 6


def test_decoded_batches_are_written_or_refused_by_the_encoder(every_input: list[tuple[str, bytes]]) -> None:
    seen: Counter[str] = Counter()
    for _, data in every_input:
        batches = records.read(data, limits=LIMITS).batches
        seen[outcome(lambda batches=batches: records.encode(batches), EncodeError)] += bool(batches)  # type: ignore[misc]
    assert seen["ok"] > len(every_input) / 6


REWRITERS: dict[str, Callable[[bytes], object]] = {
    "append": lambda data: append(data, Topic(compression="gzip"), limits=LIMITS),
    "columns": lambda data: records.columns(data, limits=LIMITS),
    "compact": lambda data: compact(data, lambda batch, record: record.offset % 2 == 0, now_ms=1, limits=LIMITS),
    "convert-down": lambda data: convert(data, 0, compression="none", limits=LIMITS),
    "convert-up": lambda data: convert(data, 2, limits=LIMITS),
    "recompress": lambda data: recompress(data, "lz4", limits=LIMITS),
    "stream-broker": lambda data: check_stream(data, role="broker", limits=LIMITS),
    "stream-log": lambda data: check_stream(data, role="log", limits=LIMITS),
}


@pytest.mark.parametrize("name", list(REWRITERS))
def test_every_rewriting_or_judging_call_works_or_refuses(name: str, every_input: list[tuple[str, bytes]]) -> None:
    if name == "columns":
        pytest.importorskip("pyarrow")
    seen = Counter(
        outcome(lambda data=data: REWRITERS[name](data), (RecordsError, EncodeError, UsageError))  # type: ignore[misc]
        for _, data in every_input
    )
    assert min(seen["ok"], seen["RecordsError"]) > len(every_input) / 15
    # Only recompress, which takes one batch of magic 2 by its contract, may say that the request is wrong.
    assert set(seen) <= {"ok", "RecordsError", "EncodeError", *(["UsageError"] if name == "recompress" else [])}


def test_decoded_batches_are_the_same_through_json(every_input: list[tuple[str, bytes]]) -> None:
    for name, data in every_input:
        batches = records.read(data, limits=LIMITS).batches
        text = json.dumps(records.to_json(batches))
        again = records.to_json(records.from_json(json.loads(text)))
        assert again == records.to_json(batches), name


def test_any_bytes_are_annotated_as_far_as_they_go(every_input: list[tuple[str, bytes]]) -> None:
    for name, data in every_input:
        if "/bomb/" not in name:
            assert len(list(annotate(data))) >= bool(data), name


def spoiled_documents(count: int) -> Iterator[list[Any]]:
    """``count`` documents in which one value, anywhere, is another than it should be."""
    vectors = load_suite("records/v2/head*")
    documents = [v.expect["consumer"]["batches"] for v in vectors if v.expect["consumer"]["verdict"] == "valid"]
    dice = Dice(5)
    for i in range(count):
        document = copy.deepcopy(dice.pick(documents))
        holder: Any = document
        # Down to a place in the tree, and there another value.
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = keys[dice.below(len(keys))]
            if not isinstance(holder[key], (dict, list)) or not holder[key] or dice.chance(0.2):
                break
            holder = holder[key]
        holder[key] = WRONG_VALUES[i % len(WRONG_VALUES)]
        yield document


@pytest.mark.parametrize("count", counts(1000, 4000))
def test_a_json_document_with_a_wrong_value_is_refused_by_the_form_or_the_encoder_or_written(count: int) -> None:
    seen: Counter[str] = Counter()
    for document in spoiled_documents(count):
        seen[outcome(lambda d=document: records.encode(records.from_json(d)), (UsageError, EncodeError))] += 1  # type: ignore[misc]
    assert seen["UsageError"] > count / 4
    assert set(seen) == {"ok", "UsageError", "EncodeError"}


@pytest.mark.parametrize("document", [None, 7, "x", {}, [7], [None], [[]], ["x"], [{"records": 7}], [{"records": [7]}]])
def test_a_value_that_is_no_list_of_batches_is_refused_in_one_sentence(document: Any) -> None:
    with pytest.raises(UsageError, match=r"^batches"):
        records.from_json(document)
