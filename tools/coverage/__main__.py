"""``python -m tools.coverage``: an HTML page of the lines of ``kfuzz/wire`` and ``kfuzz/mutate`` that nothing runs.

A copy of the checkout in ``build/coverage`` gets modules that count how often each line runs (``KFUZZ_COVERAGE=1`` of
setup.py). The tests, and all known inputs of the fuzz targets, run there. gcovr makes the table and the page.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kfuzz.files import copy_if_changed, locked, write_whole
from kfuzz.wire.columns.writer import WIDE
from tools.mutants.run import NOT_COPIED

ROOT: Final = Path(__file__).resolve().parents[2]
LEAST_PERCENT: Final = 97
# The tests that run compiled code, and take seconds. Those of make test-full, and those that need clang, Java or Spark,
# add no line.
TESTS: Final = ("wire", "records", "messages", "mutate", "corpora", "annotate", "control", "memory", "vectors", "fuzz")
MARKS: Final = "not full and not nightly and not clang and not java and not spark"
# A comment that begins with this word at the end of a line gives the reason why nothing can run the line.
UNREACHABLE: Final = r".*\S +(#|/\*|//) unreachable: \w"
# gcov needs this of the linker: a fork that ends with os._exit must find this function.
LINKED: Final = "-Wl,-u,__gcov_dump"
# Tests compile the mutator's library with the first compiler in PATH.
COMPILER: Final = f"""\
#!/bin/sh
case "$*" in *mutate/library.c*) exec gcc --coverage -O0 {LINKED} "$@" ;; esac
exec gcc "$@"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if at least 97 % of the lines run, 1 if fewer do or a test fails, 2 if gcc is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.coverage",
        description="Makes an HTML page of the lines of kfuzz/wire and kfuzz/mutate that tests and corpora run.",
        epilog="example: python -m tools.coverage tests/mutate",
    )
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only run these tests, and no corpora")
    parser.add_argument("--processes", type=int, default=2, help="number of processes that run tests (2)")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "out" / "coverage", metavar="DIR", help="where the page goes"
    )
    options = parser.parse_args(arguments)
    if not (shutil.which("gcc") and shutil.which("gcov")):
        print("gcc or gcov is not installed; install gcc (Debian and Ubuntu: apt-get install gcc)", file=sys.stderr)
        return 2
    folder = ROOT / "build" / "coverage"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        copy = Copy(folder)
        _tell("compiling the modules that have changed")
        copy.build()
        for counts in folder.rglob("*.gcda"):
            counts.unlink()
        _tell("running the tests")
        passed = copy.test(options.tests or [f"tests/{name}" for name in TESTS], options.processes)
        if not options.tests:
            _tell("running the known inputs of all fuzz targets")
            passed &= copy.replay()
        return copy.report(options.out) or int(not passed)


class Copy:
    """The copy of the checkout in ``folder``. Unchanged files keep their times, so that their modules stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "checkout"
        self.temporary = folder / "tmp"
        present = {path: self.root / path for path in _files(ROOT)}
        for path, target in present.items():
            copy_if_changed(ROOT / path, target)
        for path in _files(self.root):
            if path not in present:
                (self.root / path).unlink()
        compiler = folder / "bin" / "cc"
        write_whole(compiler, COMPILER, mode=0o777)
        self.environment = {
            **os.environ,
            "CC": "gcc",
            "KFUZZ_COVERAGE": "1",
            "PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, (self.root, self.root / "tools" / "coverage" / "child"))),
        }

    def build(self) -> None:
        """Compile what has changed, with the counters of gcov."""
        self._call("setup.py", "--quiet", "build_ext", "--inplace", check=True)

    def test(self, tests: Sequence[str], processes: int) -> bool:
        """Run these tests. Returns whether all of them pass."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        options = ("-q", "-m", MARKS, "--numprocesses", str(processes), "--dist", "loadfile")
        places = ("-p", "tools.coverage.counts", "--basetemp", str(self.temporary))
        return self._call("-m", "pytest", *options, *places, *tests) == 0

    def replay(self) -> bool:
        """Run all known inputs, with and without the loops for wide registers. Returns whether nothing breaks."""
        corpora = str(ROOT / "out" / "fuzz")
        codes = [self._call("-m", "tools.coverage.replay", corpora, KFUZZ_PORTABLE=portable) for portable in "01"]
        return codes == [0, 0]

    def report(self, out: Path) -> int:
        """Print the table and write the page to ``out``. Returns 1 if too few lines run."""
        out = out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        page = out / "index.html"
        done = self._call(
            *("-m", "gcovr", "--root", ".", "--filter", "kfuzz/(wire|mutate)/", str(self.root), str(self.temporary)),
            # All functions that Cython makes have names that gcovr takes for the compiler's own.
            "--include-internal-functions",
            # A line in a .pxd or a header is one line, though several modules have it.
            "--merge-lines",
            # Cython's own code, whose sources are no files here.
            *("--gcov-ignore-errors", "source_not_found", "--gcov-ignore-errors", "no_working_dir_found"),
            # Threads count without a lock.
            *("--gcov-ignore-parse-errors", "negative_hits.warn_once_per_file"),
            *("--exclude-lines-by-pattern", UNREACHABLE, "--fail-under-line", str(LEAST_PERCENT)),
            *("--html-details", str(page), "--html-single-page", "--html-self-contained"),
            *("--html-title", "Lines of kfuzz/wire and kfuzz/mutate that tests and corpora run", "--txt"),
        )
        if not WIDE:
            print("this processor has no 512-bit registers, so the loops for them do not run")
        print(f"the page is {page}")
        return int(done != 0)

    def _call(self, *arguments: str, check: bool = False, **environment: str) -> int:
        environment = {**self.environment, **environment}
        return subprocess.run([sys.executable, *arguments], cwd=self.root, env=environment, check=check).returncode


def _files(root: Path) -> Iterator[Path]:
    """The files of a checkout, relative to it. Its modules are left out: a copy has its own, which count."""
    ignored = shutil.ignore_patterns(*NOT_COPIED, "*.so")
    for folder, folders, names in os.walk(root):
        skipped = ignored(folder, [*folders, *names])
        folders[:] = [name for name in folders if name not in skipped]
        yield from (Path(folder, name).relative_to(root) for name in names if name not in skipped)


def _tell(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
