"""``kfuzz salvage``: copies the sound batches of a damaged log, with new indexes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Complaints, complain, echo_json, say
from kfuzz.cli.opening import log_at
from kfuzz.units import counted

if TYPE_CHECKING:
    from kfuzz.logs.salvaging import Salvaged


@click.command()
@click.argument("path", metavar="FILE|DIR")
@options.out("the copy", required=True)
@options.topics
@options.dry_run
@options.as_json
def command(path: str, out: Path, topics: str, dry_run: bool, as_json: bool) -> int:
    """Copy every batch that Apache Kafka accepts of a segment file, a partition folder or a log directory.

    A batch is kept if a consumer reads it and a broker that loads the segment continues after it. Kept batches are
    copied byte for byte. The copy has new indexes, leader epochs and producer snapshots, so that a broker loads it
    without a rebuild. The original is only read.

    A lost marker of a transaction is written again if the original's transaction indexes and snapshots show how the
    transaction ended. Offsets are lost too where a segment is missing, or the last one ended later by the names and
    indexes beside it. Kept records that were committed, aborted or open, and are not so in the copy, are listed.

    Where a batch's length is wrong, the next batch is found by the offset index, or by searching for a batch whose CRC
    is right. Links inside a log directory are skipped, as are pipes and devices.

    --dry-run says all of this and writes nothing there; it needs room for the copy of a partition in the folder for
    temporary files.

    Exit code 0: nothing was lost; 1: something was, and each loss is listed; 2: wrong use.

    \b
    Examples:
      kfuzz salvage orders-0/00000000000000000000.log --out rescued
      kfuzz salvage /var/lib/kafka/data --topics orders --out rescued --json
    """
    from kfuzz.logs.salvaging import salvage
    from kfuzz.logs.segments import left_out_topics, passed_over
    from kfuzz.logs.stored import META_PROPERTIES
    from kfuzz.logs.whole import Directory

    complaints = Complaints()
    with log_at(path) as place:
        done = salvage(
            place,
            out,
            topics=topics,
            dry_run=dry_run,
            on_segment=(lambda one: None) if as_json else _print,
            pass_over=complaints.skip,
        )
        if as_json:
            echo_json([_to_json(one) for one in done])
        else:
            lost = sum(one.lost_bytes for one in done)
            kept = sum(one.kept_bytes for one in done)
            nothing = "; nothing was written" if dry_run else ""
            gaps = sum(not gap.is_empty for one in done for gap in one.gaps)
            gap = f" and {counted(gaps, 'stretch', 'stretches')} of offsets" if gaps else ""
            click.echo(f"{counted(len(done), 'segment')}: kept {kept} bytes, lost {lost} bytes{gap}{nothing}")
        for sentence in filter(None, (passed_over(place), left_out_topics(place, topics))):
            complain(sentence)
        if (meta := Path(place) / META_PROPERTIES).is_file() and (lacks := Directory(meta.parent, "kafka").lacks):
            complaints.say(f"{meta} has no {lacks}; add it to the copy, or no broker starts with it")
    return 1 if complaints.count or any(one.lost or one.gaps or one.is_stray for one in done) else 0


def _print(one: Salvaged) -> None:
    from kfuzz.logs.meaning import sentences

    offsets = f", offsets {one.first_offset} to {_last(one)}" if one.batches else ""
    copied = f"{one.copy}: {one.batches} batches, {one.records} records{offsets}"
    say(f"{one.path}: left out" if one.is_left_out else copied)
    if one.copy.name != one.path.name:
        say(f"  the name of {one.path} is wrong; the copy is named after the first offset in it")
    if one.is_stray:
        say(
            f"  {one.path.with_name('partition.metadata')} is damaged and not copied; take that of another partition "
            "of the topic, or a broker renames the copy to -stray"
        )
    for lost in one.lost:
        say(f"  lost {lost.size} bytes at byte {lost.at} of {one.path}: {lost.reason}")
    for sentence in (*one.gaps, *one.markers, *sentences(one.changes)):
        say(f"  {sentence}")
    if one.gaps and one.gaps[0].skip:
        say(f"  to pass over the first damage of the original: {one.gaps[0].skip}")


def _last(one: Salvaged) -> int | None:
    return None if one.next_offset is None else one.next_offset - 1


def _to_json(one: Salvaged) -> dict[str, Any]:
    names = ("batches", "records", "kept_bytes", "lost_bytes", "first_offset", "is_stray")
    return {name: getattr(one, name) for name in names} | {
        "path": str(one.path),
        "copy": None if one.is_left_out else str(one.copy),
        "last_offset": _last(one),
        "lost": [asdict(lost) for lost in one.lost],
        "lost_offsets": [gap.to_json() for gap in one.gaps],
        "markers": [
            {"type": marker.kind.name, "producer_id": marker.producer_id, "offset": marker.offset}
            for marker in one.markers
        ],
        "changes": [asdict(change) for change in one.changes],
    }
