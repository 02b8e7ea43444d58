"""What a differential keeps of requests that differ, and how it tells of whatever does. Imports ``kfuzz.files``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kfuzz.files import write_whole

__all__ = ["keep_requests", "told"]


def keep_requests(
    requests: Iterable[tuple[int, Mapping[str, Any]]], what: str, directory: Path, *, seed: int
) -> list[Path]:
    """Write each request, by its number, so that a testee can be asked again; returns the files in order."""
    files = []
    for number, request in requests:
        files.append(directory / f"seed-{seed}-{what}-{number}.json")
        write_whole(files[-1], json.dumps({"id": what, **request}, indent=2, sort_keys=True) + "\n")
    return files


def told(reasons: Sequence[str], files: Sequence[Path], *, shown: int) -> list[str]:
    """The first ``shown`` of what differs, each with its file, and how many more there are."""
    made = [f"{reason} ({file})" for reason, file in list(zip(reasons, files, strict=True))[:shown]]
    if len(reasons) > shown:
        made.append(f"… and {len(reasons) - shown} more in {files[0].parent}")
    return made
