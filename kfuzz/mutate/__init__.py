"""Makes broken record batches: changes the structure of well-formed ones, then repairs most lengths and CRCs.

>>> from kfuzz.mutate import Mutator
>>> Mutator(seed=1).input() == Mutator(seed=1).input()
True
"""

from kfuzz.mutate.mutator import KINDS, Mutator

__all__ = ["KINDS", "Mutator"]
