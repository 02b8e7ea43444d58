"""Finds what changed between two definitions of a message, and whether older peers still understand it.

Mirrors the section on incompatible changes in the definition language's document. Kafka's own checker
(``org.apache.kafka.message.checker.EvolutionVerifier``) covers a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from kfuzz.messages.model import Definition, Field, Struct, Versions

Code = Literal[
    "api-key-changed",
    "array-of-structs",
    "default-changed",
    "field-renamed",
    "fields-reordered",
    "message-lost",
    "message-renamed",
    "released-version-changed",
    "tag-changed",
    "tag-lost",
    "tag-renamed",
    "tag-reused",
    "tags-refused",
    "type-changed",
    "version-lost",
]

# The meaning of each code, and whether the change is incompatible.
CODES: Final[Mapping[Code, tuple[str, bool]]] = {
    "api-key-changed": ("the message has another number or kind", True),
    "array-of-structs": (
        "an array of primitives is now an array of structs with one such field; the bytes are the same",
        False,
    ),
    "default-changed": ("peers would not agree on what a missing field means", True),
    "field-renamed": ("the name changed; names are not sent, so the bytes are the same", False),
    "fields-reordered": ("existing fields have another order", True),
    "message-lost": ("no version of the message is left", True),
    "message-renamed": ("the name changed; names are not sent, so the bytes are the same", False),
    "released-version-changed": ("a released version has another layout", True),
    "tag-changed": ("a tagged field has another tag", True),
    "tag-lost": ("a tagged field is gone from versions that had it", True),
    "tag-renamed": ("the field of a tag has another name; the bytes are the same if the meaning is", False),
    "tag-reused": ("a tag now means something else", True),
    "tags-refused": ("Kafka's generator refuses the tags, though the document allows them", False),
    "type-changed": ("a field has another type", True),
    "version-lost": ("a released version is no longer valid", True),
}
# These are compatible, but a person should look at them.
WARNINGS: Final[frozenset[Code]] = frozenset({"tag-renamed", "tags-refused"})

# The advice to someone who no longer needs a tagged field.
_KEEP_TAG: Final = "keep the field with its tag and leave it unset, because no other field may ever have the tag"


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """A change of ``message``. ``path`` names the field, as in ``Topics.Partitions``; it is empty for the message."""

    message: str
    path: str
    code: Code
    text: str

    @property
    def incompatible(self) -> bool:
        return CODES[self.code][1]

    @property
    def weight(self) -> Literal["incompatible", "warning", "fine"]:
        if self.incompatible:
            return "incompatible"
        return "warning" if self.code in WARNINGS else "fine"

    def __str__(self) -> str:
        where = f"{self.message}.{self.path}" if self.path else self.message
        return f"{where}: {self.code}: {self.text}"


def compare_all(old: Mapping[str, Definition], new: Mapping[str, Definition]) -> list[Change]:
    """The changes of all messages in ``old``. New messages are ignored, because they break no peer.

    Messages are matched by name, or otherwise by number and kind.
    """
    numbered = {(one.kind, one.api_key or 0): one for one in new.values() if one.api_key is not None}
    unstable = {one.api_key for one in old.values() if one.kind == "request" and one.latest_version_unstable}
    changes: list[Change] = []
    for name in sorted(old):
        before = old[name]
        after = new.get(name)
        if after is None and before.api_key is not None:
            after = numbered.get((before.kind, before.api_key))
        # Only a request says that its latest version is unstable. It counts for the response too.
        is_unstable = before.kind in ("request", "response") and before.api_key in unstable
        if after is not None:
            changes += compare(before, after, latest_version_unstable=is_unstable)
        elif _released(before, is_unstable):
            changes.append(Change(name, "", "message-lost", f"versions {_released(before, is_unstable)} were released"))
    return changes


def compare(old: Definition, new: Definition, *, latest_version_unstable: bool | None = None) -> list[Change]:
    """The changes from ``old`` to ``new``, sorted by path.

    ``latest_version_unstable`` says whether the latest version of ``old`` was unstable. It is for responses, whose
    definitions do not say so.

    >>> from kfuzz.messages.catalogues import catalogue
    >>> from kfuzz.messages.evolution import compare
    >>> old, new = catalogue("3.9.2").find("TxnOffsetCommitRequest"), catalogue("4.4.0").find("TxnOffsetCommitRequest")
    >>> [str(change) for change in compare(old, new)]
    ['TxnOffsetCommitRequest.GenerationId: field-renamed: its name is now GenerationIdOrMemberEpoch']
    """
    unstable = old.latest_version_unstable if latest_version_unstable is None else latest_version_unstable
    return sorted(Change(old.name, *found) for found in _Comparison(old, new, unstable).changes())


def _released(definition: Definition, latest_version_unstable: bool) -> Versions:
    """The valid versions, without the latest one if it was unstable: that was not released yet."""
    valid = definition.valid_versions
    return valid & Versions(0, valid.highest - 1) if latest_version_unstable else valid


# A change of the message that is compared: its path, code and text.
_Found = tuple[str, Code, str]


class _Comparison:
    def __init__(self, old: Definition, new: Definition, latest_version_unstable: bool) -> None:
        self.old = old
        self.new = new
        self.released = _released(old, latest_version_unstable)

    def changes(self) -> Iterator[_Found]:
        old, new = self.old, self.new
        if old.name != new.name:
            yield "", "message-renamed", f"its name is now {new.name}"
        if (old.kind, old.api_key) != (new.kind, new.api_key):
            was, now = (f"{one.kind} {_number(one.api_key)}" for one in (old, new))
            yield "", "api-key-changed", f"{was} is now {now}"
        if self.released and not new.valid_versions:
            yield "", "message-lost", f"versions {self.released} were released"
            return
        if not self.released <= new.valid_versions:
            text = f"versions {self.released} were released, but now {new.valid_versions} are valid"
            yield "", "version-lost", text
        scope = self.released & new.valid_versions
        if any((v in old.flexible_versions) != (v in new.flexible_versions) for v in scope):
            text = f"flexibleVersions were {old.flexible_versions}, and are now {new.flexible_versions}"
            yield "", "released-version-changed", text
        yield from self.fields(old.fields, new.fields, scope, "", frozenset())

    # -- the fields of a message or a struct

    def fields(
        self, old: Sequence[Field], new: Sequence[Field], scope: Versions, path: str, inside: frozenset[str]
    ) -> Iterator[_Found]:
        pairs = _pairs(old, new, scope)
        yield from self.order([field for field in old if field.versions & scope], new, pairs, path)
        yield from self.tags(old, new, pairs, path)
        for before in old:
            here = _within(path, before)
            if before.name not in pairs:
                yield from self.lost(before, scope, here)
                continue
            after = pairs[before.name]
            if after.name != before.name and before.tag is not None:
                advice = "a field with another meaning needs a tag of its own"
                yield here, "tag-renamed", f"tag {after.tag} is now called {after.name}; {advice}"
            elif after.name != before.name:
                yield here, "field-renamed", f"its name is now {after.name}"
            yield from self.field(before, after, scope, here, inside)
        paired = {field.name for field in pairs.values()}
        for after in new:
            if after.name not in paired and after.versions & scope and not _only_tagged(after, scope):
                text = f"it is new in versions {after.versions & scope}, which were released without it"
                yield _within(path, after), "released-version-changed", text

    def lost(self, field: Field, scope: Versions, path: str) -> Iterator[_Found]:
        if field.tagged & scope:
            yield path, "tag-lost", f"tag {field.tag} of versions {field.tagged & scope} is gone; {_KEEP_TAG}"
        elif field.versions & scope:
            yield path, "released-version-changed", f"it is gone from versions {field.versions & scope}"

    def order(
        self, old: Sequence[Field], new: Sequence[Field], pairs: Mapping[str, Field], path: str
    ) -> Iterator[_Found]:
        """Compare the order of fields without a tag. Tagged fields are sent in the order of their tags."""
        place = {field.name: i for i, field in enumerate(new)}
        there = [field for field in old if field.name in pairs and field.tag is None]
        for before, field in pairwise(there):
            if place[pairs[field.name].name] < place[pairs[before.name].name]:
                text = f"it came after {before.name}, and now comes before it"
                yield _within(path, field), "fields-reordered", text

    def tags(
        self, old: Sequence[Field], new: Sequence[Field], pairs: Mapping[str, Field], path: str
    ) -> Iterator[_Found]:
        owners = {field.tag: field for field in old if field.tagged & self.released}
        next_tag = 0
        for after in sorted((field for field in new if field.tag is not None), key=lambda field: field.tag or 0):
            here = _within(path, after)
            if not after.tagged.open:
                yield here, "tags-refused", f"tag {after.tag} ends with version {after.tagged.highest}; {_KEEP_TAG}"
            if after.tag != next_tag:
                text = f"there is a tag {after.tag} but no tag {next_tag}; if a release had one, {_KEEP_TAG}"
                yield here, "tags-refused", text
            next_tag = (after.tag or 0) + 1
        for after in new:
            owner = owners.get(after.tag) if after.tag is not None else None
            if owner is not None and pairs.get(owner.name) != after:
                text = f"tag {after.tag} belongs to {owner.name}; take one that was never used"
                yield _within(path, after), "tag-reused", text

    def field(self, old: Field, new: Field, scope: Versions, path: str, inside: frozenset[str]) -> Iterator[_Found]:
        for what, before, after in (
            ("present in", old.versions & scope, new.versions & scope),
            ("nullable in", old.nullable & scope, new.nullable & scope),
        ):
            if before != after:
                text = f"it was {what} versions {before}, and is now {what} {after}"
                yield path, "released-version-changed", text
        if old.tag is not None and new.tag is not None and old.tag != new.tag:
            yield path, "tag-changed", f"its tag was {old.tag}, and is now {new.tag}"
        elif old.tagged & scope != new.tagged & scope:
            code: Code = "tag-lost" if old.tagged and not old.tagged <= new.tagged else "released-version-changed"
            text = f"it was tagged in versions {old.tagged & scope}, and is now tagged in {new.tagged & scope}"
            yield path, code, f"{text}; {_KEEP_TAG}" if code == "tag-lost" else text
        is_other = any(
            old.is_flexible(v, self.old.flexible_versions) != new.is_flexible(v, self.new.flexible_versions)
            for v in scope & old.versions & new.versions
        )
        if is_other and (old.flexible, new.flexible) != (None, None):
            text = f"its own flexibleVersions were {old.flexible}, and are now {new.flexible}"
            yield path, "released-version-changed", text
        yield from self.type(old, new, scope & old.versions, path, inside)

    def type(self, old: Field, new: Field, scope: Versions, path: str, inside: frozenset[str]) -> Iterator[_Found]:
        before, after = old.type, new.type
        if not scope:
            return
        if before.array and after.array and before.struct is None and after.struct is not None:
            struct = self.new.structs[after.struct]
            # In a flexible version each struct ends with the number of its tagged fields, so the bytes differ.
            if not scope & self.new.flexible_versions and _boxes(struct, before.name, scope):
                yield path, "array-of-structs", f"{before} is now {after}, with {struct.fields[0].name} in it"
                return
        if before.array != after.array or (before.struct is None) != (after.struct is None) or (
            before.struct is None and before.name != after.name
        ):  # fmt: skip
            yield path, "type-changed", f"it was {before}, and is now {after}"
        elif before.struct is not None and after.struct is not None and before.struct not in inside:
            # A struct may hold itself, so it is not compared again inside itself.
            old_struct, new_struct = self.old.structs[before.struct], self.new.structs[after.struct]
            yield from self.fields(old_struct.fields, new_struct.fields, scope, path, inside | {before.struct})
        if (old.default, old.null_default) != (new.default, new.null_default) and before == after:
            yield path, "default-changed", f"its default was {_default(old)}, and is now {_default(new)}"


def _within(path: str, field: Field) -> str:
    return f"{path}.{field.name}".removeprefix(".")


def _pairs(old: Sequence[Field], new: Sequence[Field], scope: Versions) -> dict[str, Field]:
    """The new field for each old field that has one, by the old field's name.

    Fields match by name. A renamed field matches if it is otherwise the same, and lies in the same gap between fields
    with known names.
    """
    by_name = {field.name: field for field in new}
    pairs = {field.name: by_name[field.name] for field in old if field.name in by_name}
    for before, after in zip(_gaps(old, pairs, scope), _gaps(new, {field.name for field in old}, scope), strict=False):
        for field in before:
            found = next((other for other in after if _says(other) == _says(field)), None)
            if found is not None:
                pairs[field.name] = found
                # Fields keep their order, so the next old field can only match a later one.
                after = after[after.index(found) + 1 :]
    return pairs


def _gaps(fields: Sequence[Field], known: Iterable[str], scope: Versions) -> list[list[Field]]:
    """Groups of fields that only one side has. The fields that both sides have lie between the groups."""
    gaps: list[list[Field]] = [[]]
    for field in fields:
        if field.name in known:
            gaps.append([])
        elif field.versions & scope:
            gaps[-1].append(field)
    return gaps


def _says(field: Field) -> tuple[object, ...]:
    """Everything about a field that a peer can notice."""
    struct = "struct" if field.type.struct else field.type.name
    return (
        struct,
        field.type.array,
        field.versions.lowest,
        field.nullable.lowest,
        field.tag,
        field.default,
        field.null_default,
    )


def _only_tagged(field: Field, scope: Versions) -> bool:
    """Whether the field is always tagged, so that peers that do not know it skip it."""
    return field.versions & scope <= field.tagged


def _boxes(struct: Struct, primitive: str, scope: Versions) -> bool:
    """Whether the struct is sent like the primitive, because in these versions it has no other field."""
    there = [field for field in struct.fields if field.versions & scope and not _only_tagged(field, scope)]
    return len(there) == 1 and str(there[0].type) == primitive and scope <= there[0].versions and not there[0].nullable


def _default(field: Field) -> str:
    if field.null_default:
        return "null"
    return "the default of its type" if field.default is None else repr(field.default)


def _number(key: int | None) -> str:
    return "without a number" if key is None else str(key)
