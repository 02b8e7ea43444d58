"""Judges a testee's answer to a vector. Pure functions that use no process and no file.

``declared_unsupported`` needs only the handshake and runs before a question is asked; ``judge`` needs the answer.
Only fields that the testee reports are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from kfuzz import records
from kfuzz.conformance.judge.conversing import lacks_ability, wrong_conversation
from kfuzz.conformance.judge.differing import Wrong, amount, batches_differ, because, records_differ, shown
from kfuzz.conformance.judge.harm import HARM_OF
from kfuzz.conformance.judge.producing import lacks_producer, wrong_sending
from kfuzz.conformance.protocol.lines import (
    APPEND_STREAM,
    CONVERSE,
    DECODE,
    DECODE_MESSAGE,
    DECODE_PRIMITIVE,
    DECODE_STREAM,
    ENCODE,
    ENCODE_MESSAGE,
    ENCODE_PRIMITIVE,
    MORE_OUTCOMES,
    PRODUCE,
    READER,
    SNAPPY_FRAMINGS,
    Answer,
    Handshake,
)
from kfuzz.kafka import CODECS, ROLES
from kfuzz.records.codecs.snappy import XERIAL_MAGIC
from kfuzz.text import foreign_text
from kfuzz.vectors.confirm import first_difference
from kfuzz.vectors.kinds import CLIENT, CONVERSATION, FRAMES, KINDS, LEFT_OUT, MAY_REFUSE, PRODUCE_KIND
from kfuzz.vectors.model import Vector
from kfuzz.wire.io.layout import CODEC_AT, CODEC_MASK, MAGIC_AT
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS
from kfuzz.wire.records.framing import frames

# A vector that was left out, because the testee is asked only about chosen ones.
NOT_ASKED: Final = "not-asked"
# Best first. ``withheld`` is how a report shows an embargoed outcome; ``judge`` never returns it.
OUTCOMES: Final = (
    "pass",
    "unsupported",
    NOT_ASKED,
    "fail",
    "fault",
    "panic",
    "stall",
    "crash",
    "timeout",
    "memory",
    "protocol-error",
    "withheld",
)
# Encoding has no role. Matrices and files of expected outcomes show this word in its place.
ENCODE_ROLE: Final = "encode"
# The same for what a whole producer sends.
PRODUCE_ROLE: Final = "produce"
_OF_WHOLE_CLIENTS: Final = {PRODUCE_ROLE: PRODUCE, CLIENT: CONVERSE}
_OF_KINDS: Final = {
    "message": (DECODE_MESSAGE, ENCODE_MESSAGE),
    "primitive": (DECODE_PRIMITIVE, ENCODE_PRIMITIVE),
}
# The field of an expectation that holds the contents of a message, and of a primitive.
CONTENTS: Final = {kind.name: str(kind.contents) for kind in KINDS.values() if READER in kind.roles}
ALL_ROLES: Final = (*ROLES, READER, CLIENT, ENCODE_ROLE, PRODUCE_ROLE)

CRC_FINDING: Final = "crc-mismatch"
# Where a payload begins: after the header of a batch, or after a wrapper's fields with a null key.
PAYLOAD_AT: Final = {0: 26, 1: 34, 2: 61}
# A longer answer is kept and shown without its contents.
ANSWER_CHARACTERS_MAX: Final = 4000
ANSWER_FIELD_CHARACTERS_MAX: Final = 400

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One question: a vector in a role, or for the encoder or a producer."""

    vector: Vector
    role: str

    @property
    def key(self) -> tuple[str, str]:
        """The vector's id and the role, as at the start of a line of expected outcomes."""
        return self.vector.id, self.role

    @property
    def operation(self) -> str:
        """The protocol's name for the operation that is asked for."""
        if self.role in _OF_WHOLE_CLIENTS:
            return _OF_WHOLE_CLIENTS[self.role]
        if self.vector.kind == "stream":
            return APPEND_STREAM if self.role == "broker" else DECODE_STREAM
        decode, encode = _OF_KINDS.get(self.vector.kind, (DECODE, ENCODE))
        return encode if self.role == ENCODE_ROLE else decode

    @property
    def expectation(self) -> Json:
        """The vector's expectation for this role; for the encoder, the contents to encode; for a stream, all steps.

        For a producer, the contents to send; it may refuse them if the verdict is ``acceptable``.
        """
        if self.role == PRODUCE_ROLE:
            verdict = "acceptable" if self.vector.options.get(MAY_REFUSE) else "valid"
            return {"verdict": verdict, "batches": self.vector.expect["broker"]["batches"]}
        if self.vector.kind == "stream":
            steps = [step["expect"][self.role] for step in self.vector.steps]
            verdicts = {step["verdict"] for step in steps}
            # A stream is invalid if one of its steps must be refused.
            verdict = next(verdict for verdict in ("invalid", "acceptable", "valid") if verdict in verdicts)
            return {"verdict": verdict, "steps": steps}
        role = _told_role(self.vector) if self.role == ENCODE_ROLE else self.role
        return self.vector.expect[role or self.role]


