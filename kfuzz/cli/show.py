"""``kfuzz show``: lists the batches of a file, and explains each byte of one of them, of a message or of a vector."""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfuzz.annotate import frames
from kfuzz.annotate.dump import Dump, dump_entry, dump_message, dump_records, lines
from kfuzz.annotate.killing import KillingField, mark
from kfuzz.annotate.listing import (
    INDENT,
    Entry,
    Listing,
    heading,
    is_one_batch,
    line_of,
    opened_with_neighbours,
    summary,
)
from kfuzz.annotate.marks import marks_of
from kfuzz.cli import options
from kfuzz.cli.completion import complete_file_or_id
from kfuzz.cli.console import Word, json_line, json_text, open_buffer, page, terminal_width, write_lines
from kfuzz.cli.opening import conversation_of, log_at, named, require_consumer
from kfuzz.errors import UsageError
from kfuzz.findings import Profile
from kfuzz.findings.records import CODES
from kfuzz.findings.stored import LENGTH_WRONG
from kfuzz.forms import nearest
from kfuzz.kafka import Role
from kfuzz.logs.lost import LOSSES_MAX, LostOffsets, lost_at, with_losses
from kfuzz.records import Limits
from kfuzz.text import printable, shell_word
from kfuzz.units import counted
from kfuzz.vectors.kinds import CLIENT, CONVERSATION

if TYPE_CHECKING:
    from kfuzz.fuzz.kept import KeptInput
    from kfuzz.logs.stored import Stored
    from kfuzz.relay.recording import Recording
    from kfuzz.vectors import Vector

# A dump shows at most this many batches, unless --batches says more.
DUMPED_BATCHES = 20
# Of the batch that --finding opens; the records around the finding are shown too.
RECORDS_BESIDE_FINDING = 3
FINDINGS_SHOWN = 200
# Of the connections of a capture, the addresses of so many are named.
CONNECTIONS_SHOWN = 20
RECORD = re.compile(r"records\[(\d+)\]")
# Of the fields that a cause needs, so many are marked and named.
FIELDS_SHOWN = 8
KILL_MARKS = ("kills", *["needed to kill"] * (FIELDS_SHOWN - 1))


BATCH_CODES = (*CODES, LENGTH_WRONG)
BYTE = Word("byte", lambda text: _byte(text))


