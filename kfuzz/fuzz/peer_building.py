"""The instrumented build of a peer: its source distribution, compiled by clang for libFuzzer, in a separate directory.

pip downloads the source distribution of the installed version, once, and installs it into
``build/fuzz/<name>-<version>-<sanitizer>-<hash>/``. The installed library stays as it is. A peer without compiled
modules is fuzzed as it is installed; its build holds only the mutator and the executable.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kfuzz.errors import UsageError
from kfuzz.files import locked, writing
from kfuzz.fuzz import building
from kfuzz.fuzz.building import ROOT, Build, NoNativeCoverage, Sanitizer
from kfuzz.fuzz.peers import Peer
from kfuzz.fuzz.recorder import PEER

# Without -P, a file `pip.py` in the current folder would run.
PIP: Final = ("-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


def sanitizer_of(peer: Peer, chosen: Sanitizer | None) -> Sanitizer:
    """The sanitizer for a peer; without a choice, the address sanitizer for compiled code.

    Raises ``UsageError`` if one was chosen for a peer that has no compiled code.
    """
    if peer.compiled:
        return chosen or "address"
    if chosen not in (None, "none"):
        raise UsageError(f"{peer.name} has no compiled code that a sanitizer could watch; leave out --sanitize")
    return "none"


def build_peer(
    peer: Peer,
    sanitizer: Sanitizer | None = None,
    *,
    root: Path = ROOT / "build" / "fuzz",
    say: Callable[[str], None] = lambda line: None,
) -> Build:
    """Return the instrumented build of a peer. Reuse an existing one with the same sources, flags, compiler and Python.

    Raises ``UsageError`` if there is no compiler, no source distribution, or if the build fails. Calls ``say`` with one
    line before a slow step.
    """
    chosen = sanitizer_of(peer, sanitizer)
    try:
        building.require_atheris()
        compiler = building.find_compiler()
        with writing(root):
            root.mkdir(parents=True, exist_ok=True)
        with locked(root):
            directory = _built(peer, chosen, compiler, root, say)
        environment = building.environment(directory, chosen)
        environment["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
        environment[PEER] = str(peer.folder)
        # The stacks of allocations take long for each of Python's objects.
        environment["ASAN_OPTIONS"] += ":malloc_context_size=1"
        building.write_executables(directory, environment, targets=[peer.target])
    except NoNativeCoverage as error:
        raise UsageError(f"--peer {peer.name}: {error}") from None
    if peer.compiled:
        return Build(directory, chosen, native=True)
    reason = f"{peer.name} is written in Python; its branches are the coverage"
    return Build(directory, chosen, native=False, reason=reason)


def _built(peer: Peer, sanitizer: Sanitizer, compiler: str, root: Path, say: Callable[[str], None]) -> Path:
    """The directory with the peer's modules and the mutator. A rename at the end avoids half-finished builds."""
    source = _source(peer, root / "sources", say) if peer.compiled else None
    own = [Path(__file__), *building.mutator_sources()]
    hashed = building.fingerprint([*own, *([source] if source else [])], compiler, sanitizer)
    directory = root / f"{peer.name}-{peer.version}-{sanitizer}-{hashed}"
    if directory.is_dir():
        return directory
    say(f"compiling {peer.label} for fuzzing with {Path(compiler).name} (half a minute, once)")
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=root))
    try:
        building.compile_mutator(staging / "mutator.so", compiler)
        if source:
            environment = {**os.environ, **building.compiler_settings(staging, compiler, sanitizer, place=staging)}
            options = ("install", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-index", "--target")
            error = _pip([*options, str(staging), str(source)], environment)
            if error is not None:
                raise UsageError(
                    f"the modules of {peer.label} do not build with {compiler}: {error}; "
                    "check the compiler and Python's headers"
                )
        staging.rename(directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return directory


def _source(peer: Peer, folder: Path, say: Callable[[str], None]) -> Path:
    """The source distribution, which pip downloads if it is not there yet."""
    for module in ("Cython", "setuptools", "pip"):
        if importlib.util.find_spec(module) is None:
            raise UsageError(
                f"--peer {peer.name} needs {module}, which is not installed; pip install 'kfuzz[dev]' {module}"
            )
    name = f"{peer.distribution.replace('-', '_')}-{peer.version}.tar.gz"
    if (folder / name).is_file():
        return folder / name
    say(f"downloading the source distribution of {peer.label}")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as staging:
        options = ("download", "--no-deps", "--no-build-isolation", "--retries", "1", "--no-binary", peer.distribution)
        error = _pip([*options, "--dest", staging, f"{peer.distribution}=={peer.version}"], dict(os.environ))
        found = sorted(Path(staging).glob("*.tar.gz"))
        if error is None and not found:
            error = "pip found no .tar.gz"
        if error is not None:
            raise UsageError(
                f"the source distribution of {peer.label} is not available: {error}; "
                f"check the network, or put {name} into {folder}"
            )
        found[0].replace(folder / name)
    return folder / name


def _pip(arguments: Sequence[str], environment: dict[str, str]) -> str | None:
    """Run pip. Returns the line of its output that says why it failed, or None."""
    done = subprocess.run(
        [sys.executable, *PIP, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    return building.first_error(done.stdout + done.stderr) if done.returncode else None
