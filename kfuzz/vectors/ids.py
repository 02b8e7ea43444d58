"""Ids of vectors: the register of those ever given, and what a name or a glob that someone types stands for."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole

__all__ = ["REGISTER_FILE", "digest_of", "matching", "register", "registered", "remedy"]

# Every id that was ever given, one a line, with the digest of its bytes: neither ever changes (docs/suite-policy.md).
REGISTER_FILE = "ids.txt"
DIGEST_DIGITS = 16


def registered(root: Path) -> dict[str, str]:
    """The ids that the suite under ``root`` has given, with their digests ("" where a line has none)."""
    path = root / REGISTER_FILE
    lines = read_bytes(path).decode().splitlines() if path.is_file() else []
    return {name: digest for name, _, digest in (line.partition(" ") for line in lines if line)}


def register(root: Path, digests: Mapping[str, str]) -> None:
    """Add ids with their digests to the register; an id keeps the digest that it was first registered with."""
    before = registered(root)
    after = {name: before.get(name) or digests.get(name, "") for name in {*before, *digests}}
    if after != before:
        lines = (f"{name} {digest}".rstrip() for name, digest in sorted(after.items()))
        write_whole(root / REGISTER_FILE, "".join(f"{line}\n" for line in lines))


def digest_of(item: Mapping[str, Any]) -> str:
    """The digest of a vector's bytes, from its JSON: of a stream, of its steps one after another."""
    if "recipe" in item:
        return str(item["sha256"])[:DIGEST_DIGITS]
    digits = "\n".join(step["hex"] for step in item["steps"]) if "steps" in item else item["hex"]
    return hashlib.sha256(digits.encode()).hexdigest()[:DIGEST_DIGITS]


def matching(ids: Collection[str], globs: Iterable[str]) -> set[str]:
    """The ids that any of the globs matches (``*`` matches ``/`` too).

    ``UsageError`` for a glob that matches none, with the one that was probably meant.
    """
    chosen: set[str] = set()
    for glob in globs:
        fitting = set(fnmatch.filter(ids, glob))
        if not fitting:
            raise UsageError(f"no vector matches {glob!r}; {remedy(glob, ids)}")
        chosen |= fitting
    return chosen


def remedy(name: str, ids: Collection[str]) -> str:
    """What to do about a mistyped id or glob: "did you mean …?", or how to see the ids where nothing is near."""
    near = _near(name, ids)
    return f"did you mean {near!r}?" if near else "`kfuzz vectors list` shows their ids"


def _near(name: str, ids: Collection[str]) -> str | None:
    """The id or glob nearest to ``name``; None where none is near.

    The folder is compared first, then the last word with the ids in that folder: not with thousands of ids.
    """
    folders = {parent for one in ids for parent in _parents(one)}
    if name.rstrip("/") in folders:
        return f"{name.rstrip('/')}/*"
    folder, _, last = name.rpartition("/")
    if folder and folder not in folders:
        near = _closest(folder, folders)
        if near is None:
            return None
        folder = near
    inside = [one for one in ids if not folder or one.startswith(f"{folder}/")]
    if any(sign in last for sign in "*?["):
        glob = f"{folder}/{last}"
        return glob if fnmatch.filter(inside, glob) else None
    word = _closest(last, {one.rpartition("/")[2] for one in inside})
    return min(one for one in inside if one.endswith(f"/{word}")) if word else None


def _parents(one: str) -> Iterator[str]:
    """``a/b`` and ``a`` of ``a/b/c``."""
    while "/" in one:
        one = one.rpartition("/")[0]
        yield one


def _closest(word: str, known: Collection[str]) -> str | None:
    found = [word] if word in known else difflib.get_close_matches(word, sorted(known), 1)
    return found[0] if found else None
