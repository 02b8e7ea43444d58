"""On a terminal, no line of a verb is wider; in a pipe, all lines are whole."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
import termios
import threading
from pathlib import Path

import pytest
from cli_driver import kfuzz

from kfuzz import records
from kfuzz.cli.main import main
from kfuzz.records import Record, RecordBatch

VERBS = {
    "show": ["show", "{damaged}"],
    "show --finding": ["show", "{damaged}", "--finding"],
    "show --frames": ["show", "--frames", "conversation/reading/plain"],
    "check": ["check", "{folder}"],
    "cat --table": ["cat", "{sound}", "--table"],
    "diff": ["diff", "{sound}", "{damaged}"],
    "state": ["state", "producers", "{folder}"],
    "salvage": ["salvage", "{folder}", "--out", "{out}"],
    "explain": ["explain", "INVALID_RECORD"],
    "explain LINE": ["explain", "WARN Found invalid messages in log segment {damaged} at byte offset 12."],
    "messages show": ["messages", "show", "FetchResponse", "--version", "17"],
    "messages list": ["messages", "list"],
    "vectors list": ["vectors", "list", "records/v2/count/*"],
    "corpus describe": ["corpus", "describe", "{workload}"],
    "proxy --help": ["proxy", "--help"],
}
# Tables have fewer or smaller columns in a narrow terminal, and a dump has fewer bytes in a line.
# The output about a workload depends on the time of day.
NARROWED = ("show", "show --finding", "show --frames", "cat --table", "proxy --help", "corpus describe")
SLOW = ("explain", "vectors list", "corpus describe", "messages show")
WORKLOAD = Path(__file__).parents[2] / "spark_jobs/workloads/shop.toml"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("log") / "orders-0"
    folder.mkdir()
    sound, damaged = folder.parent / "sound.log", folder / "00000000000000000000.log"
    rows = [Record(at, 1_700_000_000_000, b"key", b"value " * 30, ((b"h", b"x"),)) for at in range(3)]
    data = bytearray(records.encode([RecordBatch(row.offset, row.offset, [row], producer_id=1 << 40) for row in rows]))
    sound.write_bytes(data)
    data[100] ^= 1
    damaged.write_bytes(data)
    return {"folder": folder, "damaged": damaged, "sound": sound, "workload": WORKLOAD}


ERASED = r"\x1b\[2K"


def on_terminal(words: list[str], columns: int) -> list[str]:
    """The lines that stay on a terminal of so many columns, which gets standard output and standard error."""
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (1000, columns))
    shown = b""

    def collect() -> None:
        nonlocal shown
        while not shown.endswith(b"\0"):
            shown += os.read(here, 1 << 16)

    reader = threading.Thread(target=collect)
    reader.start()
    with io.TextIOWrapper(os.fdopen(there, "wb", 0), write_through=True) as out, pytest.MonkeyPatch.context() as patch:
        for name in ("COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm")
        for name in ("stdout", "__stdout__", "stderr", "__stderr__"):
            patch.setattr(sys, name, out)
        with pytest.raises(SystemExit):
            main(words)
        out.write("\0")
        reader.join(60)
    os.close(here)
    # Such as a bar, which is gone when something is printed above it, and at the end.
    kept = re.sub(rf"([^\n]*\n[^\n]*\x1b\[1A|[^\n]*){ERASED}", "", shown[:-1].decode())
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", kept).replace("\r", "").split("\n")


@pytest.mark.parametrize(
    ("verb", "columns"),
    [
        pytest.param(verb, columns, marks=() if columns == 80 and verb not in SLOW else pytest.mark.full)
        for verb in VERBS
        for columns in (80, 100, 147, 200)
    ],
)
def test_no_line_is_wider_than_the_terminal(verb: str, columns: int, places: dict[str, Path], tmp_path: Path) -> None:
    words = [word.format_map(places | {"out": tmp_path / "out"}) for word in VERBS[verb]]
    lines = on_terminal(words, columns)
    assert len(lines) > 2
    assert [line for line in lines if len(line) > columns] == []
    if verb not in NARROWED:
        words[-1] = words[-1].replace("/out", "/aut")
        piped = kfuzz(*words).stdout.replace("/aut", "/out")
        assert "".join(piped.split()) in "".join("".join(lines).split())


def test_a_pipe_gets_whole_lines_and_json_stays_whole_everywhere(places: dict[str, Path]) -> None:
    words = ["check", str(places["folder"])]
    assert max(map(len, kfuzz(*words).stdout.splitlines())) > 80
    assert on_terminal([*words, "--json"], 80) == kfuzz(*words, "--json").stdout.split("\n")
