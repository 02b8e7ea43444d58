"""A job for tests/spark/test_spark_cluster.py: the first attempt at one segment stops half-way until it is released.

Each attempt leaves a note: ``<segment>.<number>``, with its process id.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kfuzz.corpora.workload import Workload, load

HELD = 5
HELD_S = 120


def held(notes: Path) -> Any:
    """``write_segment`` that leaves notes and holds the first attempt at the segment ``HELD``."""

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        import os
        import time

        from kfuzz.corpora.segment import write_segment

        number = 0
        while True:
            try:
                note = os.open(notes / f"{segment_id}.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                break
            except FileExistsError:
                number += 1
        os.write(note, f"{os.getpid()} {attempt}\n".encode())
        os.close(note)
        if segment_id != HELD or number:
            return write_segment(segment, segment_id, workload, out, attempt)
        real = os.fsync

        def wait(descriptor: int) -> None:
            # Half-way: the log has all its bytes under a temporary name, and its indexes do not exist yet.
            os.fsync = real
            end = time.monotonic() + HELD_S
            while not (notes / "release").exists() and time.monotonic() < end:
                time.sleep(0.05)
            real(descriptor)

        os.fsync = wait
        return write_segment(segment, segment_id, workload, out, attempt)

    return write


def main(workload: str, out: str, notes: str, tasks: str) -> int:
    from kfuzz.spark.generation import generate
    from kfuzz.spark.sessions import session_of_ours

    with session_of_ours(None, "held") as spark:
        rows = generate(spark, load(workload), out, tasks=int(tasks), write=held(Path(notes)))
    print(len(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
