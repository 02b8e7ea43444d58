"""``kfuzz demo``: the whole way once, by the verbs that a user would type."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import click

from kfuzz.corpora.workload import parse_size
from kfuzz.errors import UsageError
from kfuzz.files import require_writable

ROOT = Path(__file__).resolve().parents[2]
VECTOR = "records/v2/count/negative-one"


def steps(out: Path, seconds: int, size: str) -> list[tuple[str, list[str]]]:
    """What the demo does: a sentence and a command each; every command also works alone."""
    verb = [sys.executable, "-m", "kfuzz.cli.main"]
    workload = str(ROOT / "spark_jobs" / "workloads" / "demo.toml")
    corpus = str(out / "corpus")
    report = ["--html", str(out / "report.html"), "--json", str(out / "report.json")]
    generate = ["--workload", workload, "--out", corpus, "--size", size, "--overwrite"]
    return [
        ("One vector, byte by byte", [*verb, "show", VECTOR]),
        ("Every implementation at hand against every vector", [*verb, "conform", *report]),
        (
            f"{seconds} seconds of fuzzing kfuzz's own decoder",
            [*verb, "fuzz", "record-batch", "--seconds", str(seconds), "--out", str(out / "fuzz")],
        ),
        (
            f"{size} of log segments on Spark",
            [sys.executable, str(ROOT / "spark_jobs" / "generate_corpus.py"), *generate],
        ),
        (
            "The same, read back and checked",
            [sys.executable, str(ROOT / "spark_jobs" / "verify_corpus.py"), "--out", corpus],
        ),
    ]


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out/demo"), show_default=True)
@click.option("--seconds", type=click.IntRange(1, 3600), default=20, show_default=True, help="How long to fuzz.")
@click.option("--size", default="256MiB", show_default=True, help="Uncompressed size of the corpus.")
@click.pass_context
def command(ctx: click.Context, out: Path, seconds: int, size: str) -> None:
    """Show a vector, run the matrix, fuzz, generate a corpus on Spark and verify it. Needs a checkout.

    \b
    Examples:
      kfuzz demo
      kfuzz demo --seconds 60 --size 1GiB
    """
    if not (ROOT / "spark_jobs").is_dir():
        raise UsageError(
            "the demo needs a checkout of the repository; an installed package lacks testees/ and spark_jobs/"
        )
    if not parse_size(size):
        raise UsageError(f'--size is {size!r}; give a size such as "64MiB"')
    require_writable(out, directory=True)
    began = time.monotonic()
    failed = []
    todo = steps(out, seconds, size)
    for number, (title, argv) in enumerate(todo, start=1):
        shown = ["kfuzz", *argv[3:]] if argv[1] == "-m" else ["python", *argv[1:]]
        click.secho(f"\n[{number}/{len(todo)}] {title}", bold=True)
        click.echo(f"$ {shlex.join(shown)}")
        sys.stdout.flush()
        if (code := subprocess.run(argv).returncode) != 0:
            failed.append(f"step {number} ended with {code}")
    click.echo(f"\nreport: {out / 'report.html'}\ncorpus: {out / 'corpus'}")
    click.echo(f"done in {time.monotonic() - began:.0f} s" + (f"; {'; '.join(failed)}" if failed else ""))
    ctx.exit(1 if failed else 0)
