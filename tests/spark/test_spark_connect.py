"""Spark Connect: the jobs generate and verify through a server, with progress, and make the bytes of one process."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import missing, require_tool
from made_corpora import digests
from programs import run_program

from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import KIB, MIB, load, render

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
WORKLOAD = replace(load(ROOT / "spark_jobs/workloads/mixed.toml"), size=8 * MIB, segment_bytes=128 * KIB)
# Spark Connect needs a session of its own, so this runs in a process of its own.
PROGRAM = """
import sys
from kfuzz.corpora.workload import load
from kfuzz.spark.generation import generate
from kfuzz.spark.sessions import session_of_ours
from kfuzz.spark.verification import verify
workload, out = sys.argv[1:]
with session_of_ours() as spark:
    assert type(spark).__module__ == "pyspark.sql.connect.session", type(spark)
    heard = []
    generate(spark, load(workload), out, tasks=40, set_done=heard.append)
    assert heard == sorted(heard) and heard[-1] == 40, heard
    assert any(0 < done < 40 for done in heard), heard
    assert verify(spark, out, tasks=3)[1] == []
"""


@pytest.mark.nightly
def test_a_corpus_through_spark_connect_is_that_of_one_process(tmp_path: Path) -> None:
    require_tool("java", "install a Java runtime of version 17 or newer")
    for name in ("grpc", "grpc_status", "google.rpc"):
        try:
            __import__(name)
        except ImportError:
            missing(name, "run pip install 'kfuzz[connect]'")
    (tmp_path / "w.toml").write_text(render(WORKLOAD))
    command = (sys.executable, "-c", PROGRAM, tmp_path / "w.toml", tmp_path / "out")
    variables = {"SPARK_REMOTE": "local[2]", "PYTHONPATH": str(ROOT)}
    run_program(*command, cwd=tmp_path, variables=variables, timeout=300)
    generate(WORKLOAD, tmp_path / "here")
    assert digests(tmp_path / "out") == digests(tmp_path / "here")


@pytest.mark.parametrize(
    ("remote", "master", "told"),
    [
        ("sc://host", "local[2]", "--master has no effect; leave one of them out"),
        ("http://host", None, "no session of Spark Connect at 'http://host' "),
    ],
)
def test_a_server_that_cannot_serve_is_one_sentence(remote: str, master: str | None, told: str) -> None:
    """In a process of its own, because pyspark keeps in mind that it was asked for Connect."""
    pytest.importorskip("pyspark", reason="pyspark is missing; run pip install 'kfuzz[spark]'")
    program = f"from kfuzz.spark.sessions import session\nsession({master!r})"
    variables = {"SPARK_REMOTE": remote, "PYTHONPATH": str(ROOT)}
    done = run_program(sys.executable, "-c", program, variables=variables, code=1)
    [last] = done.stderr.splitlines()[-1:]
    assert last.startswith("kfuzz.errors.UsageError: ")
    assert told in last
