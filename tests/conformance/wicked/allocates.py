"""Wicked: allocates without end for one request; with ``once`` asks for 1 GiB that it never touches and goes on."""

import mmap
import sys

import toy


def trap(request):
    kept = []
    while True:
        if sys.argv[1:] == ["once"]:
            # Address space alone: resident memory shows nothing of it.
            kept.append(mmap.mmap(-1, 1 << 30))
            return
        kept.append(b"x" * (8 << 20))


toy.serve("allocates", trap)
