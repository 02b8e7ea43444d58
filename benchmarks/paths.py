"""The paths: what kfuzz does, and beside which contestants. Imports only its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks import arrow_work, call_work, corpus_work, kfuzz_work, message_work, process_work, replay_work
from benchmarks.generation_work import GeneratedSet, generate_log
from benchmarks.measure import LAP_MS, Census, Contest, Ratio
from benchmarks.message_set import SIZES, MessageSet
from benchmarks.mixed import CallCensus, MixedSet, UniformSet
from benchmarks.peers import AioKafka, PeerMissing
from benchmarks.remote import Job, compare, made
from kfuzz import records
from kfuzz.records import CODECS, Codec

__all__ = ["FILE_PATHS", "MESSAGE_PATHS", "PATHS", "RECORD_PATHS", "Run", "run_path"]

# The contestants that run in another checkout.
OLD: Final = "old"
OLD_AGAIN: Final = "old against old"
# Records in a log and batches in a set of calls: with these, a pass takes about a millisecond.
UNIFORM_RECORDS: Final = 10_000
CALLS: Final = 500
TRANSACTIONAL_BATCH_RECORDS: Final = 8
MIB: Final = 1024 * 1024
FILES_BYTES_MIN: Final = 4 * MIB
# The one peer that is fast enough to be interesting beside the generator and a replay.
AIOKAFKA: Final = "aiokafka"


@dataclass(frozen=True)
class Run:
    """The amount of work: ``rounds`` rounds, laps of ``lap_ms``, and the ``share`` of each uniform set that is used.

    With ``old``, a checkout, kfuzz is compared with the kfuzz there, and with nothing else. Corpora are written below
    ``place``. ``size`` is that of the paths in :data:`FILE_PATHS`, in bytes; None is the usual one.
    """

    rounds: int
    lap_ms: int = LAP_MS
    share: float = 1.0
    old: Path | None = None
    place: Path | None = None
    size: int | None = None


class _Meeting(NamedTuple):
    """A path's contestants, the contests between them, and the census that each must have.

    ``log_bytes``: what a rate in MB/s counts. ``rounds_max``: for paths whose laps take seconds.
    """

    jobs: dict[str, Job]
    contests: list[Contest]
    expected: Census
    log_bytes: int = 0
    rounds_max: int = 9


class _Setup(NamedTuple):
    """The contents of a path's meeting. ``mixed`` is the set of records; ``peers`` those that can run here."""

    mixed: MixedSet
    peers: Sequence[Any]
    run: Run
    stack: ExitStack

    def folder(self) -> Path:
        """A new folder that is removed after the path."""
        return Path(self.stack.enter_context(TemporaryDirectory(prefix="kfuzz-bench-", dir=self.run.place)))

    def bytes(self, usual: int) -> int:
        """The size of a file path's log."""
        return self.run.size or max(round(usual * self.run.share), FILES_BYTES_MIN)

    def uniform(self, batches: int, batch_records: int) -> UniformSet:
        return UniformSet(max(1, round(batches * self.run.share)), batch_records=(batch_records, batch_records))

    @property
    def callable_peers(self) -> list[Any]:
        """The peers that Python can call; a JVM cannot be called from here."""
        return [peer for peer in self.peers if not peer.own_process]


def run_path(path: str, mixed: MixedSet, peers: Sequence[Any], run: Run) -> list[Ratio]:
    """The ratios of one path; ``PeerMissing`` if what it needs is not installed."""
    with ExitStack() as stack:
        meeting = PATHS[path](_Setup(mixed, peers, run, stack))
        jobs, contests = meeting.jobs, meeting.contests
        if run.old is not None:
            ours = jobs["kfuzz"].make
            jobs = {"kfuzz": Job(ours)} | {name: Job(ours, root=run.old) for name in (OLD, OLD_AGAIN)}
            # How far two equal contestants differ is the noise in the first ratio.
            contests = [Contest("kfuzz", OLD, (OLD,)), Contest(OLD_AGAIN, OLD_AGAIN, (OLD,))]
        rounds = min(run.rounds, meeting.rounds_max)
        ratios = compare(path, jobs, contests, meeting.expected, rounds, run.lap_ms)
    bytes_each = meeting.log_bytes / meeting.expected[0]
    return [ratio._replace(mb_per_s=bytes_each / ratio.kfuzz_ns * 1000) for ratio in ratios]


