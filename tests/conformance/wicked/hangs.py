"""Wicked: never answers one request; burns CPU time for it, or sleeps when it is called with ``sleep``."""

import sys
import time

import toy


def trap(request):
    while True:
        if sys.argv[1:] == ["sleep"]:
            time.sleep(60)


toy.serve("hangs", trap)
