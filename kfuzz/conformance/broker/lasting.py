"""An Apache Kafka broker that stays after the command that started it (docs/real-broker.md).

There is one for each user. Its files are in the user's cache, with a file that says which process it is.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import psutil

from kfuzz.client.address import PORT_MAX
from kfuzz.conformance.broker.real import STOP_TIMEOUT_S, Broker, java_command, make_broker_ready
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.files import locked, read_bytes, write_whole, writing
from kfuzz.forms import TEXT, ListOf, Wrong, integer, object_of
from kfuzz.kafka import BROKER_RELEASE

STATE: Final = "state.json"
STATE_BYTES_MAX: Final = 1 << 20
# Kafka's scripts that the documentation uses, and their main classes.
SCRIPTS: Final = {
    "kafka-configs": "ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
}


@dataclass(frozen=True, slots=True)
class Lasting:
    """A broker that runs: its process, its port on the loopback address, and how it was started."""

    pid: Annotated[int, integer(1, (1 << 31) - 1)]
    port: Annotated[int, integer(1, PORT_MAX)]
    command: Annotated[list[str], ListOf(TEXT)]

    def is_alive(self) -> bool:
        """Whether the process still is this broker: the command names a folder that only kfuzz's broker uses."""
        try:
            # The system may have replaced the first word with the path of the program.
            return bool(psutil.Process(self.pid).cmdline()[1:] == self.command[1:])
        except psutil.Error:
            return False


def home() -> Path:
    """The folder of the user's broker, with its log directory ``data``, ``broker.log`` and Kafka's scripts in ``bin``.

    Environment: ``XDG_CACHE_HOME``. ``UsageError`` if the user has no home directory either.
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    except RuntimeError:
        sentence = "this user has no home directory; set XDG_CACHE_HOME to a folder where the broker may keep its files"
        raise UsageError(sentence) from None
    return cache / "kfuzz" / f"kafka-{BROKER_RELEASE}"


def running() -> Lasting | None:
    """The user's broker; None if it does not run."""
    try:
        state = load_json(read_bytes(home() / STATE, bytes_max=STATE_BYTES_MAX), STATE)
        object_of(Lasting).check(state)
    except (OSError, UsageError, Wrong):
        return None
    found = Lasting(**state)
    return found if found.is_alive() else None


def start(port: int = 0) -> tuple[Lasting, bool]:
    """The user's broker, which is started if it does not run, and whether it was. It keeps the topics that it had.

    ``port`` is any free one for 0. ``UsageError`` if it runs with another port, or if Java or Maven is missing;
    ``BrokerFailed`` if it does not start.
    """
    folder = home()
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder):
        if found := running():
            if port not in (0, found.port):
                raise UsageError(f"the broker already runs at 127.0.0.1:{found.port}; end it first: kfuzz kafka stop")
            return found, False
        broker = _Staying(folder)
        try:
            broker.begin(port)
        except BaseException:
            broker.stop()
            (folder / STATE).unlink(missing_ok=True)
            raise
        found = running()
        assert found
        return found, True


def stop(*, delete: bool = False) -> Lasting | None:
    """End the user's broker, and return what ran; None if none did. ``delete`` removes its topics and all its files.

    No other process is ever ended.
    """
    folder = home()
    if not folder.is_dir():
        return None
    with locked(folder):
        if found := running():
            process = psutil.Process(found.pid)
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait()
        (folder / STATE).unlink(missing_ok=True)
        if delete:
            shutil.rmtree(folder)
    return found


class _Staying(Broker):
    """A broker in ``home`` with Kafka's own settings. It runs on when the process that started it has ended."""

    _main = "kafka.Kafka"
    _stdin = subprocess.DEVNULL
    # Kafka's defaults for its own topics need three brokers.
    _usual = Path(__file__).with_name("lasting.properties").read_text()

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home

    def begin(self, port: int) -> None:
        self._folder = make_broker_ready(self._release)
        self._format(port)
        (self._home / "bin").mkdir(exist_ok=True)
        for name, main in SCRIPTS.items():
            command = java_command(
                self._folder, f"org.apache.kafka.tools.{main}", (), log_levels={"defaultLogLevel": "warn"}
            )
            write_whole(self._home / "bin" / f"{name}.sh", f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', mode=0o755)
        self.start()

    def _launch(self) -> subprocess.Popen[bytes]:
        process = super()._launch()
        # Before it is ready: if kfuzz is killed now, `stop` must still find it.
        assert isinstance(process.args, list)
        state = asdict(Lasting(process.pid, self.port, process.args))
        write_whole(self._home / STATE, json.dumps(state), mode=0o600)
        return process
