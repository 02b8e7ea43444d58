"""A broker on the loopback address that keeps what it is sent, and makes the trouble that a test asks for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kfuzz import messages, records
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.records import RecordBatch

APIS = {
    definition.api_key: definition
    for definition in catalogue().messages.values()
    if definition.kind == "request" and definition.api_key >= 0
}
OFFERED = {
    "ApiVersions": (0, 4),
    "Produce": (3, 13),
    "Metadata": (0, 13),
    "CreateTopics": (2, 7),
    "InitProducerId": (0, 5),
    "AddPartitionsToTxn": (0, 5),
    "EndTxn": (0, 5),
    "FindCoordinator": (0, 6),
    "SaslHandshake": (0, 1),
    "SaslAuthenticate": (0, 2),
}
UNSUPPORTED_VERSION = 35
OUT_OF_ORDER = 45
DUPLICATE = 46
CONCURRENT_TRANSACTIONS = 51
# A broker may do this instead of an answer: close the connection, close it after it has appended the batch, nothing.
HANG_UP = "hang up"
LATE_HANG_UP = "hang up late"
SILENCE = "silence"

# A test may do this with a produced batch before the broker looks at it: an error code, one of these, or None.
Trouble = Callable[[str, int, int], int | str | None]


def _framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


@dataclass
class FakeBroker:
    """Use it in a ``with`` block. ``topics``: the number of partitions by topic.

    - ``trouble(topic, partition, number)`` is asked for each batch; ``number`` counts from 0 for each partition.
    - ``rewrite(api, values)`` gets each answer before it is encoded, and may return other values, or the bytes to send
      instead of a frame.
    - ``throttle_ms``: in each answer to Produce. ``pause_s``: after each byte of an answer.
    - ``receive_bytes``: how much is read at a time.
    - ``versions`` replaces what is offered.
    """

    topics: dict[str, int] = field(default_factory=dict)
    trouble: Trouble = lambda topic, partition, number: None
    rewrite: Callable[[str, Any], Any] = lambda api, values: values
    throttle_ms: int = 0
    pause_s: float = 0
    receive_bytes: int = 1 << 20
    versions: dict[str, tuple[int, int]] = field(default_factory=lambda: dict(OFFERED))
    context: ssl.SSLContext | None = None
    login: tuple[str, str] | None = None
    # The broker's contents, and what it was asked.
    batches: dict[tuple[str, int], list[RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    raw: dict[tuple[str, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    events: list[tuple[Any, ...]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    connections: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._sequences: dict[tuple[int, int, str, int], int] = {}
        self._open: set[str] = set()
        self._ids: dict[str, tuple[int, int]] = {}
        self._next_id = 1000
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> FakeBroker:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._server.accept()
                self.connections += 1
                self._sockets.append(one)
                self._start(self._serve, one)

    def _serve(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError, ConnectionError):
            if self.context is not None:
                one = self.context.wrap_socket(one, server_side=True)
                self._sockets.append(one)
            for frame in self._frames(one):
                answer = self._answer(frame)
                if answer == HANG_UP:
                    one.shutdown(socket.SHUT_RDWR)
                    one.close()
                    return
                if isinstance(answer, bytes):
                    for piece in map(bytes, zip(answer)) if self.pause_s else (answer,):
                        one.sendall(piece)
                        time.sleep(self.pause_s)

    def _frames(self, one: socket.socket) -> Iterator[bytes]:
        held = bytearray()
        while True:
            data = one.recv(self.receive_bytes)
            if not data:
                return
            held += data
            while len(held) >= 4 and len(held) >= 4 + (size := struct.unpack_from(">i", held)[0]):
                frame = bytes(held[4 : 4 + size])
                del held[: 4 + size]
                yield frame

    def _answer(self, frame: bytes) -> bytes | str | None:
        key, version, number = struct.unpack_from(">hhi", frame)
        definition = APIS[key]
        api = definition.name.removesuffix("Request")
        with self._lock:
            self.asked[api] += 1
            low, high = self.versions.get(api, (0, -1))
            if not low <= version <= high:
                if api != "ApiVersions":
                    return HANG_UP
                answer: Any = {"errorCode": UNSUPPORTED_VERSION, "apiKeys": []}
                return _framed(struct.pack(">i", number) + messages.encode("ApiVersionsResponse", 0, answer))
            header = messages.read("RequestHeader", request_header_version(definition, version), frame)
            values = messages.decode(definition, version, frame[header.consumed :])
            answer = getattr(self, f"_{api}")(values, version)
        if answer is None or answer == HANG_UP:
            return answer
        answer = self.rewrite(api, answer)
        if isinstance(answer, bytes):
            return answer
        response = catalogue().find(f"{api}Response")
        answered = {"correlationId": number}
        head = messages.encode("ResponseHeader", response_header_version(response, version), answered)
        return _framed(head + messages.encode(response, version, answer))

    def _ApiVersions(self, values: Any, version: int) -> Any:
        offered = [
            {"apiKey": catalogue().find(f"{api}Request").api_key, "minVersion": low, "maxVersion": high}
            for api, (low, high) in self.versions.items()
        ]
        return {"errorCode": 0, "apiKeys": offered}

    def _SaslHandshake(self, values: Any, version: int) -> Any:
        offered = ["PLAIN"] if self.login else ["GSSAPI"]
        return {"errorCode": 0 if values["mechanism"] in offered else 33, "mechanisms": offered}

    def _SaslAuthenticate(self, values: Any, version: int) -> Any:
        assert self.login
        # Before the user may be another one, for whom the user acts.
        _, _, words = values["authBytes"].partition(b"\0")
        good = words == "\0".join(self.login).encode()
        return {"errorCode": 0 if good else 58, "errorMessage": None if good else "no such user", "authBytes": b""}

    def _Metadata(self, values: Any, version: int) -> Any:
        topics = []
        for topic in values["topics"]:
            count = self.topics.get(topic["name"], 0)
            held = {"leaderId": 7, "leaderEpoch": 0, "replicaNodes": [7], "isrNodes": [7]}
            partitions = [{"partitionIndex": index, **held} for index in range(count)]
            topics.append(
                {"errorCode": 0 if topic["name"] in self.topics else 3, "name": topic["name"], "partitions": partitions}
            )
        brokers = [{"nodeId": 7, "host": "127.0.0.1", "port": self.port, "rack": None}]
        return {"brokers": brokers, "clusterId": "fake", "controllerId": 7, "topics": topics}

    def _CreateTopics(self, values: Any, version: int) -> Any:
        for topic in values["topics"]:
            self.topics[topic["name"]] = topic["numPartitions"]
            self.events.append(("create", topic["name"], topic["numPartitions"]))
        return {"topics": [{"name": topic["name"], "errorCode": 0} for topic in values["topics"]]}

    def _FindCoordinator(self, values: Any, version: int) -> Any:
        return {"errorCode": 0, "nodeId": 7, "host": "127.0.0.1", "port": self.port}

    def _InitProducerId(self, values: Any, version: int) -> Any:
        name = values["transactionalId"]
        if name is not None and name in self._ids:
            made = self._ids[name][0], self._ids[name][1] + 1
        else:
            self._next_id += 1
            made = self._next_id, 0
        if name is not None:
            self._ids[name] = made
            if name in self._open:
                self._open.remove(name)
                self.events.append(("abort", name))
        return {"errorCode": 0, "producerId": made[0], "producerEpoch": made[1]}

    def _AddPartitionsToTxn(self, values: Any, version: int) -> Any:
        name = values["v3AndBelowTransactionalId"]
        # The markers of the transaction before are not written yet.
        error = CONCURRENT_TRANSACTIONS if self.asked["AddPartitionsToTxn"] % 2 else 0
        if not error:
            self._open.add(name)
            self.events.append(("begin", name))
        [topic] = values["v3AndBelowTopics"]
        added = [{"partitionIndex": index, "partitionErrorCode": error} for index in topic["partitions"]]
        return {"resultsByTopicV3AndBelow": [{"name": topic["name"], "resultsByPartition": added}]}

    def _EndTxn(self, values: Any, version: int) -> Any:
        name = values["transactionalId"]
        if name not in self._open:
            return {"errorCode": 48}
        self._open.remove(name)
        self.events.append(("commit" if values["committed"] else "abort", name))
        return {"errorCode": 0}

    def _Produce(self, values: Any, version: int) -> Any:
        [topic] = values["topicData"]
        [partition] = topic["partitionData"]
        place = topic["name"], partition["index"]
        number = self._numbers[place]
        self._numbers[place] += 1
        told = self.trouble(*place, number)
        if told == HANG_UP:
            return HANG_UP
        if told == SILENCE:
            return None
        error = told if isinstance(told, int) else self._append(place, partition["records"], values["transactionalId"])
        if told == LATE_HANG_UP:
            return HANG_UP
        if values["acks"] == 0:
            return None
        answered = {"index": partition["index"], "errorCode": error, "baseOffset": 0, "logStartOffset": 0}
        return {
            "responses": [{"name": topic["name"], "partitionResponses": [answered]}],
            "throttleTimeMs": self.throttle_ms,
        }

    def _append(self, place: tuple[str, int], data: bytes, name: str | None) -> int:
        limits = records.Topic(max_message_bytes=1 << 30, max_request_bytes=1 << 30)
        verdict = records.check(data, role="broker", topic=limits)
        if verdict.fatal:
            return 2 if verdict.fatal.code == "crc-mismatch" else 87
        [batch] = records.decode(data)
        if batch.transactional and (name is None or name not in self._open):
            return 48
        if batch.producer_id >= 0:
            if batch.producer_id <= 1000:
                return 59
            who = batch.producer_id, batch.producer_epoch, *place
            # As Kafka: the first batch of a producer may have any sequence.
            due = self._sequences.get(who, batch.base_sequence)
            if batch.base_sequence < due:
                return DUPLICATE
            if batch.base_sequence > due:
                return OUT_OF_ORDER
            self._sequences[who] = due + verdict.record_count
        self.batches[place].append(batch)
        self.raw[place].append(data)
        self.events.append(("batch", *place, batch.producer_id, name))
        return 0
