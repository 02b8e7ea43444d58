"""A broker that gives every request the same answer: ``python benchmarks/answerer.py``.

Standard input has the answer, with its size in front; only the correlation id in it changes. It prints its port, and
ends when its standard input is closed. It has its own process, so its time is not that of the contestant.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from typing import Final

SIZE: Final = struct.Struct(">i")
# The size, the API key and its version, and the correlation id of a request.
HEAD: Final = struct.Struct(">ihhi")


def main() -> None:
    """Serve until standard input is closed."""
    size = sys.stdin.buffer.read(SIZE.size)
    answer = size + sys.stdin.buffer.read(*SIZE.unpack(size))
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=_ended, daemon=True).start()
    while True:
        taken, _ = listening.accept()
        threading.Thread(target=_serve, args=(taken, bytearray(answer)), daemon=True).start()


def _ended() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _serve(taken: socket.socket, answer: bytearray) -> None:
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = bytearray()
    while data := taken.recv(1 << 16):
        request += data
        while len(request) >= HEAD.size and len(request) >= SIZE.size + (size := SIZE.unpack_from(request)[0]):
            answer[4:8] = request[8:12]
            del request[: SIZE.size + size]
            taken.sendall(answer)


if __name__ == "__main__":
    main()
