"""Wicked: allocates without end for one request; with ``once`` asks for 1 GiB that it never touches and goes
on; with ``caught`` it survives a refusal and says "fault"; with ``reports`` it says that it has allocated as much; with
``burns`` it dies of a refusal and without one never answers."""

import mmap
import sys

import toy


def trap(request):
    if sys.argv[1:] == ["reports"]:
        toy.say({"id": request["id"], "outcome": "accepted", "batches": [], "allocated_bytes": 1 << 30})
        return "answered"
    kept = []
    while True:
        if sys.argv[1:] in (["once"], ["caught"], ["burns"]):
            try:
                # Address space alone: resident memory shows nothing of it.
                kept.append(mmap.mmap(-1, 1 << 30))
            except OSError as error:
                if sys.argv[1:] != ["caught"]:
                    raise
                toy.say({"id": request["id"], "outcome": "fault", "error": str(error)})
                return "answered"
            while sys.argv[1:] == ["burns"]:
                pass
            return None
        kept.append(b"x" * (8 << 20))


toy.serve("allocates", trap)
