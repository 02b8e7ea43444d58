"""The paths: what kfuzz does, and beside which contestants. Imports only its neighbours."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks import avro, corpus_work, kfuzz_work, message_work, process_work, proxy_work, schema_work
from benchmarks.contestant import ROOT, Job, compare, made
from benchmarks.corpus_work import GeneratedSet
from benchmarks.measure import LAP_MS, Census, Contest, Ratio
from benchmarks.message_set import SIZES, MessageSet
from benchmarks.mixed import CallCensus, MixedSet, UniformSet
from benchmarks.peers import AioKafka, PeerMissing
from kfuzz import records
from kfuzz.corpora.workload import MIB, load
from kfuzz.records import CODECS, Codec

# The contestants that run in another checkout.
OLD: Final = "old"
OLD_AGAIN: Final = "old against old"
# Records in a log and batches in a set of calls: with these, a pass takes about a millisecond.
UNIFORM_RECORDS: Final = 10_000
CALLS: Final = 500
TRANSACTIONAL_BATCH_RECORDS: Final = 8
FILES_BYTES_MIN: Final = 4 * MIB


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
        return self.run.size or self.share(usual)

    def share(self, usual: int) -> int:
        """This run's share of a log."""
        return max(round(usual * self.run.share), FILES_BYTES_MIN)

    def uniform(self, batches: int, batch_records: int) -> UniformSet:
        return UniformSet(max(1, round(batches * self.run.share)), batch_records=(batch_records, batch_records))

    def beside(self, ours: Job, way: str, *arguments: object, others: Mapping[str, Job] = {}) -> tuple[Any, Any]:
        """The jobs of kfuzz, of ``others`` and of the peers that know ``way``, and a contest with each of them."""
        jobs = {"kfuzz": ours, **others}
        jobs |= {peer.name: partial(made, type(peer), way, *arguments) for peer in self.peers if hasattr(peer, way)}
        return jobs, [Contest("kfuzz", name, (name,)) for name in jobs if name != "kfuzz"]


def run_path(path: str, mixed: MixedSet, peers: Sequence[Any], run: Run) -> list[Ratio]:
    """The ratios of one path; ``PeerMissing`` if what it needs is not installed."""
    with ExitStack() as stack:
        meeting = PATHS[path](_Setup(mixed, peers, run, stack))
        jobs, contests = {name: (job, ROOT) for name, job in meeting.jobs.items()}, meeting.contests
        if run.old is not None:
            ours = meeting.jobs["kfuzz"]
            jobs = {"kfuzz": (ours, ROOT), OLD: (ours, run.old), OLD_AGAIN: (ours, run.old)}
            # How far two equal contestants differ is the noise in the first ratio.
            contests = [Contest("kfuzz", OLD, (OLD,)), Contest(OLD_AGAIN, OLD_AGAIN, (OLD,))]
        rounds = min(run.rounds, meeting.rounds_max)
        ratios = compare(path, jobs, contests, meeting.expected, rounds, run.lap_ms)
    bytes_each = meeting.log_bytes / meeting.expected[0]
    return [ratio._replace(mb_per_s=bytes_each / ratio.kfuzz_ns * 1000) for ratio in ratios]


def _alone(ours: Job, name: str, other: Job, *rest: Any) -> _Meeting:
    """kfuzz beside one other contestant, which is no peer."""
    return _Meeting({"kfuzz": ours, name: other}, [Contest("kfuzz", name, (name,))], *rest)


# --- records --------------------------------------------------------------------------------------------------------


def _plain(ours: Any, way: str, setup: _Setup) -> _Meeting:
    """Uncompressed batches. Peers have neither columns nor lazy records: they read their own and touch no field."""
    # The cost of the objects alone: CPython makes them from its own format, which needs no check.
    others = {"marshal": partial(kfuzz_work.bare_eager, setup.mixed)} if ours is kfuzz_work.eager else {}
    return _Meeting(*setup.beside(partial(ours, setup.mixed), way, setup.mixed, others=others), setup.mixed.census)


