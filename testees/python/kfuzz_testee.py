"""The protocol kfuzz-testee/1 for testees in Python: passes each request to the testee and writes the answer.

A testee calls ``serve`` with its handshake, and with a function for each operation that its library offers.
``record_json``, ``record_of``, ``to_json`` and ``from_json`` convert to and from the protocol's JSON forms.

Imports only the standard library, so that a testee contains no code of kfuzz. See testees/README.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

LARGEST_HEX_VALUE_BYTES = 64 * 1024
# A builder never says that its batch is full.
LARGEST_BATCH_BYTES = 1 << 30
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = {None: "none", 0: "create", 1: "log-append"}

# Fields that Kafka has renamed, by message and older name. The bytes are the same, and kfuzz uses the newer name.
NEWER_NAMES = {
    ("TxnOffsetCommitRequest", "generationId"): "generationIdOrMemberEpoch",
    ("StreamsGroupHeartbeatResponse", "acceptableRecoveryLag"): "acceptableRecoveryLagLegacy",
}

# The oldest Python that a driver runs in cannot evaluate these.
if TYPE_CHECKING:
    Reader = Callable[[bytes], "Iterator[tuple[dict[str, Any], int | None]]"]
    """Yields each batch in order: its JSON form, and its size in bytes (None if the library does not expose it)."""

    StreamReader = Callable[[bytes, bool, "list[tuple[int, int]]", int, "list[dict[str, Any]]"], int]
    """Reads a fetch like a consumer. Takes the bytes, whether to read committed data only, the aborted transactions as
    (producer id, first offset), the fetch offset, and a list. Appends each record that the consumer returns to the
    list. Returns the offset of the next fetch."""

    Writer = Callable[["list[dict[str, Any]]"], bytes]
    """Encodes batches, which it gets in their JSON form."""


class Codec(NamedTuple):
    """Reads and writes messages, or primitives.

    ``decode`` takes a message's name, its version and the bytes, or a primitive's name and the bytes. It returns the
    value in its JSON form, and where it ended (None if the library does not say). ``encode`` takes the same, with the
    value instead of the bytes, and returns bytes. ``rejections`` are the exceptions that the library documents for bad
    input, ``refusals`` those for values that it does not encode.
    """

    decode: Callable[..., tuple[Any, int | None]]
    encode: Callable[..., bytes]
    rejections: tuple[type[BaseException], ...]
    refusals: tuple[type[BaseException], ...] = ()


class Unsupported(Exception):
    """The library cannot do this, and the handshake has no field to say so. The answer is ``unsupported``."""


class _BadRequest(Exception):
    """The request breaks the protocol."""


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


def to_json(kind: str, value: Any) -> Any:
    """The JSON form of a value of one of Kafka's primitive types: ``int64``, ``uuid``, ``bytes``, …

    A ``uuid`` is a ``uuid.UUID``. None stands for the zero uuid, because Kafka has no null uuid.
    """
    if kind == "uuid":
        return base64.urlsafe_b64encode(value.bytes if value else bytes(16)).decode().rstrip("=")
    if value is None:
        return None
    if kind in ("int64", "varlong"):
        return str(value)
    if kind == "float64" and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return bytes(value).hex() if kind in ("bytes", "records") else value


def from_json(kind: str, value: Any) -> Any:
    """The value that ``to_json`` gives this form; the zero uuid as a ``uuid.UUID``."""
    if kind == "uuid":
        return uuid.UUID(bytes=base64.urlsafe_b64decode(value + "=="))
    if value is None:
        return None
    if kind in ("int64", "varlong"):
        return int(value)
    if kind == "float64":
        return float(value)
    return bytes.fromhex(value) if kind in ("bytes", "records") else value


def record_of(record: dict[str, Any]) -> tuple[int, int | None, bytes | None, bytes | None, list[tuple[str, Any]]]:
    """Offset, timestamp in milliseconds, key, value and headers of a record in its JSON form.

    Raises ``Unsupported`` for the key of a header that is not text, because most libraries take text only.
    """
    if any(isinstance(name, dict) for name, _ in record["headers"]):
        raise Unsupported("the key of a header is not UTF-8")
    return (
        int(record["offset"]),
        from_json("int64", record["timestamp"]),
        from_json("bytes", record["key"]),
        from_json("bytes", record["value"]),
        [(name, from_json("bytes", value)) for name, value in record["headers"]],
    )


def producer_writer(
    builder: Callable[..., Any], legacy_builder: Callable[..., Any], lacks_codec: tuple[type[Exception], ...] = ()
) -> Writer:
    """A writer with the builders of a producer, which aiokafka and kafka-python both have: of magic 2, and of 0 and 1.

    A broker puts offsets and the leader epoch into the bytes that a producer sends, without a new CRC. This writer does
    the same. Anything else that only brokers set raises ``Unsupported``. So does an exception of ``lacks_codec``, by
    which the builders say that they cannot write a codec in a format.
    """

    def write(batches: list[dict[str, Any]]) -> bytes:
        try:
            return b"".join(map(build, batches))
        except lacks_codec as error:
            raise Unsupported(str(error)) from error

    def build(batch: dict[str, Any]) -> bytes:
        records = [record_of(record) for record in batch["records"]]
        brokers = batch["control"] or batch["timestamp_type"] == "log-append" or batch["delete_horizon"] is not None
        if brokers or not records or int(batch["last_offset"]) != records[-1][0]:
            raise Unsupported("only brokers write such a batch")
        magic, codec, base_offset = batch["magic"], CODECS.index(batch["compression"]), int(batch["base_offset"])
        if magic == 2:
            made = builder(
                magic=magic,
                compression_type=codec,
                is_transactional=batch["transactional"],
                producer_id=int(batch["producer_id"]),
                producer_epoch=batch["producer_epoch"],
                base_sequence=batch["base_sequence"],
                batch_size=LARGEST_BATCH_BYTES,
            )
        else:
            made = legacy_builder(magic=magic, compression_type=codec, batch_size=LARGEST_BATCH_BYTES)
        # Only a message outside of a wrapper, and all of magic 0, have their own offset.
        relative = magic == 2 or (magic == 1 and codec)
        for offset, timestamp, key, value, headers in records:
            made.append(offset - base_offset if relative else offset, timestamp, key, value, headers)
        data = bytearray(made.build())
        if codec and not data[22 if magic == 2 else 17] & 7:
            raise Unsupported("the builder compresses only if that makes a batch smaller")
        if magic == 2:
            struct.pack_into(">q", data, 0, base_offset)
            struct.pack_into(">i", data, 12, batch["partition_leader_epoch"])
        elif codec:
            struct.pack_into(">q", data, 0, records[-1][0])
        return bytes(data)

    return write


def serve(
    handshake: dict[str, Any],
    read: Reader | None = None,
    rejections: tuple[type[BaseException], ...] = (),
    stream: StreamReader | None = None,
    *,
    write: Writer | None = None,
    messages: Codec | None = None,
    primitives: Codec | None = None,
    package: str = "",
) -> None:
    """Answer requests until the input ends. The operations are those for which the testee gives a function.

    ``rejections`` are the exceptions that the library documents for bad records. Any other exception is a fault.
    ``package`` is the library's top-level package: faults and rejections then name its innermost line as ``at``. If the
    handshake has ``panic`` among its ``outcomes``, a panic of an extension in Rust is answered so, and not as a fault.
    """
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # stdout is for the protocol only; a library may print

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message).encode() + b"\n")
        out.flush()

    handlers = _handlers(read, rejections, stream, write)
    for kind, codec in (("message", messages), ("primitive", primitives)):
        handlers |= _codec_handlers(kind, codec) if codec else {}
    panics = "panic" in handshake.get("outcomes", ())
    say({"protocol": "kfuzz-testee/1", "language": "python", "operations": list(handlers)} | handshake)
    for line in sys.stdin.buffer:
        say(_answer(line, handlers, package, panics))


class _Handler(NamedTuple):
    """Fills the answer's fields for a request, and the exceptions that are rejections."""

    fill: Callable[[dict[str, Any], dict[str, Any]], None]
    rejections: tuple[type[BaseException], ...]


