"""Conversations of a whole client with a broker, through a proxy that changes some frames after version negotiation.

A conversation is made from a seed and its number: a consumer reads a topic, or a producer sends to one. Each frame that
is changed is a rule of its own, so that rules can be left out. After them, the proxy passes everything on unchanged,
and the client must come back or report an error. After an error, a fresh consumer must read the topic.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kfuzz import records
from kfuzz.broker_errors import ERROR_CODES, ERROR_NAMES
from kfuzz.client.protocol import FENCED, LOST, RETRIABLE
from kfuzz.conformance.judge.conversing import values_in_log
from kfuzz.conformance.judge.harm import HANGS, LOSES, PANICS, RANK
from kfuzz.documents import load_json
from kfuzz.errors import DecodeError, UsageError
from kfuzz.files import read_small
from kfuzz.forms import BOOLEAN, TEXT, ListOf, Object, Wrong, choice, integer
from kfuzz.fuzz.driver import Bounds, Driver, Ended, ended_as
from kfuzz.mutate.dice import Dice
from kfuzz.relay.changes import number_paths
from kfuzz.relay.local import Applied, NotingProxy, Seen
from kfuzz.relay.rule import RULE, SEED_MAX, Rule
from kfuzz.serve.topics import GivenPartition, Partition
from kfuzz.serve.written import Arrived, WrittenPartition

# The topic's records come in so many fetches, with so many records in each.
STEPS: Final = 5
RECORDS_OF_STEP: Final = 3
RULES_MAX: Final = 4
# The first of them, in which client and broker agree on versions, is left alone in any case; the first Metadata in
# most conversations. Heartbeats depend on time.
UNTOUCHED: Final = ("ApiVersions", "Heartbeat")
FIRST_METADATA_SHARE: Final = 0.25
MAIN_MAX: Final = 2 * STEPS
OTHERS_MAX: Final = 3
MAIN_SHARE: Final = 0.5
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
# The same of producers.
SENT_AGAIN: Final = RETRIABLE - {LOST}
HANDLED_BY_PRODUCERS: Final = (
    "CORRUPT_MESSAGE",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DUPLICATE_SEQUENCE_NUMBER",
    *(ERROR_NAMES[code] for code in sorted(SENT_AGAIN | FENCED)),
)
NEW_ERRORS: Final = (-32768, -2, 1000, 32767)
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
# A conversation is about reading, or a producer of this kind, with its word in a driver's handshake.
READS: Final = "reads"
WRITES: Final = {"sends": "sends", "sends-idempotent": "idempotent", "sends-transactional": "transactions"}
WRITES_SHARE: Final = 0.25
# The API that a conversation is about.
MAIN: Final = {READS: "Fetch"} | dict.fromkeys(WRITES, "Produce")
# The sends of a producer, one after the other, each with so many records.
SENDS: Final = 6
RECORDS_OF_SEND: Final = 2
WRITTEN: Final = "written"
# A poll ends with the first records. The last one of a topic waits for records that must not come.
POLL_MS: Final = 100
LAST_POLL_MS: Final = 20
# On a busy machine time passes in which nobody works.
LOOKS_MIN: Final = 20
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
UNWELL: Final = "another consumer of the process does not read a topic after"
FILE_BYTES_MAX: Final = 1 << 20
FILE: Final = Object(
    {
        "seed": integer(0, SEED_MAX),
        "number": integer(0, SEED_MAX),
        "isolation": choice(*ISOLATIONS),
        "kind": choice(READS, *WRITES),
        "rules": ListOf(RULE, "give at least one rule", least=1),
        "broke": Object({"harm": choice(*RANK), "error": TEXT, "reads_all": BOOLEAN}, ("harm", "error", "reads_all")),
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
    kind: str = READS

    def to_json(self) -> dict[str, Any]:
        """Its fields, for JSON; :func:`load` takes them."""
        return asdict(self) | {"rules": list(self.rules)}

    @property
    def weight(self) -> tuple[int, int]:
        """The number of its rules, and of the characters in them: the fewest are best."""
        return len(self.rules), sum(map(len, self.lines))

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


def load(path: Path) -> tuple[Conversation, dict[str, Any]]:
    """The conversation in a file that a campaign has written, and how it broke a client: the harm, the error, and
    whether a client must read all records after these changes. ``UsageError``.
    """
    document = load_json(read_small(path, bytes_max=FILE_BYTES_MAX, follow=True), str(path))
    try:
        FILE.check(document)
    except Wrong as wrong:
        raise UsageError(wrong.sentence(str(path))) from None
    rules = tuple(Rule(one, f"{path}: rules[{at}]").to_json() for at, one in enumerate(document["rules"]))
    broke = document.pop("broke", {})
    return Conversation(**document | {"rules": rules}), broke


# --- what is changed --------------------------------------------------------------------------------------------------


def conversation(seed: int, number: int, apis: Mapping[str, Mapping[str, int]]) -> Conversation:
    """The conversation of this number. ``apis``: those whose responses the client gets, and their versions, by kind."""
    dice = Dice(seed, number)
    kinds = sorted(apis.keys() - {READS})
    kind = dice.pick(kinds) if kinds and dice.chance(WRITES_SHARE) else READS
    versions, main = apis[kind], MAIN[kind]
    others = sorted(set(versions) - {main, *UNTOUCHED}) or [main]
    chosen = (main if dice.chance(MAIN_SHARE) else dice.pick(others) for _ in range(RULES_MAX))
    rules = (_rule(dice, api, versions[api], kind) for api in chosen)
    made = {(one["api"], one["nth"]): one for one in rules}
    kept = tuple(made.values())[: 1 + dice.below(RULES_MAX)]
    return Conversation(seed, number, dice.pick(ISOLATIONS), kept, kind)


def _rule(dice: Dice, api: str, version: int, kind: str) -> dict[str, Any]:
    nth = 1 + dice.below(MAIN_MAX if api == MAIN[kind] else OTHERS_MAX)
    if api == "Metadata" and nth == 1 and not dice.chance(FIRST_METADATA_SHARE):
        nth = 2
    return {"api": api, "nth": nth} | _action(dice, api, version, HANDLED if kind == READS else HANDLED_BY_PRODUCERS)


def _action(dice: Dice, api: str, version: int, handled: Sequence[str]) -> dict[str, Any]:
    if dice.chance(MUTATE_SHARE):
        return {"mutate": True}
    if dice.chance(SET_SHARE) and (paths := number_paths(f"{api}Response", version)):
        path, bits = dice.pick(paths)
        top = 1 << (bits - 1)
        return {"set": {path: dice.pick((-1, 0, 1, 2, 3, dice.below(128), top - 1, -top))}}
    if not dice.chance(ERROR_SHARE):
        return dice.pick(({"disconnect": "before"}, {"disconnect": "after"}, {"duplicate": True}))
    known = handled if dice.chance(HANDLED_SHARE) else ERRORS
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


def _batch(step: Sequence[Handed]) -> bytes:
    made = [{"offset": str(at), "timestamp": "1700000000000", "key": k, "value": v} for at, k, v in step]
    return records.encode(records.from_json([{"base_offset": str(step[0][0]), "records": made}]))


BATCHES: Final = [_batch(step) for step in _steps()]
# The value of each record that a producer sends is its number.
VALUES: Final = [f"{number:02x}" for number in range(SENDS * RECORDS_OF_SEND)]
GIVEN: Final[list[dict[str, Any]]] = [
    {"timestamp": "1700000000000", "key": None, "value": value, "headers": []} for value in VALUES
]


@dataclass(frozen=True, slots=True)
class Topic:
    """The partition that a client reads: 0 of a topic of the broker at ``bootstrap``; "" is a broker of kfuzz's own.

    ``records``: what it has; None if that is not known yet. Of kfuzz's own, it has the first ``steps``.
    """

    name: str = "kfuzz"
    bootstrap: str = ""
    records: frozenset[Handed] | None = None
    steps: int = STEPS

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return max(one[0] for one in self.records or ()) + 1


def _own(steps: int) -> Topic:
    known = ((at, key or None, value or None) for step in _steps()[:steps] for at, key, value in step)
    return Topic(records=frozenset(known), steps=steps)


OWN: Final = _own(STEPS)
# A consumer that reads this is well.
SHORT: Final = _own(1)


# --- holding one ------------------------------------------------------------------------------------------------------


def writes(driver: Driver, bounds: Bounds, topic: Topic) -> dict[str, dict[str, int]]:
    """Let the client send, if its driver can do that. By the kind of its producer, the APIs as in :func:`plain`.

    ``UsageError`` if that fails.
    """
    found: dict[str, dict[str, int]] = {}
    can_send = {"sends", *driver.produces} if not topic.bootstrap and "sends" in driver.produces else set()
    for kind in (kind for kind, word in WRITES.items() if word in can_send):
        held = _held(driver, Conversation(1, 0, kind=kind), bounds, topic)
        if held.ended != Ended():
            raise UsageError(f"the client does not send to a broker as it is: {held.ended.error}; correct its driver")
        found[kind] = held.apis
    return found


def plain(driver: Driver, bounds: Bounds, topic: Topic = OWN) -> tuple[dict[str, int], Topic]:
    """Hold a conversation without a change. The APIs whose responses the client gets with their versions, and the
    topic with its records.

    ``UsageError`` if it does not read the topic.
    """
    held = _held(driver, Conversation(1, 0), bounds, topic)
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
    """Hold a conversation. If it ends with an error, a fresh consumer of the same process must read the topic."""
    held = _held(driver, made, bounds, topic)
    ended = held.ended
    if ended.harm not in ("", PANICS.name):
        driver.stop()
    elif ended.error and driver.runs:
        try:
            plain(driver, bounds, topic if topic.bootstrap else SHORT)
        except UsageError:
            held.ended = ended if ended.harm else Ended(HANGS.name, f"{UNWELL} {ended.error}")
            driver.stop()
    if held.ended.harm and held.applied:
        held.ended = held.ended._replace(after=held.applied[-1].after.api)
    return held


def _held(driver: Driver, made: Conversation, bounds: Bounds, topic: Topic) -> Held:
    """Hold a conversation, with a fresh client and a proxy of its own, and a broker of its own if it is kfuzz's."""
    driver.start()
    driver.bounds = bounds
    held = Held(Ended())
    seed = int.from_bytes(Dice(made.seed, made.number).octets(7), "big")
    own, written = GivenPartition(BATCHES[: topic.steps], None, is_exact=False), WrittenPartition()
    with driver.stage.between(topic.bootstrap, {topic.name: own, WRITTEN: written}, made.rules, seed) as between:
        if made.kind != READS:
            held.ended = _sent(driver, made, written, between)
        else:
            reading = _Reading(driver, made, bounds, topic, None if topic.bootstrap else own, between)
            held.ended = reading.end(held.handed)
            if driver.runs and isinstance(closed := driver.ask(do="close"), Ended) and not held.ended.harm:
                held.ended = closed
        held.applied = list(between.applied)
        sums = between.watch.by_api.items()
        # Of an API that is asked in several versions, the one that came last.
        held.apis = {api: [*one.versions][-1] for api, one in sums if one.responses and one.versions}
    if held.ended.error == NOTHING_MORE and any(map(_may_end, held.applied)):
        held.ended = Ended()
    if made.kind == READS and held.ended == Ended() and (wrong := _wrong_data(held, topic.records)):
        held.ended = Ended(LOSES.name, wrong)
    return held


