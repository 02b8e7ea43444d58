"""Rules change a frame's body: fields by their paths, errors, record batches, or anything at random.

A rule is checked when it is made: everything that can be wrong about a change is found here, for all versions of the
message at once. Nothing here knows sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeVar

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.errors import EncodeError, UsageError
from kfuzz.forms import Wrong, nearest, shown
from kfuzz.messages import decode, encode
from kfuzz.messages.catalogues import newest
from kfuzz.messages.jsonform import from_json
from kfuzz.messages.model import Field, key_of
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.engine import Engine
from kfuzz.mutate.message import MessageMutator
from kfuzz.relay.addresses import has_addresses, replace_addresses
from kfuzz.relay.frames import Form, Frame
from kfuzz.relay.paths import EACH, PATH_CHARACTERS_MAX, Each, Steps, fields, is_records, paths_of, slots, steps_of

# Gives the frame in place of another, or None if that has nothing to change. ``MessageError`` if it cannot be read,
# ``EncodeError`` if a value does not fit into its version.
Change = Callable[[Frame, Dice], Frame | None]
T = TypeVar("T")

# With this probability, mutation of a frame that has record batches changes those instead of its other fields.
RECORDS_SHARE: Final = 0.5
RECORDS_REPAIR: Final = 0.95
# The largest batches that a mutation makes of smaller ones.
MUTATED_BYTES_MAX: Final = 1 << 20
# So often a mutation is made anew that could lead a client elsewhere.
MUTATIONS_MAX: Final = 8
# Nobody listens there.
NOWHERE: Final = ("127.0.0.1", 1)
PORT_BYTES: Final = 4
THROTTLE: Final = "throttleTimeMs"
# A mutation lets a client wait no longer, or it would wait for days, as it should.
MUTATED_THROTTLE_MS_MAX: Final = 100
_OF_SHARE_SESSIONS: Final = ("SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH", "SHARE_SESSION_LIMIT_REACHED")
# The errors that these responses have at their top, about a whole session. Brokers give all others where the topics or
# partitions are, so a client expects them there.
AT_THE_TOP: Final[Mapping[str, frozenset[int]]] = {
    name: frozenset(ERROR_CODES[one] for one in errors)
    for name, errors in (
        (
            "FetchResponse",
            ("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR"),
        ),
        ("ShareFetchResponse", _OF_SHARE_SESSIONS),
        ("ShareAcknowledgeResponse", _OF_SHARE_SESSIONS),
        ("MetadataResponse", ("REBOOTSTRAP_REQUIRED",)),
    )
}

_ENGINES: Final = {"request": Engine(RECORDS_REPAIR, True), "response": Engine(RECORDS_REPAIR)}


# --- the fields that changes are about ------------------------------------------------------------------------------


@cache
def number_paths(name: str, version: int) -> tuple[tuple[str, int], ...]:
    """The paths to all whole numbers with a sign, as ``set`` takes them, and the bits of each.

    Ports and throttle times are left out.
    """
    bits = {f"int{size}": size for size in (8, 16, 32, 64)}
    found = fields(newest(name, version), version, lambda one: one.type.name in bits)
    return tuple(
        ("".join("[*]" if one is EACH else f".{one}" for one in steps).removeprefix("."), bits[field.type.name])
        for steps, field in found
        if steps[-1] not in ("port", THROTTLE)
    )


def _names_error(name: str) -> bool:
    # Also partitionErrorCode and acknowledgeErrorCode.
    return name.lower().endswith("errorcode")


def _is_error(field: Field) -> bool:
    return field.type.name == "int16" and _names_error(field.name)


def has_errors(form: Form) -> bool:
    return bool(paths_of(form.definition.name, form.version, _is_error))


def has_field(form: Form, name: str) -> bool:
    """Whether messages of this form have this field at their top."""
    return any(key_of(one.name) == name and form.version in one.versions for one in form.definition.fields)


def error_code(given: int | str) -> int:
    """The number of an error that is given by its number or its name. ``Wrong`` for an unknown name."""
    if isinstance(given, int):
        return given
    code = ERROR_CODES.get(given.upper())
    if code is None:
        remedy = nearest(given.upper(), ERROR_CODES) or "give the name of one of Kafka's errors, or its number"
        raise Wrong(f"is {shown(given)}, which is no error of Kafka's", remedy)
    return code


def _as_json(steps: Steps, value: Any) -> Any:
    """The JSON form of a message that has only this value. Lists in it have one element."""
    for step in reversed(steps):
        value = {step: value} if isinstance(step, str) else [value]
    return value


def set_change(forms: Sequence[Form], values: Mapping[str, Any]) -> Change:
    """Sets fields: ``values`` has each value in the JSON form of messages by the path of its field.

    ``forms`` are those of one message, in the order of its versions. ``Wrong`` if a path leads to nothing in all of
    them, or if its value does not fit there.
    """
    made: dict[int, list[tuple[Steps, Any]]] = {form.version: [] for form in forms}
    for path, given in values.items():
        try:
            steps = steps_of(path)
            is_error = _names_error(str(steps[-1])) and isinstance(given, str)
            type_it = partial(_typed, steps=steps, given=error_code(given) if is_error else given)
            for version, value in _by_version(forms, type_it, "cannot be set in any of the rule's versions").items():
                made[version].append((steps, value))
        except Wrong as wrong:
            raise wrong.inside(f'."{path[:PATH_CHARACTERS_MAX]}"') from None

    def change(frame: Frame, dice: Dice) -> Frame | None:
        if not (places := made.get(frame.exchange.version)):
            return None
        body, changed = frame.values(), False
        for steps, value in places:
            for holder, key in slots(body, steps):
                changed = changed or holder[key] != value
                holder[key] = value
        return frame.with_values(body) if changed else None

    return change


def _by_version(forms: Sequence[Form], make: Callable[[Form], T], problem: str) -> dict[int, T]:
    """The results of ``make`` for the forms of one message, by the version; without those that cannot have it.

    ``Wrong`` with this problem if none can; the reason is that of the last version.
    """
    made: dict[int, T] = {}
    why = ""
    for form in reversed(forms):
        try:
            made[form.version] = make(form)
        except (UsageError, EncodeError) as error:
            why = why or str(error)
    if not made:
        raise Wrong(problem, why)
    return made


def _typed(form: Form, steps: Steps, given: Any) -> Any:
    """The value for a field, from its JSON form. ``UsageError`` or ``EncodeError`` if the version cannot have it."""
    definition, version = form.definition, form.version
    values = from_json(definition, version, _as_json(steps, given))
    data = encode(definition, version, values)
    first = tuple(0 if isinstance(one, int | Each) else one for one in steps)
    # A writer takes the default for a field that the version lacks.
    if not list(slots(decode(definition, version, data), first)):
        path = "".join(f".{one}" if isinstance(one, str) else "[0]" for one in steps)
        raise UsageError(f"{definition.name}{path} is not a field of version {version}")
    [(holder, key)] = slots(values, first)
    return holder[key]


def error_change(code: int) -> Change:
    """Sets the error at the top of a response; all errors below it if it has none there, or has it for sessions only.

    Where a partition has an error, it has no records.
    """

    def change(frame: Frame, dice: Dice) -> Frame | None:
        name, version = frame.name, frame.exchange.version
        if frame.form is None or not (errors := paths_of(name, version, _is_error)):
            return None
        values = frame.values()
        own = AT_THE_TOP.get(name)
        top = [steps for steps in errors if len(steps) == 1]
        below = [steps for steps in errors if len(steps) > 1]
        chosen = (top or below) if own is None or code in own else (below or top)
        places = [one for steps in chosen for one in slots(values, steps)]
        if not places:
            return None
        for holder, key in places:
            holder[key] = code
        if code:
            # As Kafka's brokers do. Some clients, such as librdkafka, refuse null.
            for steps in paths_of(name, version, is_records):
                for holder, key in slots(values, steps):
                    holder[key] = b""
        return frame.with_values(values)

    return change


def throttle_change(ms: int) -> Change:
    """Sets how long the client should wait, in ms."""

    def change(frame: Frame, dice: Dice) -> Frame | None:
        if (form := frame.form) is None or not has_field(form, THROTTLE):
            return None
        return frame.with_values({**frame.values(), THROTTLE: ms})

    return change


# --- record batches, and whole bodies -------------------------------------------------------------------------------


def _filled(frame: Frame, values: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The places of record batches that are not empty."""
    found = paths_of(frame.name, frame.exchange.version, is_records)
    return [(holder, key) for steps in found for holder, key in slots(values, steps) if holder[key]]


