"""The paths of ``python -m benchmarks`` that write logs or start processes: a line for each, and nothing is left."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from conftest import require_kafka_build, require_tool
from results import rows_of

from benchmarks.__main__ import main
from benchmarks.measure import NotTheSameWork, confirm
from benchmarks.paths import FILE_PATHS
from benchmarks.process_work import LOGS, MODES, Command, Printed, dump, make_segment

DUMPS = [f"{mode}-{log}" for log in LOGS for mode in MODES]
PROXIES = [path for path in FILE_PATHS if path.startswith("proxy-")]
AVRO = "cat-avro"
IN_MEMORY = [path for path in FILE_PATHS if path not in (*DUMPS, *PROXIES, AVRO)]


def measured(place: Path, paths: list[str]) -> None:
    assert main(["--quick", "--in", str(place / "in"), "--out", str(place / "out"), "--path", *paths]) == 0
    assert list(dict.fromkeys(row["path"] for row in rows_of(place / "out"))) == paths
    assert list((place / "in").iterdir()) == []


@pytest.mark.full
def test_a_corpus_is_made_in_memory_and_on_the_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(tmp_path, ["make-batches-of-1", "make-random-lz4", "disk"])
    cells = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row[2].strip() for row in cells] == ["aiokafka", "bare-codec", "zeros", "zeros-parallel"]
    assert min(float(row[8]) for row in cells) > 0


@pytest.mark.full
def test_the_proxy_is_measured_beside_others(tmp_path: Path) -> None:
    require_tool("socat", "apt-get install socat")
    measured(tmp_path, PROXIES)


@pytest.mark.full
def test_avro_is_printed_beside_programs_with_other_libraries(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka.schema_registry.avro", reason="needs confluent-kafka[avro,schemaregistry]")
    measured(tmp_path, [AVRO])


@pytest.mark.nightly
def test_every_path_without_a_process_has_a_line(tmp_path: Path) -> None:
    measured(tmp_path, IN_MEMORY)


@pytest.mark.java
@pytest.mark.nightly
def test_every_path_beside_another_tool_has_a_line(tmp_path: Path) -> None:
    require_kafka_build()
    require_tool("kcat", "apt-get install kcat")
    measured(tmp_path, DUMPS)


def test_a_tool_that_prints_something_else_is_refused(tmp_path: Path) -> None:
    segment, expected = make_segment(tmp_path, "plain", 1 << 20, "cat")
    work = dump("cat", segment)
    confirm("cat", {"kfuzz": work}, expected)
    assert work.lap(1).counted == expected.printed > 0
    other = Command(["echo", "one line"])
    with pytest.raises(NotTheSameWork, match=f"printed 1 instead of {expected.printed}"):
        confirm("cat", {"other": other}, Printed(expected.printed))


def test_without_java_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["--quick", "--path", "show-plain", "--in", str(tmp_path / "in"), "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "show-plain is not measured: " in out
    assert err == "python -m benchmarks: nothing was measured\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--size", "much"], "--size is 'much'; give a size"),
        (["--path", "show-plain", "--size", "2GiB"], "a segment has at most 1 GiB"),
        (["--in", "/dev/null"], "/dev/null"),
        (["--rounds", "0"], "--rounds is 0; give at least 1"),
        (["--path", "make-*", "none-*"], "there is no path 'none-*'"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    run = partial(main, ["--quick", "--out", str(tmp_path), "--path", "disk", *words])
    assert run() == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m benchmarks: ")
    assert told in line
