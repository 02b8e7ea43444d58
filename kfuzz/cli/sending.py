"""The options for sending batches, and the report: shared by `kfuzz corpus replay` and `kfuzz load`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Word, complain, echo_json, require_reports, say
from kfuzz.errors import UsageError
from kfuzz.replay import ACKS, Address, Rate, Settings, parse_name, parse_rate
from kfuzz.replay.seconds import seconds_json, write_histograms, write_picture

RENAMED = "Send topic A to topic B; may be repeated."
PIPELINED = "Faster; a batch that is sent again may come after later ones of its partition."
OPEN = "How long a transaction may be open at the broker."


def sending_options(
    what: str, argument: str, *, retries: int, reconnects: int, transactional_id: str, restamp: bool = False
) -> Callable[..., Callable[..., Any]]:
    """The options of a verb that sends batches. ``what`` names its work, and ``argument`` in the JSON what it sends.

    The verb gets ``settings``, with its own options that have the names of settings, and ``quiet``. It returns the
    report and the name of what was sent.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_settings(
            *,
            bootstrap: tuple[Address, ...],
            rate: Rate | None,
            records_max: int | None,
            names: Any,
            acks: str,
            **others: Any,
        ) -> Any:
            if len(dict(names)) < len(names):
                raise UsageError("--topic sends one topic to two others; give each topic once")
            html, histograms, as_json = (others.pop(one) for one in ("html_file", "histograms", "as_json"))
            require_reports(None, html, histograms, source=others.get(argument))
            own = {one.name: others.pop(one.name) for one in fields(Settings) if one.name in others}
            settings = Settings(
                bootstrap[0],
                others=bootstrap[1:],
                rate=rate or Rate(),
                records=records_max,
                names=dict(names),
                acks=ACKS[acks],
                restamp=restamp,
                by_second=bool(html or histograms or as_json),
                on_wait=complain,
                **own,
            )
            report, source = command(settings=settings, quiet=as_json, **others)
            place = ",".join(map(str, bootstrap))
            title = f"{source} to {place}"
            if as_json:
                counts = {**report.to_json(), "by_second": seconds_json(report)}
                echo_json({argument: source, "bootstrap": place, **counts})
            else:
                say(*report.lines(title))
            if histograms:
                write_histograms(report, histograms)
            if html:
                write_picture(report, title, html)
            # Use the exit code that a shell uses for a signal.
            return 128 + report.signal if report.signal else 0 if report.is_clean else 1

        shown = functools.partial(click.option, show_default=True)
        address = Word("host:port", Address.parse_all)
        return options.together(
            options.bootstrap("; several with commas", type=address, metavar="HOST:PORT,…", required=True),
            click.option("--rate", type=Word("rate", parse_rate), help="Records or bytes per second: 50k, 20MB/s."),
            options.duration(what),
            options.records(),
            options.topics,
            click.option("--topic", "names", type=Word("A=B", parse_name), multiple=True, help=RENAMED),
            click.option("--create", is_flag=True, help="Create missing topics, with retention.ms=-1."),
            options.replication,
            shown("--connections", type=click.IntRange(1, 1000), default=1, help="How many to each broker."),
            shown("--in-flight", type=click.IntRange(1, 10_000), default=5, help="Requests without an answer yet."),
            click.option("--pipeline", "pipelined", is_flag=True, help=PIPELINED),
            shown("--acks", type=click.Choice(list(ACKS)), default="all", help="How many replicas must have a batch."),
            options.timeout(default="30s"),
            shown("--retries", type=click.IntRange(0, 1000), default=retries, help="How often a batch is sent again."),
            shown("--reconnects", type=click.IntRange(0), default=reconnects, help=f"How often {what} connects again."),
            shown("--transactional-id", default=transactional_id, help="How the transactional ids begin."),
            shown("--transaction-timeout", "transaction_timeout_ms", type=options.TIME_MS, default="15m", help=OPEN),
            options.connection,
            options.as_json,
            options.html_file,
            click.option("--histograms", metavar="FILE", help="Write each second's latencies as an HdrHistogram log."),
        )(with_settings)

    return add
