"""Requests to a broker as bytes, its answers as values, and what its errors mean for a client."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from kfuzz.broker_errors import ERROR_NAMES
from kfuzz.errors import KfuzzError, MessageError
from kfuzz.kafka import INT32_MAX
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message, decode, encode, read
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.messages.model import NONE, Versions
from kfuzz.text import foreign_text
from kfuzz.wire.io.cursor import uvarint

SIZE: Final = struct.Struct(">i")
CORRELATION: Final = struct.Struct(">i")
CLIENT_ID: Final = "kfuzz"
API_VERSIONS: Final = "ApiVersions"
ANSWER_SIZE_MAX: Final = 64 << 20
# The elements of all arrays of an answer together. A partition with three replicas has seven in Metadata.
ANSWER_ELEMENTS_MAX: Final = 200_000
# A broker that throttles for longer than this is asked again anyway. Kafka's own quotas look at the last ten seconds.
THROTTLE_MS_MAX: Final = 60_000

# The newest versions of APIs whose later ones need features that this client lacks:
# - transactions that each have their own epoch: Produce 12, EndTxn 5
# - topic ids: Produce 13, Fetch 13, DeleteTopics 6, OffsetCommit 10, OffsetFetch 10
# - several coordinators in one request: FindCoordinator 4
# - requests that only brokers send: AddPartitionsToTxn 4
# - two-phase commits: InitProducerId 6
NEWEST: Final[Mapping[str, int]] = {
    "ApiVersions": 3,
    "Produce": 11,
    "Fetch": 12,
    "EndTxn": 4,
    "FindCoordinator": 3,
    "AddPartitionsToTxn": 3,
    "InitProducerId": 4,
    "Metadata": 12,
    "UpdateFeatures": 1,
    "DeleteTopics": 5,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
}

# Not an error of Kafka's: the connection was lost before the answer.
LOST: Final = -1000
DUPLICATE: Final = 46
# Batches after one that was not appended, or a broker that has forgotten the producer.
OUT_OF_ORDER: Final = (45, 59)
# The partition's leader, or a coordinator, is elsewhere or not ready.
MOVED: Final = (LOST, 3, 5, 6, 8, 9, 13, 14, 15, 16, 41, 56, 72, 74, 75, 100)
RETRIABLE: Final = frozenset({*MOVED, 7, 19, 20, 51, 89})
# After these, a transactional producer cannot continue.
FENCED: Final = frozenset({47, 48, 49, 52, 53, 59, 90, 120})


def error_name(code: int) -> str:
    """Kafka's name of an error."""
    return "CONNECTION_LOST" if code == LOST else ERROR_NAMES.get(code, f"ERROR_{code}")


class ConnectionLost(KfuzzError):
    """The connection ended before the answer."""


