"""Wicked: answers that it makes no progress, in every process, or only until the file exists that it is called with.

With ``large`` after the file's name, the answer then says that it has allocated 1 GiB.
"""

import sys
from pathlib import Path

import toy


def trap(request):
    waited = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if waited and waited.exists():
        if sys.argv[2:] != ["large"]:
            return None
        toy.say({"id": request["id"], "outcome": "accepted", "batches": [], "allocated_bytes": 1 << 30})
        return "answered"
    if waited:
        waited.touch()
    toy.say({"id": request["id"], "outcome": "stalled", "error": "no progress"})
    return "answered"


toy.serve("stalls", trap, outcomes=["stalled"])
