"""The vectors for runners in other languages: the file ``vectors.json``, and the packages that hold it.

A package is a folder of ``packages/`` with the vectors of records in one file: for each vector its bytes, its verdict
for a consumer, and the records that a consumer gets. A bomb has its recipe's name instead of the bytes. Equal suites
give equal files. ``make packages`` makes packages, and each copy of the suite has two of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kfuzz import __version__
from kfuzz.files import read_bytes
from kfuzz.kafka import CODECS
from kfuzz.vectors.model import Bomb, Vector
from kfuzz.wire.io.layout import CODEC_AT, CODEC_MASK, MAGIC_AT
from kfuzz.wire.records.framing import frames

VECTORS_FILE: Final = "vectors.json"
# In the manifests of packages.
VERSION: Final = b"0.0.0-kfuzz"
# The end of every README.
RULES: Final = "rules.md"
# Left by earlier builds in the sources.
BUILT: Final = frozenset({"target", "node_modules", "Cargo.lock", "go.sum", "package-lock.json"})


def package_files(source: Path, data_path: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of the package in the folder ``source`` with the vectors ``data``, by their names in the package."""
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if not path.is_file() or BUILT.intersection(inside.parts):
            continue
        content = read_bytes(path)
        if inside == Path("README.md"):
            content += b"\n" + read_bytes(source.parent / RULES)
        yield inside.as_posix(), content.replace(VERSION, __version__.encode())
    yield data_path, data


def vectors_file(vectors: Iterable[Vector], suite: str | None) -> bytes:
    """The contents of ``vectors.json``: a line for each vector of records that says something about a consumer.

    ``suite``: the suite's version.
    """
    chosen = (_described(one) for one in vectors if one.kind == "records" and "consumer" in one.expect)
    lines = ",\n".join(json.dumps(one, sort_keys=True, separators=(",", ":")) for one in chosen)
    head = json.dumps({"kfuzz": __version__, "suite": suite}, sort_keys=True)[1:-1]
    return f'{{{head}, "vectors": [\n{lines}\n]}}\n'.encode()


def _described(vector: Vector) -> dict[str, Any]:
    expect = vector.expect["consumer"]
    out: dict[str, Any] = {"id": vector.id, "summary": vector.summary, "verdict": expect["verdict"]}
    if isinstance(vector.source, Bomb):
        # Its recipe takes seconds; its name says the codec.
        codecs = [codec for codec in CODECS if codec in vector.source.recipe] or ["none"]
        return out | {"recipe": vector.source.recipe, "sha256": vector.source.sha256, "codecs": codecs, "magics": [2]}
    out["hex"] = vector.data.hex()
    if expect["verdict"] != "invalid":
        out["records"] = list(_records(expect["batches"]))
    return out | needs(vector.data)


def needs(data: bytes) -> dict[str, Any]:
    """The codecs and the magics of the batches in ``data``, as far as Kafka knows them."""
    found = list(frames(data))
    codecs = {data[at + CODEC_AT[magic]] & CODEC_MASK for at, _, magic in found if magic in CODEC_AT}
    return {
        "codecs": [CODECS[codec] for codec in sorted(codecs) if codec < len(CODECS)],
        "magics": sorted({data[at + MAGIC_AT] for at, _, _ in found} & {0, 1, 2}),
    }


def _records(batches: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records that a consumer gets: those of control batches are not shown. All bytes are hex."""
    for batch in batches:
        for record in () if batch["control"] else batch["records"]:
            headers = [
                [name["hex"] if isinstance(name, dict) else name.encode().hex(), value]
                for name, value in record["headers"]
            ]
            # Magic 0 has no timestamps, and Kafka says -1.
            yield {**record, "timestamp": record["timestamp"] or "-1", "headers": headers}
