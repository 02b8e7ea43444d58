"""Streams: sequences, epochs, transactions and isolation against the rules; the vectors hold them to Kafka."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfuzz import records
from kfuzz.errors import RecordsError, UsageError
from kfuzz.records import Record, RecordBatch
from kfuzz.records.stream import (
    AbortedTransaction,
    Fetch,
    ProducerState,
    check_stream,
    next_sequence,
    read_committed,
    transactions_of,
)

INT32_MAX = 2**31 - 1
ABORT, COMMIT = 0, 1
sequences = st.integers(0, INT32_MAX)


def data(base_sequence: int, count: int = 1, *, base_offset: int = 0, **fields: Any) -> RecordBatch:
    made = [Record(base_offset + index, 1, None, b"v") for index in range(count)]
    fields = {"producer_id": 4000, "producer_epoch": 3} | fields
    return RecordBatch(base_offset, base_offset + count - 1, made, base_sequence=base_sequence, **fields)


def txn(base_sequence: int, count: int = 1, **fields: Any) -> RecordBatch:
    return data(base_sequence, count, transactional=True, **fields)


def marker(kind: int, *, base_offset: int = 0, coordinator_epoch: int = 0, **fields: Any) -> RecordBatch:
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch)
    fields = {"producer_id": 4000, "producer_epoch": 3, "transactional": True} | fields
    return RecordBatch(base_offset, base_offset, [Record(base_offset, 1, key, value)], control=True, **fields)


def codes(state: ProducerState, *batches: RecordBatch) -> list[str]:
    """The outcome of each batch, or the finding that refused it."""
    appends = [state.append(batch) for batch in batches]
    return [a.finding.code if a.outcome == "rejected" and a.finding else a.outcome for a in appends]


# --- sequence arithmetic ---


@given(sequences, st.integers(0, INT32_MAX))
def test_a_sequence_continues_modulo_two_to_the_31(sequence: int, count: int) -> None:
    assert next_sequence(sequence, count) == (sequence + count) % 2**31


@given(sequences, st.integers(1, 500), st.integers(1, 500))
def test_a_batch_at_the_end_of_the_last_one_is_accepted_with_any_sequence(first: int, one: int, two: int) -> None:
    second = next_sequence(first, one)
    assert codes(ProducerState(), data(first, one), data(second, two)) == ["appended", "appended"]


@given(sequences, st.integers(1, 500), sequences)
def test_only_the_next_sequence_and_an_exact_repetition_are_not_refused(first: int, count: int, other: int) -> None:
    [_, outcome] = codes(ProducerState(), data(first, count), data(other, 1))
    if other == next_sequence(first, count):
        assert outcome == "appended"
    elif other == first and count == 1:
        assert outcome == "duplicate"
    else:
        assert outcome in ("sequence-gap", "sequence-overlap")


@given(sequences, st.integers(1, INT32_MAX // 2))
def test_a_sequence_above_the_wanted_one_is_a_gap_and_one_below_it_an_overlap(first: int, distance: int) -> None:
    wanted = next_sequence(first)
    assert codes(ProducerState(), data(first), data(next_sequence(wanted, distance)))[1] == "sequence-gap"
    below = data((wanted - distance) % 2**31, 2)
    assert codes(ProducerState(), data(first), below)[1] == "sequence-overlap"


@given(st.lists(st.integers(1, 3), min_size=6, max_size=12), sequences)
def test_exactly_the_last_five_batches_are_known_as_duplicates(counts: list[int], first: int) -> None:
    state, sent, sequence = ProducerState(), [], first
    for count in counts:
        sent.append((data(sequence, count), state.log_end_offset))
        assert state.append(sent[-1][0]).outcome == "appended"
        sequence = next_sequence(sequence, count)
    for age, (batch, base_offset) in enumerate(reversed(sent)):
        append = state.append(batch)
        assert (append.outcome, append.base_offset) == (("duplicate", base_offset) if age < 5 else ("rejected", None))


# --- a broker ---


def test_a_refusal_leaves_everything_as_it_was_and_says_what_was_found_and_allowed() -> None:
    state = ProducerState(log_end_offset=70)
    state.append(data(0, 3))
    append = state.append(data(9), at=100, path="batch[4]")
    assert (append.outcome, append.error, state.log_end_offset) == ("rejected", "OUT_OF_ORDER_SEQUENCE_NUMBER", 73)
    assert append.finding is not None
    assert (append.finding.path, append.finding.at, append.finding.requirement) == (
        "batch[4].base_sequence",
        153,
        "SEQ-ORDER-1",
    )
    assert append.finding.message == "the base sequence is 9; the next one must be 3"
    assert state.append(data(3)).base_offset == 73


def test_a_duplicate_is_a_finding_that_no_profile_takes_for_a_fault() -> None:
    profiles: tuple[records.Profile, ...] = ("kafka", "strict")
    for profile in profiles:
        state = ProducerState(profile=profile)
        append = [state.append(data(0)) for _ in range(2)][1]
        assert append.finding is not None
        assert (append.outcome, append.finding.code, append.finding.severity) == (
            "duplicate",
            "sequence-duplicate",
            "deviation",
        )


def test_the_last_stable_offset_follows_the_oldest_open_transaction() -> None:
    state = ProducerState()
    stable = []
    for batch in (
        txn(0, 2),
        txn(0, producer_id=5000),
        marker(COMMIT),
        data(0, producer_id=6000),
        marker(ABORT, producer_id=5000),
    ):
        state.append(batch)
        stable.append((state.last_stable_offset, state.open_transactions))
    assert stable == [(0, 1), (0, 2), (2, 1), (2, 1), (6, 0)]


@pytest.mark.parametrize("old_one_stays_open", [True, False])
def test_ended_transactions_take_no_memory(old_one_stays_open: bool) -> None:
    """Nothing but the appending itself may forget them, so that no property is read in between."""
    state = ProducerState()
    if old_one_stays_open:
        state.append(txn(0, producer_id=1))
    used_bytes = []
    tracemalloc.start()
    try:
        for sequence in range(2001):
            if sequence % 1000 == 0:
                used_bytes.append(tracemalloc.get_traced_memory()[0])
            assert codes(state, txn(sequence), marker(COMMIT)) == ["appended", "appended"]
    finally:
        tracemalloc.stop()
    # Each transaction's place in a list would take 8 bytes, and its offset and producer many more.
    assert used_bytes[2] - used_bytes[1] < 8000
    assert state.open_transactions == old_one_stays_open
    assert state.last_stable_offset == (0 if old_one_stays_open else state.log_end_offset)


def test_a_marker_tells_the_transaction_that_it_ends() -> None:
    state = ProducerState(log_end_offset=40)
    state.append(txn(0, 2))
    assert state.append(marker(ABORT)).completed == (4000, 40, 42, True)
    assert state.append(marker(ABORT)).completed is None


def test_a_log_tolerates_old_epochs_and_gaps_and_no_end_of_a_transaction_that_is_none() -> None:
    state = ProducerState(role="log")
    batches = [data(0), data(90, producer_epoch=5), data(3), marker(COMMIT), data(5, producer_id=-1)]
    for index, batch in enumerate(batches):
        batch.base_offset = batch.last_offset = 10 * index
    appends = [state.append(batch) for batch in batches]
    assert [append.outcome for append in appends] == ["appended"] * 5
    assert [append.finding and append.finding.code for append in appends] == [
        None,
        None,
        "producer-epoch-stale",
        None,
        None,
    ]
    assert [append.base_offset for append in appends] == [0, 10, 20, 30, 40]
    assert codes(state, txn(0, producer_id=7), data(1, producer_id=7)) == ["appended", "transaction-not-ended"]


def test_the_strict_profile_does_not_tolerate_old_epochs_in_a_log() -> None:
    state = ProducerState(role="log", profile="strict")
    assert codes(state, data(0, producer_epoch=5), data(1)) == ["appended", "producer-epoch-stale"]


@pytest.mark.parametrize(
    "wrong",
    [{"role": "consumer"}, {"profile": "lax"}, {"transaction_version": 3}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_producer_state_refuses_impossible_arguments_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=str(next(iter(wrong.values())))):
        ProducerState(**wrong)


# --- bytes ---


def test_check_stream_finds_the_place_in_the_bytes() -> None:
    first, second = records.encode([data(0, 2)]), records.encode([data(7)])
    reading = check_stream(first + second, role="broker")
    assert [append.outcome for append in reading.appends] == ["appended", "rejected"]
    assert reading.fatal is not None
    assert (reading.fatal.at, reading.fatal.path) == (len(first) + 53, "batch[1].base_sequence")
    assert reading.findings == (reading.fatal,)


def test_check_stream_ends_at_a_partial_tail_and_refuses_a_batch_that_cannot_be_read() -> None:
    whole = records.encode([txn(0, base_offset=3)])
    reading = check_stream(whole + whole[:50])
    assert (len(reading.appends), reading.last_stable_offset, reading.fatal) == (1, 3, None)
    with pytest.raises(RecordsError, match="crc"):
        check_stream(whole + whole[:-1] + b"!")


def test_an_unreadable_length_is_refused_and_not_taken_for_the_end() -> None:
    whole = records.encode([data(0)])
    with pytest.raises(RecordsError, match="length"):
        check_stream(whole + whole[:8] + struct.pack(">i", 1) + whole[12:])


# --- reading ---


def log() -> list[RecordBatch]:
    """Two producers' transactions, the first aborted, then one that is open."""
    return [
        txn(0, 2, base_offset=0),
        txn(0, 2, base_offset=2, producer_id=5000),
        marker(ABORT, base_offset=4),
        marker(COMMIT, base_offset=5, producer_id=5000),
        txn(2, base_offset=6),
        data(-1, base_offset=7, producer_id=-1, producer_epoch=-1),
    ]


