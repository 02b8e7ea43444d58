"""Seeds, dictionary and mutator for other people's fuzzers: libFuzzer, AFL++, Go's own, and OSS-Fuzz.

``DIR/seeds`` holds one file per seed, named by its SHA-1, ``DIR/kfuzz.dict`` the dictionary, which libFuzzer and AFL++
both read, and ``DIR/libkfuzz_mutator.so`` the mutator with the hooks of both. Go takes only a corpus: ``DIR`` itself,
which is ``testdata/fuzz/FuzzNAME`` of a package. OSS-Fuzz gets the folder of a project, with the mutator as sources:
it runs programs that are linked whole, and preloads nothing.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, get_args

from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.fuzz import targets as table
from kfuzz.fuzz.building import COMPILERS, NoNativeCoverage, compile_mutator, mutator_sources
from kfuzz.fuzz.messages import SELECTOR_SIZE, choices, flat_schema_of
from kfuzz.fuzz.seeding import dictionary, seeds
from kfuzz.fuzz.targets import Target
from kfuzz.units import counted

Format = Literal["libfuzzer", "afl", "go", "oss-fuzz"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
# AFL++ refuses longer inputs by default, and Go mutates them slowly.
SEED_BYTES_MAX: Final = 1 << 20
LIBRARY: Final = "libkfuzz_mutator.so"
DICTIONARY: Final = "kfuzz.dict"
SCHEMAS: Final = "schemas.c"
PROJECT: Final = Path(__file__).with_name("oss_fuzz.toml")
PROGRAM: Final = "fuzz_decoder"
GO_HEADER: Final = "go test fuzz v1\n"
# The first time that a zip file can hold: equal seeds give equal files.
ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)


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
    messages: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Exported:
    """Write the seeds of ``target``, and the inputs in the folders ``corpora``, for the fuzzer ``form``.

    ``messages`` are globs over names such as ``FetchResponse``: of the target ``messages``, only these are seeds, and
    only these are in the mutator's table of schemas. Files with other names in ``directory`` stay. Raises
    ``UsageError`` if the target does not exist, no message matches, a folder cannot be read or written, or the mutator
    cannot be compiled.
    """
    chosen = table.find(target)
    selectors = _selectors(chosen, messages)
    found = {*seeds(chosen, say=say), *(data for folder in corpora for data in _inputs(folder, say))}
    if messages:
        found = {data for data in found if data[:SELECTOR_SIZE] in selectors}
    words = dictionary(chosen)
    schemas = _table(selectors) if selectors else None
    if form == "oss-fuzz":
        return _project(directory, sorted(found), words, schemas, has_mutator=chosen.hooked)
    folder = directory if form == "go" else directory / "seeds"
    for data in sorted(found):
        name = hashlib.sha1(data).hexdigest()
        write_whole(folder / name, GO_HEADER + f"[]byte({go_literal(data)})\n" if form == "go" else data)
    if form == "go":
        return Exported(len(found), folder)
    if words is not None:
        write_whole(directory / DICTIONARY, words.read_bytes())
    mutator = _compiled(directory / LIBRARY, schemas) if chosen.hooked else None
    return Exported(len(found), folder, directory / DICTIONARY if words else None, mutator)


def _selectors(target: Target, messages: Sequence[str]) -> list[bytes]:
    """The selectors of the chosen messages. The list is empty for a target whose inputs are not messages."""
    if target.flat_schema_of is None:
        if messages:
            raise UsageError(f"--messages is for the target messages, and this is {target.name}; add --target messages")
        return []
    globs = messages or ("*",)
    found = [
        selector
        for selector, (definition, _) in choices().items()
        if any(fnmatchcase(definition.name, glob) for glob in globs)
    ]
    if not found:
        raise UsageError(f"no message is called {' or '.join(messages)}; `kfuzz messages list` shows their names")
    return found


def _table(selectors: Sequence[bytes]) -> str:
    """C code with the flat schemas of these messages. Versions that are alike share one."""
    numbers: dict[bytes, int] = {}
    cases = []
    for selector in selectors:
        flat = flat_schema_of(selector)
        assert flat is not None
        number = numbers.setdefault(flat, len(numbers))
        cases.append(f"    case 0x{selector.hex()}: return (const kfuzz_flat_schema *) (const void *) s{number};")
    arrays = [
        f"static const _Alignas(8) unsigned char s{number}[] = {{{','.join(map(str, flat))}}};"
        for flat, number in numbers.items()
    ]
    return "\n".join([
        "/* The schemas of messages, for kfuzz's mutator: `kfuzz export` made this file. */",
        '#include "schema.h"',
        *arrays,
        "const kfuzz_flat_schema *kfuzz_exported_schema(const uint8_t *selector)",
        "{",
        "    switch (selector[0] << 16 | selector[1] << 8 | selector[2]) {",
        *cases,
        "    default: return 0;",
        "    }",
        "}",
        "",
    ])  # fmt: skip


def _project(
    directory: Path, found: Sequence[bytes], words: Path | None, schemas: str | None, *, has_mutator: bool
) -> Exported:
    """The folder of an OSS-Fuzz project. Its settings and its harness stay if they are there: they are the user's."""
    sources = mutator_sources() if has_mutator else []
    if has_mutator and not sources:
        raise UsageError("the mutator's sources are not in an installed kfuzz; run this from a checkout")
    for name, text in tomllib.loads(PROJECT.read_text()).items():
        if not (directory / name).is_file():
            write_whole(directory / name, text, mode=0o777 if name.endswith(".sh") else 0o666)
    archive, mutator = directory / f"{PROGRAM}_seed_corpus.zip", directory / "mutator"
    own_words, schemas_file = directory / f"{PROGRAM}.dict", mutator / SCHEMAS
    made: dict[Path, bytes | str] = {archive: _zipped(found)}
    if words is not None:
        made[own_words] = words.read_bytes()
    made |= {mutator / source.name: source.read_bytes() for source in sources}
    if schemas is not None:
        made[schemas_file] = schemas
    for path, data in made.items():
        write_whole(path, data)
    # An earlier export may have been of another target, and build.sh takes what is there.
    for path in {schemas_file, mutator / "library.c"} - made.keys():
        path.unlink(missing_ok=True)
    return Exported(len(found), archive, own_words if words else None, mutator if has_mutator else None)


def _zipped(found: Sequence[bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for data in found:
            archive.writestr(zipfile.ZipInfo(hashlib.sha1(data).hexdigest(), ZIP_TIME), data, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _inputs(folder: Path, say: Callable[[str], None]) -> list[bytes]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; name one with an input in each file")
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    if not files:
        raise UsageError(f"{folder} holds no files; name a folder with an input in each file")
    fitting = [file for file in files if 0 < file.stat().st_size <= SEED_BYTES_MAX]
    if left_out := len(files) - len(fitting):
        say(f"{folder}: {counted(left_out, 'file')} left out, empty or longer than {SEED_BYTES_MAX >> 20} MiB")
    return [read_bytes(file) for file in fitting]


def _compiled(library: Path, schemas: str | None) -> Path:
    compiler = next((name for name in ("cc", *COMPILERS) if shutil.which(name)), None)
    if compiler is None:
        raise UsageError("the mutator is compiled from C, and there is no C compiler; install gcc or clang")
    with tempfile.TemporaryDirectory(prefix="kfuzz-export-") as folder:
        own = Path(folder) / SCHEMAS
        if schemas is not None:
            own.write_text(schemas)
        try:
            made = compile_mutator(Path(folder) / LIBRARY, compiler, schemas=own if schemas is not None else None)
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
