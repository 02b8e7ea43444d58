"""The Python part of a scan. At each stop it turns notes into findings, decompresses payloads and applies the role."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kfuzz.errors import UsageError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.findings.records import CODES, from_note
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, MESSAGE_CODECS, ROLES, Codec, Role
from kfuzz.records.codecs import Decompressed, decompress, open_stream
from kfuzz.records.model import Verdict
from kfuzz.records.read.limits import Limits
from kfuzz.wire.records.message_set import first_and_last
from kfuzz.wire.walk.produced import ProduceRules
from kfuzz.wire.walk.scan import BATCH, END, PAYLOAD, REFUSED, Scan
from kfuzz.wire.walk.segment import SegmentRules

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.io.report import Note

# Errors in a batch's frame. A log does not store such a batch.
OF_A_FRAME = ("crc-mismatch", "wrapper-crc-mismatch")
# Notes that a skimming broker ignores: PartialDefaultRecord does not check that fields stay inside the record's length.
SKIMMED_OVER = ("record-length-exceeds-payload", "record-length-mismatch")


def require_profile_and_role(profile: str, role: str) -> None:
    """Raise ``UsageError`` if the profile or the role does not exist."""
    if profile not in PROFILES:
        raise UsageError(f"profile {profile!r} does not exist; take one of {', '.join(PROFILES)}")
    if role not in ROLES:
        raise UsageError(f"role {role!r} does not exist; take one of {', '.join(ROLES)}")


class _Refused(Exception):
    """The scan ends here. The findings are already in the verdict."""


class Walk:
    """The Python part of one scan. Only this class turns the notes of the parse loops into findings."""

    __slots__ = ("data", "limits", "profile", "role", "scan", "unreadable", "verdict")

    def __init__(
        self,
        scan: Scan,
        data: Buffer,
        profile: Profile,
        limits: Limits,
        *,
        into: Verdict,
        role: Role = "consumer",
    ) -> None:
        self.scan = scan
        self.data = data
        self.profile: Profile = profile
        self.role: Role = role
        self.limits = limits
        self.verdict = into
        # True if a log stores the batch of this stop although no consumer can read it.
        self.unreadable = False

    @property
    def view(self) -> memoryview:
        """The bytes as a memoryview, made on each access: a verdict on good uncompressed bytes does not need it."""
        return memoryview(self.data).cast("B")

    def run(self, stop: int) -> None:
        """Judge all batches from this stop on, without keeping them."""
        while self.handle_stop(stop):
            stop = self.scan.next()

    def handle_stop(self, stop: int) -> bool:
        """Add the findings of this stop. Returns False if the scan ends here."""
        self.unreadable = False
        try:
            if self.role == "log":
                self.stored(stop)
            elif self.role == "broker":
                self.produced(stop)
            else:
                self.consumed(stop)
        except _Refused:
            return False
        return stop != END

    # -- one method for each role

    def consumed(self, stop: int) -> None:
        self.refuse(self.scan.notes())
        if stop == REFUSED:
            raise _Refused
        if stop == PAYLOAD:
            self.compressed()

    def stored(self, stop: int) -> None:
        """A batch of a segment. Its frame and CRC must be right, but its records may be unreadable."""
        scan = self.scan
        notes = scan.notes()
        if stop == BATCH or scan.size <= 0 or any(note[0] in OF_A_FRAME for note in notes):
            self.refuse(notes)
            return
        findings = self.verdict.findings
        known = len(findings)
        try:
            self.consumed(stop)
        except _Refused:
            self.unreadable = True
            found = findings[known:]
            del findings[known:]
            self.poison(found)
        scan.apply_policy(self.unreadable)
        rules = cast(SegmentRules, scan.policy)
        if rules.wants_start:
            rules.starts_at(self.wrapper_start())
        self.refuse(scan.notes())

    def produced(self, stop: int) -> None:
        """The batch of a Produce request."""
        scan = self.scan
        self.refuse(scan.notes())
        if stop == REFUSED:
            raise _Refused
        if stop != PAYLOAD:
            return
        at, size = scan.payload
        payload = self.decompressed(CODECS[scan.codec], self.view[at : at + size], at, 2)
        is_kept = cast(ProduceRules, scan.policy).keeps_codec(scan.codec)
        # A broker reads keys and values only if it rebuilds the batch, so the first pass only skims the records.
        if not scan.parse(payload, skim=True):
            self.refuse([note for note in scan.notes(inside=True) if note[0] not in SKIMMED_OVER], inside=".payload")
        scan.apply_policy()
        self.refuse(scan.notes(inside=True), inside=".payload")
        ok = scan.parse(payload)
        notes = scan.notes(inside=True)
        if ok or not is_kept:
            self.refuse(notes, inside=".payload")
            return
        path = f"batch[{scan.batch_count}].payload"
        self.poison([from_note(note, path, self.profile, self.role) for note in notes])
        self.unreadable = True

    # -- findings

    def add_findings(self, notes: list[Note], *, inside: str = "", detail: str = "") -> None:
        # A finding at the end of a segment is reported for its last batch.
        index = self.scan.batch_count - (self.scan.size == 0)
        path = f"batch[{max(index, 0)}]{inside}"
        for note in notes:
            self.verdict.findings.append(from_note(note, path, self.profile, self.role, detail))

    def note(
        self,
        code: str,
        field: str,
        at: int,
        found: int = 0,
        allowed: int = 0,
        *,
        detail: str = "",
    ) -> None:
        self.add_findings([(code, field, at, -1, -1, found, allowed, 1)], detail=detail)

    def refuse(self, notes: list[Note], *, inside: str = "") -> None:
        """Take the notes, and end the scan if Kafka would stop here."""
        self.add_findings(notes, inside=inside)
        if any(CODES[note[0]].severity("kafka", self.role) == "fatal" for note in notes):
            raise _Refused

    def poison(self, findings: list[Finding]) -> None:
        """Replace a fatal finding by ``records-unreadable``: the batch is stored, but every consumer will refuse it."""
        cause = next(finding for finding in findings if CODES[finding.code].kafka == "fatal")
        self.verdict.findings += [finding for finding in findings if finding is not cause]
        note = ("records-unreadable", "", cause.at, -1, -1, 0, 0, 1)
        self.verdict.findings.append(from_note(note, cause.path, self.profile, self.role, cause.message))

    # -- payloads

    def compressed(self) -> None:
        """Decompress the payload at which the scan stopped, and let the scan continue inside it."""
        scan = self.scan
        codec = CODECS[scan.codec]
        at, size = scan.payload
        body = self.view[at : at + size]
        if scan.magic == 2 and scan.found == 0:
            payload = self.opened(codec, body, at)
        else:
            payload = self.decompressed(codec, body, at, scan.magic)
        ok = scan.parse(payload)
        self.add_findings(scan.notes(inside=True), inside=".payload")
        self.add_findings(scan.notes_of_batch())
        if not ok:
            raise _Refused

    def opened(self, codec: Codec, body: memoryview, at: int) -> bytes:
        """Open the payload of a batch without records, as Kafka does.

        Kafka opens the stream of a compressed batch before it reads the record count. It then reads no record.
        """
        self.refuse_broken(open_stream(codec, body, self.limits.decompressed_bytes), body, at)
        if len(body) and not _is_empty_stream(codec, body):
            self.note("payload-without-records", "payload", at, len(body))
        return b""

    def decompressed(self, codec: Codec, data: memoryview, at: int, magic: int) -> bytes:
        out = decompress(codec, data, self.limits.decompressed_bytes, magic=magic)
        if out.ended != "whole":
            self.refuse_broken(out, data, at)
        if out.reason:
            self.note("compressed-content-mismatch", "payload", at, len(out.data), detail=out.reason)
        if out.consumed < len(data):
            self.note("bytes-after-compressed-stream", "payload", at + out.consumed, len(data) - out.consumed)
        return out.data

    def refuse_broken(self, out: Decompressed, data: memoryview, at: int) -> None:
        if out.ended == "broken":
            self.note("decompression-failed", "payload", at, len(data), detail=out.reason)
            raise _Refused
        if out.ended == "limit":
            self.note("decompressed-size-exceeded", "payload", at, len(data), self.limits.decompressed_bytes)
            raise _Refused

    def wrapper_start(self) -> int | None:
        """The offset of the first message in the wrapper at which the scan stopped, or None if it is unknown.

        Few wrappers need this, so the payload is read again. Messages that a consumer refuses may pass here. Mirrors
        ``AbstractLegacyRecordBatch.DeepRecordsIterator``.
        """
        scan = self.scan
        offset, _, _ = scan.message_fields()
        at, size = scan.payload
        if size < 0 or scan.codec >= len(MESSAGE_CODECS):
            return None
        out = decompress(
            CODECS[scan.codec], self.view[at : at + size], self.limits.decompressed_bytes, magic=scan.magic
        )
        if out.ended == "limit":
            # Kafka has no such bound, so assume that the wrapper begins where it should. Another finding reports the
            # bound.
            return offset
        found = None if out.ended == "broken" else first_and_last(out.data)
        if found is None:
            return None
        first, last = found
        if scan.magic == 0 or offset == 0:
            return first
        return None if offset < last else wrap64(offset - last + first)


def _is_empty_stream(codec: Codec, data: memoryview) -> bool:
    """Whether ``data`` is an empty compressed stream. The documents allow it in an empty batch."""
    return decompress(codec, data, 0) == (b"", len(data), "whole", "")
