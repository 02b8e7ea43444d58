"""Progress of a Spark job: what a line says, when a log gets one, and a bar on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from kfuzz.spark.progress import Job, job_progress

JOB = Job("generating", 64, 1024, 68_719_476_736)


@pytest.mark.parametrize(
    ("done", "failed", "seconds", "told"),
    [
        (0, 0, 3, "0 of 64 tasks, about 0 of 1024 segments, 0.0 of 68.7 GB"),
        (16, 0, 20, "16 of 64 tasks, about 256 of 1024 segments, 17.2 of 68.7 GB, 859 MB/s, 60 s left"),
        (
            16,
            1,
            40,
            "16 of 64 tasks, about 256 of 1024 segments, 17.2 of 68.7 GB, 429 MB/s, 2 min left, 1 failed attempt",
        ),
        (
            1,
            2,
            3600,
            "1 of 64 tasks, about 16 of 1024 segments, 1.1 of 68.7 GB, 0 MB/s, 63 h 0 min left, 2 failed attempts",
        ),
        (64, 0, 80, "64 of 64 tasks, about 1024 of 1024 segments, 68.7 of 68.7 GB, 859 MB/s, 0 s left"),
    ],
)
def test_a_line_says_what_is_done_how_fast_and_what_is_left(done: int, failed: int, seconds: int, told: str) -> None:
    assert JOB.line(done, failed, seconds) == f"generating: {told}"


def test_a_log_gets_a_line_after_five_seconds_and_later_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    at: list[float] = []
    with job_progress(JOB, clock=lambda: now) as watch:
        watch.set_failed(3)
        while now < 7200:
            now += 0.25
            watch.set_done(int(now) // 120)
            if capsys.readouterr().err:
                at.append(now)
    gaps = [after - before for before, after in zip([0.0, *at], at, strict=False)]
    assert gaps[:3] == [5, 5, 5]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 60
    with job_progress(JOB, clock=lambda: now) as watch:
        watch.set_failed(3)
        now += 5
        watch.set_done(2)
    assert capsys.readouterr().err == JOB.line(2, 3, 5) + "\n"


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with job_progress(JOB) as watch:
        watch.set_failed(2)
        watch.set_done(16)
    assert "about 256 of 1024 segments" in screen.getvalue()
    assert "2 failed attempts" in screen.getvalue()
    # The last thing written is the escape that clears the line.
    assert screen.getvalue().endswith("\x1b[2K")
