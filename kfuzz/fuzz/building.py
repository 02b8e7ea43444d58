"""The instrumented build: clang compiles the Cython modules again, for libFuzzer, in a separate directory.

The build never touches the modules that other code imports. It is a copy of the package in
``build/fuzz/<sanitizer>-<hash>/`` of the checkout: its own compiled modules, and links to the Python files. It contains
an executable ``bin/<target>`` for each target, which sets the environment and starts :mod:`kfuzz.fuzz.harness`.
libFuzzer starts that file again for ``-merge=1`` and ``-minimize_crash=1``. You can also run it by hand.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import copy_if_changed, locked, write_whole
from kfuzz.fuzz.recorder import MODULES
from kfuzz.fuzz.targets import TARGETS, Target

Sanitizer = Literal["none", "address", "undefined"]
# Parts that a build may lack in a benchmark.
Part = Literal["coverage", "structure"]
SANITIZERS: tuple[str, ...] = get_args(Sanitizer)

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent
# The folders whose compiled modules the targets run. ``mutate`` and ``fuzz`` also mutate inputs.
INSTRUMENTED = ("mapped", "wire", "records", "logs", "mutate", "fuzz")
# Files that are not compiled. The compiled modules expect them in the same folder.
LINKED = (".py", ".json", ".toml")
# Where builds are, in a checkout and in an archive.
BUILDS = Path("build/fuzz")
# How the name of a build in an archive ends.
CARRIED = "-carried"
COMPILERS = ("clang-16", "clang")
GET_CLANG = "install clang (Debian and Ubuntu: apt-get install clang-16) and run this again"

# Reference counts and dict versions say nothing about the input, and they differ between runs. So functions in Python's
# own headers are not instrumented.
QUIET = """\
#define PY_SSIZE_T_CLEAN
#define CYTHON_USE_DICT_VERSIONS 0
#pragma clang attribute push(__attribute__((noinline, no_sanitize("coverage"))), apply_to = function)
#include <Python.h>
#pragma clang attribute pop
"""
# Each module of kfuzz reports where its counters are (tiers.pyx). In assembly, because clang would give the compiler's
# own symbols other names if C code used them.
COUNTED = """\
__asm__(".pushsection .data.rel.local,\\"aw\\"\\n"
        ".weak __start___sancov_cntrs\\n.hidden __start___sancov_cntrs\\n"
        ".weak __stop___sancov_cntrs\\n.hidden __stop___sancov_cntrs\\n"
        ".globl kfuzz_counters\\n.type kfuzz_counters, @object\\n.size kfuzz_counters, 16\\n.balign 8\\n"
        "kfuzz_counters:\\n.quad __start___sancov_cntrs, __stop___sancov_cntrs\\n.popsection");
"""
# Comparisons are not traced: that takes a fifth of the time, and the canary is found as soon without it. The mutator
# knows the format's own numbers.
COVERAGE_FLAGS = "-fno-sanitize-coverage=trace-cmp -g"
# Per sanitizer: the compiler flags, and the runtime of atheris to preload.
FLAGS: dict[Sanitizer, str] = {
    "none": f"-fsanitize=fuzzer-no-link {COVERAGE_FLAGS}",
    "address": f"-fsanitize=address,fuzzer-no-link -fno-omit-frame-pointer {COVERAGE_FLAGS}",
    # Python's own flags include -fwrapv. It makes signed overflow defined, so the sanitizer would not report it.
    "undefined": f"-fsanitize=undefined,fuzzer-no-link -fno-sanitize-recover=undefined -fno-wrapv {COVERAGE_FLAGS}",
}
RUNTIMES: dict[Sanitizer, str] = {
    "none": "ubsan_with_fuzzer.so",
    "address": "asan_with_fuzzer.so",
    "undefined": "ubsan_with_fuzzer.so",
}
# Cython's own functions and the start of a module say nothing about an input either. They are most of the branches, and
# libFuzzer looks at each counter after each input.
UNCOUNTED = "fun:__Pyx_*\nfun:__pyx_pymod_*\nfun:PyInit_*\n"
# The code that compares the loops with each other is not fuzzed either.
UNWATCHED = "kfuzz.fuzz.tiers"
# The mutator is not fuzzed, so it has no coverage and no sanitizer.
MUTATOR_FLAGS = (
    *("-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-variable", "-shared", "-fPIC"),
    *("-fvisibility=hidden", *(f"-I{PACKAGE.name}/{folder}" for folder in ("wire/io", "wire/messages", "mutate"))),
)
# The decoder must handle a failed allocation itself. Memory that Python leaks at exit is not our bug.
ASAN_OPTIONS = "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16"
UBSAN_OPTIONS = "print_stacktrace=1"
# Cython's wrappers of constructors add 0 to a null pointer if a call has no arguments. The sanitizer ignores this in
# the wrappers, and still checks the constructors themselves.
UBSAN_IGNORED = "[pointer-overflow]\nfun:__pyx_pw_*__cinit__\n"
# Files that the flags name.
LISTS = {"quiet.h": QUIET + COUNTED, "uncounted.txt": UNCOUNTED, "ubsan-ignored.txt": UBSAN_IGNORED}


class NoNativeCoverage(KfuzzError):
    """The compiled modules cannot be instrumented on this machine. The text gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Build:
    """The directory with a campaign's executables.

    ``native`` says whether libFuzzer sees the compiled modules. If not, ``reason`` is a sentence that says why.
    """

    directory: Path
    sanitizer: Sanitizer
    native: bool
    reason: str = ""
    folder: str = "bin"

    def executable(self, target: Target) -> Path:
        """The executable that fuzzes ``target``. It takes libFuzzer's arguments."""
        return self.directory / self.folder / target.name

    def without(self, part: Part) -> Build:
        """The same build without native coverage or without the mutation hook, to measure what these are worth.

        Without coverage, the targets run the ordinary modules. ``native`` is then False.
        """
        settings = environment(self.directory, self.sanitizer)
        if part == "coverage":
            settings["PYTHONPATH"] = str(ROOT)
        folder = f"without-{part}"
        write_executables(self.directory, settings, folder=folder, with_hook=part != "structure")
        return replace(self, native=part != "coverage", folder=folder)


