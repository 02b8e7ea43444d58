"""``kfuzz check``: shows findings in files of record batches, in the files beside them, and in log directories."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import echo_json, json_text, open_buffer, progress, say
from kfuzz.cli.opening import log_at
from kfuzz.errors import UsageError
from kfuzz.findings.stored import length_wrong
from kfuzz.mapped import require_whole
from kfuzz.text import printable
from kfuzz.units import counted
from kfuzz.wire.walk.search import Search

if TYPE_CHECKING:
    from kfuzz.client.copying import Live
    from kfuzz.logs.checking import Counts
    from kfuzz.records import Limits, Profile, Role


@click.command()
@click.argument("files", metavar="[FILE|DIR]...", nargs=-1)
@options.topics
@options.live
@options.role(default=None, usual="log for a directory, otherwise consumer")
@options.profile
@options.limits
@options.as_json
def command(
    files: tuple[str, ...],
    topics: str,
    live: Live | None,
    role: Role | None,
    profile: Profile,
    limits: Limits,
    as_json: bool,
) -> int:
    """Show findings in files of record batches: log segments, fetches, vectors as bytes; - is standard input. Indexes,
    producer snapshots and checkpoints are known by their names, and judged as a broker does that starts.

    Of a directory, all segments, indexes, snapshots and checkpoints are judged, also after damage. In the role log, its
    default, each partition and the broker's checkpoints are judged as a whole too. The first lines say what a broker
    does at its next start with each partition that it does not load as it is. Then, for each file that has findings,
    the first of each code is shown, then a summary by code.

    The role says what a file of batches holds. consumer: the records that a fetch returns. broker: the records of one
    partition in a Produce request, under Kafka's default limits; --profile strict adds the documents' rules for
    producers. log: a segment that a broker must be able to load at its start. In the role log, records that cannot be
    read are not an error.

    Links in a directory are skipped, as are pipes and devices.

    Exit code 0: no file has a fatal finding; 1: at least one has; 2: a file cannot be opened, or has no record batches
    but something else, such as a capture or a compressed file. A partial batch at the end of a file is reported, but it
    is not an error, unless sound batches follow it: then its length is wrong.

    \b
    Examples:
      kfuzz check 00000000000000000000.log
      kfuzz check 00000000000000000000.index
      kfuzz check /var/lib/kafka/data
      kfuzz check --profile strict *.log
      kfuzz check --role broker --profile strict produced.bin
      kfuzz check --json fetch.bin
    """
    asked = _Asked(profile, role or "consumer", limits, as_json)
    out: list[dict[str, Any]] = []
    fatal = False
    if topics != "*" and live is None:
        raise UsageError("--topics needs --bootstrap; name the folders of partitions to judge some of a log directory")
    for name in (*files, None) if live or not files else files:
        with log_at(name, live if name is None else None, topics=topics) as place:
            if place != "-" and Path(place).is_dir():
                # A copy of a live topic has nothing of the broker's beside its batches.
                is_copy = name is None
                document, is_fatal = _directory(place, replace(asked, role=role or ("consumer" if is_copy else "log")))
            else:
                document, is_fatal = _file(place, asked)
            if as_json:
                # Here the real names of the files are known.
                out.append(json.loads(json_text(document)))
        fatal = fatal or is_fatal
    if as_json:
        echo_json(out)
    if asked.unread:
        raise UsageError(asked.unread[0])
    return 1 if fatal else 0


@dataclass(frozen=True)
class _Asked:
    """The options of the verb, and a sentence about each file of a directory that could not be read."""

    profile: Profile
    role: Role
    limits: Limits
    as_json: bool
    unread: list[str] = field(default_factory=list)

    @property
    def rules(self) -> dict[str, Any]:
        """The options of a judgement."""
        return {"profile": self.profile, "role": self.role, "limits": self.limits}

    def say(self, *lines: str) -> None:
        if not self.as_json:
            say(*lines)


def _file(name: str, asked: _Asked) -> tuple[dict[str, Any], bool]:
    """Judge one file and print it. Returns its JSON, and whether it is refused."""
    from kfuzz import records
    from kfuzz.annotate.dump import FINDINGS_MAX
    from kfuzz.annotate.listing import Listing, find_next
    from kfuzz.cli.opening import stored_kind
    from kfuzz.logs.contents import not_batches, require_batches
    from kfuzz.logs.lost import lost_at

    data = open_buffer(name)
    if (kind := stored_kind(name, data)) is not None:
        stored = kind.read(Path(name), data, asked.profile)
        require_whole(data)
        asked.say(*(f"{name}: {finding.severity}: {finding}" for finding in stored.findings))
        asked.say(f"{name}: {'refused' if stored.is_refused else 'ok'}, {stored.outcome}")
        document = {"file": name, "accepted": not stored.is_refused, "entries": stored.count} | stored.to_json()
        return document, stored.is_refused
    require_batches(name, data)
    reading = records.check(data, **asked.rules, findings_max=FINDINGS_MAX)
    # The check of a segment has looked already.
    after = None if reading.next_batch < 0 else reading.next_batch
    # Only the end of a whole file may be cut off.
    if reading.partial_tail and asked.role != "log":
        whole = data if isinstance(data, mmap.mmap) else None
        after = find_next(Search(data), whole, reading.consumed + 1, len(data))
    require_whole(data)
    if after is not None and reading.partial_tail:
        reading.findings.append(length_wrong(reading.batch_count, reading.consumed, after, asked.profile))
        reading.partial_tail = False
    if reading.partial_tail and not reading.consumed and (other := not_batches(data, asked.profile)) is not None:
        reading.findings.append(other)
        reading.partial_tail = False
    asked.say(*(f"{name}: {finding.severity}: {finding}" for finding in reading.findings))
    if reading.more_findings:
        asked.say(f"{name}: {counted(reading.more_findings, 'more finding')}")
    tail = f", then a partial tail of {len(data) - reading.consumed} bytes" if reading.partial_tail else ""
    state = "refused after" if reading.fatal else "ok,"
    counts = f"{reading.batch_count} batches, {reading.record_count} records, {reading.consumed} bytes"
    asked.say(f"{name}: {state} {counts}{tail}")
    lost = None
    if reading.fatal and reading.consumed < len(data) and asked.role != "broker":
        lost = lost_at(name, Listing(data, **asked.rules), reading.consumed)
    if lost is not None:
        asked.say(f"{name}: {lost}")
    if lost is not None and lost.skip:
        asked.say(f"to pass over it: {lost.skip}")
    if after is not None and not asked.as_json:
        asked.say(_hidden(name, data, after))
    return {
        "file": name,
        "size": len(data),
        "batches": reading.batch_count,
        "records": reading.record_count,
        "consumed": reading.consumed,
        "partial_tail": reading.partial_tail,
        "accepted": reading.fatal is None,
        "findings": [finding.to_json() for finding in reading.findings],
        "more_findings": reading.more_findings,
        "lost": None if lost is None else lost.to_json(),
    }, reading.fatal is not None


def _hidden(name: str, data: bytes | mmap.mmap, after: int) -> str:
    """The batches that a broker would cut off: the sound batches from byte ``after`` on."""
    from kfuzz.annotate.listing import Listing

    listing = Listing(memoryview(data)[after:])
    for _ in listing:
        pass
    batches = counted(listing.batches - listing.refused, "sound batch", "sound batches")
    return (
        f"{name}: {batches} with {counted(listing.records, 'record')} from byte {after} on; a broker that recovers the "
        "file cuts them off, and `kfuzz salvage` copies them"
    )


def _directory(name: str, asked: _Asked) -> tuple[dict[str, Any], bool]:
    """Judge the files below a directory. Prints findings and partial tails, then a summary. Returns as `_file` does."""
    from kfuzz.logs.checking import Counts, check_directory
    from kfuzz.logs.whole import Start, leaving_starts

    counts = Counts()
    bad: list[dict[str, Any]] = []
    starts: list[dict[str, Any]] = []
    # The places of each sentence; many partitions of a broker have the same ones.
    answers: dict[str, list[str]] = {}
    reasons: dict[str, list[str]] = {}
    with progress("check, MiB", None) as set_done:
        found = check_directory(name, counts, **asked.rules, on_bytes=lambda done, total: set_done(done >> 20))
        for one in found:
            place = printable(str(one.path))
            if one.start and not one.start.is_plain:
                answers.setdefault(str(one.start), []).append(place)
                if one.title == "log directory":
                    # It decides about all partitions.
                    answers = {str(one.start): [place], **answers}
                starts.append({"path": str(one.path)} | one.start.to_json())
            if one.skipped:
                reasons[f"{place}: skipped: {one.skipped}"] = []
            lines = [f"a partial tail of {one.tail} bytes"] if one.tail else []
            if one.findings or one.skipped or one.tail or one.lost:
                bad.append(one.to_json() if asked.as_json else {})
            for finding, places in one.findings:
                more = f" ({places} such places in this file)" if places > 1 else ""
                lines.append(f"{finding.severity}: {finding}{more}")
            lines += map(str, one.lost)
            if one.more_lost:
                lines.append(f"{counted(one.more_lost, 'more stretch', 'more stretches')} of damage")
            for line in lines:
                reasons.setdefault(line, []).append(place)
            if one.lost and one.lost[0].skip:
                reasons[f"to pass over the first: {one.lost[0].skip}"] = []
    for folder, act in leaving_starts(sorted(counts.passed) if asked.role == "log" else ()):
        answers.setdefault(f"at its next start, a broker {act}", []).append(printable(str(folder)))
        starts.append({"path": str(folder)} | Start(act, act, None).to_json())
    # First the answer, then the reasons.
    for line, at in [*answers.items(), *reasons.items()]:
        others = f" and {len(at) - 1} more" if len(at) > 1 else ""
        asked.say(f"{at[0]}{others}: {line}" if at else line)
    if not counts.segments + counts.other_files:
        raise UsageError(f"{name}: none of its {counts.skipped_files} files could be judged; see the lines above")
    asked.say(*_summary(name, counts))
    asked.unread.extend(counts.unread)
    document = {"directory": name, "accepted": not counts.is_refused, "starts": starts, "files": bad}
    return document | counts.to_json(), counts.is_refused


def _summary(name: str, counts: Counts) -> Iterator[str]:
    """The lines under a directory: sums, then each code."""
    from kfuzz.logs.stored import left_out

    skipped = f", {counts.skipped_files} skipped" if counts.skipped_files else ""
    yield (
        f"{name}: {'refused' if counts.is_refused else 'ok'}, {len(counts.partitions)} partitions, "
        f"{counts.segments} segments, {counts.other_files} other files: {counts.batches} batches, "
        f"{counts.records} records, {counts.size} bytes{skipped}"
    )
    if sentence := left_out(counts.passed):
        yield sentence
    if counts.refused_files:
        yield f"{counts.refused_files} of the files cannot be read as a whole"
    for code, found in sorted(counts.codes.items(), key=lambda item: (item[1].severity != "fatal", item[0])):
        where = f"{counted(found.places, 'place')} in {counted(found.files, 'file')}"
        yield f"  {found.severity} {code}: {where}, first in {found.first_file}"
