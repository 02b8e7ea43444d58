"""Keeps what a campaign found: an input becomes a vector that Apache Kafka confirmed, and a regression.

kfuzz's own reader gives the expectations. Kafka's classes and its real broker are asked about them, and nothing is
written if they contradict one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz import records
from kfuzz.annotate.killing import KillingField
from kfuzz.annotate.messages import walk
from kfuzz.annotate.parts import Part
from kfuzz.annotate.records import annotate
from kfuzz.conformance.judge.reference import verdict
from kfuzz.conformance.report.differences import outcome_of
from kfuzz.errors import UsageError
from kfuzz.findings import Finding
from kfuzz.fuzz.decoded_bytes import Body, skipped
from kfuzz.fuzz.kept import DIFFERENTIAL, KeptInput, as_differential, as_it_is
from kfuzz.fuzz.seeding import CORPUS
from kfuzz.fuzz.targets import TARGETS
from kfuzz.kafka import LATEST, ROLES
from kfuzz.messages.codec import read
from kfuzz.messages.jsonform import to_json
from kfuzz.text import printable
from kfuzz.vectors.adding import files_with, place_of, vector_with
from kfuzz.vectors.coverage import CODES
from kfuzz.vectors.kinds import READER
from kfuzz.vectors.model import Vector, default_root, load_requirements
from kfuzz.vectors.recipes.theme import SMALL

if TYPE_CHECKING:
    from kfuzz.conformance.judge.confirmation import Confirmation

Json = dict[str, Any]

# The targets whose inputs a decoder can be asked about. The others test kfuzz's own tools.
ABOUT_BYTES: Final = ("record-batch", "compressed-batch", "broker", "messages", DIFFERENTIAL)
MAY_REFUSE: Final = {"verdict": "acceptable"}


class Disagrees(Exception):
    """Apache Kafka contradicts what kfuzz makes of the bytes; ``sentences`` say how."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = tuple(sentences)


@dataclass(frozen=True, slots=True)
class Kept:
    """Files to write: ``files`` with their contents, the vector as in its file (None for a regression only), and the
    file of the regression (None if the input is none).
    """

    files: Mapping[Path, bytes]
    item: Mapping[str, Any] | None = None
    regression: Path | None = None


def ask_kafka_about(vector: Vector) -> Confirmation:
    """Ask every version of ``kafka-clients`` about a vector, and the real broker if it is one of records.

    ``UsageError`` if Java or Maven is missing.
    """
    from kfuzz.conformance import broker
    from kfuzz.conformance.judge.confirmation import confirm

    found = confirm([vector])
    if not found.contradictions and broker.is_for_broker(vector):
        said = broker.judge([vector])
        found.contradictions, found.broker_cells = said.contradictions, said.broker_cells
    return found


def kept_vector(
    kept: KeptInput,
    id: str,
    *,
    summary: str | None = None,
    requirements: Sequence[str] = (),
    flags: Sequence[str] = (),
    hostile: str | None = None,
    acceptable: bool = False,
    root: Path | None = None,
    regressions: Path | None = None,
) -> Kept:
    """The vector ``id`` and the regression that an input becomes. Nothing is written yet.

    ``root`` is the suite, ``regressions`` the folder for regressions; by default those of the checkout. Without a
    ``summary`` or ``requirements``, those of kfuzz's finding are used. ``hostile`` is the whole path of the hostile
    field; by default, it is the field that kills. ``acceptable`` says that decoders may refuse what kfuzz reads.

    Raises ``UsageError`` for what cannot be kept so, and :class:`Disagrees` if Kafka contradicts kfuzz.
    """
    kept = as_differential(kept)
    if kept.target not in ABOUT_BYTES:
        raise UsageError(
            f"an input of {kept.target} tests kfuzz's own tools, and no decoder can be asked about it; "
            "keep it with --regression-only"
        )
    if kept.body is None:
        raise UsageError(f"{kept.file} holds neither a batch nor a message; keep it with --regression-only")
    place = place_of(_suite(root), id)
    kind = "records" if kept.body.message is None else "message"
    if place.kind != kind:
        raise UsageError(
            f"{place.path.name} holds vectors of the kind {place.kind}, and this is one of the kind {kind}; "
            "name an id of another file"
        )
    try:
        expect, finding = _expected(kept.body)
    except Exception as error:
        # kfuzz's own result is not known while the input breaks kfuzz itself.
        raise UsageError(
            f"kfuzz's own reader fails on {kept.file}: {type(error).__name__}: {error}; mend it first, "
            "or keep the input with --regression-only"
        ) from None
    if acceptable:
        expect = {role: one | (MAY_REFUSE if one["verdict"] == "valid" else {}) for role, one in expect.items()}
    chosen = tuple(requirements)
    if not chosen and finding is not None:
        own = CODES[kind][finding.code].requirement
        chosen = () if own is None else (own,)
    if not chosen:
        raise UsageError("no finding of kfuzz names a requirement for it; name one with --requirement")
    text = summary or (finding.message if finding is not None else "")
    if not text:
        raise UsageError("kfuzz finds nothing in it that could be its summary; give one with --summary")
    item: Json = {
        "id": id,
        "summary": text,
        "level": _level(place.root, chosen, expect),
        "requirements": list(chosen),
        "flags": list(flags),
        "canonical": _is_canonical(kept.body, expect),
        "layout": _layout(kept, kept.body, hostile, finding),
        "expect": expect,
        "hex": kept.body.data.hex(),
        "kafka": {},
    }
    if kept.body.message is not None:
        definition, version = kept.body.message
        item |= {"message": definition.name, "version": version}
    if finding is not None:
        item["budget"] = dict(SMALL)
    vector = vector_with(place, item)
    regression, files = _regression(kept, id.rpartition("/")[2], text, regressions, None)
    said = ask_kafka_about(vector)
    if said.contradictions:
        raise Disagrees([*said.contradictions, *(_own_words(role, expect[role]) for role in expect)])
    [item] = said.filled({"vectors": [item]})["vectors"]
    if kept.target == DIFFERENTIAL:
        answer = said.answers.get(kept.role, {}).get(LATEST, {}).get(id)
        regression, files = _regression(kept, id.rpartition("/")[2], text, regressions, answer)
    return Kept({**files_with(place, item), **files}, item, regression)


