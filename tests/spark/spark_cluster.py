"""A standalone Spark cluster on this machine: a master and two workers whose Python has no packages. For tests."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import psutil
import pyspark

from kfuzz.spark.archive import submit_lines
from kfuzz.spark.java import ensure_java

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK_HOME: Final = Path(pyspark.__file__).parent
Found = TypeVar("Found")
START_S: Final = 90
JOB_S: Final = 240
EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class Cluster:
    """A running cluster; ``python`` is what its executors run."""

    def __init__(self, place: Path) -> None:
        ensure_java()
        self.place = place
        self.python = place / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        self.environment = {**kept, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        # Master and workers need little, and their default is 1 GiB each.
        self.environment["SPARK_DAEMON_MEMORY"] = "192m"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def start(self) -> None:
        """Start the master and two workers of one core each, on ports that the system chooses."""
        log = self._start("master", "master.Master", "--host", "127.0.0.1")
        self.master = self._told(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        # Spark runs the second attempt of a slow task on another host, and tells hosts apart by their names.
        for number, host in enumerate(("127.0.0.1", "localhost")):
            options = [
                "--host",
                host,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(self.place / f"work-{number}"),
            ]
            log = self._start(f"worker-{number}", "worker.Worker", *options, self.master)
            self._told(log, r"(Successfully registered with master)")

    def stop(self) -> None:
        """End the processes that this cluster started, with all that they started."""
        ended = [one for process in self.processes for one in _tree(process.pid)]
        for one in ended:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(ended, timeout=30)
        for process in self.processes:
            process.wait(30)

    def submit(
        self, archive: Path, job: Path, *arguments: str | Path, settings: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start ``job`` on this cluster by the command that ``kfuzz corpus archive`` prints."""
        _, line, *_ = submit_lines(archive)
        text = line.replace("\\\n", " ").replace("spark://HOST:7077", self.master)
        text = re.sub(r"(spark\.pyspark\.python)=\S+", rf"\1={self.python}", text)
        words = shlex.split(text)
        at = next(at for at, word in enumerate(words) if word.endswith("generate_corpus.py"))
        more = {"spark.executor.memory": "512m", **(settings or {})}
        options = [word for name, value in more.items() for word in ("--conf", f"{name}={value}")]
        words = [*words[:at], *options, str(job), *map(str, arguments)]
        process = subprocess.Popen(
            [SPARK_HOME / "bin" / words[0], *words[1:]],
            # The driver runs this checkout.
            env={**self.environment, "PYTHONPATH": str(ROOT)},
            cwd=self.place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)  # type: ignore[arg-type]
        return process

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs."""
        found = []
        for process in self.processes:
            for one in _tree(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if any(EXECUTOR in word for word in one.cmdline()):
                        found.append(one)
        return found

    def _start(self, name: str, main: str, *options: str) -> Path:
        log = self.place / f"{name}.log"
        command = [
            SPARK_HOME / "bin/spark-class",
            f"org.apache.spark.deploy.{main}",
            "--port",
            "0",
            "--webui-port",
            "0",
        ]
        with log.open("wb") as file:
            self.processes.append(
                subprocess.Popen([*command, *options], env=self.environment, stdout=file, stderr=subprocess.STDOUT)
            )
        return log

    def _told(self, log: Path, pattern: str) -> str:
        def look() -> str | None:
            match = re.search(pattern, log.read_text())
            return match and match[1]

        return wait_for(look, START_S, lambda: f"{log.name}: {log.read_text()[-2000:]}")


@contextlib.contextmanager
def running(place: Path) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    cluster = Cluster(place)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def wait_for(look: Callable[[], Found | None], within_s: float, about: Callable[[], str]) -> Found:
    """Ask ``look`` until it finds something, and return that."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s} s: {about()}")


def finish(process: subprocess.Popen[str], within_s: float = JOB_S) -> tuple[str, str]:
    """Output and errors of a job that ends with exit code 0."""
    out, told = process.communicate(timeout=within_s)
    assert process.returncode == 0, told[-4000:]
    return out, told


def _tree(pid: int) -> Sequence[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    return []
