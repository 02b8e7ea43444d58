"""Wicked: leaves a daemon running, which has another parent and another session; with ``clean``, also another
environment.

It writes the daemon's process id to the file that it is called with.
"""

import os
import sys
import time

import toy


def daemon():
    if os.fork():
        os.wait()
        return
    os.setsid()
    if child := os.fork():
        with open(sys.argv[1], "w") as file:
            file.write(str(child))
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    # In the mean time it has become an orphan.
    time.sleep(0.1)
    os.execve("/bin/sleep", ["sleep", "600"], {} if "clean" in sys.argv else dict(os.environ))


def trap(request):
    daemon()


toy.serve("leaves", trap)
