from typing_extensions import Buffer

def crc32c(data: Buffer, value: int = 0, /) -> int:
    """CRC-32C (Castagnoli), unsigned; ``org.apache.kafka.common.utils.Crc32C``."""

def crc32(data: Buffer, value: int = 0, /) -> int:
    """CRC-32 (IEEE), unsigned; ``org.apache.kafka.common.record.LegacyRecord``."""

def kernel(data: Buffer, value: int = 0, wide: bool = False) -> int | None:
    """``crc32c`` by a kernel that the loops without the interpreter use; None where this machine cannot run it.

    ``wide`` is the one of 512-bit vectors, which they take where they can and KFUZZ_PORTABLE=1 has not turned it off.
    """

def zlib_kernel(data: Buffer, value: int = 0) -> int | None:
    """``crc32`` by the kernel that the loops without the interpreter use; None where this machine cannot run it, or
    KFUZZ_PORTABLE=1 has turned it off.
    """

def zlib_tables(data: Buffer, value: int = 0) -> int:
    """``crc32`` by the tables that short messages take where there is no kernel."""
