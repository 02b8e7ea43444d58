"""Compares kfuzz's results on arm64 with those of this machine: ``python -m tools.arm64``.

apt-get fetches Debian's Python for arm64, pip the wheels of kfuzz's dependencies, and a cross compiler makes kfuzz's
modules. Then tools.baseline runs under QEMU and here, and its digests must be equal. Everything is in ``build/arm64``:
the second run only compiles what has changed. The machine's own packages stay as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.commands import exit_code
from kfuzz.files import locked, whole_directory
from tools.baseline import sample_step
from tools.steps import StepFailed, call, step
from tools.wheels import copy_sources

__all__ = ["main"]

ROOT: Final = Path(__file__).resolve().parents[1]
PLACE: Final = ROOT / "build" / "arm64"
# Where apt-get finds the package sources and what else the administrator has set.
APT: Final = Path("/etc/apt/apt.conf.d")

# That of Debian 12.
VERSION: Final = "3.11"
PYTHON: Final = f"python{VERSION}"
# apt-get adds what they need: the C library, zlib, OpenSSL and so on.
PACKAGES: Final = (f"{PYTHON}-minimal", f"lib{PYTHON}-stdlib")
# The packages that it depends on are for programs that embed Python, so they are not fetched.
HEADERS: Final = f"lib{PYTHON}-dev"
WHEELS: Final = "manylinux2014_aarch64"
TRIPLET: Final = "aarch64-linux-gnu"
COMPILER: Final = f"{TRIPLET}-gcc"
QEMU: Final = "qemu-aarch64"

REMEDIES: Final = {
    COMPILER: "install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
    QEMU: "install qemu-user",
    "apt-get": "run this on Debian 12",
    "dpkg-deb": "run this on Debian 12",
}
# A developer's settings for builds on this machine would replace the settings of Debian's Python.
NOT_PASSED_ON: Final = (
    *("AR", "ARFLAGS", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED"),
    *("KFUZZ_COVERAGE", "KFUZZ_UNWATCHED", "KFUZZ_ANNOTATE"),
)
# apt's options. Its hooks are left out, because they are for the machine's own packages.
SETTINGS: Final = """\
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "%(place)s/state";
Dir::State::status "%(place)s/status";
Dir::Cache "%(place)s/cache";
Dir::Log "%(place)s/log";
Dir::Etc::parts "%(place)s/parts";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
"""


class Copy:
    """kfuzz for arm64, and the steps that make it and run it.

    ``place`` keeps what is fetched and compiled for later runs. ``work`` holds the files of this run alone.
    """

    def __init__(self, place: Path, work: Path, sample: int) -> None:
        self.place = place
        self.work = work
        self.sample = sample
        self.sources = work / "sources"
        with (ROOT / "pyproject.toml").open("rb") as file:
            self.requirements: list[str] = tomllib.load(file)["project"]["dependencies"]
        self.system = self.kept("system", *PACKAGES, HEADERS)
        self.wheels = self.kept("wheels", VERSION, WHEELS, *self.requirements)

    def kept(self, name: str, *made_of: str) -> Path:
        """The place of a folder that is made once. It has another name when it is made of something else."""
        return self.place / f"{name}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]}"

    def fetch_python(self) -> str:
        """Unpack Debian's Python and its libraries, as if they were a system of their own."""
        if self.system.is_dir():
            return f"{self.system.name} is there"
        apt = self.work / "apt"
        for folder in ("parts", "state/lists/partial", "cache/archives/partial", "log"):
            (apt / folder).mkdir(parents=True)
        (apt / "status").touch()
        if APT.is_dir():
            for setting in APT.iterdir():
                (apt / "parts" / setting.name).symlink_to(setting)
        # apt reads it twice: first for the place of the parts, and then as the last of the parts, which counts.
        settings = apt / "parts" / "zz-kfuzz"
        settings.write_text(SETTINGS % {"place": apt})
        packages = apt / "cache" / "archives"
        for words in (["update"], ["install", "--yes", "--download-only", *PACKAGES], ["download", HEADERS]):
            call("apt-get", "-qq", *words, cwd=packages, variables={"APT_CONFIG": str(settings)})
        found = sorted(packages.glob("*.deb"))
        with made(self.system) as system:
            for package in found:
                call("dpkg-deb", "--extract", package, system, cwd=packages)
        return f"{len(found)} packages of Debian"

    def fetch_wheels(self) -> str:
        """Unpack the wheels of kfuzz's dependencies."""
        if self.wheels.is_dir():
            return f"{self.wheels.name} is there"
        with made(self.wheels) as folder:
            pip: list[str | Path] = [
                sys.executable,
                "-P",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ]
            other = ["--platform", WHEELS, "--python-version", VERSION, "--only-binary=:all:", "--no-compile"]
            call(*pip, *other, "--target", folder, *self.requirements, cwd=self.work)
            return f"{len(list(folder.glob('*.dist-info')))} packages for {WHEELS}"

    def compile(self) -> str:
        """Compile kfuzz's modules in a copy of the sources, with the headers and the settings of Debian's Python."""
        copy_sources(self.sources)
        include = self.work / "include"
        # The other headers there belong to Debian's C library. The cross compiler has its own.
        for name in (PYTHON, f"{TRIPLET}/{PYTHON}"):
            (include / name).parent.mkdir(parents=True, exist_ok=True)
            (include / name).symlink_to(self.system / "usr" / "include" / name)
        settings = f"_sysconfigdata__{TRIPLET}"
        (self.work / "settings").mkdir()
        shutil.copy(self.system / "usr" / "lib" / PYTHON / f"{settings}.py", self.work / "settings")
        compiler = call(COMPILER, "--version", cwd=self.work).splitlines()[0]
        variables = {
            # How Python itself is cross compiled: sysconfig answers for the other platform.
            "PYTHONPATH": str(self.work / "settings"),
            "_PYTHON_SYSCONFIGDATA_NAME": settings,
            "_PYTHON_HOST_PLATFORM": "linux-aarch64",
            "CC": COMPILER,
            "KFUZZ_COMPILED": str(self.kept("modules", compiler, self.system.name)),
            **dict.fromkeys(NOT_PASSED_ON),
        }
        command = ["setup.py", "--quiet", "build_ext", "--inplace", "--include-dirs", f"{include / PYTHON}:{include}"]
        call(sys.executable, *command, cwd=self.sources, variables=variables, timeout_s=7200)
        modules = list((self.sources / "kfuzz").rglob(f"*{TRIPLET}.so"))
        if len(modules) != len(list((self.sources / "kfuzz").rglob("*.pyx"))):
            raise StepFailed(f"{len(modules)} modules are for {TRIPLET}, and not all")
        return f"{len(modules)} modules by {compiler}"

    def run_there(self) -> Any:
        """The output of tools.baseline under QEMU."""
        (self.sources / "tools").mkdir()
        for name in ("__init__.py", "baseline.py"):
            shutil.copy(ROOT / "tools" / name, self.sources / "tools")
        # Without its site packages: those that Python would look for are this machine's.
        python = [str(self.system / "usr" / "bin" / PYTHON), "-S", "-m", "tools.baseline", "--sample", str(self.sample)]
        variables = {"PYTHONPATH": str(self.wheels), "PYTHONDONTWRITEBYTECODE": "1"}
        return json.loads(call(QEMU, "-L", self.system, *python, cwd=self.sources, variables=variables, timeout_s=7200))

    def run_here(self) -> Any:
        """The output of tools.baseline on this machine."""
        return json.loads(call(sys.executable, "-m", "tools.baseline", "--sample", str(self.sample), cwd=ROOT))


