"""Wicked: allocates without end for one request.

With ``once`` it asks for 1 GiB that it never touches and goes on, with ``claims`` for 64 GiB. With ``caught`` it
survives a refusal and says "fault". With ``reports`` it says how much it has allocated, and where. With ``burns`` it
dies of a refusal, and without one never answers.
"""

import mmap
import sys

import toy

# MAP_NORESERVE of Linux.
NORESERVE = 0x4000


def trap(request):
    if sys.argv[1:] == ["reports"]:
        answer = {"id": request["id"], "outcome": "accepted", "batches": []}
        toy.say(answer | {"allocated_bytes": 1 << 30, "allocated_at": "toy/codec.py:7"})
        return "answered"
    kept = []
    while True:
        if sys.argv[1:] in (["once"], ["caught"], ["burns"], ["claims"]):
            try:
                # Address space alone: resident memory shows nothing of it.
                size = 1 << (36 if sys.argv[1:] == ["claims"] else 30)
                kept.append(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | NORESERVE))
            except OSError as error:
                if sys.argv[1:] != ["caught"]:
                    sys.exit('  File "/venv/site-packages/toy/reader.py", line 5 in grow')
                toy.say({"id": request["id"], "outcome": "fault", "error": str(error)})
                return "answered"
            while sys.argv[1:] == ["burns"]:
                pass
            return None
        kept.append(b"x" * (8 << 20))


toy.serve("allocates", trap)
