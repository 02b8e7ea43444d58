"""Finds definitions: those of the Kafka releases that kfuzz carries, and those in a jar, a folder or a file.

A catalogue is one file with the definitions of one release, reduced to facts: names, types, versions, flags. It is
written in the definition language, so that one parser reads all sources. Each release has two catalogues. One has what
the clients' jar defines. The other has the records that the broker's jars define, which are kept in logs and not sent.
"""

from __future__ import annotations

import json
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, NoReturn

from kfuzz.documents import JSON_BYTES_MAX
from kfuzz.errors import UsageError
from kfuzz.files import read_small
from kfuzz.kafka import LATEST, RELEASES
from kfuzz.messages.language import definition_of, parse_definition, parse_versions
from kfuzz.messages.model import Definition, Field, Versions
from kfuzz.messages.text import Node, parse
from kfuzz.text import foreign_text

FORMAT: Final = "kfuzz-messages/1"
# The name of the catalogue with each release's records: what the broker's jars define for logs and files.
RECORDS: Final[Mapping[str, str]] = {release: f"records-{release}" for release in RELEASES}
CARRIED: Final = (*RELEASES, *RECORDS.values())
# The folders of a jar that hold definitions. Those of the metadata log have a folder of their own.
FOLDERS: Final = ("message", "metadata")
# A jar can claim any size for a member. All definitions of a Kafka have a tenth of this size.
MOST_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True)
class Catalogue:
    """Definitions by name, sorted by name. ``source`` says in errors where they come from.

    ``beside`` is the name of the carried catalogue with the same release's records, or empty if there is none.
    """

    source: str
    messages: Mapping[str, Definition]
    beside: str = ""

    @cached_property
    def _by_case(self) -> dict[str, str]:
        # Names only: a definition is read on first use.
        return {name.lower(): name for name in self.messages}

    def find(self, name: str) -> Definition:
        """The definition called ``name``. Case does not matter, and the ending ``Request`` may be left out.

        Looks among the records of the same release if this catalogue does not have the name. Raises ``UsageError`` if
        neither has it.
        """
        found = self._named(name)
        if found is None and self.beside:
            found = catalogue(self.beside)._named(name)
        if found is None:
            raise UsageError(f"{self.source} has no message called {name!r}{self._hint(name.lower())}")
        return found

    def _named(self, name: str) -> Definition | None:
        if name in self.messages:
            return self.messages[name]
        wanted = name.lower()
        known = self._by_case.get(wanted) or self._by_case.get(f"{wanted}request")
        return None if known is None else self.messages[known]

    def _hint(self, wanted: str) -> str:
        known = [*self.messages, *(catalogue(self.beside).messages if self.beside else ())]
        if near := [name for name in known if wanted in name.lower()][:5]:
            return f"; similar names are {', '.join(near)}"
        # A person who mistypes Fetch may leave out its ending, too.
        short = {name.lower().removesuffix("request"): name for name in known}
        if typed := get_close_matches(wanted.removesuffix("request"), short, n=1, cutoff=0.8):
            return f"; did you mean {short[typed[0]]}?"
        return "; `kfuzz messages list` shows all" + (
            f", and with --definitions {self.beside} the records" if self.beside else ""
        )


@cache
def catalogue(name: str = LATEST) -> Catalogue:
    """A catalogue that kfuzz carries: a release's messages, or its records. Raises ``UsageError`` for other names.

    >>> from kfuzz.messages.catalogues import catalogue
    >>> str(catalogue("4.4.0").find("Fetch").valid_versions)
    '4-18'
    >>> catalogue("records-4.4.0").find("TopicRecord").kind
    'metadata'
    """
    if name not in CARRIED:
        raise UsageError(f"there is no catalogue of Kafka {name}; take one of {', '.join(CARRIED)}, or a jar or folder")
    return Catalogue(name, _Carried(name), RECORDS.get(name, ""))


