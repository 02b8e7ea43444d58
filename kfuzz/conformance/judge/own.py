"""kfuzz's own decoder and encoder as a testee, judged like any other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import IO, Any, Final

from kfuzz import __version__, records
from kfuzz.broker_errors import ERROR_CODES, TAKEN
from kfuzz.conformance.judge.reference import verdict
from kfuzz.conformance.protocol.lines import (
    APPEND_STREAM,
    DECODE,
    DECODE_MESSAGE,
    DECODE_PRIMITIVE,
    DECODE_STREAM,
    ENCODE,
    ENCODE_MESSAGE,
    ENCODE_PRIMITIVE,
    PRODUCE,
    PRODUCES,
    PROTOCOL,
    to_line,
)
from kfuzz.errors import EncodeError, RecordsError, UsageError
from kfuzz.kafka import RELEASES
from kfuzz.messages import primitives
from kfuzz.messages.catalogues import newest, valid_versions
from kfuzz.messages.codec import MessageReading, encode, read
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.records.stream import Append, Fetch, ProducerState, transactions_of

# Answers give the hash of longer values.
HASHED_FROM_BYTES: Final = 64 * 1024


def serve(requests: IO[bytes], answers: IO[bytes], *, profile: records.Profile = "kafka") -> None:
    """Answer each line of ``requests`` on ``answers`` until the requests end."""
    _put(answers, _handshake(profile))
    for line in requests:
        _put(answers, _answer(line, profile))


def _put(answers: IO[bytes], message: Mapping[str, Any]) -> None:
    answers.write(to_line(message))
    answers.flush()


def _handshake(profile: str) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "name": "kfuzz" if profile == "kafka" else f"kfuzz-{profile}",
        "version": __version__,
        "language": "cython",
        "operations": [*_ANSWERS],
        "roles": list(records.ROLES),
        "magic": [0, 1, 2],
        "codecs": list(records.CODECS),
        "checks_crc": True,
        "control": "shown",
        "messages": _versions(),
        "primitives": primitives.PRIMITIVES,
        "produces": PRODUCES,
    }


def _versions() -> dict[str, tuple[int, int]]:
    """The lowest and the highest version of each message in any release."""
    found: dict[str, tuple[int, int]] = {}
    for release in RELEASES:
        for name, valid in valid_versions(release).items():
            versions = (*valid, *found.get(name, ()))
            if versions:
                found[name] = min(versions), max(versions)
    return found


def _answer(line: bytes, profile: records.Profile) -> dict[str, Any]:
    try:
        request = json.loads(line)
        id, operation = request["id"], request["operation"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return {"id": "", "outcome": "fault", "error": f"BadRequest: {type(error).__name__}: {error}"}
    try:
        answer = _ANSWERS.get(operation, _no_operation)(request, profile)
    except Exception as error:
        # The library promises only findings, UsageError and EncodeError. Any other exception is a fault of kfuzz.
        answer = {"outcome": "fault", "error": f"{type(error).__name__}: {error}"}
    return {"id": id} | answer


def _decode(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    if request["role"] not in records.ROLES:
        return {"outcome": "unsupported", "error": f"no role {request['role']}"}
    topic = Topic.from_json(request.get("topic", {}))
    made = verdict(bytes.fromhex(request["hex"]), request["role"], profile, topic)
    batches = _hashed(made.batches)
    if fatal := made.fatal:
        return {"outcome": "rejected", "error": str(fatal), "finding": fatal.code, "batches": batches}
    answer = {"outcome": "accepted", "consumed": made.consumed, "batches": batches}
    return answer if made.stored is None else answer | {"hex": made.stored.hex()}


def _no_operation(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    return {"outcome": "unsupported", "error": f"no operation {request['operation']}"}


def _encode(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    return _written(lambda: records.encode(records.from_json(request["batches"])))


def _message(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    name, version = request["message"], request["version"]
    try:
        definition = newest(name, version)
    except UsageError as error:
        return {"outcome": "unsupported", "error": str(error)}
    if request["operation"] == ENCODE_MESSAGE:
        return _written(lambda: encode(definition, version, from_json(definition, version, request["body"])))
    reading = read(definition, version, bytes.fromhex(request["hex"]), profile=profile)
    return _was_read(reading, "message", lambda values: to_json(definition, version, values))


def _primitive(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    name = request["primitive"]
    if name not in primitives.PRIMITIVES:
        return {"outcome": "unsupported", "error": f"no primitive {name}"}
    if request["operation"] == ENCODE_PRIMITIVE:
        return _written(lambda: primitives.write(name, primitives.from_json_value(name, request["value"])))
    reading = primitives.read(name, bytes.fromhex(request["hex"]), profile=profile)
    return _was_read(reading, "value", lambda values: primitives.to_json_value(name, values["value"]))


def _produce(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    """The requests of a producer that repeats a batch after each error: all records of a send in one batch."""
    given = [{"timestamp": str(DEFAULT_TOPIC.now), "key": None, **record} for record in request["records"]]
    errors = iter([ERROR_CODES[name] for name in request.get("errors", ())])
    transactional, sequence, left = "transactional_id" in request, 0, iter(given)
    named = {"transactional": transactional, "producer_id": "1", "producer_epoch": 0}
    produced: list[dict[str, Any]] = []
    counts = request.get("sends", [len(given)])
    topic_errors = request.get("topic_errors", ["NONE"] * len(counts))
    for count, topic_error in zip(counts, topic_errors, strict=True):
        numbered = [{**one, "offset": str(n)} for n, one in enumerate(islice(left, count))]
        if topic_error != "NONE":
            continue
        batch = {"base_offset": "0", "compression": request["compression"], "records": numbered}
        if transactional or request["idempotent"]:
            batch |= named | {"base_sequence": sequence}
        answer = _encode({"batches": [batch]}, profile)
        if answer["outcome"] != "accepted":
            return answer
        sequence += count
        sent = {"hex": answer["hex"], "transactional_id": request.get("transactional_id")}
        error = None
        while error not in TAKEN:
            error = next(errors, 0)
            produced.append({**sent, "error": error})
    sends = ["accepted" if error == "NONE" else "rejected" for error in topic_errors]
    return {"outcome": "accepted", "produced": produced, "sends": sends}


def _written(write: Callable[[], bytes]) -> dict[str, Any]:
    try:
        return {"outcome": "accepted", "hex": write().hex()}
    except (EncodeError, UsageError) as error:
        return {"outcome": "rejected", "error": str(error)}


def _was_read(reading: MessageReading, name: str, form: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The answer; its field ``name`` has the contents in JSON form."""
    if fatal := reading.fatal:
        return {"outcome": "rejected", "error": str(fatal), "finding": fatal.code}
    assert reading.message is not None
    return {"outcome": "accepted", "consumed": reading.consumed, name: form(reading.message)}


