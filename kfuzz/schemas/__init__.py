"""Keys and values that were written with a schema: Avro, Protobuf and JSON Schema (docs/files.md).

``store`` and ``registry`` find schemas, ``values`` takes off what is before a value, and ``avro``, ``proto`` and
``plain`` make JSON of it. It needs kfuzz[schemas]. Nothing here knows logs.
"""

from kfuzz.schemas.store import Schema, Store
from kfuzz.schemas.values import Schemas

__all__ = ["Schema", "Schemas", "Store"]
