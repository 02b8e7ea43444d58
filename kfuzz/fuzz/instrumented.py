"""Keeps what atheris makes of Python modules, so that it instruments each state of a module once.

Instrumenting takes most of a campaign's start. The counters in kept code are numbered from ``FIRST``; each process
replaces these numbers by those that atheris reserves for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import marshal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Final

import atheris
from atheris import import_hook, instrument_bytecode

from kfuzz.errors import UsageError
from kfuzz.files import write_whole

# No constant of kfuzz or of a peer is so large by chance.
FIRST: Final = 0x6B66757A7A << 88
# In place of the module, which instrumented code has among its constants.
ATHERIS: Final = "__KFUZZ_ATHERIS__"


@contextlib.contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """In the block, modules that atheris instruments are taken from ``folder``, or put there."""
    loader = import_hook.AtherisSourceFileLoader
    instrument = loader.get_code
    by = Path(instrument_bytecode.__file__).stat()

    def code_of(self: Any, name: str) -> CodeType:
        key = f"{sys.version}\0{by.st_mtime_ns}\0{by.st_size}\0{self.path}\0".encode() + self.get_data(self.path)
        digest, file = hashlib.sha256(key).digest(), folder / f"{name}.code"
        try:
            code, many = _read(file, digest)
        except (OSError, ValueError, EOFError, TypeError):
            numbers = itertools.count(FIRST)
            with _replaced(atheris, "_reserve_counter", lambda: next(numbers)):
                code = _with_constants(instrument(self, name), lambda one: ATHERIS if one is atheris else one)
            many = next(numbers) - FIRST
            # The folder of a build may be read-only.
            with contextlib.suppress(UsageError):
                write_whole(file, digest + marshal.dumps((code, many)))
        reserved = [atheris._reserve_counter() for _ in range(many)]

        def as_here(one: object) -> object:
            if isinstance(one, int) and one >= FIRST:
                return reserved[one - FIRST]
            return atheris if one == ATHERIS else one

        return _with_constants(code, as_here)

    with _replaced(loader, "get_code", code_of):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., object]) -> Iterator[None]:
    usual = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, usual)


def _read(file: Path, digest: bytes) -> tuple[CodeType, int]:
    data = file.read_bytes()
    if not data.startswith(digest):
        raise ValueError("of another state of the module")
    code, many = marshal.loads(data[len(digest) :])
    return code, many


def _with_constants(code: CodeType, change: Callable[[object], object]) -> CodeType:
    constants = (_with_constants(one, change) if isinstance(one, CodeType) else change(one) for one in code.co_consts)
    return code.replace(co_consts=tuple(constants))
