"""The hot code: Cython only, imports nothing of kfuzz outside this folder but its errors.

``cursor`` and ``sink`` are inline reads and writes over raw pointers; ``report`` collects findings without Python
objects; ``framing`` finds where a batch ends; ``record_batch`` (magic 2) and ``message_set`` (magic 0 and 1) each hold
one parse loop; ``checksum`` computes the CRCs between those loops; ``message`` is the package for messages by schemas.
"""
