"""``kfuzz fuzz``: parses, prints and exits. ``kfuzz.fuzz.campaign`` and ``once`` do the work."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import click

from kfuzz.cli import options, probe
from kfuzz.cli.completion import complete_targets, complete_testees
from kfuzz.cli.console import PATH, Word, echo_json, notice, say
from kfuzz.client.address import Address
from kfuzz.client.tls import why
from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.harm import harm_named
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.display import live_table
from kfuzz.errors import UsageError
from kfuzz.files import require_writable
from kfuzz.fuzz import campaign, peers
from kfuzz.fuzz import reproducing as once
from kfuzz.fuzz.building import SANITIZERS, Sanitizer
from kfuzz.fuzz.campaign import SECONDS_MAX, Result, Row
from kfuzz.fuzz.causes import truth_of
from kfuzz.fuzz.clients import Campaign, repeat
from kfuzz.fuzz.conversations import OWN, Topic, load
from kfuzz.fuzz.driver import Bounds, named_client
from kfuzz.fuzz.other_reader import named_testee
from kfuzz.fuzz.peers import Peer
from kfuzz.fuzz.recorder import fields_of
from kfuzz.fuzz.targets import TARGETS
from kfuzz.text import foreign_text, printable, shell_word
from kfuzz.units import counted

SHOWN_HEX_DIGITS: Final = 400
# How long a broker may take to accept a connection.
CONNECT_S: Final = 10
# Of a rule with the bytes of a response.
LINE_BYTES_MAX: Final = 300
# The options that only fuzzing needs.
OF_CAMPAIGNS: Final = ("seconds", "jobs", "count", "seed", "corpus", "sync", "stop_at_first")
# All fit a terminal of 80 characters.
CLIENT_COLUMNS: Final = ("client", "time", "conversations", "per s", "changed", "causes")
COLUMNS: Final = ("target", "state", "inputs", "per s", "cover", "corpus", "finds", "since new")


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET...", shell_complete=complete_targets)
@options.seconds(type=click.IntRange(1, SECONDS_MAX), default=60)
@options.jobs("processes", default=1, note="With more than there are targets, a target has several.")
@options.count(", at most", note="A target ends after them, even if time is left.")
@options.seed
@options.out("causes, logs and the corpora", default="out/fuzz")
@click.option("--corpus", type=PATH, help="Folder of the corpora, one folder per target.  [default: in --out]")
@click.option(
    "--sync",
    metavar="DIR|URI",
    help="Share inputs and causes with campaigns elsewhere, at this folder or URI, such as s3://bucket/fuzz.",
)
@click.option(
    "--sanitize",
    type=click.Choice(SANITIZERS),
    help="Also build with this sanitizer.  [default: none; for compiled code of --peer: address]",
)
@click.option(
    "--peer", metavar="NAME", help="Fuzz this library's reader of record batches instead: aiokafka, kafka-python."
)
@click.option(
    "--truth",
    metavar="TESTEE",
    help="Also ask this testee about each new input: kafka-clients, or any of `conform`.",
    shell_complete=complete_testees,
)
@click.option(
    "--client",
    metavar="CLIENT",
    help="Fuzz a whole client instead, by changing a broker's responses: the name of a testee, or a driver's command.",
    shell_complete=complete_testees,
)
@options.bootstrap(" on this machine, whose topic kfuzz the client of --client reads", usual="a broker of kfuzz's own")
@click.option(
    "--against-broker",
    "against",
    type=Word("host:port", Address.parse),
    help="Send hostile requests to this broker instead, as `kfuzz probe --apis` does.",
)
@click.option("--stop-at-first", is_flag=True, help="End a target when it has found something.")
@click.option("--reproduce", "file", type=click.Path(path_type=Path), help="Only run this one input, without fuzzing.")
@click.option(
    "--replay",
    is_flag=True,
    help="Only run every vector, seed and regression once; without TARGET, for all targets except canary.",
)
@click.option("--targets", "as_list", is_flag=True, help="Only list the targets.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    seconds: int,
    jobs: int,
    count: int | None,
    seed: int,
    out: Path,
    corpus: Path | None,
    sync: str | None,
    sanitize: str | None,
    peer: str | None,
    truth: str | None,
    client: str | None,
    bootstrap: Address | None,
    against: Address | None,
    stop_at_first: bool,
    file: Path | None,
    replay: bool,
    as_list: bool,
    as_json: bool,
) -> int:
    """Run fuzz targets under atheris. Finds are grouped by cause, and targets run until their time is up.

    Exit code 0: nothing found; 1: something found, and each cause is printed with its smallest input, or a question to
    --truth has no answer; 2: wrong use; 130: interrupted. Ctrl-C ends the campaign early and shows the results so far.
    The next campaign in the same folder continues from its corpus and its causes.

    \b
    Examples:
      kfuzz fuzz --targets
      kfuzz fuzz record-batch --seconds 60
      kfuzz fuzz record-batch messages broker --seconds 3600 --jobs 2 --truth kafka-clients@4.4.0
      kfuzz fuzz record-batch compression --sanitize address --json
      kfuzz fuzz record-batch --seconds 3600 --seed 2 --sync s3://bucket/fuzz
      kfuzz fuzz --replay --sanitize undefined
      kfuzz fuzz record-batch --reproduce out/fuzz/record-batch/causes/panics-01234567
      kfuzz fuzz --peer aiokafka --seconds 600
      kfuzz fuzz --client kafka-python-client --seconds 600 --jobs 4
      kfuzz fuzz --against-broker 127.0.0.1:9092 --seconds 600
    """
    if as_list:
        return _list(as_json)
    others = options.given("targets", "peer", "truth", "sanitize", "corpus", "sync", "replay", "stop_at_first")
    if against is not None:
        if others or options.given("client", "bootstrap", "file") or jobs > 1:
            raise UsageError(
                "--against-broker takes --seconds, --count, --seed and --json; `kfuzz probe --apis` has more options"
            )
        asked = [str(against), "--apis", f"--duration={seconds}s", f"--seed={seed}"]
        asked += [] if count is None else [f"--cases={count}"]
        asked += ["--json=-"] if as_json else []
        with probe.command.make_context("probe", asked, parent=ctx) as probing:
            return cast("int", probe.command.invoke(probing))
    if client is not None:
        if others:
            raise UsageError(
                "--client takes --bootstrap, --seconds, --count, --seed, --jobs, --out, --reproduce and --json; "
                "leave out the others"
            )
        if bootstrap is not None:
            _require_broker(bootstrap)
        reads = Topic(bootstrap=str(bootstrap)) if bootstrap else OWN
        fuzzed_client = named_client(client)
        if file is not None:
            return _reproduce_conversation(fuzzed_client, file, reads, as_json)
        return _fuzz_client(client, Campaign(fuzzed_client, seed, out, topic=reads), seconds, count, jobs, as_json)
    if bootstrap is not None:
        raise UsageError("--bootstrap is about --client; add it, or leave --bootstrap out")
    if replay or file is not None:
        strays = [*OF_CAMPAIGNS, *(("truth",) if replay else ("out",))]
        if unused := options.given(*strays):
            raise UsageError(f"--{'replay' if replay else 'reproduce'} does not fuzz; leave out {unused[0]}")
    sanitizer = cast("Sanitizer | None", sanitize)
    if peer is not None:
        _refuse_with_peer(peer, targets, truth, replay)
    if replay:
        if file is not None:
            raise UsageError("--replay runs all known inputs and --reproduce runs one; use only one of them")
        return _replay(
            targets or tuple(name for name in TARGETS if name != "canary"), sanitizer or "none", out, as_json
        )
    if not targets and peer is None:
        raise UsageError(f"name a target: {', '.join(TARGETS)}; `kfuzz fuzz --targets` describes them")
    fuzzed = None if peer is None else peers.find(peer)
    if file is not None:
        return _reproduce(targets, fuzzed, file, sanitizer, truth, as_json)
    out = require_writable(out, directory=True)
    if corpus is not None:
        corpus = require_writable(corpus, directory=True)
    with live_table(COLUMNS, quiet=as_json) as show:
        results = campaign.run(
            targets,
            seconds,
            runs=count,
            seed=seed,
            jobs=jobs,
            out=out,
            corpus=corpus,
            sync=sync,
            sanitizer=sanitizer,
            stop_at_first=stop_at_first,
            truth=None if truth is None else named_testee(truth),
            peer=fuzzed,
            say=notice,
            watch=lambda rows: show(
                [_cells(row) for row in rows], [_line(row) for row in rows if row.state not in ("waiting", "done")]
            ),
        )
    if as_json:
        echo_json({"targets": [result.to_json() for result in results]})
    else:
        for result in results:
            _show(result)
    if any(result.interrupted for result in results):
        # The results so far are printed; the exit code is that of an interrupt.
        raise click.Abort
    return int(any(result.failed for result in results))


def _require_broker(address: Address) -> None:
    try:
        socket.create_connection((address.host, address.port), CONNECT_S).close()
    except OSError as error:
        raise UsageError(f"{address} cannot be reached: {why(error)}; is a broker running there?") from None


def _fuzz_client(named: str, campaign: Campaign, seconds: int, count: int | None, jobs: int, as_json: bool) -> int:
    campaign.out = require_writable(campaign.out, directory=True)
    with live_table(CLIENT_COLUMNS, quiet=as_json) as show:
        campaign.run(seconds, count, lambda one: show([_client_cells(one)], ["  ".join(_client_cells(one))]), jobs)
    if as_json:
        echo_json(campaign.to_json())
    else:
        _show_client(named, campaign)
    if campaign.interrupted:
        raise click.Abort
    return int(bool(campaign.found))


def _client_cells(one: Campaign) -> list[str]:
    per_second = one.conversations / max(one.seconds, 1)
    counts = (f"{one.conversations:,}", f"{per_second:.1f}", f"{one.changed:,}", f"{len(one.causes):,}")
    return [printable(one.implementation), _time(one.seconds), *counts]


def _show_client(named: str, one: Campaign) -> None:
    say(*one.lines())
    if not one.found:
        click.echo("  interrupted; nothing found so far" if one.interrupted else "  nothing found")
    again = f"kfuzz fuzz --client {shell_word(named)}"
    if one.topic.bootstrap:
        again += f" --bootstrap {one.topic.bootstrap}"
    for path, found in one.found.items():
        at = f" ({found.deviation.at})" if found.deviation.at else ""
        say(
            f"  {found.cause.id} {harm_named(found.deviation.harm).title}: {found.deviation.error}{at}",
            f"    {counted(found.count, 'conversation')}; the fewest changes that show it:",
            *(f"      {foreign_text(line, bytes_max=LINE_BYTES_MAX)}" for line in found.conversation.lines),
            f"    to hold it again: {again} --reproduce {shell_word(path)}",
        )


def _reproduce_conversation(client: Testee, file: Path, reads: Topic, as_json: bool) -> int:
    ended = repeat(client, load(file)[0], Bounds(), reads).ended
    if as_json:
        echo_json({"client": client.name, "find": ended._asdict() if ended.harm else None})
    elif ended.harm:
        say(f"{client.name}: {harm_named(ended.harm).title}: {ended.error}" + (f" ({ended.at})" if ended.at else ""))
    else:
        say(f"{client.name}: {file} does not break it" + (f"; it reports {ended.error}" if ended.error else ""))
    return int(bool(ended.harm))


def _list(as_json: bool) -> int:
    if as_json:
        echo_json({"targets": [{"name": target.name, "about": target.about} for target in TARGETS.values()]})
    else:
        width = max(len(name) for name in TARGETS)
        for target in TARGETS.values():
            click.echo(f"{target.name:<{width}}  {target.about}")
    return 0


def _refuse_with_peer(peer: str, targets: tuple[str, ...], truth: str | None, replay: bool) -> None:
    if targets:
        raise UsageError("--peer fuzzes the peer's reader, and a TARGET is kfuzz's own code; use only one of them")
    if truth is not None:
        raise UsageError(
            f"--truth is about kfuzz's own targets; compare a peer by `kfuzz differential --testee {peer}`"
        )
    if replay:
        raise UsageError(
            f"--replay is about kfuzz's own targets; show a peer all vectors by `kfuzz conform --testee {peer}`"
        )


def _reproduce(
    targets: tuple[str, ...],
    peer: Peer | None,
    file: Path,
    sanitizer: Sanitizer | None,
    truth: str | None,
    as_json: bool,
) -> int:
    if peer is not None:
        name, find = peer.name, once.reproduce_peer(peer, file, sanitizer=sanitizer, say=notice)
    elif len(targets) != 1:
        raise UsageError(f"--reproduce runs one target, not {len(targets)}; name one")
    else:
        name, find = targets[0], once.reproduce(targets[0], file, sanitizer=sanitizer or "none")
        if find is None and truth is not None:
            find = once.compare(name, file, named_testee(truth))
    if as_json:
        found = None if find is None else {**fields_of(find), "input_hex": find.data.hex()}
        echo_json({"target": name, "find": found})
    elif find is None:
        say(f"{name}: {file} does not break it")
    else:
        say(f"{name}: {find.summary}")
        say(*find.details.split("\n"))
    return int(find is not None)


def _replay(targets: tuple[str, ...], sanitizer: Sanitizer, out: Path, as_json: bool) -> int:
    done = once.replay(targets, sanitizer=sanitizer, out=out, say=notice)
    if as_json:
        echo_json({"targets": [one.to_json() for one in done]})
    for one in () if as_json else done:
        found = f"{len(one.causes)} causes" if one.causes else "nothing"
        click.echo(f"{one.target}: {one.executions:,} known inputs, {found} found (sanitizer: {one.sanitizer})")
        _show_causes(one.target, one.causes, sanitizer)
    return int(any(one.causes for one in done))


def _cells(row: Row) -> list[str]:
    if row.state == "waiting":
        return [row.target, row.state, *[""] * (len(COLUMNS) - 2)]
    return [
        row.target,
        _time(row.seconds) if row.state == "running" else row.state,
        f"{row.executions:,}",
        f"{row.per_second:,}",
        f"{row.coverage:,}",
        f"{row.corpus:,}",
        f"{row.causes:,}",
        _time(row.since_new_s),
    ]


def _line(row: Row) -> str:
    return (
        f"{row.target}: {row.state}, {_time(row.seconds)}, {row.executions:,} inputs, {row.per_second:,} per second, "
        f"coverage {row.coverage:,}, corpus {row.corpus:,}, {row.causes:,} finds, {_time(row.since_new_s)} since new"
    )


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _show(result: Result) -> None:
    jobs = f" by {result.jobs} jobs" if result.jobs > 1 else ""
    click.echo(
        f"{result.target}: {result.executions:,} inputs in {result.seconds:.0f} s{jobs} "
        f"({result.executions_per_cpu_second:,} per CPU-second, {result.steady_per_cpu_second:,} after a start of "
        f"{result.start_cpu_seconds:.1f} CPU-seconds), coverage {result.coverage:,}, "
        f"features {result.features:,}, corpus {result.corpus_before:,} → {result.corpus_after:,}"
        f"{'' if result.corpus_merged is None else f', merged into {result.corpus_merged:,}'}"
    )
    if result.no_native_coverage:
        click.echo(f"  no native coverage: {result.no_native_coverage}")
    else:
        click.echo(f"  native coverage: {result.modules} modules, {result.counters:,} counters")
    if result.judged:
        click.echo(
            f"  tiers: all {result.judged:,} inputs met the compiled checks, "
            f"{result.judged_twice or 0:,} also the full oracle"
        )
    if result.mutator_calls:
        click.echo(
            f"  mutation hook: {result.mutator_calls:,} calls, {result.structured or 0:,} changed by structure"
            f", {result.crossed or 0:,} made from two inputs"
        )
    if result.compared is not None:
        click.echo(f"  truth: {result.compared:,} questions")
    if result.restarts:
        click.echo(
            f"  {_inputs(result.restarts)} ended the process, and {result.unconfirmed:,} of them did not do so again"
        )
    if result.set_aside:
        click.echo(f"  set aside from the corpus, because they break the target: {_inputs(result.set_aside)}")
    if not result.causes:
        click.echo("  interrupted; nothing found so far" if result.interrupted else "  nothing found")
    if result.implementation == "kfuzz":
        _show_causes(result.target, result.causes, result.sanitizer)
    else:
        _show_causes(f"--peer {result.target}", result.causes, result.sanitizer, result.implementation)
        if result.causes:
            click.echo(f"  tell the maintainers of {result.target} first: DISCLOSURE.md says how")


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count:,} inputs"


def _show_causes(target: str, causes: Mapping[Path, Cause], sanitizer: str, implementation: str = "kfuzz") -> None:
    option = "" if sanitizer == "none" else f" --sanitize {sanitizer}"
    for file, cause in causes.items():
        item = cause.smallest
        shown = item.data.hex()
        shown = shown[:SHOWN_HEX_DIGITS] + ("…" if len(shown) > SHOWN_HEX_DIGITS else "")
        at = f" ({item.at})" if item.at else ""
        say(f"  {cause.id} {harm_named(cause.harm).title}: {item.error}{at}")
        known = f", among them {', '.join(cause.known[:3])}" if cause.known else ""
        more = f" and {len(cause.known) - 3:,} more known ones" if len(cause.known) > 3 else ""
        count = f"{_inputs(cause.count)}{printable(known)}{more}"
        click.echo(f"    {count}; the smallest has {len(item.data):,} bytes: {shown}")
        named = shell_word(file)
        if item.kills:
            say(f"    the field that kills: {item.kills[0]}; `kfuzz show {named}` marks it")
        truth = truth_of(item, implementation)
        asked = f" --truth {truth}" if truth else ""
        say(f"    to run it again: kfuzz fuzz {target}{option}{asked} --reproduce {named}")
