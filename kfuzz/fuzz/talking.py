"""Keeps what breaks a whole client: the cause of a campaign becomes a golden conversation for any client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kfuzz.conformance.judge.harm import LOSES
from kfuzz.errors import UsageError
from kfuzz.fuzz.conversations import BATCHES, OWN, READS, RECORDS_OF_SEND, SENDS, UNWELL, load
from kfuzz.fuzz.keeping import Kept
from kfuzz.text import foreign_text
from kfuzz.vectors.adding import files_with, place_of, vector_with
from kfuzz.vectors.kinds import CLIENT, CONVERSATION
from kfuzz.vectors.model import FORMAT
from kfuzz.vectors.recipes.making.conversation import Act, act, opens, values, writes

SUMMARY_BYTES_MAX: Final = 300
# The requirements that they are about, if a person names none.
CONTINUES: Final = "TALK-OFFSET-1"
SENDS_AGAIN: Final = "TALK-RETRY-1"
# Campaigns have brokers without sessions, and conversations have brokers with them.
NO_SESSIONS: Final = {"api": "Fetch", "versions": "7+", "set": {"sessionId": 0}}
DOCUMENT: Final[dict[str, Any]] = {
    "about": "What campaigns against whole clients have found.",
    "flags": {},
    "format": FORMAT,
    "kind": CONVERSATION,
    "vectors": [],
}


def kept_conversation(
    file: Path, id: str, root: Path, *, summary: str | None = None, requirements: Sequence[str] = ()
) -> Kept:
    """The conversation ``id`` of the suite ``root`` that the file of a cause becomes. Nothing is written yet.

    A right client reads to the end or sends everything, or it reports an error. ``UsageError`` for what cannot be kept
    so.
    """
    made, broke = load(file)
    if not broke:
        raise UsageError(f"{file} does not say how a client broke; run the campaign again")
    if any("mutate" in one for one in made.rules):
        raise UsageError(
            f"{file} mutates a response in which a broker names addresses, so it is another one each time; "
            "hold it again with `kfuzz fuzz --reproduce`"
        )
    if not id.startswith(f"{CONVERSATION}/"):
        raise UsageError(f"{id!r} is not the id of a conversation; begin it with {CONVERSATION}/")
    place = place_of(root, id, DOCUMENT)
    if place.kind != CONVERSATION:
        raise UsageError(f"{place.path.name} holds vectors of the kind {place.kind}; name an id of another file")
    is_lost = broke["harm"] == LOSES.name
    if made.kind == READS:
        acts = _reading(made.isolation, broke["reads_all"])
        if broke["error"].startswith(UNWELL):
            acts += _reading(made.isolation, True)
    else:
        acts = [_sending(made.kind, must_send=is_lost)]
    expectation: dict[str, Any] = {"verdict": "valid", "acts": [gives for _, gives in acts]}
    if made.kind != READS and is_lost:
        expectation |= {"written": values(SENDS * RECORDS_OF_SEND)} | (
            {"repeats": True} if made.kind == "sends" else {}
        )
    item = {
        "id": id,
        "summary": summary or foreign_text("; ".join(made.lines), bytes_max=SUMMARY_BYTES_MAX),
        "level": "required",
        "requirements": list(requirements) or [CONTINUES if made.kind == READS else SENDS_AGAIN],
        "flags": [],
        "canonical": False,
        "layout": [],
        "application": [done for done, _ in acts],
        "rules": [*([NO_SESSIONS] if made.kind == READS else []), *map(dict, made.rules)],
        "expect": {CLIENT: expectation},
        "kafka": {},
    }
    if made.kind == READS:
        item["given"] = [one.hex() for one in BATCHES]
    vector_with(place, item)
    return Kept(files_with(place, item), item)


def _reading(isolation: str, reads_all: bool) -> list[Act]:
    """A consumer that reads to the end. It may also report an error."""
    offsets = [str(at) for at in range(OWN.end)]
    anything = {"outcome": "any"}
    read = act("read", count=OWN.end, at_end=True, gives=anything | ({"offsets": offsets} if reads_all else {}))
    open_one, _ = opens(isolation=isolation)
    return [(open_one, anything), read, act("close", gives=anything)]


def _sending(kind: str, must_send: bool) -> Act:
    how: dict[str, Any] = {"idempotent": True} if kind != "sends" else {}
    how |= {"transactional_id": "kfuzz"} if kind == "sends-transactional" else {}
    do, gives = writes(SENDS * RECORDS_OF_SEND, sends=[RECORDS_OF_SEND] * SENDS, **how)
    return do, gives if must_send else {"outcome": "any"}
