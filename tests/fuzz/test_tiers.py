"""The first tier accepts what the full oracle accepts, says what differs, and hands the right inputs on."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

import pytest
from conftest import counts
from typing_extensions import Buffer

from kfuzz import records
from kfuzz.errors import EncodeError
from kfuzz.fuzz.messages import SELECTOR_SIZE, schema_of, selector
from kfuzz.fuzz.oracle import OracleFailure
from kfuzz.fuzz.packing import pack
from kfuzz.fuzz.seeding import seeds
from kfuzz.fuzz.targets import TARGETS
from kfuzz.fuzz.tiers import First, Messages, Packed, Records, Tiers
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.schemas import schema
from kfuzz.mutate import Mutator
from kfuzz.records import Record, RecordBatch, Role
from kfuzz.wire.messages import Schema

SOUND = records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")]))
# One in at most this many inputs meets the second tier.
TURN = 128
# An input that the first tier cannot judge counts as this many.
UNJUDGED = 2
# So many messages that change when they are written, and one of them meets the second tier.
DOUBTFUL_TURN = 8


def counted(first: First, inputs: Iterator[bytes], *, all_twice: bool = False) -> tuple[int, int]:
    """How many inputs the second tier got, and how many there were."""
    got: list[bytes] = []
    tiers = Tiers(first, got.append, all_twice)
    for data in inputs:
        tiers(data)
    assert tiers.inputs_twice == len(got)
    return len(got), tiers.inputs


@pytest.mark.parametrize("role", ["consumer", "broker", "log"])
@pytest.mark.parametrize("count", counts(20_000, 200_000, 500_000))
def test_mutants_of_batches_pass(role: Role, count: int) -> None:
    known = seeds(TARGETS["record-batch"])
    twice, there = counted(Records(role), islice(Mutator(3, seeds=known, role=role), count))
    assert there == count
    assert count // TURN <= twice <= UNJUDGED * count // TURN


def test_seeds_pass() -> None:
    assert counted(Records(), iter(seeds(TARGETS["record-batch"])))[1] > 1_000
    assert counted(Packed(pack), iter(seeds(TARGETS["compressed-batch"])))[1] > 20
    assert counted(Messages(schema_of), iter(seeds(TARGETS["messages"])))[1] > 1_000


@pytest.mark.parametrize(
    ("data", "every"),
    [
        pytest.param(SOUND, TURN, id="sound"),
        pytest.param(SOUND[:-1] + b"?", TURN, id="refused"),
        # Only Python decompresses snappy.
        pytest.param(
            records.encode_batch(RecordBatch(0, 0, [Record(0, 0, b"k", b"v")], compression="snappy")),
            TURN // UNJUDGED,
            id="unjudged",
        ),
    ],
)
def test_one_in_so_many_meets_the_second_tier(data: bytes, every: int) -> None:
    assert counted(Records(), iter([data] * (3 * every + 1))) == (3, 3 * every + 1)
    assert counted(Records(), iter([data] * 5), all_twice=True) == (5, 5)
    assert counted(First(), iter([data] * TURN)) == (UNJUDGED, TURN)


def test_a_failure_of_either_tier_is_the_exception() -> None:
    def refuse(data: bytes) -> None:
        raise OracleFailure("the second tier")

    def crash(data: bytes) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(OracleFailure, match="the second tier"):
        Tiers(Records(), refuse, True)(SOUND)
    with pytest.raises(ZeroDivisionError):
        Tiers(Packed(crash), refuse)(SOUND)


class Liar:
    """A schema that differs from the real one in one answer."""

    def __init__(self, program: Schema, **answers: Any) -> None:
        self.program = program
        self.answers = answers

    def check(self, data: Buffer) -> Any:
        return self.answers.get("check") or self.program.check(data)

    def decode(self, data: bytes) -> Any:
        return self.answers.get("decode") or self.program.decode(data)

    def encode(self, values: Any) -> bytes:
        answer = self.answers.get("encode") or self.program.encode(values)
        if isinstance(answer, Exception):
            raise answer
        return cast(bytes, answer)


def test_messages_whose_walks_or_writer_differ_are_seen() -> None:
    definition = catalogue().find("MetadataRequest")
    version = max(definition.valid_versions)
    program = schema(definition, version)
    data = selector(definition, version) + program.encode({})

    def twice(**answers: Any) -> int:
        liar = cast(Schema, Liar(program, **answers))
        return counted(Messages(lambda data: liar), iter([data] * DOUBTFUL_TURN))[0]

    assert twice() == 0
    # The second tier decides about what the writer refuses.
    assert twice(encode=EncodeError("no")) == 1
    with pytest.raises(OracleFailure, match="a message is written as 6f74686572, which reads and writes as another"):
        twice(encode=b"other")
    with pytest.raises(OracleFailure, match="check says"):
        twice(check=(len(data) - SELECTOR_SIZE - 1, ()))
    with pytest.raises(OracleFailure, match="check says"):
        twice(decode=(len(data) - SELECTOR_SIZE, (("tag-unknown", 0, 0, 0, []),), {}))


def test_a_tag_that_is_not_written_again_is_for_the_second_tier() -> None:
    definition = catalogue().find("FetchRequest")
    program = schema(definition, 17)
    # After all fields: one tagged field, number 0, of one byte, which is null as it is by default.
    body = program.encode({})[:-1] + bytes([1, 0, 1, 0])
    end, notes, values = program.decode(body)
    assert (end, notes) == (len(body), ())
    assert program.encode(values) != body
    data = selector(definition, 17) + body
    assert counted(Messages(schema_of), iter([data] * DOUBTFUL_TURN)) == (1, DOUBTFUL_TURN)


def test_a_message_that_does_not_exist_needs_no_second_tier() -> None:
    assert counted(Messages(schema_of), iter([b"", b"\xff\xff\xff"] * (TURN // 2 - 1))) == (0, TURN - 2)


def test_targets_without_a_first_tier_meet_the_oracle_with_every_input() -> None:
    alone = {name for name, target in TARGETS.items() if target.first is None}
    wholes = {"log-directory", "connection", "login", "readers", "values", "arrow"}
    assert alone == {"canary", "compression", *wholes}
    assert all(TARGETS[name].tiers(all_twice=False) is TARGETS[name].run for name in alone)


@pytest.mark.parametrize(
    ("arguments", "is_one"),
    [
        (["-seed=1", "corpus"], False),
        (["-merge=1", "to", "from"], True),
        (["-minimize_crash=1", "crash"], True),
        ([__file__], True),
    ],
)
def test_a_replay_and_a_merge_meet_both_tiers(arguments: list[str], is_one: bool) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    from kfuzz.fuzz.harness import is_replay

    assert is_replay(arguments) is is_one