@click.command()
@click.argument("name", metavar="FILE|ID", required=False, shell_complete=complete_file_or_id)
@click.option("--list", "as_list", is_flag=True, help="One line a batch, also if there is only one.")
@click.option("--dump", "as_dump", is_flag=True, help="Every field of the first batches, also if there are many.")
@click.option("--batch", "index", type=click.IntRange(0), metavar="N", help="Open batch N; the first one is 0.")
@click.option("--at", type=BYTE, help="Open the batch that holds this byte, such as 136 or 0x88.")
@click.option("--offset", type=int, metavar="N", help="Open the batch that holds the record with this offset.")
@click.option(
    "--finding",
    is_flag=False,
    flag_value="",
    metavar="[CODE]",
    help="Open the first batch with this finding; without a code, the first one that is refused, or else odd.",
)
@options.message
@options.version()
@options.frames
@click.option("--frame", type=click.IntRange(0), metavar="N", help="Open frame N of a connection; the first one is 0.")
@click.option("--responses", metavar="FILE", help="With --frames: what the broker sent over the same connection.")
@options.definitions
@options.role()
@options.profile
@options.limits
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    help="Show at most this many batches; for a message, in each of its fields.  [default: 20; all in a list]",
)
@options.records(" of a batch", usual="100; 3 and those around it with --finding")
@options.records_of
@click.option(
    "--find",
    is_flag=True,
    help="For the input of a cause: find the field that kills, if it is not known yet.",
)
@click.option(
    "--no-pager", "pager", is_flag=True, flag_value=False, default=True, help="Print all at once, also on a terminal."
)
@options.as_json
def command(name: str | None, as_json: bool, pager: bool, **options: Any) -> None:
    """Show what is in a file of record batches (a segment or a fetch; - is standard input) or in a vector.

    A file of several batches is listed, one line a batch: byte, size, offsets, records, times in UTC, codec, producer,
    and its findings. After a broken batch, the list continues with the next one. --batch, --at, --offset and --finding
    open one batch: every field with its offset, its bytes and its value, and the lines of its neighbours. A file of one
    batch and a vector are opened at once. --list and --dump choose.

    Keys and values in Kafka's own topics (__consumer_offsets, __transaction_state, __cluster_metadata and others) are
    decoded, if the file is in a folder such as __consumer_offsets-12, or with --records-of.

    Indexes, producer snapshots, checkpoints and partition.metadata are known by their names, or by their content; their
    entries are printed, and what is wrong with them.

    Of a batch that is opened, the first 100 records are shown, the first 20 headers of each, and how many more there
    are; --records N shows more. --offset and --finding also show the records around the one they look for.

    Offsets inside a compressed batch count from the start of its decompressed payload. With --message, the file is a
    request, a response or a header; record batches inside are shown too.

    With --frames, the file has the bytes that a client sent over a connection, without TLS: each request with its
    length in front. --responses names the file with what the broker sent; each response is found by its correlation id.
    The list has a line for each request, and --frame N opens one, with its answer and the record batches inside. A
    folder of `kfuzz proxy --record` has the requests of all connections, in the order in which they were sent.

    If the file is the smallest input of a cause that `kfuzz fuzz` or `kfuzz differential` found, the dump
    also names the cause, and marks the field that kills: with an ordinary value in it, the input does no harm.

    On a terminal, what does not fit is shown in a pager.

    \b
    Examples:
      kfuzz show 00000000000000000000.log
      kfuzz show 00000000000000000000.log --finding
      kfuzz show 00000000000000000000.log --offset 4711
      kfuzz show 00000000000000000000.timeindex
      kfuzz show records/v2/count/negative-one
      kfuzz show messages/counts/fetch-request-v18-huge
      kfuzz show --json fetch.bin
      kfuzz show out/fuzz/record-batch/causes/panics-01234567
      kfuzz show --message FetchResponse --version 17 body.bin
      kfuzz show --frames sent.bin --responses received.bin
      kfuzz show --frames out/conversation
      kfuzz messages encode ApiVersions --version 3 < a.json | kfuzz show --message ApiVersions --version 3 -
    """
    asked = Asked(**options)
    if name is None:
        # `--finding FILE` without a code: the option took the name of the file.
        if not asked.finding or asked.finding in BATCH_CODES:
            raise click.UsageError("Missing argument 'FILE|ID'")
        name, asked = asked.finding, replace(asked, finding="")
    with log_at(name) as place:
        out = shown(place, asked, as_json=as_json)
        if pager and not as_json:
            page(out)
        else:
            write_lines(out)


@dataclass(frozen=True)
class Asked:
    as_list: bool
    as_dump: bool
    index: int | None
    at: int | None
    offset: int | None
    finding: str | None
    message: str | None
    version: int | None
    as_frames: bool
    frame: int | None
    responses: str | None
    source: str
    role: Role
    profile: Profile
    limits: Limits
    batches: int | None
    records_max: int | None
    records_of: str | None
    find: bool

    @property
    def choices(self) -> list[str]:
        """The options that say which batches to show, and how; at most one may be given."""
        return options.given("as_list", "as_dump", "index", "at", "offset", "finding")

    @property
    def dumped(self) -> int:
        """How many batches a dump shows."""
        return self.batches or DUMPED_BATCHES


