"""Judges a conversation: what the application got of each act, and the requests that followed the first trouble."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kfuzz import records
from kfuzz.conformance.judge.differing import Wrong, amount, because
from kfuzz.conformance.judge.harm import HARM_OF
from kfuzz.conformance.judge.producing import lacks_producer
from kfuzz.conformance.protocol.lines import CONVERSES, PRODUCE, STALLED, Answer, Handshake
from kfuzz.errors import DecodeError, KfuzzError
from kfuzz.relay.frames import Frame, Pairing
from kfuzz.relay.paths import slots, steps_of
from kfuzz.vectors.kinds import AT_ONCE, CLIENT
from kfuzz.vectors.model import Vector

Json = Mapping[str, Any]

# How a value of a request is compared with that of the request that met the trouble.
SAME: Final = "same"
NEXT: Final = "next"
# A client asks for these when it is time for it, and may meanwhile ask the same broker again.
LOOKUPS: Final = ("Metadata", "FindCoordinator")
# The language of Kafka's own client. Other libraries have other names for errors.
JAVA: Final = "java"
# The abilities that an act or a field of it needs, besides a consumer of one partition.
NEEDS: Final = {
    "call": "admin",
    "commit": "group",
    "reset": "reset",
    "abort": "abort",
    "request_timeout_ms": "timeout",
}
# Those of members, by the protocol of the group.
GROUPS: Final = {"consumer": "consumer-group", "share": "share"}
# A producer without settings.
PLAIN: Final = {"idempotent": False, "compression": "none"}


class Asked(NamedTuple):
    """A request of a conversation: its frame, when it was sent, and whether a rule met it or its answer."""

    frame: Frame
    ms: int
    met_trouble: bool

    @property
    def api(self) -> str:
        return self.frame.exchange.name

    def value(self, path: str) -> Any:
        """The value that the path leads to; None if there is none."""
        if not self.frame.is_read:
            self.frame.check()
        try:
            values = self.frame.values()
        except DecodeError:
            return None
        return next((place[key] for place, key in slots(values, steps_of(path))), None)


def asked_of(frames: Sequence[Json], troubles: Sequence[Sequence[int]] = ()) -> Iterator[Asked]:
    """The requests among a conversation's frames, in their order."""
    pairings: dict[int, Pairing] = {}
    met = {tuple(one) for one in troubles}
    for one in frames:
        data = bytes.fromhex(one["hex"])
        pairing = pairings.setdefault(one["connection"], Pairing(one["connection"]))
        if one["from"] != "client" or (exchange := pairing.exchange("request", data)) is None:
            continue
        has_trouble = "trouble" in one or (exchange.connection, exchange.number) in met
        yield Asked(Frame(exchange, "request", data), one.get("ms", 0), has_trouble)


def lacks_ability(vector: Vector, handshake: Handshake) -> str | None:
    """Why a client cannot take part, worded to follow its name; None if it can."""
    needs = set()
    for act in vector.options["application"]:
        needs |= {name for key, name in NEEDS.items() if act.get(key) or act["do"] == key}
        if act["do"] == "open" and "group" in act:
            needs.add(GROUPS.get(act.get("protocol"), "group"))
        if act["do"] == "produce":
            if PRODUCE not in handshake.operations:
                return f"does not offer {PRODUCE}"
            if why := lacks_producer(handshake, PLAIN | act):
                return why
    missing = next((name for name in CONVERSES if name in needs - handshake.converses), None)
    return missing and f"does not offer {missing}"


def wrong_conversation(vector: Vector, handshake: Handshake, answer: Answer) -> Wrong | None:
    """The first fault of the answer; None if everything is as it must be."""
    if answer.outcome == "rejected":
        return Wrong("refused the conversation" + because(answer.error), "refuses")
    expectation = vector.expect[CLIENT]
    acts = answer.acts or []
    # A client that never sends what a rule is about waits for records, and must not get an error.
    is_untroubled = bool(vector.options.get("rules")) and not answer.troubles
    for number, (act, want, have) in enumerate(
        zip(vector.options["application"], expectation["acts"], acts, strict=False), 1
    ):
        if act["do"] == "open" and have["outcome"] == "rejected" == expectation["acts"][number]["outcome"]:
            # The error that the reading must give comes here already.
            break
        if wrong := _wrong_act(want, have, handshake, is_untroubled):
            return wrong._replace(text=f"act {number} ({act['do']}) {wrong.text}")
    else:
        if len(acts) != len(expectation["acts"]):
            return Wrong(f"did {amount(acts, expectation['acts'], 'acts')}", "loses")
    wrong_text = _wrong_log(vector, answer)
    if wrong_text:
        return Wrong(wrong_text, "loses")
    wrong_text = _wrong_requests(expectation.get("follows", ()), answer)
    return Wrong(wrong_text, "differs") if wrong_text else None


