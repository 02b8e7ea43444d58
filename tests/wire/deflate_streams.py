"""Deflate streams of one block that no compressor makes, and mutants of ordinary ones."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence

# The order in which a block gives the lengths of the code for its code lengths.
LENGTHS_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
A, END, LENGTH_3 = ord("A"), 256, 257
# A literal and the end; with a third code for a copy of three bytes.
PLAIN = {A: 1, END: 1}
COPYING = {A: 2, END: 2, LENGTH_3: 1}
ALPHABET = b"kafka"


class Bits:
    def __init__(self) -> None:
        self.value = self.size = 0

    def put(self, value: int, size: int) -> None:
        self.value |= value << self.size
        self.size += size

    def put_code(self, code: tuple[int, int]) -> None:
        """A Huffman code begins with its highest bit."""
        for at in reversed(range(code[1])):
            self.put(code[0] >> at & 1, 1)

    def stream(self) -> bytes:
        return self.value.to_bytes((self.size + 7) // 8, "little")


def codes(lengths: Sequence[int]) -> dict[int, tuple[int, int]]:
    made, code, before = {}, 0, 0
    for size, symbol in sorted((size, symbol) for symbol, size in enumerate(lengths) if size):
        code <<= size - before
        made[symbol] = (code & (1 << size) - 1, size)
        code, before = code + 1, size
    return made


def dynamic(literals: dict[int, int], distances: Sequence[int], symbols: Sequence[int], count: int = 0) -> bytes:
    """A block with codes of its own: ``literals`` are lengths of codes by symbol. A symbol below 0 is a distance."""
    count = count or max(literals) + 1
    sizes = [literals.get(symbol, 0) for symbol in range(count)]
    bits = Bits()
    bits.put(0b101, 3)
    bits.put(count - 257, 5)
    bits.put(len(distances) - 1, 5)
    bits.put(15, 4)
    for length in LENGTHS_ORDER:
        bits.put(4 if length < 16 else 0, 3)
    of_lengths = codes([4] * 16)
    for size in (*sizes, *distances):
        bits.put_code(of_lengths[size])
    of_literals, of_distances = codes(sizes), codes(distances)
    for symbol in symbols:
        bits.put_code(of_literals[symbol] if symbol >= 0 else of_distances.get(~symbol, (1, 1)))
    return bits.stream()


def fixed(*parts: tuple[int, int]) -> bytes:
    """A block with deflate's own codes: an A, then codes with their sizes."""
    bits = Bits()
    bits.put(0b011, 3)
    for code in ((0x30 + A, 8), *parts):
        bits.put_code(code)
    return bits.stream()


def stored(data: bytes, complement: int = 0xFFFF) -> bytes:
    return b"\x01" + len(data).to_bytes(2, "little") + (len(data) ^ complement).to_bytes(2, "little") + data


# Streams, and whether zlib reads them.
ODD = {
    "two codes": (dynamic(PLAIN, [1, 1], [A, END]), True),
    "no code for distances": (dynamic(PLAIN, [0], [A, END]), True),
    "one code for distances": (dynamic(COPYING, [1], [A, LENGTH_3, ~0, END]), True),
    "one code for distances, and the bit that is none": (dynamic(COPYING, [1], [A, LENGTH_3, ~1, END]), False),
    "codes that are left over": (dynamic({A: 2, END: 2}, [1, 1], [A, END]), False),
    "distance codes that are left over": (dynamic(PLAIN, [2, 2], [A, END]), False),
    "too many codes": (dynamic({A: 1, END: 1, LENGTH_3: 1}, [1, 1], [A, END]), False),
    "no code for the end": (dynamic({A: 1, 66: 1, END: 0}, [1, 1], [A, A]), False),
    "286 symbols": (dynamic(PLAIN, [1, 1], [A, END], 286), True),
    "287 symbols": (dynamic(PLAIN, [1, 1], [A, END], 287), False),
    "288 symbols": (dynamic(PLAIN, [1, 1], [A, END], 288), False),
    "30 distances": (dynamic(PLAIN, [1, 1, *[0] * 28], [A, END]), True),
    "31 distances": (dynamic(PLAIN, [1, 1, *[0] * 29], [A, END]), False),
    "32 distances": (dynamic(PLAIN, [1, 1, *[0] * 30], [A, END]), False),
    "a copy": (fixed((1, 7), (0, 5), (0, 7)), True),
    "a copy from before the data": (fixed((1, 7), (1, 5), (0, 7)), False),
    "the length symbol 286": (fixed((0b11000110, 8), (0, 5), (0, 7)), False),
    "the distance symbol 30": (fixed((1, 7), (30, 5), (0, 13), (0, 7)), False),
    "a stored block": (stored(b"A"), True),
    "a stored block with another complement": (stored(b"A", 0xFFFE), False),
    "a block of the kind that is none": (b"\x07" + bytes(8), False),
    "a cut block": (dynamic(PLAIN, [1, 1], [A, END])[:-2], False),
}


def mutants(rng: random.Random, count: int) -> Iterator[bytes]:
    """Ordinary and odd streams of all kinds of blocks with a few wrong bits, cut, or with bytes that follow."""
    odd = [stream for stream, _ in ODD.values()]
    for _ in range(count):
        data = bytearray(rng.choice(odd))
        if rng.random() < 0.8:
            content = bytes(rng.choices(ALPHABET, k=rng.randrange(300))) * rng.choice((1, 1, 1, 200))
            strategy = rng.choice((zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED, zlib.Z_RLE))
            deflater = zlib.compressobj(rng.choice((0, 1, 6, 9)), zlib.DEFLATED, -15, 8, strategy)
            part = rng.randrange(len(content) + 1)
            data = bytearray(deflater.compress(content[:part]) + deflater.flush(zlib.Z_FULL_FLUSH))
            data += deflater.compress(content[part:]) + deflater.flush()
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            # Most mistakes are made in the first block's codes.
            at = rng.randrange(min(len(data), 60) if rng.random() < 0.6 else len(data))
            data[at] ^= 1 << rng.randrange(8)
        if rng.random() < 0.1:
            del data[rng.randrange(len(data)) :]
        if rng.random() < 0.2:
            data += rng.randbytes(rng.randrange(20))
        yield bytes(data)
