"""A small client of Kafka with planted faults, driven by lines of JSON as testees/README.md has them.

    python toy_client.py [FAULT...]

- ``dies``: on a negative count in a response
- ``loops``: on one error code
- ``stops``: asks for nothing more after another error code
- ``drops``: records, if a field of their partition is odd
- ``spoils``: all later consumers of the process, after an error
- ``forgets``: its producer does not send what comes after an error
- ``doubles``: its producer sends a batch as a new one after an error
- ``swaps``: its producer sends what comes after an error in the wrong place
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from itertools import islice
from typing import IO, Any

from kfuzz import records
from kfuzz.client.protocol import RETRIABLE, SIZE, correlation_id, request, response
from kfuzz.errors import DecodeError, MessageError
from kfuzz.records import Record, RecordBatch

# The arrays of these versions of Metadata and Fetch have counts with a sign.
VERSIONS = {"ApiVersions": 3, "Metadata": 8, "Fetch": 11, "InitProducerId": 1, "Produce": 8}
NEGATIVE = ("length-below-minus-one", "null-not-allowed")
FAULTS = set(sys.argv[1:])
LOOPS_ON = 9  # REPLICA_NOT_AVAILABLE
STOPS_ON = 6  # NOT_LEADER_OR_FOLLOWER
TRIES_MAX = 20
SOCKET_S_MAX = 1.0


class Refused(Exception):
    """The error that the toy reports to its user."""


STOPPED: list[Consumer] = []


class Consumer:
    def __init__(self, address: str, topic: str, offset: int) -> None:
        self.bootstrap, self.topic, self.offset = address, topic, offset
        self.stream: IO[bytes] | None = None
        self.failures = self.number = 0
        self.has_stopped = bool(STOPPED)

    def poll(self) -> list[dict[str, Any]]:
        if self.has_stopped:
            time.sleep(0.005)
            return []
        try:
            if self.stream is None:
                self.connect()
            found = self.fetch()
        except (OSError, DecodeError, struct.error) as error:
            # Connect anew with the next call; give up after too many failures.
            self.close()
            self.failures += 1
            if self.failures >= TRIES_MAX:
                raise Refused(str(error)) from None
            return []
        self.failures = 0
        return found

    def connect(self) -> None:
        self.dial(self.bootstrap)
        self.ask("ApiVersions", {"clientSoftwareName": "toy", "clientSoftwareVersion": "1"})
        answer = self.ask("Metadata", {"topics": [{"name": self.topic}], "allowAutoTopicCreation": False})
        brokers = {one["nodeId"]: f"{one['host']}:{one['port']}" for one in answer["brokers"]}
        [partition] = [one for topic in answer["topics"] for one in topic["partitions"]][:1] or [None]
        if partition is None or partition["leaderId"] not in brokers:
            raise OSError("nobody leads the partition")
        self.dial(brokers[partition["leaderId"]])

    def dial(self, address: str) -> None:
        self.close()
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), SOCKET_S_MAX) as made:
                self.stream = made.makefile("rwb")
        except (OverflowError, ValueError) as error:
            raise OSError(str(error)) from None

    def close(self) -> None:
        if self.stream is not None:
            # It may have something to send yet.
            with contextlib.suppress(OSError):
                self.stream.close()
            self.stream = None

    def ask(self, api: str, values: dict[str, Any]) -> dict[str, Any]:
        self.number += 1
        assert self.stream
        self.stream.write(request(api, VERSIONS[api], self.number, values))
        self.stream.flush()
        answer = self.stream.read(*SIZE.unpack(self.stream.read(SIZE.size)))
        if correlation_id(answer) != self.number:
            raise OSError("the answer to another request")
        try:
            return response(api, VERSIONS[api], answer)
        except MessageError as error:
            if "dies" in FAULTS and error.finding.code in NEGATIVE:
                os.abort()
            raise

    def fetch(self) -> list[dict[str, Any]]:
        wanted = {"partition": 0, "fetchOffset": self.offset, "partitionMaxBytes": 1 << 20}
        fetch = {"maxWaitMs": 1, "minBytes": 0, "topics": [{"topic": self.topic, "partitions": [wanted]}]}
        answer = self.ask("Fetch", fetch)
        found = []
        for topic in answer["responses"]:
            for one in topic["partitions"]:
                if (topic["topic"], one["partitionIndex"]) == (self.topic, 0):
                    found += self.taken(one)
        return found

    def taken(self, partition: dict[str, Any]) -> list[dict[str, Any]]:
        error = partition["errorCode"]
        while "loops" in FAULTS and error == LOOPS_ON:
            pass
        if "stops" in FAULTS and error == STOPS_ON:
            self.has_stopped = True
            return []
        if error:
            if "spoils" in FAULTS:
                STOPPED.append(self)
            raise Refused(f"error {error}")
        batches = records.decode(partition["records"] or b"")
        found = [one for batch in batches for one in batch.records if one.offset >= self.offset]
        if found:
            self.offset = found[-1].offset + 1
        if "drops" in FAULTS and partition["logStartOffset"] != 0:
            return []
        in_hex = [[str(one.offset), *(x if x is None else x.hex() for x in (one.key, one.value))] for one in found]
        return [dict(zip(("offset", "key", "value"), one, strict=True)) for one in in_hex]


class Producer(Consumer):
    """It sends one record at a time, and the same batch again after an error."""

    producer_id: int | None = None
    sequence = 0

    def send(self, value: bytes) -> None:
        for _ in range(TRIES_MAX):
            try:
                error = self.produce(value)
            except (OSError, DecodeError, struct.error):
                error = -1
                self.close()
            if not error:
                self.sequence += 1
                return
            self.failures += 1
            self.sequence += "doubles" in FAULTS
            if error > 0 and error not in RETRIABLE:
                break
        raise Refused(f"error {error}")

    def produce(self, value: bytes) -> int:
        if self.stream is None:
            self.connect()
        if self.producer_id is None:
            asked = {"transactionalId": None, "transactionTimeoutMs": 1000}
            self.producer_id = self.ask("InitProducerId", asked)["producerId"]
        batch = RecordBatch(0, 0, [Record(0, 1, None, value)])
        batch.producer_id, batch.producer_epoch, batch.base_sequence = self.producer_id, 0, self.sequence
        topics = [{"name": self.topic, "partitionData": [{"index": 0, "records": records.encode_batch(batch)}]}]
        answer = self.ask("Produce", {"acks": -1, "timeoutMs": 1000, "topicData": topics})
        errors = [one["errorCode"] for topic in answer["responses"] for one in topic["partitionResponses"]]
        return int(errors[0]) if len(errors) == 1 else -1


def produced(asked: dict[str, Any]) -> dict[str, Any]:
    values = iter(bytes.fromhex(one["value"]) for one in asked["records"])
    answers: list[dict[str, Any]] = []
    with contextlib.closing(Producer(asked["address"], asked["topic"], 0)) as producer:
        for count in asked["sends"]:
            given = list(islice(values, count))
            answers.append({"offsets": []})
            try:
                for value in given[::-1] if producer.failures and "swaps" in FAULTS else given:
                    if not producer.failures or "forgets" not in FAULTS:
                        producer.send(value)
            except Refused as error:
                answers[-1] = {"outcome": "rejected", "error": str(error)}
    return {"sends": answers}


def main() -> None:
    consumer: Consumer | None = None
    print(json.dumps({"version": "1", "produces": ["sends", "idempotent"]}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if asked["do"] == "open":
                consumer = Consumer(asked["address"], asked["topic"], int(asked["offset"]))
            elif asked["do"] == "produce":
                answer = produced(asked)
            elif consumer is not None and asked["do"] == "poll":
                answer = {"records": consumer.poll()}
            elif consumer is not None:
                consumer.close()
        except (Refused, DecodeError) as error:
            answer = {"outcome": "rejected", "error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
