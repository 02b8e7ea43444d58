from typing_extensions import Buffer

# The numbers of the codecs that are decompressed without Python here.
def codecs() -> list[int]: ...
def use(zlib_ng: str | None, zlib: str, lz4: str | None, zstd: str | None) -> None:
    """Look for the decompression functions in these shared libraries; a codec without them is left to Python.

    gzip is read by zlib-ng if it is there, otherwise by zlib.
    """

def unpacked(codec: int, data: Buffer, limit: int) -> bytes | None:
    """Decompress a stream as a scan does. None if it is not an ordinary stream and is left to ``kfuzz.records.codecs``.

    For tests: ``kfuzz.records.codecs`` must give the same bytes and report the stream as whole.
    """
