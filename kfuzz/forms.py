"""Declares once what a value of JSON or TOML may be, and makes its check, its errors and its JSON Schema from that.

``form.check`` refuses a wrong value with its place and a remedy; ``form.make`` turns a checked value into what the
program works with. A class declares its keys as ``Annotated[type, form]``, and :func:`object_of` reads them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import itemgetter
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

Json = dict[str, Any]


class Wrong(ValueError):
    """A value is not what its form says. ``place`` is its path in the document, such as ``.topics[0].name``."""

    def __init__(self, problem: str, remedy: str, place: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy, self.place = problem, remedy, place

    def inside(self, step: str) -> Wrong:
        """The same error, seen from one level further out."""
        self.place = step + self.place
        return self

    def sentence(self, root: str) -> str:
        """Place, problem and remedy; ``root`` names the document."""
        return f"{root}{self.place} {self.problem}; {self.remedy}"


class Form:
    """The values that a single value may have.

    ``fits`` decides. ``convert`` makes the value that the program works with from one that fits, and may still raise
    ``Wrong``; ``written`` is its inverse, for the defaults in the JSON Schema.
    """

    # The type that an alternative of Either takes; a single value takes what no other does.
    takes: type = object

    def __init__(
        self,
        schema: Json,
        remedy: str,
        fits: Callable[[Any], object] | None = None,
        *,
        convert: Callable[[Any], Any] | None = None,
        written: Callable[[Any], Any] | None = None,
        fits_text: Callable[[str], object] | None = None,
    ) -> None:
        self.schema, self.remedy = schema, remedy
        self.fits = fits or self._passes
        # A faster ``fits`` for what is known to be a text.
        self.fits_text = fits_text or self.fits
        self.convert, self.written = convert, written

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` if the value does not fit."""
        if not self.fits(value):
            raise Wrong(f"is {shown(value)}", self.remedy)

    def make(self, value: Any) -> Any:
        """The value that the program works with, from a checked one."""
        return self.convert(value) if self.convert else value

    def _passes(self, value: Any) -> bool:
        try:
            self.check(value)
        except Wrong:
            return False
        return True


# --- single values --------------------------------------------------------------------------------------------------

BOOLEAN: Final = Form({"type": "boolean"}, "give true or false", lambda value: isinstance(value, bool))
TEXT: Final = Form({"type": "string"}, "give a text", lambda value: isinstance(value, str))
_DIGITS: Final = re.compile("[0-9a-f]*").fullmatch
HEX: Final = Form(
    {"type": "string", "pattern": "^(?:[0-9a-f]{2})*$"},
    "give lower-case hex",
    # Two checks, because a pattern for pairs of digits is slow on long values.
    lambda value: isinstance(value, str) and len(value) % 2 == 0 and _DIGITS(value),
)


def integer(low: int, high: int) -> Form:
    """A whole number from ``low`` to ``high``."""
    schema = {"type": "integer", "minimum": low, "maximum": high}
    # The type of True is not int.
    return Form(
        schema, f"give a whole number from {low} to {high}", lambda value: type(value) is int and low <= value <= high
    )


def number(low: int, high: int, places: int | None = None) -> Form:
    """A number from ``low`` to ``high``; with ``places``, one with at most so many decimals."""
    few = "" if places is None else f" with at most {places} decimals"

    def fits(value: Any) -> bool:
        # `low <= nan` is false, so NaN is refused as well.
        right = type(value) in (int, float) and low <= value <= high
        return right and (places is None or round(value, places) == value)

    schema = {"type": "number", "minimum": low, "maximum": high}
    return Form(schema, f"give a number from {low} to {high}{few}", fits, convert=float)


def choice(*allowed: Any) -> Form:
    """One of these values, which all have one type."""
    *first, last = map(str, allowed)
    remedy = f"choose {', '.join(first)} or {last}" if first else f"give {last}"
    return Form({"enum": list(allowed)}, remedy, lambda value: type(value) is type(allowed[0]) and value in allowed)


def matching(pattern: str, remedy: str) -> Form:
    """A text that matches the whole ``pattern``."""
    matches = re.compile(pattern).fullmatch
    schema = {"type": "string", "pattern": f"^(?:{pattern})$"}
    return Form(schema, remedy, lambda value: isinstance(value, str) and matches(value), fits_text=matches)


def optional(form: Form) -> Form:
    """A value of this form, or null."""
    schema = {"anyOf": [form.schema, {"type": "null"}]}
    return Form(schema, f"{form.remedy}, or null", lambda value: value is None or form.fits(value))


