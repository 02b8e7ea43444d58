"""A broker that is asked hostile requests: its connections, its topics, and the states that conversations reach."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from kfuzz.client.address import Address, Security
from kfuzz.client.link import CLOSED, GARBLED, SILENT, Link
from kfuzz.client.protocol import BrokerError, ConnectionLost, frame
from kfuzz.errors import DecodeError, KfuzzError, UsageError
from kfuzz.messages import decode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import NONE, Versions
from kfuzz.probe.conversations import BROKER, REBALANCE_TIMEOUT_MS, STRANGER, Context, Conversation
from kfuzz.probe.health import Health
from kfuzz.probe.hostile import FRAME, Case, Shot
from kfuzz.probe.reactions import (
    ABANDONED,
    GONE,
    HELD,
    HUNG_UP,
    MALFORMED,
    UNANSWERED,
    Asked,
    Reaction,
    answered,
)
from kfuzz.probe.settings import Settings
from kfuzz.text import foreign_text

__all__ = ["Side"]

# A broker creates its own topics for groups and transactions when they are first needed.
FIRST_S: Final = 60.0
# How long to wait for an answer that the broker need not give in time.
HELD_S: Final = 0.3
PARTITIONS: Final = 2
UNKNOWN_TOPIC: Final = 3
ELEMENTS_MAX: Final = 200_000
# The fields that say how long a broker may wait; the first one that a version has counts.
WAITS: Final = ("rebalanceTimeoutMs", "timeoutMs", "maxWaitMs", "sessionTimeoutMs")


class Side:
    """A broker, by the addresses of its places. ``topic``: one that may be written to; None to create them.

    ``patience_s``: how long a state may take to be reached. ``topics``: those that were created. ``name`` makes names
    for what the health conversation needs.
    """

    def __init__(
        self, addresses: dict[str, Address], settings: Settings, topic: str | None, name: Callable[[], str]
    ) -> None:
        self._addresses = addresses
        self._settings = settings
        self._topic = topic
        self._timeout_s = settings.timeout_ms / 1000
        self.patience_s = FIRST_S
        self.topics: list[str] = []
        self.health = Health(self, name)
        self._known: tuple[str, bytes] | None = None
        # The connections for good and for hostile requests, by place.
        self._good: dict[str, Link] = {}
        self._hostile: dict[str, Link] = {}

    async def link(self, place: str = BROKER) -> Link:
        """A new connection; ``ConnectionLost`` if there is none."""
        security = self._settings.security
        link = Link(
            self._addresses.get(place, self._addresses[BROKER]),
            Security(security.tls, security.ca) if place == STRANGER else security,
            in_flight=5,
            timeout_ms=self._settings.timeout_ms,
            permit=self._settings.permit,
        )
        await link.open()
        return link

    async def _kept(self, links: dict[str, Link], place: str) -> Link:
        """The connection of a place. Logging in needs a new one every time."""
        link = links.get(place)
        if link is None or link.lost is not None or place == STRANGER:
            if link is not None:
                link.close()
            link = links[place] = await self.link(place)
        return link

    async def offers(self, place: str = BROKER) -> dict[str, Versions]:
        """The versions of each API that both the broker and kfuzz know."""
        offered = (await self._kept(self._good, place)).offered
        found = {}
        for definition in catalogue().messages.values():
            if definition.kind != "request" or definition.api_key is None:
                continue
            if both := offered.get(definition.api_key, NONE) & definition.valid_versions:
                found[definition.name.removesuffix("Request")] = both
        return found

    async def begin(self, prefix: str) -> Context:
        """A context with a connection of its own."""
        return Context(prefix, link=await self.link(), deadline=time.monotonic() + self.patience_s)

    async def new_topic(self, prefix: str) -> tuple[str, bytes]:
        """The name and the id of a topic that can be written to. ``BrokerError`` if there is none."""
        context = Context(prefix, link=await self._kept(self._good, BROKER))
        context.deadline = time.monotonic() + self.patience_s
        name = self._topic
        if name is None and "CreateTopics" not in context.connection.versions:
            raise UsageError(
                "the broker creates no topics for clients; name one that may be written to with --write-to"
            )
        if name is None:
            name = prefix
            self.topics.append(name)
            created = {"numPartitions": PARTITIONS, "replicationFactor": self._settings.replication}
            more = {"assignments": [], "configs": [], "timeoutMs": self._settings.timeout_ms}
            await context.ask("CreateTopics", {"name": name, **created, **more})
        # The topic's own errors and those of its partitions can be retried until it has leaders.
        answer = await context.ask("Metadata", {"name": name, "topicId": bytes(16), "allowAutoTopicCreation": False})
        if not answer["topics"]:
            raise BrokerError(f"Metadata of {name}", UNKNOWN_TOPIC)
        return name, answer["topics"][0].get("topicId", bytes(16))

    async def check_topic(self) -> None:
        """Refuse a topic that was named and is not there. Otherwise each conversation would wait for it."""
        if self._topic is None:
            return
        self.patience_s = self._timeout_s
        try:
            await self.new_topic("")
        except BrokerError as error:
            name = foreign_text(self._topic)
            raise UsageError(f"the topic {name!r} cannot be used: {error}; create it, or name another") from None
        finally:
            self.patience_s = FIRST_S

    async def reach(self, conversation: Conversation, prefix: str) -> Context:
        """The state of a conversation. ``BrokerError``, ``ConnectionLost`` or ``TimeoutError`` if it is not reached."""
        try:
            async with asyncio.timeout(self.patience_s + self._timeout_s):
                if self._known is None:
                    self._known = await self.new_topic(f"{prefix}-topic")
                # No good request is asked of a broker that does not know the client.
                place = BROKER if conversation.place == STRANGER else conversation.place
                context = Context(prefix, *self._known, link=await self._kept(self._good, place))
                context.deadline = time.monotonic() + self.patience_s
                await conversation.reach(context)
        except BaseException:
            self.forget()
            raise
        return context

    def forget(self) -> None:
        """Take a new topic and new connections for the next state."""
        self._known = None
        for link in self._good.values():
            link.close()

    async def leave(self) -> str:
        """Close everything, and delete the topics. Returns why they may still be there."""
        self.forget()
        for link in self._hostile.values():
            link.close()
        if not self.topics or self._settings.keep:
            return ""
        try:
            async with asyncio.timeout(self._timeout_s):
                link = await self.link()
                values = {"topicNames": self.topics, "timeoutMs": self._settings.timeout_ms}
                await link.call("DeleteTopics", values)
                link.close()
        except (KfuzzError, TimeoutError) as error:
            return f"{', '.join(self.topics)} may still be there: {str(error) or 'no answer in time'}"
        return ""

    # -- one request

    async def ask(self, case: Case, context: Context) -> Asked:
        """Send a case, and see what happens. ``EncodeError`` if the context's values leave no place for it."""
        try:
            link = await self._kept(self._hostile, case.place)
        except ConnectionLost as error:
            return Asked(case, b"", Reaction(CLOSED, harm=GONE, text=str(error)))
        body = case.make(context)
        shot = case.shot(body, link.next_number)
        sent = b"".join(shot.pieces)
        values = _read(case, body)
        is_long, wait_s = False, self._timeout_s
        if values is not None:
            # For how long the request allows the broker to wait.
            allowed_ms = next((int(values[name]) for name in WAITS if name in values), 0)
            is_long = allowed_ms > max(self._settings.timeout_ms, REBALANCE_TIMEOUT_MS)
            wait_s = HELD_S if is_long else self._timeout_s + max(allowed_ms, 0) / 1000
        wants_none = case.api == "Produce" and values is not None and values.get("acks") == 0
        takes = await _send(link, shot, takes=shot.waits and not wants_none)
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
        return Asked(case, sent, Reaction(UNANSWERED) if wants_none else answered(sent, answer))


async def _send(link: Link, shot: Shot, *, takes: bool) -> list[asyncio.Future[bytes | None]]:
    """Send all pieces. With ``takes``, the futures get the answers, or None if the connection is lost before."""
    for piece in shot.pieces[:-1]:
        link.send(0, [piece], None)
        # Each piece is sent by itself.
        await asyncio.sleep(0)
    if not takes:
        link.send(0, shot.pieces[-1:], None)
        return []
    return [link.later(number, [] if at else shot.pieces[-1:]) for at, number in enumerate(shot.numbers)]


def _read(case: Case, body: bytes) -> Message | None:
    """The values of a request, as Kafka reads them; None if it does not, or if the frame is not a good one."""
    if case.shape is not None:
        return None
    try:
        return decode(f"{case.api}Request", case.version, body, elements_max=ELEMENTS_MAX)
    except DecodeError:
        return None
