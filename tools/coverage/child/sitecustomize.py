"""Makes ``os._exit`` write what the compiled modules have counted, because forks of tests end with it.

Python runs this file at the start of each process.
"""

from __future__ import annotations

import os
from typing import NoReturn

_end = os._exit


def _write_and_end(status: int) -> NoReturn:
    try:
        from tools.coverage.counts import write

        write()
    finally:
        _end(status)


os._exit = _write_and_end