# --- records --------------------------------------------------------------------------------------------------------


def _theirs(peer: Any, way: str, *arguments: object) -> Job:
    """The job of a peer's work with a set. A peer that starts its own processes is called in this process."""
    if getattr(peer, "own_process", False):
        return Job(partial(getattr(peer, way), *arguments), here=True)
    return Job(partial(made, type(peer), way, *arguments))


def _beside(ours: Callable[[], Any], peers: Sequence[Any], way: str, *arguments: object) -> tuple[Any, Any]:
    """kfuzz's job and those of the peers, and a contest with each of them."""
    jobs = {"kfuzz": Job(ours)} | {peer.name: _theirs(peer, way, *arguments) for peer in peers}
    return jobs, [Contest("kfuzz", peer.name, (peer.name,)) for peer in peers]


def _alone(ours: Callable[[], Any], name: str, other: Callable[[], Any], *rest: Any) -> _Meeting:
    """kfuzz beside one other contestant, which is no peer."""
    return _Meeting({"kfuzz": Job(ours), name: Job(other)}, [Contest("kfuzz", name, (name,))], *rest)


def _plain(ours: Any, way: str, setup: _Setup) -> _Meeting:
    """Uncompressed batches. Peers have neither columns nor lazy records: they read their own and touch no field."""
    jobs, contests = _beside(partial(ours, setup.mixed), setup.peers, way, setup.mixed)
    if ours is kfuzz_work.eager:
        # The cost of the objects alone: CPython makes them from its own format, which needs no check.
        jobs["marshal"] = Job(partial(kfuzz_work.bare_eager, setup.mixed))
        contests.insert(0, Contest("kfuzz", "marshal", ("marshal",)))
    return _Meeting(jobs, contests, setup.mixed.census)


# The work that cannot be avoided. A ratio of 0.95 means that kfuzz adds 5 % to it.
_FLOOR: Final = Contest("kfuzz", "bare-codec", ("bare-codec", "kfuzz uncompressed"))


def _read(ours: Any, way: str, codec: Codec, magic: int, setup: _Setup) -> _Meeting:
    """Fetches of another codec or format. With a codec, the floor is its library plus the same work without it."""
    # The set of magic 2 has been made.
    mixed = setup.mixed if magic == setup.mixed.magic else replace(setup.mixed, magic=magic)
    jobs, contests = _beside(partial(ours, mixed, codec), setup.peers, way, mixed, codec)
    if codec != "none":
        jobs["kfuzz uncompressed"] = Job(partial(ours, mixed))
        jobs["bare-codec"] = Job(partial(kfuzz_work.bare_decompress, mixed, codec))
        contests.insert(0, _FLOOR)
    return _Meeting(jobs, contests, mixed.census)


def _write(codec: Codec, setup: _Setup) -> _Meeting:
    """Compressed batches from objects. Each peer is compared with kfuzz at the peer's compression level."""
    mixed = setup.mixed
    jobs = {
        "kfuzz": Job(partial(kfuzz_work.encode, mixed, codec)),
        "kfuzz uncompressed": Job(partial(kfuzz_work.encode, mixed)),
        "bare-codec": Job(partial(kfuzz_work.bare_compress, mixed, codec)),
    }
    contests = [_FLOOR]
    for peer in setup.peers:
        jobs[peer.name] = _theirs(peer, "encode", mixed, codec)
        subject = "kfuzz"
        if codec in peer.levels:
            subject = f"kfuzz at level {peer.levels[codec]}"
            jobs.setdefault(subject, Job(partial(kfuzz_work.encode, mixed, codec, peer.levels[codec])))
        contests.append(Contest(subject, peer.name, (peer.name,)))
    return _Meeting(jobs, contests, mixed.census)


