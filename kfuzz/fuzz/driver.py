"""A whole client that a program of its own drives, by lines of JSON (testees/README.md, "Drive a whole client").

The program is a process with budgets. It serves one consumer after the other, and is started again after anything odd.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from kfuzz.conformance.judge.harm import HANGS, HARM_OF, KILLS
from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.conformance.protocol.session import Budget, Limits, NoHandshake, Session, Trouble
from kfuzz.conformance.protocol.stacks import library_line
from kfuzz.conformance.protocol.testees import CLIENT, Testee, all_testees, from_command, select
from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.fuzz.stage import Stage
from kfuzz.text import foreign_text

# The module that runs a driver as a testee. The testee's name, its language and the driver's command follow it.
KIT: Final = "kfuzz_serving.py"
WORDS_BEFORE: Final = 2
# To look at a process tree takes longer than most lines.
LOOK_S: Final = 0.25
LINE_BYTES_MAX: Final = 64 << 20
ERROR_CHARACTERS_MAX: Final = 2000
COMPUTES: Final = "computes without an end in"
RETURNS_NOT: Final = "does not return from"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a client: for one call; and ``recover_ms``, until it hands out something again.

    ``request_timeout_ms`` is the time limit of a request that the driver sets, if its library can do that.
    """

    cpu_ms: int = 5000
    call_ms: int = 10_000
    recover_ms: int = 3000
    request_timeout_ms: int = 1000
    memory_bytes: int = 1 << 30
    start_ms: int = 60_000

    @property
    def call(self) -> Budget:
        """The budget of one line."""
        return Budget(self.cpu_ms, self.memory_bytes, self.call_ms)


class Ended(NamedTuple):
    """How a consumer ended.

    - ``harm``: the name of the class of harm; "" if it did as it should, which may be an error.
    - ``error``: what was wrong; ``at``: the library's line of source, if it is known.
    - ``after``: the API of the last response that was changed; "" if none was.
    """

    harm: str = ""
    error: str = ""
    at: str = ""
    after: str = ""


def named_client(text: str) -> Testee:
    """The whole client of a testee's name, or the driver that a command starts, ready to run. ``UsageError``."""
    known = [one for one in all_testees() if text in (one.name, one.label)]
    if not known and ("@" not in text or " " in text):
        return from_command(text, "--client")
    testee = (known or select(all_testees(), [text]))[0]
    at = next((at for at, word in enumerate(testee.argv) if Path(word).name == KIT), None)
    if testee.kind != CLIENT or at is None:
        clients = ", ".join(one.name for one in all_testees() if one.kind == CLIENT and KIT in " ".join(one.argv))
        why = "because it is not a whole client"
        raise UsageError(f"{testee.name} cannot be driven, {why}; take one of {clients}, or a command")
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or take another client")
    try:
        testee.make_ready()
    except BuildFailed as error:
        raise UsageError(f"{testee.label}: {error}") from None
    return replace(testee, argv=testee.argv[at + 1 + WORDS_BEFORE :])


class Driver:
    """The process of a driver. ``UsageError`` if it cannot be started. Use it in a ``with`` block."""

    def __init__(self, client: Testee, bounds: Bounds) -> None:
        self._client = client
        # Those of the next question.
        self.bounds = bounds
        self._session: Session | None = None
        self.version = client.version
        # The abilities of the library's producers, in the words of the handshake.
        self.produces: frozenset[str] = frozenset()
        self.starts = 0
        self.stage = Stage()

    def __enter__(self) -> Driver:
        self.stage.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.stage.__exit__()

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self._session is not None

    def start(self) -> None:
        """Start the process if there is none."""
        if self._session is not None:
            return
        selector = self.stage.selector()
        session = self._session = Session(self._client.argv, cwd=self._client.folder, look_s=LOOK_S, selector=selector)
        self.starts += 1
        try:
            limits = Limits(memory_bytes=self.bounds.memory_bytes, start_ms=self.bounds.start_ms)
            hello = _object(session.begin(limits))
            self.version = foreign_text(str(hello.get("version", "")), bytes_max=100)
            self.produces = frozenset(map(str, hello.get("produces") or ()))
        except (NoHandshake, UsageError) as error:
            raise self._wrong(error) from None
        except TypeError:
            raise self._wrong(UsageError("the driver's line has no list of words in produces")) from None

    def _wrong(self, error: Exception) -> UsageError:
        """The error for a driver that does not speak as drivers do. It is stopped."""
        self.stop()
        return UsageError(f"--client {self._client.name}: {error} (testees/README.md has the lines of drivers)")

    def stop(self) -> None:
        """Kill the process, and all that it has started."""
        if self._session is not None:
            self._session.kill()
            self._session = None

    def ask(self, **line: Any) -> dict[str, Any] | Ended:
        """The answer to a line; or how the process or the consumer has ended. Then there may be no process any more."""
        session = self._session
        assert session is not None
        session.send(json.dumps(line).encode() + b"\n")
        got = session.next_line(self.bounds.call)
        if isinstance(got, Trouble):
            ended = self._ended(session, got, line["do"])
            self.stop()
            return ended
        try:
            said = _object(got)
        except UsageError as error:
            raise self._wrong(error) from None
        return ended_as(said) if "outcome" in said else said

    def _ended(self, session: Session, trouble: Trouble, do: str) -> Ended:
        harm = HARM_OF[trouble.outcome]
        if harm == HANGS.name:
            return Ended(harm, f"{COMPUTES if 'CPU time' in trouble.text else RETURNS_NOT} {do}")
        if harm == KILLS.name and (words := session.last_words()):
            at = library_line(session.standard_error(), self._client.of)
            return Ended(harm, foreign_text(f"{trouble.text}: {words}"), at)
        return Ended(harm, trouble.text, trouble.at)


def ended_as(said: dict[str, Any]) -> Ended:
    """How a consumer or a send has ended, by an answer with an ``outcome``."""
    harm = HARM_OF.get(str(said["outcome"]), "")
    text, at = (foreign_text(str(said.get(name, "")), bytes_max=ERROR_CHARACTERS_MAX) for name in ("error", "at"))
    return Ended(harm, text or str(said["outcome"])[:100], at)


def _object(line: bytes) -> dict[str, Any]:
    said = load_json(line, "the driver's line", bytes_max=LINE_BYTES_MAX, remedy="write an object of JSON")
    if not isinstance(said, dict):
        raise UsageError("the driver's line is not a JSON object; write one")
    return said
