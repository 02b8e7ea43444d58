"""Seeds, dictionary and mutator for other people's fuzzers: libFuzzer, AFL++ and Go's own.

``DIR/seeds`` holds one file per seed, named by its SHA-1, ``DIR/kfuzz.dict`` the dictionary, which libFuzzer and AFL++
both read, and ``DIR/libkfuzz_mutator.so`` the mutator with the hooks of both. Go takes only a corpus: ``DIR`` itself,
which is ``testdata/fuzz/FuzzNAME`` of a package.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.fuzz import targets as table
from kfuzz.fuzz.building import COMPILERS, NoNativeCoverage, compile_mutator
from kfuzz.fuzz.seeding import dictionary, seeds

Format = Literal["libfuzzer", "afl", "go"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
# AFL++ refuses longer inputs by default, and Go mutates them slowly.
SEED_BYTES_MAX: Final = 1 << 20
LIBRARY: Final = "libkfuzz_mutator.so"
DICTIONARY: Final = "kfuzz.dict"
GO_HEADER: Final = "go test fuzz v1\n"


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an ``export``: so many ``seeds``, in ``folder``. Some targets have no dictionary or mutator."""

    seeds: int
    folder: Path
    dictionary: Path | None = None
    mutator: Path | None = None


def export(
    form: Format,
    directory: Path,
    *,
    target: str = "record-batch",
    corpora: Iterable[Path] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Exported:
    """Write the seeds of ``target``, and the inputs in the folders ``corpora``, for the fuzzer ``form``.

    Files with other names in ``directory`` stay. Raises ``UsageError`` if the target does not exist, a folder cannot be
    read or written, or the mutator cannot be compiled.
    """
    chosen = table.find(target)
    found = {*seeds(chosen, say=say), *(data for folder in corpora for data in _inputs(folder))}
    folder = directory if form == "go" else directory / "seeds"
    for data in sorted(found):
        name = hashlib.sha1(data).hexdigest()
        write_whole(folder / name, GO_HEADER + f"[]byte({go_literal(data)})\n" if form == "go" else data)
    if form == "go":
        return Exported(len(found), folder)
    words = dictionary(chosen)
    if words is not None:
        write_whole(directory / DICTIONARY, words.read_bytes())
    mutator = _compiled(directory / LIBRARY) if chosen.batches else None
    return Exported(len(found), folder, directory / DICTIONARY if words else None, mutator)


def _inputs(folder: Path) -> list[bytes]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; name one with an input in each file")
    found = [read_bytes(file) for file in sorted(folder.iterdir()) if file.is_file()]
    return [data for data in found if 0 < len(data) <= SEED_BYTES_MAX]


def _compiled(library: Path) -> Path:
    compiler = next((name for name in ("cc", *COMPILERS) if shutil.which(name)), None)
    if compiler is None:
        raise UsageError("the mutator is compiled from C, and there is no C compiler; install gcc or clang")
    with tempfile.TemporaryDirectory(prefix="kfuzz-export-") as folder:
        try:
            made = compile_mutator(Path(folder) / LIBRARY, compiler)
        except NoNativeCoverage as error:
            raise UsageError(f"the mutator does not compile: {error}") from None
        write_whole(library, made.read_bytes(), mode=0o777)
    return library


def go_literal(data: bytes) -> str:
    """The bytes as a string literal of Go, as its own fuzzer writes them.

    >>> go_literal(b'a"b\\x00')
    '"a\\\\"b\\\\x00"'
    """
    return '"' + "".join(_go_escape(byte) for byte in data) + '"'


def _go_escape(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
