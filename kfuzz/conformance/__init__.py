"""The referee: judges any implementation that speaks the testee protocol (docs/testee-protocol.md).

A testee is a program. Choose a testee, choose vectors, and run the testee on the questions that the vectors make:

>>> from pathlib import Path
>>> from kfuzz.conformance import Places, cases_of, run, select, all_testees
>>> from kfuzz.vectors import default_root, load_suite
>>> testees = select(all_testees(), ["kfuzz"])
>>> cases = cases_of(load_suite("records/v2/count/*"), roles=["consumer"])
>>> done = run(testees, cases, places=Places.beside(default_root()), whole=False)
>>> done.failed, done.testees[0].totals() == {"pass": len(cases)}
(False, True)

``all_testees()``, ``select(testees, names)``, ``from_command(command)``
    all known testees, some of them by name, and one that a command line starts; each is a ``Testee``
``cases_of(vectors, roles=ALL_ROLES)``
    the questions that vectors make: a ``Case`` is one vector in one role
``run(testees, cases, *, places, whole, jobs=1, publish=False, limits=None)``
    ask every testee every question, and compare the answers with the expected outcomes in ``places``; returns a ``Run``
``Run``, ``Column``, ``Cell``, ``Standing``
    the run, one testee's column, one judged case, and how that case compares with its expected outcome
``Limits``
    what a request may cost if its vector states no budget
``PROTOCOL``, ``protocol_schema()``
    the name of the protocol, and its JSON Schema

The subpackages, from the bottom layer up: ``protocol`` (JSON lines, sessions, requests sent ahead), ``judge`` (verdicts
on answers), ``differential`` (two readers must agree on generated inputs), ``broker`` (a real broker as judge),
``report`` (the output). All raise :class:`kfuzz.errors.UsageError` for a wrong request.

Names are imported on first use, because ``make build`` builds the testees before kfuzz itself is compiled.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kfuzz.conformance.judge.compare import ALL_ROLES, Case, Cell, cases_of
    from kfuzz.conformance.judge.expected import Standing
    from kfuzz.conformance.judge.matrix import Column, Places, Run, run
    from kfuzz.conformance.protocol.lines import PROTOCOL
    from kfuzz.conformance.protocol.schema import protocol_schema
    from kfuzz.conformance.protocol.session import Limits
    from kfuzz.conformance.protocol.testees import Testee, all_testees, from_command, select

__all__ = [
    "ALL_ROLES",
    "PROTOCOL",
    "Case",
    "Cell",
    "Column",
    "Limits",
    "Places",
    "Run",
    "Standing",
    "Testee",
    "all_testees",
    "cases_of",
    "from_command",
    "protocol_schema",
    "run",
    "select",
]

_MODULES: Final = {
    name: module
    for module, names in {
        "judge.compare": ("ALL_ROLES", "Case", "Cell", "cases_of"),
        "judge.expected": ("Standing",),
        "judge.matrix": ("Column", "Places", "Run", "run"),
        "protocol.lines": ("PROTOCOL",),
        "protocol.schema": ("protocol_schema",),
        "protocol.session": ("Limits",),
        "protocol.testees": ("Testee", "all_testees", "from_command", "select"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
