"""The vector model, its recipes, build and lint. May import records/ and wire/.

Importing this package is light: it loads neither a codec nor a recipe.
"""

from kfuzz.vectors.model import Flag, SuiteFile, Vector, load_file, load_suite

__all__ = ["Flag", "SuiteFile", "Vector", "load_file", "load_suite"]
