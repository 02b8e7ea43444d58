"""The golden suite: load its vectors, and build, check and copy it.

A vector is a few bytes plus the result that each role must reach. Load vectors by id; ``*`` also matches ``/``:

>>> from kfuzz.vectors import find_vector, load_suite
>>> vector = find_vector("records/v2/count/negative-one")
>>> vector.summary
'the record count is -1; the CRC is right'
>>> vector.expect["consumer"]["verdict"], vector.expect["consumer"]["finding"]
('invalid', 'record-count-negative')
>>> len(vector.data)
70

``load_suite`` returns the vectors of one or more kinds (``KINDS`` lists them). This loop is a complete test of a
decoder's verdicts; here it tests kfuzz's own decoder:

>>> from kfuzz import records
>>> for vector in load_suite("records/v2/count/*"):
...     verdict = vector.expect["consumer"]["verdict"]
...     accepted = records.check(vector.data).fatal is None
...     assert verdict == "acceptable" or accepted == (verdict == "valid"), vector.id

Loading does not build bombs: the first access to ``vector.data`` builds the bytes. ``vector.size`` needs no build.

``load_suite(pattern="*", root=None, *, kinds=("records",))``
    the matching vectors, sorted by id
``find_vector(name, root=None)``
    the vector with that id
``has_vector(name)``
    whether an id or a glob matches a vector of kfuzz's own suite
``load_file(path)``, ``load_files(root=None)``
    whole files, with the flags that they explain
``Vector``, ``Bomb``, ``Flag``, ``SuiteFile``
    the types that these functions return
``KINDS``
    the kinds of vectors, by name
``default_root()``, ``suite_version(root=None)``
    the folder of kfuzz's own suite; the version of a suite (docs/suite-policy.md)

All of them raise :class:`kfuzz.errors.UsageError` with one sentence that names the place and the remedy. Importing
this package is cheap: it loads no codec and no recipe. docs/vectors.md describes the files.
"""

from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import (
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
