"""Breaks record batches on purpose: well-formed ones are changed by structure, then mostly repaired to get far.

>>> from kfuzz.mutate import Mutator
>>> Mutator(seed=1).input() == Mutator(seed=1).input()
True
"""

from kfuzz.mutate.mutator import KINDS, Mutator

__all__ = ["KINDS", "Mutator"]