def test_the_markers_of_a_log_tell_its_aborted_transactions_and_its_stable_end() -> None:
    assert transactions_of(log()) == ((AbortedTransaction(4000, 0),), 6)


def test_read_committed_needs_nothing_but_the_log() -> None:
    assert [batch.base_offset for batch in read_committed(log())] == [2]


def test_read_committed_takes_bytes_of_which_it_keeps_no_batch() -> None:
    batches = []
    for index in range(400):
        batches += [txn(0, base_offset=2 * index), marker(index % 2, base_offset=2 * index + 1)]
        batches[-2].records[0].value = b"v" * 5000
    encoded = records.encode(batches)
    del batches
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_committed(encoded)) == 200
        assert tracemalloc.get_traced_memory()[1] < len(encoded) / 10
    finally:
        tracemalloc.stop()


def test_read_committed_cannot_read_an_iterator_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        list(read_committed(iter(log())))
    assert [batch.base_offset for batch in read_committed(iter(log()), aborted=[])] == [0, 2, 6, 7]


def test_read_committed_takes_the_word_of_a_fetch_response() -> None:
    assert [batch.base_offset for batch in read_committed(log(), aborted=[])] == [0, 2, 6, 7]
    assert [batch.base_offset for batch in read_committed(log(), aborted=[(4000, 5), (5000, 1)])] == [0, 7]