def _sent(driver: Driver, made: Conversation, written: WrittenPartition, between: NotingProxy) -> Ended:
    """Let a producer send everything, and judge what the broker holds."""
    said = driver.ask(
        do="produce",
        address=between.bootstrap,
        topic=WRITTEN,
        records=GIVEN,
        compression="none",
        idempotent=made.kind != "sends",
        transactional_id="kfuzz" if made.kind == "sends-transactional" else None,
        sends=[RECORDS_OF_SEND] * SENDS,
    )
    if isinstance(said, Ended):
        return said
    try:
        ends = [ended_as(one) if "outcome" in one else Ended() for one in said["sends"]]
    except (TypeError, LookupError):
        ends = []
    if len(ends) != SENDS:
        raise UsageError("the driver does not say how its sends ended; testees/README.md has the form")
    taken = [number for number, one in enumerate(GIVEN) if ends[number // RECORDS_OF_SEND] == Ended()]
    if wrong := _wrong_log(made, taken, written.produced, between.applied):
        return Ended(LOSES.name, wrong)
    return max(ends, key=lambda one: (bool(one.harm), bool(one.error)), default=Ended())


@dataclass(frozen=True, slots=True)
class _Reading:
    driver: Driver
    made: Conversation
    bounds: Bounds
    topic: Topic
    # None if the broker is not kfuzz's own.
    partition: Partition | None
    between: NotingProxy

    def end(self, handed: list[Handed]) -> Ended:
        """Let it read to the end. Appends to ``handed`` what it hands out."""
        address, isolation = self.between.bootstrap, self.made.isolation
        where = {"address": address, "topic": self.topic.name, "isolation": isolation, "offset": "0"}
        said = self.driver.ask(do="open", request_timeout_ms=self.bounds.request_timeout_ms, **where)
        since_s = began_s = time.monotonic()
        looks, applied, is_last = 0, 0, False
        most = RECORDS_MAX if self.topic.records is None else AGAIN_MAX * len(self.topic.records)
        while not isinstance(said, Ended):
            said = self.driver.ask(do="poll", timeout_ms=LAST_POLL_MS if is_last else POLL_MS)
            if isinstance(said, Ended):
                break
            new = _handed(said)
            handed += new
            # A changed high watermark may be lower, so that the end is not yet the last one.
            is_end = said.get("end") and (self.topic.records is None or self.topic.records <= set(handed))
            if is_end or (is_last and not new):
                return Ended()
            if len(handed) > most:
                return self._too_many()
            looks += 1
            if new or applied != (applied := len(self.between.applied)):
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
        if self.partition is None or new:
            return False
        return self.partition.fetch_offset >= end and self.partition.times >= AT_END

    def _too_many(self) -> Ended:
        if self.topic.records is None:
            raise UsageError(f"topic {self.topic.name} has more than {RECORDS_MAX} records; take a smaller one")
        return Ended(HANGS.name, "hands out the same records again and again")


def _handed(said: Mapping[str, Any]) -> list[Handed]:
    """The records in the answer to a poll."""
    try:
        return [(int(one["offset"]), one["key"] or None, one["value"] or None) for one in said.get("records", ())]
    except (TypeError, LookupError, ValueError):
        raise UsageError("the driver hands out a record that is none; testees/README.md has its form") from None


# --- judging ----------------------------------------------------------------------------------------------------------


def reads_all(held: Held) -> bool:
    """Whether the client must hand out all records, unless it reports an error."""
    return not any(_changes_records(one) or _moves(one) for one in held.applied)


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


def _wrong_log(
    made: Conversation, taken: Sequence[int], produced: Sequence[Arrived], applied: Sequence[Applied]
) -> str:
    """The fault of a producer that reports these numbers of records as sent; "" if there is none, or nobody can say."""
    log = [value.hex() for value in values_in_log((one.base_offset, one.data) for one in produced if not one.error)]
    if strange := set(log).difference(VALUES):
        return f"sends a record that it was not given, with the value {min(strange)}"
    first = [log.index(VALUES[number]) for number in taken if VALUES[number] in log]
    answers = [one for one in applied if one.after.api == "Produce"]
    # A producer gives the sequence of a batch that is refused for good to the next one.
    if len(first) < len(taken) and not any(one.before.errors or set(one.after.errors) - SENT_AGAIN for one in answers):
        return f"reports {len(taken)} records as sent, and the broker has {len(first)} of them"
    if sorted(first) != first:
        return "sends records in another order"
    is_safe = all(map(_is_safe, answers)) and all(one.after.api != "InitProducerId" for one in applied)
    if made.kind != "sends" and len(log) > len(set(log)) and is_safe:
        return "sends a record twice, although it is idempotent"
    return ""


def _is_safe(one: Applied) -> bool:
    """Whether an idempotent producer must not send a batch as another one after this response to Produce."""
    try:
        is_same = one.after.body() == one.before.body()
    except (DecodeError, UsageError):
        return False
    return is_same or bool(one.after.errors and SENT_AGAIN.issuperset(one.after.errors))


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
    """Whether a client may continue at another offset, or with other partitions."""
    if one.after.api != "Fetch":
        return one.after.api in POSITIONS or _may_end(one)
    try:
        partitions = _partitions(one.after)
    except (DecodeError, UsageError):
        return False
    return any(
        part["errorCode"] == OUT_OF_RANGE or max(part.get("divergingEpoch", {}).values(), default=-1) >= 0
        for part in partitions
    )


def _may_end(one: Applied) -> bool:
    """Whether a client may have nothing to read."""
    return one.after.api in ASSIGNMENTS and not any(one.after.errors)
