"""What a finding is, and what a finding code means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kfuzz.kafka import Role

__all__ = ["PROFILES", "Code", "Finding", "Profile", "Severity"]

Profile = Literal["kafka", "strict"]
Severity = Literal["fatal", "deviation"]

PROFILES: tuple[str, ...] = get_args(Profile)


@dataclass(frozen=True, slots=True)
class Code:
    """What one finding code means.

    ``kafka`` is its severity for Apache Kafka itself: its consumer, and each role that has none of its own here. The
    documents (profile ``strict``) refuse every code.
    ``requirement`` is an id in ``vectors/requirements.json``; None where only Kafka, not a document, says so.
    ``sentence`` is formatted with ``found``, ``allowed`` and ``count``.
    """

    kafka: Severity
    requirement: str | None
    sentence: str
    broker: Severity | None = None
    log: Severity | None = None

    def severity(self, profile: Profile, role: Role) -> Severity:
        """How bad this is for ``role`` in ``profile``."""
        if profile == "strict":
            return "fatal"
        own = {"consumer": None, "broker": self.broker, "log": self.log}[role]
        return own or self.kafka


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or odd, with the bytes.

    ``at`` is a byte offset into the buffer given; where ``path`` goes through ``payload``, into that decompressed
    payload.
    ``count`` is how often the code occurred under the same batch; the place is the first one's.
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
        return f"{self.path} at byte {self.at}: {self.message}{again} [{self.code}]"

    def to_json(self) -> dict[str, object]:
        """The finding as the JSON object that every ``--json`` prints."""
        return {
            "code": self.code,
            "severity": self.severity,
            "at": self.at,
            "path": self.path,
            "requirement": self.requirement,
            "message": self.message,
            "count": self.count,
        }