def shown(name: str, asked: Asked, *, as_json: bool) -> Iterator[str]:
    if len(asked.choices) > 1:
        raise UsageError(f"{' and '.join(asked.choices)} exclude each other; give one of them")
    if asked.finding and asked.finding not in BATCH_CODES:
        remedy = nearest(asked.finding, BATCH_CODES) or "`kfuzz check` prints the codes in brackets"
        raise UsageError(f"there is no finding of record batches called {asked.finding!r}; {remedy}")
    if asked.as_frames or asked.frame is not None:
        return connection(name, asked, as_json=as_json)
    if asked.responses is not None:
        raise UsageError("--responses needs --frames; FILE then has the requests of the same connection")
    what = named(name, asked.message, asked.version, asked.source)
    if what.vector is not None and what.vector.kind == CONVERSATION:
        return connection(name, asked, as_json=as_json)
    if what.message is not None:
        require_consumer(asked.role)
        if asked.choices:
            raise UsageError(f"{asked.choices[0]} is about record batches; leave it out to see a message")
    if asked.find and what.kept is not None and what.kept.body and not what.kept.deviation.kills:
        from kfuzz.fuzz.kept import with_killing_fields

        what = replace(what, kept=with_killing_fields(what.kept))
    kept, title = what.kept, what.title
    data, chosen = what.read()
    if asked.find and (kept is None or not kept.deviation.harm):
        raise UsageError(f"--find needs the input of a cause; no campaign or differential wrote {name}")
    if (kind := what.stored_kind(data)) is not None:
        return stored(name, kind.read(Path(name), data, asked.profile), asked, as_json=as_json)
    if chosen is None:
        what.require_batches(data)
    if chosen is None and (set(asked.choices) - {"--list", "--dump"}):
        return opened(
            title, data, replace(asked, records_of=options.internal_topic(name, asked.records_of)), as_json=as_json
        )
    is_listed = asked.as_list or not (asked.as_dump or what.vector or kept or chosen or is_one_batch(data))
    if chosen is None and is_listed:
        listing = Listing(data, profile=asked.profile, role=asked.role, limits=asked.limits)
        return listed_json(title, listing, asked) if as_json else listed(title, listing, asked)
    try:
        if chosen is None:
            dump = dump_records(
                data,
                profile=asked.profile,
                role=asked.role,
                limits=asked.limits,
                batches=asked.dumped,
                records_of=options.internal_topic(name, asked.records_of),
                records_shown=asked.records_max,
            )
        else:
            dump = dump_message(*chosen, data, asked.profile, asked.dumped, records_shown=asked.records_max)
    except Exception as error:
        if kept is None:
            raise
        again = f"kfuzz fuzz {kept.target} --reproduce {shell_word(name)}"
        raise UsageError(
            f"kfuzz's own reader fails on {name}: {type(error).__name__}: {error}; `{again}` shows where"
        ) from None
    if as_json:
        facts = {"source": title, "size": len(data)} | ({} if kept is None else kept_json(kept))
        return dump_lines(facts | dump_json(dump), dump)
    return dumped(f"{printable(title)}: {len(data)} bytes", dump, asked, kept)


def _byte(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"{text!r} is not a byte of the file; give a number such as 136 or 0x88") from None


# ------------------------------------------------------------------------------------------------- connections


def connection(name: str, asked: Asked, *, as_json: bool) -> Iterator[str]:
    """The lines about the frames of a connection, or about one of them."""
    if asked.choices or asked.message is not None:
        option = asked.choices[0] if asked.choices else "--message"
        raise UsageError(f"{option} and --frames exclude each other; --frame N opens a frame")
    vector = conversation_of(name)
    if vector is not None or (name != "-" and Path(name).is_dir()):
        from kfuzz.relay.recording import Recording

        recorded = Recording(Path(name)) if vector is None else Recording.of(vector)
        if vector is not None and asked.frame is None and not as_json:
            yield from question_lines(vector)
        yield from recording(name, recorded, asked, as_json)
        return
    from kfuzz.logs.contents import is_capture

    sent = open_buffer(name)
    if is_capture(sent):
        from kfuzz.relay.captures import Capture

        yield from recording(name, Capture(name, sent), asked, as_json)
        return
    received = None if asked.responses is None else open_buffer(asked.responses)
    found = frames.frames_of(sent, received, profile=asked.profile)
    if asked.frame is not None:
        wanted_frame = next((one for one in found if one.number == asked.frame and not one.is_stray), None)
        yield from opened_frame(name, sent, received, wanted_frame, asked, as_json)
        return
    numbered = ((0, one) for one in found)
    facts = {"source": name, "size": len(sent)}
    if not as_json:
        yield f"{printable(name)}: {len(sent)} bytes"
    yield from frame_list(numbered, facts, as_json)