# --- lists and objects ----------------------------------------------------------------------------------------------


class ListOf(Form):
    """A list of values of one form, at least ``least`` and at most ``most`` of them."""

    takes = list

    def __init__(
        self, items: Form, remedy: str = "give a list", *, least: int = 0, most: int | None = None, **more: Any
    ) -> None:
        schema: Json = {"type": "array", "items": items.schema}
        schema |= {"minItems": least} if least else {}
        schema |= {} if most is None else {"maxItems": most}
        super().__init__(schema, remedy, **more)
        self.items, self.least, self.most = items, least, most

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` for the first item that does not fit."""
        if type(value) is not list or len(value) < self.least or (self.most is not None and len(value) > self.most):
            raise Wrong(f"is {shown(value)}", self.remedy)
        if isinstance(self.items, Object) and self.items.all_fit(value):
            return
        check, at = self.items.check, 0
        try:
            for at, item in enumerate(value):  # noqa: B007 - the handler needs it.
                check(item)
        except Wrong as wrong:
            raise wrong.inside(f"[{at}]") from None

    def make(self, value: Any) -> Any:
        """The items as a tuple, or what ``convert`` makes of it."""
        made = tuple(_made(self.items, item, f"[{at}]") for at, item in enumerate(value))
        return self.convert(made) if self.convert else made


class Object(Form):
    """A JSON object, or a table of TOML, with these keys and no others."""

    takes = dict

    def __init__(
        self, keys: Mapping[str, Form], required: Iterable[str] = (), remedy: str = "give a JSON object", **more: Any
    ) -> None:
        self.keys, self.required = keys, tuple(required)
        schema = {"type": "object", "properties": {name: form.schema for name, form in keys.items()}}
        schema |= {"required": list(self.required)} if self.required else {}
        super().__init__({**schema, "additionalProperties": False}, remedy, **more)

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` for the first key that is missing, unknown or wrong."""
        if type(value) is not dict:
            raise Wrong(f"is {shown(value)}", self.remedy)
        keys, name = self.keys, ""
        for name in self.required:
            if name not in value:
                raise Wrong(f"lacks {name}", keys[name].remedy)
        try:
            for name, item in value.items():
                form = keys.get(name)
                if form is None:
                    remedy = nearest(name, keys) or f"the keys here are {', '.join(keys)}"
                    raise Wrong("is not a key that kfuzz knows", remedy)
                form.check(item)
        except Wrong as wrong:
            raise wrong.inside(step_of(name)) from None

    def make(self, value: Any) -> Any:
        """The made values by their keys, or what ``convert`` makes of them."""
        made = {name: _made(self.keys[name], item, step_of(name)) for name, item in value.items()}
        return self.convert(made) if self.convert else made

    def all_fit(self, values: list[Any]) -> bool:
        """True only if all values are right. False if some are wrong, or if they do not all have the same keys.

        An answer may have hundreds of thousands of records. Checking one key of all records at a time is several times
        as fast as checking record by record.
        """
        if set(map(type, values)) != {dict}:
            return False
        names = values[0].keys()
        # Equal counts here, and a KeyError below for a missing name, mean that all objects have the same keys.
        if not set(self.required) <= names <= self.keys.keys() or set(map(len, values)) != {len(names)}:
            return False
        try:
            return all(_all_fit(self.keys[name], list(map(itemgetter(name), values))) for name in names)
        except KeyError:
            return False


class TableOf(Form):
    """A table with names of ``name_min`` to ``name_max`` characters, whose values have one form. It becomes a tuple of
    pairs.
    """

    takes = dict

    def __init__(self, items: Form, name_max: int, name_min: int = 1) -> None:
        names = {"minLength": name_min, "maxLength": name_max}
        schema = {"type": "object", "additionalProperties": items.schema, "propertyNames": names}
        super().__init__(schema, "make it a table", written=dict)
        self.items, self.name_min, self.name_max = items, name_min, name_max

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` for the first value that does not fit."""
        if type(value) is not dict:
            raise Wrong(f"is {shown(value)}", self.remedy)
        for name, item in value.items():
            if not (name.isprintable() and self.name_min <= len(name) <= self.name_max):
                count = f"{self.name_min} to {self.name_max}"
                raise Wrong(f"has the name {shown(name)}", f"give {count} printable characters")
            try:
                self.items.check(item)
            except Wrong as wrong:
                raise wrong.inside(step_of(name)) from None

    def make(self, value: Any) -> Any:
        """The pairs of names and made values."""
        return tuple((name, _made(self.items, item, step_of(name))) for name, item in value.items())