class BrokerError(KfuzzError):
    """A broker answered a request with an error. ``code`` is Kafka's number of it."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(code)}" + (f" ({foreign_text(message)})" if message else ""))
        self.code = code


def spoken(api: str, offered: Mapping[int | None, Versions]) -> Versions:
    """The versions of an API that this package speaks, of those that a broker offers by the numbers of APIs."""
    definition = catalogue().find(f"{api}Request")
    ours = definition.valid_versions & Versions(0, NEWEST.get(api, INT32_MAX))
    return ours & offered.get(definition.api_key, NONE)


def _header(api: str, version: int, correlation: int) -> bytes:
    definition = catalogue().find(f"{api}Request")
    values = {
        "requestApiKey": definition.api_key,
        "requestApiVersion": version,
        "correlationId": correlation,
        "clientId": CLIENT_ID,
    }
    return encode("RequestHeader", request_header_version(definition, version), values)


def request(api: str, version: int, correlation: int, values: Message) -> bytes:
    """A whole request with its size in front."""
    return frame(api, version, correlation, encode(catalogue().find(f"{api}Request"), version, values))


def frame(api: str, version: int, correlation: int, body: bytes) -> bytes:
    """A whole request with its size in front. Its body may be any bytes, and its version any number."""
    header = _header(api, version, correlation)
    return SIZE.pack(len(header) + len(body)) + header + body


def correlation_id(answer: bytes) -> int:
    """The number of the request that this answer, without its size in front, belongs to."""
    number: int = CORRELATION.unpack_from(answer)[0]
    return number


def response(api: str, version: int, answer: bytes) -> Message:
    """The values of an answer, without its size in front. ``MessageError`` if it cannot be read."""
    definition = catalogue().find(f"{api}Response")
    header_version = response_header_version(definition, version)
    at = CORRELATION.size + header_version
    # After the correlation id comes the number of tagged fields. No release sends any.
    if header_version and answer[CORRELATION.size : at] != b"\0":
        header = read("ResponseHeader", header_version, answer, elements_max=ANSWER_ELEMENTS_MAX)
        if header.fatal is not None:
            raise MessageError(header.fatal)
        at = header.consumed
    return decode(definition, version, answer[at:], elements_max=ANSWER_ELEMENTS_MAX)


def throttle_ms(values: Message) -> int:
    """How long an answer asks the client to wait, in ms: from 0 to ``THROTTLE_MS_MAX``."""
    return min(max(int(values.get("throttleTimeMs", 0)), 0), THROTTLE_MS_MAX)


class ProduceForm:
    """Produce requests for one partition. Only the number, the sizes and the batch differ from request to request.

    So a request is encoded once, without a batch, and its bytes are used around every batch.
    """

    def __init__(self, version: int, topic: str, partition: int, acks: int, timeout_ms: int, id: str | None) -> None:
        values = {
            "transactionalId": id,
            "acks": acks,
            "timeoutMs": timeout_ms,
            "topicData": [{"name": topic, "partitionData": [{"index": partition, "records": b""}]}],
        }
        definition = catalogue().find("ProduceRequest")
        body = encode(definition, version, values)
        self.version = version
        self.header = _header("Produce", version, 0)
        self.compact = version in definition.flexible_versions
        # After an empty batch: the ends of partition, topic and request, without tagged fields.
        self.after = bytes(3) if self.compact else b""
        length = 1 if self.compact else SIZE.size
        self.before = body[: len(body) - len(self.after) - length]
        usual = {"responses": [{"name": topic, "partitionResponses": [{"index": partition}]}]}
        self._usual = encode(catalogue().find("ProduceResponse"), version, usual)

    def is_usual(self, answer: bytes) -> bool:
        """Whether an answer says that the batch was appended, and nothing else. Others must be read to know that."""
        # Offsets and the time of appending take 24 bytes. After them, the usual answer has 9 bytes of zeros.
        return (
            self.compact
            and answer[CORRELATION.size + 1 : -33] == self._usual[:-33]
            and answer[-9:] == self._usual[-9:]
            and answer[CORRELATION.size : CORRELATION.size + 1] == b"\0"
        )

    def around(self, correlation: int, batch: Any) -> list[Any]:
        """A request with a batch, as the buffers to send. The batch is a buffer of bytes."""
        size = len(batch)
        length = uvarint(size + 1) if self.compact else SIZE.pack(size)
        whole = len(self.header) + len(self.before) + len(length) + size + len(self.after)
        # API key and version take four bytes.
        header = b"".join((SIZE.pack(whole), self.header[:4], CORRELATION.pack(correlation), self.header[8:]))
        return [b"".join((header, self.before, length)), batch, self.after]


def first_error(values: Any) -> tuple[int, str | None]:
    """The first error in an answer that is not 0, with its message; (0, None) if there is none."""
    if isinstance(values, list):
        return next((found for value in values if (found := first_error(value))[0]), (0, None))
    if isinstance(values, dict):
        for name, value in values.items():
            # The errors of partitions that join a transaction are in `partitionErrorCode`.
            if value and name.lower().endswith("errorcode"):
                return value, values.get("errorMessage")
            if isinstance(value, list | dict) and (found := first_error(value))[0]:
                return found
    return 0, None
