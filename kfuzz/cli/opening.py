"""What a name on the command line is: a vector, a crash that was kept, a message, or one of Kafka's other files."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kfuzz.cli.messages import definitions_of
from kfuzz.errors import UsageError
from kfuzz.messages.catalogues import newest
from kfuzz.messages.model import Definition
from kfuzz.messages.schemas import schema
from kfuzz.wire.framing import next_frame

if TYPE_CHECKING:
    from kfuzz.corpora.stored import Kind
    from kfuzz.fuzz.crashes import Crash
    from kfuzz.vectors.model import Vector

__all__ = ["crash_of", "message_in", "message_of", "stored_kind", "vector_of"]

# Files with these suffixes hold record batches, whatever their first bytes look like.
BATCH_FILES = (".log", ".checkpoint")


def stored_kind(name: str, data: bytes | mmap.mmap) -> Kind | None:
    """What Kafka keeps in this file, by its name, or by its content if it does not begin with a batch."""
    from kfuzz.corpora.stored import kind_by_content, kind_of

    if name != "-" and (kind := kind_of(name)):
        return kind
    if Path(name).suffix in BATCH_FILES or not len(data) or next_frame(data, 0)[0] > 0:
        return None
    return kind_by_content(bytes(data))


def crash_of(name: str) -> Crash | None:
    """The crash in a file; None for any other file."""
    # Most files are none, and the fuzzer's modules take time to load.
    if name == "-" or (
        not (Path(name).parent / "causes.json").is_file() and not Path(name).with_suffix(".json").is_file()
    ):
        return None
    from kfuzz.fuzz.crashes import crash_at

    return crash_at(name)


def vector_of(name: str) -> Vector | None:
    """The vector with this id; None if the name is a file or standard input."""
    if name == "-" or Path(name).exists():
        return None
    from kfuzz.vectors import find_vector

    try:
        return find_vector(name)
    except UsageError as error:
        raise UsageError(f"{name} is not a file, and {error}") from None


def message_of(name: str | None, version: int | None, source: str) -> tuple[Definition, int] | None:
    """The message and version from the options; None if the file holds record batches."""
    if name is None:
        given = click.get_current_context().get_parameter_source("source") is not ParameterSource.DEFAULT
        for option, stray in (("--version", version is not None), ("--definitions", given)):
            if stray:
                raise UsageError(f"{option} needs --message; name a message, or leave this option out to read records")
        return None
    definition = definitions_of(source).find(name)
    if version is None:
        raise UsageError(f"--message needs --version; {definition.name} has {definition.valid_versions}")
    # Refuse an unknown version before waiting for input on a terminal.
    schema(definition, version)
    return definition, version


def message_in(vector: Vector | None) -> tuple[Definition, int] | None:
    """The message definition and version of a vector of kind ``message``; None for others."""
    if vector is None or vector.kind != "message":
        return None
    return newest(vector.options["message"], vector.options["version"]), vector.options["version"]