def test_read_committed_refuses_what_cannot_stand_in_a_log() -> None:
    spoiled = log()
    spoiled[2].records[0].key = b"\x00"
    with pytest.raises(RecordsError, match="batch\\[2\\]") as refused:
        list(read_committed(spoiled))
    assert refused.value.finding.code == "end-marker-invalid"


def test_the_order_in_which_aborted_transactions_are_reported_does_not_matter() -> None:
    batches = [txn(0, base_offset=0), marker(ABORT, base_offset=1), txn(1, base_offset=2), marker(ABORT, base_offset=3)]
    for aborted in ([(4000, 0), (4000, 2)], [(4000, 2), (4000, 0)]):
        assert list(read_committed(batches, aborted)) == []


def test_a_fetch_begins_at_its_offset_and_the_next_one_after_the_last_batch() -> None:
    fetch = Fetch(fetch_offset=1)
    batch = data(0, 3)
    batch.last_offset = 9
    assert [record.offset for record in fetch.records_of(batch)] == [1, 2]
    assert fetch.next_offset == 10


def test_a_fetch_never_goes_back() -> None:
    fetch = Fetch()
    batch = data(0, 3)
    batch.records[1], batch.records[2] = batch.records[2], batch.records[1]
    assert [record.offset for record in fetch.records_of(batch)] == [0, 2]


