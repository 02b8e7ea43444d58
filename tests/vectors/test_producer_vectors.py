"""The vectors for producers, and the messages of all versions: what must be among them."""

from __future__ import annotations

import pytest

from kfuzz.broker_errors import ERROR_NAMES
from kfuzz.client.protocol import RETRIABLE
from kfuzz.kafka import CODECS
from kfuzz.vectors import load_suite
from kfuzz.vectors.recipes.making.message import newest_version, slug_of, versions_of
from kfuzz.vectors.recipes.making.produced import BATCH_BYTES_MAX
from kfuzz.vectors.recipes.themes.message_versions import NAMES
from kfuzz.vectors.recipes.themes.producer_retries import LASTING
from kfuzz.vectors.recipes.themes.producer_retries import RETRIABLE as RETRIED

SUITE = load_suite(kinds=["produce"])
BY_ID = {vector.id.removeprefix("produce/"): vector for vector in SUITE}


def test_each_codec_has_values_that_get_smaller_and_values_that_do_not() -> None:
    for codec in CODECS[1:]:
        asked = [vector for vector in SUITE if vector.options["compression"] == codec]
        assert {f"produce/sizes/{codec}-{name}" for name in ("zeros", "random", "nulls", "small")} <= {
            vector.id for vector in asked
        }


@pytest.mark.parametrize("power", range(5, 20))
def test_there_are_values_of_the_size_of_each_power_of_2_and_of_20_less_and_more(power: int) -> None:
    size = 1 << power
    names = [f"sizes/values-near-{size}"] if power < 14 else [f"sizes/value-{size + near}" for near in (-20, 0, 20)]
    values = [
        len(record["value"]) // 2 for name in names for record in BY_ID[name].expect["broker"]["batches"][0]["records"]
    ]
    assert {size - 20, size, size + 20} <= set(values)


def test_the_largest_batch_is_the_largest_that_a_broker_takes() -> None:
    assert max(vector.size for vector in SUITE) == BY_ID["sizes/value-largest"].size == BATCH_BYTES_MAX


def test_no_error_that_a_client_survives_is_called_lasting() -> None:
    assert not {ERROR_NAMES.get(number) for number in RETRIABLE} & set(LASTING)
    assert {name for vector in SUITE for name in vector.options.get("errors", ())} == {
        *(*RETRIED, *LASTING),
        *("NONE", "DUPLICATE_SEQUENCE_NUMBER"),
    }


def test_each_version_of_the_messages_that_clients_need_has_a_value_in_every_field() -> None:
    ids = {vector.id for vector in load_suite("messages/*", kinds=["message"])}
    for name in NAMES:
        for version in versions_of(name):
            folder = (
                "versions" if version < newest_version(name) else f"{'requests' if 'Request' in name else 'responses'}"
            )
            assert f"messages/{folder}/{slug_of(name, version)}" in ids
