# The codecs of a topic's batches, and how often each is used.
from libc.stdint cimport uint64_t

from kfuzz.corpora.draws cimport cell, high

cdef extern from "format.h":
    enum:
        CODEC_COUNT "(KFUZZ_LAST_CODEC + 1)"

cdef struct codecs_t:
    # Numbers of codecs, and weights.
    int count
    int[CODEC_COUNT] codec
    uint64_t[CODEC_COUNT] weight
    uint64_t total

# ``weights`` are pairs of a codec's number and its weight.
cdef inline codecs_t to_codecs(weights):
    cdef codecs_t found
    found.count, found.total = 0, 0
    if len(weights) > CODEC_COUNT:
        raise ValueError(f"{len(weights)} weights for {CODEC_COUNT} codecs")
    for number, weight in weights:
        found.codec[found.count], found.weight[found.count] = number, weight
        found.total += found.weight[found.count]
        found.count += 1
    return found

# One of the weighted codecs, by a batch's random number.
cdef inline int weighed(const codecs_t *codecs, uint64_t batch_seed) noexcept nogil:
    cdef uint64_t at
    cdef int i
    if codecs.count == 1:
        return codecs.codec[0]
    at = <uint64_t> high(cell(batch_seed, 2)) * codecs.total >> 32
    for i in range(codecs.count):
        if at < codecs.weight[i]:
            return codecs.codec[i]
        at -= codecs.weight[i]
    return codecs.codec[codecs.count - 1]
