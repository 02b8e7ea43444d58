"""Forms: each declares once what a JSON value may be, checks a value, and writes itself as JSON Schema.

``fields_of`` reads the forms from a class's annotations, so that one class gives a message's type, check and schema.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from operator import itemgetter
from types import NoneType
from typing import Annotated, Any, Final, Protocol, get_args, get_origin, get_type_hints

from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

__all__ = [
    "BOOLEAN",
    "HEX",
    "TEXT",
    "Form",
    "HeadersForm",
    "Integer",
    "ListOf",
    "Matching",
    "MessageForm",
    "ObjectForm",
    "OctetsForm",
    "OneOf",
    "OrNull",
    "SubsetOf",
    "ValueForm",
    "VersionsForm",
    "Wire",
    "fields_of",
    "shown",
]

Json = dict[str, Any]
# How deep objects and arrays may be nested in a message; Kafka's own messages nest much less.
MESSAGE_DEPTH_MAX: Final = 32
VERSION_MAX: Final = 32767


class Form(Protocol):
    """The values that a form allows."""

    def wanted(self, value: Any) -> str | None:
        """None if the value is right; otherwise what the value must be, worded to follow "it must be"."""

    def schema(self) -> Json:
        """The form as JSON Schema."""


def shown(value: Any, width: int = 60) -> str:
    """The value as JSON, cut to ``width`` characters, for use in a sentence."""
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= width else text[:width] + "…"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- simple values --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from ``low`` to ``high``."""

    low: int
    high: int

    def wanted(self, value: Any) -> str | None:
        right = _is_int(value) and self.low <= value <= self.high
        return None if right else f"an integer from {self.low} to {self.high}"

    def schema(self) -> Json:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Matching:
    """A text that matches the whole ``pattern``; ``noun`` names it in messages."""

    noun: str
    pattern: str
    _matches: Callable[[str], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Compile the pattern once, because answers contain thousands of these texts.
        object.__setattr__(self, "_matches", re.compile(self.pattern).fullmatch)

    def wanted(self, value: Any) -> str | None:
        return None if isinstance(value, str) and self._matches(value) else self.noun

    def all_match(self, texts: Iterable[str]) -> bool:
        """Whether each text matches."""
        return all(map(self._matches, texts))

    def schema(self) -> Json:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these texts."""

    allowed: tuple[str, ...]

    def wanted(self, value: Any) -> str | None:
        return None if isinstance(value, str) and value in self.allowed else "one of " + ", ".join(self.allowed)

    def schema(self) -> Json:
        return {"enum": list(self.allowed)}


@dataclass(frozen=True, slots=True)
class SubsetOf:
    """A list that contains only these values, which all have one type."""

    allowed: tuple[Any, ...]

    def wanted(self, value: Any) -> str | None:
        right = isinstance(value, list) and all(
            type(item) is type(self.allowed[0]) and item in self.allowed for item in value
        )
        return None if right else "a list of any of " + ", ".join(map(str, self.allowed))

    def schema(self) -> Json:
        return {"type": "array", "items": {"enum": list(self.allowed)}}


@dataclass(frozen=True, slots=True)
class OrNull:
    """A value of this ``form``, or null."""

    form: Form

    def wanted(self, value: Any) -> str | None:
        wanted = None if value is None else self.form.wanted(value)
        return wanted and f"{wanted}, or null"

    def schema(self) -> Json:
        return {"anyOf": [self.form.schema(), {"type": "null"}]}


class _Boolean:
    def wanted(self, value: Any) -> str | None:
        return None if isinstance(value, bool) else "true or false"

    def schema(self) -> Json:
        return {"type": "boolean"}


class _Hex:
    _digits: Final = re.compile("[0-9a-f]*")

    def wanted(self, value: Any) -> str | None:
        # Two checks, because a pattern for pairs of digits is slow on long values.
        right = isinstance(value, str) and len(value) % 2 == 0 and self._digits.fullmatch(value)
        return None if right else "lower-case hex"

    def schema(self) -> Json:
        return {"type": "string", "pattern": "^(?:[0-9a-f]{2})*$"}


class _Text:
    def wanted(self, value: Any) -> str | None:
        return None if isinstance(value, str) else "a text"

    def schema(self) -> Json:
        return {"type": "string"}


BOOLEAN: Final = _Boolean()
TEXT: Final = _Text()
HEX: Final = _Hex()
_SHA256: Final = Matching("64 hex digits", "[0-9a-f]{64}")


# --- lists and objects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of this ``form``; ``noun`` names them. For objects, the message gives the wrong one's index."""

    noun: str
    form: Form

    def wanted(self, value: Any) -> str | None:
        if not isinstance(value, list):
            return f"a list of {self.noun}"
        if isinstance(self.form, ObjectForm) and self.form.all_right(value):
            return None
        for index, item in enumerate(value):
            if isinstance(self.form, ObjectForm):
                if wrong := self.form.wrong(item):
                    return f"a list of {self.noun}, but [{index}]{wrong}"
            elif self.form.wanted(item):
                return f"a list of {self.noun}"
        return None

    def schema(self) -> Json:
        return {"type": "array", "items": self.form.schema()}


@dataclass(frozen=True, slots=True)
class ObjectForm:
    """An object with these fields and no others; ``name`` is the name of its schema."""

    name: str
    forms: Mapping[str, Form]
    required: tuple[str, ...]

    def wrong(self, value: Any) -> str | None:
        """None, or what is wrong, worded to follow the name of the object: `.offset is …; it must be …`."""
        if not isinstance(value, dict):
            return f" is {shown(value)}; it must be a JSON object"
        for name in self.required:
            if name not in value:
                return f" lacks {name}"
        for name, item in value.items():
            form = self.forms.get(name)
            if form is None:
                return f" has the unknown field {shown(name)}; known are {', '.join(self.forms)}"
            if wanted := form.wanted(item):
                return f".{name} is {shown(item)}; it must be {wanted}"
        return None

    def wanted(self, value: Any) -> str | None:
        wrong = self.wrong(value)
        return wrong and f"an object, but it{wrong}"

    def all_right(self, values: list[Any]) -> bool:
        """True only if all values are right. False if some are wrong, or if they do not all have the same fields.

        An answer may have hundreds of thousands of records. Checking one field of all records at a time is several
        times as fast as checking record by record.
        """
        if set(map(type, values)) != {dict}:
            return False
        names = values[0].keys()
        if not set(self.required) <= names <= self.forms.keys():
            return False
        # Equal counts here, and a KeyError below for a missing name, mean that all objects have the same fields.
        if set(map(len, values)) != {len(names)}:
            return False
        try:
            return all(_all_right(self.forms[name], list(map(itemgetter(name), values))) for name in names)
        except KeyError:
            return False

    def schema(self) -> Json:
        return {
            "type": "object",
            "properties": {name: form.schema() for name, form in self.forms.items()},
            "required": list(self.required),
            "additionalProperties": False,
        }


def _all_right(form: Form, column: list[Any]) -> bool:
    """Whether all values have this form."""
    types = set(map(type, column))
    if types <= _TEXTS:
        # Check equal texts only once. This would be wrong for other types, because True equals 1.
        different = set(column)
        if isinstance(form, Matching) and None not in different:
            return form.all_match(different)
        return not any(map(form.wanted, different))
    if types == {list} and not any(column):
        # Fast path: most records have no headers.
        return form.wanted([]) is None
    return not any(map(form.wanted, column))


_TEXTS: Final = {str, NoneType}

# --- records --------------------------------------------------------------------------------------------------------

_DIGEST: Final = ObjectForm("digest", {"sha256": _SHA256, "size": Integer(0, 2**63 - 1)}, ("sha256", "size"))
_HEX_KEY: Final = ObjectForm("key", {"hex": HEX}, ("hex",))


class OctetsForm:
    """A key or a value: hex, null, or {"sha256", "size"} if it is long."""

    def wanted(self, value: Any) -> str | None:
        right = value is None or HEX.wanted(value) is None or _DIGEST.wrong(value) is None
        return None if right else 'lower-case hex, null, or {"sha256": …, "size": …}'

    def schema(self) -> Json:
        return {"anyOf": [HEX.schema(), {"type": "null"}, _DIGEST.schema()]}


class HeadersForm:
    """A record's headers: pairs of a key and a value."""

    def wanted(self, value: Any) -> str | None:
        if isinstance(value, list) and all(map(self._is_pair, value)):
            return None
        return 'a list of [key, value], the key a text or {"hex": …}, the value hex or null'

    def _is_pair(self, pair: Any) -> bool:
        if not (isinstance(pair, list) and len(pair) == 2):
            return False
        key, value = pair
        return (isinstance(key, str) or _HEX_KEY.wrong(key) is None) and OctetsForm().wanted(value) is None

    def schema(self) -> Json:
        pair = [{"anyOf": [TEXT.schema(), _HEX_KEY.schema()]}, OctetsForm().schema()]
        return {
            "type": "array",
            "items": {"type": "array", "prefixItems": pair, "minItems": 2, "items": False},
        }


# --- messages -------------------------------------------------------------------------------------------------------

_FIELD: Final = re.compile("[a-z][A-Za-z0-9]*")
_MESSAGE_NAME: Final = re.compile("[A-Z][A-Za-z0-9]{0,99}")
_TAGGED_FIELD: Final = ObjectForm("tagged field", {"tag": Integer(0, 2**32 - 1), "hex": HEX}, ("tag", "hex"))


class MessageForm:
    """A message, checked without its definition: the form of names, numbers and unknown tags."""

    def wanted(self, value: Any) -> str | None:
        wrong = _struct(value, 0) if isinstance(value, dict) else f" is {shown(value)}"
        return wrong and f"an object of a message's fields, but it{wrong}"

    def schema(self) -> Json:
        return {"$ref": "#/$defs/struct"}

    def definitions(self) -> Json:
        """The definitions that ``schema`` refers to. JSON Schema cannot express the limit of 32 nested levels."""
        tagged = {"type": "array", "minItems": 1, "items": _TAGGED_FIELD.schema()}
        return {
            "struct": {
                "type": "object",
                "properties": {UNKNOWN_TAGGED_FIELDS: tagged},
                "patternProperties": {f"^{_FIELD.pattern}$": {"$ref": "#/$defs/value"}},
                "additionalProperties": False,
            },
            "value": {
                "anyOf": [
                    {"type": ["null", "boolean", "number", "string"]},
                    {"type": "array", "items": {"$ref": "#/$defs/value"}},
                    {"$ref": "#/$defs/struct"},
                ]
            },
        }


class ValueForm:
    """The value of a primitive, or of a message's field."""

    def wanted(self, value: Any) -> str | None:
        wrong = _value(value, 0)
        return wrong and f"a value of a primitive, but it{wrong}"

    def schema(self) -> Json:
        return {"$ref": "#/$defs/value"}


def _struct(struct: dict[str, Any], depth: int) -> str | None:
    """None, or what is wrong, worded to follow the name of the struct."""
    for name, value in struct.items():
        if name == UNKNOWN_TAGGED_FIELDS:
            wrong = _tagged_fields(value)
        elif _FIELD.fullmatch(name):
            wrong = _value(value, depth + 1)
        else:
            return f" has the field {shown(name)}, whose name is not in camelCase"
        if wrong:
            return f".{name}{wrong}"
    return None


def _value(value: Any, depth: int) -> str | None:
    if depth > MESSAGE_DEPTH_MAX:
        return f" is nested more than {MESSAGE_DEPTH_MAX} deep"
    if isinstance(value, dict):
        return _struct(value, depth)
    if isinstance(value, list):
        found = ((index, _value(item, depth + 1)) for index, item in enumerate(value))
        return next((f"[{index}]{wrong}" for index, wrong in found if wrong), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f' is {shown(value)}; write it as the text "NaN", "Infinity" or "-Infinity"'
    return None


def _tagged_fields(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return f" is {shown(value)}; leave it out if there are none"
    found = ((index, _TAGGED_FIELD.wrong(item)) for index, item in enumerate(value))
    return next((f"[{index}]{wrong}" for index, wrong in found if wrong), None)


class VersionsForm:
    """Messages, each with its lowest and highest version."""

    def wanted(self, value: Any) -> str | None:
        right = isinstance(value, dict) and all(
            _MESSAGE_NAME.fullmatch(name) and self._is_pair(pair) for name, pair in value.items()
        )
        return None if right else "an object of messages, each with its lowest and highest version"

    def _is_pair(self, pair: Any) -> bool:
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(map(_is_int, pair))
        return is_pair and 0 <= pair[0] <= pair[1] <= VERSION_MAX

    def schema(self) -> Json:
        version = Integer(0, VERSION_MAX).schema()
        pair = {"type": "array", "items": version, "minItems": 2, "maxItems": 2}
        return {
            "type": "object",
            "patternProperties": {f"^{_MESSAGE_NAME.pattern}$": pair},
            "additionalProperties": False,
        }


# --- classes as forms -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wire:
    """Gives a field's form in its annotation, and its name in JSON if that differs from the attribute's."""

    form: Form
    name: str = ""


def fields_of(cls: type) -> ObjectForm:
    """The form of a dataclass or TypedDict, from its fields with ``Annotated[type, Wire(form)]``; others are ignored.

    A field is required if the dataclass has no default for it, or if the TypedDict requires it.
    """
    forms: dict[str, Form] = {}
    required = []
    if is_dataclass(cls):
        needed = {one.name for one in fields(cls) if one.default is MISSING and one.default_factory is MISSING}
    else:
        needed = set(getattr(cls, "__required_keys__"))  # noqa: B009
    for attribute, hint in get_type_hints(cls, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        (wire,) = (item for item in get_args(hint)[1:] if isinstance(item, Wire))
        name = wire.name or attribute
        forms[name] = wire.form
        if attribute in needed:
            required.append(name)
    return ObjectForm(cls.__name__, forms, tuple(required))
