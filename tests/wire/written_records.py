"""Records of magic 2 written by hand, with an odd byte or number here and there."""

from __future__ import annotations

import random


def varint(value: int, odd: bool = False) -> bytes:
    """A zigzag varint; an odd one has a byte that it does not need."""
    raw = (value << 1 ^ value >> 63) & 0xFFFF_FFFF_FFFF_FFFF
    groups = [raw >> shift & 0x7F for shift in range(0, max(raw.bit_length(), 1), 7)] + [0] * odd
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def written_payload(rng: random.Random) -> tuple[bytes, int, int]:
    """Records of which some have an odd byte or number, how many there are, and the largest offset delta."""
    payload = b""
    count = rng.randint(1, 8)
    offset = -1
    # At most one thing is odd in most payloads: a second one could hide the first.
    odd_at = rng.randrange(40 * count)

    def odd() -> bool:
        nonlocal odd_at
        odd_at -= 1
        return odd_at == -1

    def field(sizes: tuple[int, ...]) -> bytes:
        size = rng.choice(sizes)
        length = rng.choice((-2, -1, size + 1, 1 << 20, 1 << 30)) if odd() else size
        return varint(length, odd()) + rng.choice((b"a", b"a", b"\xc3")) * size

    for _ in range(count):
        offset += rng.choice((0, -5)) if odd() else rng.choice((1, 1, 1, 70, 9000))
        timestamp = rng.choice((0, 5, -3, 70, 9_000, 2_000_000, 1 << 33, 1 << 40))
        body = bytes([odd()]) + varint(timestamp, odd()) + varint(offset, odd())
        body += b"\1" if rng.random() < 0.2 else field((0, 1, 10, 63, 64, 130))
        body += b"\1" if rng.random() < 0.2 else field((0, 1, 10, 63, 64, 130, 8191, 8192))
        headers = rng.choice((0, 0, 1, 3))
        body += varint(headers + odd(), odd())
        for _ in range(headers):
            body += varint(rng.choice((2, 60)) if odd() else 1, odd()) + rng.choice((b"h", b"h", b"h", b"\0", b"\xff"))
            body += b"\1" if rng.random() < 0.2 else field((0, 1, 63, 64))
        payload += varint(len(body) + odd() - odd(), odd()) + body
    payload += b"\0" * odd()
    return payload, count + odd() - odd(), offset - odd()
