from typing_extensions import Buffer

def crc32c(data: Buffer, value: int = 0, /) -> int:
    """CRC-32C (Castagnoli), unsigned; ``org.apache.kafka.common.utils.Crc32C``."""

def crc32(data: Buffer, value: int = 0, /) -> int:
    """CRC-32 (IEEE), unsigned; ``org.apache.kafka.common.record.LegacyRecord``."""

def crc32c_joined(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32C of two parts from the CRC-32C of each; ``second_bytes`` is the second part's length."""

def crc32_joined(first: int, second: int, second_bytes: int) -> int:
    """The same for CRC-32."""

def kernel(data: Buffer, value: int = 0, bits: int = 64) -> int | None:
    """``crc32c`` by one of the kernels that the loops without the GIL use; None if it is off or cannot run here.

    ``bits`` is 64 or 256: how many bits the kernel takes at a time. The loops use the wider one if the machine has it.
    KFUZZ_PORTABLE=1 turns it off.
    """

def zlib_kernel(data: Buffer, value: int = 0) -> int | None:
    """``crc32`` by the kernel that the loops without the GIL use; None if this machine cannot run it or
    KFUZZ_PORTABLE=1 turns it off.
    """

def zlib_tables(data: Buffer, value: int = 0) -> int:
    """``crc32`` by the tables, which short messages use if the kernel is off or cannot run here."""
