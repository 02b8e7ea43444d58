"""``kfuzz play``: plays one side of a recorded conversation. ``kfuzz.relay.playback`` does the work."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import click

from kfuzz.cli import options
from kfuzz.cli.console import PATH, echo_json, json_line, say
from kfuzz.cli.opening import conversation_of
from kfuzz.client.address import Access, Address, Security
from kfuzz.errors import UsageError
from kfuzz.relay.playback import Outcome, RecordedBroker, play_clients
from kfuzz.relay.recording import Recording
from kfuzz.replay import Settings as ReplaySettings
from kfuzz.replay import give
from kfuzz.serve import Server, Topics
from kfuzz.serve import Settings as ServeSettings
from kfuzz.serve.server import stopped_by_signals

# The topic of a golden conversation, in its frames.
TOPIC: Final = re.compile(rb"kfuzz-conversation(-\d+)?")


@click.command()
@click.argument("name", metavar="DIR|ID", type=PATH)
@options.bootstrap(" to play the clients to")
@click.option(
    "--listen", type=options.LISTEN, help="Play the brokers to clients that connect here; port 0 is any free one."
)
@options.timeout(default="30s")
@options.connection
@options.yes
@options.as_json
def command(
    name: Path,
    bootstrap: Address | None,
    listen: tuple[str, int] | None,
    timeout_ms: int,
    security: Security,
    open_to_others: bool,
    as_json: bool,
) -> int:
    """Play one side of a conversation that `kfuzz proxy --record DIR` has recorded, and compare the other side.

    With the id of a golden conversation, Kafka's own client or a real broker is played (docs/vectors.md). With
    --bootstrap, its topic is made first.

    With --bootstrap, the recorded requests go to a fresh broker, each after the responses that came before it. Its ids,
    epochs and offsets replace the recorded ones.

    With --listen, a fresh client gets the recorded responses: each request gets the next one of its API. It ends once
    all are given and the client has closed its connections, or by Ctrl-C.

    Differences are printed with both values. Times and ids may differ.

    Exit code 0: nothing differs; 1: something does; 2: wrong use.

    \b
    Examples:
      kfuzz play out/conversation --bootstrap 127.0.0.1:9092
      kfuzz play out/conversation --listen 127.0.0.1:19092
      kfuzz play conversation/groups/joined --bootstrap 127.0.0.1:9092
    """
    if (bootstrap is None) == (listen is None):
        raise UsageError(
            "give either --bootstrap HOST:PORT, to play the clients, or --listen HOST:PORT, to play the brokers"
        )
    vector = conversation_of(str(name))
    recording = Recording(name) if vector is None else Recording.of(vector)
    if recording.flaw:
        say(recording.flaw, err=True)
    if bootstrap is not None:
        access = Access(bootstrap, security, timeout_ms=timeout_ms)
        if vector is not None and (topic := TOPIC.search(vector.data)) is not None:
            given = [bytes.fromhex(one) for one in vector.options.get("given", ())]
            give(ReplaySettings(bootstrap, security, timeout_ms=timeout_ms), topic[0].decode(), given)
        outcome = asyncio.run(play_clients(recording, access, open_to_others=open_to_others))
    else:
        assert listen is not None
        outcome = asyncio.run(_listened(recording, *listen, open_to_others, as_json))
    if not as_json:
        say(*outcome.lines())
    elif listen is None:
        echo_json(outcome.to_json())
    else:
        # The first line has the places.
        click.echo(json_line(outcome.to_json()))
    return 0 if outcome.is_same else 1


async def _listened(recording: Recording, host: str, port: int, open_to_others: bool, as_json: bool) -> Outcome:
    broker = RecordedBroker(recording)
    settings = ServeSettings(host, port, open_to_others=open_to_others, brokers=len(broker.places))
    async with Server(Topics(), settings, tell=lambda sentence: say(sentence, err=True), broker=broker) as server:
        places = [str(one) for one in server.places]
        with stopped_by_signals(broker.done.set):
            if as_json:
                click.echo(json_line({"brokers": dict(zip(broker.places, places, strict=True))}))
            else:
                for recorded, place in zip(broker.places, places, strict=True):
                    click.echo(f"kfuzz listens at {place} for {recorded} of the record")
            await broker.done.wait()
    return broker.end()