def _answer(line: bytes, handlers: dict[str, _Handler], package: str, panics: bool) -> dict[str, Any]:
    try:
        request = json.loads(line)
        name = {"id": request["id"]}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return {"id": None, "outcome": "fault", "error": f"BadRequest: {describe(error)}"}
    operation = request.get("operation")
    if operation not in handlers:
        return name | {"outcome": "unsupported", "error": f"operation {operation}"}
    if request.get("role", "consumer") != "consumer":
        return name | {"outcome": "unsupported", "error": f"role {request['role']}"}
    answer: dict[str, Any] = {}
    try:
        handlers[operation].fill(request, answer)
    except (KeyboardInterrupt, SystemExit):
        raise
    except _BadRequest as error:
        return name | {"outcome": "fault", "error": f"BadRequest: {error}"}
    except Unsupported as error:
        return name | {"outcome": "unsupported", "error": str(error)}
    except BaseException as error:  # a panic in a Rust extension is not an Exception
        outcome = "rejected" if isinstance(error, handlers[operation].rejections) else "fault"
        if panics and type(error).__name__ == "PanicException":
            outcome = "panic"
        at = place_of(error, package)
        return name | {"outcome": outcome, "error": describe(error)} | ({"at": at} if at else {}) | answer
    return name | {"outcome": "accepted"} | answer


