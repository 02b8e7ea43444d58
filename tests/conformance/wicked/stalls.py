"""Wicked: answers that it makes no progress, in every process, or only until the file exists that it is called with."""

import sys
from pathlib import Path

import toy


def trap(request):
    waited = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if waited and waited.exists():
        return None
    if waited:
        waited.touch()
    toy.say({"id": request["id"], "outcome": "stalled", "error": "no progress"})
    return "answered"


toy.serve("stalls", trap, outcomes=["stalled"])
