"""Old names of modules, which work for one release with a ``DeprecationWarning``."""

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

# The release in which this module and all its names go; a test fails when it is reached.
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
    """Finds an old name by importing the new one. It comes last, so it is asked only about what is not there.

    It has no base class, because ``importlib.abc`` costs more than the rest of ``import kfuzz``.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {new}; the old name goes in {GONE_IN}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        # The import system writes its own spec over the module's; `exec_module` puts this one back.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and spec.name in MOVED:
            module.__spec__ = spec.loader_state


def install() -> None:
    """Let the old names be imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
