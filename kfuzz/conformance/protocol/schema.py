"""The published JSON Schema of the testee protocol, made from the declarations in ``lines``.

``python -m kfuzz.conformance.protocol.schema`` rewrites ``testee.schema.json`` beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kfuzz.conformance.protocol.contents import DEFINITIONS
from kfuzz.conformance.protocol.lines import ANSWER, BATCHES, HANDSHAKE, PROTOCOL, RECORDS, REQUESTS
from kfuzz.files import write_whole

COMMITTED: Final = Path(__file__).with_name("testee.schema.json")


def protocol_schema() -> dict[str, Any]:
    """The schema of every line of the protocol: a testee's handshake, its answers, and the requests to it."""
    requests = {f"request-{operation}": form.schema for operation, form in REQUESTS.items()}
    messages = {
        "handshake": HANDSHAKE.schema,
        "answer": ANSWER.schema,
        "request": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in requests]},
        **requests,
    }
    record, batch = RECORDS.items.schema, BATCHES.items.schema
    shared = [(record, "record"), (_referring(batch, [(record, "record")]), "batch")]
    for named in shared:
        messages = {name: _referring(schema, [named]) for name, schema in messages.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kfuzz:{PROTOCOL.replace('/', ':')}",
        "title": f"A line of {PROTOCOL}",
        "description": "docs/testee-protocol.md says what an answer to each operation must have.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("handshake", "request", "answer")],
        "$defs": messages | {name: schema for schema, name in shared} | DEFINITIONS,
    }


def _referring(schema: Any, named: list[tuple[Any, str]]) -> Any:
    """``schema`` with references in place of the schemas that have a name."""
    for known, name in named:
        if schema == known:
            return {"$ref": f"#/$defs/{name}"}
    if isinstance(schema, dict):
        return {key: _referring(value, named) for key, value in schema.items()}
    return [_referring(item, named) for item in schema] if isinstance(schema, list) else schema


def schema_text() -> str:
    """The text of ``testee.schema.json``."""
    return json.dumps(protocol_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    write_whole(COMMITTED, schema_text())
