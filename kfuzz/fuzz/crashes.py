"""A crash that was kept: the smallest input of a cause, as a campaign or a differential wrote it to a folder.

The file holds the bytes. Beside it is what is known of the cause: ``causes.json`` of a campaign, or the ``.json`` of
the same name of `kfuzz differential`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kfuzz.annotate.killing import KillingField
from kfuzz.conformance.differential.records import differ
from kfuzz.conformance.judge.harm import HANGS, KILLS, MEMORY, RANK
from kfuzz.conformance.protocol.lines import DECODE_MESSAGE
from kfuzz.conformance.protocol.testees import only as one_testee
from kfuzz.conformance.report.differences import outcome_of
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.fuzz import targets as table
from kfuzz.fuzz.building import NoNativeCoverage, build
from kfuzz.fuzz.decoded_bytes import Body, body_of
from kfuzz.fuzz.faults import CAUSES_FILE, Faults, load
from kfuzz.fuzz.messages import selector
from kfuzz.fuzz.other_reader import MESSAGES, asked_once
from kfuzz.fuzz.other_reader import ROLES as ROLE_OF
from kfuzz.fuzz.reproducing import breaks_now, read_input
from kfuzz.fuzz.shrinking import killing_fields_again
from kfuzz.fuzz.targets import TARGETS
from kfuzz.messages.catalogues import catalogue
from kfuzz.records import ROLES, Role
from kfuzz.text import foreign_text

__all__ = ["DIFFERENTIAL", "Crash", "as_differential", "as_it_is", "crash_at", "crash_of_target", "with_killing_fields"]

# Classes of harm that may need an instrumented build.
NATIVE: Final = frozenset({KILLS.name, HANGS.name, MEMORY.name})
# In place of a target: kfuzz and a testee differ.
DIFFERENTIAL: Final = "differential"


@dataclass(frozen=True, slots=True)
class Crash:
    """An input that breaks something, and what is known of the cause.

    ``target`` is a fuzz target, or ``DIFFERENTIAL``. Then ``answer`` is the answer of ``testee`` in ``role``, in short.
    An input of a fuzz target has a ``testee`` too if it does not break the target, and this testee reads it otherwise.
    ``harm`` is a class of :mod:`kfuzz.conformance.judge.harm`; "" if the cause is not known. ``kills`` are the fields
    without which it goes away, the most telling one first. ``body`` is what a decoder would get of ``data``; None if
    the input holds neither record batches nor a message.
    """

    file: Path
    target: str
    data: bytes
    body: Body | None
    id: str = ""
    harm: str = ""
    summary: str = ""
    at: str = ""
    kills: tuple[KillingField, ...] = ()
    testee: str = ""
    role: Role = "consumer"
    answer: Mapping[str, Any] | None = None


def crash_at(path: str | Path) -> Crash | None:
    """The crash in a file that a campaign or a differential wrote; None for any other file. A message of a differential
    becomes an input of the target `messages`; its cause is not kept.

    ``UsageError`` if the file beside it is damaged.
    """
    path = Path(path)
    if not path.is_file():
        return None
    target = path.resolve().parent.parent.name
    if target in TARGETS:
        for fault in load(path.parent / CAUSES_FILE):
            if path.name == f"{fault.harm}-{fault.id}":
                data = read_bytes(path)
                # The fields are those of the input in the table.
                kills = fault.kills if data == fault.data else ()
                body = body_of(TARGETS[target], data)
                crash = Crash(path, target, data, body, fault.id, fault.harm, fault.summary, fault.at, kills)
                return replace(crash, testee=fault.truth, role=ROLE_OF.get(target, "consumer"))
    if path.suffix == ".bin" and path.with_suffix(".json").is_file():
        return _of_differential(path)
    return _of_message(path) if path.suffix == ".json" else None


def crash_of_target(path: str | Path, target: str) -> Crash:
    """Any input of a target, in a file of raw bytes or in a ``.hex`` file with one input. ``UsageError`` for an unknown
    target.
    """
    data = read_input(path)
    return Crash(Path(path), table.find(target).name, data, body_of(TARGETS[target], data))


def _of_differential(path: Path) -> Crash | None:
    beside = path.with_suffix(".json")
    try:
        document = load_json(read_bytes(beside), str(beside))
        cause, testee, kills = document.pop("cause"), document.pop("testee"), document.pop("kills")
        role = document.pop("role", "consumer")
        if cause["harm"] not in RANK or role not in ROLES or not isinstance(testee, str):
            return None
        id, what = foreign_text(cause["id"]), foreign_text(cause["what"])
        fields = tuple(map(KillingField.from_json, kills))
    except (UsageError, ValueError, LookupError, TypeError, AttributeError):
        return None
    data = read_bytes(path)
    return Crash(
        path,
        DIFFERENTIAL,
        data,
        Body(data),
        id,
        cause["harm"],
        what,
        kills=fields,
        testee=foreign_text(testee),
        role=role,
        answer=document,
    )


def _of_message(path: Path) -> Crash | None:
    """The input of the target `messages` for a question about a message, which a differential kept as its request."""
    try:
        request = load_json(read_bytes(path), str(path))
        if request["operation"] != DECODE_MESSAGE or not isinstance(request["version"], int):
            return None
        definition, version = catalogue().find(request["message"]), request["version"]
        data = selector(definition, version) + bytes.fromhex(request["hex"])
    except (UsageError, ValueError, LookupError, TypeError, AssertionError):
        return None
    body = body_of(TARGETS["messages"], data)
    return None if body is None else Crash(path, "messages", data, body)


def with_killing_fields(crash: Crash) -> Crash:
    """The crash with the fields that kill, found now; the input of a differential may become smaller.

    ``UsageError`` if clang or the testee is missing, or if kfuzz and the testee agree by now.
    """
    if crash.testee:
        if crash.body is None or crash.body.message is not None:
            raise UsageError(
                f"kfuzz and {crash.testee} read {crash.file} differently; no field of a message kills then"
            )
        found = differ(one_testee([crash.testee], [], default=""), [crash.body.data], role=crash.role, shrunk=1)
        if not found.deviations:
            raise UsageError(f"{crash.file}: kfuzz and {crash.testee} agree about it now, so no field kills")
        [item] = found.deviations
        return replace(crash, data=item.data, body=Body(item.data), kills=item.kills)
    target = TARGETS[crash.target]
    faults = Faults(crash.file.parent.parent, target)
    fault = next((one for one in load(crash.file.parent / CAUSES_FILE) if one.id == crash.id), None)
    if fault is None or fault.data != crash.data:
        raise UsageError(f"{crash.file} is not the input that {CAUSES_FILE} beside it has; run the campaign again")
    try:
        made = build()
    except NoNativeCoverage as error:
        raise UsageError(f"the field that kills is found with the instrumented build: {error}") from None
    return replace(crash, kills=killing_fields_again(made, target, faults, fault))


def as_differential(crash: Crash) -> Crash:
    """A deviation in record batches as if `kfuzz differential` had found it; any other crash stays."""
    if crash.testee and crash.body is not None and crash.body.message is None:
        return replace(crash, target=DIFFERENTIAL, data=crash.body.data)
    return crash


def as_it_is(crash: Crash) -> Crash:
    """The crash after another run: under the oracle that found it, with the code as it is now.

    A deviation in record batches becomes one of ``DIFFERENTIAL``, with the testee's answer. ``UsageError`` if
    nothing fails any more, or if the testee is missing.
    """
    if not crash.testee:
        if not breaks_now(TARGETS[crash.target], crash.data, natively=crash.harm in NATIVE):
            raise _is_mended(crash, f"the target {crash.target} passes")
        return crash
    testee = one_testee([crash.testee], [], default="")
    if crash.target == DIFFERENTIAL:
        found = next(iter(differ(testee, [crash.data], role=crash.role).deviations), None)
    else:
        found = asked_once(testee, TARGETS[crash.target], crash.data)
    if found is None:
        raise _is_mended(crash, f"kfuzz and {crash.testee} agree")
    if crash.target == MESSAGES:
        return crash
    return replace(as_differential(crash), answer=outcome_of(found.answer))


def _is_mended(crash: Crash, what: str) -> UsageError:
    return UsageError(
        f"{crash.file} does not fail on this kfuzz: {what}, and a regression would test nothing; keep it before the "
        "code is mended, or as a vector with --id"
    )
