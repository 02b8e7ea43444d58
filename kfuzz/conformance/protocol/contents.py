"""The forms of what answers hold: keys, values and headers of records, and messages, checked without definitions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kfuzz.forms import HEX, TEXT, Form, ListOf, Object, Wrong, integer, matching, shown, step_of
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

# How deep objects and arrays may be nested in a message; Kafka's own messages nest much less.
MESSAGE_DEPTH_MAX: Final = 32
NULL: Final = {"type": "null"}

# --- records --------------------------------------------------------------------------------------------------------

_SHA256: Final = matching("[0-9a-f]{64}", "give 64 hex digits")
_DIGEST: Final = Object({"sha256": _SHA256, "size": integer(0, 2**63 - 1)}, ("sha256", "size"))
_HEX_KEY: Final = Object({"hex": HEX}, ("hex",))
# A key or a value.
OCTETS: Final = Form(
    {"anyOf": [HEX.schema, NULL, _DIGEST.schema]},
    'give lower-case hex, null, or {"sha256": …, "size": …}',
    lambda value: value is None or HEX.fits(value) or _DIGEST.fits(value),
)


def _is_header(pair: Any) -> bool:
    if not (isinstance(pair, list) and len(pair) == 2):
        return False
    key, value = pair
    return bool((isinstance(key, str) or _HEX_KEY.fits(key)) and OCTETS.fits(value))


_HEADER: Final = [{"anyOf": [TEXT.schema, _HEX_KEY.schema]}, OCTETS.schema]
HEADERS: Final = Form(
    {"type": "array", "items": {"type": "array", "prefixItems": _HEADER, "minItems": 2, "items": False}},
    'give a list of [key, value], the key a text or {"hex": …}, the value hex or null',
    lambda value: isinstance(value, list) and all(map(_is_header, value)),
)

# --- messages -------------------------------------------------------------------------------------------------------

_FIELD: Final = re.compile("[a-z][A-Za-z0-9]*")
VERSION: Final = integer(0, 32767)
MESSAGE_NAME: Final = matching("[A-Z][A-Za-z0-9]{0,99}", "give a message's name")
_TAGGED_FIELD: Final = Object({"tag": integer(0, 2**32 - 1), "hex": HEX}, ("tag", "hex"))
_TAGGED_FIELDS: Final = ListOf(_TAGGED_FIELD, "leave it out if there are none", least=1)


def _is_range(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(map(VERSION.fits, pair)) and pair[0] <= pair[1]


def _by_message(schema: Mapping[str, Any], fits: Callable[[Any], object], what: str) -> Form:
    """An object with a value for each message."""
    names = {MESSAGE_NAME.schema["pattern"]: schema}
    return Form(
        {"type": "object", "patternProperties": names, "additionalProperties": False},
        f"give an object of messages, each with {what}",
        lambda value: isinstance(value, dict) and all(map(MESSAGE_NAME.fits, value)) and all(map(fits, value.values())),
    )


_RANGE: Final = {"type": "array", "items": VERSION.schema, "minItems": 2, "maxItems": 2}
VERSIONS: Final = _by_message(_RANGE, _is_range, "its lowest and highest version")
_PLACE: Final = matching(r"[a-z][A-Za-z0-9]*(\.[a-z][A-Za-z0-9]*){0,31}", "give a field's place, as in topics.name")
_PLACES: Final = ListOf(_PLACE, "give a list of fields by their places", least=1)
# The fields that are not shown.
HIDDEN: Final = _by_message(_PLACES.schema, _PLACES.fits, "a list of fields")


class _Field(Form):
    """The value of a primitive, or of a message's field."""

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` for the first name or value that no message can have."""
        _check_value(value, 0)


class _Message(_Field):
    """A message: the form of names, numbers and unknown tags."""

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` also for a value that is not an object."""
        if not isinstance(value, dict):
            raise Wrong(f"is {shown(value)}", self.remedy)
        super().check(value)


VALUE: Final = _Field({"$ref": "#/$defs/value"}, "give a value of a primitive")
MESSAGE: Final = _Message({"$ref": "#/$defs/struct"}, "give an object of a message's fields")
# The definitions that both schemas refer to. JSON Schema cannot express the limit of 32 nested levels.
DEFINITIONS: Final = {
    "struct": {
        "type": "object",
        "properties": {UNKNOWN_TAGGED_FIELDS: _TAGGED_FIELDS.schema},
        "patternProperties": {f"^{_FIELD.pattern}$": VALUE.schema},
        "additionalProperties": False,
    },
    "value": {
        "anyOf": [
            {"type": ["null", "boolean", "number", "string"]},
            {"type": "array", "items": VALUE.schema},
            MESSAGE.schema,
        ]
    },
}


def _check_value(value: Any, depth: int) -> None:
    if depth > MESSAGE_DEPTH_MAX:
        raise Wrong(f"is nested more than {MESSAGE_DEPTH_MAX} deep", "make it flatter")
    if isinstance(value, float) and not math.isfinite(value):
        raise Wrong(f"is {shown(value)}", 'write it as the text "NaN", "Infinity" or "-Infinity"')
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    step: str | int = ""
    try:
        for step, item in inner:
            if step == UNKNOWN_TAGGED_FIELDS:
                _TAGGED_FIELDS.check(item)
            elif isinstance(step, str) and not _FIELD.fullmatch(step):
                raise Wrong("is not a field's name", "write it in camelCase")
            else:
                _check_value(item, depth + 1)
    except Wrong as wrong:
        raise wrong.inside(f"[{step}]" if isinstance(step, int) else step_of(step)) from None
