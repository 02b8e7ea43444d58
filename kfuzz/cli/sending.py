"""The options for sending batches and the report, which `kfuzz corpus replay` and `kfuzz load` share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Word, echo_json, say
from kfuzz.replay import ACKS, Address, Rate, Report, Settings, parse_name, parse_rate


def sending_options(
    what: str, *, retries: int, reconnects: int, transactional_id: str
) -> Callable[..., Callable[..., Any]]:
    """The options of a verb that sends batches. ``what`` names its work.

    The verb gets ``make``, which makes ``Settings`` of them and of more, and ``as_json``.
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
            duration_s: float | None,
            **others: Any,
        ) -> Any:
            own = {name: others.pop(name) for name in SETTINGS}
            make = functools.partial(
                Settings,
                bootstrap[0],
                others=bootstrap[1:],
                rate=rate or Rate(),
                records=records_max,
                names=dict(names),
                acks=ACKS[acks],
                duration_s=duration_s,
                **own,
            )
            return command(make=make, **others)

        return options.together(
            options.bootstrap(
                "; several with commas",
                type=Word("host:port", Address.parse_all),
                metavar="HOST:PORT,…",
                required=True,
            ),
            click.option("--rate", type=Word("rate", parse_rate), help="Records or bytes per second: 50k, 20MB/s."),
            options.duration(what),
            options.records(),
            options.topics,
            click.option(
                "--topic",
                "names",
                type=Word("A=B", parse_name),
                multiple=True,
                help="Send topic A to topic B; may be repeated.",
            ),
            click.option("--create", is_flag=True, help="Create missing topics, with retention.ms=-1."),
            options.replication,
            click.option(
                "--connections",
                type=click.IntRange(1, 1000),
                default=1,
                show_default=True,
                help="How many to each broker.",
            ),
            click.option(
                "--in-flight",
                type=click.IntRange(1, 10_000),
                default=5,
                show_default=True,
                help="Requests without an answer yet.",
            ),
            click.option(
                "--pipeline",
                "pipelined",
                is_flag=True,
                help="Faster; a batch that is sent again may come after later ones of its partition.",
            ),
            click.option(
                "--acks",
                type=click.Choice(list(ACKS)),
                default="all",
                show_default=True,
                help="How many replicas must have a batch.",
            ),
            options.timeout(default="30s"),
            click.option(
                "--retries",
                type=click.IntRange(0, 1000),
                default=retries,
                show_default=True,
                help="How often a batch is sent again.",
            ),
            click.option(
                "--reconnects",
                type=click.IntRange(0),
                default=reconnects,
                show_default=True,
                help=f"How often {what} connects again.",
            ),
            click.option(
                "--transactional-id",
                default=transactional_id,
                show_default=True,
                help="How the transactional ids begin.",
            ),
            click.option(
                "--transaction-timeout",
                "transaction_timeout_ms",
                type=options.TIME_MS,
                default="15m",
                show_default=True,
                help="How long a transaction may be open at the broker.",
            ),
            options.connection,
            options.as_json,
        )(with_settings)

    return add


# The options that have the names of settings.
SETTINGS = (
    "create",
    "replication",
    "connections",
    "in_flight",
    "pipelined",
    "timeout_ms",
    "retries",
    "reconnects",
    "transactional_id",
    "transaction_timeout_ms",
    "security",
)


def tell(report: Report, what: str, source: str, settings: Settings, *, as_json: bool) -> int:
    """Print the report of what was sent from ``source``; returns the exit code."""
    bootstrap = ",".join(map(str, (settings.bootstrap, *settings.others)))
    if as_json:
        echo_json({what: source, "bootstrap": bootstrap, **report.to_json()})
    else:
        say(*report.lines(f"{source} to {bootstrap}"))
    # Use the exit code that a shell uses for a signal.
    return 128 + report.signal if report.signal else 0 if report.is_clean else 1
