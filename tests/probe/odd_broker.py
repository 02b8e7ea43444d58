"""A broker on the loopback address that does what Kafka does, except with bytes for which a test asks for trouble."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import Any

from made_segments import bad
from replay.fake_broker import HANG_UP, OFFERED, FakeBroker

from kfuzz.conformance.judge.reference import verdict
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic

INVALID_RECORD = 87
UNKNOWN_TOPIC = 3
AWAY_S = 0.4


@dataclass
class OddBroker(FakeBroker):
    """``odd``: what to do with these bytes: a word such as "close", or an error code. ``refuses``: for all bytes.

    ``serves``: other bytes that it serves for these. ``tells``: what it answers if it is asked for
    ``max_message_bytes``; without it, the question is not offered.
    ``host``: where it says that it is. ``denied``: the error with which it creates no topics. ``known``: whether it
    knows the settings of topics.
    """

    versions: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {**OFFERED, "Fetch": (4, 18), "DeleteTopics": (1, 6)}
    )
    odd: dict[bytes, str | int] = field(default_factory=dict)
    refuses: int = 0
    host: str = "127.0.0.1"
    denied: int = 0
    knows_settings: bool = True
    max_message_bytes: int = DEFAULT_TOPIC.max_message_bytes
    tells: str | None = None
    serves: dict[bytes, bytes] = field(default_factory=dict)
    produced: list[bytes] = field(default_factory=list)
    stored: dict[tuple[str, int], bytes] = field(default_factory=dict)
    trouble_at_fetch: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tells is not None:
            self.versions = {**self.versions, "DescribeConfigs": (1, 4)}

    def _DescribeConfigs(self, values: Any, version: int) -> Any:
        [asked] = values["resources"]
        [name] = asked["configurationKeys"]
        config = {"name": name, "value": self.tells, "readOnly": False, "isSensitive": False}
        resource = {"resourceType": asked["resourceType"], "resourceName": asked["resourceName"]}
        return {"results": [{"errorCode": 0, "errorMessage": None, **resource, "configs": [config]}]}

    def _Metadata(self, values: Any, version: int) -> Any:
        answer = super()._Metadata(values, version)
        answer["brokers"][0]["host"] = self.host
        return answer

    def _CreateTopics(self, values: Any, version: int) -> Any:
        [topic] = values["topics"]
        error = self.denied or (40 if topic["configs"] and not self.knows_settings else 0)
        if error:
            return {"topics": [{"name": topic["name"], "errorCode": error}]}
        return super()._CreateTopics(values, version)

    def _DeleteTopics(self, values: Any, version: int) -> Any:
        answers = []
        for name in values["topicNames"]:
            known = self.topics.pop(name, None)
            self.events.append(("delete", name))
            answers.append({"name": name, "errorCode": 0 if known else UNKNOWN_TOPIC})
        return {"responses": answers}

    def _Produce(self, values: Any, version: int) -> Any:
        [topic] = values["topicData"]
        [partition] = topic["partitionData"]
        place = topic["name"], partition["index"]
        data = bytes(partition["records"])
        self.produced.append(data)
        odd = self.odd.get(data)
        if odd == "silent once":
            self.odd[data] = "accept"
            return None
        if odd in ("close", "keep silent"):
            return HANG_UP if odd == "close" else None
        if odd in ("die", "restart"):
            self._die(restarts=odd == "restart")
            return HANG_UP
        made = verdict(data, "broker", topic=Topic(max_message_bytes=self.max_message_bytes))
        error = odd if isinstance(odd, int) else INVALID_RECORD if made.fatal else 0
        kept = self.serves.get(data) or made.stored or data
        if odd in ("close at fetch", "silent at fetch"):
            self.trouble_at_fetch[place] = str(odd)
        if odd == "damage":
            kept = bad(kept)
        if odd in ("accept", "damage", "wrong offset"):
            error = 0
        error = self.refuses or error
        if (not error or odd == "store, and say that it was refused") and odd != "lose":
            self.stored[place] = kept
        offset = 5 if odd == "wrong offset" else -1 if error or odd == "store, and say that it was refused" else 0
        error = INVALID_RECORD if odd == "store, and say that it was refused" else error
        answered = {"index": partition["index"], "errorCode": error, "baseOffset": offset, "logStartOffset": 0}
        said = [] if odd == "garble" else [{"name": topic["name"], "partitionResponses": [answered]}]
        return {"responses": said, "throttleTimeMs": 0}

    def _Fetch(self, values: Any, version: int) -> Any:
        [topic] = values["topics"]
        [asked] = topic["partitions"]
        place = topic["topic"], asked["partition"]
        if place in self.trouble_at_fetch:
            return HANG_UP if self.trouble_at_fetch[place] == "close at fetch" else None
        data = self.stored.get(place, b"")
        told = {
            "partitionIndex": asked["partition"],
            "errorCode": 0,
            "highWatermark": 1 if data else 0,
            "lastStableOffset": 1 if data else 0,
            "logStartOffset": 0,
            "abortedTransactions": [],
            "records": data,
        }
        return {"errorCode": 0, "responses": [{"topic": topic["topic"], "partitions": [told]}]}

    def _die(self, *, restarts: bool) -> None:
        """Close everything. A broker that restarts has forgotten its topics."""
        for one in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._sockets.clear()
        if restarts:
            self.topics.clear()
            self.stored.clear()
            timer = threading.Timer(AWAY_S, self._rise)
            timer.daemon = True
            self._threads.append(timer)
            timer.start()

    def _rise(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._start(self._accept)
