"""Describes a campaign's target to the mutation hook, ``kfuzz/mutate/library.c``."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from kfuzz.fuzz.messages import SELECTOR_SIZE
from kfuzz.records.codecs import ZLIB_LIBRARY, ZSTD_LIBRARY

if TYPE_CHECKING:
    from kfuzz.fuzz.targets import Target

# ``kfuzz_schema_of`` of library.c: takes the three bytes that select a message; returns where its schema is.
SCHEMA_OF = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
# Keeps callbacks and schemas alive while C code may use them.
_kept: list[Any] = []


def prepare(library: ctypes.CDLL, target: Target) -> None:
    """Describe the target to the hook in ``library``. If it has no hook, only libFuzzer mutates."""
    if getattr(library, "kfuzz_mutator_settings", None) is None:
        return
    library.kfuzz_mutator_settings(ZLIB_LIBRARY.encode(), (ZSTD_LIBRARY or "").encode(), int(target.compresses))
    if target.flat_schema_of is None:
        return
    ask = target.flat_schema_of

    def schema_of(selector: int) -> int | None:
        schema = ask(ctypes.string_at(selector, SELECTOR_SIZE))
        if schema is None:
            return None
        _kept.append(ctypes.create_string_buffer(schema, len(schema)))
        return ctypes.addressof(_kept[-1])

    _kept.append(SCHEMA_OF(schema_of))
    library.kfuzz_mutate_messages(_kept[-1])
