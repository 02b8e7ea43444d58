"""librdkafka as a testee: a consumer of confluent-kafka fetches the bytes from `kfuzz serve`.

librdkafka has no entry point below its consumer, so each request gets a topic and a fresh consumer. Its checks of CRCs
are on. The consumer hides control batches, and shows records but no batches.

A client that finds nothing to read says nothing: it asks the broker again. So the broker is asked how often it was
asked, and for which offset.
"""

from __future__ import annotations

import ctypes
import json
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_testee

try:
    import confluent_kafka
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition
except ImportError as error:
    sys.exit(f"confluent-kafka cannot be imported ({error}); install it into {sys.executable}")

POLL_S = 0.02
# librdkafka doubles the size of its fetches ten times before it gives up on a batch that seems to be cut.
FETCHES_MAX = 30
# Without any fetch. A batch may take seconds to decompress.
SILENCE_S_MAX = 15
# What a handle tells about its connections is not about the bytes.
CONNECTION_ERRORS = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
CONTROL = 0x20
M_ARENA_MAX = -8


class Broker:
    """`kfuzz serve`, which gives each consumer its bytes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kfuzz", "serve", "--from-stdin", "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        ready = self.hear()
        self.address = f"{ready['host']}:{ready['port']}"

    def ask(self, **line: Any) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout
        answer = json.loads(self.process.stdout.readline() or sys.exit("`kfuzz serve` has ended"))
        return answer if "error" not in answer else sys.exit(answer["error"])


class Promised(NamedTuple):
    """What the headers say: how many records a consumer hands out, and the offset behind them.

    ``whole``: after the batches there is at most an incomplete one, which is no error.
    """

    records: int
    end: int
    whole: bool


def promised(data: bytes) -> Promised:
    """Needed only to see records that the library leaves out in silence, and to know when it is done."""
    at, records, end = 0, 0, 0
    while len(data) - at > 16:
        offset, size = struct.unpack_from(">qi", data, at)
        if size < 14:  # the overhead of the smallest message, of magic 0
            return Promised(records, end, False)
        if at + 12 + size > len(data):
            break
        count = 1
        if data[at + 16] == 2 and size >= 49:
            attributes, last_offset_delta = struct.unpack_from(">hi", data, at + 21)
            [count] = struct.unpack_from(">i", data, at + 57)
            offset += last_offset_delta
            if attributes & CONTROL:
                count = 0
        # Wherever a batch says that it ends, a consumer at offset 0 is not behind it yet.
        records, end = records + max(count, 0), max(end, offset + 1, 1)
        at += 12 + size
    return Promised(records, end, True)


def consume(broker: Broker, topic: str, data: bytes, records: list[dict[str, Any]]) -> tuple[str, str]:
    """Append what the consumer hands out to ``records``, and return the outcome with a text."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "kfuzz",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": 1,
            "fetch.error.backoff.ms": 1,
            "socket.nagle.disable": True,
            "log.connection.close": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return _watched(consumer, broker, topic, promised(data), records)
    finally:
        consumer.close()


def _watched(
    consumer: Any, broker: Broker, topic: str, said: Promised, records: list[dict[str, Any]]
) -> tuple[str, str]:
    def ended() -> tuple[str, str]:
        if said.whole and len(records) >= said.records:
            return "accepted", ""
        return "nothing", f"hands out {len(records)} records of {said.records}"

    seen, since = (-1, 0), time.monotonic()
    is_last_look = False
    while True:
        message = consumer.poll(0 if is_last_look else POLL_S)
        if message is not None and (error := message.error()) is None:
            records.append(_record(message))
            is_last_look, since = False, time.monotonic()
            continue
        if message is not None and error.code() not in CONNECTION_ERRORS:
            if error.code() == KafkaError._PARTITION_EOF:
                return ended()
            # Asked to read a cut batch, the library wants larger fetches, until it gives up.
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and said.whole and _asked(broker, topic)[0] >= said.end:
                return ended()
            return "rejected", f"{error.name()}: {error.str()}"
        # What a look at the broker has shown counts only if the queue is still empty after it.
        offset, times = now = _asked(broker, topic)
        if now != seen:
            seen, since = now, time.monotonic()
        is_behind = said.whole and offset >= said.end and times > 1
        is_stuck = times > FETCHES_MAX or time.monotonic() - since > SILENCE_S_MAX
        if is_last_look and is_behind:
            return ended()
        if is_last_look and is_stuck:
            return "stalled", f"asks for offset {offset} again and again" if times > 1 else "asks for nothing more"
        is_last_look = is_behind or is_stuck


def _asked(broker: Broker, topic: str) -> tuple[int, int]:
    """The offset of the last fetch, and how many in a row had it."""
    answer = broker.ask(topic=topic)
    return int(answer["fetch_offset"]), answer["times"]


def _record(message: Any) -> dict[str, Any]:
    kind, timestamp = message.timestamp()
    return kfuzz_testee.record_json(
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.key(),
        message.value(),
        message.headers() or (),
    )


def answer(broker: Broker, request: dict[str, Any], topic: str) -> dict[str, Any]:
    if request.get("operation") != "decode-records" or request.get("role", "consumer") != "consumer":
        return {"outcome": "unsupported", "error": "only reads records, as a consumer"}
    data = bytes.fromhex(request["hex"])
    if len(data) > 16 and data[0] & 0x80:
        return {"outcome": "unsupported", "error": "a consumer cannot ask for a negative offset"}
    records: list[dict[str, Any]] = []
    broker.ask(topic=topic, hex=request["hex"])
    try:
        outcome, text = consume(broker, topic, data, records)
    except KafkaException as error:
        outcome, text = "rejected", str(error)
    except Exception as error:
        outcome, text = "fault", f"{type(error).__name__}: {error}"
    broker.ask(topic=topic, hex=None)
    return {"outcome": outcome, "records": records} | ({"error": text} if text else {})


def main() -> None:
    # Each thread of a consumer would map 64 MiB for its own allocations, and the referee limits what is mapped.
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    out, sys.stdout = sys.stdout, sys.stderr
    broker = Broker()
    # The first consumer loads what all of them need.
    answer(broker, {"operation": "decode-records", "hex": ""}, "first")
    hello = {
        "protocol": "kfuzz-testee/1",
        "name": "librdkafka",
        "version": confluent_kafka.libversion()[0],
        "language": "python",
        "operations": ["decode-records"],
        "roles": ["consumer"],
        "magic": [0, 1, 2],
        "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
        "checks_crc": True,
        "control": "hidden",
        "outcomes": ["nothing", "stalled"],
    }
    print(json.dumps(hello), file=out, flush=True)
    for number, line in enumerate(sys.stdin.buffer):
        request: dict[str, Any] = {}
        try:
            request = json.loads(line)
            said = {"id": request["id"]} | answer(broker, request, f"t{number}")
        except (ValueError, TypeError, LookupError) as error:
            said = {"id": request.get("id"), "outcome": "fault", "error": f"BadRequest: {error}"}
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main()
