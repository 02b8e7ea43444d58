"""kfuzz explain: every name has a page, what Kafka did is counted from the vectors, and unknown names get a remedy."""

from __future__ import annotations

import json

import pytest
from cli_driver import kfuzz

from kfuzz.broker_errors import ERROR_MEANINGS, ERROR_NAMES
from kfuzz.errors import UsageError
from kfuzz.kafka import BROKER_RELEASE
from kfuzz.vectors.coverage import WITHOUT_VECTOR
from kfuzz.vectors.explaining import Book
from kfuzz.vectors.model import find_vector

BOOK = Book()
explain = BOOK.explain
NAMES = {title: names for title, names in BOOK.tables().items() if title != "errors of a broker"}


@pytest.mark.parametrize("title", NAMES)
def test_every_name_is_explained_with_its_vectors(title: str) -> None:
    for name in NAMES[title]:
        for one in explain(name):
            assert one.name == name
            assert one.what or one.flags
            # Some requirements are checked by the behaviour of a broker, not by vectors. Vectors are no files.
            assert one.vectors or name in WITHOUT_VECTOR or one.kind in ("requirement", "finding of stored files")


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
    shown = kfuzz("explain", "Record-Count-Negative")
    assert shown.returncode == 0
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
