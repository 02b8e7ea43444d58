"""The words that generated text is made of."""

from __future__ import annotations

from typing import Final

# 16 adjectives and 16 nouns of seven letters: every pair, with its two spaces, is a phrase of 16 bytes.
ADJECTIVES: Final = (
    "ancient", "brittle", "careful", "distant", "eastern", "foreign", "gradual", "hopeful",
    "instant", "joyless", "kindred", "limited", "massive", "neutral", "orderly", "patient",
)  # fmt: skip
NOUNS: Final = (
    "account", "balance", "courier", "deposit", "engines", "freight", "gateway", "harvest",
    "invoice", "journal", "keyword", "library", "machine", "network", "outcome", "parcels",
)  # fmt: skip
WORDS: Final = ADJECTIVES + NOUNS
PHRASES: Final = "".join(f"{adjective} {noun} " for adjective in ADJECTIVES for noun in NOUNS).encode()

FIRST_NAMES: Final = (
    "Ada", "Boris", "Chloé", "Dmitri", "Elena", "Farid", "Grace", "Hana",
    "Igor", "Julia", "Kofi", "Lena", "Marta", "Nils", "Olga", "Paul",
)  # fmt: skip
LAST_NAMES: Final = (
    "Adams", "Bauer", "Costa", "Dubois", "Eriksen", "Fischer", "García", "Haas",
    "Ivanova", "Jensen", "Kowalski", "Lopez", "Müller", "Novak", "Okafor", "Petit",
)  # fmt: skip
NAMES: Final = tuple(f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES)
