"""The hot code, in Cython only. Outside this folder it imports nothing of kfuzz except ``kfuzz.errors``.

``cursor`` and ``sink`` are inline reads and writes over raw pointers; ``report`` collects findings without Python
objects; ``framing`` finds where a batch ends; ``record_batch`` (magic 2) and ``message_set`` (magic 0 and 1) each hold
one parse loop; ``checksum`` computes the CRCs; the package ``message`` reads and writes messages by their schemas.
"""
