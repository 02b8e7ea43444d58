"""One campaign for ``benchmarks.fuzz``, in a process of its own. Settings and result are JSON objects."""

from __future__ import annotations

import json
import sys
from typing import Any

from kfuzz.fuzz import campaign
from kfuzz.fuzz.other_reader import named_testee


def main(settings: dict[str, Any]) -> None:
    """Run the campaign until something is found. Prints the first cause, or null."""
    part = settings["without"]
    [result] = campaign.run(
        [settings["target"]],
        settings["seconds"],
        seed=settings["seed"],
        sanitizer=settings["sanitizer"],
        stop_at_first=True,
        without=part if part in ("coverage", "structure") else None,
        out=settings["out"],
        truth=named_testee(settings["truth"]) if settings["truth"] else None,
    )
    cause = next(iter(result.causes.values()), None)
    found = {"harm": cause.harm, "at": cause.at, "summary": cause.smallest.error} if cause else None
    print(json.dumps({"found": found, "executions": result.executions}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
