"""``kfuzz diff``: compares two logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Complaints, complain, echo_json, progress, say
from kfuzz.cli.opening import log_at
from kfuzz.units import counted

if TYPE_CHECKING:
    from kfuzz.client.copying import Live
    from kfuzz.logs.comparing import Compared
    from kfuzz.records import Limits


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option("--contents", is_flag=True, help="Exit with 0 if the records are equal, even if their batches differ.")
@click.option(
    "--compacted", is_flag=True, help="Compare the last value of each key, as a reader in read_committed sees it."
)
@options.topics
@options.live
@options.limits
@options.as_json
def command(
    a: str,
    b: str | None,
    contents: bool,
    compacted: bool,
    topics: str,
    live: Live | None,
    limits: Limits,
    as_json: bool,
) -> int:
    """Compare two logs: replicas, a backup and its source, a corpus and what a broker kept of it.

    A and B are log directories, partition folders or segment files, also in an archive or a store. With --bootstrap, B
    is the topics of a running cluster. Of each partition of the same name, the result is
    one of: equal (all batches have the same bytes), records are equal (but compressed, divided into batches or written
    under leader epochs in another way), or different, with the first difference and the offsets that only one side has.
    Segments may be divided in any way.

    Records are equal if offset, timestamp, key, value and headers are, and if the same consumers see them.

    With --compacted, a record without a value counts as none. Records of aborted transactions and those after the last
    stable offset do not count.

    Exit code 0: equal; 1: different; 2: wrong use. CRCs of equal bytes are not judged: `kfuzz check` does that.

    \b
    Examples:
      kfuzz diff broker1/orders-0 broker2/orders-0
      kfuzz diff /var/lib/kafka/data /backup/data --topics orders --contents
      kfuzz diff compacted/users-0 source/users-0 --compacted
      kfuzz diff backup.tar.gz --bootstrap 127.0.0.1:9092 --topics orders
    """
    from kfuzz.logs.comparing import compare
    from kfuzz.logs.segments import left_out_topics, passed_over

    complaints = Complaints()
    made: list[dict[str, Any]] = []
    equal = ("equal", "records are equal, batches differ") if contents or compacted else ("equal",)
    with log_at(a) as from_a, log_at(b, live, topics=topics) as from_b:
        with progress("diff, MiB", None) as set_done:
            found = compare(
                from_a,
                from_b,
                topics=topics,
                compacted=compacted,
                limits=limits,
                on_bytes=lambda done: set_done(done >> 20),
                pass_over=complaints.skip,
            )
            for one in found:
                made.append(one.to_json())
                if not as_json:
                    say(*_lines(one))
        for place in (from_a, from_b):
            for sentence in filter(None, (passed_over(place), left_out_topics(place, topics))):
                complain(sentence)
        differing = sum(one["verdict"] not in equal for one in made)
        if as_json:
            echo_json({"a": from_a, "b": from_b, "equal": not differing, "partitions": made})
        else:
            are = "differs" if differing == 1 else "differ"
            say(f"{counted(differing, 'partition')} of {len(made)} {are}; A is {from_a}, B is {from_b}")
    return 1 if differing or complaints.count else 0


def _lines(one: Compared) -> Iterator[str]:
    """The lines about one partition: the verdict, then the first differences, then what only one side has."""
    equal = f", {counted(one.batches, 'equal batch', 'equal batches')}" if one.batches else ""
    yield f"{one.name or 'the segment'}: {one.verdict}{equal}"
    fields = ", ".join(f"{name} ({count})" for name, count in one.fields.most_common())
    for first, what in (
        (one.record, f"{counted(one.records, 'record')} with other contents"),
        (one.batch, f"equal records in batches with another {fields}"),
    ):
        if first is not None:
            yield f"  {what}, first at offset {first['offset']}: {first['field']}"
            for name in "ab":
                yield f"    {name.upper()}: {_value(**first[name])}"
    for name, side in zip("AB", one.sides, strict=True):
        for low, high, records in side.ranges:
            yield f"  only in {name}: offsets {low} to {high}, {counted(records, 'record')}"
        if side.more_ranges:
            yield f"  only in {name}: {counted(side.more_ranges, 'more range')}, {side.records} records in all"
        for bad in side.damage:
            where = "" if bad["at"] is None else f"{bad['size']} bytes at byte {bad['at']} of {bad['file']}: "
            yield f"  damaged in {name}: {where}{bad['reason']}"
        if side.more_damage:
            yield f"  damaged in {name}: {counted(side.more_damage, 'more place')}; `kfuzz check` lists them"


def _value(value: str, leader_epoch: int | None, file: str = "", at: int = 0) -> str:
    return f"{value} (leader epoch {leader_epoch}, batch at byte {at} of {file})" if file else value
