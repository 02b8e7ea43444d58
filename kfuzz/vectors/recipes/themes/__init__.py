"""The themes: one module per vector file. Its function ``theme`` returns the recipes of the file.

Themes use :mod:`kfuzz.vectors.recipes.theme` and the builders in :mod:`kfuzz.vectors.recipes.making`. The modules
``legacy``, ``stream`` and ``wrapper`` hold no theme of their own, only code that several themes share.
"""

from __future__ import annotations

import importlib
import pkgutil

from kfuzz.vectors.recipes.theme import Theme

__all__ = ["all_themes"]


def all_themes() -> tuple[Theme, ...]:
    """Every theme, in the order of the modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(module.theme() for module in modules if hasattr(module, "theme"))
