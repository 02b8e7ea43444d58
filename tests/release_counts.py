"""The numbers that the tests count for each release of Kafka; ``release_counts.toml`` says what the numbers mean."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

COUNTS: Final[dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