@dataclass(frozen=True, slots=True)
class Cell:
    """One judged case. ``text`` says why it is not a pass.

    ``answer`` is the testee's answer, :func:`shortened`, if it gave one. After a crash it has only ``at``, if a stack
    names the line. ``lacks_headers``: what :func:`lacks_headers` said of the whole answer.

    ``harm`` is the name of a class in ``kfuzz.conformance.judge.harm``, or empty if nothing deviates.
    """

    outcome: str
    text: str = ""
    harm: str = ""
    # Unsupported by the handshake. An *answer* of unsupported must be listed as expected; otherwise it could hide a
    # regression.
    declared: bool = False
    answer: Json = field(default_factory=dict)
    lacks_headers: bool = False


# --- the questions --------------------------------------------------------------------------------------------------


def cases_of(vectors: Sequence[Vector], roles: Sequence[str] = ALL_ROLES) -> tuple[Case, ...]:
    """All questions about the vectors, in the order of vectors and then roles. Encoding comes after decoding."""
    cases = []
    for vector in vectors:
        expect = vector.steps[0]["expect"] if vector.kind == "stream" else vector.expect
        cases += [Case(vector, role) for role in (*ROLES, READER, CLIENT) if role in roles and role in expect]
        if ENCODE_ROLE in roles and _can_be_encoded(vector):
            cases.append(Case(vector, ENCODE_ROLE))
        if PRODUCE_ROLE in roles and vector.kind == PRODUCE_KIND:
            cases.append(Case(vector, PRODUCE_ROLE))
    return tuple(cases)


def _can_be_encoded(vector: Vector) -> bool:
    """Whether an encoder can be given the contents: the vector must be valid and state them in full, without hashes."""
    role = _told_role(vector)
    if role is None or vector.kind == CONVERSATION:
        return False
    return vector.kind in CONTENTS or not _has_hashes(vector.expect[role]["batches"])


def _told_role(vector: Vector) -> str | None:
    """The role whose contents an encoder is given: the first role in which the vector is valid and has contents.

    A message or primitive must be canonical: only then is its encoding known.
    """
    if vector.kind in CONTENTS:
        return READER if vector.canonical else None
    for role in ROLES:
        expectation = vector.expect.get(role, {})
        if expectation.get("verdict") == "valid" and expectation.get("batches") and not expectation.get("partial_tail"):
            return role
    return None


def _has_hashes(batches: Sequence[Json]) -> bool:
    """Whether some bytes are given by their hash. The loop is plain for speed: a suite has very many records."""
    for batch in batches:
        for record in batch.get("records", ()):
            if type(record["key"]) is dict or type(record["value"]) is dict:
                return True
            for _, value in record["headers"]:
                if type(value) is dict:
                    return True
    return False


def request(case: Case) -> dict[str, Any]:
    """The question as a request of the testee protocol."""
    return {"id": case.vector.id, "operation": case.operation, **_asked(case)}


