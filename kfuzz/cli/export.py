"""``kfuzz export``: parses, prints and exits. ``kfuzz.fuzz.exporting`` does the work."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import cast

import click

from kfuzz.cli import options
from kfuzz.cli.console import PATH, echo_json, notice, say
from kfuzz.files import require_writable
from kfuzz.fuzz.exporting import FORMATS, Exported, Format, export
from kfuzz.text import shell_word


@click.command("export")
@click.argument("form", type=click.Choice(FORMATS), metavar="FUZZER")
@click.argument("directory", type=PATH, metavar="DIR")
@options.target("whose seeds are written", default="record-batch")
@click.option(
    "--messages",
    "messages",
    metavar="GLOB",
    multiple=True,
    help="With --target messages: only these, such as FetchResponse or '*Response'; may be repeated.  [default: all]",
)
@click.option("--inputs", type=PATH, metavar="DIR", multiple=True, help="Also write the inputs in this folder.")
@options.as_json
def command(
    form: str, directory: Path, target: str, messages: tuple[str, ...], inputs: tuple[Path, ...], as_json: bool
) -> int:
    """Write seeds, dictionary and mutator for another fuzzer: libfuzzer, afl, go or oss-fuzz.

    The mutator knows record batches: it changes their fields, records and payloads, and repairs lengths and CRCs. With
    --target messages it changes messages by their schemas. Go has no hook for a mutator, and takes the seeds alone;
    name the folder testdata/fuzz/FuzzNAME of your package. For OSS-Fuzz, DIR is the folder of a project.

    \b
    Examples:
      kfuzz export libfuzzer out/kit
      kfuzz export afl out/kit --inputs out/fuzz/record-batch/corpus
      kfuzz export go testdata/fuzz/FuzzDecode
      kfuzz export libfuzzer out/kit --target messages --messages FetchResponse
      kfuzz export oss-fuzz projects/mine
    """
    chosen = cast(Format, form)
    directory = require_writable(directory, directory=True)
    made = export(chosen, directory, target=target, corpora=inputs, messages=messages, say=notice)
    if as_json:
        echo_json(asdict(made))
        return 0
    say(f"{made.seeds:,} seeds in {made.folder}")
    if made.dictionary:
        say(f"the dictionary: {made.dictionary}")
    if made.mutator:
        say(f"the mutator: {made.mutator}")
    say(_next(chosen, made))
    return 0


def _next(form: Format, made: Exported) -> str:
    # The loader searches its own folders for a name without a slash.
    folder, words, library = (
        path and shell_word(str(path) if len(path.parts) > 1 else f"./{path}")
        for path in (made.folder, made.dictionary, made.mutator)
    )
    if form == "oss-fuzz":
        return (
            "next: put your decoder into fuzz_decoder.c and build.sh, fill in project.yaml, and name the image in the "
            "Dockerfile"
        )
    if form == "go":
        return "run: go test -fuzz FuzzNAME"
    if form == "libfuzzer":
        load = f"LD_PRELOAD={library} " if library else ""
        return f"run: {load}./your-fuzzer {f'-dict={words} ' if words else ''}corpus {folder}"
    load = f"AFL_CUSTOM_MUTATOR_LIBRARY={library} " if library else ""
    return f"run: {load}afl-fuzz -i {folder} -o findings {f'-x {words} ' if words else ''}-- ./your-harness"
