"""The names of the paths and the contestants of each. Imports only its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks import call_work, corpus_work, kfuzz_work, message_work, replay_work
from benchmarks.measure import LAP_MS, Census, Contest, Ratio
from benchmarks.message_peers import MessagePeer
from benchmarks.message_set import SIZES, MessageSet
from benchmarks.mixed import CallCensus, MixedSet, UniformSet
from benchmarks.peers import Peer
from benchmarks.remote import Job, compare, made
from kfuzz import records
from kfuzz.records import CODECS, Codec

__all__ = ["MESSAGE_PATHS", "PATHS", "RECORD_PATHS", "Run", "run_message_path", "run_path"]

# Paths with messages of magic 0 and 1.
LEGACY_PATHS: Final = ("verdict-v0", "verdict-v1", "verdict-v1-gzip", "eager-v0", "eager-v1")
CALL_RECORDS: Final = (1, 10)
CALL_PATHS: Final = tuple(f"call-{size}{way}" for size in CALL_RECORDS for way in ("", "-iterate", "-read"))
ENCODE_CALL: Final = "encode-call-1"
ENCODE_MESSAGES: Final = ("encode-v0", "encode-v1")
LOG_PATHS: Final = ("log-100", "log-1", "log-transactional")
BROKER_PATHS: Final = ("broker-1", "broker-10", "broker-100")
CORPUS_PATHS: Final = ("verify-corpus", "verify-corpus-mixed")
REPLAY_PATH: Final = "replay"
# A broker's other operations, and the codec of their output.
WHOLE_PATHS: Final[dict[str, Codec]] = {
    "append": "none",
    "append-lz4": "lz4",
    "convert": "none",
    "compact": "none",
    "stream-isolation": "none",
}
RECORD_PATHS: Final = (
    "verdict",
    "columns",
    "lazy-records",
    "eager-records",
    "encode-records",
    "encode-columns",
    *(f"{way}-{codec}" for codec in CODECS[1:] for way in ("read", "write")),
    *LEGACY_PATHS,
    *ENCODE_MESSAGES,
    *CALL_PATHS,
    ENCODE_CALL,
    *LOG_PATHS,
    *BROKER_PATHS,
    *WHOLE_PATHS,
    *CORPUS_PATHS,
    REPLAY_PATH,
)
MESSAGE_PATHS: Final = tuple(
    f"{way}-messages-{size}" for way in ("verdict", "size", "decode", "look", "dicts", "encode") for size in SIZES
)
PATHS: Final = RECORD_PATHS + MESSAGE_PATHS

# The contestants that run in another checkout.
OLD: Final = "old"
OLD_AGAIN: Final = "old against old"
# Records in a log and batches in a set of calls: with these, a pass takes about a millisecond.
UNIFORM_RECORDS: Final = 10_000
CALLS: Final = 500
TRANSACTIONAL_BATCH_RECORDS: Final = 8


@dataclass(frozen=True)
class Run:
    """The amount of work: ``rounds`` rounds, laps of ``lap_ms``, and the ``share`` of each uniform set that is used.

    With ``old``, a checkout, kfuzz is compared with the kfuzz there, and with nothing else.
    """

    rounds: int
    lap_ms: int = LAP_MS
    share: float = 1.0
    old: Path | None = None


class _Meeting(NamedTuple):
    """A path's contestants, the contests between them, and the census that each must have."""

    jobs: dict[str, Job]
    contests: list[Contest]
    expected: Census


def run_path(path: str, mixed: MixedSet, peers: Sequence[Peer], run: Run) -> list[Ratio]:
    """The ratios of one record path, on ``mixed``; the paths of calls, roles and logs use uniform records instead.

    A corpus path generates a corpus, and removes it at the end.
    """
    if path in CORPUS_PATHS:
        with TemporaryDirectory(prefix="kfuzz-bench-") as folder:
            return _measured(path, _corpus(path, Path(folder) / "corpus", run.share), run)
    if path == REPLAY_PATH:
        if run.old is None and all(peer.name != replay_work.PEER for peer in peers):
            return []
        with TemporaryDirectory(prefix="kfuzz-bench-") as folder:
            return _measured(path, _replay(Path(folder) / "log", run.share), run)
    return _measured(path, _meeting(path, mixed, peers, run.share), run)


