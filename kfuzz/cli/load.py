"""`kfuzz load`: send a workload to a broker, at a rate that does not depend on the broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from kfuzz.cli.console import PATH, progress
from kfuzz.cli.sending import sending_options, tell
from kfuzz.corpora.workload import load
from kfuzz.replay import ARRIVALS, Arrivals, Load, Settings, run_load


@click.command()
@click.argument("workload", type=PATH)
@click.option(
    "--arrivals",
    type=click.Choice(ARRIVALS),
    default="constant",
    show_default=True,
    help="When batches are due: evenly, at random times by the workload's seed, or by its hours and bursts.",
)
@sending_options("the load", retries=120, reconnects=10_000, transactional_id="kfuzz-load")
def command(workload: Path, topics: str, arrivals: Arrivals, make: Callable[..., Settings], as_json: bool) -> int:
    """Send what WORKLOAD (TOML) describes to a broker, without end and without a disk.

    The bytes are those of `kfuzz corpus generate`, with the time of sending. Each batch is due at a time that does not
    depend on the broker, and its latency counts from then. Exit code 1 if a batch was lost, or if the rate was not
    reached.

    \b
    Examples:
      kfuzz load spark_jobs/workloads/demo.toml --bootstrap 127.0.0.1:9092 --create --rate 50k --duration 1h
      kfuzz load spark_jobs/workloads/demo.toml --bootstrap a:9092,b:9092 --rate 20MB/s --arrivals poisson
    """
    settings = make(restamp=True)
    asked = Load(load(workload), str(workload), topics, arrivals)
    began = time.monotonic()
    total = None if settings.duration_s is None else round(settings.duration_s)
    with progress("sending, s", total, quiet=as_json) as set_done:
        report = run_load(asked, settings, set_done=lambda done: set_done(int(time.monotonic() - began)))
    return tell(report, "workload", str(workload), settings, as_json=as_json)
