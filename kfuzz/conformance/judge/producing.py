"""Judges what a whole producer sent: the bytes that arrived at the broker, against the records that it was given."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from kfuzz import records
from kfuzz.broker_errors import AFTER_APPEND, TAKEN
from kfuzz.conformance.judge.differing import Wrong, because, records_differ
from kfuzz.conformance.protocol.lines import Answer, Handshake, Produced
from kfuzz.records.stream import ProducerState, next_sequence
from kfuzz.vectors.kinds import AT_ONCE, GROUP, LEFT_OUT, MAY_REFUSE, SENDS, TOPIC_ERRORS
from kfuzz.vectors.model import Vector
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE

Json = Mapping[str, Any]
T = TypeVar("T")

# How the referee says that a producer does not send a batch again.
GAVE_UP: Final = "gave up after an error that a producer should survive"
# A library that departs from these does so in each batch. So they count only for vectors that cite them, or no other
# fault of the library would change an outcome.
IN_EACH_BATCH: Final = frozenset({"RB-PRODUCER-1"})
# Shorter payloads may not get smaller by compression.
COMPRESSED_FROM_BYTES: Final = 1024
# No document limits the blocks of lz4. So this counts only for vectors that ask about it, by this flag.
LARGE_BLOCKS: Final = "LargeBlocks"
# In the descriptor of an lz4 frame, after its magic and its flags. Kafka's producer writes blocks of 64 KiB.
BLOCK_CODE_AT: Final = BATCH_HEADER_SIZE + 5
BLOCK_BYTES: Final = 64 << 10
# A reader may allocate so many times what a batch holds.
BLOCK_TIMES: Final = 4
# A clock of today, in milliseconds: the years 2020 to 2099.
CLOCK: Final = range(1_577_836_800_000, 4_102_444_800_000)


class _Arrival(NamedTuple):
    """The entry for one request, the batch in it, and the findings in that."""

    sent: Produced
    batch: records.RecordBatch
    findings: Sequence[records.Finding]
    # The bytes after the batch, which are no whole batch.
    left: int


def lacks_producer(handshake: Handshake, options: Json) -> str | None:
    """Why a producer cannot have these options, worded to follow its name; None if it can."""
    needed = {
        "idempotent": (options["idempotent"], "has no idempotent producer"),
        "transactions": ("transactional_id" in options, "has no transactions"),
        SENDS: (SENDS in options, "sends only once"),
        "topics": (TOPIC_ERRORS in options, "sends to one topic only"),
        "groups": (GROUP in options, "commits no offsets of groups"),
    }
    for name, (is_needed, why) in needed.items():
        if is_needed and name not in handshake.produces:
            return why
    return None if options["compression"] in handshake.codecs else f"does not support {options['compression']}"


def wrong_sending(given: Sequence[Json], vector: Vector, shows: Handshake, answer: Answer) -> Wrong | None:
    """The fault of a producer that was ``given`` these records of the vector; None if there is none."""
    options, may_refuse = vector.options, MAY_REFUSE in vector.options
    failed = (answer.sends or []).count("rejected")
    lost_topics = options.get(TOPIC_ERRORS, ())
    if any(error != "NONE" and one == "accepted" for error, one in zip(lost_topics, answer.sends or (), strict=False)):
        return Wrong("reported records as sent to a topic that it cannot write to", "loses")
    asked_for = sum(error != "NONE" for error in (*options.get("errors", ()), *lost_topics))
    if answer.outcome == "rejected" or failed > asked_for:
        is_refused = sum(bool(one.error) for one in answer.produced or ()) > asked_for
        if may_refuse and not (SENDS in options and is_refused):
            return None
        text = GAVE_UP if options.get("errors") else "refused to send valid records"
        if SENDS in options:
            text = "could not send at the same time" if AT_ONCE in options else "could not send after a failure"
            text += " of another topic" if lost_topics else ""
        return Wrong(text + because(answer.error), "refuses")
    arrivals: list[_Arrival] = []
    for number, sent in enumerate(answer.produced or ()):
        reading = records.read(sent.data, role="broker")
        if reading.fatal:
            return Wrong(f"request[{number}] has records that a broker refuses: {reading.fatal}", "refuses")
        left = len(sent.data) - reading.consumed
        if sent.error in TAKEN:
            sent = sent._replace(error=0)
        arrivals.append(_Arrival(sent, reading.batches[0], reading.findings, left))
    accepted = [one for one in arrivals if not one.sent.error]
    # Sequences of a batch that the broker has refused are free again if the producer gives it up.
    sequenced = [one for one in arrivals if not failed or not one.sent.error or one.sent.error in AFTER_APPEND]
    return next(
        (
            wrong
            for wrong in (
                _wrong_producer(sequenced, options, has_gaps=bool(failed)),
                _wrong_records(_acknowledged(given, options, answer), accepted, options, shows),
                _wrong_offsets(given, accepted, options, answer),
                _wrong_request(arrivals, options),
                _wrong_blocks(arrivals) if LARGE_BLOCKS in vector.flags else None,
                _wrong_form(arrivals, IN_EACH_BATCH - set(vector.requirements)),
            )
            if wrong
        ),
        None,
    )


def _acknowledged(given: Sequence[T], options: Json, answer: Answer) -> Sequence[T]:
    """The records, or what belongs to each, without those of sends that the producer has reported as failed."""
    counts = options.get(SENDS, ())
    if not answer.sends or len(answer.sends) != len(counts):
        return given
    said = [one for one, count in zip(answer.sends, counts, strict=True) for _ in range(count)]
    return [record for record, one in zip(given, said, strict=True) if one == "accepted"]


def _wrong_records(
    given: Sequence[Json], accepted: Sequence[_Arrival], options: Json, shows: Handshake
) -> Wrong | None:
    """Whether the broker has accepted exactly the given records, in their order."""
    arrived = _records_of(accepted)
    wanted: Sequence[Json] = given
    if "timestamp" in options.get(LEFT_OUT, ()):
        for number, record in enumerate(arrived):
            if int(record["timestamp"]) not in CLOCK:
                what = f"records[{number}].timestamp was left out, and is not the producer's clock"
                return Wrong(f"sent other contents: {what}", "loses")
        arrived, wanted = ([{**one, "timestamp": "0"} for one in ones] for ones in (arrived, wanted))
    if _is_overtaken(options) and len(arrived) == len(given):
        arrived, wanted = _by_contents(arrived, arrived), _by_contents(given, given)
    if wrong := records_differ(_numbered(wanted), _numbered(arrived), "", shows):
        return Wrong(f"sent other contents: {wrong}", "loses")
    return None


def _records_of(accepted: Sequence[_Arrival]) -> list[dict[str, Any]]:
    return [record for batch in records.to_json([one.batch for one in accepted]) for record in batch["records"]]


def _numbered(given: Sequence[Json]) -> list[Json]:
    """The records with offsets from 0 on: each batch counts its own."""
    return [{**record, "offset": str(offset)} for offset, record in enumerate(given)]


def _by_contents(given: Sequence[Json], of_each: Sequence[T]) -> list[T]:
    """The values that belong to the records, in the order of the records' contents."""
    contents = [str([record[name] for name in ("timestamp", "key", "value", "headers")]) for record in given]
    return [of_each[at] for at in sorted(range(len(given)), key=contents.__getitem__)]


