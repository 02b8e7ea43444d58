"""A recorded conversation without what people wrote in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kfuzz.documents import load_json
from kfuzz.edit.redacting import Redactor
from kfuzz.files import open_regular
from kfuzz.relay.frames import Direction
from kfuzz.relay.recording import CONVERSATION, LINE_BYTES_MAX, Recording, file_name

DIRECTIONS: Final[tuple[Direction, Direction]] = ("request", "response")


def redact_recording(recorded: Recording, folder: Path, redactor: Redactor) -> None:
    """Write ``recorded`` to ``folder``, which does not exist: frames, and the hosts in the list of frames."""
    folder.mkdir(parents=True)
    # Where frames are now, and their sizes.
    moved: dict[tuple[int, str, int], tuple[int, int]] = {}
    for number in sorted({one.connection for one in recorded.events if one.connection}):
        data = [recorded.data(number, direction) for direction in DIRECTIONS]
        for direction, made in zip(DIRECTIONS, redactor.capture(*data), strict=True):
            with (folder / file_name(number, direction)).open("wb") as file:
                for at, frame in made:
                    moved[number, direction, at] = file.tell(), len(frame)
                    file.write(frame)
    with open_regular(recorded.folder / CONVERSATION) as source, (folder / CONVERSATION).open("w") as out:
        for line in source:
            if not line.endswith(b"\n"):
                break
            value = load_json(line, CONVERSATION, bytes_max=LINE_BYTES_MAX, remedy="record again")
            for place in value.get("brokers", (value,)):
                _hide_hosts(place, redactor)
            where = moved.get((value.get("connection", 0), value.get("event", ""), value.get("at", 0)))
            if where is not None:
                value["at"], value["size"] = where
            out.write(json.dumps(value) + "\n")


def _hide_hosts(value: dict[str, Any], redactor: Redactor) -> None:
    for name in ("broker", "place"):
        if name in value:
            host, colon, port = value[name].rpartition(":")
            value[name] = redactor.swap(host.strip("[]").encode()).decode() + colon + port
    # It may name a folder.
    if "why" in value:
        value["why"] = "redacted"
