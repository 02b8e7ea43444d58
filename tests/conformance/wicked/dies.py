"""Wicked: dies of a signal in the middle of a request, as a decoder does that reads where it must not."""

import os
import signal
import sys

import toy


def trap(request):
    sys.stderr.write("wild pointer\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)


toy.serve("dies", trap)
