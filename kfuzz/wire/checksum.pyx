"""The two checksums of the record formats, behind one name each: ``crc32c`` for magic 2, ``crc32`` for magic 0 and 1.

One call a batch, between the ``nogil`` loops. The libraries use the machine's own instructions, so the names are
theirs as they are.
"""

from zlib import crc32

from crc32c import crc32c

__all__ = ["crc32", "crc32c"]
