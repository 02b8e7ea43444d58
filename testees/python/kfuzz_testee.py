"""The protocol kfuzz-testee/1 for testees written in Python: hands each request's bytes to a reader and answers for it.

Imports the standard library only, so that a testee carries nothing of kfuzz. See testees/README.md.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

LARGEST_HEX_VALUE_BYTES = 64 * 1024
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = {None: "none", 0: "create", 1: "log-append"}

Reader = Callable[[bytes], Iterator[tuple[dict[str, Any], "int | None"]]]
"""Yields for each batch, in order, its JSON form and its size in bytes (None where the library does not tell)."""


def record_json(
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> dict[str, Any]:
    """The JSON form of one record; ``timestamp`` is in milliseconds, None for a format without timestamps (magic 0)."""
    return {
        "offset": str(offset),
        "timestamp": None if timestamp is None else str(timestamp),
        "key": _hex(key),
        "value": _hex_or_digest(value),
        "headers": [[name, _hex(header)] for name, header in headers],
    }


def codec_name(codec: int) -> str:
    """Kafka's name of a codec id, or the number as text where Kafka knows none."""
    return CODECS[codec] if codec < len(CODECS) else str(codec)


def serve(handshake: dict[str, Any], read: Reader, rejections: tuple[type[BaseException], ...]) -> None:
    """Answer ``decode-records`` requests until the input ends.

    ``rejections`` are the errors that the library documents for bad input; any other that escapes is a fault.
    """
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # stdout belongs to the protocol, whatever a library prints

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode() + b"\n")
        out.flush()

    say({"protocol": "kfuzz-testee/1", "language": "python", "operations": ["decode-records"]} | handshake)
    for line in sys.stdin.buffer:
        say(_answer(line, read, rejections))


def _answer(line: bytes, read: Reader, rejections: tuple[type[BaseException], ...]) -> dict[str, Any]:
    try:
        request = json.loads(line)
        name = {"id": request["id"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return {"id": None, "outcome": "fault", "error": f"BadRequest: {_describe(error)}"}
    if request.get("operation") != "decode-records":
        return name | {"outcome": "unsupported", "error": f"operation {request.get('operation')}"}
    if request.get("role", "consumer") != "consumer":
        return name | {"outcome": "unsupported", "error": f"role {request['role']}"}
    try:
        data = bytes.fromhex(request["hex"])
    except (KeyError, TypeError, ValueError) as error:
        return name | {"outcome": "fault", "error": f"BadRequest: hex: {_describe(error)}"}
    return name | _read(data, read, rejections)


def _read(data: bytes, read: Reader, rejections: tuple[type[BaseException], ...]) -> dict[str, Any]:
    batches: list[dict[str, Any]] = []
    sizes: list[int | None] = []
    try:
        for batch, size in read(data):
            batches.append(batch)
            sizes.append(size)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in a Rust extension is not an Exception
        outcome = "rejected" if isinstance(error, rejections) else "fault"
        return {"outcome": outcome, "error": _describe(error)} | ({"batches": batches} if batches else {})
    answer: dict[str, Any] = {"outcome": "accepted", "batches": batches}
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) > 0:
        answer["consumed"] = sum(known)
    return answer


def _describe(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _hex_or_digest(data: bytes | None) -> str | dict[str, Any] | None:
    if data is None or len(data) <= LARGEST_HEX_VALUE_BYTES:
        return _hex(data)
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
