from typing_extensions import Buffer

def crc32c(data: Buffer, value: int = 0, /) -> int:
    """CRC-32C (Castagnoli), unsigned; ``org.apache.kafka.common.utils.Crc32C``."""

def crc32(data: Buffer, value: int = 0, /) -> int:
    """CRC-32 (IEEE), unsigned; ``org.apache.kafka.common.record.LegacyRecord``."""
