from typing_extensions import Buffer

def crc32c(data: Buffer, value: int = 0, /) -> int:
    """CRC-32C (Castagnoli), unsigned; ``org.apache.kafka.common.utils.Crc32C``."""

def crc32(data: Buffer, value: int = 0, /) -> int:
    """CRC-32 (IEEE), unsigned; ``org.apache.kafka.common.record.LegacyRecord``."""

def kernel(data: Buffer, value: int = 0, bits: int = 64) -> int | None:
    """``crc32c`` by a kernel that the loops without the interpreter use; None where this machine cannot run it.

    ``bits`` is 64, 256 or 512: how much it takes at a time. The loops use the widest that the machine has;
    KFUZZ_PORTABLE=1 turns off those of 256 and 512.
    """

def zlib_kernel(data: Buffer, value: int = 0) -> int | None:
    """``crc32`` by the kernel that the loops without the interpreter use; None where this machine cannot run it, or
    KFUZZ_PORTABLE=1 has turned it off.
    """

def zlib_tables(data: Buffer, value: int = 0) -> int:
    """``crc32`` by the tables that short messages take where there is no kernel."""
