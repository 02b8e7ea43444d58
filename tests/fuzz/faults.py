"""Faults of the code that an oracle watches: each replaces one function, and the oracle must say so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from kfuzz.fuzz.oracle import OracleFailure

# A function of a module, how it is replaced by one that gets the real one, the input that shows it, and how the
# oracle's sentence begins.
Fault = tuple[ModuleType, str, Callable[[Any], Any], bytes, str]


def require_seen(monkeypatch: pytest.MonkeyPatch, run: Callable[[bytes], None], fault: Fault) -> None:
    """The oracle ``run`` is content with the input before the fault, and not with it."""
    module, name, change, data, sentence = fault
    run(data)
    monkeypatch.setattr(module, name, change(getattr(module, name)))
    with pytest.raises(OracleFailure) as failure:
        run(data)
    assert re.match(sentence, str(failure.value)), failure.value


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail


def as_if(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that calls ``make`` with the real one's result."""
    return lambda real: lambda *arguments, **options: make(real(*arguments, **options))


def having(**fields: Any) -> Callable[[Any], Any]:
    """A function whose result has other fields than that of the real one."""
    return as_if(lambda made: replace(made, **fields))
