from typing_extensions import Buffer

# Which codecs are decompressed without Python here, by number.
def codecs() -> list[int]: ...
def use(zlib: str | None, lz4: str | None, zstd: str | None) -> None:
    """Look for the decompressing functions in these shared libraries; what is not found is left to Python."""

def unpacked(codec: int, data: Buffer, limit: int) -> bytes | None:
    """What a scan gets of a stream; None where it is not a stream as writers make it, and is left to the containers.

    For tests: ``kfuzz.records.codecs`` must give the same bytes, and take the stream for whole.
    """
