"""The health conversation: any client can do this with a broker, no matter which requests others have sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kfuzz.errors import KfuzzError
from kfuzz.probe.conversations import CONVERSATIONS, Context, batch, produced
from kfuzz.text import foreign_text

if TYPE_CHECKING:
    from kfuzz.probe.sides import Side

__all__ = ["Health"]


class Unwell(KfuzzError):
    """A broker answers without errors, and yet not what it should."""


class Health:
    """Parts that worked at the start and must work ever after. ``name`` makes names for what they need."""

    def __init__(self, side: Side, name: Callable[[], str]) -> None:
        self._side = side
        self._name = name
        self._known: tuple[str, bytes] | None = None
        self.parts: tuple[str, ...] = ()
        self.checks = 0

    async def learn(self) -> Mapping[str, str]:
        """Find out which parts work, and return why the others do not."""
        missing = {}
        for name in PARTS:
            if failure := await self._failure(name):
                missing[name] = failure
        self.parts = tuple(name for name in PARTS if name not in missing)
        return missing

    async def failure(self) -> str:
        """Why the broker is not well; empty if it is."""
        self.checks += 1
        for name in self.parts or (CONNECT,):
            if failure := await self._failure(name):
                return f"{name}: {failure}"
        return ""

    async def _failure(self, name: str) -> str:
        context: Context | None = None
        try:
            context = await self._side.begin(self._name())
            if name == CONNECT:
                return ""
            async with asyncio.timeout(context.deadline - time.monotonic()):
                self._known = self._known or await self._side.new_topic(self._name())
                context.topic, context.topic_id = self._known
                await PARTS[name](context)
        except IndexError:
            self._known = None
            return "an answer lacks what was asked for"
        except (KfuzzError, TimeoutError) as error:
            # A hostile request may have deleted the topic, as anybody may.
            self._known = None
            return foreign_text(str(error) or "no answer in time")
        finally:
            if context is not None and context.link is not None:
                context.link.close()
        return ""


async def _produce_and_fetch(context: Context) -> None:
    data = batch()
    answer = await context.ask("Produce", produced(data, timeoutMs=5000))
    offset = answer["responses"][0]["partitionResponses"][0]["baseOffset"]
    asked = {
        "replicaId": -1,
        "fetchOffset": offset,
        "maxWaitMs": 500,
        "minBytes": 1,
        "clusterId": None,
        "forgottenTopicsData": [],
    }
    while True:
        answer = await context.ask("Fetch", asked)
        found = answer["responses"][0]["partitions"][0]["records"] or b""
        # The broker sets the offset and the leader epoch, which the CRC does not cover.
        if bytes(found)[16 : len(data)] == data[16:]:
            return
        if found or time.monotonic() > context.deadline:
            raise Unwell("the batch that was accepted is not served")


def _whole(name: str) -> Callable[[Context], Awaitable[None]]:
    one = CONVERSATIONS[name]
    assert one.end is not None
    end = one.end

    async def part(context: Context) -> None:
        mine = replace(context)
        await one.reach(mine)
        await end(mine)

    return part


# The part for a broker with which nothing else works.
CONNECT: Final = "connect"
PARTS: Final[Mapping[str, Callable[[Context], Awaitable[None]]]] = {
    "produce and fetch": _produce_and_fetch,
    "join a group": _whole("classic-group"),
    "commit a transaction": _whole("transaction"),
}
