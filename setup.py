"""Build of the compiled modules; everything else about the package is in pyproject.toml.

Environment variables that a build reads:
  KFUZZ_COVERAGE=1  modules that count how often each line runs, for `make coverage`
  KFUZZ_UNWATCHED   the names of modules that a build for libFuzzer compiles without its counters
  KFUZZ_COMPILED    a folder that keeps compiled modules; what is there with the same C code is not compiled again. Each
                    compiler, and each set of flags from outside, needs a folder of its own

Modules are translated and compiled side by side, one for each core. A module is compiled again when one of its sources
has changed: its .pyx, a .pxd that it cimports, or a .h that it includes.
"""

import hashlib
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

COVERAGE = os.environ.get("KFUZZ_COVERAGE") == "1"
UNWATCHED = os.environ.get("KFUZZ_UNWATCHED", "").split()
COMPILED = os.environ.get("KFUZZ_COMPILED")
# The kept modules that were used last: a dozen states of all sources.
COMPILED_MOST = 500
UNWATCHED_FLAGS = ["-fno-sanitize-coverage=inline-8bit-counters,pc-table,trace-cmp,indirect-calls"]

# The cores that this process may use; a container may have fewer than the machine.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# Our code compiles without a warning; the ones named after -Wno are those that Cython's own generated C trips over.
C_FLAGS = [
    "-O3",
    "-Wall",
    "-Wextra",
    "-Wsign-compare",
    "-Werror",
    "-Wno-unused-function",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    # Line numbers for debuggers and profilers, and no more: Python's own -g takes a third of the compiler's time.
    "-g1",
]

# The function lets a fork that ends with os._exit write its counts.
COVERAGE_LINKS = ["--coverage", "-Wl,-u,__gcov_dump"]
if COVERAGE:
    C_FLAGS[0] = "-O0"
    C_FLAGS.append("--coverage")

# Without it GCC clears small structs by a string instruction, for processors of twenty years ago; the code runs on all.
# The platform is that of the modules: tools/arm64.py compiles for another one than this machine's.
if sysconfig.get_platform().endswith(("x86_64", "amd64")):
    C_FLAGS.append("-mtune=haswell")


# Generated C stays out of the source folders. Each Python has a folder of its own: Cython translates again what is
# older than Cython's own files, and then the modules of another Python would look out of date.
BUILD = f"build/cython-{sys.implementation.cache_tag}"

# The second line of generated C after `name_lines`; Cython looks at the first.
NAMED = "/* Each line names its line of a .pyx or .pxd. */"

# Where the C headers are; no two have the same name.
HEADERS = [
    "kfuzz/mapped",
    *(f"kfuzz/wire/{room}" for room in ("io", "records", "columns", "walk", "messages")),
    "kfuzz/mutate",
    "kfuzz/fuzz",
]


def extensions() -> list[Extension]:
    found = []
    for source in sorted(Path("kfuzz").rglob("*.pyx")):
        name = ".".join(source.with_suffix("").parts)
        found.append(
            Extension(
                name,
                [str(source)],
                include_dirs=HEADERS,
                extra_compile_args=C_FLAGS + (UNWATCHED_FLAGS if name in UNWATCHED else []),
                extra_link_args=COVERAGE_LINKS if COVERAGE else [],
            )
        )
    return found


def includes(header: Path, seen: set[Path]) -> set[Path]:
    """The header and all headers of ours that it includes."""
    if header not in seen:
        seen.add(header)
        for name in re.findall(r'^#include "(.+)"', header.read_text(), re.MULTILINE):
            for folder in HEADERS:
                if (Path(folder) / name).is_file():
                    includes(Path(folder) / name, seen)
    return seen


def translated() -> list[Extension]:
    """The extensions with their C files, which Cython makes of all that has changed."""
    made: list[Extension] = cythonize(
        extensions(),
        build_dir=BUILD,
        nthreads=CORES,
        language_level=3,
        annotate=bool(os.environ.get("KFUZZ_ANNOTATE")),
        compiler_directives={
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "freethreading_compatible": False,
        },
    )
    if COVERAGE:
        for extension in made:
            name_lines(Path(extension.sources[0]))
    # Cython puts copies of some headers beside the generated C. The compiler would prefer them to the originals.
    for copy in Path(BUILD).rglob("*.h"):
        copy.unlink()
    for extension in made:
        # Cython names the headers that a .pxd includes, but not the headers that those include.
        headers: set[Path] = set()
        for name in extension.depends:
            if name.endswith(".h"):
                includes(Path(name), headers)
        extension.depends = sorted({*extension.depends, *map(str, headers)})
    return made


