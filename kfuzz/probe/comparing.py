"""Compares two brokers' reactions to the same request. Ids, epochs, offsets, times and addresses may differ."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from kfuzz.errors import MessageError
from kfuzz.probe.reactions import Reaction, api_asked
from kfuzz.relay.identities import Identities
from kfuzz.text import foreign_text

NUMBERS: Final = re.compile(r"\[\d+\]")
# Words for people, and what a disk and its directories are like.
OF_NO_MATTER: Final = (
    *("errorMessage", "statusDetail", "logDir", "totalBytes", "usableBytes", "size", "partitionSize"),
    *("logEndOffset", "lastFetchTimestamp", "lastCaughtUpTimestamp"),
)
INTERNAL: Final = "__"
SHOWN_BYTES_MAX: Final = 80


class Own(NamedTuple):
    """The names of a conversation: they begin with ``prefix``, or are ``topic``. ``token`` is in all of the probe's."""

    token: str
    prefix: str
    topic: str

    def is_foreign(self, text: str) -> bool:
        """Whether this is the name of an internal topic, or of something from another conversation."""
        if text.startswith(INTERNAL):
            return True
        return self.token in text and text != self.topic and not text.startswith(f"{self.prefix}-")


def difference(sent: bytes, here: Reaction, there: Reaction, own: Own) -> tuple[str, str] | None:
    """How the broker's reaction to this frame is not that of the reference: in short, and with values.

    None if both are the same, or if one of them may still answer.
    """
    if "held" in (here.outcome, there.outcome):
        return None
    if here.outcome != there.outcome or here.errors != there.errors:
        mine, theirs = _told(here), _told(there)
        return f"{mine}, not {theirs}", f"{mine}; the reference: {theirs}"
    if here.outcome != "answered" or here.answer == there.answer:
        return None
    old, new = (_without(_values(sent, one.answer), own) for one in (there, here))
    for path, theirs, mine in Identities(masks_times=True).differences(old, new, {}):
        about = NUMBERS.sub("", path)
        if about.rpartition(".")[2] not in OF_NO_MATTER:
            return about, f"{path} is {_shown(mine)}; the reference: {_shown(theirs)}"
    return None


def _told(reaction: Reaction) -> str:
    return ", ".join(reaction.errors or ("NONE",)) if reaction.outcome == "answered" else reaction.outcome


def _values(sent: bytes, answer: bytes) -> Any:
    """The values of an answer; None if it cannot be read."""
    api = api_asked(sent)
    at = -1 if api is None else api.response.header.check(answer)[0]
    if api is None or at < 0:
        return None
    try:
        return api.response.decode(memoryview(answer)[at:])
    except MessageError:
        return None


def _without(values: Any, own: Own) -> Any:
    """Values without the list elements about something that the conversation does not know."""
    if isinstance(values, dict):
        return {name: _without(value, own) for name, value in values.items()}
    if not isinstance(values, list):
        return values
    return [_without(one, own) for one in values if not any(map(own.is_foreign, _texts(one)))]


def _texts(element: Any) -> list[str]:
    found = element.values() if isinstance(element, dict) else [element]
    return [one for one in found if isinstance(one, str)]


def _shown(value: Any) -> str:
    return foreign_text(repr(value), bytes_max=SHOWN_BYTES_MAX)
