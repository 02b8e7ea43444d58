"""Asks a broker every API: hostile requests in conversations, and the health conversation in between."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

from kfuzz.client.address import Address
from kfuzz.client.protocol import BrokerError, ConnectionLost
from kfuzz.errors import EncodeError, KfuzzError, UsageError
from kfuzz.probe.comparing import Own, difference
from kfuzz.probe.conversations import CONVERSATIONS, Context, Conversation, Place
from kfuzz.probe.hostile import Case, Offered, not_asked, plan
from kfuzz.probe.machine import Machine
from kfuzz.probe.reactions import FOUND, Asked, Harm, Report
from kfuzz.probe.settings import Ended, Settings
from kfuzz.probe.sides import Side
from kfuzz.text import foreign_text
from kfuzz.vectors import Vector

PAUSE_S: Final = 0.05
# A state is used for at most so many cases, if they leave it alone.
USES_MAX: Final = 32
# How many times the same harm is looked at closely: health is checked, and the case is asked again alone.
LOOKED_AT_MAX: Final = 2
# A difference counts if it comes again so often when both are asked alone; of each kind, so many are tried.
CONFIRMED: Final = 3
TRIED_MAX: Final = 6
# After so many cases of the same request and kind without an answer, the rest of them are left out.
SILENT_MAX: Final = 3
# A state that is not reached. Values of the broker may be such that a request cannot be encoded.
FAILED: Final = (KfuzzError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Hostility:
    """The choice of hostile requests. ``mutants``: of each request at each version. ``globs`` choose cases by id.

    - ``topic``: one that may be written to; None if the probe creates its own.
    - ``health_every``: after so many cases, the health conversation is held in any case.
    - ``cases``: how many there must be at least; more mutants are made for that. None: as ``mutants`` says.
    - ``controller``: the controller's own port; ``reference``: a broker that does it right.
    - ``pid``, ``log``: the broker's process and log, if they are to be watched.
    """

    seed: int = 1
    mutants: int = 8
    globs: tuple[str, ...] = ()
    topic: str | None = None
    health_every: int = 200
    cases: int | None = None
    controller: Address | None = None
    reference: Address | None = None
    pid: int | None = None
    log: Path | None = None


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


@dataclass
class _Probe:
    vectors: Sequence[Vector]
    settings: Settings
    hostility: Hostility
    on_progress: Callable[[int], None]
    on_notice: Callable[[str], None]
    _token: str = field(default_factory=lambda: secrets.token_hex(4))
    _numbers: int = 0
    # The versions that the reference offers.
    _known_there: Offered = field(default_factory=dict)
    # The state of the broker, and that of the reference if it is compared.
    _context: Context | None = None
    _there: Context | None = None
    _uses: int = 0
    # The conversation that the state belongs to, and those that were reached.
    _state: str = ""
    _reached: set[str] = field(default_factory=set)
    _since_health: list[Asked] = field(default_factory=list)
    _last: Asked | None = None
    _differing: set[tuple[str, ...]] = field(default_factory=set)
    _looked_at: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _silent: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        settings, hostility = self.settings, self.hostility
        self.report = Report(hostility.seed)
        self.timeout_s = settings.timeout_ms / 1000
        addresses: dict[Place, Address] = {"broker": settings.bootstrap}
        if hostility.controller is not None:
            addresses["controller"] = hostility.controller
        if hostility.reference == settings.bootstrap:
            raise UsageError(f"--reference is {settings.bootstrap} itself; name another broker")
        self._tested = Side(addresses, settings, hostility.topic, self._name)
        self._sides, self._reference = [self._tested], None
        if hostility.reference is not None:
            self._reference = Side({"broker": hostility.reference}, settings, hostility.topic, self._name)
            self._sides.append(self._reference)
        self._machine = Machine(hostility.pid, hostility.log)

    async def run(self) -> Report:
        deadline = time.monotonic() + self.settings.duration_s
        try:
            cases = await self._planned()
            for side in self._sides:
                await side.check_topic()
                missing = await side.health.learn()
                who = "health" if side is self._tested else "health of the reference"
                self.report.left_out |= {f"{who}, {name}": why for name, why in missing.items()}
                side.patience_s = self.timeout_s
            self.report.health = self._tested.health.parts
            for done, case in enumerate(cases):
                if time.monotonic() > deadline:
                    raise Ended(
                        f"{self.settings.duration_s:g} s are over, and {len(cases) - done} cases were not asked; "
                        "add --duration"
                    )
                await self._case(case)
                self.on_progress(done + 1)
            await self._check_health()
        except Ended as ended:
            self.report.ended = str(ended)
        except (BrokerError, ConnectionLost) as error:
            raise UsageError(f"{error}; is a broker running there, and does it expect TLS?") from None
        finally:
            for side in self._sides:
                if left := await side.leave():
                    self.on_notice(left)
        self.report.checks = self._tested.health.checks
        self.report.machine = str(self._machine)
        return self.report

    async def _planned(self) -> list[Case]:
        """The cases for what the broker offers, as many as are wanted."""
        hostility = self.hostility
        offered = await self._tested.offers()
        controller = None if hostility.controller is None else await self._tested.offers("controller")
        if self._reference is not None:
            self._known_there = await self._reference.offers()
        left_out: dict[str, str] = {}
        globs, seed = hostility.globs, hostility.seed
        planned = partial(plan, offered, self.vectors, seed=seed, left_out=left_out, controller=controller)

        def chosen(mutants: int) -> list[Case]:
            made = planned(mutants=mutants)
            return [one for one in made if not globs or any(fnmatchcase(one.id, glob) for glob in globs)]

        cases = chosen(hostility.mutants)
        if not cases:
            raise UsageError(
                f"no hostile request for what {self.settings.bootstrap} offers matches; leave out GLOB to ask all"
            )
        if hostility.cases and len(cases) < hostility.cases:
            more = len(chosen(hostility.mutants + 1)) - len(cases)
            if not more:
                raise UsageError(f"there are only {len(cases)} cases without mutants; choose others, or fewer --cases")
            cases = chosen(hostility.mutants - (len(cases) - hostility.cases) // more)
        if not hostility.globs:
            self.report.left_out |= left_out
            self.report.not_asked = not_asked(cases, offered, controller)
        return cases

    def _name(self, what: str = "only") -> str:
        """A name that nobody used before."""
        self._numbers += 1
        return f"{self.settings.prefix}-{self._token}-{what}-{self._numbers}"

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
        is_used_up = self._uses >= USES_MAX or self._state != case.conversation
        if (self._context is None or is_used_up) and not await self._has_state(conversation):
            report.skipped[case.conversation] += 1
            return
        context = self._context
        assert context is not None
        self._uses += 1
        try:
            asked = await self._asked(case, context, self._there)
        except EncodeError:
            report.skipped[f"{case.conversation} that the broker's values leave no place for"] += 1
            return
        if not asked.sent and self._last is not None:
            # Nothing could be sent, so the case before it did that.
            asked = replace(self._last, reaction=asked.reaction)
        both = filter(None, (asked.reaction, asked.reference))
        if any(one.harm or (one.changes and not conversation.lasts) for one in both):
            self._context = None
        if asked.reaction.outcome == "silent":
            self._silent[group] += 1
        self._since_health.append(asked)
        self._last = asked
        looked = case.api, case.kind, asked.reaction.harm, *asked.reaction.errors
        if asked.reaction.harm and self._looked_at[looked] < LOOKED_AT_MAX:
            self._looked_at[looked] += 1
            asked = await self._look_at(asked)
        report.add(asked)
        await self._compare(asked, context)
        for seen in self._machine.look():
            report.note(asked.with_harm(*seen))
        if len(self._since_health) >= self.hostility.health_every:
            await self._check_health()

    async def _asked(self, case: Case, here: Context, there: Context | None, *, first: bool = False) -> Asked:
        """Ask the broker, and the reference if it has the state and the version. ``first``: the reference first."""
        side = self._reference
        if side is None or there is None or case.version not in self._known_there.get(case.api, ()):
            return await self._tested.ask(case, here)
        early = await side.ask(case, there) if first else None
        asked = await self._tested.ask(case, here)
        other = (early or await side.ask(case, there)).reaction
        if other.harm == "gone":
            raise Ended(f"the reference does not work any more since {case.id}: {other.text}")
        return replace(asked, reference=other)

    async def _compare(self, asked: Asked, context: Context) -> None:
        """Note how the broker differs from the reference, if it always does so with new topics and states."""
        self.report.compared += asked.reference is not None
        found = self._difference(asked, context)
        if found is None:
            return
        key = asked.case.api, "differs", found[0]
        if key not in self._differing:
            self._context = None
            for number in range(CONFIRMED):
                found = None
                if self._looked_at[key] < TRIED_MAX:
                    with suppress(*FAILED):
                        here, there = await self._reach(CONVERSATIONS[asked.case.conversation], anew=True)
                        again = await self._asked(asked.case, here, there, first=number % 2 == 0)
                        found = self._difference(again, here)
                if found is None or found[0] != key[2]:
                    self._looked_at[key] += 1
                    self.report.once += 1
                    return
            asked = replace(again, alone=True)
            self._differing.add(key)
        self.report.note(asked.with_harm("differs", found[1], found[0]))

    def _difference(self, asked: Asked, context: Context) -> tuple[str, str] | None:
        if asked.reference is None:
            return None
        own = Own(self._token, context.prefix, context.topic)
        return difference(asked.sent, asked.reaction, asked.reference, own)

    # -- states

    async def _reach(self, conversation: Conversation, *, anew: bool = False) -> tuple[Context, Context | None]:
        """The state of a conversation, at the reference too. ``anew``: with new topics.

        ``BrokerError``, ``ConnectionLost`` or ``TimeoutError`` if the broker does not reach it.
        """
        prefix = self._name(conversation.name)
        side = self._reference
        if anew:
            self._forget()
        try:
            context = await self._tested.reach(conversation, prefix)
        except FAILED:
            # Topics have the same names on both sides.
            self._forget()
            raise
        if side is None or conversation.place == "controller":
            return context, None
        try:
            return context, await side.reach(conversation, prefix)
        except FAILED as error:
            self._forget()
            why = foreign_text(str(error) or "no answer in time")
            self.report.left_out[f"comparing {conversation.name}"] = f"the reference does not reach it: {why}"
            return await self._tested.reach(conversation, prefix), None

    def _forget(self) -> None:
        for side in self._sides:
            side.forget()

    async def _has_state(self, conversation: Conversation) -> bool:
        """Reach the state of a conversation. Whether that works; what does not work from the start is left out."""
        why = ""
        self._uses = 0
        for _ in range(2):
            try:
                self._context, self._there = await self._reach(conversation)
                self._state = conversation.name
                self._reached.add(conversation.name)
                return True
            except FAILED as error:
                why = foreign_text(str(error) or "no answer in time")
        self._context = None
        await self._check_health()
        self.report.left_out[conversation.name] = why
        # Perhaps it worked before the last hostile requests.
        if conversation.name in self._reached and self._last is not None:
            self.report.add(self._last.with_harm("unhealthy", f"after it, {conversation.name} is not reached: {why}"))
        return False

    async def _alone(self, case: Case) -> Asked | None:
        """Ask a case in a new conversation; None if that is not reached."""
        try:
            context = await self._tested.reach(CONVERSATIONS[case.conversation], self._name())
            return await self._tested.ask(case, context)
        except FAILED:
            return None

    # -- health

    async def _look_at(self, asked: Asked) -> Asked:
        """Check the broker's health after a case with harm, and ask it again in a new conversation."""
        failure = await self._well_again(asked)
        if failure is not None:
            return asked.with_harm(*failure)
        if asked.reaction.harm not in FOUND:
            return asked
        again = await self._alone(asked.case)
        return asked if again is None else replace(asked, alone=again.reaction.harm == asked.reaction.harm)

    async def _well_again(self, asked: Asked) -> tuple[Harm, str] | None:
        """Wait until the broker is well. The harm and its text if it was not well at first; None if it was.

        ``Ended`` if it does not become well in time.
        """
        deadline = time.monotonic() + self.timeout_s
        failure = await self._tested.health.failure()
        # It creates what hostile requests have deleted, such as internal topics.
        if self._reference is not None and (trouble := await self._reference.health.failure()):
            self.on_notice(f"after {asked.case.id}, the reference is not well: {trouble}")
        if not failure:
            self._since_health.clear()
            return None
        harm: Harm = "gone" if asked.reaction.harm == "gone" or await self._is_away() else "unhealthy"
        first = failure
        while failure:
            if time.monotonic() > deadline:
                self.report.add(asked.with_harm(harm, first))
                raise Ended(f"the broker does not work any more since {asked.case.id}: {first}")
            await asyncio.sleep(PAUSE_S)
            failure = await self._tested.health.failure()
        self._since_health.clear()
        return harm, first

    async def _is_away(self) -> bool:
        try:
            (await self._tested.link()).close()
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
            asked = await self._alone(one.case)
            if asked is None:
                continue
            found = await self._well_again(asked)
            if found is not None:
                self.report.add(replace(asked.with_harm(*found), alone=True))
                return
        text = f"{failure[1]}; after one of {len(suspects)} cases, of which none does it alone"
        self.report.add(replace(suspects[-1].with_harm(failure[0], text), alone=False))
