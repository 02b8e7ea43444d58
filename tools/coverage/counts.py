"""Writes what the compiled modules have counted, before gcov would: a pytest plugin, and for ``sitecustomize``.

gcov writes at the ordinary end of a process. The end of a test process may be cut short, because nobody waits for it.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Final

# The folder with everything that counts: the modules and, in the tests' temporary folders, the mutator's library.
COUNTED: Final = Path(__file__).resolve().parents[3]


def pytest_sessionfinish() -> None:
    """Before pytest-xdist says that this process is ready, and may end it."""
    write()


def write() -> None:
    """Add the counts of the libraries that are loaded to their files. Later counts are not written."""
    for name in sorted(set(re.findall(r"/\S+\.so$", Path("/proc/self/maps").read_text(), re.MULTILINE))):
        if Path(name).is_relative_to(COUNTED) and Path(name).is_file():
            dump = getattr(ctypes.CDLL(name), "__gcov_dump", None)
            if dump is not None:
                dump()
