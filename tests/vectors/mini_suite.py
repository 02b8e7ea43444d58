"""A suite of five vectors in a directory of the test's own, to be spoiled at will."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfuzz.vectors.building import canonical_json
from kfuzz.vectors.ids import digest_of, register
from kfuzz.vectors.model import default_root

KEPT = ("of-2", "of-3", "one-too-high", "negative-one", "zero-with-record")
FILE = "records/v2/count.json"

Document = dict[str, Any]


def document() -> Document:
    """The committed file on record counts, cut down to five vectors: two valid, three not."""
    whole = json.loads((default_root() / FILE).read_bytes())
    vectors = [vector for vector in whole["vectors"] if vector["id"].rpartition("/")[2] in KEPT]
    used = {flag for vector in vectors for flag in vector["flags"]}
    return {**whole, "flags": {name: whole["flags"][name] for name in used}, "vectors": vectors}


def write(root: Path, spoil: Callable[[Document], Any] = lambda document: None) -> Path:
    """Write the suite under ``root`` after ``spoil`` had its way with the file's document; returns ``root``."""
    spoiled = copy.deepcopy(document())
    register(root, {vector["id"]: digest_of(vector) for vector in spoiled["vectors"]})
    spoil(spoiled)
    path = root / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(canonical_json(spoiled))
    shutil.copy(default_root() / "requirements.json", root)
    return root
