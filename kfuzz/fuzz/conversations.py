"""Conversations of a whole client with a broker, through a proxy that changes some frames after version negotiation.

A conversation is made from a seed and its number. Each frame that is changed is a rule of its own, so that rules can be
left out. After them, the proxy passes everything on unchanged, and the client must come back or report an error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kfuzz import records
from kfuzz.broker_errors import ERROR_CODES
from kfuzz.conformance.judge.harm import HANGS, LOSES
from kfuzz.documents import load_json
from kfuzz.errors import DecodeError, UsageError
from kfuzz.files import read_small
from kfuzz.forms import ListOf, Object, Wrong, choice, integer
from kfuzz.fuzz.driver import Bounds, Driver, Ended
from kfuzz.mutate.dice import Dice
from kfuzz.relay.changes import number_paths
from kfuzz.relay.local import Applied, LocalCluster, LocalProxy, Seen, cluster, proxy
from kfuzz.relay.rule import RULE, SEED_MAX, Rule

__all__ = ["OWN", "Conversation", "Held", "Topic", "conversation", "hold", "load", "plain"]

# The topic's records come in so many fetches, with so many records in each.
STEPS: Final = 5
RECORDS_OF_STEP: Final = 3
RULES_MAX: Final = 4
# The first of them, in which client and broker agree on versions, is left alone in any case; the first Metadata in
# most conversations. Heartbeats depend on time.
UNTOUCHED: Final = ("ApiVersions", "Heartbeat")
FIRST_METADATA_SHARE: Final = 0.25
FETCHES_MAX: Final = 2 * STEPS
OTHERS_MAX: Final = 3
FETCH_SHARE: Final = 0.5
# How a frame is changed. Cut and lost frames are left out: a client waits for them longer than a campaign does.
MUTATE_SHARE: Final = 0.45
SET_SHARE: Final = 0.5
ERROR_SHARE: Final = 0.8
NEW_ERROR_SHARE: Final = 0.05
ERRORS: Final = tuple(name for name, code in ERROR_CODES.items() if code)
# Errors after which consumers do something of their own.
HANDLED_SHARE: Final = 0.5
HANDLED: Final = (
    "OFFSET_OUT_OF_RANGE",
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "REPLICA_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "KAFKA_STORAGE_ERROR",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "MEMBER_ID_REQUIRED",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "REBOOTSTRAP_REQUIRED",
)
NEW_ERRORS: Final = (-32768, -2, 1000, 32767)
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
POLL_MS: Final = 20
# On a busy machine time passes in which nobody works.
LOOKS_MIN: Final = 50
# A conversation takes at most so many times what a client may take to come back: rules of others may change all frames.
IDLES_MAX: Final = 10
# A client has read a topic if it has asked for the offset after the last record so often.
AT_END: Final = 3
# The records of a broker that is not kfuzz's own are those that the client hands out without a change, until nothing
# comes for this share of the time that it may take to come back.
UNKNOWN_END_SHARE: Final = 0.3
RECORDS_MAX: Final = 10_000
# A client that hands out each record so often does so for ever.
AGAIN_MAX: Final = 100
# Responses that decide where a client reads. After a change it may leave out records, as it should.
POSITIONS: Final = ("ListOffsets", "OffsetFetch", "OffsetForLeaderEpoch")
OUT_OF_RANGE: Final = ERROR_CODES["OFFSET_OUT_OF_RANGE"]
# Responses that decide which partitions a client reads. After a change it may have none.
ASSIGNMENTS: Final = ("JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat")
NOTHING_MORE: Final = "hands out nothing more"
FILE_BYTES_MAX: Final = 1 << 20
FILE: Final = Object(
    {
        "seed": integer(0, SEED_MAX),
        "number": integer(0, SEED_MAX),
        "isolation": choice(*ISOLATIONS),
        "rules": ListOf(RULE, "give at least one rule", least=1),
    },
    ("seed", "number", "isolation", "rules"),
)

# A record as it is judged: its offset, key and value, the last two in hex. Some libraries make no difference between
# null and empty; both are None here.
Handed = tuple[int, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The changes of one conversation. ``seed`` and ``number`` make its random decisions."""

    seed: int
    number: int
    isolation: str = ISOLATIONS[0]
    rules: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Its fields, for JSON; :func:`load` takes them."""
        return {"seed": self.seed, "number": self.number, "isolation": self.isolation, "rules": list(self.rules)}

    @property
    def lines(self) -> list[str]:
        """Its rules as ``kfuzz proxy --rule`` takes them."""
        return [str(Rule(one)) for one in self.rules]


@dataclass(slots=True)
class Held:
    """A conversation that was held: how it ended, what the client handed out, and the rules that were applied."""

    ended: Ended
    handed: list[Handed] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)
    # The APIs of all responses, and their versions.
    apis: dict[str, int] = field(default_factory=dict)


def load(path: Path) -> Conversation:
    """The conversation in a file that a campaign has written. ``UsageError``."""
    document = load_json(read_small(path, bytes_max=FILE_BYTES_MAX, follow=True), str(path))
    try:
        FILE.check(document)
    except Wrong as wrong:
        raise UsageError(wrong.sentence(str(path))) from None
    rules = tuple(Rule(one, f"{path}: rules[{at}]").to_json() for at, one in enumerate(document["rules"]))
    return Conversation(document["seed"], document["number"], document["isolation"], rules)


# --- what is changed --------------------------------------------------------------------------------------------------


def conversation(seed: int, number: int, apis: Mapping[str, int]) -> Conversation:
    """The conversation of this number, for a client that gets responses of these APIs, in these versions."""
    dice = Dice(seed, number)
    others = sorted(set(apis) - {"Fetch", *UNTOUCHED}) or ["Fetch"]
    chosen = ("Fetch" if dice.chance(FETCH_SHARE) else dice.pick(others) for _ in range(RULES_MAX))
    rules = (_rule(dice, api, apis[api]) for api in chosen)
    made = {(one["api"], one["nth"]): one for one in rules}
    kept = tuple(made.values())[: 1 + dice.below(RULES_MAX)]
    return Conversation(seed, number, dice.pick(ISOLATIONS), kept)


def _rule(dice: Dice, api: str, version: int) -> dict[str, Any]:
    nth = 1 + dice.below(FETCHES_MAX if api == "Fetch" else OTHERS_MAX)
    if api == "Metadata" and nth == 1 and not dice.chance(FIRST_METADATA_SHARE):
        nth = 2
    return {"api": api, "nth": nth} | _action(dice, api, version)


def _action(dice: Dice, api: str, version: int) -> dict[str, Any]:
    if dice.chance(MUTATE_SHARE):
        return {"mutate": True}
    if dice.chance(SET_SHARE) and (paths := number_paths(f"{api}Response", version)):
        path, bits = dice.pick(paths)
        top = 1 << (bits - 1)
        return {"set": {path: dice.pick((-1, 0, 1, 2, 3, dice.below(128), top - 1, -top))}}
    if not dice.chance(ERROR_SHARE):
        return dice.pick(({"disconnect": "before"}, {"disconnect": "after"}, {"duplicate": True}))
    known = HANDLED if dice.chance(HANDLED_SHARE) else ERRORS
    error = dice.pick(NEW_ERRORS if dice.chance(NEW_ERROR_SHARE) else known)
    try:
        Rule({"api": api, "error": error})
    except UsageError:
        # The API has no errors.
        return {"mutate": True}
    return {"error": error}


# --- the broker -------------------------------------------------------------------------------------------------------


def _steps() -> list[list[Handed]]:
    """The records of kfuzz's own topic, by the fetch that returns them; some keys and values are null or empty."""
    found: list[list[Handed]] = []
    for step in range(STEPS):
        offsets = range(step * RECORDS_OF_STEP, (step + 1) * RECORDS_OF_STEP)
        found.append([(at, None if at % 3 == 0 else f"{at:02x}", None if at % 7 == 3 else "76" * at) for at in offsets])
    return found