class Either(Form):
    """A value of the form that takes its type, or else of the first form."""

    def __init__(self, *forms: Form, **more: Any) -> None:
        super().__init__({"anyOf": [form.schema for form in forms]}, forms[0].remedy, **more)
        self.forms = forms

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` as the form that takes the value does."""
        self._of(value).check(value)

    def make(self, value: Any) -> Any:
        """The result of ``convert``, or else of the form that takes the value."""
        return self.convert(value) if self.convert else self._of(value).make(value)

    def _of(self, value: Any) -> Form:
        return next((form for form in self.forms if type(value) is form.takes), self.forms[0])


def _all_fit(form: Form, column: list[Any]) -> bool:
    types = set(map(type, column))
    if types <= {str, NoneType}:
        # Check equal texts only once. This would be wrong for other types, because True equals 1.
        return all(map(form.fits if NoneType in types else form.fits_text, set(column)))
    if types == {list} and not any(column):
        # Fast path: most records have no headers.
        return bool(form.fits([]))
    return all(map(form.fits, column))


def _made(form: Form, value: Any, step: str) -> Any:
    try:
        return form.make(value)
    except Wrong as wrong:
        raise wrong.inside(step) from None


def step_of(name: str) -> str:
    """The part of a path for this key; a strange or long key is quoted and cut."""
    return f".{name}" if re.fullmatch("[A-Za-z0-9_-]{1,60}", name) else f".{shown(name)}"


# --- classes as forms -----------------------------------------------------------------------------------------------


def declared(cls: type) -> dict[str, tuple[Form, str]]:
    """Each attribute that a class declares as ``Annotated[type, form]``, with its name in the document.

    A text after the form is that name if it differs from the attribute's.
    """
    hints = get_type_hints(cls, include_extras=True).items()
    found = {attribute: get_args(hint)[1:] for attribute, hint in hints if get_origin(hint) is Annotated}
    return {attribute: (form, name[0] if name else attribute) for attribute, (form, *name) in found.items()}


@cache
def object_of(cls: type) -> Object:
    """The form of a dataclass or TypedDict. A key is required if the class has no default for it, or requires it."""
    if is_dataclass(cls):
        needed = {one.name for one in fields(cls) if one.default is MISSING and one.default_factory is MISSING}
    else:
        needed = set(getattr(cls, "__required_keys__"))  # noqa: B009
    keys = declared(cls)
    required = [name for attribute, (_, name) in keys.items() if attribute in needed]
    return Object({name: form for form, name in keys.values()}, required)


@cache
def table_of(cls: type) -> Object:
    """The form of a table of TOML that becomes an object of the dataclass ``cls``.

    Its schema has the first paragraph of the docstring as a description, and the defaults.
    """
    plain = object_of(cls)
    # The table has keys only for attributes that have a form.
    defaults = {one.name: one.default for one in fields(cls) if one.name in plain.keys and one.default is not MISSING}
    about = " ".join((cls.__doc__ or "").split("\n\n")[0].split()).replace("``", "")
    return table(about, plain.keys, plain.required, defaults, lambda values: cls(**values))


def table(
    about: str, keys: Mapping[str, Form], required: Iterable[str], defaults: Json, convert: Callable[[Json], Any]
) -> Object:
    """The form of a table of TOML that ``convert`` makes something of; its schema has ``about`` and the defaults."""
    made = Object(keys, required, "make it a table", convert=convert)
    for name, default in defaults.items():
        form = keys[name]
        written = form.written(default) if form.written and default is not None else default
        # A nested table, and a value that is decided later, do not fit.
        if form.fits(written):
            made.schema["properties"][name] = {**form.schema, "default": written}
    made.schema = {"description": about, **made.schema}
    return made


# --- words ----------------------------------------------------------------------------------------------------------


def shown(value: Any, width: int = 60) -> str:
    """The value as JSON, cut to ``width`` characters, for use in a sentence. Bytes are hex."""
    text = json.dumps(value, ensure_ascii=True, default=lambda one: one.hex() if isinstance(one, bytes) else str(one))
    return text if len(text) <= width else text[:width] + "…"


def nearest(key: str, known: Iterable[str]) -> str:
    """``did you mean …?`` with the most similar known key; empty if none is similar."""
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""