def build(
    sanitizer: Sanitizer = "none",
    *,
    root: Path = ROOT / BUILDS,
    say: Callable[[str], None] = lambda line: None,
) -> Build:
    """Return the instrumented build. Reuse an existing one with the same sources, flags, compiler and Python.

    In an archive, it is the build that came with it. Raises ``NoNativeCoverage`` if the build fails. Calls ``say`` with
    one line before a slow step.
    """
    require_atheris()
    directory = carried(sanitizer, root)
    if not directory.is_dir():
        directory = _compiled(sanitizer, root, say)
    _link_rest(directory)
    write_executables(directory, environment(directory, sanitizer))
    return Build(directory, sanitizer, native=True)


def _compiled(sanitizer: Sanitizer, root: Path, say: Callable[[str], None]) -> Path:
    compiler = find_compiler()
    sources = _sources()
    directory = root / f"{sanitizer}-{fingerprint(sources, compiler, sanitizer)}"
    if not directory.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with locked(root):
            # Another process may have built it while this one waited.
            if not directory.is_dir():
                say(f"compiling for fuzzing with {Path(compiler).name} (half a minute, once)")
                _build(directory, sources, compiler, sanitizer)
    return directory


def carried(sanitizer: Sanitizer, root: Path = ROOT / BUILDS) -> Path:
    """Where an archive for Spark's executors has its build, for which no compiler is needed."""
    return root / f"{sanitizer}{CARRIED}"