def _batch(step: Sequence[Handed]) -> str:
    made = [{"offset": str(at), "timestamp": "1700000000000", "key": k, "value": v} for at, k, v in step]
    return records.encode(records.from_json([{"base_offset": str(step[0][0]), "records": made}])).hex()


BATCHES: Final = [_batch(step) for step in _steps()]


@dataclass(frozen=True, slots=True)
class Topic:
    """The partition that a client reads: 0 of a topic of the broker at ``bootstrap``; "" is a broker of kfuzz's own.

    ``records``: what it has; None if that is not known yet.
    """

    name: str = "kfuzz"
    bootstrap: str = ""
    records: frozenset[Handed] | None = None

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return max(one[0] for one in self.records or ()) + 1


OWN: Final = Topic(records=frozenset((at, key or None, value or None) for step in _steps() for at, key, value in step))


# --- holding one ------------------------------------------------------------------------------------------------------


def plain(driver: Driver, bounds: Bounds, topic: Topic = OWN) -> tuple[dict[str, int], Topic]:
    """Hold a conversation without a change. The APIs whose responses the client gets with their versions, and the
    topic with its records.

    ``UsageError`` if it does not read the topic.
    """
    held = hold(driver, Conversation(1, 0), bounds, topic)
    handed = frozenset(held.handed)
    wanted = handed if topic.records is None else topic.records
    if held.ended != Ended() or handed != wanted or not handed:
        problem = f"it reads {len(handed & wanted)} of {len(wanted)} records" if wanted else "it finds no records"
        whose = f"of {topic.bootstrap}" if topic.bootstrap else "of a broker as it is"
        raise UsageError(
            f"the client does not read topic {topic.name} {whose}: {held.ended.error or problem}; correct its driver"
        )
    return held.apis, replace(topic, records=wanted)


