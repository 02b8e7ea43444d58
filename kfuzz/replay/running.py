"""Runs a replay or a load: all partitions in one event loop, with one report."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final

from kfuzz.client.cluster import Cluster, ClusterFailed, asked
from kfuzz.client.link import Link
from kfuzz.client.protocol import API_VERSIONS, ConnectionLost
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.replay.batches import Batch, Part, Step, find_parts, steps
from kfuzz.replay.choices import Rate, Settings
from kfuzz.replay.history import History, Verification
from kfuzz.replay.made import Load, load_sources
from kfuzz.replay.pace import Bounds, Pace
from kfuzz.replay.report import Report, require_histogram
from kfuzz.replay.sending import DRAIN_S, Sender, Source

PROGRESS_S: Final = 0.25
# A replay without a duration. The event loop takes no timer that is much longer.
DURATION_S_MAX: Final = 31_536_000.0
# How far to look for a partition's first timestamp. All of it may be what a broker refuses.
LOOK_MAX: Final = 10_000


def replay(parts: Sequence[Part], settings: Settings, *, set_done: Callable[[int], None] = lambda done: None) -> Report:
    """Send what a producer may send of ``parts``, and report what happened.

    ``set_done`` is called with the bytes of the log that have been passed. Ctrl-C ends the replay with the report so
    far, if this is the main thread.

    Raises ``UsageError`` if the broker cannot be reached, lacks a topic or its partitions, refuses the user, or if a
    file cannot be read. Whatever happens later is in the report.
    """
    if settings.speed is not None and settings.first_timestamp is None:
        settings = replace(settings, first_timestamp=first_timestamp(parts, settings))
    total = sum(part.size for part in parts) or 1
    wanted = settings.wanted((part.topic, part.partition) for part in parts)
    sources = [
        Source(settings.names.get(part.topic, part.topic), part.partition, _walk(part, settings), part.size / total)
        for part in parts
    ]
    return asyncio.run(_send(sources, wanted, settings, set_done))


def run_load(load: Load, settings: Settings, *, set_done: Callable[[int], None] = lambda done: None) -> Report:
    """Send a workload without end, and report what happened. Errors, Ctrl-C and ``set_done`` as for :func:`replay`."""
    sources, wanted, settings = load_sources(load, settings)
    return asyncio.run(_send(sources, wanted, settings, set_done))


def prepare_topics(parts: Sequence[Part], settings: Settings) -> None:
    """Check that the broker has the topics with their partitions, or create them; ``UsageError`` as :func:`replay`."""
    prepare(settings.wanted((part.topic, part.partition) for part in parts), settings)


def prepare(wanted: Mapping[str, int], settings: Settings) -> None:
    """Check that the broker has at least these partitions of topics, or create them; ``UsageError`` as above."""
    try:
        asyncio.run(asked(settings, lambda cluster: cluster.prepare(wanted)))
    except ClusterFailed as error:
        raise UsageError(f"{error}") from None


def give(settings: Settings, topic: str, batches: Sequence[bytes]) -> None:
    """Make a topic of one partition with these batches. ``UsageError`` as for :func:`replay`."""
    asyncio.run(asked(settings, lambda cluster: cluster.create({topic: (1, {})})))
    if not batches:
        return
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / f"{topic}-0" / "00000000000000000000.log"
        log.parent.mkdir()
        log.write_bytes(b"".join(batches))
        replay(find_parts(place), settings)


def first_timestamp(parts: Sequence[Part], settings: Settings) -> int:
    """The lowest timestamp (ms) of the partitions' first batches; 0 if none has one."""
    looked_at = (itertools.islice(_walk(part, settings), LOOK_MAX) for part in parts)
    first = (next((one for one in walk if isinstance(one, Batch) and one.timestamp >= 0), None) for walk in looked_at)
    return min((one.timestamp for one in first if one is not None), default=0)


def _walk(part: Part, settings: Settings) -> Iterator[Step]:
    """The steps of a partition; with ``settings.loop`` again and again, each time with later timestamps."""
    passed_ms = 0
    while True:
        first_ms = last_ms = -1
        has_batch = False
        for step in steps(part.segments, convert=settings.convert, limits=settings.limits):
            if isinstance(step, Batch):
                has_batch = True
                if step.timestamp >= 0:
                    first_ms = step.timestamp if first_ms < 0 else first_ms
                    last_ms = max(step.timestamp, last_ms)
                    step.timestamp += passed_ms
            yield step
        if not settings.loop or not has_batch:
            return
        passed_ms += last_ms - first_ms + 1


