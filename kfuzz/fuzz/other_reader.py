"""Shows the inputs of a campaign to a testee, most often Apache Kafka, while the campaign runs.

The targets compare kfuzz with itself. A wrong value that all of kfuzz's own paths agree on is only seen here.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Final

from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.differential.messages import differ_inputs
from kfuzz.conformance.differential.records import differ
from kfuzz.conformance.judge.causes import Deviation
from kfuzz.conformance.judge.harm import ACCEPTS, REFUSES
from kfuzz.conformance.protocol.testees import Testee, all_testees, select
from kfuzz.errors import UsageError
from kfuzz.fuzz.decoded_bytes import body_of
from kfuzz.fuzz.messages import SELECTOR_SIZE, chosen, selector
from kfuzz.fuzz.packing import stream_of, unpack
from kfuzz.fuzz.sample_pipe import Samples
from kfuzz.fuzz.targets import Target
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.model import Definition
from kfuzz.records import Role

# How often to look for new inputs in the corpus.
PAUSE_S: Final = 0.3
# How long the testee may take for the answers that it still owes when nothing more is asked.
WIND_DOWN_S: Final = 5
# As whom the testee reads the batches of each target.
ROLES: Final[Mapping[str, Role]] = {
    "record-batch": "consumer",
    "compressed-batch": "consumer",
    "columns": "consumer",
    "compression": "consumer",
    "broker": "broker",
    "log-tools": "log",
}
MESSAGES: Final = "messages"
# The class of what kfuzz does, if the testee is right.
SWAPPED: Final = {ACCEPTS.name: REFUSES.name, REFUSES.name: ACCEPTS.name}


def named_testee(name: str) -> Testee:
    """The last testee of this name or label. ``UsageError`` if there is none, or if its toolchain is missing."""
    testee = select(all_testees(), [name])[-1]
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or leave out --truth")
    return testee


class Truth:
    """A thread that gives ``testee`` each input in the folder ``corpus``, also those that come while it runs.

    So it does with the sample of all inputs that comes through the pipe ``samples``.
    """

    def __init__(self, testee: Testee, target: Target, corpus: Path) -> None:
        self._testee = testee
        self._target = target
        self._corpus = corpus
        self._samples: Samples | None = None
        self._seen: set[str] = set()
        self._last_look = threading.Event()
        self._at_once = threading.Event()
        # Whether it had not answered everything when its time was over.
        self.is_late = False
        self._begun = threading.Event()
        self._found: Differential | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"kfuzz-truth-{target.name}", daemon=True)

    @property
    def label(self) -> str:
        """The testee, as the command line names it."""
        return self._testee.label

    def input_of(self, item: Deviation) -> bytes:
        """The target's own input of a deviation: with what selects the message, and before it is compressed."""
        if self._target.name == MESSAGES:
            definition = catalogue().messages[item.request["message"]]
            return selector(definition, item.request["version"]) + item.data
        if self._target.streams:
            return stream_of(item.data)
        return unpack(item.data) if self._target.compresses else item.data

    def described(self, item: Deviation) -> str:
        """The fault of kfuzz's reading, if the testee is right. A deviation states the fault of the testee's."""
        rest = item.reason.removeprefix(f"{item.error}; ")
        if rest == item.reason or item.harm in SWAPPED:
            return rest
        return f"as {self.label} reads it, {item.reason}"

    @staticmethod
    def knows(target: Target) -> bool:
        """Whether a testee can be asked about the inputs of this target."""
        return target.name == MESSAGES or target.name in ROLES

    def start(self, samples: Path) -> None:
        """Make the pipe ``samples`` and begin to ask. Raises ``UsageError`` if the testee cannot be started."""
        self._samples = Samples(samples)
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ask nothing more."""
        self._at_once.set()

    def finish(self, late_s: float) -> Differential | None:
        """Ask about what is still there, for ``late_s`` seconds at most, and return the result; None if it was not
        started.
        """
        if not self._thread.ident:
            return None
        self._last_look.set()
        until = time.monotonic() + late_s
        while self._thread.is_alive() and time.monotonic() < until and not self._at_once.is_set():
            self._thread.join(PAUSE_S)
        self.is_late = self._thread.is_alive() and not self._at_once.is_set()
        self.stop()
        self._thread.join(WIND_DOWN_S)
        if self._thread.is_alive():
            # Each of 64 answers may take most of a minute. This also ends the testee.
            thread = ctypes.c_ulong(self._thread.ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(SystemExit))
            self._thread.join(WIND_DOWN_S)
        if self._error is not None:
            raise self._error
        return self._found

    def _run(self) -> None:
        try:
            if self._target.name == MESSAGES:
                differ_inputs(self._testee, self._messages(), begun=self._keep)
            else:
                differ(self._testee, self._batches(), role=ROLES[self._target.name], begun=self._keep)
        except SystemExit:
            # Its time is over.
            pass
        except Exception as error:
            self._error = error
        finally:
            assert self._samples is not None
            self._samples.close()
            self._begun.set()

    def _keep(self, found: Differential) -> None:
        self._found = found
        self._begun.set()

    @property
    def differences(self) -> int:
        """How many inputs differ so far."""
        return len(self._found.deviations) if self._found else 0

    def _batches(self) -> Iterator[bytes]:
        bodies = (body_of(self._target, data) for data in self._inputs())
        yield from (body.data for body in bodies if body is not None)

    def _messages(self) -> Iterator[tuple[Definition, int, bytes]]:
        for data in self._inputs():
            if choice := chosen(data):
                yield *choice, data[SELECTOR_SIZE:]

    def _inputs(self) -> Iterator[bytes]:
        assert self._samples is not None
        looked_at = -math.inf
        while True:
            is_last = self._last_look.is_set()
            if is_last or time.monotonic() - looked_at >= PAUSE_S:
                looked_at = time.monotonic()
                yield from self._as_answered(self._new())
            sample = self._samples.take(PAUSE_S)
            yield from self._as_answered(sample)
            if self._at_once.is_set() or (is_last and not sample):
                return

    def _as_answered(self, inputs: Iterable[bytes]) -> Iterator[bytes]:
        return takewhile(lambda data: not self._at_once.is_set(), inputs)

    def _new(self) -> Iterator[bytes]:
        """The inputs that are new in the corpus."""
        for name in sorted({entry.name for entry in os.scandir(self._corpus) if entry.is_file()} - self._seen):
            # An input that broke the target was set aside.
            with contextlib.suppress(FileNotFoundError):
                # An empty file is not written yet.
                if data := (self._corpus / name).read_bytes():
                    self._seen.add(name)
                    yield data


def asked_once(testee: Testee, target: Target, data: bytes) -> Deviation | None:
    """How kfuzz and ``testee`` disagree about one input of the target; None if they agree.

    ``UsageError`` if the testee does not start.
    """
    body = body_of(target, data)
    if body is None:
        return None
    if body.message is not None:
        found = differ_inputs(testee, [(*body.message, body.data)])
    else:
        found = differ(testee, [body.data], role=ROLES[target.name])
    return next(iter(found.deviations), None)


def harm_of(item: Deviation) -> str:
    """The class of harm of what kfuzz does, if the testee is right."""
    return SWAPPED.get(item.harm, item.harm)