def _wrong_act(want: Json, have: Json, handshake: Handshake, is_untroubled: bool) -> Wrong | None:
    outcome = have["outcome"]
    if outcome == STALLED and want["outcome"] == "rejected" and is_untroubled:
        return Wrong("waits, but must give its user an error", "differs")
    if outcome not in ("accepted", "rejected"):
        found = "stall" if outcome == STALLED else outcome
        return Wrong(outcome + because(have.get("error", "")), HARM_OF[found], found)
    if want["outcome"] == "accepted" and outcome == "rejected":
        return Wrong("failed" + because(have.get("error", "")), "refuses")
    if want["outcome"] == "rejected" and outcome == "accepted":
        return Wrong("succeeded, but must give its user an error", "loses")
    if outcome == "rejected" and handshake.language == JAVA and want.get("error", "") not in have.get("error", ""):
        return Wrong(f"failed with {have.get('error')}; expected {want['error']}", "differs")
    got = [one["offset"] for one in have["records"]] if "records" in have else have.get("offsets")
    if "offsets" in want and got is not None and (outcome == "accepted" or "records" in have):
        known = [(one, wanted) for one, wanted in zip(got, want["offsets"], strict=False) if one is not None]
        is_short = outcome == "rejected" and len(got) < len(want["offsets"])
        if "records" in have and len(got) != len(want["offsets"]) and not is_short:
            return Wrong(f"handed out {amount(got, want['offsets'], 'records')}", "loses")
        for one, wanted in known:
            if one != wanted:
                return Wrong(f"has the record with offset {one} where that with {wanted} must be", "loses")
    if "sends" in want and "sends" in have and want["sends"] != have["sends"]:
        return Wrong(f"has the sends {', '.join(have['sends'])}; expected {', '.join(want['sends'])}", "loses")
    return None


def values_in_log(accepted: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """The values of a log's records, from the base offsets and batches that its broker has accepted.

    A batch that came again has its first offset, and the broker keeps the first. ``KfuzzError`` for bad batches.
    """
    batches: dict[int, bytes] = {}
    for base_offset, data in accepted:
        batches.setdefault(base_offset, data)
    stored = (batch for _, data in sorted(batches.items()) for batch in records.decode(data))
    return [bytes(one.value or b"") for batch in stored for one in batch.records]


def _wrong_log(vector: Vector, answer: Answer) -> str | None:
    """Whether the log has what was to be written: once, and in this order if nothing is sent at once."""
    expectation = vector.expect[CLIENT]
    if "written" not in expectation or answer.produced is None:
        return None
    wanted = list(expectation["written"])
    numbered = enumerate(one for one in answer.produced if not one.error)
    accepted = ((at if one.base_offset is None else one.base_offset, one.data) for at, one in numbered)
    try:
        have = [value.decode("utf-8", "replace") for value in values_in_log(accepted)]
    except KfuzzError as error:
        return f"wrote bytes that cannot be read: {error}"
    if expectation.get("repeats"):
        have = list(dict.fromkeys(have))
    if any(act.get(AT_ONCE) for act in vector.options["application"]):
        have.sort()
    if have == wanted:
        return None
    return f"the log has {', '.join(have) or 'nothing'}; expected {', '.join(wanted) or 'nothing'}"


def _wrong_requests(follows: Sequence[Json], answer: Answer) -> str | None:
    """Whether the requests after the first trouble are as they must be."""
    asked = list(asked_of(answer.frames or (), answer.troubles or ()))
    at = next((number for number, one in enumerate(asked) if one.met_trouble), -1)
    trouble = asked[at] if at >= 0 else None
    after = asked[at + 1 :]
    # The next place of a lookup, and that of any other request.
    places = {True: 0, False: 0}
    for want in follows:
        found = [number for number, one in enumerate(after) if _fits(one, want, trouble)]
        said = _said(want)
        if "at_most" in want:
            if len(found) > want["at_most"]:
                return f"sent {len(found)} times {said}; at most {want['at_most']} may follow"
            continue
        is_lookup = want["api"] in LOOKUPS
        following = next((number for number in found if number >= places[is_lookup]), None)
        if following is None:
            return f"never sent {said}" if not found else f"sent {said} too early"
        waited_ms = after[following].ms - (trouble.ms if trouble else 0)
        if waited_ms < want.get("after_ms", 0):
            return f"sent {said} after {waited_ms} ms; it must wait for {want['after_ms']} ms"
        places[is_lookup] = following + 1
    return None


def _fits(one: Asked, want: Json, trouble: Asked | None) -> bool:
    if one.api != want["api"]:
        return False
    for path, wanted in want.get("where", {}).items():
        value = one.value(path)
        if wanted in (SAME, NEXT):
            if trouble is None:
                return False
            wanted = trouble.value(path)
            if want["where"][path] == NEXT:
                wanted = wanted + 1 if isinstance(wanted, int) else wanted
        if value is None and one.api == "Fetch" and (one.value("sessionEpoch") or -1) > 0:
            # In a session, a partition that has not changed is not named again.
            continue
        if value not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def _said(want: Json) -> str:
    where = " and ".join(f"{path} = {value}" for path, value in want.get("where", {}).items())
    return f"{want['api']} with {where}" if where else str(want["api"])
