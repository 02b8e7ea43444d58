"""Asks a broker every API: hostile requests in conversations, and the health conversation in between."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from kfuzz.client.address import Security
from kfuzz.client.link import CLOSED, GARBLED, SILENT, Link
from kfuzz.client.protocol import BrokerError, ConnectionLost, frame
from kfuzz.errors import DecodeError, EncodeError, KfuzzError, UsageError
from kfuzz.messages import decode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import Versions
from kfuzz.probe.conversations import CONVERSATIONS, REBALANCE_TIMEOUT_MS, Context, Conversation
from kfuzz.probe.health import Health
from kfuzz.probe.hostile import FRAME, Case, Shot, plan
from kfuzz.probe.reactions import (
    ABANDONED,
    FOUND,
    GONE,
    HELD,
    HUNG_UP,
    MALFORMED,
    UNANSWERED,
    UNHEALTHY,
    Asked,
    Reaction,
    Report,
    answered,
)
from kfuzz.probe.settings import Settings
from kfuzz.text import foreign_text
from kfuzz.vectors import Vector

__all__ = ["Hostility", "probe_apis"]

# A broker creates its own topics for groups and transactions when they are first needed.
FIRST_S: Final = 60.0
PAUSE_S: Final = 0.05
# How long to wait for an answer that the broker need not give in time.
HELD_S: Final = 0.3
# A state is used for at most so many cases, if they leave it alone.
USES_MAX: Final = 32
# How many times the same harm is looked at closely: health is checked, and the case is asked again alone.
LOOKED_AT_MAX: Final = 2
# After so many cases of the same request and kind without an answer, the rest of them are left out.
SILENT_MAX: Final = 3
PARTITIONS: Final = 2
UNKNOWN_TOPIC: Final = 3
# A state that is not reached. Values of the broker may be such that a request cannot be encoded.
FAILED: Final = (KfuzzError, TimeoutError)
ELEMENTS_MAX: Final = 200_000
# The fields that say how long a broker may wait; the first one that a version has counts.
WAITS: Final = ("rebalanceTimeoutMs", "timeoutMs", "maxWaitMs", "sessionTimeoutMs")


@dataclass(frozen=True, slots=True)
class Hostility:
    """The choice of hostile requests. ``mutants``: of each request at each version. ``globs`` choose cases by id.

    - ``topic``: one that may be written to; None if the probe creates its own.
    - ``health_every``: after so many cases, the health conversation is held in any case.
    """

    seed: int = 1
    mutants: int = 8
    globs: tuple[str, ...] = ()
    topic: str | None = None
    health_every: int = 200


class _Ended(Exception):
    """The rest cannot be asked; the text says why."""


def probe_apis(
    vectors: Sequence[Vector],
    settings: Settings,
    hostility: Hostility,
    *,
    on_progress: Callable[[int], None] = lambda done: None,
    on_notice: Callable[[str], None] = lambda text: None,
) -> Report:
    """Ask a broker all APIs that it offers. ``UsageError`` if it cannot be asked at all, or is on another machine.

    ``on_progress`` gets how many cases are done.
    """
    return asyncio.run(_Probe(vectors, settings, hostility, on_progress, on_notice).run())


class _Probe:
    def __init__(
        self,
        vectors: Sequence[Vector],
        settings: Settings,
        hostility: Hostility,
        on_progress: Callable[[int], None],
        on_notice: Callable[[str], None],
    ) -> None:
        self.vectors = vectors
        self.settings = settings
        self.hostility = hostility
        self.on_progress = on_progress
        self.on_notice = on_notice
        self.report = Report(hostility.seed)
        self.timeout_s = settings.timeout_ms / 1000
        self._token = secrets.token_hex(4)
        self._numbers = 0
        self._topics: list[str] = []
        self._known: tuple[str, bytes] | None = None
        self._patience_s = FIRST_S
        self._health = Health(self._begin, self._new_topic)
        self._shooter: Link | None = None
        self._context: Context | None = None
        self._uses = 0
        # The conversation that the state belongs to, and those that were reached.
        self._state = ""
        self._reached: set[str] = set()
        self._since_health: list[Asked] = []
        self._last: Asked | None = None
        self._looked_at: Counter[tuple[str, ...]] = Counter()
        self._silent: Counter[tuple[str, ...]] = Counter()

    async def run(self) -> Report:
        """The whole probe."""
        deadline = time.monotonic() + self.settings.duration_s
        try:
            offered = await self._offers()
            left_out: dict[str, str] = {}
            hostility = self.hostility
            cases = [
                one
                for one in plan(
                    offered, self.vectors, seed=hostility.seed, mutants=hostility.mutants, left_out=left_out
                )
                if not hostility.globs or any(fnmatchcase(one.id, glob) for glob in hostility.globs)
            ]
            if not cases:
                raise UsageError(
                    f"no hostile request for what {self.settings.bootstrap} offers matches; leave out GLOB to ask all"
                )
            self.report.left_out |= {name: why for name, why in left_out.items() if not hostility.globs}
            await self._check_topic()
            missing = await self._health.learn()
            self.report.left_out |= {f"health, {name}": why for name, why in missing.items()}
            self.report.health = self._health.parts
            self._patience_s = self.timeout_s
            for done, case in enumerate(cases):
                if time.monotonic() > deadline:
                    raise _Ended(
                        f"{self.settings.duration_s:g} s are over, and {len(cases) - done} cases were not asked; "
                        "add --duration"
                    )
                await self._case(case)
                self.on_progress(done + 1)
            await self._check_health()
        except _Ended as ended:
            self.report.ended = str(ended)
        except (BrokerError, ConnectionLost) as error:
            raise UsageError(f"{error}; is a broker running there, and does it expect TLS?") from None
        finally:
            await self._leave()
        self.report.checks = self._health.checks
        return self.report

    async def _check_topic(self) -> None:
        """Refuse a topic that was named and is not there. Otherwise each conversation would wait for it."""
        if self.hostility.topic is None:
            return
        patience_s, self._patience_s = self._patience_s, self.timeout_s
        try:
            await self._new_topic()
        except BrokerError as error:
            name = foreign_text(self.hostility.topic)
            raise UsageError(f"the topic {name!r} cannot be used: {error}; create it, or name another") from None
        finally:
            self._patience_s = patience_s

    # -- connections and states

    async def _link(self, *, logged_in: bool = True) -> Link:
        """A new connection; ``ConnectionLost`` if there is none."""
        security = self.settings.security
        link = Link(
            self.settings.bootstrap,
            security if logged_in else Security(security.tls, security.ca),
            in_flight=5,
            timeout_ms=self.settings.timeout_ms,
            permit=self.settings.permit,
        )
        await link.open()
        return link

    async def _offers(self) -> dict[str, Versions]:
        """The versions of each API that the broker offers and kfuzz knows."""
        link = await self._link()
        found = {}
        for definition in catalogue().messages.values():
            if definition.kind == "request" and definition.api_key in link.offered:
                both = link.offered[definition.api_key] & definition.valid_versions
                if both:
                    found[definition.name.removesuffix("Request")] = both
        link.close()
        return found

    async def _begin(self, what: str) -> Context:
        """A context with names that nobody used before, and a connection of its own."""
        self._numbers += 1
        prefix = f"{self.settings.prefix}-{self._token}-{what}-{self._numbers}"
        return Context(prefix, link=await self._link(), deadline=time.monotonic() + self._patience_s)

    async def _new_topic(self) -> tuple[str, bytes]:
        """The name and the id of a topic that can be written to. ``BrokerError`` if there is none."""
        context = await self._begin("topic")
        link = context.link
        assert link is not None
        try:
            name = self.hostility.topic
            if name is None and "CreateTopics" not in link.versions:
                raise UsageError(
                    "the broker creates no topics for clients; name one that may be written to with --write-to"
                )
            if name is None:
                name = context.prefix
                self._topics.append(name)
                created = {
                    "name": name,
                    "numPartitions": PARTITIONS,
                    "replicationFactor": self.settings.replication,
                }
                await context.ask("CreateTopics", {"topics": [created], "timeoutMs": self.settings.timeout_ms})
            # The topic's own errors and those of its partitions can be retried until it has leaders.
            answer = await context.ask("Metadata", {"topics": [{"name": name}], "allowAutoTopicCreation": False})
            if not answer["topics"]:
                raise BrokerError(f"Metadata of {name}", UNKNOWN_TOPIC)
            return name, answer["topics"][0].get("topicId", bytes(16))
        finally:
            link.close()

    async def _reach(self, conversation: Conversation) -> Context:
        """The state of a conversation. ``BrokerError``, ``ConnectionLost`` or ``TimeoutError`` if it is not reached."""
        context: Context | None = None
        try:
            async with asyncio.timeout(self._patience_s + self.timeout_s):
                if self._known is None:
                    self._known = await self._new_topic()
                context = await self._begin(conversation.name)
                context.topic, context.topic_id = self._known
                await conversation.reach(context)
        except BaseException:
            self._known = None
            if context is not None and context.link is not None:
                context.link.close()
            raise
        return context

    def _drop(self) -> None:
        """Forget the state."""
        if self._context is not None and self._context.link is not None:
            self._context.link.close()
        self._context = None
        self._uses = 0

    async def _leave(self) -> None:
        """Close everything, and delete the probe's topics."""
        self._drop()
        if self._shooter is not None:
            self._shooter.close()
        if not self._topics or self.settings.keep:
            return
        try:
            async with asyncio.timeout(self.timeout_s):
                link = await self._link()
                await link.call("DeleteTopics", {"topicNames": self._topics, "timeoutMs": self.settings.timeout_ms})
                link.close()
        except (ConnectionLost, BrokerError, UsageError, TimeoutError) as error:
            self.on_notice(f"{', '.join(self._topics)} may still be there: {error or 'no answer in time'}")

    # -- cases

    async def _case(self, case: Case) -> None:
        """Ask a case, and look at what it does."""
        report = self.report
        group = case.conversation, case.api, case.kind
        if case.conversation in report.left_out or self._silent[group] >= SILENT_MAX:
            report.skipped[
                f"{case.conversation}/{case.api} {case.kind}" if self._silent[group] else case.conversation
            ] += 1
            return
        conversation = CONVERSATIONS[case.conversation]
        if self._context is None or self._uses >= USES_MAX or self._state != case.conversation:
            self._drop()
            if not await self._has_state(conversation):
                report.skipped[case.conversation] += 1
                return
        assert self._context is not None
        self._uses += 1
        try:
            asked = await self._ask(case, self._context)
        except EncodeError:
            report.skipped[f"{case.conversation} that the broker's values leave no place for"] += 1
            return
        if not asked.sent and self._last is not None:
            # Nothing could be sent, so the case before it did that.
            asked = replace(self._last, reaction=asked.reaction)
        if asked.reaction.changes or asked.reaction.harm:
            self._drop()
        if asked.reaction.outcome == SILENT:
            self._silent[group] += 1
        self._since_health.append(asked)
        self._last = asked
        looked = case.api, case.kind, asked.reaction.harm, *asked.reaction.errors
        if asked.reaction.harm and self._looked_at[looked] < LOOKED_AT_MAX:
            self._looked_at[looked] += 1
            asked = await self._look_at(asked)
        report.add(asked)
        if len(self._since_health) >= self.hostility.health_every:
            await self._check_health()

    async def _has_state(self, conversation: Conversation) -> bool:
        """Reach the state of a conversation. Whether that works; what does not work from the start is left out."""
        why = ""
        for _ in range(2):
            try:
                self._context = await self._reach(conversation)
                self._state = conversation.name
                self._reached.add(conversation.name)
                return True
            except FAILED as error:
                why = foreign_text(str(error) or "no answer in time")
        await self._check_health()
        self.report.left_out[conversation.name] = why
        # Perhaps it worked before the last hostile requests.
        if conversation.name in self._reached and (last := self._last) is not None:
            text = f"after it, {conversation.name} is not reached: {why}"
            self.report.add(replace(last, reaction=replace(last.reaction, harm=UNHEALTHY, text=text)))
        return False

    async def _look_at(self, asked: Asked) -> Asked:
        """Check the broker's health after a case with harm, and ask it again in a new conversation."""
        failure = await self._well_again(asked)
        if failure is not None:
            return replace(asked, reaction=replace(asked.reaction, harm=failure[0], text=failure[1]))
        if asked.reaction.harm not in FOUND:
            return asked
        try:
            context = await self._reach(CONVERSATIONS[asked.case.conversation])
            again = await self._ask(asked.case, context)
            if context.link is not None:
                context.link.close()
        except FAILED:
            return asked
        return replace(asked, alone=again.reaction.harm == asked.reaction.harm)

    async def _well_again(self, asked: Asked) -> tuple[str, str] | None:
        """Wait until the broker is well. The harm and its text if it was not well at first; None if it was.

        ``_Ended`` if it does not become well in time.
        """
        deadline = time.monotonic() + self.timeout_s
        failure = await self._health.failure()
        if not failure:
            self._since_health.clear()
            return None
        harm = GONE if asked.reaction.harm == GONE or await self._is_away() else UNHEALTHY
        first = failure
        while failure:
            if time.monotonic() > deadline:
                self.report.add(replace(asked, reaction=replace(asked.reaction, harm=harm, text=first)))
                raise _Ended(f"the broker does not work any more since {asked.case.id}: {first}")
            await asyncio.sleep(PAUSE_S)
            failure = await self._health.failure()
        self._since_health.clear()
        return harm, first

    async def _is_away(self) -> bool:
        try:
            (await self._link()).close()
        except ConnectionLost:
            return True
        return False

    async def _check_health(self) -> None:
        """Check the health after some cases. If it fails, they are asked again one by one, to find which one did it."""
        suspects = list(self._since_health) or ([self._last] if self._last is not None else [])
        if not suspects:
            return
        failure = await self._well_again(suspects[-1])
        if failure is None:
            return
        for one in suspects:
            try:
                context = await self._reach(CONVERSATIONS[one.case.conversation])
                asked = await self._ask(one.case, context)
            except FAILED:
                continue
            found = await self._well_again(asked)
            if found is not None:
                said = replace(asked.reaction, harm=found[0], text=found[1])
                self.report.add(replace(asked, reaction=said, alone=True))
                return
        text = f"{failure[1]}; after one of {len(suspects)} cases, of which none does it alone"
        said = replace(suspects[-1].reaction, harm=failure[0], text=text)
        self.report.add(replace(suspects[-1], reaction=said, alone=False))

    # -- one request

    async def _ask(self, case: Case, context: Context) -> Asked:
        """Send a case, and see what happens."""
        try:
            link = await self._shooting(case)
        except ConnectionLost as error:
            return Asked(case, b"", Reaction(CLOSED, harm=GONE, text=str(error)))
        shot = case.shot(context, link.next_number)
        sent = b"".join(shot.pieces)
        values = _read(case, context)
        is_long, wait_s = False, self.timeout_s
        if values is not None:
            allowed_ms = _waits_ms(values)
            is_long = allowed_ms > max(self.settings.timeout_ms, REBALANCE_TIMEOUT_MS)
            wait_s = HELD_S if is_long else self.timeout_s + max(allowed_ms, 0) / 1000
        wants_none = case.api == "Produce" and values is not None and values.get("acks") == 0
        takes = await self._send(link, shot, takes=shot.waits and not wants_none)
        if wants_none:
            # A good request on the same connection: its answer comes after everything else.
            number = link.next_number()
            takes = [link.later(number, [frame("ApiVersions", 0, number, b"")])]
        if not shot.waits:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            link.close()
            return Asked(case, sent, Reaction(ABANDONED))
        _, left = await asyncio.wait(takes, timeout=wait_s)
        if left and link.lost is None:
            link.lose("no answer", SILENT)
            if is_long:
                return Asked(case, sent, Reaction(HELD))
            return Asked(case, sent, Reaction(SILENT, harm=SILENT, text=f"no answer within {wait_s:g} s"))
        answer = takes[-1].result()
        if answer is None:
            how = link.lost_how
            harm = MALFORMED if how == GARBLED else HUNG_UP if values is not None and case.kind != FRAME else ""
            return Asked(case, sent, Reaction(how, harm=harm, text=foreign_text(link.lost or "") if harm else ""))
        if wants_none:
            return Asked(case, sent, Reaction(UNANSWERED))
        return Asked(case, sent, _judged(case, sent, answer))

    async def _shooting(self, case: Case) -> Link:
        """The connection for hostile requests. Logging in has one of its own, which has not logged in."""
        if self._shooter is None or self._shooter.lost is not None or case.conversation == "sasl":
            if self._shooter is not None:
                self._shooter.close()
            self._shooter = await self._link(logged_in=case.conversation != "sasl")
        return self._shooter

    async def _send(self, link: Link, shot: Shot, *, takes: bool) -> list[asyncio.Future[bytes | None]]:
        """Send all pieces. With ``takes``, the futures get the answers, or None if the connection is lost before."""
        for piece in shot.pieces[:-1]:
            link.send(0, [piece], None)
            # Each piece is sent by itself.
            await asyncio.sleep(0)
        if not takes:
            link.send(0, shot.pieces[-1:], None)
            return []
        return [link.later(number, [] if at else shot.pieces[-1:]) for at, number in enumerate(shot.numbers)]


def _read(case: Case, context: Context) -> Message | None:
    """The values of a request, as Kafka reads them; None if it does not, or if the frame is not a good one."""
    if case.shape is not None:
        return None
    try:
        return decode(f"{case.api}Request", case.version, case.make(context), elements_max=ELEMENTS_MAX)
    except DecodeError:
        return None


def _waits_ms(values: Message) -> int:
    """For how long a request allows the broker to wait."""
    return next((int(values[name]) for name in WAITS if name in values), 0)


def _judged(case: Case, sent: bytes, answer: bytes) -> Reaction:
    """The reaction of an answer, by the API and version that were really asked."""
    key, version = int.from_bytes(sent[4:6], "big", signed=True), int.from_bytes(sent[6:8], "big", signed=True)
    definition = catalogue().find("ApiVersionsRequest")
    if key == definition.api_key and version not in definition.valid_versions:
        # To a version that is too new, a broker answers in version 0.
        version = 0
    return answered(key, version, answer)
