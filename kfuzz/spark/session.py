"""A Spark session that is quiet, finds Java, and runs its Python workers with this interpreter."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kfuzz.errors import KfuzzError, UsageError
from kfuzz.spark.java import ensure_java

__all__ = ["default_tasks", "failures_as_sentences", "session", "session_of_ours", "task_progress"]

TASK_BYTES = 1 << 30
# A task costs some 30 ms: a few for each core even out the load and let progress be seen.
TASKS_PER_CORE = 4
POLL_S = 0.5
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
# Spark takes Python's gateway for a shell and gives shells a level of their own, unless this logger has one.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# A failed task's whole story is in the exception that the driver gets.
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
"""


def session(master: str | None = None, app_name: str = "kfuzz") -> SparkSession:
    """The running session, or a new one.

    ``master`` is left to ``spark-submit`` where that started us, and is ``local[*]`` otherwise; one given wins.
    """
    ensure_java()
    # Else workers take the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        options = f"-Dlog4j2.configurationFile={_logging()}"
        builder = builder.config("spark.driver.extraJavaOptions", options)
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        builder = builder.master(master or "local[*]")
    elif master:
        builder = builder.master(master)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        asked = f"master {master!r}" if master else "its master"
        raise UsageError(f"Spark does not start with {asked}; check --master and Java") from error


@contextlib.contextmanager
def session_of_ours(master: str | None = None, app_name: str = "kfuzz") -> Iterator[SparkSession]:
    """:func:`session`, stopped at the end unless it ran before."""
    running = SparkSession.getActiveSession()
    spark = session(master, app_name)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


def default_tasks(spark: SparkSession, size: int, segments: int) -> int:
    """About 1 GiB a task, but a few for every core and none without a segment."""
    cores = int(spark.conf.get("spark.default.parallelism", None) or _cores(spark))
    return max(1, min(segments, max(TASKS_PER_CORE * cores, -(-size // TASK_BYTES))))


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        # Spark Connect has no context to ask.
        return 8


@contextlib.contextmanager
def failures_as_sentences() -> Iterator[None]:
    """Turn a failed job into a ``KfuzzError`` that says what the task said, without Java's and Python's traces."""
    try:
        yield
    except PySparkException as error:
        told = re.findall(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$", str(error), flags=re.MULTILINE)
        causes = [f"{kind}: {text.strip()}" for kind, text in told if kind not in ("PythonException", "SparkException")]
        reason = causes[-1] if causes else str(error).splitlines()[0]
        raise KfuzzError(f"the Spark job failed: {reason}") from error


@contextlib.contextmanager
def task_progress(spark: SparkSession, set_done: Callable[[int], None]) -> Iterator[None]:
    """Call ``set_done`` with the tasks finished by the jobs that run inside the block."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except PySparkException:
        # Spark Connect tells nothing until the end.
        yield
        return
    stop = threading.Event()

    def poll() -> None:
        done = 0
        while not stop.wait(POLL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = max([done, *(stage.numCompletedTasks for stage in stages if stage is not None)])
            set_done(done)

    thread = threading.Thread(target=poll, name="kfuzz-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _logging() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="kfuzz-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / "log4j2.properties"
    path.write_text(LOGGING)
    return path
