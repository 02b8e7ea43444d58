"""``kfuzz kafka``: a broker of Apache Kafka to try things with. ``kfuzz.conformance.broker.lasting`` does the work."""

from __future__ import annotations

from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Group, echo_json, say
from kfuzz.client.address import PORT_MAX
from kfuzz.conformance.broker import lasting
from kfuzz.kafka import BROKER_RELEASE


@click.group(cls=Group)
def command() -> None:
    """Start and stop Apache Kafka's own broker on this machine, from its published artefacts.

    \b
    Examples:
      kfuzz kafka start
      kfuzz kafka stop
    """


@command.command()
@click.option("--port", type=click.IntRange(0, PORT_MAX), default=0, help="The port; any free one if it is not given.")
@options.as_json
def start(port: int, as_json: bool) -> None:
    """Start a broker that stays after this command, and print its address and where Kafka's scripts are.

    It needs Java and Maven, and a checkout of kfuzz. It listens only on 127.0.0.1. It keeps its topics until `kfuzz
    kafka stop --delete`. If it runs already, this command only says where.

    \b
    Examples:
      kfuzz kafka start
      kfuzz kafka start --port 9092 --json
    """
    found, is_new = lasting.start(port)
    home = lasting.home()
    places: dict[str, Any] = {"scripts": home / "bin", "log_dir": home / "data", "log": home / "broker.log"}
    if as_json:
        about = {"address": f"127.0.0.1:{found.port}", "pid": found.pid, "release": BROKER_RELEASE, "started": is_new}
        echo_json(about | places)
        return
    say(
        f"Apache Kafka {BROKER_RELEASE} {'runs' if is_new else 'already runs'} at 127.0.0.1:{found.port}, "
        f"process {found.pid}",
        *(f"{name.replace('_', ' ')}: {path}" for name, path in places.items()),
    )


@command.command()
@click.option("--delete", is_flag=True, help="Delete its topics too, and all its other files.")
@options.as_json
def stop(delete: bool, as_json: bool) -> None:
    """End the broker that `kfuzz kafka start` started, and no other process.

    \b
    Examples:
      kfuzz kafka stop
      kfuzz kafka stop --delete
    """
    found = lasting.stop(delete=delete)
    if as_json:
        echo_json({"stopped": found and found.pid, "deleted": delete})
        return
    say(f"process {found.pid} has ended" if found else "no broker of `kfuzz kafka start` runs")