def recording(name: str, recorded: Recording, asked: Asked, as_json: bool) -> Iterator[str]:
    """The lines about the frames of all connections in a folder or a capture, or about one of them."""
    if asked.responses is not None:
        raise UsageError(f"{name} has the responses too; leave out --responses")
    found = recorded.frames(asked.profile)
    if asked.frame is not None:
        number, frame = next((one for one in found if one[1].number == asked.frame and not one[1].is_stray), (0, None))
        sent, received = recorded.data(number, "request"), recorded.data(number, "response")
        yield from opened_frame(name, sent, received, frame, asked, as_json)
        return
    facts = {"source": name, "connections": recorded.connections, "flaw": recorded.flaw}
    facts |= {"clients": recorded.clients} if recorded.clients else {}
    if not as_json:
        yield f"{printable(name)}: {counted(recorded.connections, 'connection')}"
        yield from (f"connection {i}: {one}" for i, one in enumerate(recorded.clients[:CONNECTIONS_SHOWN], 1))
    yield from frame_list(found, facts, as_json)
    if not as_json:
        yield from map(printable, recorded.flaw.splitlines())


def question_lines(vector: Vector) -> Iterator[str]:
    """The question of a conversation: the acts of the application, the rules, and the requests that must follow."""
    from kfuzz.relay.rule import Rule

    yield vector.summary
    expected = vector.expect[CLIENT]
    for done, gets in zip(vector.options["application"], expected["acts"], strict=True):
        how = " ".join(f"{key}={json.dumps(value)}" for key, value in done.items() if key != "do")
        yield f"  the application does {done['do']} {how}".rstrip() + f": {json.dumps(gets)}"
    yield from (f"  rule: {Rule(one)}" for one in vector.options.get("rules", ()))
    yield from (f"  then follows {json.dumps(one)}" for one in expected.get("follows", ()))
    yield ""


def frame_list(found: Iterable[tuple[int, frames.Frame]], facts: dict[str, Any], as_json: bool) -> Iterator[str]:
    """The list of frames, each with the number of its connection, which counts if there are ``connections``."""
    sums = frames.Sums()
    pairs = ((number, frame) for number, one in found for frame in sums.counted([one]))
    numbered = "connections" in facts
    if as_json:
        made = (({"connection": number} if numbered else {}) | one.to_json() for number, one in pairs)
        yield from json_document("frames", made, lambda: facts | asdict(sums))
        return
    yield from frames.table(pairs, terminal_width(), numbered=numbered)
    yield from frames.summary(sums)


def opened_frame(
    name: str,
    sent: bytes | mmap.mmap,
    received: bytes | mmap.mmap | None,
    frame: frames.Frame | None,
    asked: Asked,
    as_json: bool,
) -> Iterator[str]:
    """The dump of a frame, and of its answer."""
    if frame is None:
        raise UsageError(f"{name} has no frame {asked.frame}; `kfuzz show --frames {name}` lists them")
    dump_of = partial(frames.dump_frame, profile=asked.profile, batches=asked.dumped, records_shown=asked.records_max)
    dump = dump_of(sent, frame)
    answer = None
    if frame.answer is not None and received is not None:
        answer = dump_of(received, frame.answer)
    if as_json:
        inside = {} if answer is None else {"answer": dump_json(answer) | {"parts": list(parts_json(answer))}}
        yield from dump_lines({"source": name, "size": len(sent)} | dump_json(dump) | inside, dump)
        return
    yield from dumped(f"{printable(name)}: {len(sent)} bytes", dump, asked, None)
    if answer is not None and received is not None:
        yield ""
        yield from dumped(f"{printable(asked.responses or '')}: {len(received)} bytes", answer, asked, None)


