"""`kfuzz corpus replay`: send the batches of a log directory to a broker."""

from __future__ import annotations

from pathlib import Path

import click

from kfuzz.cli.console import LocalPath, Word, connection_options, echo_json, json_option, progress
from kfuzz.errors import UsageError
from kfuzz.records import Limits
from kfuzz.replay import (
    ACKS,
    Address,
    Rate,
    Security,
    Settings,
    find_parts,
    parse_name,
    parse_rate,
    parse_speed,
    replay,
)
from kfuzz.text import printable
from kfuzz.units import parse_duration, parse_size

__all__ = ["command"]

MB = 1_000_000


def _bytes(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise UsageError(f'{text!r} is not a size; give one like "64MiB"')
    return size


@click.command("replay")
@click.argument("directory", type=LocalPath())
@click.option("--bootstrap", type=Word("host:port", Address.parse), required=True, help="A broker of the cluster.")
@click.option("--rate", type=Word("rate", parse_rate), help="Records or bytes per second: 50000, 20MB/s.")
@click.option("--speed", type=Word("speed", parse_speed), help="Follow the timestamps of the log: 1x, 10x.")
@click.option("--duration", type=Word("time", parse_duration), help="End after this time: 90s, 5m.")
@click.option("--records", type=click.IntRange(0), help="Send at most so many records.")
@click.option("--topics", default="*", metavar="GLOB", help="Only these topics of the log.")
@click.option(
    "--topic", "names", type=Word("A=B", parse_name), multiple=True, help="Send topic A to topic B; may be repeated."
)
@click.option("--create", is_flag=True, help="Create missing topics, with retention.ms=-1.")
@click.option("--replication", type=click.IntRange(1), help="Replicas of created topics (default: the broker's).")
@click.option("--convert", is_flag=True, help="Rewrite batches that a broker refuses: gaps, old formats, …")
@click.option("--connections", type=click.IntRange(1, 1000), default=1, show_default=True, help="To each broker.")
@click.option(
    "--in-flight", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Requests without an answer yet."
)
@click.option(
    "--pipeline", is_flag=True, help="Faster; a batch that is sent again may come after later ones of its partition."
)
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option("--timeout", type=Word("time", parse_duration), default="30s", show_default=True, help="For an answer.")
@click.option("--retries", type=click.IntRange(0, 1000), default=10, show_default=True, help="Of one batch.")
@click.option("--reconnects", type=click.IntRange(0), default=20, show_default=True, help="Of the whole replay.")
@click.option("--transactional-id", default="kfuzz-replay", show_default=True, help="How the transactional ids begin.")
@click.option(
    "--transaction-timeout", type=Word("time", parse_duration), default="15m", show_default=True, help="At the broker."
)
@click.option("--decompressed-bytes", type=Word("size", _bytes), help="The most that one batch may decompress to.")
@connection_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    directory: Path,
    bootstrap: Address,
    rate: Rate | None,
    speed: float | None,
    duration: float | None,
    records: int | None,
    topics: str,
    names: tuple[tuple[str, str], ...],
    create: bool,
    replication: int | None,
    convert: bool,
    connections: int,
    in_flight: int,
    pipeline: bool,
    acks: str,
    timeout: float,
    retries: int,
    reconnects: int,
    transactional_id: str,
    transaction_timeout: float,
    decompressed_bytes: int | None,
    tls: bool,
    tls_ca: Path | None,
    user: str | None,
    plain_hosts: tuple[str, ...],
    password: str,
    as_json: bool,
) -> None:
    """Send the batches of a corpus, or of any Kafka log directory, to a broker.

    Batches are sent as they are, each partition in its order. Transactions are committed and aborted as in the log.
    What a broker refuses by rule is counted by reason, or rewritten with --convert. Exit code 1 if anything was not
    sent.

    \b
    Examples:
      kfuzz corpus replay out/corpus --bootstrap 127.0.0.1:9092 --create
      kfuzz corpus replay out/corpus --bootstrap 127.0.0.1:9092 --rate 20MB/s --duration 5m --connections 4
      kfuzz corpus replay /var/lib/kafka/data/orders-0 --bootstrap 127.0.0.1:9092 --topic orders=copy --speed 10x
    """
    settings = Settings(
        bootstrap,
        security=Security(tls or tls_ca is not None, str(tls_ca) if tls_ca else None, user, password, plain_hosts),
        connections=connections,
        in_flight=in_flight,
        pipelined=pipeline,
        acks=ACKS[acks],
        rate=rate or Rate(),
        speed=speed,
        duration_s=duration,
        records=records,
        convert=convert,
        create=create,
        replication=replication or -1,
        names=dict(names),
        transactional_id=transactional_id,
        transaction_timeout_ms=round(transaction_timeout * 1000),
        timeout_ms=round(timeout * 1000),
        retries=retries,
        reconnects=reconnects,
        limits=Limits(decompressed_bytes) if decompressed_bytes else Limits(),
    )
    parts = find_parts(directory, topics=topics)
    total = sum(part.size for part in parts)
    with progress("replaying, MB", -(-total // MB), quiet=as_json) as set_done:
        report = replay(parts, settings, set_done=lambda done: set_done(done // MB))
    if as_json:
        echo_json({"directory": str(directory), "bootstrap": str(bootstrap), **report.to_json()})
    else:
        for line in report.lines(f"{directory} to {bootstrap}"):
            click.echo(printable(line))
    # Use the exit code that a shell uses for a signal.
    ctx.exit(128 + report.signal if report.signal else 0 if report.is_clean else 1)
