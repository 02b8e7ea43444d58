"""A Spark session that is quiet, finds Java, and runs its Python workers with this interpreter."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kfuzz import errors
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.spark.java import ensure_java

__all__ = ["collect", "default_tasks", "session", "session_of_ours"]

TASK_BYTES = 1 << 30
# A task costs some 30 ms: a few for each core even out the load and let progress be seen.
TASKS_PER_CORE = 4
POLL_S = 0.25
# How long an interrupted job may take to end before its session is stopped.
CANCEL_S = 5.0
# An error in the text of a job's failure: its type, without the module, and its message.
TOLD = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
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
logger.context.name = org.apache.spark.TaskContextImpl
logger.context.level = off
"""


def session(master: str | None = None, app_name: str = "kfuzz") -> SparkSession:
    """The running session, or a new one.

    ``master`` is left to ``spark-submit`` where that started us, and is ``local[*]`` otherwise; one given wins.
    """
    # Under spark-submit there is a Java virtual machine already.
    ours = "PYSPARK_GATEWAY_PORT" not in os.environ
    if ours:
        ensure_java()
    # Else workers take the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if ours:
        master = master or "local[*]"
        builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_logging()}")
        for name, value in _driver_address(master).items():
            builder = builder.config(name, value)
    if master:
        builder = builder.master(master)
    try:
        with _interrupts_kept(), _no_orphans():
            return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        asked = f"master {master!r}" if master else "its master"
        raise UsageError(f"Spark does not start with {asked}; check --master and Java") from error


def _driver_address(master: str) -> dict[str, str]:
    """Where the driver listens: with executors on this machine only, nobody else's connections are wanted.

    The workers of a cluster must reach the driver, so there the choice is Spark's (``SPARK_LOCAL_IP``,
    ``spark.driver.host`` of spark-defaults.conf, else this machine's first address).
    """
    if not master.startswith("local"):
        return {}
    return {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Take back the handler of SIGINT that pyspark installs: it calls Java from wherever Python happens to be."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _no_orphans() -> Iterator[None]:
    """End what the block has started where it fails: a Java that is left in the middle of its start never ends."""
    us = psutil.Process()
    before = set(us.children(recursive=True))
    try:
        yield
    except BaseException:
        for process in set(us.children(recursive=True)) - before:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        raise


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


def collect(job: DataFrame, tasks: int, set_done: Callable[[int], None] = lambda done: None) -> pa.Table:
    """The rows of ``job``, whose last stage has ``tasks`` tasks; ``set_done`` hears how many of these are finished.

    Raises ``KfuzzError`` where the job fails: one sentence with what the task said, without Java's and Python's traces.
    An interrupt (``KeyboardInterrupt``) cancels the job.
    """
    spark = job.sparkSession
    outcome: list[pa.Table | BaseException] = []

    def run() -> None:
        try:
            outcome.append(job.toArrow())
        except BaseException as error:
            outcome.append(error)

    # Interrupted in the middle of a call to Java, pyspark loses the interrupt. So the call gets a thread of its own,
    # and this one waits where an interrupt does no harm.
    thread = InheritableThread(target=run, session=spark)
    thread.daemon = True
    thread.start()
    done = 0
    try:
        while thread.is_alive():
            done = max(done, _tasks_done(spark, tasks))
            set_done(done)
            thread.join(POLL_S)
    except BaseException:
        _cancel(spark)
        thread.join(CANCEL_S)
        raise
    [answer] = outcome
    if isinstance(answer, PySparkException | Py4JError):
        raise KfuzzError(f"the Spark job failed: {_reason(str(answer))}") from answer
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _tasks_done(spark: SparkSession, tasks: int) -> int:
    """How many tasks of the stage that has ``tasks`` of them are finished."""
    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except PySparkException:
        # Spark Connect tells nothing until the end.
        return 0
    return max((one.numCompletedTasks for one in stages if one is not None and one.numTasks == tasks), default=0)


def _cancel(spark: SparkSession) -> None:
    with contextlib.suppress(PySparkException, Py4JError):
        # What dies now dies by our hand: nothing that Java says of it is news.
        spark.sparkContext.setLogLevel("OFF")
        spark.sparkContext.cancelAllJobs()


def _reason(text: str) -> str:
    """What a failed job died of, from the text of pyspark's exception."""
    told = [(kind, message.strip()) for kind, message in TOLD.findall(text)]
    causes = [(kind, message) for kind, message in told if kind not in ("PythonException", "SparkException")]
    if not causes:
        return text.splitlines()[0]
    kind, message = causes[-1]
    if kind == "ModuleNotFoundError" and (module := MISSING_MODULE.match(message)):
        python = os.environ.get("PYSPARK_PYTHON", "python3")
        return (
            f"{module[1]} is not installed for the workers' Python ({python}); install kfuzz[spark] there on every "
            "executor, or ship it as docs/corpora.md says"
        )
    # An error of kfuzz's own is a sentence already.
    return message if kind in errors.__all__ else f"{kind}: {message}"


def _logging() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="kfuzz-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = directory / "log4j2.properties"
    path.write_text(LOGGING)
    return path
