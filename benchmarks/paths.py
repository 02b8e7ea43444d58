"""The paths by the names that the results have, and who meets whom on each. Imports its neighbours only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks import kfuzz_work, message_work
from benchmarks.measure import Contest, Ratio, Work, measure
from benchmarks.message_peers import MessagePeer
from benchmarks.message_set import SIZES, MessageSet
from benchmarks.mixed import MixedSet
from benchmarks.peers import Peer
from kfuzz.records import CODECS, Codec

__all__ = ["MESSAGE_PATHS", "PATHS", "RECORD_PATHS", "run_message_path", "run_path"]

# Of the formats before magic 2.
LEGACY_PATHS: Final = ("verdict-v0", "verdict-v1", "verdict-v1-gzip", "eager-v0", "eager-v1")
RECORD_PATHS: Final = (
    "verdict",
    "columns",
    "lazy-records",
    "eager-records",
    "encode-records",
    "encode-columns",
    *(f"{way}-{codec}" for codec in CODECS[1:] for way in ("read", "write")),
    *LEGACY_PATHS,
)
MESSAGE_PATHS: Final = tuple(
    f"{way}-messages-{size}" for way in ("verdict", "size", "decode", "look", "dicts", "encode") for size in SIZES
)
PATHS: Final = RECORD_PATHS + MESSAGE_PATHS


def run_path(path: str, mixed: MixedSet, peers: Sequence[Peer], rounds: int) -> list[Ratio]:
    """The ratios of one path of records on ``mixed``."""
    way, _, rest = path.partition("-")
    codec: Codec
    if path in LEGACY_PATHS:
        version, _, asked = rest.partition("-")
        mixed = replace(mixed, magic=int(version.removeprefix("v")))
        codec = next(codec for codec in CODECS if codec == (asked or "none"))
        works, contests = _legacy(way, codec, mixed, peers)
    elif way in ("read", "write"):
        codec = next(codec for codec in CODECS if codec == rest)
        works, contests = (_read if way == "read" else _write)(codec, mixed, peers)
    else:
        works, contests = _uncompressed(path, mixed, peers)
    return measure(path, works, contests, mixed.census, rounds)


def run_message_path(path: str, peers: Sequence[MessagePeer], rounds: int) -> list[Ratio]:
    """The ratios of one path on the messages of its size."""
    way, _, rest = path.partition("-messages-")
    messages = MessageSet(next(size for size in SIZES if size == rest))
    ours = {
        "verdict": message_work.verdict,
        "size": message_work.size,
        "decode": message_work.decode,
        "look": message_work.look,
        "dicts": message_work.dicts,
        "encode": message_work.encode,
    }[way](messages)
    theirs = [_of_peer(way, peer, messages) for peer in peers]
    works: dict[str, Work] = {"kfuzz": ours}
    works |= {peer.name: work for peer, work in zip(peers, theirs, strict=True)}
    return measure(path, works, _against(peers), messages.census, rounds)


def _of_peer(way: str, peer: MessagePeer, messages: MessageSet) -> Work:
    """It has a verdict, and the size of a message that it got, only once it has all values; and the size of one that it
    is to send only once it has all bytes.
    """
    if way == "look":
        return peer.look(messages)
    return peer.encode(messages) if way in ("encode", "size") else peer.decode(messages)


def _against(peers: Sequence[Peer] | Sequence[MessagePeer]) -> list[Contest]:
    return [Contest("kfuzz", peer.name, (peer.name,)) for peer in peers]


def _uncompressed(path: str, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Work], list[Contest]]:
    # What each side does. A peer without columns reads its own records and looks at none; one without lazy records too.
    ours: Work
    if path in ("verdict", "columns", "lazy-records"):
        read = {"verdict": kfuzz_work.verdict, "columns": kfuzz_work.columns, "lazy-records": kfuzz_work.lazy}[path]
        ours, theirs = read(mixed.fetches()), [peer.verdict(mixed) for peer in peers]
    elif path == "eager-records":
        ours, theirs = kfuzz_work.eager(mixed.fetches()), [peer.eager(mixed) for peer in peers]
    else:
        write = kfuzz_work.encode_columns if path == "encode-columns" else kfuzz_work.encode
        ours, theirs = write(mixed), [peer.encode(mixed) for peer in peers]
    works = {"kfuzz": ours} | {peer.name: work for peer, work in zip(peers, theirs, strict=True)}
    return works, _against(peers)


def _legacy(way: str, codec: Codec, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Work], list[Contest]]:
    """Messages of magic 0 or 1, or wrappers of them; a codec has its floor, as in the ``read`` paths."""
    ours = kfuzz_work.verdict if way == "verdict" else kfuzz_work.eager
    works: dict[str, Work] = {"kfuzz": ours(mixed.fetches(codec))}
    contests = _against(peers)
    if codec != "none":
        works["kfuzz uncompressed"] = ours(mixed.fetches())
        works["bare-codec"] = kfuzz_work.bare_decompress(mixed, codec)
        contests.insert(0, _floor())
    for peer in peers:
        works[peer.name] = (peer.verdict if way == "verdict" else peer.eager)(mixed, codec)
    return works, contests


def _read(codec: Codec, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Work], list[Contest]]:
    """Objects from compressed fetches; the floor is the bare codec and the same objects from uncompressed ones."""
    works: dict[str, Work] = {
        "kfuzz": kfuzz_work.eager(mixed.fetches(codec)),
        "kfuzz uncompressed": kfuzz_work.eager(mixed.fetches()),
        "bare-codec": kfuzz_work.bare_decompress(mixed, codec),
    }
    works |= {peer.name: peer.eager(mixed, codec) for peer in peers}
    return works, [_floor(), *_against(peers)]


def _write(codec: Codec, mixed: MixedSet, peers: Sequence[Peer]) -> tuple[dict[str, Work], list[Contest]]:
    """Compressed batches from objects, each peer against kfuzz at the peer's own compression level."""
    works: dict[str, Work] = {
        "kfuzz": kfuzz_work.encode(mixed, codec),
        "kfuzz uncompressed": kfuzz_work.encode(mixed),
        "bare-codec": kfuzz_work.bare_compress(mixed, codec),
    }
    contests = [_floor()]
    for peer in peers:
        works[peer.name] = peer.encode(mixed, codec)
        subject = "kfuzz"
        if codec in peer.levels:
            subject = f"kfuzz at level {peer.levels[codec]}"
            works.setdefault(subject, kfuzz_work.encode(mixed, codec, peer.levels[codec]))
        contests.append(Contest(subject, peer.name, (peer.name,)))
    return works, contests


def _floor() -> Contest:
    """What the work cannot do without: 0.95 here is the 5 % that a container may cost."""
    return Contest("kfuzz", "bare-codec", ("bare-codec", "kfuzz uncompressed"))
