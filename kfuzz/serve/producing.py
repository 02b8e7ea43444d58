"""Answers to requests that write: Produce, and those of transactions.

Writing goes to the partitions that a program has opened for it (``"produce": true``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from kfuzz.broker_errors import AFTER_APPEND, ERROR_CODES
from kfuzz.serve.cluster import NO_ERROR, Answer, Asked, Cluster, Refused, Values, remember
from kfuzz.serve.written import Arrived, WrittenPartition
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, HEADER_AT

# A kind of refusal.
WRITES: Final = "requests to write"
# The bytes that clients may write to all topics together, with all that is kept of them.
WRITTEN_BYTES_MAX: Final = 256 << 20
# The id of the first producer.
FIRST_PRODUCER_ID: Final = 1
# From these versions on, each transaction has its own producer epoch, and registers its partitions by itself (KIP-890).
PRODUCE_ADDS: Final = 12
END_BUMPS: Final = 5

# A producer with a higher epoch would not fit; the transactional id gets a new producer.
EPOCH_MAX: Final = (1 << 15) - 2
# The fields of a request that adds partitions; up to version 3 they have other names.
NAMED: Final = ("transactionalId", "producerId", "producerEpoch", "topics")
# From these versions on, clients know the error PRODUCER_FENCED.
FENCED_SINCE: Final = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
# The producer's id and epoch in the header of a batch.
PRODUCER: Final = struct.Struct(">qh")


@dataclass
class _Transactional:
    """The coordinator's state of a transactional id. ``committed``: how the last transaction ended."""

    producer_id: int
    epoch: int = 0
    is_open: bool = False
    partitions: dict[tuple[str, int], None] = field(default_factory=dict)
    committed: bool | None = None

    def add(self, *places: tuple[str, int]) -> None:
        """Add partitions to the transaction, which begins if none is open."""
        self.is_open = True
        self.partitions.update(dict.fromkeys(places))

    def refusal(self, producer_id: int, epoch: int) -> int:
        """The error for a request of this producer; 0 if it is the newest one with this transactional id."""
        if producer_id != self.producer_id:
            return ERROR_CODES["INVALID_PRODUCER_ID_MAPPING"]
        return NO_ERROR if epoch == self.epoch else ERROR_CODES["PRODUCER_FENCED"]


