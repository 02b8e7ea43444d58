"""Topics from another program: a line of JSON for each, and a line as the answer."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from typing import Any

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.serve.topics import GivenTopic, Topics
from kfuzz.text import foreign_text

__all__ = ["feed"]

NAMES = {"topic", "hex", "next_offset"}


async def feed(topics: Topics, lines: AsyncIterable[bytes], say: Callable[[dict[str, Any]], None]) -> None:
    """Change ``topics`` as each line says, and ``say`` what was done. Returns when there are no more lines.

    A bad line changes nothing; its answer has ``error``.
    """
    async for line in lines:
        if line.strip():
            try:
                answer = done(topics, line)
            except UsageError as error:
                answer = {"error": str(error)}
            say(answer)


def done(topics: Topics, line: bytes) -> dict[str, Any]:
    """Do what one line says, and return its answer. ``UsageError`` if it says nothing that can be done."""
    try:
        asked = load_json(line, "the line")
        name = asked["topic"]
        unknown = set(asked) - NAMES
    except (UsageError, LookupError, TypeError):
        raise UsageError('a line must be an object such as {"topic": "t1", "hex": "00"}') from None
    if not isinstance(name, str) or unknown:
        odd = foreign_text(repr(sorted(unknown) or name))
        raise UsageError(f"a line has a name as topic and may have hex and next_offset, not {odd}")
    if "hex" not in asked:
        topic = topics.by_name.get(name)
        if topic is None:
            raise UsageError(f"there is no topic {foreign_text(repr(name))}")
        return {"topic": name, "fetch_offset": str(topic.fetch_offset), "times": topic.times}
    if asked["hex"] is None:
        topics.remove(name)
        return {"topic": name}
    try:
        data = bytes.fromhex(asked["hex"])
        next_offset = None if asked.get("next_offset") is None else int(asked["next_offset"])
    except (ValueError, TypeError, OverflowError):
        raise UsageError(
            f"topic {foreign_text(repr(name))}: hex must be hexadecimal digits, and next_offset a whole number"
        ) from None
    given = GivenTopic(name, data, next_offset)
    topics.put(given)
    return {"topic": name, "next_offset": str(given.end)}
