"""Measures the memory and the time that the driver of a large corpus needs: ``python -m tools.driver_memory``.

Everything is real except the segments: tasks keep rows without writing logs, and the listing of a partition shows the
files that the plan says. With ``--spark``, Spark runs the tasks. Otherwise one process keeps the rows of all tasks.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from kfuzz.corpora import summary
from kfuzz.corpora.generation import finish, inspect, prepare
from kfuzz.corpora.locks import owned
from kfuzz.corpora.manifest import Row
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.resolution import WORKLOAD
from kfuzz.corpora.rows import RowWriter
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.targets import Listing, LocalTarget, Target
from kfuzz.corpora.verification import Corpus, check_whole
from kfuzz.corpora.workload import KIB, MIB, Topic, Workload, render

__all__ = ["main"]

LOG_BYTES = 64 * MIB


class Simulated(LocalTarget):
    """A directory in which every segment seems to be written."""

    def __init__(self, root: Path, plan: Plan) -> None:
        super().__init__(root)
        self._plan = plan
        self._partitions = set(plan.directories())

    def free_bytes(self) -> None:
        """Not checked: nothing of the corpus is written."""

    def list(self, directory: str = "") -> Listing:
        real = super().list(directory)
        if directory in self._partitions:
            stems = list(self._plan.stems(directory))
            for stem in stems:
                real.files.update({f"{stem}.log": LOG_BYTES, f"{stem}.index": 0, f"{stem}.timeindex": 0})
            # A segment's snapshot has the name of the next segment.
            [topic] = self._plan.topics
            real.files.update({f"{stem}.snapshot": 0 for stem in [*stems[1:], f"{topic.offsets_per_partition:020d}"]})
        return real


def main() -> None:
    """Print the peak memory in MiB and the time in seconds of each step."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--segments", type=int, default=1_638_400, help="default: 100 TiB in segments of 64 MiB")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--spark", action="store_true", help="let Spark run the tasks")
    options = parser.parse_args()
    topic = Topic("t", partitions=options.partitions)
    workload = Workload(topics=(topic,), size=options.segments * LOG_BYTES, segment_bytes=LOG_BYTES)
    plan = Plan(workload)
    with tempfile.TemporaryDirectory(prefix="kfuzz-driver-") as place:
        template = _template(Path(place) / "template")
        target = Simulated(Path(place) / "out", plan)
        print(f"{len(plan)} segments in {options.partitions} partitions, {options.tasks} tasks")
        _spark(target, workload, options.tasks, template) if options.spark else _here(target, plan, options, template)
        corpus = Corpus(target, workload, plan, _step("opening", lambda: _rows(target)))
        _step("summary", lambda: summary.generated(target, corpus.rows, 1.0))
        problems = _step("check of the whole", lambda: check_whole(corpus))
        assert not problems, problems[:3]
        print(f"peak of the driver: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


def _template(place: Path) -> Row:
    """A row as a real segment has it."""
    small = Workload(topics=(Topic("t"),), size=64 * KIB, segment_bytes=64 * KIB)
    return write_segment(Plan(small)[0], 0, small, place, "template")


def _row(plan: Plan, segment_id: int, template: Row) -> Row:
    path, first, last = plan.bounds(segment_id)
    return replace(template, segment_id=segment_id, path=path, bytes=LOG_BYTES, first_offset=first, last_offset=last)


def _here(target: Simulated, plan: Plan, options: argparse.Namespace, template: Row) -> None:
    target.write(WORKLOAD, render(plan.workload))
    # Another process keeps the rows, as executors do: this one's peak is the driver's.
    tasks = multiprocessing.get_context("spawn").Process(
        target=_keep, args=(str(target.root), plan.workload, options.tasks, template)
    )
    tasks.start()
    _step("tasks, in a process of their own", tasks.join)
    assert tasks.exitcode == 0
    _step("planning of all segments", lambda: sum(plan[at].offsets for at in range(len(plan))))
    _step("refusals", lambda: inspect(target, plan.workload, resume="sizes"))
    with owned(target, plan.directories()) as lock:
        work = _step("resume", lambda: prepare(target, plan.workload, resume="sizes"))
        assert not work.left
        _step("manifest", lambda: finish(target, plan, work, lock))


def _keep(root: str, workload: Workload, tasks: int, template: Row) -> None:
    plan, target = Plan(workload), Target.of(root)
    for task in range(tasks):
        with RowWriter(target, workload, 1, f"task-{task}") as writer:
            for segment_id in range(len(plan) * task // tasks, len(plan) * (task + 1) // tasks):
                writer.add(_row(plan, segment_id, template))


def _spark(target: Simulated, workload: Workload, tasks: int, template: Row) -> None:
    from kfuzz.spark.generation import generate
    from kfuzz.spark.sessions import session_of_ours

    made = [template]

    def write(segment: Any, segment_id: int, workload: Any, out: Any, attempt: str) -> Row:
        import dataclasses

        return dataclasses.replace(
            made[0],
            segment_id=segment_id,
            path=segment.path,
            bytes=64 << 20,
            first_offset=segment.first_offset,
            last_offset=segment.last_offset,
        )

    with session_of_ours("local[2]", "kfuzz driver memory") as spark, _jvm():
        _step("Spark job, resume and manifest", lambda: generate(spark, workload, target, tasks=tasks, write=write))


@contextlib.contextmanager
def _jvm() -> Iterator[None]:
    """Print the peak of the JVM in MiB, which also has the executors of a local master."""
    children = psutil.Process().children(recursive=True)
    yield
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            if child.name() == "java":
                status = Path(f"/proc/{child.pid}/status").read_text()
                peak_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
                print(f"peak of the JVM: {peak_kib // 1024} MiB")


def _rows(target: Target) -> Any:
    from kfuzz.corpora.generation import MANIFEST
    from kfuzz.corpora.manifest import Manifest

    return Manifest(target.child(MANIFEST))


def _step(name: str, work: Any) -> Any:
    start = time.monotonic()
    result = work()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name}: {time.monotonic() - start:.1f} s, peak {peak_mib} MiB", flush=True)
    return result


if __name__ == "__main__":
    main()
