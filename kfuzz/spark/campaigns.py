"""Runs fuzz campaigns on Spark: each task fuzzes one target, and shares inputs and causes with the others."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

import kfuzz
from kfuzz.conformance.judge.causes import Cause
from kfuzz.errors import KfuzzError
from kfuzz.fuzz import campaign
from kfuzz.fuzz.building import Sanitizer, build
from kfuzz.fuzz.causes import loaded, merged_causes
from kfuzz.fuzz.reproducing import replay_all
from kfuzz.fuzz.seeding import inputs
from kfuzz.fuzz.syncing import inputs_at, read_inputs, write_causes
from kfuzz.fuzz.targets import TARGETS, Target
from kfuzz.spark.archive import BESIDE
from kfuzz.spark.rows import columns_of, task_of
from kfuzz.spark.sessions import run, start_programs_as_usual
from kfuzz.storage import Target as Place

ROWS = columns_of(part=int, result=str)
# The inputs of a replay are divided by their SHA-1, whatever the number of tasks.
PARTS: Final = 4


def fuzz_shared(
    spark: SparkSession,
    targets: Sequence[str],
    seconds: int,
    place: Place,
    *,
    seed: int = 1,
    sanitizer: Sanitizer = "none",
    tasks: int,
    set_done: Callable[[int], None] = lambda done: None,
) -> tuple[list[dict[str, Any]], dict[str, list[Cause]]]:
    """Fuzz for ``seconds`` in each task: ``targets`` in turn, each task with its own seed.

    Returns the result of each task as in ``kfuzz fuzz --json``, and the causes of each target, the worst first. They
    are at ``place``, together with the corpora, and so is what earlier campaigns found there. A task whose machine is
    lost begins again, with the corpus that is there. Raises ``KfuzzError`` if a task fails.
    """
    uri, code = place.uri, _code()

    def work(parts: Iterator[int]) -> Iterator[list[dict[str, object]]]:
        _begin(code)
        for part in parts:
            with _folder() as out:
                [result] = campaign.run(
                    [targets[part % len(targets)]], seconds, seed=seed + part, out=out, sanitizer=sanitizer, sync=uri
                )
            yield [{"part": part, "result": json.dumps(result.to_json())}]

    results = _run(spark, tasks, tasks, work, set_done)
    return results, {target: write_causes(place.child(target)) for target in targets}


def replay_shared(
    spark: SparkSession,
    targets: Sequence[str],
    place: Place,
    *,
    sanitizer: Sanitizer = "none",
    tasks: int,
    set_done: Callable[[int], None] = lambda done: None,
) -> tuple[int, dict[str, list[Cause]]]:
    """Run each known input of ``targets``, and each one in their corpora at ``place``, once.

    Returns the number of inputs, and the causes of each target, the worst first. ``tasks`` changes nothing in them.
    Raises ``KfuzzError`` if a task fails.
    """
    uri, code = place.uri, _code()

    def work(parts: Iterator[int]) -> Iterator[list[dict[str, object]]]:
        _begin(code)
        made = build(sanitizer)
        for part in parts:
            target = TARGETS[targets[part // PARTS]]
            known = _inputs(Place.of(uri).child(target.name), target, part % PARTS)
            with _folder() as out:
                done = replay_all(made, target, known, Path(out).resolve())
            found = [cause.to_json() for cause in done.causes.values()]
            yield [{"part": part, "result": json.dumps({"target": target.name, "inputs": len(known), "causes": found})}]

    parts = len(targets) * PARTS
    results = _run(spark, parts, min(parts, tasks), work, set_done)
    causes = {
        target: merged_causes(
            map(loaded, chain.from_iterable(one["causes"] for one in results if one["target"] == target))
        )
        for target in targets
    }
    return sum(one["inputs"] for one in results), causes


def _inputs(shared: Place, target: Target, part: int) -> list[tuple[str, bytes]]:
    """The known inputs of a target, and those of its shared corpus, each with its name, in one part of the replay."""

    def is_mine(digest: str) -> bool:
        return int(digest[:2], 16) % PARTS == part

    known = {hashlib.sha1(data).hexdigest(): (name, data) for name, data in inputs(target)}
    there = {name for name, size in inputs_at(shared).items() if size <= target.length_max} - known.keys()
    known |= {name: (name, data) for name, data in read_inputs(shared, sorted(filter(is_mine, there)))}
    return [one for digest, one in sorted(known.items()) if is_mine(digest)]


def _run(
    spark: SparkSession,
    parts: int,
    tasks: int,
    work: Callable[[Iterator[int]], Iterator[list[dict[str, object]]]],
    set_done: Callable[[int], None],
) -> list[dict[str, Any]]:
    rows = run(spark, parts, tasks, ROWS, task_of(ROWS, work), set_done).sort_by("part")
    return [json.loads(str(text)) for text in rows.column("result").to_pylist()]


def _begin(wanted: str) -> None:
    """In a worker: be ready to start the fuzzer."""
    start_programs_as_usual()
    if (code := _code()) != wanted:
        raise KfuzzError(f"an executor has kfuzz {code}, and the driver has {wanted}; make the archive again")


def _code() -> str:
    """The version of kfuzz, and a digest of its Python code."""
    root = Path(kfuzz.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        # A checkout has these elsewhere.
        if name.parts[:2] not in BESIDE:
            digest.update(f"{name}\0".encode() + path.read_bytes())
    return f"{kfuzz.__version__} (code {digest.hexdigest()[:8]})"


def _folder() -> tempfile.TemporaryDirectory[str]:
    # Spark removes its own folder if this worker is killed.
    return tempfile.TemporaryDirectory(prefix="kfuzz-fuzz-", dir=".")