def _encode_uniform(ours: Any, batches: int, batch_records: int, magic: int, setup: _Setup) -> _Meeting:
    uniform = replace(setup.uniform(batches, batch_records), magic=magic)
    jobs, contests = _beside(partial(ours, uniform), setup.callable_peers, "encode", uniform)
    return _Meeting(jobs, contests, uniform.census)


def _calls(ours: Any, batch_records: int, setup: _Setup) -> _Meeting:
    """One call for each batch."""
    uniform = setup.uniform(CALLS, batch_records)
    jobs, contests = _beside(partial(ours, uniform), setup.callable_peers, "call", uniform)
    return _Meeting(jobs, contests, CallCensus.of(uniform.batches, uniform.census))


# --- roles and a broker's other operations --------------------------------------------------------------------------


def _log(log: Any, batch_records: int, setup: _Setup) -> _Meeting:
    """The cost of a role's rules, compared with a consumer's; no peer has these roles."""
    uniform = setup.uniform(UNIFORM_RECORDS // batch_records, batch_records)
    ours, consumer = (partial(call_work.check_log, log, uniform, role) for role in ("log", "consumer"))
    return _alone(ours, "kfuzz-consumer", consumer, kfuzz_work.census_of([records.encode(log(uniform))]))


def _broker(batch_records: int, setup: _Setup) -> _Meeting:
    uniform = setup.uniform(CALLS, batch_records)
    ours, consumer = (partial(call_work.check_requests, uniform, role) for role in ("broker", "consumer"))
    return _alone(ours, "kfuzz-consumer", consumer, CallCensus.of(uniform.batches, uniform.census))


def _whole(ours: Any, batch_records: int, codec: Codec, setup: _Setup) -> _Meeting:
    """kfuzz against the sum of two other contestants: making the records and writing them again."""
    uniform = setup.uniform(UNIFORM_RECORDS // batch_records, batch_records)
    jobs = {
        "kfuzz": Job(partial(ours, uniform)),
        "kfuzz eager": Job(partial(kfuzz_work.eager, uniform)),
        "kfuzz encode": Job(partial(kfuzz_work.encode, uniform, codec)),
    }
    contests = [Contest("kfuzz", "kfuzz-eager-encode", ("kfuzz eager", "kfuzz encode"))]
    return _Meeting(jobs, contests, uniform.census)


def _verify(kind: str, setup: _Setup) -> _Meeting:
    """The cost of verification beside the verdict on the same files."""
    out = setup.folder() / "corpus"
    expected = corpus_work.make_corpus(out, kind, setup.run.share)
    check = partial(corpus_work.check_corpus, out)
    return _alone(partial(corpus_work.verify_corpus, out), "kfuzz-verdict", check, expected)


def _replay(setup: _Setup) -> _Meeting:
    """A replay beside a producer that must build the batches first."""
    if setup.run.old is None and all(peer.name != AIOKAFKA for peer in setup.peers):
        raise PeerMissing(f"it is compared with {AIOKAFKA}, which does not take part")
    out = setup.folder() / "log"
    expected = replay_work.make_log(out, setup.run.share)
    producer = partial(replay_work.aiokafka_producer, out)
    return _alone(partial(replay_work.replay_log, out), "aiokafka-producer", producer, expected)


# --- messages -------------------------------------------------------------------------------------------------------


def _messages(ours: Any, way: str, size: Any, setup: _Setup) -> _Meeting:
    """A peer must decode all values to know its verdict, and must encode all bytes to know a message's size."""
    messages = MessageSet(size)
    jobs, contests = _beside(partial(ours, messages), setup.peers, way, messages)
    if ours is message_work.dicts:
        jobs["marshal"] = Job(partial(message_work.bare_dicts, messages))
        contests.insert(0, Contest("kfuzz", "marshal", ("marshal",)))
    return _Meeting(jobs, contests, messages.census)


# --- files and corpora ----------------------------------------------------------------------------------------------


def _make(generated: GeneratedSet, setup: _Setup) -> _Meeting:
    """The generator in memory, beside a builder with the same records, or the bare codec with the same payloads."""
    generated = replace(generated, megabytes=max(1, setup.bytes(generated.megabytes * MIB) // MIB))
    plain = replace(generated, codec="none")
    ours = partial(generate_log, generated)
    if generated.codec == "none":
        AioKafka()
        builder = partial(made, AioKafka, "encode", generated)
        return _alone(ours, AIOKAFKA, builder, plain.census, len(plain.log))
    codec = partial(kfuzz_work.bare_compress, plain, generated.codec)
    return _alone(ours, "bare-codec", codec, plain.census, len(plain.log))


def _disk(setup: _Setup) -> _Meeting:
    """A corpus on the disk beside files of zeros of the same sizes, each with fsync; by the clock.

    The zeros are written by one thread, as ``dd`` does it, and by as many as the generator has.
    """
    size = setup.bytes(1024 * MIB)
    sizes = corpus_work.log_sizes(setup.folder(), size)
    jobs = {"kfuzz": Job(partial(corpus_work.generate_corpus, setup.folder(), size))}
    for name, threads in (("zeros", 1), ("zeros-parallel", None)):
        jobs[name] = Job(partial(corpus_work.write_zeros, setup.folder(), sizes, threads))
    contests = [Contest("kfuzz", name, (name,)) for name in ("zeros", "zeros-parallel")]
    return _Meeting(jobs, contests, corpus_work.Written(sum(sizes)), sum(sizes), rounds_max=5)


def _arrow(source: str, rows: str, columns: tuple[str, ...] | None, setup: _Setup) -> _Meeting:
    """Arrow batches in this process, beside what Spark's Python worker does for the same rows."""
    place = setup.folder()
    log_bytes, expected = arrow_work.make_corpus(place, setup.bytes(512 * MIB), rows)
    ours = partial(arrow_work.read, place, source, rows, columns)
    worker = partial(arrow_work.read_as_worker, place, source, rows, columns)
    return _alone(ours, "spark-worker", worker, expected, log_bytes, 3)


def _dump(mode: str, log: str, setup: _Setup) -> _Meeting:
    """``kfuzz show`` or ``kfuzz cat``, beside another tool on the same segment."""
    size = setup.bytes(1024 * MIB)
    segment, expected = process_work.make_segment(setup.folder(), log, size, mode)
    other = process_work.other_tool(mode, segment, setup.stack)
    return _alone(partial(process_work.dump, mode, segment), process_work.MODES[mode].tool, other, expected, size, 3)


# --- the table ------------------------------------------------------------------------------------------------------

_Path = Callable[[_Setup], _Meeting]

RECORD_PATHS: Final[Mapping[str, _Path]] = {
    "verdict": partial(_plain, kfuzz_work.verdict, "verdict"),
    "columns": partial(_plain, kfuzz_work.columns, "verdict"),
    "lazy-records": partial(_plain, kfuzz_work.lazy, "verdict"),
    "eager-records": partial(_plain, kfuzz_work.eager, "eager"),
    "encode-records": partial(_plain, kfuzz_work.encode, "encode"),
    "encode-columns": partial(_plain, kfuzz_work.encode_columns, "encode"),
    **{
        name: path
        for codec in CODECS[1:]
        for name, path in (
            (f"read-{codec}", partial(_read, kfuzz_work.eager, "eager", codec, 2)),
            (f"write-{codec}", partial(_write, codec)),
        )
    },
    "verdict-v0": partial(_read, kfuzz_work.verdict, "verdict", "none", 0),
    "verdict-v1": partial(_read, kfuzz_work.verdict, "verdict", "none", 1),
    "verdict-v1-gzip": partial(_read, kfuzz_work.verdict, "verdict", "gzip", 1),
    "eager-v0": partial(_read, kfuzz_work.eager, "eager", "none", 0),
    "eager-v1": partial(_read, kfuzz_work.eager, "eager", "none", 1),
    "encode-v0": partial(_encode_uniform, kfuzz_work.encode_messages, UNIFORM_RECORDS // 100, 100, 0),
    "encode-v1": partial(_encode_uniform, kfuzz_work.encode_messages, UNIFORM_RECORDS // 100, 100, 1),
    "call-1": partial(_calls, call_work.call_check, 1),
    "call-1-iterate": partial(_calls, call_work.call_iterate, 1),
    "call-1-read": partial(_calls, call_work.call_read, 1),
    "call-10": partial(_calls, call_work.call_check, 10),
    "call-10-iterate": partial(_calls, call_work.call_iterate, 10),
    "call-10-read": partial(_calls, call_work.call_read, 10),
    "encode-call-1": partial(_encode_uniform, kfuzz_work.encode, CALLS, 1, 2),
    "log-100": partial(_log, call_work.plain_log, 100),
    "log-1": partial(_log, call_work.plain_log, 1),
    "log-transactional": partial(_log, call_work.transactional_log, TRANSACTIONAL_BATCH_RECORDS),
    "broker-1": partial(_broker, 1),
    "broker-10": partial(_broker, 10),
    "broker-100": partial(_broker, 100),
    "append": partial(_whole, call_work.append, 100, "none"),
    "append-lz4": partial(_whole, partial(call_work.append, codec="lz4"), 100, "lz4"),
    "convert": partial(_whole, call_work.convert, 100, "none"),
    "compact": partial(_whole, call_work.compact, 100, "none"),
    "stream-isolation": partial(_whole, call_work.read_committed, TRANSACTIONAL_BATCH_RECORDS, "none"),
    "verify-corpus": partial(_verify, "uniform"),
    "verify-corpus-mixed": partial(_verify, "mixed"),
    "replay": _replay,
}
MESSAGE_PATHS: Final[Mapping[str, _Path]] = {
    f"{name}-messages-{size}": partial(_messages, ours, way, size)
    for name, ours, way in (
        ("verdict", message_work.verdict, "decode"),
        ("size", message_work.size, "encode"),
        ("decode", message_work.decode, "decode"),
        ("look", message_work.look, "look"),
        ("dicts", message_work.dicts, "decode"),
        ("encode", message_work.encode, "encode"),
    )
    for size in SIZES
}
_PAIR: Final = ("offset", "value")
# These write logs to a disk or start processes, and only run if they are named.
FILE_PATHS: Final[Mapping[str, _Path]] = {
    **{f"{mode}-{log}": partial(_dump, mode, log) for log in process_work.LOGS for mode in process_work.MODES},
    "make-uncompressed": partial(_make, GeneratedSet()),
    "make-batches-of-1": partial(_make, GeneratedSet(each=1)),
    "make-magic-1": partial(_make, GeneratedSet(magic=1)),
    **{f"make-text-{codec}": partial(_make, GeneratedSet(codec=codec, kind="text")) for codec in CODECS[1:]},
    "make-random-lz4": partial(_make, GeneratedSet(codec="lz4")),
    "make-random-zstd": partial(_make, GeneratedSet(codec="zstd")),
    "disk": _disk,
    "arrow-log": partial(_arrow, "log", "records", None),
    "arrow-log-offset-value": partial(_arrow, "log", "records", _PAIR),
    "arrow-records": partial(_arrow, "generated", "records", None),
    "arrow-records-offset-value": partial(_arrow, "generated", "records", _PAIR),
    "arrow-batches": partial(_arrow, "generated", "batches", None),
}
PATHS: Final[Mapping[str, _Path]] = {**RECORD_PATHS, **MESSAGE_PATHS, **FILE_PATHS}