def hold(driver: Driver, made: Conversation, bounds: Bounds, topic: Topic = OWN) -> Held:
    """Hold a conversation, with a fresh consumer and a proxy of its own, and a broker of its own if it is kfuzz's."""
    driver.start()
    held = Held(Ended())
    seed = int.from_bytes(Dice(made.seed, made.number).octets(7), "big")
    with contextlib.ExitStack() as stack:
        broker = None if topic.bootstrap else stack.enter_context(cluster())
        if broker is not None:
            broker.line(topic=topic.name, steps=BATCHES)
        address = topic.bootstrap if broker is None else broker.bootstrap
        between = stack.enter_context(proxy(address, rules=made.rules, seed=seed, tell=lambda sentence: None))
        held.ended = _Reading(driver, made, bounds, topic, broker, between).end(held.handed)
        if driver.runs and isinstance(closed := driver.ask(do="close"), Ended) and not held.ended.harm:
            held.ended = closed
    held.applied = between.applied()
    held.apis = {one.api: one.version for one in between.frames(direction="response")}
    if held.ended.error == NOTHING_MORE and any(map(_may_end, held.applied)):
        held.ended = Ended()
    if held.ended == Ended() and (wrong := _wrong_data(held, topic.records)):
        held.ended = Ended(LOSES.name, wrong)
    if held.ended.harm:
        driver.stop()
        if held.applied:
            held.ended = held.ended._replace(after=held.applied[-1].after.api)
    return held