@cache
def requests_by_key() -> Mapping[int, Definition]:
    """The requests of all releases by their API keys, each from the newest release that has it."""
    found: dict[int, Definition] = {}
    for release in RELEASES:
        for one in catalogue(release).messages.values():
            if one.kind == "request" and one.api_key is not None:
                found[one.api_key] = one
    return found


def valid_versions(name: str) -> dict[str, Versions]:
    """The valid versions of each message in a carried catalogue. Much faster than reading its definitions."""
    return {message: parse_versions(said["validVersions"]) for message, (_, said) in _messages_by_line(name).items()}


@cache
def _messages_by_line(name: str) -> dict[str, tuple[int, dict[str, Any]]]:
    """Each message of a carried catalogue: its line in the file, and its JSON, which is not checked yet."""
    path = _path_of(name)
    # `condense` writes the head on the first line and each message on a line of its own. The standard library's parser
    # is far faster than the one that keeps lines.
    return {
        message["name"]: (line, message) for line, message in enumerate(json.loads(path.read_bytes())["messages"], 2)
    }


def _path_of(name: str) -> Path:
    return Path(__file__).with_name("definitions") / f"{name}.json"


class _Carried(Mapping[str, Definition]):
    """The definitions of a catalogue that kfuzz carries.

    Each definition is read on first use: most programs need a few, and reading all 200 takes 0.07 s.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._messages_by_line = _messages_by_line(name)
        self._read: dict[str, Definition] = {}

    def __getitem__(self, message: str) -> Definition:
        definition = self._read.get(message)
        if definition is None:
            line, said = self._messages_by_line[message]
            definition = self._read[message] = definition_of(_node(said, line), str(_path_of(self._name)))
        return definition

    def __contains__(self, message: object) -> bool:
        # The base class would read the definition.
        return message in self._messages_by_line

    def __iter__(self) -> Iterator[str]:
        return iter(self._messages_by_line)

    def __len__(self) -> int:
        return len(self._messages_by_line)


def _node(value: Any, line: int) -> Node:
    """The value as ``text.parse`` returns it. All of its nodes are on one line."""
    if isinstance(value, dict):
        return Node({key: _node(member, line) for key, member in value.items()}, line)
    if isinstance(value, list):
        return Node([_node(member, line) for member in value], line)
    return Node(value, line)


def newest(name: str, version: int) -> Definition:
    """The definition in the newest release that has ``version`` of the message; ``UsageError`` if no release has it."""
    for release in reversed(RELEASES):
        for source in (release, RECORDS[release]):
            definition = catalogue(source).messages.get(name)
            if definition is not None and version in definition.valid_versions:
                return definition
    raise UsageError(f"no Kafka from {RELEASES[0]} to {LATEST} has version {version} of a message called {name!r}")


def has_same_names(release: str, name: str, version: int) -> bool:
    """Whether the release has ``version`` of the message, with the same field names as the newest release.

    Kafka sometimes renames a field of a released version. Then the bytes stay the same, but the JSON form changes.
    """
    definition = catalogue(release).messages.get(name)
    if definition is None or version not in definition.valid_versions:
        return False
    return _names(definition, version) == _names(newest(name, version), version)


def _names(definition: Definition, version: int) -> dict[str, list[str]]:
    """The names of the fields in one version: of each struct by its name, and of the message by an empty name."""
    parts = {"": definition.fields} | {name: struct.fields for name, struct in definition.structs.items()}
    return {name: [field.name for field in fields if version in field.versions] for name, fields in parts.items()}


def load(source: str | Path, *, tags_may_end: bool = False) -> Catalogue:
    """The definitions in a jar, a folder of JSON files, a catalogue, or one file.

    Raises ``UsageError`` if a definition is wrong. For ``tags_may_end`` see ``parse_definition``.
    """
    path = Path(source)
    if path.is_dir():
        texts, left = {}, MOST_BYTES
        for file in sorted(path.rglob("*.json")):
            data = read_small(file, bytes_max=left)
            left -= len(data)
            texts[str(file)] = _text(data, str(file))
        return _catalogue(str(path), texts, tags_may_end)
    if not path.is_file():
        raise UsageError(f"{path} is neither a file nor a folder; name a jar, a folder of definitions, or a catalogue")
    if zipfile.is_zipfile(path):
        return _catalogue(str(path), _members(path), tags_may_end)
    return _condensed(path, tags_may_end)


def _members(path: Path) -> dict[str, str]:
    """The texts of a jar's definitions: all JSON files in the folders where Kafka's jars have definitions."""
    texts, left = {}, MOST_BYTES
    try:
        with zipfile.ZipFile(path) as jar:
            for member in sorted(jar.namelist()):
                if member.endswith(".json") and Path(member).parent.name in FOLDERS:
                    left -= jar.getinfo(member).file_size
                    if left < 0:
                        raise UsageError(
                            f"{path}: up to {member}, its definitions have more than {MOST_BYTES} bytes; name a jar of "
                            "Kafka's"
                        )
                    texts[f"{path.name}/{member}"] = _text(jar.read(member), f"{path}: {member}")
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise UsageError(f"{path} cannot be read as a jar: {foreign_text(error)}; fetch it again") from None
    return texts


def _text(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: byte {error.start} is not UTF-8; save the definition as UTF-8") from None


def _catalogue(source: str, texts: Mapping[str, str], tags_may_end: bool) -> Catalogue:
    if not texts:
        raise UsageError(
            f"{source} has no definitions; name a jar or folder with files such as message/FetchRequest.json"
        )
    return _named(
        source, [(file, parse_definition(text, file, tags_may_end=tags_may_end)) for file, text in texts.items()]
    )


def _named(source: str, definitions: Iterable[tuple[str, Definition]]) -> Catalogue:
    messages: dict[str, Definition] = {}
    files: dict[str, str] = {}
    for file, definition in definitions:
        if definition.name in messages:
            raise UsageError(f"{file}: {definition.name} is defined twice in {source}; remove one of them")
        messages[definition.name] = definition
        files[definition.name] = file
    _require_pairs(messages, files)
    return Catalogue(source, dict(sorted(messages.items())))


def _require_pairs(messages: Mapping[str, Definition], files: Mapping[str, str]) -> None:
    """Check that requests have different numbers, and responses the number and versions of their requests.

    ``files`` has the file of each message, for errors. A request without a response is allowed, and the reverse.
    Records are not checked: each log numbers its own records, and a catalogue has several logs.
    """

    def refuse(name: str, problem: str) -> NoReturn:
        raise UsageError(f"{files[name]}: {name} {problem}")

    known: dict[tuple[str, int], Definition] = {}
    for name in sorted(messages):
        one = messages[name]
        if one.kind not in ("request", "response") or one.api_key is None:
            continue
        first = known.setdefault((one.kind, one.api_key), one)
        if first is not one:
            refuse(name, f"has apiKey {one.api_key}, like {first.name}; give each {one.kind} a number of its own")
    for (kind, key), response in known.items():
        if kind == "request":
            continue
        called = response.name.removesuffix("Response") + "Request"
        if called not in messages:
            if other := known.get(("request", key)):
                refuse(
                    response.name,
                    f"has apiKey {key} like {other.name}; a response must be named after its request",
                )
            continue
        request = messages[called]
        if request.api_key != key:
            refuse(response.name, f"has apiKey {key}, but {called} has {request.api_key}; give both the same")
        if request.valid_versions != response.valid_versions:
            refuse(
                response.name,
                f"has validVersions {response.valid_versions}, but {called} has {request.valid_versions}; "
                "give both the same",
            )


def _condensed(path: Path, tags_may_end: bool) -> Catalogue:
    text = _text(read_small(path, bytes_max=JSON_BYTES_MAX, follow=True), str(path))
    root = parse(text, str(path))
    members = root.value if isinstance(root.value, dict) else {}
    if "format" not in members or members["format"].value != FORMAT or "messages" not in members:
        if "name" in members:
            return _catalogue(str(path), {str(path): text}, tags_may_end)
        raise UsageError(f"{path} is neither a catalogue nor a definition; make one with `kfuzz messages import`")
    lines = members["messages"].value
    if not isinstance(lines, list) or not lines:
        line = members["messages"].line
        raise UsageError(f"{path}:{line}: messages must be a list of definitions; make the catalogue again")
    return _named(
        path.stem,
        [(f"{path}:{node.line}", definition_of(node, str(path), tags_may_end=tags_may_end)) for node in lines],
    )


# ------------------------------------------------------------------------------------------------- condensing


def condense(catalogues: Iterable[Catalogue], release: str) -> bytes:
    """One catalogue file with all definitions, a message per line, sorted by name. Equal input gives equal bytes."""
    messages: dict[str, Definition] = {}
    sources: dict[str, str] = {}
    for one in catalogues:
        for name, definition in one.messages.items():
            if messages.setdefault(name, definition) != definition:
                raise UsageError(f"{one.source} defines {name} differently from the one before; import them one by one")
            sources.setdefault(name, one.source)
    _require_pairs(messages, sources)
    lines = [_compact(message_of(messages[name])) for name in sorted(messages)]
    head = f'{{"format": "{FORMAT}", "kafka": {json.dumps(release)}, "messages": [\n'
    return (head + ",\n".join(lines) + "\n]}\n").encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def message_of(definition: Definition) -> dict[str, Any]:
    """The definition as JSON in the definition language, without default values and prose."""
    inline = _inline(definition)

    def fields_of(fields: Iterable[Field]) -> list[dict[str, Any]]:
        return [_field_of(field, definition, inline) for field in fields]

    common = [struct for name, struct in definition.structs.items() if name not in inline]
    return _given(
        name=definition.name,
        type=definition.kind,
        apiKey=definition.api_key,
        validVersions=str(definition.valid_versions),
        deprecatedVersions=_some(definition.deprecated_versions),
        flexibleVersions=str(definition.flexible_versions),
        latestVersionUnstable=definition.latest_version_unstable or None,
        listeners=list(definition.listeners) or None,
        fields=fields_of(definition.fields),
        commonStructs=[
            {"name": struct.name, "versions": str(struct.versions), "fields": fields_of(struct.fields)}
            for struct in common
        ]
        or None,
    )


def _given(**members: Any) -> dict[str, Any]:
    """The members of an object that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def _some(versions: Versions) -> str | None:
    return str(versions) if versions else None