def _measured(path: str, meeting: _Meeting, run: Run) -> list[Ratio]:
    jobs, contests, expected = meeting
    if run.old is not None:
        ours = jobs["kfuzz"].make
        jobs = {"kfuzz": Job(ours)} | {name: Job(ours, root=run.old) for name in (OLD, OLD_AGAIN)}
        # How far two equal contestants differ is the noise in the first ratio.
        contests = [Contest("kfuzz", OLD, (OLD,)), Contest(OLD_AGAIN, OLD_AGAIN, (OLD,))]
    return compare(path, jobs, contests, expected, run.rounds, run.lap_ms)


def _meeting(path: str, mixed: MixedSet, peers: Sequence[Peer], share: float) -> _Meeting:
    way, _, rest = path.partition("-")
    if path in LEGACY_PATHS:
        version, _, asked = rest.partition("-")
        mixed = replace(mixed, magic=int(version.removeprefix("v")))
        return _Meeting(*_legacy(way, _codec(asked or "none"), mixed, peers), mixed.census)
    if path in ENCODE_MESSAGES:
        uniform = replace(_uniform(UNIFORM_RECORDS // 100, 100, share), magic=int(rest.removeprefix("v")))
        return _Meeting(*_encode(path, uniform, _callable(peers)), uniform.census)
    if path == ENCODE_CALL:
        uniform = _uniform(CALLS, 1, share)
        return _Meeting(*_encode("encode", uniform, _callable(peers)), uniform.census)
    if path in CALL_PATHS:
        size, _, asked = rest.partition("-")
        return _calls(asked or "check", _uniform(CALLS, int(size), share), peers)
    if path in LOG_PATHS:
        return _log(rest, share)
    if path in BROKER_PATHS:
        return _broker(_uniform(CALLS, int(rest), share))
    if path in WHOLE_PATHS:
        return _whole(path, share)
    if way in ("read", "write"):
        return _Meeting(*(_read if way == "read" else _write)(_codec(rest), mixed, peers), mixed.census)
    if way == "encode":
        return _Meeting(*_encode(path, mixed, peers), mixed.census)
    return _Meeting(*_uncompressed(path, mixed, peers), mixed.census)


def _codec(name: str) -> Codec:
    return next(codec for codec in CODECS if codec == name)


def _uniform(batches: int, batch_records: int, share: float) -> UniformSet:
    return UniformSet(max(1, round(batches * share)), batch_records=(batch_records, batch_records))


def run_message_path(path: str, peers: Sequence[MessagePeer], run: Run) -> list[Ratio]:
    """The ratios of one message path, on the messages of its size."""
    way, _, rest = path.partition("-messages-")
    messages = MessageSet(next(size for size in SIZES if size == rest))
    ours = {
        "verdict": message_work.verdict,
        "size": message_work.size,
        "decode": message_work.decode,
        "look": message_work.look,
        "dicts": message_work.dicts,
        "encode": message_work.encode,
    }[way]
    # A peer must decode all values to know its verdict, and must encode all bytes to know a message's size.
    theirs = {"verdict": "decode", "dicts": "decode", "size": "encode"}.get(way, way)
    jobs = {"kfuzz": Job(partial(ours, messages))}
    jobs |= {peer.name: Job(partial(made, type(peer), theirs, messages)) for peer in peers}
    contests = _against(peers)
    if way == "dicts":
        jobs["marshal"] = Job(partial(message_work.bare_dicts, messages))
        contests.insert(0, _MARSHAL)
    return _measured(path, _Meeting(jobs, contests, messages.census), run)


# The cost of the objects alone: CPython makes them from its own format, which needs no check.
_MARSHAL: Final = Contest("kfuzz", "marshal", ("marshal",))


def _against(peers: Sequence[Peer] | Sequence[MessagePeer]) -> list[Contest]:
    return [Contest("kfuzz", peer.name, (peer.name,)) for peer in peers]


def _theirs(peer: Peer, way: str, *arguments: object) -> Job:
    """The job of a peer's work with a set. A peer that starts its own processes is called in this process."""
    if peer.own_process:
        return Job(partial(getattr(peer, way), *arguments), here=True)
    return Job(partial(made, type(peer), way, *arguments))


def _uncompressed(path: str, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Job], list[Contest]]:
    # Peers have neither columns nor lazy records: for these paths they read their own records and touch no field.
    ours = {
        "verdict": kfuzz_work.verdict,
        "columns": kfuzz_work.columns,
        "lazy-records": kfuzz_work.lazy,
        "eager-records": kfuzz_work.eager,
    }[path]
    theirs = "eager" if path == "eager-records" else "verdict"
    jobs = {"kfuzz": Job(partial(ours, mixed))} | {peer.name: _theirs(peer, theirs, mixed) for peer in peers}
    contests = _against(peers)
    if path == "eager-records":
        jobs["marshal"] = Job(partial(kfuzz_work.bare_eager, mixed))
        contests.insert(0, _MARSHAL)
    return jobs, contests


def _encode(path: str, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Job], list[Contest]]:
    ours = kfuzz_work.encode_columns if path == "encode-columns" else kfuzz_work.encode
    if path in ENCODE_MESSAGES:
        ours = kfuzz_work.encode_messages
    jobs = {"kfuzz": Job(partial(ours, mixed))} | {peer.name: _theirs(peer, "encode", mixed) for peer in peers}
    return jobs, _against(peers)


