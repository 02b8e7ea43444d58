"""Requests to a broker as bytes, its answers as values, and what its errors mean for a client."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from kfuzz.errors import KfuzzError
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message, decode, encode, read
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.messages.model import Definition, Versions
from kfuzz.wire.cursor import uvarint

__all__ = [
    "API_VERSIONS",
    "LOST",
    "BrokerError",
    "ConnectionLost",
    "ProduceForm",
    "correlation_id",
    "error_name",
    "first_error",
    "in_common",
    "request",
    "response",
]

SIZE: Final = struct.Struct(">i")
CORRELATION: Final = struct.Struct(">i")
CLIENT_ID: Final = "kfuzz"
API_VERSIONS: Final = "ApiVersions"
ANSWER_SIZE_MAX: Final = 64 << 20

# Newer versions need features that this client lacks:
# - transactions that each have their own epoch: Produce 12, EndTxn 5
# - topic ids: Produce 13, Fetch 13, DeleteTopics 6
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
    "CreateTopics": 7,
    "DeleteTopics": 5,
    "SaslHandshake": 1,
    "SaslAuthenticate": 2,
}

# Not an error of Kafka's: the connection was lost before the answer.
LOST: Final = -1000
# org.apache.kafka.common.protocol.Errors.
NAMES: Final[Mapping[int, str]] = {
    LOST: "CONNECTION_LOST",
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    4: "INVALID_FETCH_SIZE",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    11: "STALE_CONTROLLER_EPOCH",
    12: "OFFSET_METADATA_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    21: "INVALID_REQUIRED_ACKS",
    22: "ILLEGAL_GENERATION",
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    26: "INVALID_SESSION_TIMEOUT",
    27: "REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    39: "INVALID_REPLICA_ASSIGNMENT",
    40: "INVALID_CONFIG",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    50: "INVALID_TRANSACTION_TIMEOUT",
    51: "CONCURRENT_TRANSACTIONS",
    52: "TRANSACTION_COORDINATOR_FENCED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    54: "SECURITY_DISABLED",
    55: "OPERATION_NOT_ATTEMPTED",
    56: "KAFKA_STORAGE_ERROR",
    57: "LOG_DIR_NOT_FOUND",
    58: "SASL_AUTHENTICATION_FAILED",
    59: "UNKNOWN_PRODUCER_ID",
    60: "REASSIGNMENT_IN_PROGRESS",
    61: "DELEGATION_TOKEN_AUTH_DISABLED",
    62: "DELEGATION_TOKEN_NOT_FOUND",
    63: "DELEGATION_TOKEN_OWNER_MISMATCH",
    64: "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    65: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    66: "DELEGATION_TOKEN_EXPIRED",
    67: "INVALID_PRINCIPAL_TYPE",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    72: "LISTENER_NOT_FOUND",
    73: "TOPIC_DELETION_DISABLED",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    77: "STALE_BROKER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    79: "MEMBER_ID_REQUIRED",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    85: "NO_REASSIGNMENT_IN_PROGRESS",
    86: "GROUP_SUBSCRIBED_TO_TOPIC",
    87: "INVALID_RECORD",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    90: "PRODUCER_FENCED",
    91: "RESOURCE_NOT_FOUND",
    92: "DUPLICATE_RESOURCE",
    93: "UNACCEPTABLE_CREDENTIAL",
    94: "INCONSISTENT_VOTER_SET",
    95: "INVALID_UPDATE_VERSION",
    96: "FEATURE_UPDATE_FAILED",
    97: "PRINCIPAL_DESERIALIZATION_FAILURE",
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    100: "UNKNOWN_TOPIC_ID",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    103: "INCONSISTENT_TOPIC_ID",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    107: "INELIGIBLE_REPLICA",
    108: "NEW_LEADER_ELECTED",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    112: "UNSUPPORTED_ASSIGNOR",
    113: "STALE_MEMBER_EPOCH",
    114: "MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE",
    116: "UNKNOWN_CONTROLLER_ID",
    117: "UNKNOWN_SUBSCRIPTION_ID",
    118: "TELEMETRY_TOO_LARGE",
    119: "INVALID_REGISTRATION",
    120: "TRANSACTION_ABORTABLE",
    121: "INVALID_RECORD_STATE",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    124: "FENCED_STATE_EPOCH",
    125: "INVALID_VOTER_KEY",
    126: "DUPLICATE_VOTER",
    127: "VOTER_NOT_FOUND",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
DUPLICATE: Final = 46
# Batches after one that was not appended, or a broker that has forgotten the producer.
OUT_OF_ORDER: Final = (45, 59)
# The partition's leader, or a coordinator, is elsewhere or not ready.
MOVED: Final = (LOST, 3, 5, 6, 8, 13, 14, 15, 16, 41, 56, 72, 74, 75, 100)
RETRIABLE: Final = frozenset({*MOVED, 7, 19, 20, 51, 89})
# After these, a transactional producer cannot go on.
FENCED: Final = frozenset({47, 48, 49, 52, 53, 59, 90, 120})


def error_name(code: int) -> str:
    """Kafka's name of an error."""
    return NAMES.get(code, f"ERROR_{code}")