def _is_overtaken(options: Json) -> bool:
    """Whether a batch may come after later ones: several requests may be in flight, also if one is sent again."""
    return bool((options.get("errors") and not _is_idempotent(options)) or AT_ONCE in options)


def _wrong_offsets(given: Sequence[Json], accepted: Sequence[_Arrival], options: Json, answer: Answer) -> Wrong | None:
    """Whether the producer reports the offsets that the broker has given; -1 or none if the broker has given none.

    Mirrors ``org.apache.kafka.clients.producer.RecordMetadata``, which does not count from -1.
    """
    if answer.offsets is None or len(answer.offsets) != len(given):
        return None
    reported, expected = _acknowledged(answer.offsets, options, answer), list[int]()
    for sent, batch, *_ in accepted:
        if (base := sent.base_offset) is None:
            return None
        expected += [base if base < 0 else base + delta for delta in range(len(batch.records))]
    if _is_overtaken(options):
        reported = _by_contents(_acknowledged(given, options, answer), reported)
        expected = _by_contents(_records_of(accepted), expected)
    for number, (offset, wanted) in enumerate(zip(reported, expected, strict=False)):
        if offset is not None and int(offset) != wanted:
            return Wrong(f"the offset reported for records[{number}] is {offset}; expected {wanted}", "loses")
    return None


def _is_idempotent(options: Json) -> bool:
    return bool(options["idempotent"] or "transactional_id" in options)


