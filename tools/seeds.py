"""Keeps the corpora of campaigns as seeds: ``python -m tools.seeds out/fuzz`` writes ``corpus/seeds/<target>.hex``.

An input that is a vector, a regression or a batch of a known shape is left out, because it is a seed anyway. Of the
others, the shortest are kept up to a limit, because many short inputs are worth more than a few long ones. Equal
corpora give equal files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.fuzz.seeding import CORPUS, inputs, read_hex
from kfuzz.fuzz.targets import TARGETS

# The file of each target may have this size; all of them stay below 4 MB.
BYTES_MAX: Final = 500_000
# It finds itself, whatever its seeds are.
WITHOUT_SEEDS: Final = ("canary",)


def main(arguments: Sequence[str] | None = None, seeds: Path = CORPUS / "seeds") -> int:
    """Returns 0, or 2 if the folder holds no corpus."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.seeds",
        description="Keeps what campaigns found worth keeping as seeds, in corpus/seeds/.",
        epilog="example: python -m tools.seeds out/fuzz",
    )
    parser.add_argument("folder", type=Path, help="the --out of `kfuzz fuzz`, with a folder for each target")
    parser.add_argument("--bytes-max", type=int, default=BYTES_MAX, help=f"size of a target's file ({BYTES_MAX})")
    options = parser.parse_args(arguments)
    try:
        corpora = {name: options.folder / name / "corpus" for name in TARGETS if name not in WITHOUT_SEEDS}
        found = {name: corpus for name, corpus in corpora.items() if corpus.is_dir()}
        if not found:
            raise UsageError(f"{options.folder} has no corpus; name the --out of a campaign, such as out/fuzz")
        for name, corpus in found.items():
            file = seeds / f"{name}.hex"
            before = read_hex(file) if file.is_file() else []
            known = {data for _, data in inputs(TARGETS[name])} - set(before)
            made = {read_bytes(path) for path in corpus.iterdir()}
            there = {*before, *made} - known
            kept = shortest(there, options.bytes_max)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, "".join(f"{data.hex()}\n" for data in kept).encode())
            print(f"{name}: {len(kept)} of {len(there)} inputs, {file.stat().st_size} bytes")
    except KfuzzError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def shortest(data: Iterable[bytes], bytes_max: int) -> list[bytes]:
    """The shortest inputs whose lines fit in a file of ``bytes_max``, the shortest first; without an empty one."""
    kept = []
    for one in sorted(filter(None, data), key=lambda one: (len(one), one)):
        bytes_max -= 2 * len(one) + 1
        if bytes_max < 0:
            break
        kept.append(one)
    return kept


if __name__ == "__main__":
    sys.exit(main())