def _asked(case: Case) -> dict[str, Any]:
    vector, options = case.vector, case.vector.options
    if case.operation == ENCODE:
        return {"batches": case.expectation["batches"]}
    if vector.kind in CONTENTS:
        name = "body" if vector.kind == "message" else "value"
        return {**options, **({"hex": vector.data.hex()} if case.role == READER else {name: contents_of(case)})}
    if case.operation == CONVERSE:
        return {name: value for name, value in options.items() if name != FRAMES}
    if case.operation == PRODUCE:
        left_out = options.get(LEFT_OUT, ())
        records = [{name: one[name] for name in one if name not in left_out} for one in _given(case)]
        return {"records": records} | {name: options[name] for name in options if name not in (MAY_REFUSE, LEFT_OUT)}
    if vector.kind == "stream":
        return {"role": case.role, **options, "steps": [step["hex"] for step in vector.steps]}
    # Only the role broker uses a topic.
    topic = {"topic": options["topic"]} if case.role == "broker" and "topic" in options else {}
    return {"role": case.role, **topic, "hex": vector.data.hex()}


def _given(case: Case) -> list[dict[str, Any]]:
    """The records that a producer is given: without offsets, because those are the broker's."""
    given = [record for batch in case.expectation["batches"] for record in batch["records"]]
    return [{name: value for name, value in record.items() if name != "offset"} for record in given]


# --- unsupported according to the handshake -------------------------------------------------------------------------


def declared_unsupported(case: Case, handshake: Handshake) -> str | None:
    """Why the testee is not asked, worded to follow its name; None if it must answer."""
    if case.operation not in handshake.operations:
        return f"does not offer {case.operation}"
    if case.vector.kind == "message":
        return _lacks_message(case, handshake)
    if case.vector.kind == "primitive":
        primitive = case.vector.options["primitive"]
        return None if primitive in handshake.primitives else f"has no primitive {primitive}"
    if case.operation == PRODUCE:
        return lacks_producer(handshake, case.vector.options)
    if case.operation == CONVERSE:
        return lacks_ability(case.vector, handshake)
    if case.operation != ENCODE and case.role not in handshake.roles:
        return f"does not offer the role {case.role}"
    magics, codecs = features(case)
    if missing := sorted(magics - handshake.magic):
        return f"does not support magic {missing[0]}"
    if missing_codecs := sorted(codecs - handshake.codecs):
        return f"does not support {missing_codecs[0]}"
    if case.operation != DECODE:
        return None
    if not handshake.checks_crc and _only_fault_is_crc(case.expectation):
        return "does not check CRCs"
    if handshake.tails == "refused" and case.expectation.get("partial_tail"):
        return "refuses an incomplete batch at the end"
    if handshake.snappy != frozenset(SNAPPY_FRAMINGS) and (lacking := snappy_framings(case) - handshake.snappy):
        return f"does not read {min(lacking)} snappy"
    return None


def contents_of(case: Case) -> Any:
    """The contents of a message or a primitive."""
    return case.expectation[CONTENTS[case.vector.kind]]


def _lacks_message(case: Case, handshake: Handshake) -> str | None:
    name, version = case.vector.options["message"], case.vector.options["version"]
    if name not in handshake.messages:
        return f"has no {name}"
    if handshake.side == "client":
        if case.operation == DECODE_MESSAGE and name.endswith(("Request", "RequestHeader")):
            return "a client reads no requests"
        if case.operation == ENCODE_MESSAGE and name.endswith(("Response", "ResponseHeader")):
            return "a client writes no responses"
    if handshake.unknown_tags == "skipped" and case.operation == ENCODE_MESSAGE:
        contents = contents_of(case)
        if contents != _without_unknown_tags(contents):
            return "does not keep unknown tagged fields"
    low, high = handshake.messages[name]
    return None if low <= version <= high else f"has {name} in the versions {low} to {high}"


def _only_fault_is_crc(expectation: Json) -> bool:
    # A vector tests one feature, so the finding that refuses it is its only fault.
    return expectation["verdict"] == "invalid" and expectation.get("finding") == CRC_FINDING


