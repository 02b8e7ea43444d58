"""Values from the lines of a file: drawn evenly, by weight or in turn, and held by the corpus."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from made_corpora import batches_of, run

from kfuzz.corpora import workload as workloads
from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.workload import load, parse, render, sizes_of
from kfuzz.errors import UsageError

LINES = [b'{"n": 1}', b"\xff\x00 any\r bytes", b"x" * 500]


def workload_of(folder: Path, lines: list[bytes], values: str = "") -> Path:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in/lines").write_bytes(b"\n".join(lines) + b"\n\n")
    path = folder / "w.toml"
    path.write_text(
        f'size = "1MiB"\nsegment_bytes = "1MiB"\n[[topics]]\nname = "t"\nvalues = {{ file = "in/lines"{values} }}\n'
    )
    return path


def values_of(path: Path) -> list[bytes]:
    workload = load(path)
    return [record.value or b"" for batch in batches_of(Plan(workload)[0], workload) for record in batch.records]


def test_lines_are_drawn_evenly_without_a_draw(tmp_path: Path) -> None:
    found = Counter(values_of(workload_of(tmp_path, LINES)))
    assert found.keys() == set(LINES)
    assert max(found.values()) < 1.15 * min(found.values())


def test_a_line_may_end_with_a_carriage_return_too(tmp_path: Path) -> None:
    path = workload_of(tmp_path, [one + b"\r" for one in (LINES[0], b"", *LINES[1:])])
    assert set(values_of(path)) == set(LINES)


@pytest.mark.parametrize("more", [0, 40])
def test_lines_are_drawn_by_weight(tmp_path: Path, more: int) -> None:
    """Few lines are looked at one by one, many by halves."""
    weights = [1, 3, 0, 6] + [2] * more
    lines = [b"%d\tline %d\twith a tab" % (weight, at) for at, weight in enumerate(weights)]
    found = Counter(values_of(workload_of(tmp_path, lines, ', draw = "weight"')))
    total = sum(found.values())
    for at, weight in enumerate(weights):
        share = found[b"line %d\twith a tab" % at] / total
        assert share == pytest.approx(weight / sum(weights), rel=0.25, abs=0), at


def test_lines_are_drawn_in_turn(tmp_path: Path) -> None:
    found = values_of(workload_of(tmp_path, LINES, ', draw = "turn"'))
    assert found == [LINES[at % len(LINES)] for at in range(len(found))]


def test_sizes_are_those_of_the_lines(tmp_path: Path) -> None:
    [topic] = load(workload_of(tmp_path, LINES)).topics
    assert sizes_of(topic.values, topic.keys)[1] >= 500
    mean = sum(map(len, LINES)) / len(LINES)
    assert mean < offset_bytes_mean(topic) < mean + 40


def test_the_corpus_holds_the_file_and_other_bytes_are_another_workload(tmp_path: Path) -> None:
    path = workload_of(tmp_path, [*LINES, b"y" * 5000])
    first = load(path)
    assert parse(render(first), "again") == first
    assert run("generate", path, "--out", tmp_path / "out") == 0
    (tmp_path / "in/lines").unlink()
    assert run("verify", tmp_path / "out", "--statistics") == 0
    other = load(workload_of(tmp_path, LINES))
    assert other.fingerprint != first.fingerprint
    assert run("generate", path, "--out", tmp_path / "out", "--resume") == 2


@pytest.mark.parametrize(
    ("lines", "values", "sentence"),
    [
        (
            [b"x"],
            ', draw = "weight"',
            "values.file has no weight in its payload 1; begin each line with a whole number of at most 9 digits",
        ),
        ([b"0\tx"], ', draw = "weight"', "values.file has only weights of 0; raise one"),
        ([], "", "values.file has 0 payloads; give 1 to 5 lines"),
        ([b"x"] * 6, "", "values.file has 6 payloads; give 1 to 5 lines"),
        ([b"x" * 65], "", "in/lines is larger than 64 bytes, the most that kfuzz reads"),
        ([b"x"], ', kind = "text"', "values.file gives the values already; remove kind"),
        ([b"x"], ", size = 5", "values.size does not apply to file values"),
        ([b"x"], ", ratio = 2", "values.ratio does not apply to file values"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[bytes], values: str, sentence: str
) -> None:
    monkeypatch.setattr("kfuzz.corpora.json_values.PAYLOADS_MAX", 5)
    monkeypatch.setattr(workloads, "PAYLOAD_BYTES_MAX", 64)
    with pytest.raises(UsageError, match=sentence):
        load(workload_of(tmp_path, lines, values))


def test_a_text_without_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path = workload_of(tmp_path, LINES)
    with pytest.raises(UsageError, match="this text is in no folder"):
        parse(path.read_text(), "w")
    (tmp_path / "in/lines").unlink()
    assert run("describe", path) == 2
