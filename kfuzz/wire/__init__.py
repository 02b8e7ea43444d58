"""The hot code, in Cython only. Outside this folder it imports nothing of kfuzz except ``kfuzz.errors``.

``io`` reads and writes bytes. ``records`` holds the parse loops of all magics. ``columns`` makes Arrow's buffers of
rows, and rows of them. ``walk`` goes from batch to batch with a role's rules. ``messages`` reads and writes messages by
their schemas. Imports go down: ``walk``, ``columns``, ``records``, ``io``; ``messages`` uses only ``io``.
"""
