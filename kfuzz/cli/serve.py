"""``kfuzz serve``: a broker that shows the golden vectors to any client. ``kfuzz.serve`` does the work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from kfuzz.cli import options
from kfuzz.cli.console import Word, json_line, say, standard_input
from kfuzz.errors import UsageError
from kfuzz.messages.model import Versions
from kfuzz.relay.loop import run
from kfuzz.serve import Cluster, Report, Server, Settings, Topics, feed, topics_of
from kfuzz.serve.cluster import NODES_MAX
from kfuzz.serve.server import stopped_by_signals
from kfuzz.units import counted
from kfuzz.vectors import load_suite

# A line holds the bytes of one fetch in hex.
LINE_BYTES_MAX = 256 << 20


def _versions(text: str) -> Versions:
    found = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", text)
    if found is None or not (versions := Versions(int(found[1]), int(found[2] or found[1]))):
        raise UsageError(f"{text!r} is no range of versions; give one like 4-11, or a single version")
    return versions


@click.command()
@options.globs
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; any free one if it is not given.")
@options.yes
@click.option(
    "--fetch-versions", type=Word("low-high", _versions), help="Offer only these versions of Fetch.  [default: all]"
)
@click.option(
    "--cluster", "brokers", type=click.IntRange(1, NODES_MAX), default=1, metavar="N", help="Run N brokers, up to 9."
)
@click.option("--fetch-sessions", is_flag=True, help="Offer fetch sessions.")
@click.option("--api-versions-fallback", is_flag=True, help="Refuse versions of ApiVersions as an older broker does.")
@click.option("--from-stdin", is_flag=True, help="Take topics from standard input instead of the suite.")
@options.vectors
@options.as_json
def command(
    globs: tuple[str, ...],
    from_stdin: bool,
    root: Path | None,
    as_json: bool,
    **others: Any,
) -> None:
    """Run a broker from which any client can fetch the golden vectors: one topic for each vector.

    A topic has the name of its vector, with dots for slashes, and one partition. A fetch returns exactly the bytes of
    the vector. Give each vector a fresh consumer, and a fresh process after a crash or a hang. With --from-stdin,
    another program gives the topics; clients can write to some of them.

    The first line has the broker's address. After Ctrl-C it prints what clients requested. docs/serve.md has the rules,
    and the form of the lines for --from-stdin.

    Exit code 0: ended by Ctrl-C, or by the end of standard input; 2: wrong use, or the port cannot be opened.

    \b
    Examples:
      kfuzz serve
      kfuzz serve "records/v2/count/*" --port 9092
      kfuzz serve "records/v2/*" --fetch-versions 4-11 --json
      kfuzz serve --from-stdin --cluster 3 --json
    """
    if from_stdin and (globs or root):
        raise UsageError("--from-stdin serves only what it is given; leave out the globs and --vectors")
    given = standard_input() if from_stdin else None
    suite = {} if from_stdin else topics_of(load_suite(globs or "*", root, kinds=("records", "stream")))
    if not suite and not from_stdin:
        raise UsageError("none of these vectors is for a consumer; `kfuzz vectors list` shows all")
    topics = Topics()
    for topic in suite.values():
        topics.put(topic)
    names = {vector: topic.name for vector, topic in suite.items()}
    # The other options have the names of the settings.
    run(_serve(topics, names, Settings(**others), given, as_json))


async def _serve(
    topics: Topics, names: dict[str, str], settings: Settings, given: BinaryIO | None, as_json: bool
) -> None:
    ended = asyncio.Event()
    fault: BaseException | None = None
    async with Server(topics, settings, tell=lambda sentence: say(sentence, err=True)) as server:
        ports = server.broker.cluster.ports
        with stopped_by_signals(ended.set):
            if as_json:
                places = [{"node_id": node, "port": port} for node, port in ports.items()]
                brokers = {"brokers": places} if settings.brokers > 1 else {}
                _say({"host": server.host, "port": server.port, "topics": names} | brokers)
            else:
                held = "the topics that standard input gives" if given else counted(len(names), "topic")
                click.echo(f"kfuzz serves {held} at {', '.join(map(str, server.places))}")
            feeding = asyncio.create_task(_fed(server.broker.cluster, given, ended)) if given else None
            await ended.wait()
            if feeding is not None:
                feeding.cancel()
                [fault] = await asyncio.gather(feeding, return_exceptions=True)
    _summary(server.report, as_json)
    if isinstance(fault, UsageError):
        raise fault


async def _fed(cluster: Cluster, given: BinaryIO, ended: asyncio.Event) -> None:
    """Take topics from ``given``; the server ends when a pipe does. A file is at its end at once, so Ctrl-C ends it."""
    mode = os.fstat(given.fileno()).st_mode
    try:
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or given.isatty():
            reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
            loop = asyncio.get_running_loop()
            pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), given)
            with contextlib.closing(pipe):
                await feed(cluster, reader, _say)
        else:
            # The event loop can watch pipes, sockets and terminals, but not files or /dev/null.
            await feed(cluster, _lines_of_file(given), _say)
    except ValueError:
        ended.set()
        raise UsageError(f"a line has more than {LINE_BYTES_MAX} bytes; send shorter ones") from None
    finally:
        if not stat.S_ISREG(mode):
            ended.set()


async def _lines_of_file(given: BinaryIO) -> AsyncIterator[bytes]:
    while line := given.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise ValueError
        yield line


def _say(value: dict[str, Any]) -> None:
    # Another program waits for the line: click.echo flushes.
    click.echo(json_line(value))


def _summary(report: Report, as_json: bool) -> None:
    if as_json:
        _say({"connections": report.connections, "refused": report.refused, "requests": dict(report.requests)})
        return
    click.echo(f"{counted(report.connections, 'connection')}, {counted(report.requests.total(), 'request')}")
    for api, count in sorted(report.requests.items(), key=lambda one: (-one[1], one[0])):
        click.echo(f"  {count:>8}  {api}")
    if report.refused:
        click.echo(f"{counted(report.refused, 'connection')} closed by the broker; standard error has the reasons")
