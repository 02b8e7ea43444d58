"""Differentials: kfuzz and a testee get the same made-up inputs and must agree on all of them.

``records``, ``messages`` and ``streams`` have one kind of input each; ``confirm`` asks Kafka about the vectors. May
import ``kfuzz.mutate``, all that ``judge`` may, and the rooms ``judge`` and ``protocol``.
"""
