"""Spark sessions with little output, a Java that is found automatically, and this interpreter for Python workers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kfuzz import errors
from kfuzz.corpora.prediction import TASKS_MAX, tasks_of
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.spark.java import ensure_java
from kfuzz.spark.rows import Task, ddl

# A few tasks per core balance the load and make progress visible.
TASKS_PER_CORE = 4
POLL_S = 0.25
# How long to wait for an interrupted job to end before the session is stopped.
CANCEL_S = 5.0
# How long to wait for the other tasks of a failed job. Spark notices within 2 s that a task must end, and kills its
# Python worker 2 s later.
KILL_S = 10.0
# Finds errors in the text of a failed job: the exception's type, without its module, and its message.
TOLD = re.compile(r"^(?:Caused by: )?(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
# Python's variable for what -P does.
PYTHON_SAFE_PATH = "PYTHONSAFEPATH"
SAFE_PATH_IS_OURS = "KFUZZ_SAFE_PATH"
LOG_LEVEL = "spark.log.level"
MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
# Java's words where a worker cannot be started, at the end of a longer line.
NO_PYTHON = re.compile(r'Cannot run program "([^"\n]*)": (.+)$', re.MULTILINE)
LOGGING = Path(__file__).with_name("log4j2.properties")


def session(master: str | None = None, app_name: str = "kfuzz") -> SparkSession:
    """The running session, or a new one.

    The variable ``SPARK_REMOTE`` names a server of Spark Connect. Without it and ``master``, ``spark-submit`` chooses
    the master if it started this process; otherwise it is ``local[*]``.
    Raises ``UsageError`` if Spark does not start.
    """
    # A server of Spark Connect has its own Java and settings. `local[2]` starts one here.
    if remote := os.environ.get("SPARK_REMOTE"):
        if master:
            raise UsageError(f"SPARK_REMOTE is {remote!r}, so --master has no effect; leave one of them out")
        return _remote_session(remote, app_name)
    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    # If this variable is set, spark-submit has already started Java, with its own log settings.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        ensure_java()
        master = master or "local[*]"
        settings |= {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"}
        settings |= _driver_address(master)
    elif not SparkConf().contains(LOG_LEVEL):
        settings[LOG_LEVEL] = "OFF"
    # Otherwise workers run the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).config(map=settings)
    if master:
        builder = builder.master(master)
    try:
        with _interrupts_kept(), _no_orphans():
            return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        asked = f"master {master!r}" if master else "its master"
        raise UsageError(f"Spark does not start with {asked}; check --master and Java") from error


def _remote_session(remote: str, app_name: str) -> SparkSession:
    if remote.startswith("local"):
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _interrupts_kept(), _no_orphans():
            return SparkSession.builder.remote(remote).appName(app_name).getOrCreate()
    # pyspark raises ImportError for a missing package and lets gRPC's own errors pass.
    except Exception as error:
        raise UsageError(
            f"no session of Spark Connect at {remote!r} ({_first_line(error)}); "
            "check SPARK_REMOTE, and run `pip install 'kfuzz[connect]'`"
        ) from error


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


def _is_remote(spark: SparkSession) -> bool:
    # Its class cannot be imported where Spark Connect's requirements are missing.
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _driver_address(master: str) -> dict[str, str]:
    """Settings for the driver's address. A local master has its executors on this machine, so 127.0.0.1 is enough.

    The workers of a cluster must reach the driver, so there Spark chooses: ``SPARK_LOCAL_IP``, ``spark.driver.host``
    of spark-defaults.conf, or else this machine's first address.
    """
    if not master.startswith("local"):
        return {}
    return {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Restore the SIGINT handler that pyspark replaces: pyspark's handler calls Java at any point in Python code."""
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
    """If the block fails, kill the processes that it started: a Java that was interrupted while starting never ends."""
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
def _safe_path() -> Iterator[None]:
    """Let the workers on this machine import nothing from the current folder: Spark starts them with ``-m``."""
    if PYTHON_SAFE_PATH in os.environ:
        yield
        return
    os.environ |= {PYTHON_SAFE_PATH: "1", SAFE_PATH_IS_OURS: "1"}
    try:
        yield
    finally:
        del os.environ[PYTHON_SAFE_PATH], os.environ[SAFE_PATH_IS_OURS]


def start_programs_as_usual() -> None:
    """In a worker: do not pass :func:`_safe_path` on to the programs of others that it starts."""
    if os.environ.pop(SAFE_PATH_IS_OURS, ""):
        os.environ.pop(PYTHON_SAFE_PATH, None)


@contextlib.contextmanager
def session_of_ours(master: str | None = None, app_name: str = "kfuzz") -> Iterator[SparkSession]:
    """Like :func:`session`, but stops the session at the end, unless it was already running before."""
    running = SparkSession.getActiveSession()
    with _safe_path():
        spark = session(master, app_name)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


def default_tasks(spark: SparkSession, size: int, segments: int) -> int:
    """The number of tasks: one per GiB of ``size``, at least four per core, at most 20,000 and one per segment."""
    return max(1, min(segments, TASKS_MAX, max(tasks_of(size, segments), TASKS_PER_CORE * cores(spark))))


def cores(spark: SparkSession) -> int:
    """The number of tasks that can run at the same time, as far as Spark knows it now."""
    try:
        return int(spark.conf.get("spark.default.parallelism", None) or spark.sparkContext.defaultParallelism)
    except PySparkException:
        # Spark Connect has no SparkContext.
        return 8


