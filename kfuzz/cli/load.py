"""`kfuzz load`: send a workload to a broker, at a rate that does not depend on the broker."""

from __future__ import annotations

import functools
import time

import click

from kfuzz.cli import options
from kfuzz.cli.console import progress
from kfuzz.cli.sending import sending_options
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import load
from kfuzz.places import opened
from kfuzz.replay import ARRIVALS, Arrivals, Load, Report, Settings, load_in_processes, run_load


@click.command()
@click.argument("workload", metavar="WORKLOAD|CORPUS|URI")
@click.option(
    "--arrivals",
    type=click.Choice(ARRIVALS),
    default="constant",
    show_default=True,
    help="When batches are due: evenly, at random times by the workload's seed, or by its hours and bursts.",
)
@click.option("--verify", is_flag=True, help="Read what is sent, in both isolations, and check it.")
@click.option(
    "--check-history",
    is_flag=True,
    help="As --verify, and read it once more at the end: for brokers in trouble.",
)
@options.jobs("processes; each sends some of the partitions", default=1)
@sending_options("the load", "workload", restamp=True, retries=120, reconnects=10_000, transactional_id="kfuzz-load")
def command(
    workload: str, topics: str, arrivals: Arrivals, settings: Settings, jobs: int, quiet: bool
) -> tuple[Report, str]:
    """Send what WORKLOAD (TOML), or that of a corpus, describes to a broker, without end and without a disk.

    The bytes are those of `kfuzz corpus generate`, with the time of sending. Each batch is due at a time that does not
    depend on the broker, and its latency counts from then. Exit code 1 if a batch was lost, or if the rate was not
    reached.

    \b
    Examples:
      kfuzz load spark_jobs/workloads/demo.toml --bootstrap 127.0.0.1:9092 --create --rate 50k --duration 1h
      kfuzz load spark_jobs/workloads/demo.toml --bootstrap a:9092,b:9092 --rate 20MB/s --arrivals poisson
    """
    with opened(workload) as path:
        asked = Load(Corpus.open(path).workload if path.is_dir() else load(path), workload, topics, arrivals)
    began = time.monotonic()
    total = None if settings.duration_s is None else round(settings.duration_s)
    with progress("sending, s", total, quiet=quiet) as set_done:
        send = run_load if jobs == 1 else functools.partial(load_in_processes, jobs=jobs)
        report = send(asked, settings, set_done=lambda done: set_done(int(time.monotonic() - began)))
    return report, workload
