"""``kfuzz messages``: definitions, and messages as bytes and JSON. ``kfuzz.messages`` does the work."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Group, echo_json, json_text, say, standard_input
from kfuzz.documents import JSON_BYTES_MAX, load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_most, write_whole
from kfuzz.findings import Profile
from kfuzz.messages.catalogues import CARRIED, Catalogue, catalogue, condense, load
from kfuzz.messages.codec import read
from kfuzz.messages.evolution import compare_all
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.messages.model import Definition, Field, Versions
from kfuzz.messages.schemas import schema
from kfuzz.text import printable


def definitions_of(source: str, *, tags_may_end: bool = False) -> Catalogue:
    """A built-in catalogue by its name, or the definitions at a path."""
    return catalogue(source) if source in CARRIED else load(source, tags_may_end=tags_may_end)


def definition_of(source: str, name: str, version: int) -> Definition:
    """The definition of a message that has this version. ``UsageError`` names a built-in catalogue that has it."""
    # A source that cannot be read says nothing about the message.
    known = definitions_of(source)
    try:
        message = known.find(name)
        if version in message.valid_versions:
            return message
        error = f"{message.name} has no version {version}; its versions are {message.valid_versions}"
    except UsageError as unknown:
        error = str(unknown)
    for other in CARRIED:
        with contextlib.suppress(UsageError):
            if other != source and version in catalogue(other).find(name).valid_versions:
                error += f"; --definitions {other} has it"
                break
    raise UsageError(error)


@click.group(cls=Group)
def command() -> None:
    """List, show, compare and import definitions of Kafka's messages; decode and encode messages.

    \b
    Examples:
      kfuzz messages list
      kfuzz messages show Fetch --version 17
      kfuzz messages diff 3.9.2 4.4.0
      kfuzz messages import kafka-clients-4.4.0.jar --kafka 4.4.0 --out 4.4.0.json
      kfuzz messages decode ApiVersions --version 3 < request.bin
    """


# ------------------------------------------------------------------------------------------------- list


@command.command("list")
@options.all_of("messages", note="Some only occur inside other messages or in logs.")
@options.as_json
@options.definitions
def list_messages(take_all: bool, as_json: bool, source: str) -> None:
    """List the requests, responses and headers with their API keys, kinds and versions.

    A catalogue without requests, responses and headers is listed in full. Such catalogues hold the records of a
    broker's logs. The commands show, decode and encode find every message by name.

    \b
    Examples:
      kfuzz messages list
      kfuzz messages list --all
      kfuzz messages list --definitions 3.9.2 --json
      kfuzz messages list --definitions records-4.4.0
    """
    known = definitions_of(source).messages.values()
    sent = [message for message in known if message.kind in ("request", "response", "header")]
    messages = sorted(known if take_all or not sent else sent, key=_place)
    if as_json:
        echo_json([described(message) for message in messages])
        return
    width = max(len(message.name) for message in messages)
    kind_width = max(len(message.kind) for message in messages)
    for message in messages:
        key = "" if message.api_key is None else str(message.api_key)
        notes = [f"flexible {message.flexible_versions}"]
        if message.deprecated_versions:
            notes.append(f"deprecated {message.deprecated_versions}")
        if message.latest_version_unstable:
            notes.append(f"{message.valid_versions.highest} is unstable")
        click.echo(
            f"{key:>4}  {message.name:<{width}}  {message.kind:<{kind_width}}  {message.valid_versions!s:<6}  "
            f"{', '.join(notes)}"
        )
    more = len(known) - len(messages)
    click.echo(f"{len(messages)} messages" + (f"; --all shows {more} more" if more else ""))


def _place(message: Definition) -> tuple[bool, str, int, str, str]:
    """Sort key: messages with an API key first; then by kind of log, by API key, by kind and by name."""
    log = "" if message.kind in ("request", "response") else message.kind.partition("-")[0]
    return message.api_key is None, log, message.api_key or 0, message.kind, message.name


def described(message: Definition) -> dict[str, Any]:
    """The JSON form of a message, without its fields."""
    return {
        "api_key": message.api_key,
        "deprecated_versions": str(message.deprecated_versions),
        "flexible_versions": str(message.flexible_versions),
        "latest_version_unstable": message.latest_version_unstable,
        "listeners": list(message.listeners),
        "name": message.name,
        "type": message.kind,
        "valid_versions": str(message.valid_versions),
    }


# ------------------------------------------------------------------------------------------------- show


@command.command("show")
@click.argument("name", metavar="MESSAGE")
@options.version(usual="all versions")
@options.as_json
@options.definitions
def show_message(name: str, version: int | None, as_json: bool, source: str) -> None:
    """Show the fields of a message in the order in which they are sent.

    You may leave out the ending Request: Fetch means FetchRequest.

    \b
    Examples:
      kfuzz messages show Fetch --version 17
      kfuzz messages show MetadataResponse
    """
    message = definitions_of(source).find(name) if version is None else definition_of(source, name, version)
    versions = message.valid_versions if version is None else Versions(version, version)
    rows = [row for field in message.fields for row in _rows(message, field, versions, ())]
    if as_json:
        echo_json(described(message) | {"fields": [json_row for _, json_row in rows]})
        return
    key = "" if message.api_key is None else f", number {message.api_key}"
    click.echo(
        f"{message.name}: {message.kind}{key}, versions {message.valid_versions}, flexible {message.flexible_versions}"
    )
    columns = [cells for cells, _ in rows]
    widths = [max((len(row[i]) for row in columns), default=0) for i in range(2)]
    for row in columns:
        say(f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip())


Row = tuple[tuple[str, str, str], dict[str, Any]]


def _rows(message: Definition, field: Field, versions: Versions, inside: tuple[str, ...]) -> list[Row]:
    """Rows for a field and its inner fields in these versions, each as table cells and as a JSON object."""
    there = field.versions & versions
    if not there:
        return []
    notes = _notes(message, field, versions)
    row = {
        "default": None if field.null_default else field.default,
        "depth": len(inside),
        "ignorable": field.ignorable,
        "map_key": field.map_key,
        "name": field.name,
        "nullable_versions": str(field.nullable & versions),
        "tag": field.tag if field.tagged & versions else None,
        "type": str(field.type),
        "versions": str(there),
    }
    made: list[Row] = [(("  " * len(inside) + field.name, _type(message, field, versions), ", ".join(notes)), row)]
    struct = field.type.struct
    # A struct may contain itself; show it once.
    if struct is not None and struct not in inside:
        for inner in message.structs[struct].fields:
            made += _rows(message, inner, versions, (*inside, struct))
    return made


def _type(message: Definition, field: Field, versions: Versions) -> str:
    """The type as it is sent. The length of a compact type is an unsigned varint of the length plus 1."""
    sized = field.type.array or field.type.name in ("string", "bytes", "records")
    one = versions.lowest if versions.lowest == versions.highest else None
    if one is not None and sized and field.is_flexible(one, message.flexible_versions):
        return f"compact {field.type}"
    return str(field.type)


def _notes(message: Definition, field: Field, versions: Versions) -> list[str]:
    notes = []
    if not (message.valid_versions & versions) <= field.versions:
        notes.append(f"versions {field.versions & versions}")
    if nullable := field.nullable & versions:
        notes.append("nullable" if (field.versions & versions) <= field.nullable else f"nullable in {nullable}")
    if field.tagged & versions:
        notes.append(f"tag {field.tag}")
    if field.null_default:
        notes.append("default null")
    elif field.default not in (None, "", 0, False):
        notes.append(f"default {field.default}")
    if field.map_key:
        notes.append("map key")
    if field.ignorable:
        notes.append("ignorable")
    return notes


# ------------------------------------------------------------------------------------------------- diff


@command.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@options.as_json
def diff(old: str, new: str, as_json: bool) -> int:
    """Compare definitions: show which changes in NEW break peers that know OLD. Exit 1 if any change does.

    OLD and NEW are releases, jars, folders, catalogues or single definitions. Changes that do not affect the bytes, for
    example a new field name, are shown too. A warning is a change that a person should look at, for example a tag with
    another name.

    \b
    Examples:
      kfuzz messages diff 3.9.2 4.4.0
      kfuzz messages diff FetchRequest.json.orig FetchRequest.json
    """
    before, after = (definitions_of(source, tags_may_end=True).messages for source in (old, new))
    changes = compare_all(before, after)
    weights = Counter(change.weight for change in changes)
    if as_json:
        echo_json([asdict(one) | {"incompatible": one.incompatible, "weight": one.weight} for one in changes])
    else:
        for change in changes:
            say(f"{change.weight:<13}{change}")
        warned = f"{weights['warning']} to look at, " if weights["warning"] else ""
        click.echo(f"{weights['incompatible']} incompatible, {warned}{weights['fine']} fine")
    return 1 if weights["incompatible"] else 0


# ------------------------------------------------------------------------------------------------- import


@command.command("import")
@click.argument("sources", nargs=-1, required=True, metavar="JAR...")
@click.option("--kafka", "release", required=True, metavar="VERSION", help="Kafka release of the JARs.")
@options.out("the catalogue", metavar="FILE", required=True)
def import_definitions(sources: tuple[str, ...], release: str, out: Path) -> None:
    """Condense the definitions in jars or folders into one catalogue: names, types, versions and flags.

    \b
    Examples:
      kfuzz messages import kafka-clients-4.4.0.jar --kafka 4.4.0 --out 4.4.0.json
      kfuzz messages import kafka-metadata-4.4.0.jar kafka-raft-4.4.0.jar --kafka 4.4.0 --out records.json
      kfuzz messages list --definitions 4.4.0.json
    """
    catalogues = [load(source) for source in sources]
    write_whole(out, condense(catalogues, release))
    count = len({name for one in catalogues for name in one.messages})
    say(f"{out}: {count} messages of Kafka {release}")


# ------------------------------------------------------------------------------------------------- decode, encode


@command.command("decode")
@click.argument("name", metavar="MESSAGE")
@options.version(required=True)
@options.profile
@options.definitions
def decode_message(name: str, version: int, profile: Profile, source: str) -> int:
    """Read the bytes of a message, without its header, from standard input and print the message as JSON.

    Findings go to standard error. Exit 1 if the message is refused.

    \b
    Examples:
      kfuzz messages decode Fetch --version 17 < body.bin
      kfuzz messages decode MetadataResponse --version 12 --profile strict < body.bin
    """
    # The version is checked before waiting for input on a terminal.
    message = definition_of(source, name, version)
    reading = read(message, version, standard_input().read(), profile=profile)
    for finding in reading.findings:
        click.echo(f"{finding.severity}: {printable(str(finding))}", err=True)
    if reading.message is None:
        return 1
    click.echo(json_text(to_json(message, version, reading.message), sort_keys=False))
    return 0


@command.command("encode")
@click.argument("name", metavar="MESSAGE")
@options.version(required=True)
@options.definitions
def encode_message(name: str, version: int, source: str) -> None:
    """Read a message as JSON from standard input and write its bytes, without a header, to standard output.

    Missing fields get their defaults. docs/messages.md describes the JSON form.

    \b
    Examples:
      echo '{"clientSoftwareName": "me"}' | kfuzz messages encode ApiVersions --version 3 | xxd
      kfuzz messages decode Fetch --version 17 < a.bin | kfuzz messages encode Fetch --version 17 | cmp - a.bin
    """
    # The version is checked before waiting for input on a terminal.
    message = definition_of(source, name, version)
    program = schema(message, version)
    given = standard_input()
    form = load_json(read_most(given, JSON_BYTES_MAX + 1), "standard input", remedy="write one object")
    sys.stdout.buffer.write(program.encode(from_json(message, version, form)))
    sys.stdout.buffer.flush()