# ------------------------------------------------------------------------------------------------- other files


def stored(name: str, made: Stored, asked: Asked, *, as_json: bool) -> Iterator[str]:
    """The lines about a file that Kafka keeps beside a segment."""
    from kfuzz.logs.stored import lines_of

    if asked.choices or asked.batches:
        option = asked.choices[0] if asked.choices else "--batches"
        raise UsageError(f"{option} is about record batches, and {name} has {made.title}; leave it out")
    if as_json:
        yield from json_document("entries", made.entries_json(), lambda: {"source": name} | made.to_json())
        return
    yield f"{printable(name)}: {made.outcome}, {made.size} bytes"
    yield from map(printable, lines_of(made))


# ------------------------------------------------------------------------------------------------- listings


def listed(title: str, listing: Listing, asked: Asked) -> Iterator[str]:
    columns = terminal_width()
    yield f"{printable(title)}: {len(listing.view)} bytes"
    yield heading(columns)
    first: LostOffsets | None = None
    is_damaged, misfit = False, list[str]()
    for entry in entries(title, listing, asked):
        if not isinstance(entry, LostOffsets):
            yield from line_of(entry, columns)
            yield from misfit
            misfit.clear()
            is_damaged |= entry.is_refused or entry.kind != "batch"
            continue
        first = first or entry
        if is_damaged:
            yield f"{INDENT}{entry}"
        else:
            # Sound batches overlap; the one that follows does not fit.
            misfit.append(f"{INDENT}its offsets do not fit: {entry}")
        is_damaged = False
    yield from misfit
    yield from summary(listing)
    if listing.is_cut_short:
        yield f"more batches follow; --batches {2 * asked.dumped} shows more of them"
    elif listing.found or listing.refused:
        yield "--finding opens the first of them, --batch N any batch"
    if first is not None and first.skip:
        yield f"to pass over the first damage: {printable(first.skip)}"


def entries(title: str, listing: Listing, asked: Asked) -> Iterator[Entry | LostOffsets]:
    """The entries to show, at most ``--batches``, and the offsets that damage costs in a log."""
    for one in with_losses(title, some(listing, asked)):
        # The bytes that follow are not read.
        if isinstance(one, Entry) or (asked.role != "broker" and not listing.is_cut_short):
            yield one


def some(listing: Listing, asked: Asked) -> Iterator[Entry]:
    """The entries of a listing, at most ``--batches``."""
    for entry in listing:
        if entry.number == asked.batches:
            listing.is_cut_short = True
            return
        yield entry


def listed_json(title: str, listing: Listing, asked: Asked) -> Iterator[str]:
    """The lines of a JSON document with all batches."""
    lost: list[dict[str, Any]] = []

    def batches() -> Iterator[dict[str, Any]]:
        for one in entries(title, listing, asked):
            if isinstance(one, Entry):
                yield one.to_json()
            elif len(lost) < LOSSES_MAX:
                lost.append(one.to_json())

    facts = {"size": len(listing.view), "source": title, "lost": lost}
    return json_document("batches", batches(), lambda: facts | listing.sums_json())


def json_document(name: str, items: Iterable[Any], rest: Callable[[], dict[str, Any]]) -> Iterator[str]:
    """The lines of a JSON object: ``items`` under ``name``, then ``rest()``. It is never in memory as a whole."""
    before = f'{{\n  "{name}": ['
    for item in items:
        yield before
        before = f"    {json_line(item, sort_keys=True)},"
    yield before.removesuffix(",")
    yield f"  ],\n{json_text(rest())[2:]}"


