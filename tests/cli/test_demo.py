"""`kfuzz demo`: its steps are commands that exist, it says what to open, and an interrupt lets a step end."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
from signals import interrupt_when, start

from kfuzz.cli import demo
from kfuzz.cli.main import cli, main
from kfuzz.spark import jobs


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["demo", *words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_every_step_is_a_command_with_options_that_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for _, argv in demo.steps(tmp_path, 5, "1MiB"):
        if argv[1] == "-P":
            _, verb, rest = cli.resolve_command(click.Context(cli), argv[4:])
            assert verb is not None
            verb.make_context("demo", list(rest))
            seen.append(argv[4])
        else:
            assert Path(argv[1]).is_file()
            monkeypatch.setattr(jobs, "_generate", lambda options: seen.append(Path(options.out).name) or 0)
            assert jobs.generate_main(argv[2:]) == 0
    assert seen == ["show", "conform", "fuzz", "corpus"]


def test_the_demo_ends_with_what_to_open_and_only_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "out" / "report.html"
    make = f"import pathlib; p = pathlib.Path({str(report)!r}); p.parent.mkdir(); p.touch()"
    monkeypatch.setattr(demo, "steps", lambda out, seconds, size: [("Make", [sys.executable, "-c", make])])
    assert run("--out", str(tmp_path / "out")) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-2].startswith("done in ")
    assert any(line.startswith("not judged here: ") and "kafka-clients" not in line for line in told)
    assert told[-1] == f"  {report}  open this in a browser: what each implementation decodes, and why it fails"
    fail = [("Make", [sys.executable, "-c", ""]), ("Fail", [sys.executable, "-c", "raise SystemExit(3)"])]
    monkeypatch.setattr(demo, "steps", lambda out, seconds, size: fail)
    assert run("--out", str(tmp_path / "none")) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("; step 2 ended with 3")


def test_an_interrupted_demo_waits_for_its_step_to_end(tmp_path: Path) -> None:
    step = tmp_path / "step.py"
    step.write_text(
        "import pathlib, sys, time\n"
        "try:\n"
        "    pathlib.Path('begun').touch()\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(1)\n"
        "    pathlib.Path('ended').touch()\n"
        "    sys.exit(130)\n"
    )
    program = (
        "import sys; from kfuzz.cli import demo; from kfuzz.cli.main import main\n"
        "demo.steps = lambda out, seconds, size: [('Sleep', [sys.executable, '-u', 'step.py'])] * 2\n"
        "main(['demo', '--out', 'out'])\n"
    )
    running = start([sys.executable, "-c", program], cwd=tmp_path)
    told, errors = interrupt_when(running, (tmp_path / "begun").exists, within_s=60)
    assert running.returncode == 130
    assert (tmp_path / "ended").exists()
    assert "[2/2]" not in told
    assert errors.strip() == "kfuzz: interrupted"
