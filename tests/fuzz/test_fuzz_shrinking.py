"""The input of a fault is made smaller by what it holds: record batches, or a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kfuzz.fuzz import shrinking
from kfuzz.fuzz.building import Build
from kfuzz.fuzz.causes import Causes
from kfuzz.fuzz.messages import SELECTOR_SIZE, chosen, selector
from kfuzz.fuzz.recorder import Find
from kfuzz.fuzz.targets import TARGETS
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import encode, read
from kfuzz.messages.sample import filled

TARGET = TARGETS["messages"]


class Planted:
    """In place of the process: an input breaks it if it is a FetchRequest with a long rack id."""

    def __init__(self, *_: object) -> None:
        self.tries = 0

    def __enter__(self) -> Planted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, data: bytes) -> Find | None:
        self.tries += 1
        message = chosen(data)
        reading: Any = {} if message is None else read(*message, data[SELECTOR_SIZE:]).message or {}
        is_broken = len(reading.get("rackId") or "") > 3
        return Find("exception", "ValueError: a long rack", "kfuzz/one.py:7", "", data) if is_broken else None


def test_a_message_is_made_smaller_by_its_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Planted()
    monkeypatch.setattr(shrinking, "Trier", lambda *_: process)
    definition = catalogue().find("FetchRequest")
    data = selector(definition, 17) + encode(definition, 17, filled(definition, 17, 3))
    causes = Causes(tmp_path, TARGET)
    found = process.run(data)
    assert found is not None
    causes.add(found)
    shrinking.shrink_causes(cast("Build", None), TARGET, causes)
    [cause] = causes.write().values()
    assert len(cause.smallest.data) == SELECTOR_SIZE + 29
    assert process.tries < 400
    assert [field.field for field in cause.smallest.kills][:1] == ["FetchRequest.rackId length"]