def _legacy(way: str, codec: Codec, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Job], list[Contest]]:
    """Messages of magic 0 or 1, or wrappers of them. With a codec there is also its floor, as in the ``read`` paths."""
    ours = kfuzz_work.verdict if way == "verdict" else kfuzz_work.eager
    jobs = {"kfuzz": Job(partial(ours, mixed, codec))}
    contests = _against(peers)
    if codec != "none":
        jobs["kfuzz uncompressed"] = Job(partial(ours, mixed))
        jobs["bare-codec"] = Job(partial(kfuzz_work.bare_decompress, mixed, codec))
        contests.insert(0, _floor())
    return jobs | {peer.name: _theirs(peer, way, mixed, codec) for peer in peers}, contests


def _read(codec: Codec, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Job], list[Contest]]:
    """Objects from compressed fetches. The floor is the bare codec plus the same objects from uncompressed fetches."""
    return _legacy("eager", codec, mixed, peers)


def _write(codec: Codec, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Job], list[Contest]]:
    """Compressed batches from objects. Each peer is compared with kfuzz at the peer's compression level."""
    jobs = {
        "kfuzz": Job(partial(kfuzz_work.encode, mixed, codec)),
        "kfuzz uncompressed": Job(partial(kfuzz_work.encode, mixed)),
        "bare-codec": Job(partial(kfuzz_work.bare_compress, mixed, codec)),
    }
    contests = [_floor()]
    for peer in peers:
        jobs[peer.name] = _theirs(peer, "encode", mixed, codec)
        subject = "kfuzz"
        if codec in peer.levels:
            subject = f"kfuzz at level {peer.levels[codec]}"
            jobs.setdefault(subject, Job(partial(kfuzz_work.encode, mixed, codec, peer.levels[codec])))
        contests.append(Contest(subject, peer.name, (peer.name,)))
    return jobs, contests


def _floor() -> Contest:
    """The work that cannot be avoided. A ratio of 0.95 means that kfuzz adds 5 % to it."""
    return Contest("kfuzz", "bare-codec", ("bare-codec", "kfuzz uncompressed"))


