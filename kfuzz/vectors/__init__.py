"""The golden suite: its vectors, and how to build, check and copy it.

A vector is a few bytes, and what each role must make of them. Load vectors by their ids; ``*`` matches ``/`` too:

>>> from kfuzz.vectors import find_vector, load_suite
>>> vector = find_vector("records/v2/count/negative-one")
>>> vector.summary
'the record count is -1; the CRC is right'
>>> vector.expect["consumer"]["verdict"], vector.expect["consumer"]["finding"]
('invalid', 'record-count-negative')
>>> len(vector.data)
70

``load_suite`` gives the vectors of one kind or several (``KINDS`` names all). This is the whole test of a decoder's
verdicts, here of kfuzz's own:

>>> from kfuzz import records
>>> for vector in load_suite("records/v2/count/*"):
...     verdict = vector.expect["consumer"]["verdict"]
...     accepted = records.check(vector.data).fatal is None
...     assert verdict == "acceptable" or accepted == (verdict == "valid"), vector.id

Loading makes no bomb: ``vector.data`` makes it when asked. ``vector.size`` is known without that.

``load_suite(pattern="*", root=None, *, kinds=("records",))``
    the vectors that match, sorted by id
``find_vector(name, root=None)``
    the one vector with that id
``has_vector(name)``
    whether an id or a glob names any vector of kfuzz's own suite
``load_file(path)``, ``load_files(root=None)``
    whole files, checked against the schema, with the flags that they explain
``Vector``, ``Bomb``, ``Flag``, ``SuiteFile``
    what these return
``KINDS``
    the kinds of vectors, by name
``default_root()``, ``suite_version(root=None)``
    the folder of kfuzz's own suite, and the version of a suite (docs/suite-policy.md)

All of them raise :class:`kfuzz.errors.UsageError`, with one sentence that names the place and the remedy. Importing
this package is light: it loads neither a codec nor a recipe. docs/vectors.md describes the files.
"""

from kfuzz.vectors.model import (
    KINDS,
    Bomb,
    Flag,
    SuiteFile,
    Vector,
    default_root,
    find_vector,
    has_vector,
    load_file,
    load_files,
    load_suite,
    suite_version,
)

__all__ = [
    "KINDS",
    "Bomb",
    "Flag",
    "SuiteFile",
    "Vector",
    "default_root",
    "find_vector",
    "has_vector",
    "load_file",
    "load_files",
    "load_suite",
    "suite_version",
]