def opened(title: str, data: bytes | mmap.mmap, asked: Asked, *, as_json: bool) -> Iterator[str]:
    """The dump of the batch that is looked for, with its neighbours."""
    listing = Listing(data, profile=asked.profile, role=asked.role, limits=asked.limits)
    better = (lambda entry: entry.is_refused) if asked.finding == "" else None
    found = opened_with_neighbours(listing, wanted(asked), better)
    if found is None:
        raise UsageError(missing(title, listing, asked))
    before, entry, after = found
    dump = dump_entry(
        data,
        entry,
        limits=asked.limits,
        records_of=asked.records_of,
        records_shown=asked.records_max or (RECORDS_BESIDE_FINDING if asked.finding is not None else None),
        around=record_of(asked, entry),
    )
    lost = None
    if entry.is_refused and asked.role != "broker":
        again = Listing(data, profile=asked.profile, role=asked.role, limits=asked.limits)
        lost = lost_at(title, again, entry.at)
    if as_json:
        neighbours = {"lost": lost.to_json()} if lost else {}
        neighbours |= {name: one.to_json() for name, one in (("before", before), ("after", after)) if one}
        yield from dump_lines({"source": title, "size": len(data)} | neighbours | dump_json(dump), dump)
        return
    columns = terminal_width()
    yield f"{printable(title)}: {len(data)} bytes"
    yield heading(columns)
    if before:
        yield from line_of(before, columns)
    yield ""
    yield from dumped(line_of(entry, columns)[0], dump, asked, None)
    if lost is not None:
        yield str(lost)
    yield ""
    if after:
        yield from line_of(after, columns)


def record_of(asked: Asked, entry: Entry) -> int | None:
    """The number of the record that is looked for, in the batch that holds it; None if it is the batch itself."""
    if asked.offset is not None:
        # Compaction may have removed records before it.
        return min(asked.offset - entry.base_offset, max(entry.records - 1, 0))
    if asked.finding is None:
        return None
    code = asked.finding or None
    of_code = [one for one in entry.findings if code is None or one.code == code]
    places = (RECORD.search(one.path) for one in sorted(of_code, key=lambda one: one.severity != "fatal"))
    return next((int(found[1]) for found in places if found), None)


def wanted(asked: Asked) -> Callable[[Entry], bool]:
    """Whether an entry is the one that is asked for."""
    index, at, offset, code = asked.index, asked.at, asked.offset, asked.finding
    if index is not None:
        return lambda entry: entry.number == index and (entry.kind != "tail" or not entry.findings)
    if at is not None:
        return lambda entry: entry.at <= at < entry.at + entry.size
    if offset is not None:
        return lambda entry: entry.kind == "batch" and entry.base_offset <= offset <= entry.last_offset
    return lambda entry: entry.has(code or None)


def missing(title: str, listing: Listing, asked: Asked) -> str:
    """The error if no entry is the one that is asked for."""
    if asked.index is not None:
        most = f"; --batch takes 0 to {listing.batches - 1}" if listing.batches else ""
        return f"{title} has {counted(listing.batches, 'batch', 'batches')}{most}"
    if asked.at is not None:
        return f"{title} has {len(listing.view)} bytes; --at takes 0 to {len(listing.view) - 1}"
    if asked.offset is not None:
        some = f"; its offsets are {listing.offsets[0]} to {listing.offsets[1]}" if listing.offsets else ""
        return f"{title} has no batch with offset {asked.offset}{some}"
    what = f"no finding {asked.finding}" if asked.finding else "no findings"
    return f"{title} has {what} in {listing.batches} batches; `kfuzz show {title}` lists them"


# ------------------------------------------------------------------------------------------------- dumps