def _handlers(
    read: Reader | None, rejections: tuple[type[BaseException], ...], stream: StreamReader | None, write: Writer | None
) -> dict[str, _Handler]:
    def decode_records(request: dict[str, Any], answer: dict[str, Any]) -> None:
        assert read
        sizes: list[int | None] = []
        for batch, size in read(_data(request)):
            answer.setdefault("batches", []).append(batch)
            sizes.append(size)
        answer.setdefault("batches", [])
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes) > 0:
            answer["consumed"] = sum(known)

    def decode_stream(request: dict[str, Any], answer: dict[str, Any]) -> None:
        assert stream
        try:
            data = bytes.fromhex("".join(request["steps"]))
            committed = {"read_committed": True, "read_uncommitted": False}[request["isolation"]]
            aborted = [(int(item["producer_id"]), int(item["first_offset"])) for item in request.get("aborted", ())]
            fetch_offset = int(request.get("fetch_offset", "0"))
        except (KeyError, TypeError, ValueError) as error:
            raise _BadRequest(describe(error)) from error
        records = answer["records"] = []
        answer["next_offset"] = str(stream(data, committed, aborted, fetch_offset, records))

    def encode_records(request: dict[str, Any], answer: dict[str, Any]) -> None:
        assert write
        answer["hex"] = bytes(write(_asked(request, "batches"))).hex()

    given: list[tuple[str, Any, Callable[[dict[str, Any], dict[str, Any]], None]]] = [
        ("decode-records", read, decode_records),
        ("decode-stream", stream, decode_stream),
        ("encode-records", write, encode_records),
    ]
    return {operation: _Handler(fill, rejections) for operation, function, fill in given if function}


def _codec_handlers(kind: str, codec: Codec) -> dict[str, _Handler]:
    """The handlers for ``kind``, which is ``message`` or ``primitive``."""
    words = ("message", "version") if kind == "message" else ("primitive",)
    form, given = ("message", "body") if kind == "message" else ("value", "value")

    def decode(request: dict[str, Any], answer: dict[str, Any]) -> None:
        value, consumed = codec.decode(*(_asked(request, word) for word in words), _data(request))
        answer |= {form: value} | ({} if consumed is None else {"consumed": consumed})

    def encode(request: dict[str, Any], answer: dict[str, Any]) -> None:
        answer["hex"] = bytes(codec.encode(*(_asked(request, word) for word in (*words, given)))).hex()

    return {
        f"decode-{kind}": _Handler(decode, codec.rejections),
        f"encode-{kind}": _Handler(encode, codec.refusals),
    }


def _asked(request: dict[str, Any], name: str) -> Any:
    try:
        return request[name]
    except KeyError as error:
        raise _BadRequest(describe(error)) from error


def _data(request: dict[str, Any]) -> bytes:
    try:
        return bytes.fromhex(request["hex"])
    except (KeyError, TypeError, ValueError) as error:
        raise _BadRequest(f"hex: {describe(error)}") from error


def place_of(error: BaseException, package: str) -> str | None:
    """The library's innermost line, as ``package/path.py:12``. None if it is code that the library has generated.

    Such code has no file, and a place outside of it would be the same for most errors.
    """
    found, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename.replace("\\", "/")
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if file.startswith("<"):
            found = None
        elif package and module.partition(".")[0] == package:
            # The module's own depth says how much of the path belongs to the library.
            depth = module.count(".") + (2 if file.endswith("/__init__.py") else 1)
            found = f"{'/'.join(file.split('/')[-depth:])}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def describe(error: BaseException) -> str:
    """The type and the text of an exception, in one line."""
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
