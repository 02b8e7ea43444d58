from typing import Final

# A field of a layout: (name, offset, width in bytes), big-endian.
Layout = tuple[tuple[str, int, int], ...]

FRAME_LAYOUT: Final[Layout]
HEADER_LAYOUT: Final[Layout]
# Keyed by magic, 0 and 1.
MESSAGE_LAYOUT: Final[dict[int, Layout]]
HEADER_AT: Final[dict[str, int]]
MESSAGE_AT: Final[dict[int, dict[str, int]]]

LOG_OVERHEAD: Final[int]
MAGIC_AT: Final[int]
HEADER_UP_TO_MAGIC: Final[int]
BATCH_HEADER_SIZE: Final[int]
CODEC_AT: Final[dict[int, int]]
BATCH_CRC_COVERS_FROM: Final[int]
MESSAGE_CRC_COVERS_FROM: Final[int]
MESSAGE_LENGTHS_BYTES: Final[int]
BATCH_LENGTH_MIN: Final[dict[int, int]]
INNER_BYTES_MAX: Final[int]

CODEC_MASK: Final[int]
LOG_APPEND_TIME: Final[int]
TRANSACTIONAL: Final[int]
CONTROL: Final[int]
DELETE_HORIZON: Final[int]
ATTRIBUTE_BITS: Final[dict[str, int]]