async def _send(
    sources: Sequence[Source], wanted: Mapping[str, int], settings: Settings, set_done: Callable[[int], None]
) -> Report:
    """Send the sources to topics with at least the ``wanted`` partitions."""
    require_histogram()
    # Other processes may have other parts of the rate.
    report = Report(target=settings.rate.part(round(sum(source.share for source in sources), 9)))

    def count_reconnect() -> None:
        report.reconnects += 1

    cluster = Cluster(settings, count_reconnect)
    histories: dict[tuple[str, int], History] = {}
    verification: Verification | None = None
    try:
        try:
            async with asyncio.timeout(settings.duration_s):
                await cluster.open()
                await cluster.prepare(wanted)
        except TimeoutError:
            raise UsageError(f"no broker was ready within {settings.duration_s:g} s, so nothing was sent") from None
        if settings.verify or settings.check_history:
            histories = {(source.topic, source.partition): History() for source in sources}
            verification = Verification(cluster, histories)
            await verification.begin()
        bounds = Bounds(settings, settings.first_timestamp or 0)
        senders = [
            Sender(
                settings,
                cluster,
                Pace(bounds, source.share, number / len(sources), source.gap),
                report,
                source,
                number % settings.connections,
                histories.get((source.topic, source.partition)),
            )
            for number, source in enumerate(sources)
        ]
        # Every topic has a report, also if nothing of it is reached.
        for source in sources:
            report.topic(source.topic)
        report.began = time.time()

        def end() -> None:
            bounds.stop()
            cluster.end()

        def progress() -> None:
            report.settle(by_second=settings.by_second)
            set_done(sum(sender.passed_bytes for sender in senders))

        with _stopped_by_interrupt(end, report):
            # A sender that waits for the broker does not look at the clock.
            timer = asyncio.get_running_loop().call_later(min(settings.duration_s or inf, DURATION_S_MAX), end)
            await _run_all([sender.run() for sender in senders], cluster, end, report, progress)
            if not settings.acks and report.failure is None:
                links = {sender.link for sender in senders if sender.link is not None}
                await _run_all([_drained(links, report)], cluster, end, report, progress)
            timer.cancel()
        report.settle(by_second=settings.by_second)
        report.seconds, report.over = time.monotonic() - bounds.began, bounds.over
        report.reached = Rate(report.sent.records / report.seconds, report.sent.bytes / report.seconds)
        if verification is not None:
            report.levels = verification.levels
            try:
                await verification.finish(again=settings.check_history)
            except KfuzzError as error:
                report.failure = report.failure or f"what was sent could not be read back: {error}"
        for sender in senders:
            if (due := sender.pace.latest_due) is not None:
                until = sender.sent_at if sender.ended else bounds.stopped
                report.late_s = max(report.late_s, (until or due) - due)
        if bounds.stopped is None and report.failure is None:
            report.short_s = settings.duration_s
    finally:
        if verification is not None:
            await verification.close()
        await cluster.close()
    return report


async def _run_all(
    jobs: Sequence[Coroutine[Any, Any, None]],
    cluster: Cluster,
    end: Callable[[], None],
    report: Report,
    progress: Callable[[], None],
) -> None:
    """Run the jobs. The first that cannot continue ends all of them; after the end they have ``DRAIN_S``."""
    running = {asyncio.create_task(job) for job in jobs}
    deadline: float | None = None
    failure: BaseException | None = None
    try:
        while running:
            done, running = await asyncio.wait(running, timeout=PROGRESS_S, return_when=asyncio.FIRST_EXCEPTION)
            progress()
            for task in done:
                if (error := task.exception()) is None:
                    continue
                end()
                if isinstance(error, ClusterFailed | ConnectionLost):
                    report.failure = report.failure or str(error)
                else:
                    failure = failure or error
            if failure:
                break
            if running and cluster.ended.is_set():
                deadline = deadline or time.monotonic() + DRAIN_S
                if time.monotonic() > deadline:
                    left = f"the brokers have not answered {DRAIN_S:g} s after the end{cluster.trouble}"
                    report.failure = report.failure or f"{left}; some batches may have arrived that are not counted"
                    break
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    if isinstance(failure, KfuzzError):
        # A file that becomes unreadable on the way must not hide what was sent.
        report.failure = str(failure)
    elif failure is not None:
        raise failure


async def _drained(links: Iterable[Link], report: Report) -> None:
    """Without acknowledgements, wait until the brokers have taken everything: they answer in the order of requests."""
    for link in links:
        try:
            if link.lost is not None:
                raise ConnectionLost(f"{link.address}: {link.lost}")
            await link.call(API_VERSIONS, {}, 0)
        except ConnectionLost as error:
            report.failure = report.failure or f"{error}: not everything may have arrived"


@contextlib.contextmanager
def _stopped_by_interrupt(end: Callable[[], None], report: Report) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM, if the program handles it) ends the replay cleanly. The second one is as usual."""
    loop = asyncio.get_running_loop()
    # A shell's background job ignores the signal.
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, signal.SIG_DFL, None)
    }

    def stop(number: int) -> None:
        report.signal = number
        end()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            if loop.remove_signal_handler(number):
                signal.signal(number, handler)

    # It fails outside of the main thread, which gets all signals.
    with contextlib.suppress(ValueError, RuntimeError):
        for number in before:
            loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        restore()
