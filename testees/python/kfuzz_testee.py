"""The protocol kfuzz-testee/1 for testees in Python: passes each request's bytes to a reader and writes the answer.

Imports only the standard library, so that a testee contains no code of kfuzz. See testees/README.md.
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
"""Yields each batch in order: its JSON form, and its size in bytes (None if the library does not expose it)."""

StreamReader = Callable[[bytes, bool, "list[tuple[int, int]]", int, "list[dict[str, Any]]"], int]
"""Reads a fetch like a consumer. Takes the bytes, whether to read committed data only, the aborted transactions as
(producer id, first offset), the fetch offset, and a list. Appends each record that the consumer returns to the list.
Returns the offset of the next fetch."""


def record_json(
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str | bytes, bytes | None]],
) -> dict[str, Any]:
    """The JSON form of one record. ``timestamp`` is in milliseconds, or None in magic 0, which has no timestamps.

    A header's key is bytes or text, as the library returns it. Text may contain bad bytes as ``surrogateescape`` codes.
    """
    return {
        "offset": str(offset),
        "timestamp": None if timestamp is None else str(timestamp),
        "key": _hex(key),
        "value": _hex_or_digest(value),
        "headers": [[_header_key(name), _hex(header)] for name, header in headers],
    }


def codec_name(codec: int) -> str:
    """Kafka's name of a codec id, or the id as text if Kafka has no such codec."""
    return CODECS[codec] if codec < len(CODECS) else str(codec)


def serve(
    handshake: dict[str, Any],
    read: Reader,
    rejections: tuple[type[BaseException], ...],
    stream: StreamReader | None = None,
) -> None:
    """Answer ``decode-records`` requests until the input ends; also ``decode-stream`` if ``stream`` is given.

    ``rejections`` are the exceptions that the library documents for bad input. Any other exception is a fault.
    """
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # stdout is for the protocol only; a library may print

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode() + b"\n")
        out.flush()

    operations = ["decode-records"] + (["decode-stream"] if stream else [])
    say({"protocol": "kfuzz-testee/1", "language": "python", "operations": operations} | handshake)
    for line in sys.stdin.buffer:
        say(_answer(line, read, rejections, stream))


def _answer(
    line: bytes, read: Reader, rejections: tuple[type[BaseException], ...], stream: StreamReader | None
) -> dict[str, Any]:
    try:
        request = json.loads(line)
        name = {"id": request["id"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return {"id": None, "outcome": "fault", "error": f"BadRequest: {_describe(error)}"}
    streams = stream is not None and request.get("operation") == "decode-stream"
    if request.get("operation") != "decode-records" and not streams:
        return name | {"outcome": "unsupported", "error": f"operation {request.get('operation')}"}
    if request.get("role", "consumer") != "consumer":
        return name | {"outcome": "unsupported", "error": f"role {request['role']}"}
    if stream is not None and streams:
        return name | _read_stream(request, stream, rejections)
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


def _read_stream(
    request: dict[str, Any], stream: StreamReader, rejections: tuple[type[BaseException], ...]
) -> dict[str, Any]:
    try:
        data = bytes.fromhex("".join(request["steps"]))
        committed = {"read_committed": True, "read_uncommitted": False}[request["isolation"]]
        aborted = [(int(item["producer_id"]), int(item["first_offset"])) for item in request.get("aborted", ())]
        fetch_offset = int(request.get("fetch_offset", "0"))
    except (KeyError, TypeError, ValueError) as error:
        return {"outcome": "fault", "error": f"BadRequest: {_describe(error)}"}
    records: list[dict[str, Any]] = []
    try:
        next_offset = stream(data, committed, aborted, fetch_offset, records)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        outcome = "rejected" if isinstance(error, rejections) else "fault"
        return {"outcome": outcome, "error": _describe(error), "records": records}
    return {"outcome": "accepted", "records": records, "next_offset": str(next_offset)}


def _describe(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")


def _header_key(name: str | bytes) -> str | dict[str, str]:
    """The key as text, or its bytes in hex if they are not UTF-8."""
    try:
        data = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        return data.decode()
    except UnicodeEncodeError:  # a surrogate that surrogateescape does not use: the library has replaced bad bytes
        return {"hex": name.encode("utf-8", "surrogatepass").hex()}
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _hex_or_digest(data: bytes | None) -> str | dict[str, Any] | None:
    if data is None or len(data) <= LARGEST_HEX_VALUE_BYTES:
        return _hex(data)
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
