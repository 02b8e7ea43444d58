"""Walks over two logs at once, as long as their batches are alike; alike.pyi describes the interface."""

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.format cimport AT_MAGIC, AT_PARTITION_LEADER_EPOCH, LAST_MAGIC
from kfuzz.wire.io.report cimport clear, report_t
from kfuzz.wire.records.framing cimport get_frame


def alike(one not None, other not None, int64_t at, int64_t at_other):
    cdef HeldBuffer left = hold(one)
    cdef HeldBuffer right = hold(other)
    cdef report_t report
    cdef int64_t size
    cdef int64_t batches = 0
    cdef int64_t differing = 0
    cdef int64_t first = -1
    cdef int magic
    if not (0 <= at <= left.n and 0 <= at_other <= right.n):
        raise IndexError(f"no batches begin at {at} in {left.n} bytes, and at {at_other} in {right.n}")
    clear(&report)
    with nogil:
        while True:
            size = get_frame(left.p, at, left.n, &magic, &report)
            if size <= 0 or size > right.n - at_other:
                break
            if memcmp(left.p + at, right.p + at_other, size):
                # A broker sets the leader epoch of what it appends, and the CRC does not cover it.
                if (
                    magic != LAST_MAGIC
                    or memcmp(left.p + at, right.p + at_other, AT_PARTITION_LEADER_EPOCH)
                    or memcmp(left.p + at + AT_MAGIC, right.p + at_other + AT_MAGIC, size - AT_MAGIC)
                ):
                    break
                if not differing:
                    first = at
                differing += 1
            batches += 1
            at += size
            at_other += size
    return at, at_other, batches, differing, first
