"""The records that a whole producer sent, compared with those that it was given."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from referee_tools import WICKED, make_vector

from kfuzz import records
from kfuzz.conformance.judge.compare import PRODUCE_ROLE, Case, Cell, cases_of, declared_unsupported, judge, request
from kfuzz.conformance.judge.runner import run_cases
from kfuzz.conformance.protocol.lines import PRODUCE, Handshake, parse_answer
from kfuzz.records import Record, RecordBatch
from kfuzz.vectors import load_suite
from kfuzz.vectors.recipes.making import builder
from kfuzz.vectors.recipes.themes.codec_lz4 import frame, stored

PRODUCER = Handshake(
    name="toy",
    version="1",
    language="python",
    operations=frozenset({PRODUCE}),
    codecs=frozenset({"none", "gzip"}),
    produces=frozenset({"idempotent", "transactions", "sends", "topics"}),
)
STALLS = replace(PRODUCER, outcomes=frozenset({"stalled"}))
FIRST, SECOND, THIRD = (
    Record(0, 5, None, b"", [(b"h", None), (b"h", b"")]),
    Record(1, 5, b"k", None),
    Record(2, 6, b"", b"v" * 2000),
)
WHOLE = RecordBatch(0, 2, [FIRST, SECOND, THIRD])
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


def other(record: Record, **changes: Any) -> Record:
    """The record with other values."""
    values = {name: getattr(record, name) for name in ("offset", "timestamp", "key", "value", "headers")}
    return Record(**(values | changes))


def case_of(may_refuse: bool = False, **options: Any) -> Case:
    """The question to send ``WHOLE``."""
    expectation = {"verdict": "valid", "batches": records.to_json([WHOLE])}
    options = {"compression": "none", "idempotent": False} | ({"may_refuse": True} if may_refuse else {}) | options
    return Case(
        make_vector("produce/toy", kind="produce", expect={"broker": expectation}, options=options), PRODUCE_ROLE
    )


def batch(*sent: Record, **changes: Any) -> bytes:
    """A batch with the records in this order, by default those of ``WHOLE``."""
    numbered = [other(record, offset=offset) for offset, record in enumerate(sent or (FIRST, SECOND, THIRD))]
    return records.encode([replace(WHOLE, last_offset=len(numbered) - 1, records=numbered, **changes)])


def arrived(*given: tuple[int, int, bytes]) -> list[dict[str, Any]]:
    """Requests that arrived: the error and the base offset of each answer, and the bytes."""
    return [{"hex": data.hex(), "error": error, "base_offset": str(base)} for error, base, data in given]


def judged(case: Case, *produced: bytes | tuple[bytes, int], handshake: Handshake = PRODUCER, **answer: Any) -> Cell:
    requests = [
        one.hex() if isinstance(one, bytes) else {"hex": one[0].hex(), "error": one[1], "acks": -1} for one in produced
    ]
    line = json.dumps({"id": "produce/toy", "outcome": "accepted", "produced": requests} | answer).encode()
    return judge(case, handshake, parse_answer(line, id="produce/toy", operation=PRODUCE))


def in_turn(*sequences: int, error: int = 0) -> list[tuple[bytes, int]]:
    """The records of ``WHOLE``, each in a batch of its own, from an idempotent producer."""
    return [
        (batch(record, **(IDEMPOTENT | {"base_sequence": sequence})), error)
        for record, sequence in zip((FIRST, SECOND, THIRD), sequences, strict=False)
    ]


NO_ERROR, RETRIED = case_of(), case_of(errors=["NOT_LEADER_OR_FOLLOWER"])
SEQUENCED = case_of(idempotent=True, errors=["NOT_LEADER_OR_FOLLOWER"])
PLAIN = Case(replace(NO_ERROR.vector, requirements=("RB-PRODUCER-1",)), PRODUCE_ROLE)
DUPLICATE = case_of(idempotent=True, errors=["REQUEST_TIMED_OUT", "DUPLICATE_SEQUENCE_NUMBER"])
GZIP = case_of(compression="gzip")
TRANSACTION = case_of(idempotent=True, transactional_id="t")
TRANSACTIONAL = {**IDEMPOTENT, "transactional": True}
SAME_TWICE = batch(FIRST, SECOND, SECOND, THIRD)
# Three sends; the second one meets an error, after which its record is in the log or not.
THREE_SENDS = {"sends": [1, 1, 1], "idempotent": True, "may_refuse": True}
REFUSED = case_of(**THREE_SENDS, errors=["NONE", "INVALID_RECORD"])
KEPT = case_of(**THREE_SENDS, errors=["NONE", "UNKNOWN_SERVER_ERROR"])
MUST_SEND = case_of(**THREE_SENDS | {"may_refuse": False}, errors=["NONE", "INVALID_RECORD"])
# The first of two sends is to a topic without permission.
DENIED = case_of(sends=[1, 2], topic_errors=["TOPIC_AUTHORIZATION_FAILED", "NONE"])
AT_ONCE = case_of(sends=[1, 2], at_once=True, idempotent=True)
NOW = 1_750_000_000_000
CLOCK = case_of(left_out=["timestamp"])


def third(sequence: int, epoch: int = 0, error: int = 0, *, after: int = 87) -> tuple[tuple[bytes, int], ...]:
    """Three requests of one record each: the second one is answered with the error ``after``, the third with ``error``.

    ``sequence`` and ``epoch`` are those of the third request.
    """
    again = batch(THIRD, **IDEMPOTENT | {"base_sequence": sequence, "producer_epoch": epoch})
    return *in_turn(0), *in_turn(0, 1, error=after)[1:], (again, error)


def sent(*sends: str) -> dict[str, Any]:
    """The results of the sends; the last one counts."""
    return {"sends": [*sends], "outcome": sends[-1]}


CONTINUED, GAVE_UP = sent("accepted", "rejected", "accepted"), sent("accepted", "rejected", "rejected")


def stamped(*timestamps: int) -> bytes:
    return batch(*(other(one, timestamp=at) for one, at in zip((FIRST, SECOND, THIRD), timestamps, strict=True)))


@pytest.mark.parametrize(
    "cell",
    [
        judged(NO_ERROR, batch()),
        judged(NO_ERROR, batch(FIRST), batch(SECOND, THIRD)),
        judged(NO_ERROR, batch(**IDEMPOTENT)),
        # Only a vector about these fields says that they are -1 without a producer id.
        judged(NO_ERROR, batch(producer_epoch=0)),
        judged(RETRIED, (batch(), 6), batch()),
        # A repeated batch may arrive after a later one that was in flight.
        judged(RETRIED, (batch(FIRST, SECOND), 6), batch(THIRD), batch(FIRST), batch(SECOND)),
        judged(SEQUENCED, (batch(**IDEMPOTENT), 6), batch(**IDEMPOTENT)),
        judged(SEQUENCED, *in_turn(0, 1, 2)),
        judged(SEQUENCED, *in_turn(0, 1, 2, error=6), *in_turn(0, 1, 2)),
        # With a new epoch, sequences begin again.
        judged(SEQUENCED, (batch(**IDEMPOTENT), 45), batch(**IDEMPOTENT | {"producer_epoch": 1})),
        judged(GZIP, batch(compression="gzip")),
        judged(case_of(may_refuse=True), outcome="rejected", error="MESSAGE_TOO_LARGE"),
        judged(TRANSACTION, batch(**TRANSACTIONAL)),
        # After a failure: a new epoch, the sequence that is free again, or the end, which may be recommended.
        judged(REFUSED, *third(0, 1), **CONTINUED),
        judged(REFUSED, *third(1), **CONTINUED),
        judged(REFUSED, *third(1)[:2], **GAVE_UP),
        judged(REFUSED, *in_turn(0), *in_turn(0, 1, error=87)[1:], *in_turn(0, 1, 2)[1:]),
        judged(KEPT, *third(0, 1, after=-1), **CONTINUED),
        judged(KEPT, *third(2, after=-1), **CONTINUED),
        judged(AT_ONCE, *in_turn(0, 1, 2), **sent("accepted", "accepted")),
        judged(AT_ONCE, batch(SECOND, THIRD, **IDEMPOTENT), (batch(FIRST, **IDEMPOTENT | {"base_sequence": 2}), 0)),
        judged(CLOCK, stamped(NOW, NOW, NOW + 1)),
        judged(DENIED, batch(SECOND, THIRD), **sent("rejected", "accepted")),
    ],
)
def test_a_producer_that_sends_what_it_was_given_passes(cell: Cell) -> None:
    assert (cell.outcome, cell.text) == ("pass", "")


@pytest.mark.parametrize(
    ("cell", "harm", "text"),
    [
        (judged(NO_ERROR), "loses", "sent other contents: too few records: 0; expected 3"),
        (judged(NO_ERROR, (batch(), 6)), "loses", "sent other contents: too few records: 0; expected 3"),
        (judged(NO_ERROR, batch(FIRST, THIRD)), "loses", "sent other contents: records[1].timestamp is 6; expected 5"),
        (judged(NO_ERROR, SAME_TWICE), "loses", "sent other contents: records[2].timestamp is 5; expected 6"),
        (judged(NO_ERROR, batch(), batch()), "loses", "sent other contents: too many records: 6; expected 3"),
        (
            judged(NO_ERROR, batch(other(FIRST, value=None), SECOND, THIRD)),
            "loses",
            "sent other contents: records[0].value is null; expected empty",
        ),
        (
            judged(NO_ERROR, batch(other(FIRST, headers=[(b"h", b"")]), SECOND, THIRD)),
            "loses",
            "sent other contents: records[0] has too few headers: 1; expected 2",
        ),
        (judged(RETRIED, (batch(), 6), batch(), batch()), "loses", "sent other contents: too many records"),
        (judged(RETRIED, (batch(), 6)), "loses", "sent other contents: too few records: 0; expected 3"),
        (judged(SEQUENCED, (batch(), 6), batch()), "loses", "request[0] has no producer id"),
        (judged(SEQUENCED, *in_turn(1, 2, 3)), "loses", "request[0] begins with the sequence 1; expected 0"),
        (judged(SEQUENCED, *in_turn(0, 2, 3)), "loses", "request[1] is refused by a broker with OUT_OF_ORDER_SEQUENCE"),
        (judged(SEQUENCED, *in_turn(0, 0)), "loses", "request[1] has another record with the sequence 0 of an earlier"),
        (judged(SEQUENCED, *in_turn(0), *in_turn(0, 1, 2)), "differs", "request[1] repeats a batch"),
        (judged(TRANSACTION, batch(**IDEMPOTENT)), "loses", "request[0] is not part of the transaction"),
        (judged(NO_ERROR, batch(**TRANSACTIONAL)), "loses", "request[0] is part of a transaction that was not asked"),
        (judged(TRANSACTION, (batch(**TRANSACTIONAL), 0)), "differs", "request[0] has the transactional id None; expe"),
        (judged(GZIP, batch(compression="zstd")), "differs", "request[0] is compressed with zstd; expected gzip"),
        (judged(GZIP, batch()), "differs", "sent records uncompressed that gzip makes smaller"),
        (judged(NO_ERROR, batch() + b"\0"), "differs", "request[0] has 1 bytes after the batch"),
        (judged(NO_ERROR, batch()[:-1] + b"!"), "refuses", "request[0] has records that a broker refuses: batch"),
        (judged(PLAIN, batch(producer_epoch=0)), "differs", "request[0] departs from the documents: batch[0].produ"),
        (judged(NO_ERROR, outcome="rejected", error="no"), "refuses", "refused to send valid records: no"),
        (judged(RETRIED, outcome="rejected", error="no"), "refuses", "gave up after an error that a producer should"),
        (judged(REFUSED, *third(2, error=45), **GAVE_UP), "refuses", "could not send after a failure"),
        (judged(MUST_SEND, *third(1)[:2], **GAVE_UP), "refuses", "could not send after a failure"),
        (judged(MUST_SEND, *third(1), **sent("rejected", "rejected", "accepted")), "refuses", "could not send after"),
        (judged(REFUSED, *third(0, 1)), "loses", "sent other contents: records[1].timestamp is 6; expected 5"),
        (judged(KEPT, *third(1, after=-1), **CONTINUED), "loses", "request[2] has another record with the sequence 1"),
        (judged(AT_ONCE, *in_turn(0, 0), **sent("accepted", "accepted")), "loses", "request[1] has another record"),
        (judged(AT_ONCE, *in_turn(0), **sent("accepted", "rejected")), "refuses", "could not send at the same time"),
        (judged(DENIED, **sent("rejected", "rejected")), "refuses", "could not send after a failure of another topic"),
        (judged(DENIED, batch(SECOND, THIRD), **sent("accepted", "accepted")), "loses", "reported records as sent to"),
        (judged(DENIED, batch(), **sent("rejected", "accepted")), "loses", "sent other contents: records[0].key is"),
        (judged(CLOCK, stamped(NOW, 0, NOW)), "loses", "records[1].timestamp was left out, and is"),
        (judged(CLOCK, stamped(NOW, NOW, NOW * 1000)), "loses", "records[2].timestamp was left out, and is"),
        (judged(NO_ERROR, outcome="fault", error="KeyError"), "panics", "KeyError"),
        (judged(NO_ERROR, handshake=STALLS, outcome="stalled"), "hangs", ""),
    ],
)  # fmt: skip
def test_a_producer_that_loses_repeats_or_changes_something_fails(cell: Cell, harm: str, text: str) -> None:
    assert cell.harm == harm
    assert text in cell.text


def test_a_producer_with_acks_0_cannot_know_what_it_says() -> None:
    sent = {"hex": batch().hex(), "acks": 0}
    assert judged(NO_ERROR, produced=[sent]).text.startswith("request[0] has acks 0")


@pytest.mark.parametrize(
    ("case", "produced", "offsets", "text"),
    [
        (NO_ERROR, arrived((0, 7, batch())), ["7", "8", "9"], ""),
        (NO_ERROR, arrived((0, 7, batch())), ["7", None, None], ""),
        (NO_ERROR, arrived((0, 7, batch(FIRST, SECOND)), (0, 20, batch(THIRD))), ["7", "8", "20"], ""),
        (NO_ERROR, arrived((0, 7, batch())), ["0", "1", "2"], "records[0] is 0; expected 7"),
        (NO_ERROR, arrived((0, 7, batch())), ["7", "7", "7"], "records[1] is 7; expected 8"),
        (NO_ERROR, arrived((0, 7, batch())), ["-1"] * 3, "records[0] is -1; expected 7"),
        # After a retry, the records have the offsets of the last answer.
        (RETRIED, arrived((6, 0, batch()), (0, 3, batch())), ["3", "4", "5"], ""),
        (RETRIED, arrived((0, 3, batch(THIRD)), (0, 4, batch(FIRST, SECOND))), ["4", "5", "3"], ""),
        (DUPLICATE, arrived((7, 0, batch(**IDEMPOTENT)), (46, -1, batch(**IDEMPOTENT))), ["-1"] * 3, ""),
        (DUPLICATE, arrived((7, 0, batch(**IDEMPOTENT)), (46, -1, batch(**IDEMPOTENT))), [None] * 3, ""),
        (DUPLICATE, arrived((46, -1, batch(**IDEMPOTENT))), ["-1", "0", "1"], "records[1] is 0; expected -1"),
    ],
)
def test_a_producer_reports_the_offsets_that_the_broker_gives(
    case: Case, produced: list[dict[str, Any]], offsets: list[str | None], text: str
) -> None:
    cell = judged(case, produced=produced, offsets=offsets)
    assert (cell.text, cell.harm) == (text and f"the offset reported for {text}", "loses" if text else "")


def test_only_records_of_sends_that_succeeded_have_offsets() -> None:
    sends = sent("rejected", "accepted")
    [passes, fails] = (
        judged(DENIED, produced=arrived((0, 5, batch(SECOND, THIRD))), offsets=[None, *said], **sends).outcome
        for said in (["5", "6"], ["6", "7"])
    )
    assert (passes, fails) == ("pass", "fail")


@pytest.mark.parametrize(
    ("code", "size", "flags", "harm"),
    [
        (0x40, 1, ["LargeBlocks"], ""),  # 64 KiB
        (0x50, 1, ["LargeBlocks"], "memory"),  # 256 KiB
        (0x50, 1, [], ""),
        (0x50, 66_000, ["LargeBlocks"], ""),
        (0x70, 66_000, ["LargeBlocks"], "memory"),  # 4 MiB
    ],
)
def test_lz4_blocks_may_be_four_times_as_large_as_the_records(
    code: int, size: int, flags: list[str], harm: str
) -> None:
    record = builder.Record(value=bytes(size))
    sent = builder.batch(record, codec="lz4", payload=frame(stored(record.encode()), block_size=code))
    expect = {"broker": {"verdict": "valid", "batches": sent.batches}}
    options = {"compression": "lz4", "idempotent": False}
    vector = replace(NO_ERROR.vector, expect=expect, options=options, flags=tuple(flags))
    assert judged(Case(vector, PRODUCE_ROLE), sent.data).harm == harm


def test_timestamps_and_headers_are_compared_as_far_as_the_library_can_hold_them() -> None:
    later = batch(other(FIRST, timestamp=7), SECOND, THIRD)
    seconds = replace(PRODUCER, timestamps={"low": "0", "high": "1000000", "resolution_ms": 1000})
    assert [judged(NO_ERROR, later, handshake=one).outcome for one in (PRODUCER, seconds)] == ["fail", "pass"]
    turned = batch(other(FIRST, headers=FIRST.headers[::-1]), SECOND, THIRD)
    by_name = replace(PRODUCER, headers="map")
    assert [judged(NO_ERROR, turned, handshake=one).outcome for one in (PRODUCER, by_name)] == ["fail", "pass"]


@pytest.mark.parametrize(
    ("changes", "case", "why"),
    [
        ({"operations": frozenset()}, NO_ERROR, "does not offer produce-records"),
        ({"produces": frozenset({"transactions"})}, SEQUENCED, "has no idempotent producer"),
        ({"produces": frozenset({"idempotent"})}, TRANSACTION, "has no transactions"),
        ({"produces": frozenset({"idempotent"})}, AT_ONCE, "sends only once"),
        ({"produces": frozenset({"sends"})}, DENIED, "sends to one topic only"),
        ({"codecs": frozenset({"none"})}, GZIP, "does not support gzip"),
        ({}, TRANSACTION, None),
    ],
)
def test_a_producer_is_asked_only_for_what_it_declares(changes: dict[str, Any], case: Case, why: str | None) -> None:
    assert declared_unsupported(case, replace(PRODUCER, **changes)) == why


def test_a_question_has_the_records_without_offsets_and_the_options_of_the_vector() -> None:
    asked = request(case_of(may_refuse=True, transactional_id="t", errors=["REQUEST_TIMED_OUT"]))
    given = asked.pop("records")
    assert [sorted(record) for record in given] == [["headers", "key", "timestamp", "value"]] * 3
    assert asked == {
        "id": "produce/toy",
        "operation": PRODUCE,
        "compression": "none",
        "idempotent": False,
        "transactional_id": "t",
        "errors": ["REQUEST_TIMED_OUT"],
    }


def test_a_record_lacks_what_its_user_leaves_out() -> None:
    given = request(case_of(left_out=["timestamp", "key"]))
    assert [sorted(record) for record in given["records"]] == [["headers", "value"]] * 3
    assert "left_out" not in given


def test_every_vector_for_producers_is_asked_also_of_brokers_and_encoders() -> None:
    vectors = load_suite(kinds=["produce"])
    roles = [case.role for case in cases_of(vectors)]
    assert {role: roles.count(role) for role in set(roles)} == dict.fromkeys(
        ("broker", "encode", "produce"), len(vectors)
    )


def test_a_run_says_what_a_producer_loses() -> None:
    vectors = load_suite(
        ["produce/contents/header-value-null", "produce/contents/header-value-empty"], kinds=["produce"]
    )
    command = [sys.executable, str(WICKED / "forgets.py")]
    cells = run_cases(command, cases_of(vectors, [PRODUCE_ROLE])).cells
    assert {name: (cell.outcome, cell.harm, cell.text) for (name, _), cell in cells.items()} == {
        "produce/contents/header-value-empty": ("pass", "", ""),
        "produce/contents/header-value-null": (
            "fail",
            "loses",
            "sent other contents: records[0].headers[0].value is empty; expected null",
        ),
    }
