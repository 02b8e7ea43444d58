"""`kfuzz corpus replay`: send the batches of a log directory to a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import PATH, Word, echo_json, progress, say
from kfuzz.replay import (
    ACKS,
    Rate,
    Settings,
    find_parts,
    parse_name,
    parse_rate,
    parse_speed,
    replay,
)

MB = 1_000_000


@click.command("replay")
@click.argument("directory", type=PATH)
@options.bootstrap(required=True)
@click.option("--rate", type=Word("rate", parse_rate), help="Records or bytes per second: 50000, 20MB/s.")
@click.option("--speed", type=Word("speed", parse_speed), help="Follow the timestamps of the log: 1x, 10x.")
@options.duration("the replay")
@options.records()
@options.topics
@click.option(
    "--topic", "names", type=Word("A=B", parse_name), multiple=True, help="Send topic A to topic B; may be repeated."
)
@click.option("--create", is_flag=True, help="Create missing topics, with retention.ms=-1.")
@options.replication
@click.option("--convert", is_flag=True, help="Rewrite batches that a broker refuses: gaps, old formats, …")
@click.option(
    "--connections", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many to each broker."
)
@click.option(
    "--in-flight", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Requests without an answer yet."
)
@click.option(
    "--pipeline",
    "pipelined",
    is_flag=True,
    help="Faster; a batch that is sent again may come after later ones of its partition.",
)
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="How many replicas must have a batch.",
)
@options.timeout(default="30s")
@click.option(
    "--retries", type=click.IntRange(0, 1000), default=10, show_default=True, help="How often a batch is sent again."
)
@click.option(
    "--reconnects", type=click.IntRange(0), default=20, show_default=True, help="How often the replay connects again."
)
@click.option("--transactional-id", default="kfuzz-replay", show_default=True, help="How the transactional ids begin.")
@click.option(
    "--transaction-timeout",
    "transaction_timeout_ms",
    type=options.TIME_MS,
    default="15m",
    show_default=True,
    help="How long a transaction may be open at the broker.",
)
@options.limits
@options.connection
@options.as_json
def command(
    directory: Path,
    topics: str,
    rate: Rate | None,
    records_max: int | None,
    names: tuple[tuple[str, str], ...],
    acks: str,
    as_json: bool,
    **others: Any,
) -> int:
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
    # The other options have the names of the settings.
    settings = Settings(rate=rate or Rate(), records=records_max, names=dict(names), acks=ACKS[acks], **others)
    parts = find_parts(directory, topics=topics)
    total = sum(part.size for part in parts)
    with progress("replaying, MB", -(-total // MB), quiet=as_json) as set_done:
        report = replay(parts, settings, set_done=lambda done: set_done(done // MB))
    if as_json:
        echo_json({"directory": str(directory), "bootstrap": str(settings.bootstrap), **report.to_json()})
    else:
        say(*report.lines(f"{directory} to {settings.bootstrap}"))
    # Use the exit code that a shell uses for a signal.
    return 128 + report.signal if report.signal else 0 if report.is_clean else 1