def records_change(data: bytes) -> Change:
    """Puts these bytes in place of the record batches of every partition that has some."""

    def change(frame: Frame, dice: Dice) -> Frame | None:
        if (form := frame.form) is None or not form.has_records:
            return None
        values = frame.values()
        places = _filled(frame, values)
        for holder, key in places:
            holder[key] = data
        return frame.with_values(values) if places else None

    return change


def body_change(data: bytes, keep_bytes: int) -> Change:
    """Puts these bytes in place of the body, after its first ``keep_bytes``."""

    def change(frame: Frame, dice: Dice) -> Frame:
        at = frame.header_end()
        return frame.with_body(bytes(memoryview(frame.data)[at : at + keep_bytes]) + data)

    return change


@lru_cache(maxsize=64)
def _mutator(form: Form) -> MessageMutator:
    return MessageMutator(form.body)


def mutated(frame: Frame, dice: Dice) -> Frame | None:
    """The frame after one to three changes of its body's structure, or of that of a partition's record batches."""
    at = frame.header_end()
    form = frame.form
    assert form is not None
    if any(size for _, size in frame.records) and dice.chance(RECORDS_SHARE):
        values = frame.values()
        holder, key = dice.pick(_filled(frame, values))
        holder[key] = _ENGINES[frame.direction].mutate(holder[key], b"", dice, MUTATED_BYTES_MAX)
        return frame.with_values(values)
    body = bytes(memoryview(frame.data)[at:])
    for _ in range(MUTATIONS_MAX):
        changed = _without_wait(form, _mutator(form).mutate(body, dice))
        if changed != body and (made := _inside(frame, body, changed)) is not None:
            return made
    return None


