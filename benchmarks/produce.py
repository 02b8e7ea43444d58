"""Sends records with confluent-kafka, beside ``kfuzz load``: ``python -m benchmarks.produce HOST:PORT TOPIC N RATE``.

It is a plain loop, as a person would write it, with the settings that Kafka's own tool has by default.
"""

from __future__ import annotations

import sys
import time
from typing import Any

# How many records are sent between two looks at the clock.
ROUND = 100


def main() -> None:
    """Send ``N`` records of 100 bytes at ``RATE`` a second, and print how many were acknowledged."""
    import confluent_kafka

    bootstrap, topic, count, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    acknowledged = 0

    def take(error: Any, message: Any) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.size": 16384, "linger.ms": 5}
    producer, value, began = confluent_kafka.Producer(settings), bytes(100), time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=take)
                break
            except BufferError:
                producer.poll(0.01)
        if number % ROUND == 0:
            producer.poll(0)
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
    producer.flush()
    print(f"{acknowledged} records sent")


if __name__ == "__main__":
    main()
