"""Parses Kafka's message-definition language: text becomes a checked ``Definition``.

The rules are those of ``org.apache.kafka.message`` (``MessageSpec``, ``FieldSpec``, ``StructSpec``, ``StructRegistry``,
``EntityType``), and further rules of the language's document. A wrong definition raises ``UsageError``: one sentence
with file, line, field and remedy.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from kfuzz.errors import UsageError
from kfuzz.messages.model import (
    INT_RANGES,
    KINDS,
    LAST_VERSION,
    NONE,
    PRIMITIVES,
    Default,
    Definition,
    Field,
    Struct,
    Type,
    Versions,
    key_of,
)
from kfuzz.messages.text import Node, parse
from kfuzz.text import foreign_text

LISTENERS: Final = ("broker", "controller", "zkBroker")
# The entity types of fields, and the type that each requires.
ENTITY_TYPES: Final[Mapping[str, str]] = {
    "transactionalId": "string",
    "producerId": "int64",
    "groupId": "string",
    "topicName": "string",
    "brokerId": "int32",
}
# The kinds with an ``apiKey``: requests, responses, and records of the metadata log and of coordinators' logs.
KEYED: Final = ("request", "response", "metadata", "coordinator-key", "coordinator-value")

_MESSAGE_KEYS: Final = {
    "name": str, "type": str, "apiKey": int, "validVersions": str, "flexibleVersions": str, "deprecatedVersions": str,
    "latestVersionUnstable": bool, "listeners": list, "fields": list, "commonStructs": list, "about": str,
}  # fmt: skip
_STRUCT_KEYS: Final = {"name": str, "versions": str, "deprecatedVersions": str, "fields": list, "about": str}
_FIELD_KEYS: Final = {
    "name": str, "type": str, "versions": str, "nullableVersions": str, "default": None, "ignorable": bool, "tag": None,
    "taggedVersions": str, "mapKey": bool, "entityType": str, "about": str, "fields": list, "flexibleVersions": str,
    "zeroCopy": bool,
}  # fmt: skip
_WORDS: Final = {str: "a string", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}

_VERSIONS: Final = re.compile(r"(\d{1,5})(?:(\+)|-(\d{1,5}))?")
_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_STRUCT_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
# Structs are visited recursively, so their number is limited. Each of Kafka's definitions has fewer than 20.
_MOST_STRUCTS: Final = 100
# How many structs the default of a struct may contain. Kafka's largest contains a handful.
_MOST_HELD: Final = 1000
# The largest tag has this many digits.
_LONGEST_TAG: Final = 10
# Decimal, hexadecimal after 0x, or octal after 0. Java's parsers do not accept underscores.
_INTEGER: Final = re.compile(r"([+-]?)(?:0[xX]([0-9A-Fa-f]+)|0([0-7]+)|(0|[1-9]\d*))")


def parse_versions(text: str) -> Versions:
    """Parse ``"3"``, ``"1-4"``, ``"2+"``, ``"none"`` or an empty text. Mirrors ``Versions.parse``.

    Raises ``ValueError`` for anything else.

    >>> from kfuzz.messages import parse_versions
    >>> list(parse_versions("1-4"))
    [1, 2, 3, 4]
    >>> parse_versions("2+").open
    True
    """
    if text.strip() in ("", "none"):
        return NONE
    found = _VERSIONS.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'"{text}" is not a range of versions; write "3", "1-4", "2+" or "none"')
    lowest = int(found[1])
    highest = LAST_VERSION if found[2] else int(found[3] or lowest)
    if highest < lowest:
        raise ValueError(f'"{text}" ends before it begins; write "{highest}-{lowest}"')
    if highest > LAST_VERSION:
        raise ValueError(f'"{text}" goes beyond {LAST_VERSION}; a version is an int16')
    return Versions(lowest, highest)


def parse_definition(text: str, file: str = "definition", *, tags_may_end: bool = False) -> Definition:
    """Parse the definition of a message. Raises ``UsageError`` if it is wrong, with ``file`` as the file's name.

    Kafka's generator refuses tagged versions that end, and gaps between tags, although the document allows a tagged
    field to end. ``tags_may_end`` accepts both; a comparison of two definitions then warns of them.

    >>> from kfuzz.messages import parse_definition
    >>> fields = '[{"name": "Id", "type": "int32", "versions": "0+"}]'
    >>> order = '{"name": "Order", "type": "data", "validVersions": "0-1", "flexibleVersions": "0+", "fields": %s}'
    >>> definition = parse_definition(order % fields)
    >>> definition.name, str(definition.valid_versions), [field.name for field in definition.fields]
    ('Order', '0-1', ['Id'])
    """
    return definition_of(parse(text, file), file, tags_may_end=tags_may_end)


def definition_of(root: Node, file: str, *, tags_may_end: bool = False) -> Definition:
    """The message defined at ``root``. The file may define others too."""
    return _Reader(file, tags_may_end).message(root)


@dataclass(frozen=True, slots=True)
class _Object:
    """A JSON object of a definition: its members by name, its file and line, and its path for errors."""

    members: Mapping[str, Node]
    file: str
    line: int
    path: str

    def get(self, key: str, missing: Any = None) -> Any:
        return self.members[key].value if key in self.members else missing

    def required(self, key: str, what: str) -> Any:
        if key not in self.members:
            self.fail(key, f'"{key}" is missing; {what}')
        return self.get(key)

    def versions(self, key: str, missing: Versions = NONE) -> Versions:
        if key not in self.members:
            return missing
        try:
            return parse_versions(self.get(key))
        except ValueError as error:
            self.fail(key, f"{key} {error}")

    def fail(self, key: str, what: str) -> NoReturn:
        """Refuse the member ``key``; without it, the whole object."""
        _fail(self.file, self.members.get(key, self).line, self.path, what)


def _fail(file: str, line: int, path: str, what: str) -> NoReturn:
    raise UsageError(f"{file}:{line}: {foreign_text(f'{path}: {what}' if path else what)}")


class _Reader:
    def __init__(self, file: str, tags_may_end: bool) -> None:
        self.file = file
        self.tags_may_end = tags_may_end
        self.structs: dict[str, Struct] = {}
        self.common: set[str] = set()
        # Structs that fields use before their definition, each with the field.
        self.named: list[tuple[str, _Object]] = []
        self.flexible = NONE

    def fail(self, line: int, path: str, what: str) -> NoReturn:
        _fail(self.file, line, path, what)

    def object(self, node: Node, keys: Mapping[str, type | None], path: str) -> _Object:
        """``node`` as an object. It may have only the members of ``keys``, each of its type."""
        if not isinstance(node.value, dict):
            self.fail(node.line, path, f"expected an object in braces, found {_name_of(node.value)}")
        given = _Object(node.value, self.file, node.line, path)
        for key, member in node.value.items():
            if key not in keys:
                near = difflib.get_close_matches(key, keys, 1, 0.6)
                hint = f'did you mean "{near[0]}"' if near else f"take one of {', '.join(keys)}"
                given.fail(key, f'"{key}" is not known here; {hint}')
            wanted = keys[key]
            if wanted is not None and type(member.value) is not wanted:
                given.fail(key, f'"{key}" is {_name_of(member.value)}; it must be {_WORDS[wanted]}')
        return given

    # -- the message

    def message(self, root: Node) -> Definition:
        given = self.object(root, _MESSAGE_KEYS, "")
        name = given.required("name", 'add "name", such as "FetchRequest"')
        if not _STRUCT_NAME.fullmatch(name):
            given.fail("name", f'the name "{name}" must be a capital letter and then letters and digits')
        given = replace(given, path=name)
        kind = given.required("type", f'add "type": one of {", ".join(KINDS)}')
        if kind not in KINDS:
            given.fail("type", f'type "{kind}" does not exist; take one of {", ".join(KINDS)}')
        for suffix in ("Request", "Response"):
            if kind == suffix.lower() and not name.endswith(suffix):
                given.fail("name", f'the name of a {kind} ends with "{suffix}"; call it {name}{suffix}')
        valid = self.valid_versions(given)
        key = self.api_key(given, kind)
        self.flexible = self.flexible_versions(given, valid)
        for node in given.get("commonStructs", []):
            self.common_struct(node)
        fields = self.fields(given, name, valid, required=bool(valid))
        for struct_name, user in self.named:
            if struct_name not in self.structs:
                what = f'there is no struct "{struct_name}"'
                user.fail("type", f'{what}; give the field "fields", or define it in commonStructs')
        if len(self.structs) > _MOST_STRUCTS:
            self.fail(given.line, name, f"there are {len(self.structs)} structs; at most {_MOST_STRUCTS} are allowed")
        self.refuse_endless_structs(given)
        return Definition(
            name=name,
            kind=kind,
            api_key=key,
            valid_versions=valid,
            flexible_versions=self.flexible,
            fields=fields,
            structs=self.structs,
            deprecated_versions=self.deprecated(given, valid),
            latest_version_unstable=self.only_for(given, "latestVersionUnstable", kind, missing=False),
            listeners=self.listeners(given, kind),
        )

    def valid_versions(self, given: _Object) -> Versions:
        given.required("validVersions", 'add "validVersions", such as "0-3"; "none" for a removed message')
        valid = given.versions("validVersions")
        if valid.open:
            such = f"{valid.lowest}-{valid.lowest + 1}"
            given.fail(
                "validVersions", f'validVersions "{valid}" has no end; name the highest version, such as "{such}"'
            )
        return valid

    def api_key(self, given: _Object, kind: str) -> int | None:
        if kind not in KEYED:
            if "apiKey" in given.members:
                given.fail("apiKey", f"a message of type {kind} has no apiKey; take it out")
            return None
        key = int(given.required("apiKey", f'a {kind} needs a number; add "apiKey"'))
        if not 0 <= key <= LAST_VERSION:
            given.fail("apiKey", f"apiKey is {key}; it must be from 0 to {LAST_VERSION}")
        return key

    def flexible_versions(self, given: _Object, valid: Versions) -> Versions:
        if not valid and "flexibleVersions" not in given.members:
            return NONE
        given.required("flexibleVersions", 'add "flexibleVersions": "0+" for a new message, "none" for an old one')
        flexible = given.versions("flexibleVersions")
        self.require_open(given, "flexibleVersions", flexible, "because flexible versions stay flexible")
        return flexible

    def require_open(self, given: _Object, key: str, versions: Versions, why: str) -> None:
        if versions and not versions.open:
            given.fail(key, f'{key} "{versions}" ends; write "{versions.lowest}+", {why}')

    def deprecated(self, given: _Object, valid: Versions) -> Versions:
        found = given.versions("deprecatedVersions")
        if not found <= valid:
            what = f'deprecatedVersions "{found}" go beyond validVersions "{valid}"; shorten them'
            given.fail("deprecatedVersions", what)
        return found

    def only_for(self, given: _Object, key: str, kind: str, *, missing: Any) -> Any:
        if kind != "request" and given.get(key, missing) != missing:
            given.fail(key, f'only requests have "{key}"; take it out of this {kind}')
        return given.get(key, missing)

    def listeners(self, given: _Object, kind: str) -> tuple[str, ...]:
        names = []
        for node in self.only_for(given, "listeners", kind, missing=[]):
            if node.value not in LISTENERS:
                found = node.value if isinstance(node.value, str) else _name_of(node.value)
                self.fail(node.line, given.path, f'listener "{found}" does not exist; use {", ".join(LISTENERS)}')
            if node.value in names:
                self.fail(node.line, given.path, f'listener "{node.value}" is given twice; keep one')
            names.append(node.value)
        return tuple(names)

    def common_struct(self, node: Node) -> None:
        given = self.object(node, _STRUCT_KEYS, "commonStructs")
        name = given.required("name", "a common struct needs a name; add it")
        self.require_struct_name(given, name)
        given = replace(given, path=name)
        if name in self.structs:
            given.fail("name", "the common struct is defined twice; keep one of them")
        given.required("versions", 'add "versions", such as "0+"')
        versions = given.versions("versions")
        # The name is registered before the fields are read, because the fields may refer to it.
        self.structs[name] = Struct(name, versions, (), common=True)
        self.common.add(name)
        fields = self.fields(given, name, versions, required=True)
        self.structs[name] = Struct(name, versions, fields, common=True)

    def require_struct_name(self, given: _Object, name: str) -> None:
        if not _STRUCT_NAME.fullmatch(name) or name.lower() in PRIMITIVES:
            rule = "use a capital letter, then letters and digits; primitives are taken"
            given.fail("name", f'"{name}" cannot name a struct; {rule}')

    def refuse_endless_structs(self, given: _Object) -> None:
        """Refuse structs whose default value would be endless or huge.

        A struct may hold itself only through an array, or through a field that is null by default. If each struct holds
        the next one twice, the default grows exponentially.
        """
        # How many structs the default of each struct contains; 0 while they are being counted.
        held: dict[str, int] = {}

        def visit(name: str) -> int:
            if name not in held:
                held[name] = 0
                held[name] = 1 + sum(
                    visit(field.type.struct)
                    for field in self.structs[name].fields
                    if field.type.struct and not field.type.array and not field.null_default
                )
            elif held[name] == 0:
                self.fail(given.line, name, "the struct holds itself; put it in an array, or let its default be null")
            if held[name] > _MOST_HELD:
                self.fail(given.line, name, f"the struct has more than {_MOST_HELD} structs; put some in an array")
            return held[name]

        for name in self.structs:
            visit(name)

    # -- fields

    def fields(self, given: _Object, path: str, versions: Versions, *, required: bool) -> tuple[Field, ...]:
        if required:
            given.required("fields", "add the list of fields, empty if there are none")
        made: list[Field] = []
        for node in given.get("fields", []):
            field = self.field(node, path, versions)
            here = f"{path}.{field.name}"
            for other in made:
                if key_of(other.name) == key_of(field.name):
                    self.fail(field.line, here, f"the field of line {other.line} has the same name; rename one")
                if field.tag is not None and other.tag == field.tag:
                    what = f"tag {field.tag} belongs to {other.name}; take one that was never used"
                    self.fail(field.line, here, what)
            made.append(field)
        if not self.tags_may_end:
            self.require_tags_in_a_row(made, path)
        for field in made:
            if field.map_key and field.tag is not None:
                what = 'a tagged field cannot be a map key; take out "tag" or "mapKey"'
                self.fail(field.line, f"{path}.{field.name}", what)
        return tuple(made)

    def require_tags_in_a_row(self, fields: Iterable[Field], path: str) -> None:
        tagged = sorted((field.tag, field) for field in fields if field.tag is not None)
        for i, (tag, field) in enumerate(tagged):
            if tag != i:
                # The text does not say "take i": a removed field may have had tag i, and no other field may get it.
                self.fail(
                    field.line,
                    f"{path}.{field.name}",
                    f"there is a tag {tag} but no tag {i}; put the field of tag {i} back if any release had one, "
                    "otherwise number the tags from 0 without gaps",
                )

    def field(self, node: Node, path: str, parent: Versions) -> Field:
        known = node.value.get("name") if isinstance(node.value, dict) else None
        called = f"{path}.{known.value}" if known is not None and isinstance(known.value, str) else path
        given = self.object(node, _FIELD_KEYS, called)
        name = given.required("name", "a field needs a name; add it")
        if not _FIELD_NAME.fullmatch(name):
            rule = "use a letter, then letters and digits"
            replace(given, path=path).fail("name", f'"{name}" cannot name a field; {rule}')
        type_ = self.type(given)
        # A tagged field without ``versions`` exists in its tagged versions.
        tagged = given.versions("taggedVersions")
        if not tagged:
            given.required("versions", 'add "versions", such as "0+"')
        versions = given.versions("versions", tagged)
        nullable = self.nullable(given, type_, versions)
        tag, tagged = self.tag(given, versions, nullable)
        self.inner_struct(given, type_, versions & parent)
        default, null_default = self.default(given, type_, versions, nullable)
        return Field(
            name=name,
            type=type_,
            versions=versions,
            nullable=nullable,
            tag=tag,
            tagged=tagged,
            default=default,
            null_default=null_default,
            ignorable=given.get("ignorable", False),
            map_key=self.map_key(given, type_),
            entity_type=self.entity_type(given, type_),
            flexible=self.own_flexible(given, type_),
            zero_copy=self.zero_copy(given, type_),
            about=given.get("about", ""),
            line=given.line,
        )

    def type(self, given: _Object) -> Type:
        text = given.required("type", f'add "type": {", ".join(PRIMITIVES)}, a struct, or an array of one')
        name = text.removeprefix("[]")
        type_ = Type(name, text.startswith("[]"))
        if name.startswith("[]"):
            given.fail("type", f'type "{text}" is an array of arrays; put a struct in between')
        if name == "records" and type_.array:
            given.fail("type", 'type "[]records" does not exist; put the records into a struct')
        if type_.struct is not None and not _STRUCT_NAME.fullmatch(name):
            near = difflib.get_close_matches(name.lower(), PRIMITIVES, 1, 0.5)
            hint = f'did you mean "{text.replace(name, near[0])}"' if near else "structs begin with a capital letter"
            given.fail("type", f'type "{text}" does not exist; {hint}')
        return type_

    def inner_struct(self, given: _Object, type_: Type, versions: Versions) -> None:
        """Register the struct that a field defines, if it defines one."""
        name = type_.struct
        if name is None:
            if given.get("fields"):
                remedy = "take them out, or name a struct as its type"
                given.fail("fields", f'a field of type "{type_}" has no fields; {remedy}')
        elif name in self.common:
            if given.get("fields"):
                given.fail("fields", f"the fields of {name} are in commonStructs; take them out here")
        elif "fields" not in given.members:
            self.named.append((name, given))
        elif name in self.structs:
            given.fail("fields", f"the struct {name} is defined twice; move it to commonStructs, or rename one")
        else:
            self.require_struct_name(given, name)
            self.structs[name] = Struct(name, versions, ())
            made = self.fields(given, given.path, versions, required=True)
            self.structs[name] = Struct(name, versions, made)

    def nullable(self, given: _Object, type_: Type, versions: Versions) -> Versions:
        nullable = given.versions("nullableVersions")
        if nullable and not type_.nullable:
            what = f'a field of type "{type_}" cannot be null; take out "nullableVersions"'
            given.fail("nullableVersions", what)
        return nullable & versions if versions else nullable

    def tag(self, given: _Object, versions: Versions, nullable: Versions) -> tuple[int | None, Versions]:
        tagged = given.versions("taggedVersions")
        tag = given.get("tag")
        key = "tag" if "tag" in given.members else "taggedVersions"
        if tag is None:
            if tagged:
                given.fail(key, f'taggedVersions "{tagged}" need a tag; add "tag", or take them out')
            return None, NONE
        # One definition of Kafka 3.9 gives its tag as a string, and Kafka's own parser accepts it.
        if isinstance(tag, str) and tag.isdecimal() and len(tag) <= _LONGEST_TAG:
            tag = int(tag)
        if type(tag) is not int:
            given.fail(key, f'"tag" is {_name_of(tag)}; it must be a whole number')
        if not 0 <= tag < 1 << 31:
            given.fail(key, f"tag {tag} is out of range; take the lowest that was never used, from 0 on")
        if not tagged:
            given.fail(key, f'tag {tag} needs versions; add "taggedVersions", such as "{versions}"')
        if not self.tags_may_end:
            self.require_open(given, "taggedVersions", tagged, "and leave the field unset in versions without it")
        said = f'taggedVersions "{tagged}"'
        if not tagged <= versions:
            given.fail("taggedVersions", f'{said} go beyond versions "{versions}"; shorten them')
        if not tagged <= self.flexible:
            remedy = f'keep them within flexibleVersions "{self.flexible}"'
            given.fail("taggedVersions", f"{said} are not all flexible; {remedy}")
        if nullable & tagged and not tagged <= nullable:
            what = f'nullableVersions "{nullable}" are a part of {said}; make all nullable, or none'
            given.fail("taggedVersions", what)
        return tag, tagged

    def map_key(self, given: _Object, type_: Type) -> bool:
        if not given.get("mapKey", False):
            return False
        if type_.array or type_.struct is not None or type_.name in ("records", "float64"):
            given.fail("mapKey", f'a "{type_}" cannot be a map key; take a number, string, uuid, bool or bytes')
        return True

    def entity_type(self, given: _Object, type_: Type) -> str | None:
        entity = given.get("entityType")
        if entity is None:
            return None
        wanted = ENTITY_TYPES.get(entity)
        if wanted is None:
            what = f'entityType "{entity}" does not exist; take one of {", ".join(ENTITY_TYPES)}'
            given.fail("entityType", what)
        if type_.name != wanted:
            what = f'a {entity} is of type {wanted}, but this field is a "{type_}"; change one of the two'
            given.fail("entityType", what)
        return str(entity)

    def own_flexible(self, given: _Object, type_: Type) -> Versions | None:
        if "flexibleVersions" not in given.members:
            return None
        if type_.array or type_.name not in ("string", "bytes"):
            what = f'only strings and bytes have flexibleVersions of their own, but this is "{type_}"; take them out'
            given.fail("flexibleVersions", what)
        return given.versions("flexibleVersions")

    def zero_copy(self, given: _Object, type_: Type) -> bool:
        found = bool(given.get("zeroCopy", False))
        if found and (type_.array or type_.name != "bytes"):
            given.fail("zeroCopy", f'zeroCopy is only for bytes, but this is "{type_}"; take it out')
        return found

    # -- defaults

    def default(self, given: _Object, type_: Type, versions: Versions, nullable: Versions) -> tuple[Default, bool]:
        """The default value, and whether it is null. The value is None for types whose default cannot be chosen."""
        # Two of Kafka's definitions have a bare null. Kafka's parser treats it as if it were not there.
        text = given.get("default", "")
        text = "" if text is None else text
        if isinstance(text, list | dict):
            rule = 'write a number, a string or a bool, and "null" for null'
            given.fail("default", f'"default" is {_name_of(text)}; {rule}')
        if text == "null" and type_.nullable:
            if not versions <= nullable:
                what = "the default is null, but null is not allowed in all versions"
                given.fail("default", f'{what}; make nullableVersions "{versions}"')
            return None, True
        if not type_.array:
            if type_.name in INT_RANGES:
                return self.default_integer(given, type_.name, text), False
            if type_.name == "bool":
                return self.default_flag(given, text), False
            if type_.name == "float64":
                return self.default_float(given, text), False
            if type_.name == "string":
                if not isinstance(text, str):
                    what = f"the default of a string is {_name_of(text)}; put it in quotation marks"
                    given.fail("default", what)
                return text, False
        if text != "" and not (type_.name == "uuid" and not type_.array):
            given.fail("default", f'a field of type "{type_}" can have no default but null; take out "default"')
        if type_.name == "uuid" and text:
            given.fail("default", 'the default of a uuid is all zeros; take out "default"')
        # Records without a default are null, because empty bytes are not a record batch.
        return None, type_.name == "records" and not type_.array

    def default_integer(self, given: _Object, name: str, text: Any) -> int:
        least, most = INT_RANGES[name]
        value = text
        if isinstance(text, str):
            found = _INTEGER.fullmatch(text or "0")
            if found is None:
                given.fail("default", f'the default "{text}" is not a whole number; write 12, 0xc or 014')
            digits, base = next((found[i], base) for i, base in ((2, 16), (3, 8), (4, 10)) if found[i])
            try:
                value = int(found[1] + digits, base)
            except ValueError:
                what = f"the default has {len(digits)} digits; an {name} has {len(str(most))} at most"
                given.fail("default", what)
        if type(value) is not int:
            given.fail("default", f"the default is {_name_of(value)}; it must be a whole number")
        if not least <= value <= most:
            given.fail("default", f"the default {text} does not fit an {name}; take one from {least} to {most}")
        return value

    def default_flag(self, given: _Object, text: Any) -> bool:
        if isinstance(text, bool):
            return text
        if not isinstance(text, str) or text.lower() not in ("", "true", "false"):
            given.fail("default", f'the default is {text!r}; it must be "true" or "false"')
        return text.lower() == "true"

    def default_float(self, given: _Object, text: Any) -> float:
        try:
            value = float(text or 0)
        except (TypeError, ValueError):
            value = math.inf
        if isinstance(text, bool) or not math.isfinite(value):
            given.fail("default", f'the default {text!r} is not a number; write one such as "0.5"')
        return value


def _name_of(value: Any) -> str:
    if value is None:
        return "null"
    return {
        bool: "a bool",
        int: "a number",
        float: "a number with a fraction",
        str: "a string",
        list: "a list",
        dict: "an object",
    }[type(value)]
