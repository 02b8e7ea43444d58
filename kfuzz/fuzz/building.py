"""The instrumented build: clang compiles the Cython modules again, for libFuzzer, in a directory of its own.

The modules that everyone else imports are never touched: the build is a copy of the package in
``build/fuzz/<sanitizer>-<hash>/`` of the checkout, with links for the Python files and compiled modules of its own. In
it stands an executable ``bin/<target>`` for each target, which sets the environment and starts
:mod:`kfuzz.fuzz.harness`. libFuzzer starts that file again for ``-merge=1`` and ``-minimize_crash=1``, so it works by
hand as well.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import locked, write_whole
from kfuzz.fuzz.targets import TARGETS, Target

__all__ = ["SANITIZERS", "Build", "NoNativeCoverage", "Sanitizer", "build", "fallback"]

Sanitizer = Literal["none", "address", "undefined"]
SANITIZERS: tuple[str, ...] = get_args(Sanitizer)

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent
# The folders whose compiled modules the targets reach, and what mutates for them.
INSTRUMENTED = ("wire", "records", "mutate", "fuzz")
# What is not compiled, and looked for beside what is.
LINKED = (".py", ".json")
COMPILERS = ("clang-16", "clang")
GET_CLANG = "install clang (Debian and Ubuntu: apt-get install clang-16) and run this again"

# libFuzzer mutates by the numbers that it saw compared. Reference counts and versions of dicts teach it nothing, and
# differ from run to run: what Python's own headers define is not watched.
QUIET = """\
#define PY_SSIZE_T_CLEAN
#define CYTHON_USE_DICT_VERSIONS 0
#pragma clang attribute push(__attribute__((noinline, no_sanitize("coverage"))), apply_to = function)
#include <Python.h>
#pragma clang attribute pop
"""
# What to compile with, and the runtime of atheris to preload, per sanitizer.
FLAGS: dict[Sanitizer, str] = {
    "none": "-fsanitize=fuzzer-no-link -g",
    "address": "-fsanitize=address,fuzzer-no-link -fno-omit-frame-pointer -g",
    # Python compiles with -fwrapv, under which no signed overflow is undefined and so none is seen.
    "undefined": "-fsanitize=undefined,fuzzer-no-link -fno-sanitize-recover=undefined -fno-wrapv -g",
}
RUNTIMES: dict[Sanitizer, str] = {
    "none": "ubsan_with_fuzzer.so",
    "address": "asan_with_fuzzer.so",
    "undefined": "ubsan_with_fuzzer.so",
}
# A failed allocation is the decoder's to handle; Python's own leaks at exit are not ours.
ASAN_OPTIONS = "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16"
UBSAN_OPTIONS = "print_stacktrace=1"
# Cython's own wrappers add a count of no arguments to a null pointer; what they wrap is looked at.
UBSAN_IGNORED = "[pointer-overflow]\nfun:__pyx_pw_*__cinit__\n"


class NoNativeCoverage(KfuzzError):
    """The compiled modules cannot be instrumented here; the text says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class Build:
    """Where a campaign's executables stand.

    ``native``: whether libFuzzer sees the compiled modules; where not, ``reason`` says why in a sentence.
    """

    directory: Path
    sanitizer: Sanitizer
    native: bool
    reason: str = ""

    def executable(self, target: Target) -> Path:
        """The file that fuzzes ``target``; it takes libFuzzer's arguments."""
        return self.directory / "bin" / target.name


def build(
    sanitizer: Sanitizer = "none",
    *,
    root: Path = ROOT / "build" / "fuzz",
    say: Callable[[str], None] = lambda line: None,
) -> Build:
    """The instrumented build, made now unless sources, flags, compiler and Python are those of one already there.

    ``NoNativeCoverage`` where it cannot be made; ``say`` is told, in a line, when something slow begins.
    """
    _require_atheris()
    compiler = _compiler()
    sources = _sources()
    tools = _tools(compiler, sanitizer)
    directory = root / f"{sanitizer}-{_fingerprint(sources, tools)}"
    if not directory.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with locked(root):
            # Another process may have built it while this one waited.
            if not directory.is_dir():
                say(f"compiling for fuzzing with {Path(compiler).name} (half a minute, once)")
                _build(directory, root / f".work-{sanitizer}-{tools}", sources, compiler, sanitizer)
    _link_rest(directory)
    _write_executables(directory, _environment(directory, sanitizer))
    return Build(directory, sanitizer, native=True)