@dataclass(frozen=True, slots=True)
class _Reading:
    """A consumer that reads the topic."""

    driver: Driver
    made: Conversation
    bounds: Bounds
    topic: Topic
    # None if it is not kfuzz's own.
    broker: LocalCluster | None
    between: LocalProxy

    def end(self, handed: list[Handed]) -> Ended:
        """Let it read to the end. Appends to ``handed`` what it hands out."""
        address, isolation = self.between.bootstrap, self.made.isolation
        said = self.driver.ask(do="open", address=address, topic=self.topic.name, isolation=isolation, offset="0")
        since_s = began_s = time.monotonic()
        looks, applied, is_last = 0, 0, False
        most = RECORDS_MAX if self.topic.records is None else AGAIN_MAX * len(self.topic.records)
        while not isinstance(said, Ended):
            said = self.driver.ask(do="poll", timeout_ms=POLL_MS)
            if isinstance(said, Ended):
                break
            new = [_handed(one) for one in said.get("records", ())]
            handed += new
            if said.get("end") or (is_last and not new):
                return Ended()
            if len(handed) > most:
                return self._too_many()
            looks += 1
            if new or applied != (applied := len(self.between.applied())):
                since_s, looks = time.monotonic(), 0
            idle_ms = (time.monotonic() - since_s) * 1000
            # Records that are on their way must come with the next poll.
            is_last = self._is_last(new, idle_ms)
            is_idle = idle_ms > self.bounds.recover_ms and looks > LOOKS_MIN
            if is_idle or (time.monotonic() - began_s) * 1000 > IDLES_MAX * self.bounds.recover_ms:
                return Ended(HANGS.name, NOTHING_MORE)
        return said

    def _is_last(self, new: Sequence[Handed], idle_ms: float) -> bool:
        """Whether the client has read everything."""
        if self.topic.records is None:
            return idle_ms > UNKNOWN_END_SHARE * self.bounds.recover_ms
        end = self.topic.end
        if any(one[0] == end - 1 for one in new):
            return True
        if self.broker is None:
            return False
        asked = self.broker.line(topic=self.topic.name)
        return int(asked["fetch_offset"]) >= end and asked["times"] >= AT_END

    def _too_many(self) -> Ended:
        if self.topic.records is None:
            raise UsageError(f"topic {self.topic.name} has more than {RECORDS_MAX} records; take a smaller one")
        return Ended(HANGS.name, "hands out the same records again and again")


def _handed(record: Any) -> Handed:
    try:
        return int(record["offset"]), record["key"] or None, record["value"] or None
    except (TypeError, LookupError, ValueError):
        raise UsageError("the driver hands out a record that is none; testees/README.md has its form") from None


# --- judging ----------------------------------------------------------------------------------------------------------


def _wrong_data(held: Held, wanted: frozenset[Handed] | None) -> str:
    """The fault of the records that a client has handed out; "" if there is none, or if nobody can say."""
    if wanted is None or any(map(_changes_records, held.applied)):
        return ""
    if strange := set(held.handed) - wanted:
        return f"hands out a record that was never there, at offset {min(strange)[0]}"
    missing = len(wanted) - len(set(held.handed))
    if not missing or any(map(_moves, held.applied)):
        return ""
    return f"hands out {len(wanted) - missing} of {len(wanted)} records, without an error"


def _changes_records(one: Applied) -> bool:
    """Whether a client may get other records, rather than fewer in one response."""
    if one.after.api != "Fetch":
        return False
    try:
        given = _records_of(one.before)
        try:
            return not all(any(was.startswith(now) for was in given) for now in _records_of(one.after))
        except DecodeError:
            return not all(was in one.after.body() for was in given)
    except (DecodeError, UsageError):
        return True


def _partitions(fetch: Seen) -> list[dict[str, Any]]:
    return [one for topic in fetch.values()["responses"] for one in topic["partitions"]]


def _records_of(fetch: Seen) -> list[bytes]:
    """The record batches of a response, by the partition, where there are some."""
    return [bytes(one["records"]) for one in _partitions(fetch) if one["records"]]


def _moves(one: Applied) -> bool:
    """Whether a client may continue at another offset."""
    if one.after.api != "Fetch":
        return one.after.api in POSITIONS
    try:
        partitions = _partitions(one.after)
    except (DecodeError, UsageError):
        return False
    return any(
        part["errorCode"] == OUT_OF_RANGE or part.get("divergingEpoch", {}).get("endOffset", -1) >= 0
        for part in partitions
    )


def _may_end(one: Applied) -> bool:
    """Whether a client may have nothing to read."""
    return one.after.api in ASSIGNMENTS and not any(one.after.errors)
