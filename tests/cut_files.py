"""Runs verbs and readers on files that become shorter right after they are mapped; test_mapped.py runs it as a process.

Without a guard, the first of them would kill it by SIGBUS. It prints what each did, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from cli_driver import kfuzz
from replay.fake_broker import FakeBroker

from kfuzz import logs
from kfuzz.corpora.generation import generate
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Topic, Workload
from kfuzz.errors import UsageError
from kfuzz.mapped import Mapped

FIRST = f"{0:020d}"
LOG = f"orders-0/{FIRST}.log"
# A cut file keeps: nothing, whole pages, and a part of a page, whose rest reads as zeros without a signal.
LEFT = {"nothing": 0, "pages": 16 << 10, "a part of a page": -100}


def cut_from_now_on(left: int) -> None:
    """Cut a segment as soon as it is mapped."""

    def cut(self: Mapped, file: BinaryIO, start: int, end: int, *, private: bool = False) -> None:
        if str(file.name).endswith(LOG):
            os.truncate(file.name, left if left >= 0 else os.fstat(file.fileno()).st_size + left)

    Mapped.__init__ = cut  # type: ignore[method-assign,assignment]


Way = Callable[[Path], tuple[int, str]]


def verb(*words: str) -> Way:
    def run(place: Path) -> tuple[int, str]:
        done = kfuzz(*[word.format(place=place) for word in words])
        return done.returncode, done.stderr

    return run


def reader(read: Callable[[Path], object]) -> Way:
    def run(place: Path) -> tuple[int, str]:
        told: list[str] = []

        def body() -> None:
            try:
                read(place)
            except UsageError as error:
                told.append(f"kfuzz: {error}\n")

        # The signal comes to the thread that reads.
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        return (2, told[0]) if told else (0, "")

    return run


def replayed(place: Path) -> tuple[int, str]:
    with FakeBroker({"orders": 1}) as broker:
        return verb("corpus", "replay", f"{place}", "--bootstrap", f"127.0.0.1:{broker.port}")(place)


WAYS: dict[str, Way] = {
    "show": verb("show", f"{{place}}/{LOG}"),
    "show --json": verb("show", "--json", f"{{place}}/{LOG}"),
    "check FILE": verb("check", f"{{place}}/{LOG}"),
    "check DIR": verb("check", "{place}"),
    "cat": verb("cat", "{place}"),
    "cat --keep-going": verb("cat", "{place}", "--keep-going"),
    "salvage": verb("salvage", "{place}", "--out", "{place}-salvaged"),
    "corpus verify": verb("corpus", "verify", "{place}"),
    "logs.read": reader(lambda place: list(logs.read(place))),
    "logs.read, tolerant": reader(lambda place: list(logs.read(place, mode="tolerant"))),
    "verification.verify": reader(lambda place: verify(place, jobs=2)),
    "replay": replayed,
}


def main() -> None:
    scratch = Path(sys.argv[1])
    generate(Workload(topics=(Topic("orders"),), size=128 * KIB, segment_bytes=128 * KIB, seed=8), scratch / "made")
    done: dict[str, dict[str, object]] = {}
    for name, left in LEFT.items():
        cut_from_now_on(left)
        for way, run in WAYS.items():
            place = Path(shutil.copytree(scratch / "made", scratch / f"{way.replace(' ', '-')}{left}"))
            code, told = run(place)
            made = [str(path) for path in place.parent.glob(f"{place.name}-salvaged/**/*") if path.is_file()]
            done[f"{way}, {name} is left"] = {"code": code, "told": told, "log": str(place / LOG), "made": made}
    print(json.dumps(done))


if __name__ == "__main__":
    main()