def dumped(title: str, dump: Dump, asked: Asked, kept: KeptInput | None) -> Iterator[str]:
    yield title
    yield from () if kept is None else map(printable, cause_lines(kept))
    marks = marks_of(dump.parts, dump.findings)
    for field, text in zip(() if kept is None else kept.deviation.kills, KILL_MARKS, strict=False):
        if (index := mark(dump.parts, field)) is not None and not set(KILL_MARKS) & set(marks[index]):
            marks[index].insert(0, text)
    for i, part in enumerate(dump.parts):
        yield from lines(part, f"   <-- {', '.join(marks[i])}" if i in marks else "", terminal_width())
    if any(part.heading and part.path.endswith(f"batch[{asked.dumped}]") for part in dump.parts[1:]):
        yield f"… more batches follow; --batches {2 * asked.dumped} shows more of them"
    if dump.is_cut:
        yield f"… more fields follow; a dump has {len(dump.parts):,}"
    yield ""
    shown = [one for i, one in enumerate(dump.findings) if i < FINDINGS_SHOWN or one.severity == "fatal"]
    for finding in shown:
        yield f"{finding.severity}: {printable(str(finding))}"
    if more := dump.more_findings + len(dump.findings) - len(shown):
        yield f"… {counted(more, 'more finding')}"
    yield dump.outcome
    # Nobody looks for one in a message that another reader reads otherwise.
    has_fields = kept is not None and kept.deviation.harm and not (kept.testee and kept.body and kept.body.message)
    yield from killing_lines(kept.deviation.kills) if kept is not None and has_fields else ()


def dump_json(dump: Dump) -> dict[str, Any]:
    """The JSON members of a dump, without its parts."""
    left_out = [
        {"path": part.path, "at": part.at, "count": part.left_out, "size": part.size}
        for part in dump.parts
        if part.left_out
    ]
    more = {"left_out": left_out, "more_parts": dump.is_cut, "more_findings": dump.more_findings}
    findings = {"findings": [finding.to_json() for finding in dump.findings]}
    return dump.facts | findings | {name: value for name, value in more.items() if value}


def parts_json(dump: Dump) -> Iterator[dict[str, Any]]:
    """The parts of a dump as JSON objects. Of a long field, ``hex`` has the first bytes."""
    for p in dump.parts:
        if not p.left_out and (not p.heading or p.data):
            yield {"path": p.path, "field": p.field, "at": p.at, "size": p.size, "hex": p.data.hex(), "value": p.value}


def dump_lines(facts: dict[str, Any], dump: Dump) -> Iterator[str]:
    return json_document("parts", parts_json(dump), lambda: facts)


# ------------------------------------------------------------------------------------------------- kept inputs


def kept_json(kept: KeptInput) -> dict[str, Any]:
    """The JSON members about the cause of a kept input."""
    item = kept.deviation
    return {
        "cause": {"id": kept.cause_id, "target": kept.target, "harm": item.harm, "summary": item.error, "at": item.at},
        "kills": [field.to_json() for field in item.kills],
    }


def cause_lines(kept: KeptInput) -> list[str]:
    """The cause of a kept input, before its dump."""
    from kfuzz.conformance.judge.harm import harm_named
    from kfuzz.fuzz.kept import DIFFERENTIAL

    item = kept.deviation
    if not item.harm:
        return []
    of = f"{kept.testee} as {item.role}" if kept.target == DIFFERENTIAL else kept.target
    at = f" ({item.at})" if item.at else ""
    return [f"cause {kept.cause_id} of {of}, {harm_named(item.harm).title}: {item.error}{at}"]


def killing_lines(fields: Sequence[KillingField]) -> list[str]:
    """The fields that kill, after the dump of a kept input."""
    if not fields:
        return ["the field that kills is not known; --find looks for it"]
    lines = [f"the field that kills: {fields[0]}"]
    if len(fields) > 1:
        shown = ", ".join(map(str, fields[1:FIELDS_SHOWN]))
        more = f" and {len(fields) - FIELDS_SHOWN} more" if len(fields) > FIELDS_SHOWN else ""
        lines.append(f"needed too: {shown}{more}")
    return lines
