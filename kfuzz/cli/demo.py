"""``kfuzz demo``: a tour of kfuzz that runs the commands a user would type."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import time
from pathlib import Path

import click

from kfuzz.cli import options
from kfuzz.conformance.protocol.testees import all_testees
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import load
from kfuzz.errors import UsageError
from kfuzz.files import require_writable
from kfuzz.kafka import LATEST
from kfuzz.text import shell_word
from kfuzz.units import show_size

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = ROOT / "spark_jobs" / "workloads" / "demo.toml"
VECTOR = "records/v2/count/negative-one"
# Judging the others, and building them, takes minutes.
JUDGED = ("kfuzz", "aiokafka", "kafka-python", f"kafka-clients@{LATEST}")
# An interrupted fuzzer or Spark job takes some seconds to end.
INTERRUPT_S = 30


def steps(out: Path, seconds: int, size: str) -> list[tuple[str, list[str]]]:
    """The steps of the demo, each a title and a command. Every command also works on its own."""
    # With -P, a file `kfuzz.py` in the current folder is not run in its place.
    verb = [sys.executable, "-P", "-m", "kfuzz.cli.main"]
    corpus = str(out / "corpus")
    judged = [word for name in JUDGED for word in ("--testee", name)]
    report = ["--html", str(out / "report.html"), "--json", str(out / "report.json")]
    generate = ["--workload", str(WORKLOAD), "--out", corpus, "--size", size, "--overwrite"]
    return [
        ("One vector, byte by byte", [*verb, "show", VECTOR]),
        ("Four implementations against every vector", [*verb, "conform", *judged, *report]),
        (
            f"{seconds} seconds of fuzzing kfuzz's own decoder",
            [*verb, "fuzz", "record-batch", "--seconds", str(seconds), "--out", str(out / "fuzz")],
        ),
        (
            f"{size} of log segments on Spark, read back and checked",
            [sys.executable, str(ROOT / "spark_jobs" / "generate_corpus.py"), *generate, "--verify"],
        ),
    ]


@click.command()
@options.out("what the steps make", default="out/demo")
@options.seconds(type=click.IntRange(1, 3600), default=20)
@options.size(default="256MiB")
def command(out: Path, seconds: int, size: int) -> int:
    """Show a vector, run the matrix, fuzz, then generate and verify a corpus on Spark. Needs a checkout.

    \b
    Examples:
      kfuzz demo
      kfuzz demo --seconds 60 --size 1GiB
    """
    if not (ROOT / "spark_jobs").is_dir():
        raise UsageError(
            "the demo needs a checkout of the repository; an installed package lacks testees/ and spark_jobs/"
        )
    # Refuse now what the last step would refuse after some minutes.
    Plan(load(WORKLOAD).resized(size), "--size")
    out = require_writable(out, directory=True)
    began = time.monotonic()
    failed = []
    todo = steps(out, seconds, show_size(size))
    for number, (title, argv) in enumerate(todo, start=1):
        shown = ["kfuzz", *argv[4:]] if argv[1] == "-P" else ["python", *argv[1:]]
        click.secho(f"\n[{number}/{len(todo)}] {title}", bold=True)
        click.echo(f"$ {shlex.join(shown)}")
        sys.stdout.flush()
        step_began = time.monotonic()
        code = _finish(argv)
        click.echo(f"({time.monotonic() - step_began:.0f} s)")
        if code:
            failed.append(f"step {number} ended with {code}")
    if left_out := sorted({testee.name for testee in all_testees()} - {name.partition("@")[0] for name in JUDGED}):
        click.echo(f"\nnot judged here: {', '.join(left_out)}; `kfuzz conform` judges all")
    took = f"done in {time.monotonic() - began:.0f} s" + (f"; {'; '.join(failed)}" if failed else "")
    click.secho(f"\n{took}", bold=True)
    for place, what in outcomes(out):
        if place.exists():
            click.echo(f"  {place}  {what}")
    return 1 if failed else 0


def outcomes(out: Path) -> list[tuple[Path, str]]:
    """The files that the demo leaves, and what to do with each. Users should begin with the first."""
    segment = out / "corpus" / "demo-0" / f"{0:020d}.log"
    return [
        (out / "report.html", "open this in a browser: what each implementation decodes, and why it fails"),
        (out / "fuzz" / "record-batch" / "result.json", "what the fuzzer did"),
        (segment, f"a log segment; to see what is inside: kfuzz show {shell_word(segment)}"),
    ]


def _finish(argv: list[str]) -> int:
    """Run ``argv`` and return its exit code. Ctrl-C reaches it too; it then gets time to stop its own children."""
    with subprocess.Popen(argv) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPT_S)
            process.kill()
            raise
