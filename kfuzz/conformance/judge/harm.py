"""How a deviation harms the users of a decoder: eight classes of harm, the worst first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Harm:
    """A class of harm: its ``name`` in documents, its ``title`` in tables, and why it matters.

    ``to_readers`` says that for a client that reads, ``to_brokers`` for a broker that gets the bytes of a producer, and
    ``to_producers`` for the program that uses a producer, where that is not the same as for readers.
    """

    name: str
    title: str
    to_readers: str
    to_brokers: str
    to_producers: str = ""

    def why(self, role: str) -> str:
        """Why it matters if an implementation in ``role`` does this."""
        told = {"broker": self.to_brokers, "produce": self.to_producers}.get(role)
        return told or self.to_readers


KILLS: Final = Harm(
    "kills",
    "kills the process",
    "one message ends the whole program, and again after each restart",
    "one request ends the broker for all its clients",
)
HANGS: Final = Harm(
    "hangs",
    "hangs or stalls",
    "the consumer stops at this offset for ever, without an error",
    "the request gets no answer, so the producer sends it again and again",
    "the program waits for ever to hear whether its records were sent",
)
MEMORY: Final = Harm(
    "memory",
    "memory beyond the budget",
    "a few bytes make the program take memory without a limit",
    "a few bytes make the broker take memory without a limit",
    "a few records make the program, brokers or consumers take far more memory than they need",
)
PANICS: Final = Harm(
    "panics",
    "panic or undeclared error",
    "a program that handles the documented errors does not handle this one",
    "the producer gets no documented error",
)
LOSES: Final = Harm(
    "loses",
    "loses or changes data",
    "the program continues with missing or wrong data and reports no error",
    "consumers get missing or wrong data, and the producer gets no error",
    "consumers get missing, repeated or wrong data, and the program gets no error",
)
ACCEPTS: Final = Harm(
    "accepts",
    "accepts what Kafka refuses",
    "damaged data is treated as good, and other clients stop at it",
    "damaged data is stored, and consumers stop at it",
)
REFUSES: Final = Harm(
    "refuses",
    "refuses what Kafka accepts",
    "the program cannot read data that Kafka stores and other clients read",
    "a producer cannot write data that Kafka stores",
    "the program cannot send data that Kafka stores",
)
DIFFERS: Final = Harm(
    "differs",
    "differs where either is allowed",
    "other clients see this differently; no data is lost",
    "other brokers store this differently; no data is lost",
    "other producers send this differently; no data is lost",
)

# The class of an outcome that is always wrong. A ``fail`` has its class from what is wrong with the answer.
HARM_OF: Final = {
    "crash": KILLS.name,
    "timeout": HANGS.name,
    "stall": HANGS.name,
    "memory": MEMORY.name,
    "panic": PANICS.name,
    "fault": PANICS.name,
    "protocol-error": PANICS.name,
}
# Worst first.
HARMS: Final = (KILLS, HANGS, MEMORY, PANICS, LOSES, ACCEPTS, REFUSES, DIFFERS)
RANK: Final = {harm.name: rank for rank, harm in enumerate(HARMS)}
_BY_NAME: Final = {harm.name: harm for harm in HARMS}


def harm_named(name: str) -> Harm:
    """The class of this name; ``KeyError`` if there is none."""
    return _BY_NAME[name]


def worst(names: Iterable[str]) -> str:
    """The worst of these classes. At least one of the names must be one; others do not count."""
    return min((name for name in names if name in RANK), key=RANK.__getitem__)