def _calls(way: str, uniform: UniformSet, peers: Sequence[Peer]) -> _Meeting:
    """One call for each batch."""
    ours = {"check": call_work.call_check, "iterate": call_work.call_iterate, "read": call_work.call_read}[way]
    called = _callable(peers)
    jobs = {"kfuzz": Job(partial(ours, uniform))} | {peer.name: _theirs(peer, "call", uniform) for peer in called}
    return _Meeting(jobs, _against(called), CallCensus.of(uniform.batches, uniform.census))


def _callable(peers: Sequence[Peer]) -> list[Peer]:
    """The peers that Python can call; a JVM cannot be called from here."""
    return [peer for peer in peers if not peer.own_process]


# The cost of a role's rules, compared with a consumer's; no peer has these roles.
_AS_CONSUMER: Final = [Contest("kfuzz", "kfuzz-consumer", ("kfuzz-consumer",))]


def _log(kind: str, share: float) -> _Meeting:
    size = TRANSACTIONAL_BATCH_RECORDS if kind == "transactional" else int(kind)
    uniform = _uniform(UNIFORM_RECORDS // size, size, share)
    log = call_work.transactional_log if kind == "transactional" else call_work.plain_log
    jobs = {
        "kfuzz": Job(partial(call_work.check_log, log, uniform, "log")),
        "kfuzz-consumer": Job(partial(call_work.check_log, log, uniform, "consumer")),
    }
    return _Meeting(jobs, _AS_CONSUMER, kfuzz_work.census_of([records.encode(log(uniform))]))


def _broker(uniform: UniformSet) -> _Meeting:
    jobs = {
        "kfuzz": Job(partial(call_work.check_requests, uniform, "broker")),
        "kfuzz-consumer": Job(partial(call_work.check_requests, uniform, "consumer")),
    }
    return _Meeting(jobs, _AS_CONSUMER, CallCensus.of(uniform.batches, uniform.census))


def _corpus(path: str, out: Path, share: float) -> _Meeting:
    """What verification costs beside the verdict on the same files."""
    expected = corpus_work.make_corpus(out, path.removeprefix("verify-corpus-"), share)
    jobs = {
        "kfuzz": Job(partial(corpus_work.verify_corpus, out)),
        "kfuzz-verdict": Job(partial(corpus_work.check_corpus, out)),
    }
    return _Meeting(jobs, [Contest("kfuzz", "kfuzz-verdict", ("kfuzz-verdict",))], expected)


def _replay(out: Path, share: float) -> _Meeting:
    """A replay beside a producer that must build the batches first."""
    expected = replay_work.make_log(out, share)
    jobs = {
        "kfuzz": Job(partial(replay_work.replay_log, out)),
        "aiokafka-producer": Job(partial(replay_work.aiokafka_producer, out)),
    }
    return _Meeting(jobs, [Contest("kfuzz", "aiokafka-producer", ("aiokafka-producer",))], expected)


def _whole(path: str, share: float) -> _Meeting:
    """kfuzz against the sum of two other contestants: making the records and writing them again."""
    size = TRANSACTIONAL_BATCH_RECORDS if path == "stream-isolation" else 100
    uniform = _uniform(UNIFORM_RECORDS // size, size, share)
    codec = WHOLE_PATHS[path]
    ours = {
        "append": partial(call_work.append, uniform),
        "append-lz4": partial(call_work.append, uniform, codec),
        "convert": partial(call_work.convert, uniform),
        "compact": partial(call_work.compact, uniform),
        "stream-isolation": partial(call_work.read_committed, uniform),
    }[path]
    jobs = {
        "kfuzz": Job(ours),
        "kfuzz eager": Job(partial(kfuzz_work.eager, uniform)),
        "kfuzz encode": Job(partial(kfuzz_work.encode, uniform, codec)),
    }
    contests = [Contest("kfuzz", "kfuzz-eager-encode", ("kfuzz eager", "kfuzz encode"))]
    return _Meeting(jobs, contests, uniform.census)
