"""The testee protocol: its words, a testee as a process, and which testees there are.

May import the standard library, psutil, ``kfuzz.errors``, ``kfuzz.files`` and ``kfuzz.wire.values``; no other room of
``kfuzz.conformance``.
"""
