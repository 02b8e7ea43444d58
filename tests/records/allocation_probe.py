"""Measures what reading a vector allocates, C code included; run by test_allocation.py in a process of its own.

Vectors are read in forks, whose peak of address space begins at what is mapped when they are made. So an allocation
counts by its size, touched or not, whoever asked for it. Prints one JSON object a vector and limit, with the peaks in
bytes after each step.

``--mutants`` adds mutants of the vectors; ``--plant`` puts in what must never be there: room for as many records as the
header claims.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence

from kfuzz import records
from kfuzz.mutate import Mutator
from kfuzz.records import Limits
from kfuzz.vectors import load_suite

SMALL_LIMIT_BYTES = 64 * 1024
# A fault must not take the machine with it.
GUARD_BYTES = 4 << 30
BYTES_PER_PLANTED_RECORD = 16
M_MMAP_THRESHOLD = -3
M_TOP_PAD = -2
MMAP_FROM_BYTES = 32 * 1024
HOLES_MOST = 20_000
MUTANTS = 1000
# A fork costs more than reading a vector does.
GROUP = 25
# Below what test_allocation.py grants the smallest input.
GROUP_PEAK_BYTES_MOST = 1 << 20
SEED_BYTES_MOST = 4096

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
LIBC.malloc.argtypes = [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]

Step = Callable[[bytes, Limits], object]

# The peak only ever grows, so a later step's is that of all up to there.
STEPS: dict[str, Step] = {
    "check": lambda data, limits: records.check(data, limits=limits),
    "read": lambda data, limits: records.to_json(records.read(data, limits=limits).batches),
}


def by_the_words_of_the_header(data: bytes, limits: Limits) -> object:
    """The planted fault: an allocation by an unchecked count."""
    count = int.from_bytes(data[57:61], "big", signed=True) if len(data) >= 61 and data[16] == 2 else 0
    block = LIBC.malloc(max(count, 0) * BYTES_PER_PLANTED_RECORD)
    LIBC.free(block)
    return records.check(data, limits=limits)


def status(name: str) -> int:
    """A line of /proc/self/status in bytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def fill_the_holes() -> None:
    """Take every free block of malloc's that the system would not have to give: then none serves unseen."""
    LIBC.malloc_trim(0)
    for size in (MMAP_FROM_BYTES - 64, 8192, 2048, 512):
        for _ in range(HOLES_MOST):
            before = status("VmSize")
            LIBC.malloc(size)
            if status("VmSize") > before:
                break


def peaks(steps: Mapping[str, Step], inputs: Sequence[bytes], limits: Limits) -> dict[str, int]:
    """The bytes that each step adds to the address space at most; a step that does not come to its end is missing."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before = status("VmSize")
            resource.setrlimit(resource.RLIMIT_AS, (before + GUARD_BYTES, resource.RLIM_INFINITY))
            for name, step in steps.items():
                for data in inputs:
                    step(data, limits)
                os.write(into, f"{name} {status('VmPeak') - before}\n".encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(into)
    with open(out) as said:
        answer = dict(line.split() for line in said)
    os.waitpid(child, 0)
    return {name: int(peak) for name, peak in answer.items()}


def main(arguments: Sequence[str]) -> None:
    """Probe the vectors whose ids match the globs among ``arguments``."""
    steps = {"planted": by_the_words_of_the_header} if "--plant" in arguments else STEPS
    vectors = load_suite([word for word in arguments if not word.startswith("--")] or "*")
    # Memory for imports and libraries that are opened once is not charged to the first vector.
    for codec in records.CODECS:
        batch = records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")], compression=codec)
        for step in STEPS.values():
            step(records.encode_batch(batch), Limits())
    gc.collect()
    gc.freeze()
    LIBC.mallopt(M_MMAP_THRESHOLD, MMAP_FROM_BYTES)
    LIBC.mallopt(M_TOP_PAD, 0)
    fill_the_holes()
    inputs = [(vector.id, vector.data) for vector in vectors]
    mutator = Mutator(seed=1, seeds=[data for _, data in inputs if len(data) <= SEED_BYTES_MOST])
    inputs += [(f"mutant/{i}", mutator.input()) for i in range(MUTANTS if "--mutants" in arguments else 0)]
    small = [(name, data) for name, data in inputs if "/bomb/" not in name]
    for at in range(0, len(small), GROUP):
        report(steps, small[at : at + GROUP], SMALL_LIMIT_BYTES)
    for name, data in inputs:
        # Only what decompresses to more than the small bound reads otherwise under the large one.
        if "/bomb/" in name:
            report(steps, [(name, data)], SMALL_LIMIT_BYTES)
            report(steps, [(name, data)], Limits().decompressed_bytes)


def report(steps: Mapping[str, Step], group: Sequence[tuple[str, bytes]], limit_bytes: int) -> None:
    """Print a line an input. A group's peak bounds each one's; where it is large, each is measured alone."""
    found = peaks(steps, [data for _, data in group], Limits(limit_bytes))
    if len(group) > 1 and (len(found) < len(steps) or max(found.values()) > GROUP_PEAK_BYTES_MOST):
        for one in group:
            report(steps, [one], limit_bytes)
        return
    for name, data in group:
        print(json.dumps({"id": name, "limit": limit_bytes, "size": len(data), "peaks": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