def run(
    spark: SparkSession,
    count: int,
    tasks: int,
    columns: pa.Schema,
    task: Task,
    set_done: Callable[[int], None] = lambda done: None,
    set_failed: Callable[[int], None] = lambda failed: None,
) -> pa.Table:
    """The rows of a job, with these ``columns``: ``tasks`` tasks divide the numbers below ``count``.

    ``set_done`` is called with the number of finished tasks, and with ``tasks`` at the end. ``set_failed`` is called
    before with the number of failed attempts. It is not known over Spark Connect.

    Raises ``KfuzzError`` if the job fails: one sentence with the task's error, without Java and Python tracebacks.
    An interrupt (``KeyboardInterrupt``) cancels the job. In both cases the job's other tasks have ended, so nothing
    writes after the caller has got its error, unless they hang.
    """
    job = spark.range(0, count, 1, tasks).mapInArrow(task, ddl(columns))
    # A server of Spark Connect reports its progress by itself; it has no status to ask for.
    remote = _is_remote(spark)
    group = f"kfuzz-{uuid.uuid4()}"
    outcome: list[pa.Table | BaseException] = []
    done = most_failed = 0

    # pyspark calls it with names.
    def heard(stages: Iterable[Any] | None, **rest: object) -> None:
        nonlocal done
        done = max([done, *(one.num_completed_tasks for one in stages or () if one.num_tasks == tasks)])

    def call() -> None:
        try:
            if not remote:
                spark.sparkContext.setJobGroup(group, "kfuzz")
            outcome.append(job.toArrow())
        except BaseException as error:
            outcome.append(error)

    # pyspark loses an interrupt that arrives during a call to Java. So the call runs in a thread of its own, and this
    # thread waits where an interrupt does no harm.
    thread = InheritableThread(target=call, session=spark)
    thread.daemon = True
    hear: Any = heard
    if remote:
        spark.registerProgressHandler(hear)
    thread.start()
    try:
        while thread.is_alive():
            if not remote:
                ended, failed = _tasks_ended(spark, tasks)
                done = max(done, ended)
                most_failed = max(most_failed, failed)
                set_failed(most_failed)
            set_done(done)
            thread.join(POLL_S)
    except BaseException:
        _cancel(spark)
        thread.join(CANCEL_S)
        if not remote:
            _wait_for_tasks(spark, group)
        raise
    finally:
        if remote:
            spark.removeProgressHandler(hear)
    [answer] = outcome
    if isinstance(answer, BaseException) and not remote:
        _wait_for_tasks(spark, group)
    if isinstance(answer, PySparkException | Py4JError):
        raise KfuzzError(f"the Spark job failed: {reason(str(answer))}") from answer
    if isinstance(answer, BaseException):
        raise answer
    # A short job ends before its last progress is heard.
    set_done(tasks)
    return answer


def _tasks_ended(spark: SparkSession, tasks: int) -> tuple[int, int]:
    """The numbers of finished tasks and of failed attempts in the active stage that has ``tasks`` tasks."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    ours = [one for one in stages if one is not None and one.numTasks == tasks]
    return max((one.numCompletedTasks for one in ours), default=0), max((one.numFailedTasks for one in ours), default=0)


def _wait_for_tasks(spark: SparkSession, group: str) -> None:
    """Wait until no task of the jobs in ``group`` runs. After a failure, Spark kills the other tasks but does not wait
    for them.
    """
    tracker = spark.sparkContext.statusTracker()
    end = time.monotonic() + KILL_S
    with contextlib.suppress(PySparkException, Py4JError):
        jobs = [tracker.getJobInfo(one) for one in tracker.getJobIdsForGroup(group)]
        stages = [stage for one in jobs if one is not None for stage in one.stageIds]
        while time.monotonic() < end and any(
            one is not None and one.numActiveTasks for one in map(tracker.getStageInfo, stages)
        ):
            time.sleep(POLL_S)


def _cancel(spark: SparkSession) -> None:
    with contextlib.suppress(PySparkException, Py4JError):
        if _is_remote(spark):
            spark.interruptAll()
            return
        # The tasks fail because they are cancelled, so Java's messages about it are noise.
        spark.sparkContext.setLogLevel("OFF")
        spark.sparkContext.cancelAllJobs()


def reason(text: str) -> str:
    """The cause of a failed job, from the text of pyspark's exception."""
    if lost := NO_PYTHON.search(text):
        return (
            f"the executors cannot start {lost[1]!r} ({lost[2].strip()}); set spark.pyspark.python, or PYSPARK_PYTHON, "
            "to a Python that every executor has"
        )
    told = [(kind, message.strip()) for kind, message in TOLD.findall(text)]
    causes = [(kind, message) for kind, message in told if kind not in ("PythonException", "SparkException")]
    if not causes:
        return text.splitlines()[0]
    kind, message = causes[-1]
    if kind == "ModuleNotFoundError" and (module := MISSING_MODULE.match(message)):
        python = os.environ.get("PYSPARK_PYTHON", "python3")
        return (
            f"{module[1]} is not installed for the workers' Python ({python}); install kfuzz[spark] on every "
            "executor, or send it with the job as docs/spark.md says"
        )
    # The text of a kfuzz error is already a full sentence.
    return message if kind in errors.__all__ else f"{kind}: {message}"
