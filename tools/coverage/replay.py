"""``python -m tools.coverage.replay DIR``: runs every known input of each fuzz target once, in this process.

The inputs are those of ``kfuzz fuzz --replay``, and the corpora of campaigns in ``DIR``. ``--replay`` itself needs the
build for libFuzzer, which does not count lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kfuzz.fuzz.seeding import inputs
from kfuzz.fuzz.targets import TARGETS


def main(corpora: Path) -> int:
    """Returns 1 if an input breaks its target, otherwise 0."""
    broken = 0
    for target in TARGETS.values():
        # Its bug is planted.
        if target.name == "canary":
            continue
        run = target.tiers(all_twice=True)
        kept = sorted((corpora / target.name / "corpus").glob("*"))
        known = [*inputs(target), *((file.name, file.read_bytes()) for file in kept)]
        for name, data in known:
            try:
                run(data)
            except Exception as error:
                broken += 1
                print(f"{target.name}: {name}: {error}", file=sys.stderr)
        print(f"{target.name}: {len(known):,} inputs")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
