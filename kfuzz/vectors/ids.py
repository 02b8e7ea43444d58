"""Vector ids: the register of all ids ever given, and the lookup of names and globs that users type."""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kfuzz.errors import NotRegular, UsageError
from kfuzz.files import read_small, write_whole
from kfuzz.vectors.kinds import QUESTION

# Every id ever given, one per line, with the digest of its bytes. Neither ever changes (docs/suite-policy.md).
REGISTER_FILE = "ids.txt"
DIGEST_DIGITS = 16
DIGEST = re.compile(rf"([0-9a-f]{{{DIGEST_DIGITS}}})?")
# As in schema.json.
ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)+")
REGISTER_BYTES_MAX = 16 << 20
SHOWN = 80


def registered(root: Path) -> dict[str, str]:
    """The registered ids of the suite under ``root``, with their digests ("" if a line has none)."""
    path = root / REGISTER_FILE
    lines = []
    if path.is_file():
        # A link in somebody's suite is no register.
        with contextlib.suppress(NotRegular):
            lines = read_small(path, bytes_max=REGISTER_BYTES_MAX).decode("utf-8", "replace").splitlines()
    return {name: digest for name, _, digest in (line.partition(" ") for line in lines if line)}


def register(root: Path, digests: Mapping[str, str]) -> None:
    """Add ids with their digests to the register. An id keeps the digest of its first registration."""
    content = with_digests(root, digests)
    if content is not None:
        write_whole(root / REGISTER_FILE, content)


def with_digests(root: Path, digests: Mapping[str, str]) -> bytes | None:
    """The register with these ids added, as :func:`register` writes it; None if it has all of them.

    Raises ``UsageError`` if a line of the register is not an id with a digest: written again, it would stay wrong.
    """
    before = registered(root)
    for name, digest in before.items():
        if not ID.fullmatch(name) or not DIGEST.fullmatch(digest):
            raise UsageError(
                f"{root / REGISTER_FILE}: the line {f'{name} {digest}'[:SHOWN]!r} is not an id with a digest; restore"
                " the file from an earlier version"
            )
    after = {name: before.get(name) or digests.get(name, "") for name in {*before, *digests}}
    if after == before:
        return None
    lines = (f"{name} {digest}".rstrip() for name, digest in sorted(after.items()))
    return "".join(f"{line}\n" for line in lines).encode()


def digest_of(item: Mapping[str, Any]) -> str:
    """The digest of a vector's bytes, computed from its JSON; for a stream, of all its steps in order."""
    if "recipe" in item:
        return str(item["sha256"])[:DIGEST_DIGITS]
    if "application" in item:
        # Its bytes are what Kafka says to this question.
        asked = {name: item.get(name) for name in QUESTION}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:DIGEST_DIGITS]
    digits = "\n".join(step["hex"] for step in item["steps"]) if "steps" in item else item["hex"]
    return hashlib.sha256(digits.encode()).hexdigest()[:DIGEST_DIGITS]


def matching(ids: Collection[str], globs: Iterable[str]) -> set[str]:
    """The ids that match any of the globs (``*`` also matches ``/``). The name of a folder or file of the suite matches
    all ids in it.

    Raises ``UsageError`` for a glob that matches nothing; the error suggests the most similar one.
    """
    chosen: set[str] = set()
    for glob in globs:
        fitting = set(fnmatch.filter(ids, glob)) or set(fnmatch.filter(ids, f"{glob.rstrip('/')}/*"))
        if not fitting:
            raise UsageError(f"no vector matches {glob!r}; {remedy(glob, ids)}")
        chosen |= fitting
    return chosen


def remedy(name: str, ids: Collection[str]) -> str:
    """Advice on a mistyped id or glob: "did you mean …?", or how to list the ids if nothing is similar."""
    near = _near(name, ids)
    return f"did you mean {near!r}?" if near else "`kfuzz vectors list` shows their ids"


def _near(name: str, ids: Collection[str]) -> str | None:
    """The id or glob most similar to ``name``; None if nothing is similar.

    The folder is compared first, then the last word with the ids in that folder. This avoids thousands of comparisons.
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
    """``a/b`` and ``a`` for ``a/b/c``."""
    while "/" in one:
        one = one.rpartition("/")[0]
        yield one


def _closest(word: str, known: Collection[str]) -> str | None:
    found = [word] if word in known else difflib.get_close_matches(word, sorted(known), 1)
    return found[0] if found else None
