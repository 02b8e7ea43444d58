"""Kafka's error codes: the names of all, and the meaning of those that a broker gives for records.

``broker_errors.toml`` has both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_TABLES: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

ERROR_NAMES: Final[Mapping[int, str]] = {int(code): name for code, name in _TABLES["names"].items()}
# The other way round.
ERROR_CODES: Final[Mapping[str, int]] = {name: code for code, name in ERROR_NAMES.items()}
ERROR_MEANINGS: Final[Mapping[int, str]] = {ERROR_CODES[name]: text for name, text in _TABLES["meanings"].items()}
AFTER_APPEND: Final = frozenset(ERROR_CODES[name] for name in _TABLES["after_append"])
TAKEN: Final = frozenset(ERROR_CODES[name] for name in _TABLES["taken"])
