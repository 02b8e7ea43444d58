"""``kfuzz browse``: batches, fields and bytes of a file, side by side in the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kfuzz.cli import options
from kfuzz.cli.completion import complete_file_or_id
from kfuzz.cli.opening import log_at, named, require_consumer
from kfuzz.errors import UsageError
from kfuzz.findings import Profile
from kfuzz.kafka import Role
from kfuzz.text import really

if TYPE_CHECKING:
    from kfuzz.annotate.records import RecordsOf
    from kfuzz.browse.document import Document
    from kfuzz.records import Limits


@click.command()
@click.argument("name", metavar="FILE|ID", shell_complete=complete_file_or_id)
@click.option(
    "--go", "place", default="", metavar="PLACE", help="Begin at an offset, a byte (0x88, @136) or a finding."
)
@options.message
@options.version()
@options.definitions
@options.role()
@options.profile
@options.limits
@options.records_of
@options.schemas
def command(name: str, place: str, **options: Any) -> None:
    """Browse a file of record batches, a message or a vector in the terminal.

    Batches, the fields of one of them, and its bytes are side by side. Below them it says what the field under the
    cursor means, and what is wrong with it. ? shows the keys: / searches for an offset, a byte or a finding, n goes to
    the next finding, and e explains it.

    The names are those of `kfuzz show`, also the smallest input of a cause. Needs textual: pip install 'kfuzz[browse]'.

    \b
    Examples:
      kfuzz browse 00000000000000000000.log
      kfuzz browse 00000000000000000000.log --go 4711
      kfuzz browse 00000000000000000000.log --go crc
      kfuzz browse records/v2/codec/gzip-crc-wrong
      kfuzz browse out/fuzz/record-batch/causes/panics-01234567
    """
    if name == "-":
        raise UsageError("kfuzz browse needs standard input for the keys; write the bytes to a file and name that")
    with log_at(name) as path:
        document = document_of(path, **options)
    try:
        from kfuzz.browse.app import Browser
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise UsageError("kfuzz browse needs textual; pip install 'kfuzz[browse]'") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"kfuzz browse needs a terminal; `kfuzz show {name}` prints")
    browser = Browser(document, place)
    browser.run()
    if browser.return_code == Browser.INTERRUPTED:
        raise click.Abort


def document_of(
    name: str,
    message: str | None,
    version: int | None,
    source: str,
    role: Role,
    profile: Profile,
    limits: Limits,
    records_of: str | None,
    places: tuple[str, ...] = (),
    registry: str | None = None,
) -> Document:
    """The document to browse. ``UsageError`` if the name is that of something else."""
    from kfuzz.browse.document import Batches, Message

    what = named(name, message, version, source)
    # It is shown after the block in which a file's real name is known.
    title = really(what.title)
    data, chosen = what.read()
    if chosen is not None:
        require_consumer(role)
        document: Document = Message(title, bytes(data), *chosen, profile=profile)
    else:
        what.require_batches(data)
        decode: RecordsOf = options.internal_topic(name, records_of)
        if decode is None and (schemas := options.schemas_of(name, places, registry)) is not None:
            decode = schemas.shown
        document = Batches(title, data, profile=profile, role=role, limits=limits, records_of=decode)
    document.kills = () if what.kept is None else what.kept.deviation.kills
    return document
