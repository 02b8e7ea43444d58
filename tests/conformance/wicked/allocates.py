"""Wicked: allocates without end for one request; with ``once`` asks for 1 GiB that it never touches and goes
on, with ``reports`` says that it has allocated as much."""

import mmap
import sys

import toy


def trap(request):
    if sys.argv[1:] == ["reports"]:
        toy.say({"id": request["id"], "outcome": "accepted", "batches": [], "allocated_bytes": 1 << 30})
        return "answered"
    kept = []
    while True:
        if sys.argv[1:] == ["once"]:
            # Address space alone: resident memory shows nothing of it.
            kept.append(mmap.mmap(-1, 1 << 30))
            return None
        kept.append(b"x" * (8 << 20))


toy.serve("allocates", trap)
