"""Build of the compiled modules; everything else about the package stands in pyproject.toml.

Environment variables that a build reads:
  KFUZZ_FUZZ=1      instrument for libFuzzer (set CC to clang); see kfuzz/fuzz/build.py
  KFUZZ_TRACE=1     Cython line tracing, for coverage reports of the .pyx files (decoding is ~100 times slower)
"""

import os
import platform
import shutil
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

TRACE = os.environ.get("KFUZZ_TRACE") == "1"

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
]

# Without it GCC clears small structs by a string instruction, for processors of twenty years ago; the code runs on all.
if platform.machine() in ("x86_64", "AMD64"):
    C_FLAGS.append("-mtune=haswell")


def extensions() -> list[Extension]:
    found = []
    for source in sorted(Path("kfuzz").rglob("*.pyx")):
        found.append(
            Extension(
                ".".join(source.with_suffix("").parts),
                [str(source)],
                extra_compile_args=C_FLAGS,
                define_macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
            )
        )
    return found


class BuildWithSuite(build_py):
    """Puts the golden vectors and the readers that go with a copy into the wheel, where kfuzz.vectors finds them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, name in (("vectors", "suite"), ("examples", "examples")):
                shutil.copytree(source, Path(self.build_lib) / "kfuzz" / "vectors" / name, dirs_exist_ok=True)


setup(
    cmdclass={"build_py": BuildWithSuite},
    ext_modules=cythonize(
        extensions(),
        # Beside the sources stands only what we wrote.
        build_dir="build/cython",
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
    ),
)
