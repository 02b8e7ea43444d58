"""A toy testee for the wicked ones to build on: it reads nothing, accepts empty input and rejects the rest.

``serve(name, trap)`` answers honestly, save that it calls ``trap(request)`` first for a vector whose id has "trap" in
it, and leaves the answer away if the trap says "answered".
Imports the standard library only, so that it starts in a moment.
"""

import json
import sys


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def handshake(name, **changes):
    say(
        {
            "protocol": "kfuzz-testee/1",
            "name": name,
            "version": "1",
            "language": "python",
            "operations": ["decode-records"],
            "roles": ["consumer"],
            "magic": [2],
            "codecs": ["none"],
        }
        | changes
    )


def answer(request):
    if request["hex"]:
        say({"id": request["id"], "outcome": "rejected", "error": "not empty"})
    else:
        say({"id": request["id"], "outcome": "accepted", "consumed": 0, "batches": []})


def serve(name, trap=lambda request: None, **changes):
    handshake(name, **changes)
    for line in sys.stdin:
        request = json.loads(line)
        if "trap" in request["id"] and trap(request) == "answered":
            continue
        answer(request)