def test_an_isolation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="serializable"):
        Fetch(isolation="serializable")  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "commit", "abort"])), max_size=40))
def test_read_committed_gives_the_stable_batches_that_are_not_aborted(deeds: list[tuple[int, str]]) -> None:
    """Against a model that knows each transaction's fate in advance."""
    batches: list[RecordBatch] = []
    fates: dict[int, str] = {}
    pending: dict[int, list[int]] = {}
    for offset, (producer_id, deed) in enumerate(deeds):
        if deed == "data":
            batches.append(txn(0, base_offset=offset, producer_id=producer_id))
            pending.setdefault(producer_id, []).append(offset)
        else:
            batches.append(marker(ABORT if deed == "abort" else COMMIT, base_offset=offset, producer_id=producer_id))
            fates |= dict.fromkeys(pending.pop(producer_id, []), deed)
    stable = min((offsets[0] for offsets in pending.values()), default=len(deeds))
    committed = [offset for offset, fate in sorted(fates.items()) if fate == "commit" and offset < stable]
    assert [batch.base_offset for batch in read_committed(batches)] == committed
    assert transactions_of(batches).last_stable_offset == stable
    assert [batch.base_offset for batch in read_committed(records.encode(batches))] == committed


DEEDS = ["data", "plain", "gzip", "lz4", "message", "commit", "abort", "emptied", "short key", "other type", "no value"]


def batch_of(deed: str, producer_id: int, offset: int) -> RecordBatch:
    if deed == "message":
        return RecordBatch(offset, offset, [Record(offset, 1, None, b"v")], magic=1)
    if deed in ("data", "gzip", "lz4"):
        codec = next((codec for codec in records.CODECS if codec == deed), "none")
        return txn(0, 2, base_offset=offset, producer_id=producer_id, compression=codec)
    if deed == "plain":
        return data(0, 2, base_offset=offset, producer_id=producer_id)
    kind = {"abort": ABORT, "other type": 5}.get(deed, COMMIT)
    made = marker(kind, base_offset=offset, producer_id=producer_id)
    if deed == "emptied":
        made.records = []
    elif deed == "short key":
        made.records[0].key = b"\0\0"
    elif deed == "no value":
        made.records[0].value = None
    return made


@given(
    st.lists(st.tuples(st.integers(-1, 2), st.sampled_from(DEEDS), st.integers(-2, 2)), max_size=25),
    st.none() | st.lists(st.tuples(st.integers(-1, 2), st.integers(-3, 40)), max_size=4),
    st.integers(0, 30),
)
def test_a_log_of_bytes_gives_what_its_batches_give(
    deeds: list[tuple[int, str, int]], aborted: list[tuple[int, int]] | None, fetch_offset: int
) -> None:
    """Of bytes the compiled walk decides, of batches ``ProducerState`` and ``Fetch``: what is seen, and the errors."""
    batches = []
    offset = 0
    for producer_id, deed, leap in deeds:
        # Offsets may go back and leave gaps.
        offset = max(offset + 2 + leap, 0)
        batches.append(batch_of(deed, producer_id, offset))
    encoded = records.encode(batches)

    def seen(log: bytes | list[RecordBatch]) -> tuple[list[RecordBatch], Any]:
        found = []
        try:
            for batch in read_committed(log, aborted, fetch_offset=fetch_offset):
                found.append(batch)
        except RecordsError as error:
            return found, error.finding
        return found, None

    assert seen(encoded) == seen(records.decode(encoded))
