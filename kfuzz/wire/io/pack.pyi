from typing_extensions import Buffer

# The numbers of the codecs that compress without Python here.
def codecs() -> list[int]: ...
def use(lz4: str | None, zstd: str | None) -> None:
    """Look for the compression functions in these shared libraries; a codec without them is left to Python."""

def packed(codec: int, data: Buffer) -> bytes | None:
    """Compress ``data`` as Kafka's producer does by default: an lz4 frame of independent blocks, or a zstd frame.

    None if the codec is left to Python. For tests: ``kfuzz.records.codecs`` must give the same bytes.
    """
