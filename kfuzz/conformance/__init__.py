"""Judging implementations: the testee protocol, the judge, differentials, a real broker, and the reports.

The rooms, from the ground up: ``protocol``, ``judge``, ``differential`` and ``broker``, ``report``. May import
``kfuzz.vectors``, ``kfuzz.mutate``, ``kfuzz.messages`` and ``kfuzz.records``.
"""
