"""Build of the compiled modules; everything else about the package stands in pyproject.toml.

Environment variables that a build reads:
  KFUZZ_TRACE=1     Cython line tracing, for coverage reports of the .pyx files (decoding is ~100 times slower)
  KFUZZ_UNWATCHED   the names of modules that a build for libFuzzer compiles without its counters

Modules are translated and compiled side by side, one for each core. A module is compiled again when one of its sources
has changed: its .pyx, a .pxd that it cimports, or a .h that it includes.
"""

import os
import platform
import re
import shutil
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

TRACE = os.environ.get("KFUZZ_TRACE") == "1"
UNWATCHED = os.environ.get("KFUZZ_UNWATCHED", "").split()
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

# Without it GCC clears small structs by a string instruction, for processors of twenty years ago; the code runs on all.
if platform.machine() in ("x86_64", "AMD64"):
    C_FLAGS.append("-mtune=haswell")


# Generated C stays out of the source folders. Each Python has a folder of its own: Cython translates again what is
# older than Cython's own files, and then the modules of another Python would look out of date.
BUILD = f"build/cython-{sys.implementation.cache_tag}"

# Where the C headers are; no two have the same name.
HEADERS = ["kfuzz/wire", "kfuzz/mutate", "kfuzz/fuzz"]


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
                define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
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
            "linetrace": TRACE,
            "freethreading_compatible": False,
        },
    )
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


class BuildInTree(build_ext):
    """Keeps what an editable installation compiles, so that ``make build`` does not compile all of it again."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CORES
        if self.editable_mode:
            usual = build(self.distribution)
            usual.ensure_finalized()
            self.build_lib, self.build_temp = usual.build_lib, usual.build_temp


# The parts of testees/ that an installed kfuzz needs, for `kfuzz testee new`.
KITS = ("go", "rust", "node", "python", "stubs")


class BuildWithSuite(build_py):
    """Puts the golden vectors, and the readers and the license that go with a copy, where kfuzz.vectors finds them.

    The kits for testees go where kfuzz.conformance finds them.
    """

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, name in (("vectors", "suite"), ("examples", "examples")):
                shutil.copytree(source, Path(self.build_lib) / "kfuzz" / "vectors" / name, dirs_exist_ok=True)
            shutil.copy("LICENSE", Path(self.build_lib) / "kfuzz" / "vectors")
            built = shutil.ignore_patterns("target", "node_modules", "__pycache__", "Cargo.lock")
            for name in KITS:
                place = Path(self.build_lib) / "kfuzz" / "conformance" / "kits" / name
                shutil.copytree(Path("testees") / name, place, dirs_exist_ok=True, ignore=built)


setup(
    cmdclass={"build_ext": BuildInTree, "build_py": BuildWithSuite},
    ext_modules=translated(),
)
