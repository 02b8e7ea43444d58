"""Wicked: writes its argument to standard error and ends, as a runtime does that prints a stack."""

import os
import sys

import toy


def trap(request):
    sys.stderr.write(sys.argv[1])
    sys.stderr.flush()
    os._exit(2)


toy.serve("ends", trap)