@contextmanager
def made(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when it is whole. Older ones of its kind are removed then."""
    with whole_directory(folder) as staging:
        staging.mkdir()
        yield staging
    for other in folder.parent.glob(f"{folder.name.partition('-')[0]}-*"):
        if other != folder:
            shutil.rmtree(other)


def describe(found: Mapping[str, Any]) -> str:
    """The machine and its fast loops."""
    kernels = [name for name, there in found["kernels"].items() if there]
    return f"{found['machine']}; kernels: {', '.join(kernels) or 'none'}"


def compare(here: Mapping[str, str], there: Mapping[str, str]) -> bool:
    """Print for each part whether its digests are equal. Returns whether all are."""
    for name in {**here, **there}:
        both = here.get(name, "missing")[:12], there.get(name, "missing")[:12]
        same = here.get(name) == there.get(name)
        print(f"{name}: " + (f"equal ({both[0]})" if same else f"differs (here {both[0]}, there {both[1]})"))
    return here == there


def main(words: Sequence[str] | None = None) -> int:
    """Returns 0 if all digests are equal, 1 if not, 2 if a tool is missing or a step fails, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.arm64", description=__doc__, epilog="example: python -m tools.arm64 --sample 10"
    )
    parser.add_argument(
        "--sample", type=sample_step, default=1, metavar="N", help="only every N-th vector (%(default)s)"
    )
    chosen = parser.parse_args(words)
    return exit_code("arm64", lambda: run(chosen.sample))


def run(sample: int) -> int:
    """Make the copy, run it there and here, and compare. Raises ``StepFailed`` if a tool is missing or a step fails."""
    if platform.machine() == "aarch64":
        raise StepFailed("this machine is arm64 itself; run this on x86-64")
    for name, remedy in REMEDIES.items():
        if shutil.which(name) is None:
            raise StepFailed(f"{name} is not installed; {remedy}")
    found: dict[str, Any] = {}

    def keep(name: str, work: Callable[[], Any]) -> str:
        found[name] = work()
        return describe(found[name])

    PLACE.mkdir(parents=True, exist_ok=True)
    with locked(PLACE), tempfile.TemporaryDirectory(prefix=".run-", dir=PLACE) as work:
        copy = Copy(PLACE, Path(work), sample)
        steps: list[tuple[str, Callable[[], str], str]] = [
            ("Python", copy.fetch_python, "it needs the network, and apt's package sources of Debian 12"),
            ("dependencies", copy.fetch_wheels, "it needs the network"),
            ("modules", copy.compile, "mend what the compiler names"),
            ("here", lambda: keep("here", copy.run_here), "try `make build`"),
            ("there", lambda: keep("there", copy.run_there), "remove build/arm64 to fetch Python again"),
        ]
        for name, work_of_step, remedy in steps:
            step(name, work_of_step, remedy)
    return 0 if compare(found["here"]["digests"], found["there"]["digests"]) else 1


if __name__ == "__main__":
    sys.exit(main())
