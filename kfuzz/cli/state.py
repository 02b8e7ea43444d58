"""``kfuzz state``: what a log directory says of transactions, producers, groups and the cluster's metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import PATH, Group, Word, complain, echo_json, say
from kfuzz.cli.opening import log_at
from kfuzz.errors import UsageError
from kfuzz.files import local_path
from kfuzz.text import printable
from kfuzz.units import counted, parse_moment, utc_text

# The columns with times in milliseconds.
TIMES = ("since", "timestamp", "commitTimestamp", "maxTimestampMs", "oldest", "newest")


def _moment(text: str) -> int:
    if not isinstance(moment := parse_moment(text), int):
        raise UsageError(f"{text!r} is not a time with a zone, such as 2026-11-24T10:00:00Z")
    return moment


now = click.option(
    "--now",
    "now_ms",
    type=Word("time", _moment),
    callback=lambda ctx, param, value: round(time.time() * 1000) if value is None else value,
    help="The time to judge ages by, such as 2026-11-24T10:00:00Z for a copy.  [default: this moment]",
)


@click.group(cls=Group)
def command() -> None:
    """Show what a log directory says of transactions, producers, groups, share groups, remote logs and metadata.

    DIR is a log directory or a partition's folder, also in an archive or a store. Files are only read, and their broker
    may run. With --bootstrap, the topics of a running cluster are read instead.

    In --json, the fields of Kafka's own records keep their names. Whatever cannot be used is said on standard error.

    Exit code 0: all was read; 1: something is damaged, or a transaction hangs; 2: wrong use.

    \b
    Examples:
      kfuzz state transactions /var/lib/kafka/data
      kfuzz state groups /var/lib/kafka/data --json
      kfuzz state metadata /var/lib/kafka/data --at 4711
    """


def _verb(read: str, **tables: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A verb with a directory and --json.

    Its function gets ``notes``, and gives the document, lines to print above the tables (without any, the lengths of
    the tables), and whether something hangs. The exit code is 1 then, and for damage. ``read``: the topics that it
    reads. ``tables``: the columns of those members of the document that are tables.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(path: str | None, as_json: bool, live: Any, **others: Any) -> int:
            from kfuzz.logs.producers import Notes

            notes = Notes()
            # Only inside this block, paths are printed as the user knows them.
            with log_at(path, live, topics=others.get("topics", read)) as place:
                document, lines, hangs = function(place, notes, **others)
                if as_json:
                    echo_json(document | {"notes": notes.sentences()})
                    return int(hangs or notes.is_damaged)
                counts = (counted(len(document.get(name, ())), name.removesuffix("s")) for name in tables)
                say(*lines or [f"{place}: {', '.join(counts)}"])
                for name, columns in tables.items():
                    _print(document.get(name, ()), columns.split())
                for sentence in notes.sentences():
                    complain(sentence)
            return int(hangs or notes.is_damaged)

        return command.command()(
            click.argument("path", metavar="DIR", required=False)(options.live(options.as_json(run)))
        )

    return decorate


def _print(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> None:
    """A table; a column of numbers is aligned to the right."""
    made = [columns, *([_cell(name, row.get(name)) for name in columns] for row in rows)]
    for at in range(len(columns)):
        cells = [row[at] for row in made]
        is_number = all(cell == "-" or cell.lstrip("-").isdigit() for cell in cells[1:])
        width = max(map(len, cells))
        for row in made:
            row[at] = row[at].rjust(width) if is_number else row[at].ljust(width)
    say(*("  ".join(row).rstrip() for row in made if len(made) > 1))


def _cell(name: str, value: Any) -> str:
    """A value as text: the fields of an entry that are set, the number of things in a list."""
    if value is None or value == "":
        return "-"
    if name in TIMES:
        return utc_text(int(value))
    if isinstance(value, dict):
        return " ".join(
            f"{key}={_cell('', one)}" for key, one in value.items() if one is not False and one not in (None, "", [])
        )
    if isinstance(value, list):
        return ",".join(map(str, value)) if value and not isinstance(value[0], dict) else str(len(value))
    return printable(str(value))


@_verb(
    "*",
    open="topic partition first_offset since records producer_id epoch transactional_id hangs reason",
    aborted="topic partition producer_id first_offset last_offset last_stable_offset",
)
@click.option("--aborted", is_flag=True, help="Also list aborted transactions, and compare the transaction indexes.")
@click.option(
    "--transaction-state",
    "beside",
    type=PATH,
    metavar="DIR",
    help="A log directory with __transaction_state.  [default: DIR, or the directory that DIR is in]",
)
@click.option(
    "--max-timeout",
    "max_timeout_ms",
    type=options.TIME_MS,
    default="15m",
    show_default=True,
    help="The brokers' transaction.max.timeout.ms.",
)
@now
@options.topics
def transactions(
    path: str, notes: Any, topics: str, beside: Any, aborted: bool, max_timeout_ms: int, now_ms: int
) -> Any:
    """Show open transactions, what holds the last stable offset back, and how to end a transaction that hangs.

    A transaction hangs, as KIP-664 says, if it is open in the log while __transaction_state does not know its producer
    or has ended it in this partition. Without __transaction_state, or with gaps in it, a transaction of an unknown
    producer hangs if its last batch is older than --max-timeout.

    \b
    Examples:
      kfuzz state transactions /var/lib/kafka/data
      kfuzz state transactions orders-0 --transaction-state /var/lib/kafka/data --aborted
    """
    from kfuzz.logs.internal_topics import GROUPS, TRANSACTIONS, partitions_of, partitions_with_own, transactional_ids
    from kfuzz.logs.producers import end_offset, judge, open_transactions, partition_state

    # Offsets that are committed in a transaction wait for it too.
    partitions = partitions_with_own(path, topics, GROUPS, notes)
    places: list[Any] = [path, local_path(path).absolute().parent] if beside is None else [beside]
    known = None
    try:
        states = (partitions_of(place, TRANSACTIONS, notes, required=place == beside) for place in places)
        if state := next(filter(None, states), None):
            known = transactional_ids(state, notes)
    except UsageError as error:
        if beside is not None:
            raise
        notes[str(error)] += 1
    found: list[dict[str, Any]] = []
    ended: list[dict[str, Any]] = []
    lines: list[str] = []
    for partition in partitions:
        name, place = partition[0].path.parent, {"topic": partition[0].topic, "partition": partition[0].partition}
        if opened := open_transactions(partition, notes):
            end, stable = end_offset(partition), opened[0]["first_offset"]
            held = f"producer {opened[0]['producer_id']} holds it back"
            lines.append(f"{name}: the last stable offset is {stable}, {end - stable} before the end {end}; {held}")
        for one in opened:
            judge(one, known, now_ms, max_timeout_ms)
            if one["hangs"]:
                one["command"] = (
                    f"kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic {one['topic']} "
                    f"--partition {one['partition']} --start-offset {one['first_offset']}"
                )
        found += opened
        if aborted:
            walked = partition_state(partition, notes, whole=True)
            ended += [place | one for one in walked.aborted]
            lines += [f"{index} does not have the aborted transactions of its segment" for index in walked.differ]
    hanging = [one["command"] for one in found if one["hangs"]]
    lines.insert(0, f"{path}: {counted(len(partitions), 'partition')}, {counted(len(found), 'open transaction')}")
    lines[0] += f", {len(hanging)} of them hanging" if found else ""
    lines += [f"to end it: {command}" for command in hanging]
    return {"open": found} | ({"aborted": ended} if aborted else {}), lines, hanging != []


@_verb(
    "*",
    producers="topic partition producer_id epoch last_sequence last_offset timestamp coordinator_epoch "
    "current_txn_first_offset",
)
@click.option("--whole", is_flag=True, help="Read the whole log, and not only what follows the newest snapshot.")
@options.topics
def producers(path: str, notes: Any, topics: str, whole: bool) -> Any:
    """Show the producers of each partition, as a broker describes them (DescribeProducers).

    A broker forgets a producer without a batch for producer.id.expiration.ms; here it is shown.

    \b
    Example:
      kfuzz state producers orders-0
    """
    from kfuzz.logs.internal_topics import partitions_of
    from kfuzz.logs.producers import partition_state

    found = [
        one
        for partition in partitions_of(path, topics, notes)
        for one in partition_state(partition, notes, whole=whole).to_json(partition[0])
    ]
    return {"producers": found}, [], False


@_verb(
    "*",
    topics="topic partitions segments bytes percent",
    partitions="topic partition first_offset end_offset segments bytes oldest newest",
)
@options.topics
def partitions(path: str, notes: Any, topics: str) -> Any:
    """Show what each topic and each partition holds: first offset, end offset, segments, bytes and times.

    The largest topics come first. Kafka's own topics are there too. oldest is the newest time of the first segment, by
    which a broker deletes it; newest is that of the last one.

    \b
    Examples:
      kfuzz state partitions /var/lib/kafka/data
      kfuzz state partitions /var/lib/kafka/data --topics orders --json
    """
    from kfuzz.logs.sizes import extents

    return extents(path, notes, topics), [], False


@_verb(
    "__consumer_offsets",
    groups="group type state epoch members lag",
    offsets="group topic partition offset end lag stableLag commitTimestamp metadata",
)
@now
def groups(path: str, notes: Any, now_ms: int) -> Any:
    """Show groups, their members and their latest committed offsets, with the lag against the logs beside them.

    lag counts up to the end of the log, stableLag up to its last stable offset; an offset after the end has lag 0.
    Offsets that were deleted, expired or belong to a transaction that was not committed are left out.

    \b
    Examples:
      kfuzz state groups /var/lib/kafka/data
      kfuzz state groups __consumer_offsets-12 --json
    """
    from kfuzz.logs.internal_topics import groups

    return groups(path, notes, now_ms), [], False


@_verb(
    "__share_group_state",
    shares="groupId topic partition startOffset end lag stateEpoch leaderEpoch snapshotEpoch stateBatches",
)
def shares(path: str, notes: Any) -> Any:
    """Show what __share_group_state says of each share group and partition.

    \b
    Example:
      kfuzz state shares /var/lib/kafka/data
    """
    from kfuzz.logs.internal_topics import shares

    return {"shares": shares(path, notes)}, [], False


@_verb(
    "__remote_log_metadata",
    segments="name partition startOffset endOffset segmentSizeInBytes remoteLogSegmentState maxTimestampMs segment",
)
def remote(path: str, notes: Any) -> Any:
    """Show the segments in remote storage, as __remote_log_metadata has them.

    \b
    Example:
      kfuzz state remote /var/lib/kafka/data
    """
    from kfuzz.logs.internal_topics import remote

    return {"segments": remote(path, notes)}, [], False


@_verb(
    "__cluster_metadata", changes="entry before after", entries="section entry fields", leaders="offset epoch leader"
)
@click.option("--at", type=click.IntRange(0), metavar="OFFSET", help="After the record at this offset.  [default: all]")
@click.option(
    "--changes", "between", type=click.IntRange(0), nargs=2, metavar="FROM TO", help="What differs after these offsets."
)
def metadata(path: str, notes: Any, at: int | None, between: tuple[int, int] | None) -> Any:
    """Show the metadata of a KRaft cluster: features, brokers, topics, partitions, configurations, quotas, ACLs, users.

    They come from the newest snapshot and the records after it. Passwords and keys are hidden.

    \b
    Examples:
      kfuzz state metadata /var/lib/kafka/data
      kfuzz state metadata __cluster_metadata-0 --at 4711 --json
      kfuzz state metadata /var/lib/kafka/data --changes 4000 4711
    """
    from kfuzz.logs.metadata import changes, picture

    if between and at is not None:
        raise UsageError("--at and --changes exclude each other; --changes FROM TO names both offsets")
    found = picture(path, notes, between[1] if between else at)
    start = f"{found.snapshot or 'no snapshot'} and {counted(found.records, 'record')} after it"
    older = f"{len(found.snapshots) - 2} older, " if len(found.snapshots) > 2 else ""
    snapshots = f"snapshots: {older}{', '.join(found.snapshots[-2:]) or '-'}"
    lines = [f"{path}: after offset {found.offset}, from {start}", snapshots]
    document = found.to_json()
    if between:
        before = picture(path, notes, between[0])
        places = changes(before.sections, found.sections)
        document["changes"] = [{"entry": " ".join(place), "before": old, "after": new} for place, old, new in places]
    else:
        entries = ((section, *one) for section, of in found.sections.items() for one in of.items())
        document["entries"] = [dict(zip(("section", "entry", "fields"), one, strict=True)) for one in entries]
    return document, lines, False