def name_lines(file: Path) -> None:
    """Give the compiler the line of a .pyx or .pxd each line of Cython's C belongs to.

    Cython can do this itself (``emit_linenums``), but then its own code has the numbers of lines that it is not from.
    """
    lines = file.read_text().splitlines()
    if lines[1] == NAMED:
        return
    made = [lines[0], NAMED]
    place = None
    for line in lines[1:]:
        if found := re.match(r'\s*/\* "(.+)":(\d+)$', line):
            place = f'#line {found[2]} "{found[1]}"'
            made.append(f'#line {len(made) + 2} "{file}"')
        elif place and re.match(r"\s*(/\* function exit code \*/|/\*--- Wrapped|__pyx_L\d+_(\w+_)?error:;)", line):
            place = None
            made.append(f'#line {len(made) + 2} "{file}"')
        elif place and re.match(r"\s*[^\s#/*]", line):
            made.append(place)
        made.append(line)
        # Here a function or a declaration ends.
        if place and re.match(r"};?$|/\* [^\"]", line):
            place = None
            made.append(f'#line {len(made) + 2} "{file}"')
    file.write_text("\n".join(made) + "\n")


class BuildInTree(build_ext):
    """Keeps what an editable installation compiles, so that ``make build`` does not compile all of it again."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CORES
        if self.editable_mode:
            usual = build(self.distribution)
            usual.ensure_finalized()
            self.build_lib, self.build_temp = usual.build_lib, usual.build_temp

    def build_extension(self, ext: Extension) -> None:
        if not COMPILED:
            super().build_extension(ext)
            return
        kept = Path(COMPILED) / f"{ext.name}-{fingerprint(ext)}.so"
        made = Path(self.get_ext_fullpath(ext.name))
        made.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(kept, made)
            # The last use, for `remove_oldest`.
            os.utime(kept)
        except FileNotFoundError:
            # An older module of the same name may be newer than these sources.
            self.force = True
            super().build_extension(ext)
            keep(made, kept)

    def run(self) -> None:
        super().run()
        if COMPILED:
            remove_oldest(Path(COMPILED))


def fingerprint(extension: Extension) -> str:
    """A digest of all that makes a compiled module, except the compiler and the flags from outside."""
    flags = extension.extra_compile_args, extension.extra_link_args, extension.define_macros, extension.include_dirs
    digest = hashlib.sha256(repr(flags).encode())
    for name in [*extension.sources, *extension.depends]:
        digest.update(name.encode() + b"\0" + Path(name).read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def keep(module: Path, kept: Path) -> None:
    """Copy a module to ``kept``, which never names a half-written file."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=kept.parent) as folder:
        Path(shutil.copy(module, folder)).replace(kept)


def remove_oldest(folder: Path) -> None:
    """Remove the modules that were used least recently, beyond ``COMPILED_MOST``."""
    for file in sorted(folder.glob("*.so"), key=lambda file: -file.stat().st_mtime_ns)[COMPILED_MOST:]:
        file.unlink(missing_ok=True)


# The parts of testees/ that an installed kfuzz needs, for `kfuzz testee new`.
KITS = ("go", "rust", "node", "python", "stubs")


class BuildWithSuite(build_py):
    """Puts the golden vectors, and the readers and the license that go with a copy, where kfuzz.vectors finds them.

    The kits for testees go where kfuzz.conformance finds them.
    """

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            built = shutil.ignore_patterns("target", "node_modules", "__pycache__", "Cargo.lock")
            beside = Path(self.build_lib) / "kfuzz" / "vectors"
            shutil.copytree("vectors", beside / "suite", dirs_exist_ok=True)
            for name in ("examples", "packages/go", "packages/npm"):
                shutil.copytree(name, beside / name, dirs_exist_ok=True, ignore=built)
            shutil.copy("packages/rules.md", beside / "packages")
            shutil.copy("LICENSE", beside)
            for name in KITS:
                place = Path(self.build_lib) / "kfuzz" / "conformance" / "kits" / name
                shutil.copytree(Path("testees") / name, place, dirs_exist_ok=True, ignore=built)


setup(
    cmdclass={"build_ext": BuildInTree, "build_py": BuildWithSuite},
    ext_modules=translated(),
)
