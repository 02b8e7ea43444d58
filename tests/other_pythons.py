"""``make test-other-pythons``: the fast tests under the other versions of Python that kfuzz promises to run on.

With names of folders in ``tests/``, as in ``make test-newest-python``: the tests there, under the newest of them only.

Each version found gets an environment in ``.venv-<version>`` with the extra ``test``, and compiled modules beside those
of the main one, for their names carry the version. A version that is not installed is skipped, and the output says so.
An interpreter counts as installed where ``python3.12`` is on the PATH and runs; pyenv's are found too. PYTHONS names
others: ``make test-other-pythons PYTHONS="/opt/python3.12/bin/python3"``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.12", "3.13")
# Without the tests that need toolchains, which only the main environment has.
FAST = "not full and not nightly and not java and not clang and not spark"
# Their subjects are the benchmark, the fuzzer, Spark, the readers in other languages, the wheel, and what only
# developers run: the tools and the checks of the repository.
LEFT_OUT = ("benchmarks", "fuzz", "spark", "examples", "test_wheel.py", "tools", "tidy")

# As in the Makefile.
WORKERS = f"--numprocesses {os.environ.get('JOBS', 'logical')} --maxprocesses 8 --dist loadscope".split()
WORKERS.append("--no-loadscope-reorder")


def interpreter(name: str) -> tuple[str, str] | None:
    """The path and the version of the interpreter that runs under ``name``; None where none does."""
    code = "import sys; print(sys.executable); print('%d.%d' % sys.version_info[:2])"
    # pyenv puts a program on the PATH that only runs once the version is chosen.
    environment = {**os.environ, "PYENV_VERSION": name.removeprefix("python")}
    try:
        done = subprocess.run([name, "-c", code], capture_output=True, text=True, env=environment, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    path, version = done.stdout.splitlines()
    return path, version


def prepare(python: str, place: Path) -> Path:
    """The interpreter of the environment ``place``, which is made from ``python`` once for each pyproject.toml."""
    inside = place / "bin" / "python"
    stamp = place / ".installed"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([python, "-m", "venv", place], check=True)
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        subprocess.run([*pip, *project["build-system"]["requires"]], check=True)
        subprocess.run([*pip, "--no-build-isolation", "-e", f"{ROOT}[test]"], check=True)
        stamp.write_text(wanted)
    else:
        subprocess.run([inside, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=ROOT, check=True)
    return inside


def main(folders: list[str]) -> int:
    there = {}
    for name in os.environ.get("PYTHONS", "").split() or [f"python{version}" for version in VERSIONS]:
        if found := interpreter(name):
            there[found[1]] = found[0]
        else:
            print(f"{name}: skipped, for no such interpreter runs here; install it, or name one with PYTHONS=…")
    if folders:
        there = dict(list(there.items())[-1:])
        selected = [f"tests/{name}" for name in folders]
    else:
        selected = [f"--ignore=tests/{name}" for name in LEFT_OUT]
    failed = []
    for version, path in there.items():
        print(f"Python {version} ({path}): environment and compiled modules", flush=True)
        python = prepare(path, ROOT / f".venv-{version}")
        print(f"Python {version}: the fast tests", flush=True)
        done = subprocess.run([python, "-m", "pytest", "-m", FAST, *WORKERS, *selected], cwd=ROOT)
        if done.returncode:
            failed.append(version)
    if failed:
        print(f"failed under Python {' and '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
