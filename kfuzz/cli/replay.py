"""`kfuzz corpus replay`: send the batches of a log directory to a broker."""

from __future__ import annotations

import click

from kfuzz.cli import options
from kfuzz.cli.console import Word, progress
from kfuzz.cli.opening import log_at
from kfuzz.cli.sending import sending_options
from kfuzz.replay import Report, Settings, find_parts, parse_speed, replay

MB = 1_000_000


@click.command("replay")
@click.argument("directory", metavar="DIRECTORY|URI")
@click.option("--speed", type=Word("speed", parse_speed), help="Follow the timestamps of the log: 1x, 10x.")
@click.option("--loop", is_flag=True, help="Send the log again and again, until --duration or --records ends it.")
@click.option("--convert", is_flag=True, help="Rewrite batches that a broker refuses: gaps, old formats, …")
@options.limits
@sending_options("the replay", "directory", retries=10, reconnects=20, transactional_id="kfuzz-replay")
def command(directory: str, topics: str, settings: Settings, quiet: bool) -> tuple[Report, str]:
    """Send the batches of a corpus, or of any Kafka log directory, to a broker.

    Batches are sent as they are, each partition in its order. Transactions are committed and aborted as in the log.
    What a broker refuses by rule is counted by reason, or rewritten with --convert. Exit code 1 if anything was not
    sent.

    \b
    Examples:
      kfuzz corpus replay out/corpus --bootstrap 127.0.0.1:9092 --create
      kfuzz corpus replay out/corpus --bootstrap 127.0.0.1:9092 --rate 20MB/s --duration 5m --loop
      kfuzz corpus replay /var/lib/kafka/data/orders-0 --bootstrap 127.0.0.1:9092 --topic orders=copy --speed 10x
    """
    with log_at(directory) as path:
        parts = find_parts(path, topics=topics)
        total = None if settings.loop else -(-sum(part.size for part in parts) // MB)
        with progress("replaying, MB", total, quiet=quiet) as set_done:
            report = replay(parts, settings, set_done=lambda done: set_done(done // MB))
    return report, directory