# The work that cannot be avoided. A ratio of 0.95 means that kfuzz adds 5 % to it.
_FLOOR: Final = Contest("kfuzz", "bare-codec", ("bare-codec", "kfuzz uncompressed"))


def _read(ours: Any, way: str, codec: Codec, magic: int, setup: _Setup) -> _Meeting:
    """Fetches of another codec or format. With a codec, the floor is its library plus the same work without it."""
    # The set of magic 2 has been made.
    mixed = setup.mixed if magic == setup.mixed.magic else replace(setup.mixed, magic=magic)
    jobs, contests = setup.beside(partial(ours, mixed, codec), way, mixed, codec)
    if codec != "none":
        jobs["kfuzz uncompressed"] = partial(ours, mixed)
        jobs["bare-codec"] = partial(kfuzz_work.bare_decompress, mixed, codec)
        contests.insert(0, _FLOOR)
    return _Meeting(jobs, contests, mixed.census)


def _write(codec: Codec, setup: _Setup) -> _Meeting:
    """Compressed batches from objects. Each peer is compared with kfuzz at the peer's compression level."""
    mixed = setup.mixed
    jobs, contests = setup.beside(partial(kfuzz_work.encode, mixed, codec), "encode", mixed, codec)
    subjects = {}
    for peer in setup.peers:
        if codec in peer.levels:
            subjects[peer.name] = f"kfuzz at level {peer.levels[codec]}"
            jobs[subjects[peer.name]] = partial(kfuzz_work.encode, mixed, codec, peer.levels[codec])
    contests = [replace(contest, subject=subjects.get(contest.peer, "kfuzz")) for contest in contests]
    jobs["kfuzz uncompressed"] = partial(kfuzz_work.encode, mixed)
    jobs["bare-codec"] = partial(kfuzz_work.bare_compress, mixed, codec)
    return _Meeting(jobs, [_FLOOR, *contests], mixed.census)


def _encode_uniform(ours: Any, batches: int, batch_records: int, magic: int, setup: _Setup) -> _Meeting:
    uniform = replace(setup.uniform(batches, batch_records), magic=magic)
    return _Meeting(*setup.beside(partial(ours, uniform), "encode_uniform", uniform), uniform.census)


def _calls(ours: Any, batch_records: int, setup: _Setup) -> _Meeting:
    """One call for each batch."""
    uniform = setup.uniform(CALLS, batch_records)
    census = CallCensus.of(uniform.batches, uniform.census)
    return _Meeting(*setup.beside(partial(ours, uniform), "call", uniform), census)


# --- roles and a broker's other operations --------------------------------------------------------------------------