def features(case: Case) -> tuple[frozenset[int], frozenset[str]]:
    """The magics and codecs that a reader needs, from the expected contents and from the headers of the bytes."""
    magics, codecs = set(), {"none"}
    for batch in case.expectation.get("batches", ()):
        magics.add(batch["magic"])
        codecs.add(batch["compression"])
    if case.operation != ENCODE:
        for _, magic, codec in _frames(case.vector.data):
            magics.add(magic)
            codecs.add(codec)
    return frozenset(magics), frozenset(codecs)


def snappy_framings(case: Case) -> frozenset[str]:
    """How the snappy payloads of a vector are framed, by their first bytes."""
    data = case.vector.data
    starts = [at + PAYLOAD_AT[magic] for at, magic, codec in _frames(data) if codec == "snappy"]
    return frozenset("xerial" if data.startswith(XERIAL_MAGIC, start) else "raw" for start in starts)


def _frames(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Place, magic and codec of each entry, also of a cut or refused one after the last; unknown magics are skipped.

    A reserved codec counts as ``none``.
    """
    for at in (0, *(at + size for at, size, _ in frames(data))):
        magic = data[at + MAGIC_AT] if at + MAGIC_AT < len(data) else -1
        if magic in CODEC_AT and at + CODEC_AT[magic] < len(data):
            codec = data[at + CODEC_AT[magic]] & CODEC_MASK
            yield at, magic, CODECS[codec] if codec < len(CODECS) else "none"


# --- the verdict on an answer ---------------------------------------------------------------------------------------


# The outcome for answers that are wrong for every vector.
_ALWAYS_WRONG: Final = {"fault": "fault", "panic": "panic", "stalled": "stall"}


def judge(case: Case, handshake: Handshake, answer: Answer) -> Cell:
    """Judge the answer: pass, fail, unsupported, fault, panic or stall."""
    if answer.outcome in MORE_OUTCOMES and answer.outcome not in handshake.outcomes:
        why = f"answered {answer.outcome}, which its handshake does not declare in outcomes"
        return Cell("protocol-error", why, HARM_OF["protocol-error"])
    if answer.outcome == "unsupported":
        return Cell("unsupported", answer.error or "answered unsupported", answer=shortened(answer.raw))
    if answer.outcome in _ALWAYS_WRONG:
        outcome = _ALWAYS_WRONG[answer.outcome]
        text = answer.error or f"answered {answer.outcome}"
        return Cell(outcome, text, HARM_OF[outcome], answer=shortened(answer.raw))
    fault_of = _wrong_silence if answer.outcome == "nothing" else _FAULT_OF[case.operation]
    wrong = fault_of(case, handshake, answer)
    if wrong is None:
        return Cell("pass")
    # Where a vector is only recommended, either verdict is allowed.
    either = case.vector.level == "recommended" and wrong.harm in ("accepts", "refuses")
    return Cell(
        wrong.outcome,
        foreign_text(wrong.text),
        "differs" if either else wrong.harm,
        answer=shortened(answer.raw),
        lacks_headers=lacks_headers(case.vector, answer.raw),
    )


def shortened(answer: Json) -> Json:
    """The answer as it is kept: long contents are left out."""
    if len(json.dumps(answer)) <= ANSWER_CHARACTERS_MAX:
        return answer
    kept = {name: value for name, value in answer.items() if len(json.dumps(value)) <= ANSWER_FIELD_CHARACTERS_MAX}
    return kept | {"left_out": sorted(answer.keys() - kept.keys())}


def lacks_headers(vector: Vector, answer: Json) -> bool:
    """Whether headers of the vector are damaged, and the answer has its records without any headers."""
    given = [record for batch in answer.get("batches", ()) for record in batch.get("records", ())]
    given += answer.get("records", ())
    damaged = any(place.get("hostile") and ".header" in place["field"] for place in vector.layout)
    return damaged and bool(given) and not any(record["headers"] for record in given)


def _loses(text: str | None) -> Wrong | None:
    return Wrong(text, "loses") if text else None


def _wrong_silence(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    """The fault of an answer that leaves out records without an error. Only good data can be lost."""
    if case.expectation["verdict"] == "invalid":
        return Wrong(f"skipped bytes that must be refused ({case.expectation.get('finding', 'invalid')})", "accepts")
    wanted = sum(len(batch.get("records", ())) for batch in case.expectation.get("batches", ()))
    given = answer.records
    if given is None:
        given = [record for batch in answer.batches or () for record in batch.get("records", ())]
    if wanted <= len(given):
        return None
    return Wrong(f"handed out {len(given)} of {wanted} records, without an error" + because(answer.error), "loses")


def _wrong_decoding(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    if answer.outcome == "accepted" and case.expectation["verdict"] != "invalid":
        return _wrong_contents(case.expectation, handshake, answer) or _wrong_report(case, handshake, answer)
    return _wrong_outcome(case.expectation, handshake, answer)


def _wrong_outcome(expectation: Json, handshake: Handshake, answer: Answer) -> Wrong | None:
    """The fault of a rejection, or of an acceptance of bytes that must be refused."""
    if answer.outcome == "accepted":
        return Wrong(f"accepted bytes that must be refused ({expectation.get('finding', 'invalid')})", "accepts")
    if expectation["verdict"] == "valid":
        return Wrong("refused bytes that must be accepted" + because(answer.error), "refuses")
    return _wrong_rejection(expectation, handshake, answer)


def _wrong_rejection(expectation: Json, handshake: Handshake, answer: Answer) -> Wrong | None:
    if wrong := _wrong_finding(expectation, answer):
        return wrong
    if expectation["verdict"] == "invalid" and "batches" in expectation:
        # Here `batches` are the good batches before the bad one; a testee may leave them out.
        return _loses(wrong_reading(expectation["batches"], handshake, answer))
    return None


def _wrong_contents(expectation: Json, handshake: Handshake, answer: Answer) -> Wrong | None:
    if "batches" not in expectation:
        return None
    wrong = wrong_reading(expectation["batches"], handshake, answer)
    if wrong is None:
        wanted = expectation.get("consumed")
        if wanted is not None and answer.consumed is not None and answer.consumed != wanted:
            return Wrong(f"consumed {answer.consumed} bytes; the last complete batch ends at {wanted}", "differs")
        return None
    others = expectation.get("alternatives", ())
    return None if any(wrong_reading(other, handshake, answer) is None for other in others) else _loses(wrong)


def wrong_reading(expected: Sequence[Json], handshake: Handshake, answer: Answer) -> str | None:
    """None if what the testee reports agrees with ``expected``; otherwise the first difference."""
    hidden = handshake.control == "hidden"
    shown = [batch for batch in expected if not (hidden and batch["control"])]
    if answer.records is not None:
        flat = [record for batch in shown for record in batch.get("records", ())]
        return records_differ(flat, answer.records, "", handshake)
    if answer.batches is None:
        return None
    wrong = batches_differ(shown, answer.batches, handshake)
    if wrong and hidden:
        # A reader that hides the records of a control batch may still show the batch.
        emptied = [{**batch, "records": []} if batch["control"] else batch for batch in expected]
        return batches_differ(emptied, answer.batches, handshake) and wrong
    return wrong


def _wrong_encoding(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    if answer.outcome == "rejected":
        return Wrong("refused to encode valid contents" + because(answer.error), "refuses")
    assert answer.data is not None
    if case.vector.canonical and answer.data == case.vector.data:
        # Other tests check once per vector that its canonical bytes hold the contents.
        return None
    expected = case.expectation["batches"]
    reading = records.read(answer.data)
    if reading.fatal:
        return Wrong(f"encoded bytes that cannot be read: {reading.fatal}", "loses")
    if reading.partial_tail or reading.consumed != len(answer.data):
        whole = f"encoded {len(answer.data)} bytes, but only {reading.consumed} of them are whole batches"
        return Wrong(whole, "loses")
    if wrong := batches_differ(expected, records.to_json(reading.batches)):
        return Wrong(f"encoded other contents: {wrong}", "loses")
    # Compressed bytes differ between versions of a library, so only their contents are compared.
    exact = case.vector.canonical and all(batch["compression"] == "none" for batch in expected)
    if exact and answer.data != case.vector.data:
        where = _first_odd_byte(answer.data, case.vector.data)
        return Wrong(f"the contents are right, but the vector is canonical and the bytes {where}", "differs")
    return None


def _first_odd_byte(got: bytes, expected: bytes) -> str:
    at = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), None)
    return f"differ at byte {at}" if at is not None else f"are {len(got)}, not {len(expected)}"


# --- messages and primitives ------------------------------------------------------------------------------------------


def _wrong_message(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    expectation = case.expectation
    if answer.outcome == "rejected" or expectation["verdict"] == "invalid":
        return _wrong_outcome(expectation, handshake, answer)
    name = CONTENTS[case.vector.kind]
    read, expected = answer.raw[name], expectation[name]
    for place in handshake.hidden.get(case.vector.options.get("message", ""), ()):
        expected = _without(expected, read, place.split("."))
    if handshake.unknown_tags == "skipped":
        read, expected = _without_unknown_tags(read), _without_unknown_tags(expected)
    if wrong := first_difference(read, expected, name):
        return Wrong(wrong, "loses")
    if answer.consumed is not None and answer.consumed != expectation["consumed"]:
        return Wrong(f"consumed {answer.consumed} bytes; it ends at {expectation['consumed']}", "differs")
    return None


def _without(expected: Any, read: Any, steps: list[str]) -> Any:
    """The expected contents without the fields at a place, unless the answer has them: a library may show some."""
    if isinstance(expected, list) and isinstance(read, list):
        return [_without(*pair, steps) for pair in zip_longest(expected, read)][: len(expected)]
    if not (isinstance(expected, Mapping) and isinstance(read, Mapping)) or steps[0] not in expected:
        return expected
    name, *rest = steps
    if rest:
        return {**expected, name: _without(expected[name], read.get(name), rest)}
    return expected if name in read else {other: value for other, value in expected.items() if other != name}


def _without_unknown_tags(contents: Any) -> Any:
    if isinstance(contents, Mapping):
        return {name: _without_unknown_tags(value) for name, value in contents.items() if name != UNKNOWN_TAGGED_FIELDS}
    return [_without_unknown_tags(one) for one in contents] if isinstance(contents, list) else contents


def _wrong_message_bytes(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    if answer.outcome == "rejected":
        return Wrong("refused to encode valid contents" + because(answer.error), "refuses")
    assert answer.data is not None
    if answer.data == case.vector.data:
        return None
    return Wrong("the bytes " + _first_odd_byte(answer.data, case.vector.data), "loses")


# --- streams --------------------------------------------------------------------------------------------------------


def _wrong_handing_out(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    """Compares the records that were handed out with those of all steps before the refused one."""
    steps, verdict = case.expectation["steps"], case.expectation["verdict"]
    refused = next((index for index, step in enumerate(steps) if step["verdict"] != "valid"), len(steps))
    if answer.outcome == "rejected":
        if verdict == "valid":
            return Wrong("refused bytes that must be accepted" + because(answer.error), "refuses")
        if finding := _wrong_finding(steps[refused], answer):
            return finding
        if answer.records is None or case.role == "log":
            # A log's markers are read first, so the records before the refused step may not have been handed out.
            return None
        wanted = [record for step in steps[:refused] for record in step["records"]]
        return _loses(records_differ(wanted, answer.records, ""))
    if verdict == "invalid":
        return Wrong(f"accepted bytes that must be refused ({steps[refused]['finding']})", "accepts")
    wanted = [record for step in steps for record in step["records"]]
    if wrong := records_differ(wanted, answer.records or (), ""):
        return Wrong(wrong, "loses")
    if answer.next_offset is not None and answer.next_offset != steps[-1]["next_offset"]:
        text = f"the next fetch begins at {answer.next_offset}; expected {steps[-1]['next_offset']}"
        return Wrong(text, "differs")
    return _wrong_report(case, handshake, answer)


def _wrong_report(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    """The wrong type of a timestamp, or the wrong offset at the log's end, that a consumer reports for valid bytes."""
    if case.role != "consumer" or case.expectation["verdict"] != "valid" or answer.records is None:
        return None
    shown = [
        one for one in case.expectation.get("batches", ()) if not (one.get("control") and handshake.control == "hidden")
    ]
    types = [batch.get("timestamp_type") for batch in shown for _ in batch.get("records", ())]
    for index, (record, wanted) in enumerate(zip(answer.records, types, strict=False)):
        if wanted and (have := record.get("timestamp_type", wanted)) != wanted:
            return Wrong(f"records[{index}].timestamp_type is {have}; expected {wanted}", "loses")
    ends = case.expectation.get("steps") or case.expectation["batches"]
    if not all("next_offset" in one for one in ends):
        return None
    start = int(case.vector.options.get("fetch_offset", "0"))
    end = max((int(one["next_offset"]) for one in ends), default=start)
    # Only what no user sees may follow the last record. In odd logs, offsets go back or are beyond their batch.
    least = max((int(record["offset"]) + 1 for record in answer.records), default=start)
    if answer.position is not None and not min(least, end) <= int(answer.position) <= max(least, end):
        where = f"{least} to {end}" if least < end else least
        return Wrong(f"the position is {answer.position}; expected {where}", "loses")
    for name, value in (("high watermark", answer.high_watermark), ("last stable offset", answer.last_stable_offset)):
        if value is not None and int(value) != end:
            return Wrong(f"the {name} is {value}; expected {end}", "loses")
    return None


def _wrong_finding(expectation: Json, answer: Answer) -> Wrong | None:
    wanted = expectation.get("finding")
    if wanted and answer.finding and answer.finding != wanted:
        return Wrong(f"refused for {answer.finding}; the fault is {wanted}", "differs")
    return None


def _wrong_appends(case: Case, handshake: Handshake, answer: Answer) -> Wrong | None:
    """Compares each step, up to the first acceptable step that was decided otherwise: after it the two logs differ."""
    if answer.outcome == "rejected":
        return Wrong("refused the stream; each step must be answered" + because(answer.error), "refuses")
    steps, got = case.expectation["steps"], answer.steps or []
    for index, (want, have) in enumerate(zip(steps, got, strict=False)):
        refusals = [step["outcome"] == "rejected" for step in (want, have)]
        if want["verdict"] == "acceptable" and refusals[0] != refusals[1]:
            return None
        harm = "differs"
        if refusals[0] != refusals[1]:
            harm = "accepts" if refusals[0] else "refuses"
        for name, value in have.items():
            if name in want and value != want[name]:
                return Wrong(f"step[{index}].{name} is {shown(value)}; expected {shown(want[name])}", harm)
    return None if len(steps) == len(got) else Wrong(f"answered {amount(got, steps, 'steps')}", "loses")


# The judge of an answer, by the operation.
_FAULT_OF: Final[Mapping[str, Callable[[Case, Handshake, Answer], Wrong | None]]] = {
    DECODE: _wrong_decoding,
    ENCODE: _wrong_encoding,
    DECODE_STREAM: _wrong_handing_out,
    APPEND_STREAM: _wrong_appends,
    DECODE_MESSAGE: _wrong_message,
    ENCODE_MESSAGE: _wrong_message_bytes,
    DECODE_PRIMITIVE: _wrong_message,
    ENCODE_PRIMITIVE: _wrong_message_bytes,
    PRODUCE: lambda case, shows, answer: wrong_sending(_given(case), case.vector, shows, answer),
    CONVERSE: lambda case, shows, answer: wrong_conversation(case.vector, shows, answer),
}