def _wrong_producer(arrivals: Sequence[_Arrival], options: Json, *, has_gaps: bool) -> Wrong | None:
    """Whether producer ids, sequences and the transactional flag are as the producer's settings say.

    ``has_gaps``: some are left out, so only the broker knows whether a sequence is the next one.
    """
    is_transactional = "transactional_id" in options
    state, seen = ProducerState(), dict[tuple[int, int, int], Any]()
    for number, (sent, batch, *_) in enumerate(arrivals):
        place = f"request[{number}]"
        if _is_idempotent(options) and batch.producer_id < 0:
            return Wrong(f"{place} has no producer id, so a broker cannot know a repeated batch", "loses")
        if batch.transactional != is_transactional:
            told = "not part of the transaction" if is_transactional else "part of a transaction that was not asked for"
            return Wrong(f"{place} is {told}", "loses")
        if batch.producer_id < 0:
            continue
        for at, record in _with_sequences(batch):
            if seen.setdefault(at, record) != record:
                return Wrong(f"{place} has another record with the sequence {at[2]} of an earlier one", "loses")
        if not sent.error:
            if (batch.producer_id, batch.producer_epoch, 0) not in seen:
                return Wrong(f"{place} begins with the sequence {batch.base_sequence}; expected 0", "loses")
            append = state.append(batch, path=place)
            if append.outcome == "rejected" and not has_gaps:
                return Wrong(f"{place} is refused by a broker with {append.error}: {append.finding}", "loses")
            if append.outcome == "duplicate":
                return Wrong(f"{place} repeats a batch that the broker has accepted", "differs")
    return None


def _with_sequences(batch: records.RecordBatch) -> Iterator[tuple[tuple[int, int, int], Any]]:
    """Each record, with its producer id, producer epoch and sequence. By these a broker identifies it."""
    for delta, record in enumerate(batch.records):
        sequence = next_sequence(batch.base_sequence, delta) if delta else batch.base_sequence
        contents = (record.timestamp, record.key, record.value, record.headers)
        yield (batch.producer_id, batch.producer_epoch, sequence), contents


def _wrong_request(arrivals: Sequence[_Arrival], options: Json) -> Wrong | None:
    """Whether the codec is the one that was asked for, and the fields of the requests are right."""
    codec, asked = options["compression"], options.get("transactional_id")
    for number, (sent, batch, *_) in enumerate(arrivals):
        place = f"request[{number}]"
        # A batch that does not get smaller may be sent as it is.
        if batch.compression not in ("none", codec):
            return Wrong(f"{place} is compressed with {batch.compression}; expected {codec}", "differs")
        if sent.acks == 0:
            return Wrong(f"{place} has acks 0, so the producer cannot know whether it was accepted", "loses")
        if sent.acks is not None and sent.transactional_id != asked:
            return Wrong(f"{place} has the transactional id {sent.transactional_id}; expected {asked}", "differs")
    plain = b"".join(sent.data for sent, batch, *_ in arrivals if batch.compression == "none")
    if codec != "none" and len(plain) > COMPRESSED_FROM_BYTES and len(zlib.compress(plain, 1)) * 2 < len(plain):
        return Wrong(f"sent records uncompressed that {codec} makes smaller", "differs")
    return None


def _wrong_blocks(arrivals: Sequence[_Arrival]) -> Wrong | None:
    """Whether the blocks of an lz4 frame are far larger than what it holds. A reader allocates one before it reads."""
    for sent, batch, *_ in arrivals:
        if batch.compression == "lz4":
            block_bytes = 1 << 8 + 2 * (sent.data[BLOCK_CODE_AT] >> 4 & 7)
            held_bytes = len(records.encode([replace(batch, compression="none")])) - BATCH_HEADER_SIZE
            if block_bytes > max(BLOCK_BYTES, BLOCK_TIMES * held_bytes):
                text = f"sent lz4 in blocks of {block_bytes} bytes, which its readers allocate for {held_bytes} bytes"
                return Wrong(text, "memory")
    return None


def _wrong_form(arrivals: Sequence[_Arrival], but_for: Set[str]) -> Wrong | None:
    """A finding that a broker accepts, but the documents do not. ``but_for``: the requirements that do not count."""
    for number, (_, _, findings, left) in enumerate(arrivals):
        if found := next((one for one in findings if one.requirement not in but_for), None):
            return Wrong(f"request[{number}] departs from the documents: {found}", "differs")
        if left:
            return Wrong(f"request[{number}] has {left} bytes after the batch", "differs")
    return None