def _inline(definition: Definition) -> set[str]:
    """The structs that a field defines inline, because only that field uses them."""
    groups = [definition.fields, *(struct.fields for struct in definition.structs.values())]
    uses = Counter(field.type.struct for fields in groups for field in fields)
    return {name for name, struct in definition.structs.items() if uses[name] == 1 and not struct.common}


def _field_of(field: Field, definition: Definition, inline: set[str]) -> dict[str, Any]:
    own = definition.fields_of(field.type) if field.type.struct in inline else None
    return _given(
        name=field.name,
        type=str(field.type),
        versions=str(field.versions),
        nullableVersions=_some(field.nullable),
        tag=field.tag,
        taggedVersions=None if field.tag is None else str(field.tagged),
        default=_default_of(field),
        ignorable=field.ignorable or None,
        mapKey=field.map_key or None,
        zeroCopy=field.zero_copy or None,
        entityType=field.entity_type,
        flexibleVersions=None if field.flexible is None else str(field.flexible),
        fields=None if own is None else [_field_of(inner, definition, inline) for inner in own],
    )


def _default_of(field: Field) -> str | None:
    """The default as the language writes it. None if it is the type's own."""
    if field.null_default:
        return None if str(field.type) == "records" else "null"
    if field.default in (None, "", 0, False):
        return None
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
