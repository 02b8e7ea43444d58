"""Resolves names on the command line: a vector, an input that was kept, a message, or one of Kafka's other files."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfuzz.cli import options
from kfuzz.cli.console import complain, open_buffer, progress
from kfuzz.cli.messages import definition_of, definitions_of
from kfuzz.errors import UsageError
from kfuzz.files import URL, local_path
from kfuzz.kafka import Role
from kfuzz.messages.catalogues import newest
from kfuzz.messages.model import Definition
from kfuzz.vectors.kinds import CONVERSATION
from kfuzz.wire.records.framing import next_frame

if TYPE_CHECKING:
    from kfuzz.client.copying import Live
    from kfuzz.fuzz.kept import KeptInput
    from kfuzz.logs.stored import Kind
    from kfuzz.vectors.model import Vector

# Files with these suffixes hold record batches, whatever their first bytes look like.
BATCH_FILES = (".log", ".checkpoint")


@dataclass(frozen=True)
class Named:
    """The thing that a name is. Without a vector and a kept input it is a file, or standard input.

    ``message`` is the definition and version of the message that the bytes are, by the options or by the vector.
    """

    name: str
    vector: Vector | None
    kept: KeptInput | None
    message: tuple[Definition, int] | None

    @property
    def title(self) -> str:
        """The name, for a vector with its summary."""
        return self.name if self.vector is None else f"{self.vector.id}: {self.vector.summary}"

    def read(self) -> tuple[bytes | mmap.mmap, tuple[Definition, int] | None]:
        """The bytes that a decoder gets, and the message that they are. The body of a kept input says both."""
        if self.kept is not None and self.kept.body is not None:
            return self.kept.body.data, self.kept.body.message
        return open_buffer(self.name) if self.vector is None else self.vector.data, self.message

    def stored_kind(self, data: bytes | mmap.mmap) -> Kind | None:
        """Kafka's kind of file for these bytes, if it is one of the files beside a segment."""
        if self.vector is not None or self.kept is not None or self.message is not None:
            return None
        return stored_kind(self.name, data)

    def require_batches(self, data: bytes | mmap.mmap) -> None:
        """Raise ``UsageError`` if the bytes of a file are not record batches."""
        from kfuzz.logs.contents import require_batches

        if self.vector is None and self.kept is None:
            require_batches(self.name, data)


@contextlib.contextmanager
def log_at(
    name: str | None, live: Live | None = None, *, topics: str = "*", first: int | datetime | None = None
) -> Iterator[str]:
    """The path of the log that the user named: a path, an archive, a URI, or topics with --bootstrap (``live``), from
    the offset or time ``first`` on. Other names (``-``, ids of vectors) stay as they are.

    The path is good inside the block. Files in it must be opened by functions of ``kfuzz.files``.
    """
    from kfuzz.places import PACKED_NAME, opened, stand_in

    if (name is None) == (live is None):
        raise click.UsageError("name a file, a folder or an archive, or give --bootstrap; one of them")
    if name is not None:
        with contextlib.ExitStack() as stack:
            with progress("open", None, quiet=not (URL.fullmatch(name) or PACKED_NAME.fullmatch(name))):
                path = name if name == "-" else stack.enter_context(opened(name, on_left_out=complain))
            # A name of something else stays as it was written.
            yield name if path == Path(name) else str(path)
        return
    assert live is not None
    with stand_in({}, name=str(live.access.bootstrap)) as folder, opened(folder):
        with progress("read from the brokers, MiB", None) as set_done:
            wanted = replace(live, topics=topics, first=first)
            for sentence in wanted.copy(folder, set_done=lambda done: set_done(done >> 20)):
                complain(sentence)
        yield str(folder)


def named(name: str, message: str | None, version: int | None, source: str) -> Named:
    """The thing that ``name`` is, with the options --message, --version and --definitions."""
    vector = vector_of(name)
    chosen = message_of(message, version, source) or message_in(vector)
    return Named(name, vector, kept_of(name) if vector is None and chosen is None else None, chosen)


def require_consumer(role: Role) -> None:
    """Refuse another role for a message."""
    if role != "consumer":
        raise UsageError(f"--role {role} is about record batches; leave it out to see a message")


def stored_kind(name: str, data: bytes | mmap.mmap) -> Kind | None:
    """Kafka's kind of file for this one, by its name, or by its content if it does not begin with a batch."""
    from kfuzz.logs.stored import kind_by_content, kind_of

    if name != "-" and (kind := kind_of(name)):
        return kind
    if Path(name).suffix in BATCH_FILES or not len(data) or next_frame(data, 0)[0] > 0:
        return None
    return kind_by_content(data)


def kept_of(name: str) -> KeptInput | None:
    """The input of a cause in a file; None for any other file."""
    path = Path(name)
    if name == "-" or not path.is_file():
        return None
    # Most files are none, and the fuzzer's modules take time to load.
    if not (path.parent / "causes.json").is_file() and not path.with_suffix(".json").is_file():
        return None
    from kfuzz.fuzz.kept import kept_at

    return kept_at(name)


def vector_of(name: str) -> Vector | None:
    """The vector with this id; None if the name is a file or standard input."""
    if name == "-" or local_path(name).exists():
        return None
    from kfuzz.vectors import find_vector

    try:
        return find_vector(name)
    except UsageError as error:
        raise UsageError(f"{name} is not a file, and {error}") from None


def conversation_of(name: str) -> Vector | None:
    """The golden conversation with this id; None if it is something else."""
    try:
        vector = vector_of(name)
    except UsageError:
        return None
    return vector if vector is not None and vector.kind == CONVERSATION else None


def message_of(name: str | None, version: int | None, source: str) -> tuple[Definition, int] | None:
    """The message and version from the options; None if the file holds record batches."""
    if name is None:
        if strays := options.given("version", "source"):
            raise UsageError(f"{strays[0]} needs --message; name a message, or leave this option out to read records")
        return None
    if version is None:
        definition = definitions_of(source).find(name)
        raise UsageError(f"--message needs --version; {definition.name} has {definition.valid_versions}")
    # Refuse an unknown version before waiting for input on a terminal.
    return definition_of(source, name, version), version


def message_in(vector: Vector | None) -> tuple[Definition, int] | None:
    """The message definition and version of a vector of kind ``message``; None for others."""
    if vector is None or vector.kind != "message":
        return None
    return newest(vector.options["message"], vector.options["version"]), vector.options["version"]
