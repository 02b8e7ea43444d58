"""The testee protocol: its words, a testee as a process, and which testees there are.

May import the standard library, psutil, ``kfuzz.wire.values``, and ``errors``, ``files`` and ``kafka`` of kfuzz; no
other room of ``kfuzz.conformance``.
"""