def _without_wait(form: Form, body: bytes) -> bytes:
    """The body with a short throttle time, if it begins with one."""
    first = next((one for one in form.definition.fields if form.version in one.versions), None)
    if first is None or key_of(first.name) != THROTTLE:
        return body
    wait_ms = int.from_bytes(body[:4], "big", signed=True)
    return body if wait_ms <= MUTATED_THROTTLE_MS_MAX else MUTATED_THROTTLE_MS_MAX.to_bytes(4, "big") + body[4:]


def _inside(frame: Frame, body: bytes, changed: bytes) -> Frame | None:
    """The frame with the changed body, if it leads clients only to the brokers that the frame names, or to nobody.

    None if a client could find others in it, because it cannot be read and differs before the end of the addresses; or
    if kfuzz can read it, but not write it.
    """
    made = frame.with_body(changed)
    name, version = frame.name, frame.exchange.version
    if not (frame.is_read and has_addresses(name, version)):
        return made
    known = set(_addresses(name, version, frame.values()))
    made.check()
    if not made.is_read:
        end = max((body.rfind(host.encode()) + len(host.encode()) + PORT_BYTES for host, _ in known), default=0)
        return made if changed[:end] == body[:end] else None
    values = made.values()
    if known.issuperset(_addresses(name, version, values)):
        return made
    replace_addresses(name, version, values, lambda *one: one if one in known else NOWHERE)
    try:
        return made.with_values(values)
    except EncodeError:
        return None


def _addresses(name: str, version: int, values: Mapping[str, Any]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []

    def see(*one: Any) -> tuple[str, int]:
        found.append(one)
        return one

    replace_addresses(name, version, values, see)
    return found


def replies_of(forms: Sequence[Form], given: Mapping[str, Any]) -> dict[int, bytes]:
    """The bodies of responses with these values, in the JSON form of messages, by the version.

    ``Wrong`` if no version can have them; ``forms`` are in the order of their versions.
    """

    def body(form: Form) -> bytes:
        return encode(form.definition, form.version, from_json(form.definition, form.version, given))

    return _by_version(forms, body, "fits none of the rule's versions")