class Producing:
    """Answers to producers, and the coordinator of their transactions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._next_id = FIRST_PRODUCER_ID
        self._transactional: dict[str, _Transactional] = {}

    def Produce(self, asked: Asked) -> tuple[Answer, int]:
        acks, failed, lost = asked.values["acks"], False, False
        topics = []
        for one in asked.values["topicData"]:
            partitions = []
            for given in one["partitionData"]:
                answer = self._written(asked, one, given)
                failed = failed or bool(answer["errorCode"])
                lost = lost or answer["errorCode"] == ERROR_CODES["NETWORK_EXCEPTION"]
                partitions.append(answer)
            topics.append({"name": one["name"], "topicId": one["topicId"], "partitionResponses": partitions})
        if lost and self.cluster.ends:
            self.cluster.end(asked.caller.node_id)
        # A request with acks 0 gets no answer. A broker closes the connection if it refuses the records.
        if lost or (failed and not acks):
            raise Refused(WRITES, "the answer is lost, as asked for" if lost else "this cannot be written here")
        answered = {"responses": topics, "throttleTimeMs": self.cluster.throttle_ms}
        return (answered, self.cluster.produce_ms) if acks else (None, 0)

    def _written(self, asked: Asked, one: Values, given: Values) -> Values:
        transactional_id, acks, data = asked.values["transactionalId"], asked.values["acks"], given["records"] or b""
        partition, error = self.cluster.found(asked.caller, one["name"], one["topicId"], given["index"])
        answer: Values = {"index": given["index"], "errorCode": error, "baseOffset": -1}
        if partition is None:
            return answer
        demanded = partition.errors.popleft() if partition.errors else NO_ERROR
        if not isinstance(partition, WrittenPartition):
            return answer | {"errorCode": demanded or ERROR_CODES["TOPIC_AUTHORIZATION_FAILED"]}
        if self.cluster.topics.written_bytes > WRITTEN_BYTES_MAX:
            return answer | {"errorCode": ERROR_CODES["KAFKA_STORAGE_ERROR"]}
        error = demanded
        if acks not in (-1, 0, 1):
            error = ERROR_CODES["INVALID_REQUIRED_ACKS"]
        elif not demanded or demanded in AFTER_APPEND:
            place = self.cluster.name_of(one), given["index"]
            error = self._unregistered(asked, transactional_id, place, data)
            if not error:
                answer["baseOffset"], error = partition.append(data)
            error = error or demanded
            if demanded == ERROR_CODES["DUPLICATE_SEQUENCE_NUMBER"]:
                answer["baseOffset"] = -1
        partition.arrive(Arrived(data, transactional_id, acks, error, answer["baseOffset"]))
        return answer | {"errorCode": error, "logStartOffset": partition.start}

    def _unregistered(self, asked: Asked, transactional_id: str | None, place: tuple[str, int], data: bytes) -> int:
        """The error for a transactional batch whose partition is not in its producer's transaction; otherwise 0."""
        if transactional_id is None or len(data) < BATCH_HEADER_SIZE:
            return NO_ERROR
        producer_id, epoch = PRODUCER.unpack_from(data, HEADER_AT["producer_id"])
        found = self._transactional.get(transactional_id)
        if found is None or found.refusal(producer_id, epoch):
            return ERROR_CODES["INVALID_PRODUCER_EPOCH"]
        if asked.version >= PRODUCE_ADDS:
            found.add(place)
        return NO_ERROR if place in found.partitions else ERROR_CODES["INVALID_TXN_STATE"]

    # -- the coordinator of transactions

    def InitProducerId(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        name = values["transactionalId"]
        if name is None:
            return self._new_id(), 0
        if not name:
            return {"errorCode": ERROR_CODES["INVALID_REQUEST"]}, 0
        if self.cluster.is_elsewhere(asked, name):
            return {"errorCode": ERROR_CODES["NOT_COORDINATOR"]}, 0
        found = self._transactional.get(name)
        if found is None or found.epoch >= EPOCH_MAX:
            made = self._new_id()
            remember(self._transactional, name, _Transactional(made["producerId"]))
            return made, 0
        # A producer that says who it is continues; any other takes the place of the one before.
        if values["producerId"] >= 0 and (error := self._producer(asked, values)[1]):
            return {"errorCode": error}, 0
        found.epoch += 1
        if found.is_open:
            self._end(found, commit=False)
        return {"producerId": found.producer_id, "producerEpoch": found.epoch}, 0

    def _new_id(self) -> Values:
        self._next_id += 1
        return {"producerId": self._next_id - 1, "producerEpoch": 0}

    def AddPartitionsToTxn(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        if asked.version < 4:
            wanted = {name: values[f"v3AndBelow{name[0].upper()}{name[1:]}"] for name in NAMED}
            return {"resultsByTopicV3AndBelow": self._added(asked, wanted)}, 0
        results = [
            {"transactionalId": one["transactionalId"], "topicResults": self._added(asked, one)}
            for one in values["transactions"]
        ]
        return {"resultsByTransaction": results}, 0

    def _added(self, asked: Asked, wanted: Values) -> list[Values]:
        found, error = self._producer(asked, wanted)
        places = [(one["name"], index) for one in wanted["topics"] for index in one["partitions"]]
        missing = {place for place in places if self.cluster.topics.partition(*place) is None}
        if found is not None and not missing:
            found.add(*places)

        def result(name: str, index: int) -> Values:
            code = NO_ERROR
            if missing:
                # All are added, or none.
                is_missing = (name, index) in missing
                code = ERROR_CODES["UNKNOWN_TOPIC_OR_PARTITION" if is_missing else "OPERATION_NOT_ATTEMPTED"]
            return {"partitionIndex": index, "partitionErrorCode": error or code}

        return [
            {"name": one["name"], "resultsByPartition": [result(one["name"], index) for index in one["partitions"]]}
            for one in wanted["topics"]
        ]

    def AddOffsetsToTxn(self, asked: Asked) -> tuple[Values, int]:
        found, error = self._producer(asked, asked.values)
        if found is not None:
            found.add()
        return {"errorCode": error}, 0

    def EndTxn(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        commit = values["committed"]
        found, error = self._producer(asked, values)
        if found is None:
            return {"errorCode": error}, 0
        if not found.is_open and found.committed is not commit and not (asked.version >= END_BUMPS and not commit):
            return {"errorCode": ERROR_CODES["INVALID_TXN_STATE"]}, 0
        if asked.version >= END_BUMPS:
            found.epoch += 1
        if found.is_open:
            self._end(found, commit=commit)
        return {"producerId": found.producer_id, "producerEpoch": found.epoch}, 0

    def _producer(self, asked: Asked, wanted: Values) -> tuple[_Transactional | None, int]:
        """The producer with this transactional id, or why the request is not its."""
        name = wanted["transactionalId"]
        if self.cluster.is_elsewhere(asked, name):
            return None, ERROR_CODES["NOT_COORDINATOR"]
        found = self._transactional.get(name)
        error = (
            found.refusal(wanted["producerId"], wanted["producerEpoch"])
            if found
            else ERROR_CODES["INVALID_PRODUCER_ID_MAPPING"]
        )
        # Older clients know only the older error.
        if error == ERROR_CODES["PRODUCER_FENCED"] and asked.version < FENCED_SINCE[asked.api]:
            error = ERROR_CODES["INVALID_PRODUCER_EPOCH"]
        return (None, error) if error else (found, NO_ERROR)

    def _end(self, found: _Transactional, *, commit: bool) -> None:
        for name, index in found.partitions:
            partition = self.cluster.topics.partition(name, index)
            if isinstance(partition, WrittenPartition):
                partition.end_transaction(found.producer_id, found.epoch, commit=commit)
        found.partitions.clear()
        found.is_open, found.committed = False, commit