def answer_stream(request: Mapping[str, Any], profile: records.Profile = "kafka") -> dict[str, Any]:
    """The answer, without its id, to a request about a stream."""
    return _ANSWERS[request["operation"]](request, profile)


def _decode_stream(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    role, isolation = request["role"], request["isolation"]
    if role not in ("consumer", "log"):
        return {"outcome": "unsupported", "error": f"the role {role} cannot read a stream"}
    reading = records.read(bytes.fromhex("".join(request["steps"])), profile=profile)
    aborted = [(int(item["producer_id"]), int(item["first_offset"])) for item in request.get("aborted", ())]
    batches, told = reading.batches, {}
    handed_out: list[records.Record] = []
    try:
        if role == "log":
            transactions = transactions_of(batches)
            aborted, stable = list(transactions.aborted), transactions.last_stable_offset
            told = {"last_stable_offset": str(stable)}
            if isolation == "read_committed":
                batches = [batch for batch in batches if batch.base_offset < stable]
        fetch = Fetch(isolation=isolation, aborted=aborted, fetch_offset=int(request.get("fetch_offset", "0")))
        for batch in batches:
            handed_out += fetch.records_of(batch)
        if reading.fatal:
            raise RecordsError(reading.fatal)
    except RecordsError as error:
        answer = {"outcome": "rejected", "error": str(error), "finding": error.finding.code}
    else:
        answer = {"outcome": "accepted", "next_offset": str(fetch.next_offset)} | told
    return answer | {"records": _hashed(records.to_json([records.RecordBatch(0, 0, handed_out)]))[0]["records"]}


def _append_stream(request: Mapping[str, Any], profile: records.Profile) -> dict[str, Any]:
    if request["role"] != "broker":
        return {"outcome": "unsupported", "error": f"the role {request['role']} cannot append"}
    state = ProducerState(transaction_version=request.get("transaction_version", 0), profile=profile)
    steps = []
    for index, step in enumerate(request["steps"]):
        (batch,) = records.decode(bytes.fromhex(step), profile=profile)
        append = state.append(batch, path=f"step[{index}]")
        steps.append(_step(append) | {"last_stable_offset": str(state.last_stable_offset)})
    return {"outcome": "accepted", "steps": steps}


def _step(append: Append) -> dict[str, Any]:
    step: dict[str, Any] = {"outcome": append.outcome}
    step |= {"base_offset": str(append.base_offset)} if append.base_offset is not None else {}
    step |= {"error": append.error} if append.error else {}
    return step | ({"finding": append.finding.code} if append.finding else {})


def _hashed(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace long keys and values with their hash, in place."""
    for batch in batches:
        for record in batch.get("records", ()):
            for name in ("key", "value"):
                octets = record[name]
                if octets is not None and len(octets) > 2 * HASHED_FROM_BYTES:
                    data = bytes.fromhex(octets)
                    record[name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    return batches


_ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any], records.Profile], dict[str, Any]]]] = {
    DECODE: _decode,
    ENCODE: _encode,
    DECODE_STREAM: _decode_stream,
    APPEND_STREAM: _append_stream,
    DECODE_MESSAGE: _message,
    ENCODE_MESSAGE: _message,
    DECODE_PRIMITIVE: _primitive,
    ENCODE_PRIMITIVE: _primitive,
    PRODUCE: _produce,
}
