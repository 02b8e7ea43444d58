"""The input of a fault is made smaller by what it holds: record batches, or a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kfuzz.fuzz import shrinking, trial
from kfuzz.fuzz.building import Build
from kfuzz.fuzz.causes import Causes
from kfuzz.fuzz.messages import SELECTOR_SIZE, chosen, selector
from kfuzz.fuzz.recorder import Find
from kfuzz.fuzz.targets import TARGETS
from kfuzz.fuzz.trial import CannotTry, Trier
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


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exec sleep 600", "it was not ready within 0.3 s"),
        ("echo no such library >&2; exit 1", "no such library"),
        ("echo loading >&2; kill -9 $$", "killed by SIGKILL, as the system does .*; it printed last: loading"),
    ],
)
def test_a_process_that_does_not_start_to_try_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(trial, "START_S", 0.3 if "sleep" in script else 60)
    executable = tmp_path / "bin" / "canary"
    executable.parent.mkdir()
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    with Trier(Build(tmp_path, "none", native=False), TARGETS["canary"]) as trier, pytest.raises(CannotTry, match=why):
        trier.run(b"")
