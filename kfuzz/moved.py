"""Old module names. They work for one release, with a ``DeprecationWarning``."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

__all__ = ["GONE_IN", "MOVED", "install"]

# The release that removes this module and the old names; a test fails when kfuzz reaches this version.
GONE_IN: Final = "0.2.0"

MOVED: Final = {
    "kfuzz.conformance.exchange": "kfuzz.conformance.broker.exchange",
    "kfuzz.messages.annotate": "kfuzz.annotate.messages",
    "kfuzz.messages.catalogue": "kfuzz.messages.catalogues",
    "kfuzz.messages.schema": "kfuzz.messages.schemas",
    "kfuzz.records.annotate": "kfuzz.annotate.records",
    "kfuzz.records.append": "kfuzz.records.appending",
    "kfuzz.records.compact": "kfuzz.records.compaction",
    "kfuzz.records.compression": "kfuzz.records.codecs",
    "kfuzz.records.control": "kfuzz.control",
    "kfuzz.records.convert": "kfuzz.records.conversion",
    "kfuzz.records.findings": "kfuzz.findings.records",
    "kfuzz.records.reader": "kfuzz.records.read.reader",
    "kfuzz.records.roles": "kfuzz.records.read.topic",
}


class _Finder:
    """Finds a module under its old name by importing the new one. It is the last finder, so it sees only missing names.

    It has no base class, because importing ``importlib.abc`` takes longer than the rest of ``import kfuzz``.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {new}; {GONE_IN} removes the old name", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        # The import system overwrites the module's spec; `exec_module` restores it.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and spec.name in MOVED:
            module.__spec__ = spec.loader_state


def install() -> None:
    """Make the old names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