def kept_regression(
    kept: KeptInput, name: str | None, *, summary: str | None = None, regressions: Path | None = None
) -> Kept:
    """The regression that an input becomes, without a vector. Nothing is written yet.

    The input is run again first. ``UsageError`` if it does not fail any more, and for what cannot be kept so.
    """
    text = summary or kept.deviation.error
    if not text:
        raise UsageError("the cause is not known; say with --summary what the input breaks")
    if kept.testee and not kept.testee.startswith("kafka-clients@"):
        raise UsageError(
            f"a regression of the differential holds Kafka's answer, and this is one of {kept.testee}; "
            "keep it as a vector with --id, or compare with kafka-clients"
        )
    stem = name or kept.file.name
    # Refuse at once what cannot be kept at all.
    _regression(kept, stem, text, regressions, None)
    regression, files = _regression(as_it_is(kept), stem, text, regressions, None)
    return Kept(files, None, regression)


# ------------------------------------------------------------------------------------------------------- regressions


def _regression(
    kept: KeptInput, name: str, text: str, folder: Path | None, answer: Mapping[str, Any] | None
) -> tuple[Path, dict[Path, bytes]]:
    """The file of the regression, and all files with their contents. ``answer`` is Kafka's, for a differential."""
    if kept.target == "canary":
        raise UsageError("the canary is a planted bug that must stay hard to find; there is nothing to keep")
    if kept.target in TARGETS and (why := skipped(TARGETS[kept.target], kept.data)):
        raise UsageError(f"{kept.file} tests nothing: the target {kept.target} passes over it, because {why}")
    if folder is None:
        folder = CORPUS / "regressions"
        if not CORPUS.is_dir():
            raise UsageError("this kfuzz is installed without corpus/; run `kfuzz keep` in a checkout of kfuzz")
    stem = name if kept.target != DIFFERENTIAL or kept.role == "consumer" else f"{kept.role}-{name}"
    file = folder / kept.target / f"{stem}.hex"
    if file.exists():
        raise UsageError(f"{file} exists; choose another name")
    sentence = printable(" ".join(text.split()))
    sentence = sentence[0].upper() + sentence[1:].rstrip(".") + "."
    files = {file: f"# {sentence}\n{kept.data.hex()}\n".encode()}
    if kept.target == DIFFERENTIAL:
        role = {} if kept.role == "consumer" else {"role": kept.role}
        said = {"testee": kept.testee, **kept.deviation.answer}
        if answer is not None:
            said = {"testee": f"kafka-clients@{LATEST}", **outcome_of(answer)}
        document = json.dumps({**said, **role}, indent=2, sort_keys=True) + "\n"
        files[file.with_suffix(".json")] = document.encode()
    return file, files


# ------------------------------------------------------------------------------------------------------- the vector


def _suite(root: Path | None) -> Path:
    if root is not None:
        return root
    if not CORPUS.is_dir():
        raise UsageError(
            "this kfuzz is installed, and its vectors are not for changing; run `kfuzz keep` in a checkout of kfuzz, "
            "or name a suite with --vectors and a folder with --regressions"
        )
    return default_root()