class ConnectionLost(KfuzzError):
    """The connection ended before the answer."""


class BrokerError(KfuzzError):
    """A broker answered a request with an error. ``code`` is Kafka's number of it."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""))
        self.code = code


@cache
def _definition(name: str) -> Definition:
    return catalogue().find(name)


def in_common(offered: list[Message]) -> dict[str, Versions]:
    """By API, the versions that the broker offers and this package speaks."""
    theirs = {one["apiKey"]: Versions(one["minVersion"], one["maxVersion"]) for one in offered}
    common = {}
    for api, newest in NEWEST.items():
        definition = _definition(f"{api}Request")
        if definition.api_key in theirs:
            ours = definition.valid_versions & Versions(0, newest)
            common[api] = ours & theirs[definition.api_key]
    return common


def _header(api: str, version: int, correlation: int) -> bytes:
    definition = _definition(f"{api}Request")
    values = {
        "requestApiKey": definition.api_key,
        "requestApiVersion": version,
        "correlationId": correlation,
        "clientId": CLIENT_ID,
    }
    return encode("RequestHeader", request_header_version(definition, version), values)


def request(api: str, version: int, correlation: int, values: Message) -> bytes:
    """A whole request with its size in front."""
    header = _header(api, version, correlation)
    body = encode(_definition(f"{api}Request"), version, values)
    return SIZE.pack(len(header) + len(body)) + header + body


def correlation_id(answer: bytes) -> int:
    """The number of the request that this answer, without its size in front, belongs to."""
    number: int = CORRELATION.unpack_from(answer)[0]
    return number


def response(api: str, version: int, answer: bytes) -> Message:
    """The values of an answer, without its size in front. ``MessageError`` if it cannot be read."""
    definition = _definition(f"{api}Response")
    header_version = response_header_version(definition, version)
    at = CORRELATION.size + header_version
    # After the correlation id comes the number of tagged fields. No release sends any.
    if header_version and answer[CORRELATION.size : at] != b"\0":
        at = read("ResponseHeader", header_version, answer).consumed
    return decode(definition, version, answer[at:])


class Framed(NamedTuple):
    """A request in pieces: what stands before the batch, and what stands after it."""

    before: bytes
    after: bytes


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
        body = encode(_definition("ProduceRequest"), version, values)
        self.header = _header("Produce", version, 0)
        self.compact = version in _definition("ProduceRequest").flexible_versions
        # Behind an empty batch: the ends of partition, topic and request, without tagged fields.
        self.after = bytes(3) if self.compact else b""
        length = 1 if self.compact else SIZE.size
        self.before = body[: len(body) - len(self.after) - length]

    def around(self, correlation: int, size: int) -> Framed:
        """The bytes around a batch of ``size`` bytes."""
        length = uvarint(size + 1) if self.compact else SIZE.pack(size)
        whole = len(self.header) + len(self.before) + len(length) + size + len(self.after)
        # API key and version take four bytes.
        header = b"".join((SIZE.pack(whole), self.header[:4], CORRELATION.pack(correlation), self.header[8:]))
        return Framed(b"".join((header, self.before, length)), self.after)


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