def _log(transactional: bool, batch_records: int, setup: _Setup) -> _Meeting:
    """The cost of a role's rules, compared with a consumer's; no peer has these roles."""
    uniform = setup.uniform(UNIFORM_RECORDS // batch_records, batch_records)
    ours, consumer = (partial(kfuzz_work.check_log, transactional, uniform, role) for role in ("log", "consumer"))
    log = kfuzz_work.transactional_log(uniform) if transactional else uniform.record_batches
    return _alone(ours, "kfuzz-consumer", consumer, kfuzz_work.census_of([records.encode(log)]))


def _broker(batch_records: int, setup: _Setup) -> _Meeting:
    uniform = setup.uniform(CALLS, batch_records)
    ours, consumer = (partial(kfuzz_work.check_requests, uniform, role) for role in ("broker", "consumer"))
    return _alone(ours, "kfuzz-consumer", consumer, CallCensus.of(uniform.batches, uniform.census))


def _whole(ours: Any, batch_records: int, codec: Codec, setup: _Setup) -> _Meeting:
    """kfuzz against the sum of two other contestants: making the records and writing them again."""
    uniform = setup.uniform(UNIFORM_RECORDS // batch_records, batch_records)
    jobs: dict[str, Job] = {
        "kfuzz": partial(ours, uniform),
        "kfuzz eager": partial(kfuzz_work.eager, uniform),
        "kfuzz encode": partial(kfuzz_work.encode, uniform, codec),
    }
    contests = [Contest("kfuzz", "kfuzz-eager-encode", ("kfuzz eager", "kfuzz encode"))]
    return _Meeting(jobs, contests, uniform.census)


def _verify(kind: str, setup: _Setup) -> _Meeting:
    """The cost of verification beside the verdict on the same files."""
    out, size = setup.folder() / "corpus", setup.share(256 * MIB)
    workload = corpus_work.uniform(size)
    if kind == "mixed":
        workload = replace(load(corpus_work.MIXED), size=size)
    expected = corpus_work.made(out, workload)
    check = partial(corpus_work.check_corpus, out)
    return _alone(partial(corpus_work.verify_corpus, out, expected), "kfuzz-verdict", check, expected)


def _diff(setup: _Setup) -> _Meeting:
    """A log and its copy compared, beside the verdict on both."""
    folder = setup.folder()
    one = corpus_work.made(folder / "a", corpus_work.uniform(setup.share(256 * MIB)))
    shutil.copytree(folder / "a", folder / "b")
    expected = corpus_work.LogCensus(*(2 * number for number in one))
    check = partial(corpus_work.check_corpus, folder)
    return _alone(partial(corpus_work.diff_corpora, folder, expected), "kfuzz-verdict", check, expected)


def _check(batch_records: int, transactional: bool, setup: _Setup) -> _Meeting:
    """The cost of judging a whole log directory, indexes included, beside the verdict on its segments."""
    out = setup.folder() / "corpus"
    expected = corpus_work.made(out, corpus_work.checked(setup.share(256 * MIB), batch_records, transactional))
    check = partial(corpus_work.check_corpus, out)
    return _alone(partial(corpus_work.check_directory, out), "kfuzz-verdict", check, expected)


def _replay(setup: _Setup) -> _Meeting:
    """A replay beside a producer that must build the batches first."""
    if setup.run.old is None and all(peer.name != AioKafka.name for peer in setup.peers):
        raise PeerMissing(f"it is compared with {AioKafka.name}, which does not take part")
    out = setup.folder() / "log"
    records, batches, _ = corpus_work.made(out, corpus_work.uniform(setup.share(64 * MIB)))
    producer = partial(corpus_work.aiokafka_producer, out)
    expected = corpus_work.ReplayCensus(records, batches)
    return _alone(partial(corpus_work.replay_log, out), "aiokafka-producer", producer, expected)


# --- messages -------------------------------------------------------------------------------------------------------


def _messages(ours: Any, way: str, size: Any, setup: _Setup) -> _Meeting:
    """A peer must decode all values to know its verdict, and must encode all bytes to know a message's size."""
    messages = MessageSet(size)
    others = {"marshal": partial(message_work.bare_dicts, messages)} if ours is message_work.dicts else {}
    return _Meeting(*setup.beside(partial(ours, messages), way, messages, others=others), messages.census)


def _values(schema: str, name: str, other: Job, setup: _Setup) -> _Meeting:
    """Values by a schema, in memory."""
    return _alone(partial(schema_work.generate, schema), name, other, schema_work.census(schema))


# --- files and corpora ----------------------------------------------------------------------------------------------


def _make(generated: GeneratedSet, setup: _Setup) -> _Meeting:
    """The generator in memory, beside a builder with the same records, or the bare codec with the same payloads."""
    generated = replace(generated, megabytes=max(1, setup.bytes(generated.megabytes * MIB) // MIB))
    plain = replace(generated, codec="none")
    name = "bare-codec"
    other: Job = partial(kfuzz_work.bare_compress, plain, generated.codec)
    if generated.codec == "none":
        AioKafka()
        name, other = AioKafka.name, partial(made, AioKafka, "encode", generated)
    return _alone(partial(corpus_work.generate_log, generated), name, other, plain.census, len(plain.log))


def _disk(setup: _Setup) -> _Meeting:
    """A corpus on the disk beside files of zeros of the same sizes, each with fsync; by the clock.

    The zeros are written by one thread, as ``dd`` does it, and by as many as the generator has.
    """
    size = setup.bytes(1024 * MIB)
    sizes = corpus_work.log_sizes(setup.folder(), size)
    jobs: dict[str, Job] = {"kfuzz": partial(corpus_work.generate_corpus, setup.folder(), size)}
    for name, threads in (("zeros", 1), ("zeros-parallel", None)):
        jobs[name] = partial(corpus_work.write_zeros, setup.folder(), sizes, threads)
    contests = [Contest("kfuzz", name, (name,)) for name in ("zeros", "zeros-parallel")]
    return _Meeting(jobs, contests, corpus_work.Written(sum(sizes)), sum(sizes), rounds_max=5)


def _arrow(source: str, rows: str, columns: list[str] | None, setup: _Setup) -> _Meeting:
    """Arrow batches in this process, beside what Spark's Python worker does for the same rows."""
    place = setup.folder()
    log_bytes, expected = corpus_work.make_rows(place, setup.bytes(512 * MIB), rows)
    ours = partial(corpus_work.read_rows, place, source, rows, columns)
    worker = partial(corpus_work.read_rows_as_worker, place, source, rows, columns)
    return _alone(ours, "spark-worker", worker, expected, log_bytes, 3)


def _dump(mode: str, log: str, setup: _Setup) -> _Meeting:
    """``kfuzz show`` or ``kfuzz cat``, beside another tool on the same segment."""
    size = setup.bytes(1024 * MIB)
    segment, expected = process_work.make_segment(setup.folder(), log, size, mode)
    other = process_work.other_tool(mode, segment, setup.stack)
    return _alone(partial(process_work.dump, mode, segment), process_work.MODES[mode].tool, other, expected, size, 3)


def _avro(setup: _Setup) -> _Meeting:
    """``kfuzz cat`` of Avro values, beside programs with fastavro and with confluent-kafka that print the same JSON."""
    folder = setup.folder()
    size = setup.bytes(64 * MIB)
    expected = process_work.Printed(avro.make(folder, size))
    cat = [sys.executable, "-m", "kfuzz", "cat", str(folder / "orders-0"), "--schema", str(folder)]
    jobs: dict[str, Job] = {"kfuzz": partial(process_work.Command, cat)}
    for name in ("fastavro", "confluent"):
        jobs[name] = partial(process_work.Command, [sys.executable, "-m", "benchmarks.avro", name, str(folder)])
    return _Meeting(jobs, [Contest("kfuzz", name, (name,)) for name in ("fastavro", "confluent")], expected, size, 3)


def _load(setup: _Setup) -> _Meeting:
    """``kfuzz load``, beside Kafka's perf test and confluent-kafka: the CPU time of each client, with its start."""
    records = process_work.LOAD_BATCH_RECORDS * max(100, round(6896 * setup.run.share))
    jobs = process_work.loads(setup.folder(), records, setup.stack)
    contests = [Contest("kfuzz", name, (name,)) for name in jobs if name != "kfuzz"]
    return _Meeting(jobs, contests, process_work.Printed(1), records * 100, 3)


# --- the proxy ------------------------------------------------------------------------------------------------------

# Version 17 can name brokers, so an answer is held until it is whole; version 12 cannot.
_FETCH: Final = {12: proxy_work.Conversation("Fetch", 12), 17: proxy_work.Conversation("Fetch", 17)}
_PINGS: Final = {
    "delay": proxy_work.Conversation("Heartbeat", 4),
    "delay-held": proxy_work.Conversation("ApiVersions", 3),
}


def _through(work: Any, conversation: proxy_work.Conversation, setup: _Setup) -> _Meeting:
    """kfuzz's proxy that watches, beside proxies that only pass on: the CPU time of the proxy, or by how much an answer
    comes later.
    """
    jobs: dict[str, Job] = {"kfuzz": partial(work, conversation, "kfuzz")}
    for name, found in (("socat", proxy_work.socat), ("toxiproxy", proxy_work.toxiproxy)):
        with suppress(PeerMissing):
            found()
            jobs[name] = partial(work, conversation, name)
    if len(jobs) == 1:
        raise PeerMissing("neither socat nor Toxiproxy is installed; install Debian's package socat, or Go")
    contests = [Contest("kfuzz", name, (name,)) for name in jobs if name != "kfuzz"]
    return _Meeting(jobs, contests, conversation.census, len(conversation.answer))


def _batches(conversation: proxy_work.Conversation, setup: _Setup) -> _Meeting:
    """The proxy that checks all batches, beside watching and the verdict on the same bytes."""
    jobs: dict[str, Job] = {
        "kfuzz": partial(proxy_work.Relayed, conversation, "kfuzz --check-batches"),
        "kfuzz watching": partial(proxy_work.Relayed, conversation, "kfuzz"),
        "kfuzz verdict": partial(proxy_work.verdict, conversation),
    }
    contests = [Contest("kfuzz", "watching-verdict", ("kfuzz watching", "kfuzz verdict"))]
    return _Meeting(jobs, contests, conversation.census, len(conversation.answer))


def _recording(conversation: proxy_work.Conversation, setup: _Setup) -> _Meeting:
    """The proxy that records, beside the one that only watches."""
    jobs: dict[str, Job] = {
        "kfuzz": partial(proxy_work.Relayed, conversation, "kfuzz --record"),
        "kfuzz watching": partial(proxy_work.Relayed, conversation, "kfuzz"),
    }
    contests = [Contest("kfuzz", "watching", ("kfuzz watching",))]
    return _Meeting(jobs, contests, conversation.census, len(conversation.answer))


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
    "call-1": partial(_calls, kfuzz_work.call_check, 1),
    "call-1-iterate": partial(_calls, kfuzz_work.call_iterate, 1),
    "call-1-read": partial(_calls, kfuzz_work.call_read, 1),
    "call-10": partial(_calls, kfuzz_work.call_check, 10),
    "call-10-iterate": partial(_calls, kfuzz_work.call_iterate, 10),
    "call-10-read": partial(_calls, kfuzz_work.call_read, 10),
    "encode-call-1": partial(_encode_uniform, kfuzz_work.encode, CALLS, 1, 2),
    "log-100": partial(_log, False, 100),
    "log-1": partial(_log, False, 1),
    "log-transactional": partial(_log, True, TRANSACTIONAL_BATCH_RECORDS),
    "broker-1": partial(_broker, 1),
    "broker-10": partial(_broker, 10),
    "broker-100": partial(_broker, 100),
    "append": partial(_whole, kfuzz_work.append, 100, "none"),
    "append-lz4": partial(_whole, partial(kfuzz_work.append, codec="lz4"), 100, "lz4"),
    "convert": partial(_whole, kfuzz_work.convert, 100, "none"),
    "compact": partial(_whole, kfuzz_work.compact, 100, "none"),
    "stream-isolation": partial(_whole, kfuzz_work.read_committed, TRANSACTIONAL_BATCH_RECORDS, "none"),
    "verify-corpus": partial(_verify, "uniform"),
    "verify-corpus-mixed": partial(_verify, "mixed"),
    "diff": _diff,
    "check-directory": partial(_check, 100, False),
    "check-directory-1": partial(_check, 1, False),
    "check-directory-transactional": partial(_check, TRANSACTIONAL_BATCH_RECORDS, True),
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
_PAIR: Final = ["offset", "value"]
# These write logs to a disk or start processes, and only run if they are named.
FILE_PATHS: Final[Mapping[str, _Path]] = {
    "values-avro": partial(_values, schema_work.AVRO, "fastavro", schema_work.fastavro_writer),
    "values-protobuf": partial(_values, schema_work.PROTO, "protobuf", schema_work.protobuf_writer),
    **{f"{mode}-{log}": partial(_dump, mode, log) for log in process_work.LOGS for mode in process_work.MODES},
    "cat-avro": _avro,
    "load": _load,
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
    **{f"proxy-fetch-{version}": partial(_through, proxy_work.Relayed, fetch) for version, fetch in _FETCH.items()},
    "proxy-batches": partial(_batches, _FETCH[17]),
    "proxy-record": partial(_recording, _FETCH[17]),
    **{f"proxy-{name}": partial(_through, proxy_work.Delay, ping) for name, ping in _PINGS.items()},
}
PATHS: Final[Mapping[str, _Path]] = {**RECORD_PATHS, **MESSAGE_PATHS, **FILE_PATHS}
