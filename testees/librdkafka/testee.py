"""librdkafka as a testee: a consumer of confluent-kafka fetches the bytes from `kfuzz serve`.

librdkafka has no entry point below its consumer, so each request gets a topic and a fresh consumer. Its checks of CRCs
are on. The consumer hides control batches, and shows records but no batches.
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import confluent_kafka
import kfuzz_serving
import kfuzz_testee
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition
from kfuzz_serving import END, Record, Stopped

# Connection errors say nothing about the bytes.
CONNECTION_ERRORS = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
M_ARENA_MAX = -8


class Client:
    """One consumer."""

    is_odd = False

    def __init__(self, address: str, topic: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "kfuzz",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
                "fetch.wait.max.ms": 1,
                "fetch.error.backoff.ms": 1,
                "socket.nagle.disable": True,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0)])

    def poll(self, timeout_s: float) -> Record | Stopped | None:
        try:
            message = self.consumer.poll(timeout_s)
            if message is None:
                return None
            error = message.error()
            if error is None:
                return _record(message)
        except KafkaException as raised:
            return Stopped("rejected", str(raised))
        except Exception as raised:
            return Stopped("fault", f"{type(raised).__name__}: {raised}")
        if error.code() in CONNECTION_ERRORS:
            return None
        if error.code() == KafkaError._PARTITION_EOF:
            return END
        # Asked to read a cut batch, the library wants larger fetches, until it gives up.
        return Stopped("rejected", f"{error.name()}: {error.str()}", kfuzz_serving.short_at(error.str()))

    def cpu_s(self) -> float:
        return time.process_time()

    def close(self) -> None:
        self.consumer.close()


def _record(message: confluent_kafka.Message) -> Record:
    kind, timestamp = message.timestamp()
    return kfuzz_testee.record_json(
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.key(),
        message.value(),
        message.headers() or (),
    )


if __name__ == "__main__":
    # Each thread of a consumer would map 64 MiB for its own allocations, and the referee limits what is mapped.
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    version = confluent_kafka.libversion()[0]
    kfuzz_serving.serve({"name": "librdkafka", "version": version, "language": "python"}, Client, forks=True)
