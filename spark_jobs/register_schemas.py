"""Registers the schemas of a corpus with a registry: ``register_schemas.py http://localhost:8081 out/corpus``.

The registry must be in the mode IMPORT, which takes ids from its clients. It needs no package.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

KINDS = {".avsc": "AVRO", ".proto": "PROTOBUF", ".schema.json": "JSON"}


def post(url: str, body: dict[str, Any]) -> Any:
    """The registry's answer to ``body``."""
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=30) as answer:
        return json.load(answer)


def register(registry: str, corpus: str) -> list[str]:
    """Register the schemas of all keys and values that have an id. Each reference is a subject of its own name."""
    done = []
    for topic in tomllib.loads(Path(corpus, "_workload.toml").read_text())["topics"]:
        for side in ("keys", "values"):
            given = topic[side]
            if not isinstance(given.get("schema_id"), int):
                continue
            kind = next(kind for suffix, kind in KINDS.items() if given["schema"].endswith(suffix))
            references: list[dict[str, Any]] = []
            for name in given.get("references", ()):
                body = {"schemaType": kind, "schema": given["texts"][name], "references": references}
                post(f"{registry}/subjects/{name}/versions", body)
                references = [*references, {"name": name, "subject": name, "version": 1}]
            subject = f"{topic['name']}-{side.removesuffix('s')}"
            body = {"schemaType": kind, "schema": given["texts"][given["schema"]], "references": references}
            post(f"{registry}/subjects/{subject}/versions", {"id": given["schema_id"], **body})
            done.append(subject)
    return done


if __name__ == "__main__":
    print(*register(*sys.argv[1:]), sep="\n")
