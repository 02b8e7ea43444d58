"""The register of ids: every id that was ever given, one a line. An id in it can never vanish or come back as another.

May import kfuzz.files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kfuzz.files import read_bytes, write_whole

__all__ = ["REGISTER_FILE", "register", "registered"]

REGISTER_FILE = "ids.txt"


def registered(root: Path) -> frozenset[str]:
    """The ids that the suite under ``root`` has given; none where there is no register yet."""
    path = root / REGISTER_FILE
    return frozenset(read_bytes(path).decode().split()) if path.is_file() else frozenset()


def register(root: Path, ids: Iterable[str]) -> None:
    """Add ``ids`` to the register; what is in it stays."""
    before = registered(root)
    after = before | set(ids)
    if after != before:
        write_whole(root / REGISTER_FILE, "".join(f"{name}\n" for name in sorted(after)))