def _build(directory: Path, work: Path, sources: list[Path], compiler: str, sanitizer: Sanitizer) -> None:
    """Compile in ``work`` and copy the result, which gets its name at the end, so that no half build has it.

    ``work`` is kept for the next build: a source that changes compiles only the modules that depend on it. What other
    compilers or flags have left is removed.
    """
    for old in directory.parent.glob(f".work-{sanitizer}-*"):
        if old != work:
            shutil.rmtree(old, ignore_errors=True)
    work.mkdir(exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        _compile(work, sources, compiler, sanitizer)
        shutil.copytree(work, staging, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build"))
        staging.rename(directory)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def fallback(reason: str, *, root: Path = ROOT / "build" / "fuzz") -> Build:
    """A build of nothing, for machines without clang: atheris with the modules as they are sees Python code only."""
    _require_atheris()
    directory = root / "no-native-coverage"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        # An installed package's directory may not be ours to write to.
        directory = Path(tempfile.mkdtemp(prefix="kfuzz-fuzz-"))
    _write_executables(directory, {"PYTHONPATH": str(ROOT)})
    return Build(directory, "none", native=False, reason=reason)


def _require_atheris() -> None:
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


def _compiler() -> str:
    for name in COMPILERS:
        if path := shutil.which(name):
            return path
    raise NoNativeCoverage(f"clang is not installed; {GET_CLANG}")


def _sources() -> list[Path]:
    """What the compiled modules are made from, relative to the checkout."""
    setup = ROOT / "setup.py"
    found = [path for folder in INSTRUMENTED for path in (PACKAGE / folder).rglob("*")]
    sources = sorted(path for path in found if path.suffix in {".pyx", ".pxd", ".h"} or path.name == "mutator.c")
    if not setup.is_file() or not any(path.suffix == ".pyx" for path in sources):
        raise NoNativeCoverage("the sources of the compiled modules are not here; run this from a checkout of kfuzz")
    if importlib.util.find_spec("Cython") is None:
        raise NoNativeCoverage("Cython is not installed; pip install 'kfuzz[dev]'")
    return [path.relative_to(ROOT) for path in (setup, *sources)]


def _tools(compiler: str, sanitizer: Sanitizer) -> str:
    """A digest of all that modules are compiled by, and with which flags."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    digest = hashlib.sha256()
    for part in (
        version,
        sys.version,
        platform.machine(),
        FLAGS[sanitizer],
        sys.executable,
        Path(__file__).read_text(),
        (ROOT / "setup.py").read_text(),
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:12]


def _fingerprint(sources: list[Path], tools: str) -> str:
    digest = hashlib.sha256(tools.encode())
    for source in sources:
        digest.update(str(source).encode() + b"\0" + (ROOT / source).read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _compile(work: Path, sources: list[Path], compiler: str, sanitizer: Sanitizer) -> None:
    """Bring the sources in ``work`` up to date and compile them there, by the project's own setup.py."""
    for old in work.rglob("*.pyx"):
        if old.relative_to(work) not in sources:
            for file in old.parent.glob(f"{old.stem}.*"):
                file.unlink()
    for source in sources:
        target = work / source
        # An unchanged file keeps its time, by which setup.py knows what is to be compiled again.
        if not target.is_file() or target.read_bytes() != (ROOT / source).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            # The first copy keeps the source's time too, so that the translation below is not older than its source.
            copy = shutil.copyfile if target.exists() else shutil.copy2
            copy(ROOT / source, target)
    # What Cython has made of them for this Python serves here as well.
    translated = f"build/cython-{sys.implementation.cache_tag}"
    if (ROOT / translated).is_dir() and not (work / translated).exists():
        shutil.copytree(ROOT / translated, work / translated)
    # Cython finds a package's .pxd files only where the package has its __init__.
    for folder in {Path(PACKAGE.name), *(source.parent for source in sources if source.suffix == ".pyx")}:
        (work / folder / "__init__.py").touch()
    (work / "quiet.h").write_text(QUIET)
    flags = f"{FLAGS[sanitizer]} -include {work}/quiet.h"
    if sanitizer == "undefined":
        (work / "ubsan-ignored.txt").write_text(UBSAN_IGNORED)
        flags += f" -fsanitize-ignorelist={work}/ubsan-ignored.txt"
    environment = {**os.environ, "CC": compiler, "CFLAGS": flags, "LDSHARED": f"{compiler} -shared"}
    mutator = work / "mutator.so"
    source = work / PACKAGE.name / "fuzz" / "mutator.c"
    _call([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(mutator), str(source)], work)
    _call([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], work, environment)


def _call(command: list[str], cwd: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        error = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no output")
        raise NoNativeCoverage(f"the compiled modules do not build with {command[0]}: {error.strip()}")


def _link_rest(directory: Path) -> None:
    """Let the build's package have the Python files and the catalogues of the checkout as they are now, as links."""
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in LINKED):
        link = directory / PACKAGE.name / path.relative_to(PACKAGE)
        if link.is_symlink() and link.readlink() == path:
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        # Another process, or another thread of this one, may be at the same link.
        temporary = link.with_name(f".{link.name}.{os.getpid()}-{threading.get_ident()}")
        temporary.symlink_to(path)
        temporary.replace(link)


def _environment(directory: Path, sanitizer: Sanitizer) -> dict[str, str]:
    runtime = str(_atheris_runtime(RUNTIMES[sanitizer]))
    # The dynamic loader takes a list of names that spaces and colons divide, and has no way to quote one.
    for path in (runtime, str(directory)):
        if " " in path or ":" in path:
            raise NoNativeCoverage(
                f"{path} has a space or a colon in it, which LD_PRELOAD cannot carry; move the checkout"
            )
    return {
        "PYTHONPATH": str(directory),
        # Without the folder of the campaign, whose names change from run to run.
        "PYTHONSAFEPATH": "1",
        # With Python's own allocator an over-read lands in the arena, where no sanitizer sees it.
        "PYTHONMALLOC": "malloc",
        # A run that finds compiled Python files differs from the one that wrote them: equal seeds give equal campaigns.
        "PYTHONDONTWRITEBYTECODE": "1",
        "ASAN_OPTIONS": ASAN_OPTIONS,
        "UBSAN_OPTIONS": UBSAN_OPTIONS,
        "LD_PRELOAD": runtime,
    }


def _write_executables(directory: Path, environment: dict[str, str]) -> None:
    """One executable per target, ``bin/<target>``, with the mutation hook for the targets that want it."""
    hook = directory / "mutator.so"
    for target in TARGETS.values():
        settings = {**environment, "PYTHONHASHSEED": "0"}
        if target.hooked and hook.is_file():
            # Behind the sanitizer's runtime, which must come first.
            settings["LD_PRELOAD"] += f" {hook}"
        _write_executable(directory / "bin" / target.name, settings)


def _write_executable(path: Path, environment: dict[str, str]) -> None:
    """A shell script, for a ``#!`` line has neither room for a long path nor a way to quote it.

    Its name is the target's, for libFuzzer starts ``argv[0]`` again and passes it nothing of ours.
    """
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    write_whole(
        path,
        "#!/bin/sh\n"
        "# atheris numbers the branches of Python code in an order that depends on addresses.\n"
        "fixed=; setarch -R true 2>/dev/null && fixed='setarch -R'\n"
        f'exec $fixed env {settings} {shlex.quote(sys.executable)} -m kfuzz.fuzz.harness "$0" "$@"\n',
        mode=0o777,
    )