def _build(directory: Path, sources: list[Path], compiler: str, sanitizer: Sanitizer) -> None:
    """Compile in a work folder, then copy the result to ``directory``. A rename at the end avoids half-finished builds.

    Two folders are kept for the next build. ``.work-…`` has the sources and their C code: Cython translates only what
    has changed. ``.compiled-…`` has the compiled modules of many states of the sources, see ``KFUZZ_COMPILED`` in
    setup.py. Folders of other compilers or flags are removed.
    """
    root = directory.parent
    tools = _tools(compiler, sanitizer)
    # Cython does not know that setup.py sets its options.
    work = root / f".work-{sanitizer}-{_digest(tools, (ROOT / 'setup.py').read_text())}"
    compiled = root / f".compiled-{sanitizer}-{_digest(tools)}"
    for name in (f".work-{sanitizer}-*", f".compiled-{sanitizer}-*"):
        for old in root.glob(name):
            if old not in (work, compiled):
                shutil.rmtree(old, ignore_errors=True)
    work.mkdir(exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=root))
    try:
        _compile(work, compiled, sources, compiler, sanitizer)
        shutil.copytree(work, staging, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build"))
        staging.rename(directory)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def compile_mutator(out: Path, compiler: str = "cc", *, sources: Path = ROOT, schemas: Path | None = None) -> Path:
    """Compile ``kfuzz/mutate/library.c`` to the shared library ``out``. Raises ``NoNativeCoverage`` if that fails.

    With ``schemas``, C code with a table of messages, it changes messages.
    """
    messages = [] if schemas is None else ["-DKFUZZ_EXPORTS_MESSAGES", str(schemas)]
    _call([compiler, *MUTATOR_FLAGS, "-o", str(out), f"{PACKAGE.name}/mutate/library.c", *messages], sources)
    return out


def mutator_sources() -> list[Path]:
    """The source files of the library that :func:`compile_mutator` makes, and of what they include."""
    return sorted(path for folder in ("mutate", "wire") for path in (PACKAGE / folder).rglob("*.[ch]"))


def compiled_files(made: Build) -> Iterator[tuple[str, Path]]:
    """The files of a build that an archive must carry, each with its name there."""
    place = carried(made.sanitizer, BUILDS)
    for path in sorted(made.directory.rglob("*.so")):
        if not path.is_symlink():
            yield str(place / path.relative_to(made.directory)), path


def fallback(reason: str, *, root: Path = ROOT / BUILDS) -> Build:
    """A stand-in for machines without clang: it uses the ordinary modules, so atheris sees only Python code."""
    require_atheris()
    directory = root / "no-native-coverage"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        # The directory of an installed package may be read-only.
        directory = Path(tempfile.mkdtemp(prefix="kfuzz-fuzz-"))
    write_executables(directory, {"PYTHONPATH": str(ROOT)})
    return Build(directory, "none", native=False, reason=reason)


def require_atheris() -> None:
    """Raise ``UsageError`` if atheris is not installed."""
    if importlib.util.find_spec("atheris") is None:
        raise UsageError("fuzzing needs atheris, which is not installed; pip install 'kfuzz[fuzz]'")


def _atheris_runtime(name: str) -> Path:
    spec = importlib.util.find_spec("atheris")
    if spec is None or spec.origin is None:
        raise NoNativeCoverage("atheris is not installed as a package with files")
    path = Path(spec.origin).parent.parent / name
    if not path.is_file():
        raise NoNativeCoverage(f"this build of atheris has no {name}; install atheris 3 from a wheel")
    return path


def find_compiler() -> str:
    """The path of clang. Raises ``NoNativeCoverage`` if it is not installed."""
    for name in COMPILERS:
        if path := shutil.which(name):
            return path
    raise NoNativeCoverage(f"clang is not installed; {GET_CLANG}")


def _sources() -> list[Path]:
    """The source files of the compiled modules, relative to the checkout."""
    setup = ROOT / "setup.py"
    found = [path for folder in INSTRUMENTED for path in (PACKAGE / folder).rglob("*")]
    sources = sorted(path for path in found if path.suffix in {".pyx", ".pxd", ".h", ".c"})
    if not setup.is_file() or not any(path.suffix == ".pyx" for path in sources):
        raise NoNativeCoverage("the sources of the compiled modules are not here; run this from a checkout of kfuzz")
    if importlib.util.find_spec("Cython") is None:
        raise NoNativeCoverage("Cython is not installed; pip install 'kfuzz[dev]'")
    return [path.relative_to(ROOT) for path in (setup, *sources)]


def _tools(compiler: str, sanitizer: Sanitizer) -> str:
    """Everything but the sources and setup.py that makes a compiled module: compiler, flags, Python."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    parts = (compiler, version, sys.version, platform.machine(), sys.executable, _flags(sanitizer), *LISTS.values())
    return "\0".join(parts)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def fingerprint(sources: Iterable[Path], compiler: str, sanitizer: Sanitizer) -> str:
    """A digest of all that affects a build: the files ``sources``, which may be relative to the checkout, and this."""
    digest = hashlib.sha256(f"{_tools(compiler, sanitizer)}\0{Path(__file__).read_text()}".encode())
    for source in sources:
        digest.update(f"\0{source}\0".encode() + (ROOT / source).read_bytes())
    return digest.hexdigest()[:12]


def _compile(work: Path, compiled: Path, sources: list[Path], compiler: str, sanitizer: Sanitizer) -> None:
    """Update the sources in ``work`` and compile them there with the project's own setup.py."""
    for old in work.rglob("*.pyx"):
        if old.relative_to(work) not in sources:
            for file in old.parent.glob(f"{old.stem}.*"):
                file.unlink()
    for source in sources:
        # setup.py translates by modification time, so unchanged files must keep theirs.
        copy_if_changed(ROOT / source, work / source)
    # Reuse the C files that Cython has already generated for this Python.
    translated = f"build/cython-{sys.implementation.cache_tag}"
    if (ROOT / translated).is_dir() and not (work / translated).exists():
        shutil.copytree(ROOT / translated, work / translated)
    # Cython finds the .pxd files of a package only if the package has an __init__ file.
    for folder in {Path(PACKAGE.name), *(source.parent for source in sources if source.suffix == ".pyx")}:
        (work / folder / "__init__.py").touch()
    settings = compiler_settings(work, compiler, sanitizer, quiet=QUIET + COUNTED)
    settings |= {"KFUZZ_UNWATCHED": UNWATCHED, "KFUZZ_COMPILED": str(compiled)}
    environment = {**os.environ, **settings}
    compile_mutator(work / "mutator.so", compiler, sources=work)
    _call([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], work, environment)


def compiler_settings(
    work: Path, compiler: str, sanitizer: Sanitizer, *, quiet: str = QUIET, place: Path | str = "."
) -> dict[str, str]:
    """The environment in which setuptools compiles modules for libFuzzer. Writes what the flags name to ``work``.

    ``place`` is how the flags name ``work``. If the compiler runs there, a relative name keeps the flags of equal
    modules equal.
    """
    for name, text in {**LISTS, "quiet.h": quiet}.items():
        (work / name).write_text(text)
    return {"CC": compiler, "CFLAGS": _flags(sanitizer, place), "LDSHARED": f"{compiler} -shared"}


def _flags(sanitizer: Sanitizer, place: Path | str = ".") -> str:
    flags = f"{FLAGS[sanitizer]} -include {place}/quiet.h -fsanitize-coverage-ignorelist={place}/uncounted.txt"
    return f"{flags} -fsanitize-ignorelist={place}/ubsan-ignored.txt" if sanitizer == "undefined" else flags


def _call(command: list[str], cwd: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        error = first_error(done.stderr or done.stdout)
        raise NoNativeCoverage(f"the compiled modules do not build with {command[0]}: {error}")


def first_error(output: str) -> str:
    """The first line of a program's output that speaks of an error; the last line if none does."""
    lines = output.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no output").strip()


def _link_rest(directory: Path) -> None:
    """Link the rest of the checkout's package into the build's: files that are not compiled, and modules that are
    compiled as usual.
    """
    for path in sorted(PACKAGE.rglob("*")):
        inner = path.relative_to(PACKAGE)
        is_usual = path.suffix == ".so" and inner.parts[0] not in INSTRUMENTED
        if not is_usual and path.suffix not in LINKED:
            continue
        link = directory / PACKAGE.name / inner
        if link.is_symlink() and link.readlink() == path:
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        # Another process or thread may create the same link at the same time.
        temporary = link.with_name(f".{link.name}.{os.getpid()}-{threading.get_ident()}")
        temporary.symlink_to(path)
        temporary.replace(link)


def environment(directory: Path, sanitizer: Sanitizer) -> dict[str, str]:
    """The environment of a fuzzing process that uses the build in ``directory``."""
    runtime = str(_atheris_runtime(RUNTIMES[sanitizer]))
    # LD_PRELOAD is a list separated by spaces and colons. The dynamic loader has no way to quote a name.
    for path in (runtime, str(directory)):
        if " " in path or ":" in path:
            raise NoNativeCoverage(
                f"{path} contains a space or a colon, which LD_PRELOAD cannot handle; move the checkout"
            )
    return {
        # Packages of the archive lie beside its kfuzz.
        "PYTHONPATH": f"{directory}:{ROOT}" if directory.name.endswith(CARRIED) else str(directory),
        # Keep the campaign's folder out of sys.path: the names in it change from run to run.
        "PYTHONSAFEPATH": "1",
        # Python's own allocator uses arenas. A sanitizer cannot see an over-read inside an arena.
        "PYTHONMALLOC": "malloc",
        # A run that loads .pyc files differs from the run that wrote them. Equal seeds must give equal campaigns.
        "PYTHONDONTWRITEBYTECODE": "1",
        "ASAN_OPTIONS": ASAN_OPTIONS,
        "UBSAN_OPTIONS": UBSAN_OPTIONS,
        "LD_PRELOAD": runtime,
    }


def write_executables(
    directory: Path,
    environment: dict[str, str],
    *,
    folder: str = "bin",
    with_hook: bool = True,
    targets: Iterable[Target] = TARGETS.values(),
) -> None:
    """Write an executable ``FOLDER/<target>`` for each target. Targets that use the mutation hook preload it."""
    hook = directory / "mutator.so"
    for target in targets:
        settings = {**environment, "PYTHONHASHSEED": "0", "KFUZZ_MUTATOR_STATS": "1"}
        settings[MODULES] = str(directory / "instrumented")
        if with_hook and target.hooked and hook.is_file():
            # The sanitizer's runtime must come first in the list.
            settings["LD_PRELOAD"] += f" {hook}"
        _write_executable(directory / folder / target.name, settings)


def _write_executable(path: Path, environment: dict[str, str]) -> None:
    """Write a shell script. A ``#!`` line could not hold a long path and has no way to quote one.

    The script is named after the target, because libFuzzer restarts ``argv[0]`` without our arguments.
    """
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    write_whole(
        path,
        "#!/bin/sh\n"
        "# atheris numbers the branches of Python code in an order that depends on addresses.\n"
        "fixed=; setarch -R true 2>/dev/null && fixed='setarch -R'\n"
        f'exec $fixed env {settings} {shlex.quote(sys.executable)} -P -m kfuzz.fuzz.harness "$0" "$@"\n',
        mode=0o777,
    )
