"""``kfuzz fuzz``: parses, prints and exits. ``kfuzz.fuzz.campaign`` does the work."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import cast

import click

from kfuzz.cli.console import echo_json, json_option, progress
from kfuzz.errors import UsageError
from kfuzz.files import require_writable
from kfuzz.fuzz import campaign
from kfuzz.fuzz.building import SANITIZERS, Sanitizer
from kfuzz.fuzz.campaign import Crash, Result
from kfuzz.fuzz.targets import TARGETS

__all__ = ["command"]

SHOWN_HEX_DIGITS = 400


@click.command()
@click.argument("targets", nargs=-1, metavar="TARGET...")
@click.option(
    "--seconds", type=click.IntRange(1, 7 * 86400), default=60, show_default=True, help="Time for each target."
)
@click.option("--runs", type=click.IntRange(1), help="Stop a target after this many inputs, even if time is left.")
@click.option("--seed", type=click.IntRange(1, 2**32 - 1), default=1, show_default=True, help="Seed of the mutations.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/fuzz"),
    show_default=True,
    help="Where corpus and crashes are kept.",
)
@click.option(
    "--sanitize",
    type=click.Choice(SANITIZERS),
    default="none",
    show_default=True,
    help="Also build with this sanitizer.",
)
@click.option("--reproduce", "file", type=click.Path(path_type=Path), help="Only run this one input, without fuzzing.")
@click.option(
    "--replay",
    is_flag=True,
    help="Only run every vector, seed and regression once; without TARGET, for all targets except canary.",
)
@click.option("--list", "as_list", is_flag=True, help="Show the targets.")
@json_option
def command(
    targets: tuple[str, ...],
    seconds: int,
    runs: int | None,
    seed: int,
    out: Path,
    sanitize: str,
    file: Path | None,
    replay: bool,
    as_list: bool,
    as_json: bool,
) -> int:
    """Run fuzz targets under atheris. Each runs until its time is up or it finds something.

    Exit code 0: nothing found; 1: something found, and the input is printed; 2: wrong use; 130: interrupted. Ctrl-C
    ends the campaign early and shows the results so far.

    \b
    Examples:
      kfuzz fuzz --list
      kfuzz fuzz record-batch --seconds 60
      kfuzz fuzz record-batch compression --sanitize address --json
      kfuzz fuzz --replay --sanitize undefined
      kfuzz fuzz record-batch --reproduce out/fuzz/record-batch/crashes/crash-0123456789ab
    """
    if as_list:
        return _list(as_json)
    sanitizer = cast(Sanitizer, sanitize)
    if replay:
        if file is not None:
            raise UsageError("--replay runs all known inputs and --reproduce runs one; use only one of them")
        return _replay(targets or tuple(name for name in TARGETS if name != "canary"), sanitizer, out, as_json)
    if not targets:
        raise UsageError(f"name a target: {', '.join(TARGETS)}; `kfuzz fuzz --list` describes them")
    if file is not None:
        return _reproduce(targets, file, sanitizer, as_json)
    out = require_writable(out, directory=True)
    order = list(dict.fromkeys(targets))
    with progress(f"fuzzing {', '.join(order)}, seconds", seconds * len(order), quiet=as_json) as set_done:
        results = campaign.run(
            targets,
            seconds,
            runs=runs,
            seed=seed,
            out=out,
            sanitizer=sanitizer,
            say=_say,
            progress=lambda target, done_s: set_done(order.index(target) * seconds + min(done_s, seconds)),
        )
    if as_json:
        echo_json({"targets": [result.to_json() for result in results]})
    else:
        for result in results:
            _show(result)
    if results[-1].interrupted:
        # The results so far are printed; the exit code is that of an interrupt.
        raise click.Abort
    return int(any(result.crashes for result in results))


def _say(line: str) -> None:
    click.echo(line, err=True)


def _list(as_json: bool) -> int:
    if as_json:
        echo_json({"targets": [{"name": target.name, "about": target.about} for target in TARGETS.values()]})
    else:
        width = max(len(name) for name in TARGETS)
        for target in TARGETS.values():
            click.echo(f"{target.name:<{width}}  {target.about}")
    return 0


def _reproduce(targets: tuple[str, ...], file: Path, sanitizer: Sanitizer, as_json: bool) -> int:
    if len(targets) != 1:
        raise UsageError(f"--reproduce runs one target, not {len(targets)}; name one")
    crash = campaign.reproduce(targets[0], file, sanitizer=sanitizer)
    if as_json:
        echo_json({"target": targets[0], "crash": None if crash is None else _crash_json(crash)})
    elif crash is None:
        click.echo(f"{targets[0]}: {file} does not break it")
    else:
        click.echo(f"{targets[0]}: {crash.summary}\n{crash.details}")
    return int(crash is not None)


def _replay(targets: tuple[str, ...], sanitizer: Sanitizer, out: Path, as_json: bool) -> int:
    done = campaign.replay(targets, sanitizer=sanitizer, out=out, say=_say)
    if as_json:
        echo_json({"targets": [asdict(one) for one in done]})
    for one in () if as_json else done:
        if one.crash is None:
            click.echo(f"{one.target}: {one.executions:,} known inputs, nothing found (sanitizer: {one.sanitizer})")
        else:
            click.echo(f"{one.target}: {one.input} breaks it: {one.crash.summary}\n{one.crash.details}")
            click.echo(
                f"  to run it again: kfuzz fuzz {one.target} --sanitize {sanitizer} --reproduce {one.crash.file}"
            )
    return int(any(one.crash for one in done))


def _crash_json(crash: Crash) -> dict[str, str]:
    return {name: getattr(crash, name) for name in Crash.__slots__}


def _show(result: Result) -> None:
    click.echo(
        f"{result.target}: {result.executions:,} inputs in {result.seconds:.0f} s "
        f"({result.executions_per_cpu_second:,} per CPU-second), coverage {result.coverage:,}, "
        f"features {result.features:,}, corpus {result.corpus_before:,} → {result.corpus_after:,}"
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
    if not result.crashes:
        click.echo("  interrupted; nothing found so far" if result.interrupted else "  nothing found")
    for crash in result.crashes:
        shown = crash.input_hex[:SHOWN_HEX_DIGITS] + ("…" if len(crash.input_hex) > SHOWN_HEX_DIGITS else "")
        click.echo(f"  {crash.kind}: {crash.summary}")
        click.echo(f"  input: {shown}")
        click.echo(f"  to run it again: kfuzz fuzz {result.target} --reproduce {crash.file}")
