"""The classes for findings and finding codes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal, get_args

from kfuzz.kafka import Role

Profile = Literal["kafka", "strict"]
Severity = Literal["fatal", "deviation"]

# The path of a finding about a file as a whole.
WHOLE: Final = "file"
PROFILES: tuple[str, ...] = get_args(Profile)


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of one finding code.

    ``kafka`` is its severity in profile ``kafka``: for the consumer, and for each role whose own field is None. In
    profile ``strict``, which follows the documents, every code is fatal.
    ``requirement`` is an id in ``vectors/requirements.json``; None if only Kafka's code, not a document, has the rule.
    ``sentence`` is formatted with ``found``, ``allowed`` and ``count``.
    """

    kafka: Severity
    requirement: str | None
    sentence: str
    broker: Severity | None = None
    log: Severity | None = None

    def severity(self, profile: Profile, role: Role) -> Severity:
        """The severity for ``role`` in ``profile``."""
        if profile == "strict":
            return "fatal"
        own = {"consumer": None, "broker": self.broker, "log": self.log}[role]
        return own or self.kafka


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or odd in the bytes.

    ``at`` is a byte offset into the given buffer, or into the decompressed payload if ``path`` goes through
    ``payload``.
    ``count`` says how often the code occurred in the same batch; ``at`` and ``path`` are those of the first time.
    """

    code: str
    severity: Severity
    at: int
    path: str
    requirement: str | None
    message: str
    count: int = 1

    def __str__(self) -> str:
        again = f" ({self.count} times; this is the first)" if self.count > 1 else ""
        place = "" if self.path == WHOLE else f"{self.path} at byte {self.at}: "
        return f"{place}{self.message}{again} [{self.code}]"

    def to_json(self) -> dict[str, object]:
        """The finding as a JSON object, as every ``--json`` option prints it."""
        return asdict(self)
