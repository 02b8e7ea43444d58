"""Bytes: buffers held, checked reads and varints, unchecked writes, checksums, codecs, and findings as C structs.

``format`` has the constants of Kafka's format; ``layout`` gives them to Python.
"""
