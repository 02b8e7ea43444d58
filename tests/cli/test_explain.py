"""kfuzz explain: every name has a page, what Kafka did is counted from the vectors, and unknown names get a remedy."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import click
import pytest
from cli_driver import kfuzz

from kfuzz.broker_errors import ERROR_MEANINGS, ERROR_NAMES
from kfuzz.cli.main import cli
from kfuzz.errors import UsageError
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.vectors.coverage import WITHOUT_VECTOR
from kfuzz.vectors.explaining import Book
from kfuzz.vectors.log_lines import LogLine, known_lines, lines_in
from kfuzz.vectors.model import find_vector

BOOK = Book()
explain = BOOK.explain
WITHOUT_VECTORS = ("requirement", "finding of stored files", "line of a log")
NAMES = {title: names for title, names in BOOK.tables().items() if title != "errors of a broker"}


@pytest.mark.parametrize("title", NAMES)
def test_every_name_is_explained_with_its_vectors(title: str) -> None:
    for name in NAMES[title]:
        for one in explain(name):
            assert one.name == name
            assert one.what or one.flags
            # No vector checks a requirement that only a broker can show. Vectors are not stored files, and not logs.
            assert one.vectors or name in WITHOUT_VECTOR or one.kind in WITHOUT_VECTORS


def test_every_meaning_belongs_to_an_error() -> None:
    assert set(ERROR_MEANINGS) <= set(ERROR_NAMES)
    for number, name in ERROR_NAMES.items():
        [one] = explain(name)
        assert one == explain(str(number))[0]


def test_explain_shows_the_same_verdict_of_kafka_as_the_vectors() -> None:
    [one] = explain("record-count-negative")
    answers = [vector.kafka["4.4.0"]["consumer"] for vector in one.vectors]
    assert f"a consumer 4.4.0: rejected {len(answers)}" in one.kafka
    assert set(answers) == {"rejected"}
    assert find_vector("records/v2/count/negative-one") in one.vectors


def test_a_code_of_both_tables_is_explained_twice() -> None:
    assert [one.kind for one in explain("varint-overlong")] == ["finding of record batches", "finding of messages"]


def test_the_page_has_the_sentence_the_rule_the_harm_and_the_vectors() -> None:
    shown = kfuzz("explain", "Record-Count-Negative", code=0)
    for text in (
        "the record count is N; it must be 0 or more",
        "RB-COUNT-1 (must)",
        "RecordCountNegative (crash)",
        "records/v2/count/negative-one ",
        "more; `kfuzz explain record-count-negative --all` shows them",
    ):
        assert text in shown.stdout
    whole = kfuzz("explain", "record-count-negative", "--all").stdout
    assert "more; `kfuzz" not in whole
    assert set(shown.stdout.splitlines()[:-1]) < set(whole.splitlines())


def test_the_json_form_names_all_vectors() -> None:
    [told] = json.loads(kfuzz("explain", "MESSAGE_TOO_LARGE", "--json").stdout)
    assert {"title": "number", "text": "10"} in told["facts"]
    assert told["vectors"]
    assert all(find_vector(name).kafka[BROKER_RELEASE]["error"] == "MESSAGE_TOO_LARGE" for name in told["vectors"])


def test_without_a_name_all_names_are_listed() -> None:
    listed = {line.strip() for line in kfuzz("explain").stdout.splitlines()}
    assert {"crc-mismatch", "RB-COUNT-1", "RecordCountNegative", "INVALID_RECORD"} <= listed


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean crc-mismatch"):
        explain("crc-mismatched")


@pytest.mark.parametrize("line", known_lines(), ids=lambda line: line.name)
def test_a_line_is_known_by_its_words_only_and_its_command_can_be_run(line: LogLine) -> None:
    assert list(lines_in(line.example)) == list(lines_in(line.name)) == [line]
    assert line.thread.startswith(("https://github.com/", "https://issues.apache.org/jira/browse/KAFKA-"))
    _, verb, *words = shlex.split(line.command_for(f"{line.example} offset 5, byte offset 7"))
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    command.make_context(verb, words)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            "/data/a-0/00000000000000000009.log at byte offset 4021.",
            "show /data/a-0/00000000000000000009.log --at 4021",
        ),
        ("orders-0", "show SEGMENT.log --at BYTE"),
        ("/data/a-0/00000000000000000009.timeindex", "show /data/a-0/00000000000000000009.log --at BYTE"),
        ("[Log partition=a.b-3, dir=/data] at byte offset 1", "show /data/a.b-3/SEGMENT.log --at 1"),
        ("/data/\x1b]0;a-0/0.log", "show '/data/\\x1b/SEGMENT.log' --at BYTE"),
        ("C:\\k\\a-0\\00000000000000000009.log", "show 'C:\\k\\a-0\\00000000000000000009.log' --at BYTE"),
        ("[Log partition=a-0, dir=D:\\my logs]", "show 'D:\\my logs\\a-0\\SEGMENT.log' --at BYTE"),
        (
            "by /10.0.0.1:9092 in /my data/c++/a-0/00000000000000000009.log (x)",
            "show '/my data/c++/a-0/00000000000000000009.log' --at BYTE",
        ),
        ("C:/my logs/a-0/00000000000000000009.index.", "show 'C:/my logs/a-0/00000000000000000009.log' --at BYTE"),
        ("from /10.0.0.1; then from /0:0:0:0:0:0:0:1:40022 and /fe80::1%eth0", "show SEGMENT.log --at BYTE"),
        ("/data/my.topic-3 (at byte offset 7)", "show /data/my.topic-3/SEGMENT.log --at 7"),
        (
            "'/data' said: /my logs/b-1/00000000000000000009.log",
            "show '/my logs/b-1/00000000000000000009.log' --at BYTE",
        ),
    ],
)
def test_places_of_a_line_are_in_its_command(words: str, command: str) -> None:
    [one] = explain(f"WARN Found invalid messages in log segment {words}")
    assert dict(one.facts)["command"] == f"kfuzz {command}"


def test_a_log_is_a_list_of_its_known_lines(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    examples = [line.example for line in known_lines()[:2]]
    log.write_text("\n".join(["INFO started", *examples, "x" * 200_000, *examples[:1], ""]))
    out = kfuzz("explain", "--log", log).stdout.splitlines()
    assert out[0] == f"{log}: 5 lines, 2 known messages"
    assert out[1].split() == ["2", "from", "line", "2:", *known_lines()[0].name.split()]
    assert out[2].split() == shlex.split(known_lines()[0].command_for(examples[0]))
    packed = tmp_path / "server.log.1.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for told in (
        json.loads(kfuzz("explain", "--log", "-", "--json", stdin=log.read_bytes()).stdout),
        json.loads(kfuzz("explain", "--log", packed, "--json").stdout),
    ):
        assert [(one["count"], one["first"]) for one in told["known"]] == [(2, 2), (1, 3)]
    unknown = kfuzz("explain", "INFO nothing happened")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
