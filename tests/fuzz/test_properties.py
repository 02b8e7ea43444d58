"""The promises of every fuzz target hold for what ``kfuzz.strategies`` makes: a failure shrinks to a small input."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from kfuzz import strategies
from kfuzz.fuzz.messages import selector
from kfuzz.fuzz.targets import TARGETS
from kfuzz.messages.catalogues import catalogue
from kfuzz.strategies import MessageBytes

EXAMPLES = 25


@pytest.mark.parametrize("target", ["record-batch", "columns", "broker", "log-tools"])
@pytest.mark.parametrize("hostile", [False, True], ids=["valid", "hostile"])
def test_promises_about_batches_hold(target: str, hostile: bool) -> None:
    run = TARGETS[target].run

    @settings(max_examples=EXAMPLES)
    @given(strategies.batch_bytes(hostile=hostile, magics=(0, 1, 2)))
    def hold(data: bytes) -> None:
        run(data)

    hold()


@pytest.mark.parametrize("hostile", [False, True], ids=["valid", "hostile"])
def test_promises_about_messages_hold(hostile: bool) -> None:
    run = TARGETS["messages"].run

    @settings(max_examples=EXAMPLES)
    @given(strategies.message_bytes(hostile=hostile))
    def hold(message: MessageBytes) -> None:
        run(selector(catalogue().find(message.name), message.version) + message.data)

    hold()
