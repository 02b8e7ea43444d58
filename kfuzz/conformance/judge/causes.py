"""Groups deviations by their cause, so that a person reads each fault of an implementation once.

One model serves vectors, differentials and campaigns: each turns what it found into :class:`Deviation` objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.judge.compare import ENCODE_ROLE, PAYLOAD_AT, Case, Cell, lacks_headers
from kfuzz.conformance.judge.harm import ACCEPTS, DIFFERS, HANGS, KILLS, LOSES, MEMORY, PANICS, RANK, REFUSES, worst
from kfuzz.conformance.judge.producing import GAVE_UP
from kfuzz.kafka import CODECS
from kfuzz.text import printable
from kfuzz.units import counted
from kfuzz.vectors.model import Vector
from kfuzz.wire.io.layout import CODEC_AT, CODEC_MASK, MAGIC_AT
from kfuzz.wire.records.framing import frames

TEXT_CHARACTERS_MAX: Final = 160
# All of these are linear, also for a long text of any letters: tests/tidy/test_patterns.py.
# The parts of an error that differ from input to input: quoted texts, bytes in hex, and numbers. A quote that nothing
# closes takes all that follows, so that no letter is looked at twice.
_SINGLE: Final = r"b?'(?:[^'\\]++|\\.)*+(?P<single>')?"
_DOUBLE: Final = r"\"(?:[^\"\\]++|\\.)*+(?P<double>\")?"
_QUOTED = re.compile(f"{_SINGLE}|{_DOUBLE}")
_QUOTED_SINGLE = re.compile(_SINGLE)
_QUOTED_DOUBLE = re.compile(_DOUBLE)
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"[-+]?\b\d[\d_]*(?:\.\d+)?\b")
# Which field is null instead of empty does not matter: one conversion makes both from all fields.
_NULLITY = re.compile(r"(?<!\S)\S++ is (null|empty); expected (empty|null)")
# The words of a difference of contents: a place, these, a value, these, and a value.
_IS: Final = " is "
_EXPECTED: Final = "; expected "
_INDEX = re.compile(r"\[\d+\]")
# Every struct's unknown tagged fields go through one reader. A map loses both their order and repeated tags.
_UNKNOWN_TAGS = re.compile(r"\A\S+?\._unknownTaggedFields(?: has |\[).")
# Records that are missing without an error. A consumer leaves them out after the formats' readers have read them.
_MISSING_RECORDS = re.compile(
    r"(?:\S++ has |read )?too few records\b.*|handed out \d+ of \d+ records, without an error.*"
)
_NO_HEADERS = re.compile(r" has too few headers: 0;")
# How the referee says that it takes too much CPU time, and the kit for clients of `kfuzz serve`.
_COMPUTES = re.compile(r"took more than its \d+ ms of CPU time|computes without an end")
# How runtimes say that an allocation failed, before they end the process.
_ALLOCATION = re.compile(r"out of memory|memory allocation|MiB of memory")
# Exceptions for an array that is too large, or that has a negative size.
_NO_MEMORY = re.compile(r"\A[\w.]*(?:OutOfMemory|NegativeArraySize|Memory)(?:Error|Exception)\b")
# The type of an exception, as the kits print it before its text.
_EXCEPTION = re.compile(r"\A[\w.]*[a-z](?:Error|Exception)\b")
# How the referee says that an encoder or a producer wrote other contents.
_WRITTEN = re.compile(r"(?:encoded|sent) .*")

# The values of ``Deviation.holds``.
NO_RECORDS: Final = "no records"
EMPTY_WRAPPER: Final = "an empty wrapper"
WRAPPER: Final = "a wrapper"
# Outcomes that make a decoder stop, besides ``NO_RECORDS``.
DAMAGED: Final = "damaged"
DAMAGED_WITHOUT_RECORDS: Final = "damaged, no records"
# A batch that has fewer records than it claims. A reader that takes the end of the bytes for the end of the records
# skips the others, or stops: that depends on the last offset alone.
TOO_FEW_RECORDS: Final = "record-count-too-high"
SKIPPED: Final = "skipped"

RECORD_LENGTH_CHECK: Final = "a record's length against what it holds"
WRAPPER_CHECK: Final = "a wrapper's content"
# Findings that one check of a reader decides. A reader without this check accepts all of them.
_ONE_CHECK: Final = {
    finding: check
    for check, findings in {
        RECORD_LENGTH_CHECK: (
            "record-length-mismatch",
            "record-length-exceeds-payload",
            "record-length-negative",
            "record-truncated",
            "length-exceeds-record",
            "header-count-exceeds-record",
            "message-truncated",
        ),
        "what follows the last record": ("record-count-too-low", "decompressed-size-exceeded"),
        "a count against the rest of the message": ("count-exceeds-message", "message-cut"),
        WRAPPER_CHECK: ("wrapper-empty", "wrapper-value-null"),
    }.items()
    for finding in findings
}
# A reader that takes an error inside a wrapper for the wrapper's end accepts all of these in wrappers, and only there.
INNER_CHECK: Final = "where a wrapper's messages end"
DECOMPRESSION_FAILED: Final = "decompression-failed"
_INSIDE: Final = {"length-exceeds-record", "message-truncated", "batch-length-below-minimum", DECOMPRESSION_FAILED}
# Findings and losses of readers in a wrapper whose messages have an unknown magic. Kafka does not check that magic.
MAGIC_REQUIREMENT: Final = "MS-MAGIC-1"
MAGIC_CHECK: Final = "the magic of a wrapper's messages"
_UNKNOWN_MAGIC: Final = {"message-truncated", "inner-magic-mismatch"}
# Findings in a number that libraries read or look up in one place for all formats.
_IN_ALL_FORMATS: Final = {"magic-unknown", "codec-unknown", "varint-too-long"}

Key = tuple[str, ...]
Groups = dict[Key, list["Deviation"]]
# Deviations with the key of their group; a key may be there several times.
Parts = Iterable[tuple[Key, list["Deviation"]]]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One input on which an implementation does not do what it must.

    - ``implementation``: ``name@version``. ``library``: the same of its library, if several testees show one library;
      otherwise empty. Causes are those of libraries.
    - ``harm``: the name of a class in :mod:`kfuzz.conformance.judge.harm`.
    - ``finding``: the code of what is wrong with the input; empty if the input is good.
    - ``error``: what went wrong, in words. ``at``: the library's line of source, if a stack names it.
    - ``input``, ``role``, ``size_bytes``: the input's name, its role, its size.
    - ``requirements``: the requirements that the input tests.
    - ``status``: the standing of the outcome: ``listed``, ``miss`` or ``unexpected``.
    - ``form``: the format of the damaged batch, because libraries have a reader for each: ``v2``, ``legacy``, or empty.
      Of a good input, the format of the first batch.
    - ``holds``: ``no records`` if that batch claims to have none; ``a wrapper`` if it is a compressed message, or ``an
      empty wrapper`` if its value has no bytes; otherwise empty.
    - ``codec``: how that batch is compressed; empty if it is not.
    - ``message``: the name of the message, if the input is one.
    - ``lacks_headers``: whether headers are damaged, and the records were handed out without any.

    Of an input that belongs to no suite:

    - ``number``: its number in the run. ``reason``: what both sides say, for people.
    - ``data``: its bytes; ``request``, ``answer``: the question and the answer.
    - ``kills``: the fields without which the cause goes away, the most telling one first; empty if they were not looked
      for. ``shrunk_from``: the number of bytes of the run's input, if this is a smaller one with the same cause.
    - ``details``: a few lines of a stack, or of what a fuzzing process printed at its end.
    """

    implementation: str
    harm: str
    finding: str = ""
    error: str = ""
    at: str = ""
    input: str = ""
    role: str = "consumer"
    size_bytes: int = 0
    requirements: tuple[str, ...] = ()
    status: str = "unexpected"
    form: str = ""
    holds: str = ""
    codec: str = ""
    message: str = ""
    lacks_headers: bool = False
    library: str = ""
    number: int = 0
    reason: str = ""
    data: bytes = b""
    request: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)
    kills: tuple[KillingField, ...] = ()
    shrunk_from: int = 0
    details: str = ""

    @property
    def owner(self) -> str:
        """Whose fault it is, as ``name@version``."""
        return self.library or self.implementation

    @property
    def key(self) -> Key:
        """The properties that deviations with one cause have in common.

        A source line identifies a fault better than any text. Whether its error is declared, escapes or ends the
        process depends on the caller. But a line that takes too much memory may raise errors for other reasons.
        """
        if self.harm == MEMORY.name or (self.harm == KILLS.name and _ALLOCATION.search(self.error)):
            # Whether a line takes much memory or ends the process depends only on the size that the input claims.
            # A producer whose bytes make others allocate shows no fault of its own readers.
            form = masked(self.error) if _WRITTEN.match(self.error) else self.form
            return self.owner, MEMORY.name, self.at or form
        if self.error.startswith(GAVE_UP):
            # A producer has one list of the errors that it survives.
            return self.implementation, REFUSES.name, GAVE_UP
        if self.at:
            is_error = self.harm in (KILLS.name, PANICS.name, REFUSES.name, DIFFERS.name)
            return self.owner, PANICS.name if is_error else self.harm, self.at
        if self._has_unknown_magic and self.harm in (ACCEPTS.name, DIFFERS.name, LOSES.name):
            return self.owner, LOSES.name, MAGIC_CHECK
        if self.finding == TOO_FEW_RECORDS and self.error.startswith("skipped "):
            return self.owner, HANGS.name, DAMAGED, SKIPPED
        if self.finding and self.harm in (ACCEPTS.name, DIFFERS.name):
            form = "" if self.finding in _IN_ALL_FORMATS else self.form
            return self.owner, ACCEPTS.name, form, self._check
        if self.harm == HANGS.name:
            return self.owner, *self._stops_at
        if self.harm == LOSES.name:
            return self.owner, self.harm, *self._loss
        escaped = _EXCEPTION.match(self.error) if self.harm == PANICS.name else None
        if _NO_MEMORY.match(self.error):
            # Java has a stack for the first few of these only, so their lines are unknown and may differ.
            return self.owner, self.harm, self.finding, masked(self.error)
        # Where a vector is only recommended, a refusal is no more than a difference.
        refuses = self.harm == DIFFERS.name and self.error.startswith("refused ")
        # The damage does not matter to a decoder that lets an error escape.
        text = escaped[0] if escaped else masked(self.error)
        return self.owner, REFUSES.name if refuses else self.harm, text

    def to_json(self) -> dict[str, Any]:
        """The fields that are not empty, for JSON."""
        found = {one.name: value for one in fields(self) if (value := getattr(self, one.name))}
        changed = {"data": self.data.hex(), "kills": [kill.to_json() for kill in self.kills]}
        return {name: changed.get(name, value) for name, value in found.items()}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Deviation:
        """The deviation that ``to_json`` wrote."""
        return cls(
            **{
                **given,
                "requirements": tuple(given.get("requirements", ())),
                "data": bytes.fromhex(given.get("data", "")),
                "kills": tuple(map(KillingField.from_json, given.get("kills", ()))),
            }
        )

    @property
    def _check(self) -> str:
        """The check that a decoder lacks if it accepts this input.

        Some vectors with the same missing check allow either outcome; the worst class counts.
        """
        if self.holds == EMPTY_WRAPPER:
            return WRAPPER_CHECK
        return _ONE_CHECK.get(self.finding, self.finding)

    @property
    def _stops_at(self) -> Key:
        """The damage at which a decoder stops. A decoder that drops an error does so for any damage."""
        text = masked(self.error)
        if self.computes:
            # Whether the contents are right does not matter. A codec is the same in all formats.
            in_codec = self.finding == DECOMPRESSION_FAILED or self._check == WRAPPER_CHECK
            return HANGS.name, self.codec if in_codec else self.form, text
        if self._check == WRAPPER_CHECK:
            # A decoder that finds nothing in a wrapper stops there only if nothing follows it.
            return ACCEPTS.name, self.form, WRAPPER_CHECK
        # The consumer that calls a reader does not notice what the reader drops, whatever the format is.
        if self.holds == NO_RECORDS:
            return HANGS.name, DAMAGED_WITHOUT_RECORDS if self.finding else NO_RECORDS, text
        return HANGS.name, DAMAGED if self.finding else "", text

    @property
    def _has_unknown_magic(self) -> bool:
        return self.finding in _UNKNOWN_MAGIC and MAGIC_REQUIREMENT in self.requirements

    @property
    def is_damaged_inside(self) -> bool:
        """Whether a wrapper's messages are damaged so that a reader may take the damage for their end."""
        return self.holds == WRAPPER and self.finding in _INSIDE

    @property
    def computes(self) -> bool:
        """Whether it takes too much CPU time."""
        return self.harm == HANGS.name and bool(_COMPUTES.fullmatch(self.error))

    @property
    def lacks_memory(self) -> bool:
        """Whether an exception about a lack of memory escapes."""
        return self.harm == PANICS.name and bool(_NO_MEMORY.match(self.error))

    @property
    def claim(self) -> Key:
        """The count or size of which the input claims too much, for a certain reader."""
        return self.owner, self.form, self.finding, self.codec if self.finding == DECOMPRESSION_FAILED else ""

    @property
    def _loss(self) -> tuple[str, ...]:
        """The kind of loss, and the format. A decoder that loses data from damaged inputs often loses it
        from good ones too, so the finding does not matter."""
        if _MISSING_RECORDS.fullmatch(self.error):
            return ("too few records",)
        if _NULLITY.search(self.error):
            # The readers of messages are others than those of records, which have one function for all formats.
            return "messages" if self.message else "records", masked(self.error)
        if _UNKNOWN_TAGS.match(self.error) and "\n" not in self.error:
            return ("order or number of unknown tagged fields",)
        if difference := _difference(self.error):
            # Which values differ does not matter; whether a value is null or missing does.
            kinds = [one if one in ("null", "empty") else "#" for one in (difference.got, difference.wanted)]
            place = _INDEX.sub("[#]", difference.place)
            # A writer has one function for a value of all formats.
            form = "" if _WRITTEN.match(self.error) else self.form
            return form, f"{difference.before}{place}{_IS}{kinds[0]}{_EXPECTED}{kinds[1]}"
        return self.form, masked(self.error)


