"""``kfuzz proxy``: stands between clients and brokers. ``kfuzz.relay`` does the work."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import PATH, Place, Word, json_line, say
from kfuzz.client.address import Address
from kfuzz.relay.control import Control
from kfuzz.relay.loop import run
from kfuzz.relay.proxy import Proxy, Settings
from kfuzz.relay.rule import SEED, SEED_MAX, Rule, load_rules, parse_rule
from kfuzz.serve.server import stopped_by_signals


@click.command()
@click.argument("listen", type=options.LISTEN)
@click.argument("brokers", type=Word("host:port", Address.parse), nargs=-1, required=True)
@click.option("--check-batches", "batches", is_flag=True, help="Check the record batches too.")
@click.option(
    "--strict", is_flag=True, help="Close a connection instead of passing on a frame that is not as it should be."
)
@click.option(
    "--control",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Take lines of JSON on this port of this machine; 0 is any free one.",
)
@click.option(
    "--rule",
    "rules",
    type=Place("rule", parse_rule),
    multiple=True,
    help='Do something to frames, such as "EndTxn error=INVALID_TXN_STATE times=1"; may be repeated.',
)
@click.option(
    "--rules",
    "files",
    type=Place("file", load_rules),
    multiple=True,
    metavar="FILE",
    help="Take rules from a file of TOML, or of JSON; may be repeated. They come before those of --rule.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, SEED_MAX),
    metavar="N",
    help=f"Seed of the rules' random decisions.  [default: that of the last file, or {SEED}]",
)
@click.option("--record", type=PATH, metavar="DIR", help="Record what clients send and get into this folder.")
@click.option(
    "--record-max",
    "record_bytes_max",
    type=options.SIZE,
    default="1GiB",
    show_default=True,
    help="Stop recording at this size.",
)
@click.option(
    "--tls-cert",
    "cert",
    type=PATH,
    metavar="FILE",
    help="Encrypt towards clients, with this certificate. --tls is towards brokers.",
)
@click.option(
    "--tls-key", "key", type=PATH, metavar="FILE", help="The certificate's key.  [default: it is in the same file]"
)
@options.connection
@options.yes
@options.as_json
def command(
    listen: tuple[str, int],
    brokers: tuple[Address, ...],
    control: int | None,
    rules: tuple[Rule, ...],
    files: tuple[tuple[int | None, list[Rule]], ...],
    seed: int | None,
    as_json: bool,
    **others: Any,
) -> None:
    """Stand between any client and any broker or cluster, and read every frame.

    LISTEN is where clients find the first BROKER: HOST:PORT or a port, 0 for any free one. Each BROKER gets a place of
    its own, and so does each broker that a response names: the proxy replaces their addresses, so that all traffic goes
    through it. The first lines say where it listens. After Ctrl-C it prints what it has seen: for each API the counts,
    sizes, latencies and errors, then what a strict reader says of the frames.

    Exit code 0: ended by Ctrl-C; 2: wrong use, or a port or a certificate that cannot be used.

    \b
    Examples:
      kfuzz proxy 19092 127.0.0.1:9092
      kfuzz proxy 127.0.0.1:0 broker-1:9092 broker-2:9092 --yes --json
      kfuzz proxy 0 127.0.0.1:9092 --control 0 --json
      kfuzz proxy 19092 127.0.0.1:9092 --rule "Fetch delay_ms=500 probability=0.1" --seed 7
      kfuzz proxy 19092 127.0.0.1:9092 --record out/conversation
      kfuzz proxy 19092 127.0.0.1:9093 --tls-ca ca.pem --user me --tls-cert proxy.pem --tls-key proxy.key
    """
    host, port = listen
    seeds = [SEED, *(one for one, _ in files if one is not None), *([] if seed is None else [seed])]
    every_rule = (*(rule for _, given in files for rule in given), *rules)
    # The other options have the names of the settings.
    settings = Settings(host, port, rules=every_rule, seed=seeds[-1], **others)
    run(_run(brokers, settings, control, as_json))


async def _run(brokers: tuple[Address, ...], settings: Settings, control_port: int | None, as_json: bool) -> None:
    ended = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        proxy = Proxy(brokers, settings, tell=lambda sentence: say(sentence, err=True))
        control = None
        # Its port may be in use, and a recording is begun only if the proxy can start.
        if control_port is not None:
            control = await stack.enter_async_context(Control(proxy, control_port, ended.set))
        await stack.enter_async_context(proxy)
        with stopped_by_signals(ended.set):
            _say_places(proxy, control, as_json)
            await ended.wait()
    if as_json:
        click.echo(json_line(proxy.to_json()))
    else:
        say(*proxy.lines())


def _say_places(proxy: Proxy, control: Control | None, as_json: bool) -> None:
    places = {str(broker): str(place) for broker, place in proxy.places.items()}
    if as_json:
        first = {"bootstrap": proxy.bootstrap, "brokers": places}
        click.echo(json_line(first | ({"control_port": control.port} if control else {})))
        return
    for broker, place in places.items():
        click.echo(f"kfuzz listens at {place} for {broker}")
    if control is not None:
        click.echo(f"the control port is {control.port}")
