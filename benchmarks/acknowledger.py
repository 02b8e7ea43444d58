"""A broker that acknowledges every batch and keeps none: ``python -m benchmarks.acknowledger TOPIC``.

It prints its port, and ends when its standard input is closed. It has its own process, so its time is not that of the
contestant.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from functools import cache
from typing import Any, Final

from kfuzz import messages
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.headers import response_header_version

HEAD: Final = struct.Struct(">ihhi")
SIZE: Final = struct.Struct(">i")
NODE: Final = 1
# Versions that every contestant has.
OFFERED: Final = {"Produce": (3, 8), "Metadata": (0, 8), "ApiVersions": (0, 2)}
UNSUPPORTED_VERSION: Final = 35
RECEIVE_BYTES: Final = 1 << 20


class Acknowledger(asyncio.BufferedProtocol):
    """One connection. Of a request only the head is looked at."""

    def __init__(self, topic: str, port: int) -> None:
        self.topic = topic
        self.port = port
        self.buffer = bytearray(RECEIVE_BYTES)
        self.held = bytearray()
        # How many bytes of the request at hand are still to come.
        self.to_skip = 0
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        view = memoryview(self.buffer)[:nbytes]
        while view:
            if self.to_skip:
                passed = min(self.to_skip, len(view))
                self.to_skip -= passed
                view = view[passed:]
                continue
            needed = HEAD.size - len(self.held)
            self.held += view[:needed]
            view = view[needed:]
            if len(self.held) == HEAD.size:
                size, key, version, number = HEAD.unpack(self.held)
                self.held.clear()
                self.to_skip = SIZE.size + size - HEAD.size
                body = answer(self.topic, self.port, key, version)
                # The size, the number of the request, and the rest, which is the same each time.
                self.transport.write(SIZE.pack(SIZE.size + len(body)) + SIZE.pack(number) + body)


@cache
def answer(topic: str, port: int, key: int, version: int) -> bytes:
    """The answer to a request, without its size and its number."""
    request = next(one for one in catalogue().messages.values() if one.kind == "request" and one.api_key == key)
    api = request.name.removesuffix("Request")
    low, high = OFFERED[api]
    if not low <= version <= high:
        return messages.encode("ApiVersionsResponse", 0, {"errorCode": UNSUPPORTED_VERSION, "apiKeys": []})
    values: Any
    if api == "ApiVersions":
        offered = [(catalogue().find(f"{name}Request").api_key, *both) for name, both in OFFERED.items()]
        values = {"apiKeys": [{"apiKey": key, "minVersion": low, "maxVersion": high} for key, low, high in offered]}
    elif api == "Metadata":
        partition = {"partitionIndex": 0, "leaderId": NODE, "replicaNodes": [NODE], "isrNodes": [NODE]}
        values = {
            "brokers": [{"nodeId": NODE, "host": "127.0.0.1", "port": port}],
            "controllerId": NODE,
            "topics": [{"name": topic, "partitions": [partition]}],
        }
    else:
        values = {"responses": [{"name": topic, "partitionResponses": [{"index": 0, "baseOffset": 0}]}]}
    response = catalogue().find(f"{api}Response")
    # The header begins with its number; a flexible header then has a count of tagged fields.
    return bytes(response_header_version(response, version)) + messages.encode(response, version, values)


async def main() -> None:
    """Serve until standard input is closed."""
    loop = asyncio.get_running_loop()
    [topic] = sys.argv[1:]
    port = 0
    server = await loop.create_server(lambda: Acknowledger(topic, port), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(port, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