def _expected(body: Body) -> tuple[Json, Finding | None]:
    """kfuzz's expectations by role, and the finding that they are about; None if there is none."""
    if body.message is not None:
        return _expected_of_message(body)
    by_role: dict[str, Json] = {}
    finding = None
    for role in ROLES:
        made = verdict(body.data, role)
        expected, reason = _judged(made.fatal, made.findings)
        if role == "consumer":
            finding = reason
        if made.fatal is None:
            expected |= {"batches": made.batches, "consumed": made.consumed}
            if role == "consumer" and records.check(body.data).partial_tail:
                expected["partial_tail"] = True
        by_role[role] = expected
    consumer = by_role["consumer"]
    others = {role: expected for role, expected in by_role.items() if not _is_same(expected, consumer)}
    return {"consumer": consumer, **others}, finding


def _is_same(expected: Json, consumer: Json) -> bool:
    """Whether a role needs no entry, because it behaves like the consumer."""
    return {**expected, "partial_tail": None} == {**consumer, "partial_tail": None}


def _expected_of_message(body: Body) -> tuple[Json, Finding | None]:
    assert body.message is not None
    definition, version = body.message
    reading = read(definition, version, body.data)
    expected, reason = _judged(reading.fatal, reading.findings)
    if reading.message is not None:
        expected |= {"message": to_json(definition, version, reading.message), "consumed": reading.consumed}
    return {READER: expected}, reason


def _judged(fatal: Finding | None, findings: Iterable[Finding]) -> tuple[Json, Finding | None]:
    """The expected verdict, and the finding that it is about."""
    reason = fatal or next(iter(findings), None)
    if reason is None:
        return {"verdict": "valid"}, None
    return {"verdict": "acceptable" if fatal is None else "invalid", "finding": reason.code}, reason


def _own_words(role: str, expected: Mapping[str, Any]) -> str:
    if expected["verdict"] == "invalid":
        return f"kfuzz as {role} refuses it: {expected['finding']}"
    return f"kfuzz as {role} reads it" + (f", with {expected['finding']}" if "finding" in expected else "")


def _level(root: Path, requirements: Sequence[str], expect: Json) -> str:
    """``recommended`` if it must be refused only because the documents say *should* or *may*."""
    known, _ = load_requirements(root)
    levels = {known[name]["level"] for name in requirements if name in known}
    is_refused = all(one["verdict"] == "invalid" for one in expect.values())
    return "recommended" if is_refused and levels and "must" not in levels else "required"


def _is_canonical(body: Body, expect: Json) -> bool:
    """Whether kfuzz's encoder writes exactly these bytes for the contents."""
    if body.message is not None or expect["consumer"]["verdict"] != "valid":
        return False
    batches = records.decode(body.data)
    return all(batch.compression == "none" for batch in batches) and records.encode(batches) == body.data


def _layout(kept: KeptInput, body: Body, hostile: str | None, finding: Finding | None) -> list[Json]:
    """The place of the hostile field: the given one, the one that kills, or that of the finding."""
    parts = list(annotate(body.data)) if body.message is None else walk(*body.message, body.data).parts
    parts = [part for part in parts if part.data]
    wanted = kept.deviation.kills[0] if kept.deviation.kills else None
    if hostile is not None:
        part = _part_named(parts, hostile)
        if part is None:
            raise UsageError(f"there is no field {hostile!r}; name one by its whole path, such as {parts[-1].name}")
        wanted = KillingField(hostile, part.at, len(part.data))
    elif wanted is None and finding is not None:
        wanted = KillingField(finding.path, finding.at, 1)
    if wanted is None:
        return []
    name, at, size = wanted.field, wanted.at, wanted.size
    batch, inside, _ = name.partition(".payload.")
    if inside:
        # Places are those in the vector's bytes, so the whole payload is hostile.
        payload = _part_named(parts, f"{batch}.payload") or _part_named(parts, f"{batch}.value")
        if payload is None:
            return []
        name, at, size = payload.name, payload.at, len(payload.data)
    elif name.endswith(".payload") and (part := _part_named(parts, name)) is not None:
        at, size = part.at, len(part.data)
    elif hostile is None and not kept.deviation.kills and (part := _part_at(parts, at)) is not None:
        exact = part.name == name
        at, size = (part.at, len(part.data)) if exact else (at, 1)
    size = min(size, len(body.data) - at)
    return [{"at": at, "field": _short(name, parts, body), "size": size, "hostile": True}] if size > 0 else []


def _part_named(parts: Sequence[Part], name: str) -> Part | None:
    return next((part for part in parts if part.name == name), None)


def _part_at(parts: Sequence[Part], at: int) -> Part | None:
    there = (part for part in parts if ".payload" not in part.path and part.at <= at < part.at + len(part.data))
    return next(there, None)


def _short(name: str, parts: Sequence[Part], body: Body) -> str:
    """The field's name as layouts have it: without the message, and without the only batch."""
    if body.message is not None:
        return name.removeprefix(f"{body.message[0].name}.")
    is_only = all(part.path.startswith("batch[0]") for part in parts)
    return name.removeprefix("batch[0].") if is_only else name
