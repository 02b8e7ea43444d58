"""An input that was kept: the smallest one of a cause, as a campaign or a differential wrote it to a folder.

The file holds the bytes. Beside it is what is known of the cause: ``causes.json`` of a campaign, or the ``.json`` of
the same name of `kfuzz differential`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from kfuzz.conformance.differential.records import differ
from kfuzz.conformance.judge.causes import Deviation
from kfuzz.conformance.judge.harm import HANGS, KILLS, MEMORY
from kfuzz.conformance.protocol.lines import DECODE_MESSAGE
from kfuzz.conformance.protocol.testees import only as one_testee
from kfuzz.conformance.report.differences import outcome_of
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.fuzz import targets as table
from kfuzz.fuzz.building import NoNativeCoverage, build
from kfuzz.fuzz.causes import CAUSES_FILE, ERRORS, file_name, load, loaded, truth_of
from kfuzz.fuzz.decoded_bytes import Body, body_of
from kfuzz.fuzz.messages import selector
from kfuzz.fuzz.other_reader import MESSAGES, asked_once
from kfuzz.fuzz.reproducing import breaks_now, read_input
from kfuzz.fuzz.shrinking import killing_fields_again
from kfuzz.fuzz.targets import TARGETS, Target
from kfuzz.messages.catalogues import catalogue
from kfuzz.records import Role

# Classes of harm that may need an instrumented build.
NATIVE: Final = frozenset({KILLS.name, HANGS.name, MEMORY.name})
# In place of a target: kfuzz and a testee differ.
DIFFERENTIAL: Final = "differential"
# The implementation of all fuzz targets.
KFUZZ: Final = "kfuzz"


@dataclass(frozen=True, slots=True)
class KeptInput:
    """An input that breaks something, in ``file``, and what is known of it.

    ``target`` is a fuzz target, or ``DIFFERENTIAL``. ``deviation`` has the bytes, and what they break; without a class
    of harm, that is not known. ``cause_id`` is the id of its cause. Its ``answer`` is that of the testee, in short.
    ``body`` is what a decoder would get of the bytes; None if they hold neither record batches nor a message.
    """

    file: Path
    target: str
    body: Body | None
    deviation: Deviation
    cause_id: str = ""

    @property
    def data(self) -> bytes:
        return self.deviation.data

    @property
    def testee(self) -> str:
        """The testee that reads the input otherwise; empty if the input breaks kfuzz itself."""
        return truth_of(self.deviation, KFUZZ)

    @property
    def role(self) -> Role:
        """As whom the testee read it."""
        return cast("Role", self.deviation.role)


def kept_at(path: str | Path) -> KeptInput | None:
    """The input in a file that a campaign or a differential wrote; None for any other file. A message of a differential
    becomes an input of the target `messages`; its cause is not kept.

    ``UsageError`` if the file beside it is damaged.
    """
    path = Path(path)
    if not path.is_file():
        return None
    target = path.resolve().parent.parent.name
    if target in TARGETS:
        for cause in load(path.parent / CAUSES_FILE):
            if path.name == file_name(cause):
                data = read_bytes(path)
                item = cause.smallest
                # The fields are those of the input in the table.
                item = replace(item, data=data, kills=item.kills if data == item.data else ())
                return KeptInput(path, target, body_of(TARGETS[target], data), item, cause.id)
    if path.suffix == ".bin" and path.with_suffix(".json").is_file():
        return _of_differential(path)
    return _of_message(path) if path.suffix == ".json" else None


def input_of_target(path: str | Path, target: str) -> KeptInput:
    """Any input of a target, in a file of raw bytes or in a ``.hex`` file with one input. ``UsageError`` for an unknown
    target.
    """
    return _unknown(Path(path), table.find(target), read_input(path))


def _unknown(path: Path, target: Target, data: bytes) -> KeptInput:
    """An input of which only the target is known."""
    return KeptInput(path, target.name, body_of(target, data), Deviation(KFUZZ, "", data=data))


def _of_differential(path: Path) -> KeptInput | None:
    beside = path.with_suffix(".json")
    try:
        document = load_json(read_bytes(beside), str(beside))
        cause = loaded(document.pop("cause"))
    except (UsageError, *ERRORS):
        return None
    item, data = cause.smallest, read_bytes(path)
    answer = {name: value for name, value in document.items() if name not in ("testee", "role")}
    item = replace(item, error=item.reason, data=data, answer=answer)
    return KeptInput(path, DIFFERENTIAL, Body(data), item, cause.id)


def _of_message(path: Path) -> KeptInput | None:
    """The input of the target `messages` for a question about a message, which a differential kept as its request."""
    try:
        request = load_json(read_bytes(path), str(path))
        if request["operation"] != DECODE_MESSAGE or not isinstance(request["version"], int):
            return None
        definition, version = catalogue().find(request["message"]), request["version"]
        data = selector(definition, version) + bytes.fromhex(request["hex"])
    except (UsageError, ValueError, LookupError, TypeError, AssertionError):
        return None
    kept = _unknown(path, TARGETS["messages"], data)
    return None if kept.body is None else kept


def with_killing_fields(kept: KeptInput) -> KeptInput:
    """The input with the fields that kill, found now; that of a differential may become smaller.

    ``UsageError`` if clang or the testee is missing, or if kfuzz and the testee agree by now.
    """
    if kept.testee:
        if kept.body is None or kept.body.message is not None:
            raise UsageError(f"kfuzz and {kept.testee} read {kept.file} differently; no field of a message kills then")
        found = differ(one_testee([kept.testee], [], default=""), [kept.body.data], role=kept.role, shrunk=1)
        if not found.deviations:
            raise UsageError(f"{kept.file}: kfuzz and {kept.testee} agree about it now, so no field kills")
        [item] = found.deviations
        own = replace(kept.deviation, data=item.data, kills=item.kills)
        return replace(kept, body=Body(item.data), deviation=own)
    target = TARGETS[kept.target]
    cause = next((one for one in load(kept.file.parent / CAUSES_FILE) if one.id == kept.cause_id), None)
    if cause is None or cause.smallest.data != kept.data:
        raise UsageError(f"{kept.file} is not the input that {CAUSES_FILE} beside it has; run the campaign again")
    try:
        made = build()
    except NoNativeCoverage as error:
        raise UsageError(f"the field that kills is found with the instrumented build: {error}") from None
    kills = killing_fields_again(made, target, cause)
    return replace(kept, deviation=replace(kept.deviation, kills=kills))


def as_differential(kept: KeptInput) -> KeptInput:
    """A deviation in record batches as if `kfuzz differential` had found it; any other input stays."""
    if kept.testee and kept.body is not None and kept.body.message is None:
        return replace(kept, target=DIFFERENTIAL, deviation=replace(kept.deviation, data=kept.body.data))
    return kept


def as_it_is(kept: KeptInput) -> KeptInput:
    """Run the input again, with today's code and the oracle that found it, and return it with the result.

    A deviation in record batches becomes one of ``DIFFERENTIAL``, with the testee's answer. ``UsageError`` if
    nothing fails any more, or if the testee is missing.
    """
    if not kept.testee:
        if not breaks_now(TARGETS[kept.target], kept.data, natively=kept.deviation.harm in NATIVE):
            raise _is_mended(kept, f"the target {kept.target} passes")
        return kept
    testee = one_testee([kept.testee], [], default="")
    if kept.target == DIFFERENTIAL:
        found = next(iter(differ(testee, [kept.data], role=kept.role).deviations), None)
    else:
        found = asked_once(testee, TARGETS[kept.target], kept.data)
    if found is None:
        raise _is_mended(kept, f"kfuzz and {kept.testee} agree")
    if kept.target == MESSAGES:
        return kept
    kept = as_differential(kept)
    return replace(kept, deviation=replace(kept.deviation, answer=outcome_of(found.answer)))


def _is_mended(kept: KeptInput, what: str) -> UsageError:
    return UsageError(
        f"{kept.file} does not fail on this kfuzz: {what}, and a regression would test nothing; keep it before the "
        "code is mended, or as a vector with --id"
    )