@dataclass(frozen=True, slots=True)
class Cause:
    """A fault of a library: all deviations with one key, the smallest input first.

    Several testees may show it, such as the library's decoder and a whole client.

    ``others``: how many more inputs deviate, if only some are here. ``known``: the names of vectors and seeds among all
    of them.
    """

    key: Key
    deviations: tuple[Deviation, ...]
    others: int = 0
    known: tuple[str, ...] = ()

    @property
    def smallest(self) -> Deviation:
        """The deviation with the smallest input."""
        return self.deviations[0]

    @property
    def implementations(self) -> list[str]:
        """The testees that show it, the library's decoder first."""
        return list(dict.fromkeys(one.implementation for one in sorted(self.deviations, key=lambda one: one.library)))

    @property
    def id(self) -> str:
        """Eight hex digits that depend on the key alone, so that they are the same in every run.

        The implementation's version does not count: the same fault of two versions has one id.
        """
        label, *fault = self.key
        return hashlib.sha256("\0".join((label.rpartition("@")[0] or label, *fault)).encode()).hexdigest()[:8]

    @property
    def harm(self) -> str:
        """The name of the worst class of harm among the deviations."""
        return worst({one.harm for one in self.deviations})

    def harm_in(self, implementation: str) -> str:
        """The worst class of harm among the deviations of one of the ``implementations``."""
        return worst({one.harm for one in self.deviations if one.implementation == implementation})

    @property
    def finding(self) -> str:
        """The damage of the inputs: a code, or how many kinds of damage there are; empty for good inputs."""
        kinds = {one.finding for one in self.deviations if one.finding}
        return f"{len(kinds)} kinds of damage" if len(kinds) > 1 else "".join(kinds)

    @property
    def at(self) -> str:
        """The library's line of source, if a stack of one of the deviations names it."""
        return next((one.at for one in self.deviations if one.at), "")

    @property
    def text(self) -> str:
        """The error with its numbers masked."""
        return masked(self.smallest.error)

    @property
    def damage(self) -> str:
        """The damage of the smallest input by its name, and how many other kinds there are; empty for good inputs."""
        own = self.smallest.finding
        others = len({one.finding for one in self.deviations} - {own, ""})
        if not others:
            return own
        more = counted(others, f"{'other ' if own else ''}kind")
        return f"{own or 'undamaged input'} and {more} of damage"

    @property
    def what(self) -> str:
        """A summary of the smallest input, as one printable line for people: its damage, its own error, and the line of
        source, as far as there are any.
        """
        what = _shortened(printable(" ".join(self.smallest.error.split())))
        what = f"{self.damage}: {what}" if self.damage else what
        return f"{what} ({printable(self.at)})" if self.at else what

    @property
    def count(self) -> int:
        """The number of inputs that deviate."""
        if len(self.implementations) == 1:
            return len(self.deviations) + self.others
        # Each of them was asked about the same vectors.
        return len({(one.input, one.role) for one in self.deviations}) + self.others

    @property
    def is_new(self) -> bool:
        """Whether a deviation is not as expected."""
        return any(one.status == "unexpected" for one in self.deviations)

    def to_json(self) -> dict[str, Any]:
        """The form in which a cause is kept, for JSON."""
        return {
            "id": self.id,
            "key": list(self.key),
            "count": self.count,
            "known": list(self.known),
            "deviations": [one.to_json() for one in self.deviations],
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Cause:
        """The cause that ``to_json`` wrote."""
        deviations = tuple(map(Deviation.from_json, given["deviations"]))
        return cls(tuple(given["key"]), deviations, given["count"] - len(deviations), tuple(given["known"]))


def masked(error: str) -> str:
    """The error without the parts that differ between inputs, shortened.

    >>> from kfuzz.conformance.judge.causes import masked
    >>> masked("batch[0].records[12].key is 6b6579316b657932; expected 'a key'")
    'batch[#].records[#].key is #; expected #'
    """
    text = " ".join(error.split())
    text = _NULLITY.sub(r"a field is \1; expected \2", text)
    text = _QUOTED.sub(_without_quoted, text)
    for pattern in (_NUMBER, _HEX):
        text = pattern.sub("#", text)
    return _shortened(text)


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"


def _without_quoted(found: re.Match[str]) -> str:
    if found["single"] or found["double"]:
        return "#"
    # Nothing closes this quote, so no other of its kind is closed either. The other kind may be.
    quoted = found[0]
    start = quoted.index("'") + 1 if quoted[0] != '"' else 1
    pattern = _QUOTED_DOUBLE if quoted[0] != '"' else _QUOTED_SINGLE
    inside = pattern.sub(lambda one: "#" if one[1] else one[0], quoted[start:])
    return quoted[:start] + inside


class _Difference(NamedTuple):
    """A difference of contents, and the text before it."""

    before: str
    place: str
    got: str
    wanted: str


def _difference(error: str) -> _Difference | None:
    """The first line that says of a place what its value is and what it must be."""
    start = 0
    for line in error.split("\n"):
        # Something must follow it.
        end = line.rfind(_EXPECTED, 0, max(len(line) - 1, 0))
        at = line.find(_IS)
        while 0 <= at < end and (at == 0 or line[at - 1].isspace()):
            at = line.find(_IS, at + 1)
        if at >= 0 and at + len(_IS) < end:
            place = line[:at].split()[-1]
            return _Difference(
                error[: start + at - len(place)], place, line[at + len(_IS) : end], line[end + len(_EXPECTED) :]
            )
        start += len(line) + 1
    return None


def deviation(implementation: str, case: Case, cell: Cell, status: str, library: str = "") -> Deviation | None:
    """The deviation of a judged case; None if its cell has no class of harm."""
    if not cell.harm:
        return None
    expectation = case.expectation if case.role != ENCODE_ROLE else {}
    vector = case.vector
    in_batches = vector.kind not in ("message", "primitive")
    return Deviation(
        implementation,
        cell.harm,
        str(expectation.get("finding", "")),
        cell.text,
        str(cell.answer.get("at", "")),
        vector.id,
        case.role,
        len(vector.data),
        tuple(vector.requirements),
        status,
        *(batch_facts(vector.data, _damaged_batch(vector)) if in_batches else BatchFacts()),
        vector.options["message"] if vector.kind == "message" else "",
        cell.lacks_headers or lacks_headers(vector, cell.answer),
        library,
    )


class BatchFacts(NamedTuple):
    """The fields of a :class:`Deviation` that are about the damaged batch."""

    form: str = ""
    holds: str = ""
    codec: str = ""


def batch_facts(data: bytes, start: int | None = None) -> BatchFacts:
    """The facts about the damaged batch that begins at byte ``start``.

    Without ``start``, ``form`` and ``codec`` are those of the first batch, and ``holds`` is about the first batch for
    which it is not empty.
    """
    held = (_holds(data, at) for at in (_starts(data) if start is None else [start]))
    return BatchFacts(_form(data, start or 0), next(filter(None, held), ""), _codec(data, start or 0))


def _damaged_batch(vector: Vector) -> int | None:
    """Where the batch with the first hostile byte begins; None if no byte is hostile."""
    hostile = next((place["at"] for place in vector.layout if place.get("hostile")), None)
    return None if hostile is None else max((start for start in _starts(vector.data) if start <= hostile), default=0)


def _starts(data: bytes) -> list[int]:
    """Where each batch begins that shows its magic, also a last one that is not whole."""
    ends = [at + size for at, size, _ in frames(data)] if data else []
    return [at for at in (0, *ends) if at + MAGIC_AT < len(data)]


def _form(data: bytes, start: int) -> str:
    """``v2``, ``legacy`` (magic 0 and 1), or empty if it is neither."""
    at = start + MAGIC_AT
    return {0: "legacy", 1: "legacy", 2: "v2"}.get(data[at], "") if len(data) > at else ""


def _holds(data: bytes, start: int) -> str:
    batch, form = data[start:], _form(data, start)
    if not form or len(batch) < (payload_at := PAYLOAD_AT[batch[MAGIC_AT]]):
        return ""
    # The last field before a payload is the number of records, or the length of a message's value.
    last = int.from_bytes(batch[payload_at - 4 : payload_at], "big", signed=True)
    if form == "v2":
        return NO_RECORDS if last <= 0 else ""
    if not _codec(data, start):
        return ""
    return WRAPPER if last else EMPTY_WRAPPER


def _codec(data: bytes, start: int) -> str:
    """The name of the codec; empty if there is none, or an unknown one."""
    at = start + CODEC_AT[data[start + MAGIC_AT]] if _form(data, start) else len(data)
    codec = data[at] & CODEC_MASK if at < len(data) else 0
    return CODECS[codec] if 0 < codec < len(CODECS) else ""


def causes_of(deviations: Iterable[Deviation]) -> list[Cause]:
    """The causes, worst class first, then the implementation, then the number of deviations, then the text."""
    groups = _grouped((one.key, [one]) for one in deviations)
    for combine in (_without_records, _skipped, _inside_wrappers, _without_headers, _over_budget, _by_definition):
        groups = _grouped(combine(groups))
    return sorted((Cause(key, tuple(sorted(group, key=_by_size))) for key, group in groups.items()), key=_by_harm)


def _grouped(parts: Parts) -> Groups:
    groups: Groups = {}
    for key, some in parts:
        groups.setdefault(key, []).extend(some)
    return groups


def _without_records(groups: Groups) -> Parts:
    """Combine damaged batches without records with the good ones, if the decoder stops at those too.

    Otherwise the decoder stops because of the damage.
    """
    for key, group in groups.items():
        if DAMAGED_WITHOUT_RECORDS in key:
            good, damaged = (
                tuple(other if part == DAMAGED_WITHOUT_RECORDS else part for part in key)
                for other in (NO_RECORDS, DAMAGED)
            )
            key = good if good in groups else damaged
        yield key, group


def _skipped(groups: Groups) -> Parts:
    """Combine records that are skipped with the damage that stops the decoder most often, if there is any."""
    for key, group in groups.items():
        if key[-1] == SKIPPED:
            stops = [other for other in groups if other[:-1] == key[:-1] and other != key]
            key = max(stops, key=lambda other: (len(groups[other]), other), default=key)
        yield key, group


def _inside_wrappers(groups: Groups) -> Parts:
    """Combine what a decoder accepts in wrappers, but not in messages outside of them."""
    for key, group in groups.items():
        if key[1] == ACCEPTS.name and not group[0].at and all(one.is_damaged_inside for one in group):
            key = (*key[:-1], INNER_CHECK)
        yield key, group


def _without_headers(groups: Groups) -> Parts:
    """Combine damaged headers that are left out with good ones, if the decoder loses those too.

    Then it reads headers apart from their record, and drops the errors.
    """
    loses = {
        one.owner: key
        for key, group in sorted(groups.items())
        for one in group
        if one.harm == LOSES.name and _NO_HEADERS.search(one.error)
    }
    for key, group in groups.items():
        for one in group:
            left_out = one.lacks_headers and one.harm in (ACCEPTS.name, DIFFERS.name)
            yield loses.get(one.owner, key) if left_out else key, [one]


def _over_budget(groups: Groups) -> Parts:
    """Give what has no line to the line that takes too much memory for the same damage, if there is one such line.

    Which budget is exceeded first, that of memory or of time, depends on the claimed size and on the machine. And Java
    has a stack for the first few errors of an exhausted memory only.
    """
    lines: dict[tuple[bool, Key], set[Key]] = {}
    for key, group in groups.items():
        for one in group:
            if one.at and (one.lacks_memory or key[1] == MEMORY.name):
                lines.setdefault((one.lacks_memory, one.claim), set()).add(key)
    for key, group in groups.items():
        for one in group:
            escapes = one.lacks_memory and not one.at
            found = lines.get((escapes, one.claim), set()) if escapes or one.computes else set()
            yield min(found) if len(found) == 1 else key, [one]


def _by_definition(groups: Groups) -> Parts:
    """Combine what concerns one message alone: then the library has another definition of the message.

    Reading it, writing it and refusing its fields are three consequences of one wrong definition.
    """
    for key, group in groups.items():
        names = {one.message for one in group}
        harms = {one.harm for one in group}
        if len(names) == 1 and group[0].message and not group[0].at and harms <= {LOSES.name, REFUSES.name}:
            key = (key[0], LOSES.name, group[0].message)
        yield key, group


def _by_size(one: Deviation) -> tuple[int, str, str]:
    return one.size_bytes, one.input, one.role


def _by_harm(cause: Cause) -> tuple[int, str, int, Sequence[str]]:
    return RANK[cause.harm], cause.smallest.implementation, -cause.count, cause.key
