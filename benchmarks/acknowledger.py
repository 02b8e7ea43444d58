"""A broker that acknowledges every batch and keeps none: ``python benchmarks/acknowledger.py TOPIC``.

It prints its port, and ends when its standard input is closed. It has its own process, so its time is not that of the
contestant. Imports only ``kfuzz.messages``.
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
KEYS: Final = {catalogue().find(f"{api}Request").api_key: api for api in OFFERED}
UNSUPPORTED_VERSION: Final = 35
RECEIVE_BYTES: Final = 1 << 20


async def main() -> None:
    """Serve until standard input is closed."""
    [topic] = sys.argv[1:]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                # Of a request only the head is looked at.
                size, key, version, number = HEAD.unpack(await reader.readexactly(HEAD.size))
                await reader.readexactly(SIZE.size + size - HEAD.size)
                body = answer(topic, port, key, version)
                # The size, the number of the request, and the rest, which is the same each time.
                writer.write(SIZE.pack(SIZE.size + len(body)) + SIZE.pack(number) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=RECEIVE_BYTES)
    port = server.sockets[0].getsockname()[1]
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


@cache
def answer(topic: str, port: int, key: int, version: int) -> bytes:
    """The answer to a request, without its size and its number."""
    api = KEYS[key]
    low, high = OFFERED[api]
    if not low <= version <= high:
        return messages.encode("ApiVersionsResponse", 0, {"errorCode": UNSUPPORTED_VERSION, "apiKeys": []})
    values: Any
    if api == "ApiVersions":
        offered = [(key, *OFFERED[name]) for key, name in KEYS.items()]
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


if __name__ == "__main__":
    asyncio.run(main())
